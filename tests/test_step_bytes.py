"""Bytes that rows move in a step of training and in a generation, worked out by hand."""

from __future__ import annotations

import pytest

from helpers import PLAIN
from xfcost.api.runs import make_run
from xfcost.api.specs import AccountOptions, ready_to_time
from xfcost.ledger.join import with_operand_bytes
from xfcost.spec.load import load
from xfcost.torch_models.timing import rows as rows_
from xfcost.torch_models.timing.systems import System, SystemOnDevice

SMALL = ("stages.0.depth=1",)


def system(name: str, **options: object) -> System:
    run = make_run(**PLAIN, **options)
    return ready_to_time(load(name, SMALL), run, "cpu", AccountOptions(orders=False))


def held(found: System) -> dict[str, int | None]:
    room = SystemOnDevice(found, "cpu")
    return {row.path: row.operand_bytes for row in with_operand_bytes(found.ledger, room.row_bytes).rows}


def test_a_step_of_training_moves_gradients_and_what_was_saved() -> None:
    found = held(system("vit-ti32", mode="train"))
    tokens, width, hidden = 50, 192, 768
    ends, weights = tokens * width + tokens * hidden, width * hidden
    # forward: ends and weights; backward: gradients of the ends, of weights and biases; the input and the weights again
    expected = ends + (weights + hidden) + ends + (weights + hidden) + tokens * width + weights
    assert found["stages.0.block.1.fc1"] == 4 * expected
    # QKᵀ: Q and K in, 3 heads of 50² scores out; their gradients; Q and K again
    ends = 2 * tokens * width + 3 * tokens * tokens
    assert found["stages.0.block.0.scores"] == 4 * (2 * ends + 2 * tokens * width)
    assert None not in found.values()


def test_a_shared_table_has_its_gradient() -> None:
    found = held(system("gpt2", mode="train", N=8))
    # and the weights that a forward reads are those of the rows that read it
    assert found["shared.embedding"] == 4 * 50257 * 768
    assert None not in found.values()


def test_a_generation_moves_the_bytes_of_all_its_steps() -> None:
    # a prompt of 8, then 4 steps of 9 to 12 tokens
    found = held(system("gpt2", mode="generate", N=8, new_tokens=5))
    read = sum(range(9, 13))
    # a query, the keys of all tokens, and 12 heads of scores
    assert found["decode.stages.0.block.0.scores"] == 4 * (4 * 768 + read * 768 + read * 12)
    assert found["decode.stages.0.block.1.fc1"] == 4 * 4 * (768 + 3072 + 768 * 3072 + 3072)
    # the index of a token is of 8 bytes; a row of the table, read and written
    assert found["decode.embed.0.lookup"] == 4 * (8 + 2 * 4 * 768)
    assert found["decode.head.linear"] == 4 * 4 * (768 + 50257 + 50257 * 768)
    assert found["prefill.stages.0.block.1.fc1"] == 4 * (8 * 768 + 8 * 3072 + 768 * 3072 + 3072)
    # the table that two rows share runs nothing itself
    assert [path for path, spent in found.items() if spent is None] == ["prefill.shared.embedding"]


def test_a_long_generation_is_summed_from_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_, "_MOST_STEPS", 40)
    found = held(system("gpt2", mode="generate", N=8, new_tokens=501))
    read = sum(range(9, 509))
    assert found["decode.stages.0.block.0.scores"] == 4 * (500 * 768 + read * 768 + read * 12)


def test_steps_that_can_t_be_summed_have_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_, "_MOST_STEPS", 2)
    found = held(system("gpt2", mode="generate", N=8, new_tokens=5))
    without = {path for path, spent in found.items() if spent is None}
    assert without - {"prefill.shared.embedding"} == {path for path in found if path.startswith("decode.")}
