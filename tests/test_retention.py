"""Retention: its three forms against each other, its scans' nodes, and what its form makes of its order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import places
from modules import Call
from refused import refusals
from strategies import as_yaml, exact
from xfcost.api.analysis import analyze
from xfcost.formulas.component import Place
from xfcost.mechanisms.retention import Retention
from xfcost.torch_models.mechanisms.retention import decay
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.running.by_row import train
from xfcost.torch_models.shared import scans
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.tracing.trace import trace

spot = partial(places.at, dim=8)


def macs(component: Retention, where: Place) -> dict[str, int]:
    return {row.path: row.macs for row in component.operations(where) if row.macs}


def test_decays_are_told_without_rounding() -> None:
    assert decay(3).tolist() == [31 / 32, 63 / 64, 127 / 128]


@pytest.mark.parametrize("name", ["retention", "decayed_sums"])
def test_a_step_of_the_one_node_costs_what_a_step_of_the_loop_does(name: str) -> None:
    def traced(run: Any, steps: int) -> list[int]:
        x = (2, steps, 3 * 5)
        shapes = [x, x, (2, steps, 3 * 4), (3,)] if name == "retention" else [(2, steps, 3 * 5 * 4), (3,)]
        found = trace(Call(run), tuple(torch.randn(shape) for shape in shapes))
        assert found.unsupported == {}
        own = found.modules[""]
        return [own.macs, own.flops, own.comparisons, own.moved]

    differences = []
    for run in (getattr(torch.ops.xfcost, name), getattr(scans, name)):
        few, more = traced(run, 5), traced(run, 6)
        differences.append([b - a for a, b in zip(few, more, strict=True)])
    assert differences[0] == differences[1]
    assert traced(getattr(torch.ops.xfcost, name), 5) == [5 * each for each in differences[0]]


@pytest.mark.parametrize("form", ["chunkwise", "recurrent"])
def test_a_loop_of_many_steps_learns_at_the_cost_that_a_few_say(form: str) -> None:
    with torch.device("meta"):
        component = Retention(heads=2, form=form, chunk=2 if form == "chunkwise" else None)
        module = MODULES[Retention](component, spot(23))
        x = torch.randn(2, 23, 8, requires_grad=True)
    quick = train(module, (x,))

    class Whole(nn.Module):
        def forward(self, x: Tensor) -> Any:
            with in_few_steps(lambda loop, shapes, args: loop(*args)):
                return module(x)

    whole = train(Whole(), (x,))
    for quantity in ("forward", "backward"):
        assert sum(getattr(quick, quantity).values()) == sum(getattr(whole, quantity).values()) > 0


test_what_it_refuses = refusals(
    [
        (Retention(heads=3), spot(5), "heads", "3 does not divide the width 8"),
        (Retention(heads=8), spot(5), "heads", "expected an even head width, got 1"),
        (Retention(heads=2, value_dim=7), spot(5), "value_dim", "2 heads do not divide values of 7"),
        (Retention(heads=2, chunk=4), spot(5), "chunk", "the parallel form has no chunks"),
        (Retention(heads=2), spot(3, 3), "kind", "needs a sequence without special tokens"),
    ]
)


def test_what_it_tells() -> None:
    def notes(tokens: int, **options: Any) -> list[str]:
        return list(Retention(heads=2, **options).notes(spot(tokens)))

    quadratic, state = notes(5)
    assert "quadratic in N" in quadratic
    assert state.startswith("token by token")
    assert "a state of 64 numbers" in state  # 2 heads of 4·8
    padded, state = notes(5, form="chunkwise", chunk=2)
    assert padded.startswith("5 tokens padded to 3 chunks of 2: 1 padding tokens")
    assert state.startswith("3 sequential steps")
    assert len(notes(6, form="chunkwise", chunk=2)) == 1
    assert "one chunk holds all 5 tokens" in notes(5, form="chunkwise")[0]
    assert notes(5, form="recurrent")[0].startswith("5 sequential steps")


@pytest.mark.parametrize("tokens", [1, 4, 5])
def test_what_the_only_chunk_adds_has_no_gradient(tokens: int, tmp_path: Path) -> None:
    """Up to 4 tokens are one chunk of 4: zeros are read of it, and their queries alone learn."""
    chunked = {"kind": "retention", "heads": 2, "form": "chunkwise", "chunk": 4}
    spec = {
        "name": "chunks",
        "input": {"kind": "tokens", "vocabulary": 5, "length": tokens},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": 8, "depth": 2, "block": [chunked]}],
    }
    file = tmp_path / "chunks.yaml"
    file.write_text(as_yaml(spec), encoding="utf-8")
    ledger = analyze(str(file), mode="train")
    exact(ledger)
    rows = {row.operation: row for row in ledger.rows}
    both = [(rows[name].backward_macs, rows[name].macs) for name in ("state", "read")]
    (state, macs), (read, _) = both
    assert (state, read) == ((0, macs) if tokens <= 4 else (2 * macs, 2 * macs))
