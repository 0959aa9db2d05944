"""The contract, for learning: MACs of the backward pass, row by row, are those of the real module driven back."""

import pytest
import torch

from cases import CASES
from contract import driven_back
from strategies import place_for
from tiers import of_rows, tiered_examples
from xfcost.formulas.component import Mixer, Residual
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.torch_models.build import ModuleMaker, SubLayerModel

every_example = pytest.mark.parametrize(
    ("component", "fused"),
    tiered_examples(of_rows),
    ids=lambda value: str(value) if isinstance(value, Mixer) else f"fused={value}",
)


def awkward(component):
    """The least of its grids of more than 6 tokens, for every number of axes, with special tokens and without."""
    shapes = {}
    for grid in sorted(CASES[type(component)].grids, key=lambda grid: grid.tokens):
        if grid.tokens > 6:
            shapes.setdefault((len(grid.sides), bool(grid.special)), grid)
    return list(shapes.values())


def joined(component, place, residual, *, learned):
    """Both accounts of the backward pass of `component` inside its residual."""
    part = Part("it", component, place, residual)
    with torch.device("meta"):
        module = SubLayerModel(part, ModuleMaker({}))
        inputs = [torch.randn(2, place.grid.total, place.dim, requires_grad=learned)]
        if place.memory:
            inputs.append(torch.randn(2, place.memory.total, place.memory_dim, requires_grad=True))
    return driven_back(part, component_rows(component, place, residual), module, tuple(inputs), learned=learned)


@every_example
def test_backward_macs_of_every_row_are_the_walk_s(component, *, fused):
    around = Residual(place="post") if component.residual is None else component.residual
    for grid in awkward(component):
        ledger = joined(component, place_for(component, grid, fused=fused), around, learned=True)
        told = "of two samples: twice the forward's products, without those whose result nothing reads"
        assert ledger.agreement.exact, (told, grid, ledger.agreement.differences, ledger.agreement.uncounted)
        assert (ledger.total("backward_macs") > 0) == CASES[type(component)].contracts
        assert ledger.total("kept_bytes") > 0


@every_example
def test_no_gradient_of_an_input_that_learns_nothing_is_worked_out(component, *, fused):
    grid = awkward(component)[-1]
    ledger = joined(component, place_for(component, grid, fused=fused), "none", learned=False)
    told = "a product of what comes in as it is has no gradient of it: does the tape know (Symbolic.raw)?"
    assert ledger.agreement.exact, (told, grid, ledger.agreement.differences, ledger.agreement.uncounted)
