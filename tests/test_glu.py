"""Gated feed-forward networks: rows by hand, the same parameters as a plain network, outputs beside the formula."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.formulas.gated_mlp import GatedMlp
from xfcost.layers.geglu import Geglu
from xfcost.layers.mlp import Mlp
from xfcost.layers.swiglu import Swiglu
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.torch_models.modules import MODULES


def at(tokens: int, dim: int) -> Place:
    return Place(grid=Grid((tokens,)), dim=dim, out_dim=dim)


def test_rows_by_hand() -> None:
    rows = {row.path: row for row in Swiglu(hidden=5, bias=True).operations(at(7, 4))}
    assert list(rows) == ["gate", "act", "up", "glu", "down"]
    # 4·5 + 5 parameters, 7·4·5 MACs, twice that and 7·5 biases
    assert (rows["gate"].params, rows["gate"].macs, rows["gate"].flops) == (25, 140, 315)
    assert (rows["up"].params, rows["down"].params) == (25, 24)
    # SiLU is 4 for each of 7·5 elements, GELU 5, by the tanh formula 9
    assert rows["act"].flops == 140
    acts = [
        next(row for row in component.operations(at(7, 4)) if row.path == "act").flops
        for component in (Geglu(hidden=5), Geglu(hidden=5, act="gelu_tanh"))
    ]
    assert acts == [175, 315]
    assert (rows["glu"].flops, rows["glu"].macs) == (35, 0)


def test_a_width_of_8d_over_3_has_the_parameters_and_macs_of_a_plain_network_of_4d() -> None:
    spot = at(11, 768)
    gated, plain = list(Swiglu().operations(spot)), list(Mlp(bias=False).operations(spot))
    assert Swiglu().inner(768) == 2048
    for quantity in ("params", "macs"):
        assert sum(getattr(row, quantity) for row in gated) == sum(getattr(row, quantity) for row in plain)
    assert sum(row.params for row in gated) == 8 * 768**2


def test_a_width_that_three_does_not_divide_is_refused() -> None:
    with pytest.raises(
        ComponentError, match=r"8·512/3 is not a whole width; give `hidden`, such as 1365 or 1366"
    ) as refused:
        Swiglu().check(at(3, 512))
    assert refused.value.field == "hidden"
    Swiglu(hidden=1376).check(at(3, 512))


@pytest.mark.parametrize(
    ("component", "act"),
    [
        (Swiglu(), F.silu),
        (Geglu(hidden=5), F.gelu),
        (Geglu(act="gelu_tanh", bias=True), lambda x: F.gelu(x, approximate="tanh")),
    ],
    ids=["swiglu", "geglu", "geglu_tanh"],
)
def test_outputs_are_the_formula_s(component: GatedMlp, act: object) -> None:
    torch.manual_seed(0)
    module = MODULES[type(component)](component, at(7, 6)).double()
    x = torch.randn(2, 7, 6, dtype=torch.float64)
    gated = act(F.linear(x, module.gate.weight, module.gate.bias)) * F.linear(x, module.up.weight, module.up.bias)
    torch.testing.assert_close(module(x), F.linear(gated, module.down.weight, module.down.bias))
