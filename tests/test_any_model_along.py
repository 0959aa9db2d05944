"""The ledgers of a module along N: counted at some sizes, evaluated from polynomials between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from strategies import as_yaml
from xfcost.counting.fitted import CountedSizes
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.ledger import How, module_ledger
from xfcost.torch_models.any_model.system import ModuleSystem
from xfcost.torch_models.build import build

BLOCK = [{"kind": "full", "heads": 2}, {"kind": "mlp", "ratio": 2}]
TEXT = {
    "name": "Text",
    "input": {"kind": "vectors", "channels": 8, "length": 16},
    "embed": [],
    "stages": [{"dim": 8, "depth": 2, "block": BLOCK}],
}


def costs_at(ledger: Ledger) -> dict[str, int]:
    return {name: ledger.total(name) or 0 for name in ("params", "macs", "flops", "moved")} | ledger.attention_memory()


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_evaluated_ledgers_are_those_that_would_be_counted(tmp_path: Path, attention: str) -> None:
    path = tmp_path / "text.yaml"
    path.write_text(as_yaml(TEXT))
    loaded = load(str(path))

    def ledger_at(N: int) -> Ledger:
        live = build(place(loaded, Run(tokens=(N,), attention=attention)))  # type: ignore[arg-type]
        return module_ledger(live.model, tuple(live.inputs), trace=False)

    along = CountedSizes(16, ledger_at)
    assert along.evaluated
    for N in (5, 77, 12345):
        assert costs_at(along.ledger(N)) == costs_at(ledger_at(N))
        assert [row.core for row in along.ledger(N).rows] == [row.core for row in ledger_at(N).rows]


class Padded(nn.Module):
    """Attention in windows of 6, padded up."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.pad(x, (0, 0, 0, -x.shape[1] % 6)).unflatten(1, (-1, 6))
        return x @ x.transpose(2, 3)


def along(module: nn.Module, shape: Callable[[int], tuple[int, ...]], own: int) -> tuple[CountedSizes, list[int]]:
    """Its ledgers from `own` on, and the sizes at which it was counted."""
    sizes = []

    def ledger_at(N: int) -> Ledger:
        sizes.append(N)
        return module_ledger(module, (torch.empty(shape(N), device="meta"),), trace=False)

    return CountedSizes(own, ledger_at), sizes


def test_where_no_polynomial_fits_every_size_is_counted() -> None:
    found, sizes = along(Padded(), lambda N: (1, N, 4), 12)
    assert not found.evaluated
    assert [found.ledger(N).total("macs") for N in (12, 13, 18, 1000)] == [288, 432, 432, 24048]
    assert 1000 in sizes


class Doubles(nn.Module):
    """A product that is twice as wide from 300 tokens on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.empty(4, 4 if x.shape[1] < 300 else 8, device=x.device)


def test_polynomials_end_where_a_count_does_not_meet_them() -> None:
    found, sizes = along(Doubles(), lambda N: (1, N, 4), 40)
    assert found.evaluated
    before = len(sizes)
    assert found.ledger(150).total("macs") == 150 * 16
    assert len(sizes) == before
    assert found.ledger(5000).total("macs") == 5000 * 32
    assert len(sizes) == before + 1


class Halves(nn.Module):
    """Even numbers of tokens alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(1, 2, -1, 4) @ x.reshape(1, 2, -1, 4).transpose(2, 3)


class Squares(nn.Module):
    """Square grids alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = int(x.shape[1] ** 0.5)
        return x.reshape(1, side, side, 4) @ x.new_empty(4, 4)


def test_the_sizes_at_which_a_module_runs() -> None:
    halves, squares = along(Halves(), lambda N: (1, N, 4), 16)[0], along(Squares(), lambda N: (1, N, 4), 16)[0]
    assert (halves.axis.grain, halves.axis.squares) == (2, False)
    assert halves.ledger(100).total("macs") == 2 * 50 * 50 * 4
    assert (squares.axis.grain, squares.axis.squares) == (1, True)
    assert squares.ledger(10000).total("macs") == 160000
    for found in (halves, squares):
        with pytest.raises(XfcostError):
            found.ledger(99)


class Slow:
    """A clock: every reading is a second after the one before."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


class NeverFits:
    """A module without a polynomial."""

    title = "Padded"

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        ledger = module_ledger(Padded(), (torch.empty(1, lengths.tokens or 1, 4, device="meta"),), trace=False)
        metadata = msgspec.structs.replace(ledger.metadata, grid_tokens=lengths.tokens)
        return msgspec.structs.replace(ledger, metadata=metadata)


def test_a_slow_module_without_a_polynomial_is_counted_on_demand_alone() -> None:
    slow, patient = (ModuleSystem(NeverFits(), patient=one, clock=Slow()) for one in (False, True))
    for one in (slow, patient):
        one.account(Run(tokens=(12,)), How(trace=False, closed_form=False))
    assert "a run takes 1.0 s: no crossovers with it are looked for; --verbose does" in next(slow.remarks())
    with pytest.raises(XfcostError, match="no polynomial fits its costs"):
        slow.costs(Run(tokens=(13,)))
    assert "it is counted at every N that is looked at" in next(patient.remarks())
    assert patient.costs(Run(tokens=(13,)))[1]["macs"] == 432
