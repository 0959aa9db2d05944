"""A model composed of its distinct blocks, run once each."""

import json

import pytest

import xfcost
from helpers import error_of, xf
from xfcost.api.runs import make_run
from xfcost.counting.forward import count
from xfcost.ledger.errors import UsageError
from xfcost.ledger.metadata import Load
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.torch_models.build import build
from xfcost.torch_models.timing.kernels import RowSeconds
from xfcost.torch_models.timing.systems import composed, with_distinct_blocks
from xfcost.torch_models.timing.turns import Measured


def test_rows_count_as_often_as_their_blocks_and_the_rest_grows_with_them() -> None:
    # once: 2 + 1 s of rows in 3.3 s; twelve blocks of the first and one of the second: 24 + 1 s, in 25·3.3/3 s
    once = Measured({"": (3.3, 3.3)}, (RowSeconds({"a": 2.0, "b": 1.0}),) * 2, 0.0, Load(), 1, in_turns=False)
    found = composed(once, {"a": 12, "b": 1})
    assert [one.rows for one in found.passes] == [{"a": 24.0, "b": 1.0}] * 2
    assert found.times == pytest.approx((27.5, 27.5))


def test_every_distinct_block_stands_once() -> None:
    architecture = place(load("swin-t"), make_run())
    once = with_distinct_blocks(architecture, count(architecture))
    # W-MSA and SW-MSA in each of four stages; 2, 2, 6 and 2 blocks before
    assert [list(stage.order) for stage in architecture.streams[0].stages] == [[0, 1], [0, 1], [0, 1] * 3, [0, 1]]
    assert [list(stage.order) for stage in once.streams[0].stages] == [[0, 1]] * 4
    sizes = [sum(one.numel() for one in build(each).model.parameters()) for each in (architecture, once)]
    rows = count(architecture).rows
    assert sizes[0] - sizes[1] == sum(row.params * 2 for row in rows if row.times == 3)


@pytest.mark.parametrize("name", ["vit-ti32", "swin-t", "gpt2", "t5-small"])
def test_every_row_is_in_the_model_of_distinct_blocks(name: str) -> None:
    architecture = place(load(name), make_run(N=49))
    ledger = count(architecture)
    once = count(with_distinct_blocks(architecture, ledger))
    assert [row.path for row in once.rows] == [row.path for row in ledger.rows]
    assert {row.times for row in once.rows} == {1}


def test_other_modes_are_refused() -> None:
    with pytest.raises(UsageError, match="--composed: does not support --mode train"):
        xfcost.analyze("vit-ti32", trace=False, device="cpu", mode="train", composed=True, runs=1)


def test_the_command_says_that_it_is_composed() -> None:
    words = ("analyze", "vit-ti32", "--no-trace", "--device", "cpu", "--threads", "1", "--runs", "1", "--composed")
    assert "composed: every distinct block was run once" in xf(*words).stdout
    told = json.loads(xf(*words, "--format", "json").stdout)
    assert told["timing"]["composed"] is True
    assert told["timing"]["peak_bytes"] is None
    timed = [one["seconds"] * one["times"] for one in told["operations"] if one["seconds"] is not None]
    assert sum(timed) + told["timing"]["not_attributed"] == pytest.approx(told["timing"]["seconds"])
    assert "--composed and --compile" in error_of(*words, "--compile")
