"""Set Transformer's blocks: costs by the public code's formulas, and what sets ask of them: no order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from places import at
from specs import counted
from xfcost.formulas.component import Place, Residual, SubLayer
from xfcost.formulas.residual import residual_rows
from xfcost.layers.feed_forward import Dense
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.inducing import Inducing
from xfcost.spec.architecture import Part
from xfcost.torch_models.build import BlockModel, SubLayerModel
from xfcost.torch_models.modules import ModuleMaker

POST = Residual(place="post")
PLAIN = Residual(place="post", norm="none")
BOTH_EXECUTIONS = pytest.mark.parametrize("fused", [False, True])


def rows_of(place: Place, residual: Residual, *components: SubLayer) -> list[Operation]:
    return [row for component in components for row in residual_rows(component, residual, place)]


def total(rows: list[Operation], quantity: str) -> int:
    return sum(getattr(row, quantity) for row in rows)


def block(place: Place, residual: Residual, *components: SubLayer) -> nn.Module:
    torch.manual_seed(0)
    return (
        BlockModel(SubLayerModel(Part("it", component, place, residual), ModuleMaker({})) for component in components)
        .double()
        .eval()
    )


# Costs ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@BOTH_EXECUTIONS
@pytest.mark.parametrize(("n", "d", "heads", "k"), [(1, 8, 1, 1), (1000, 256, 4, 16), (37, 12, 3, 50)])
def test_paper_and_public_code_differ_by_w_o(n: int, d: int, heads: int, k: int, *, fused: bool) -> None:
    # MAB(a, b), a queries and b keys: Q a·d², K and V 2b·d², QKᵀ and AV 2ab·d, W_O a·d² (paper), rFF a·d².
    def mab(a: int, b: int, *, paper: bool) -> int:
        return a * d * d + 2 * b * d * d + 2 * a * b * d + a * d * d * paper + a * d * d

    place = at(n, dim=d, fused=fused)
    for paper in (True, False):
        sab = rows_of(place, POST, Full(heads=heads, output_projection=paper), Dense())
        isab = rows_of(place, POST, Inducing(heads=heads, points=k, output_projection=paper), Dense())
        assert total(sab, "macs") == mab(n, n, paper=paper) == (4 + paper) * n * d**2 + 2 * n**2 * d
        assert total(isab, "macs") == mab(k, n, paper=paper) + mab(n, k, paper=paper)


@pytest.mark.parametrize("norm", ["none", "layer_norm"])
def test_parameters_of_the_authors_modules(norm: Any) -> None:
    # juho-lee/set_transformer, modules.py: a MAB has fc_q, fc_k, fc_v, fc_o (d·d + d each) and two norms (2d each) with
    # ln=True; SAB is one, ISAB two and m points, for dim_in = dim_out = d.
    d, m = 128, 32
    mab = 4 * (d * d + d) + (2 * 2 * d if norm == "layer_norm" else 0)
    residual = Residual(place="post", norm=norm)
    sab = rows_of(at(5, dim=d), residual, Full(heads=4, output_projection=False), Dense())
    inducing = Inducing(heads=4, points=m, output_projection=False, norm=norm)
    assert total(sab, "params") == mab
    assert total(rows_of(at(5, dim=d), residual, inducing, Dense()), "params") == 2 * mab + m * d


@pytest.mark.parametrize(("n", "d", "heads", "k"), [(1024, 512, 8, 128), (4096, 512, 8, 128), (50, 96, 2, 7)])
def test_macs_of_the_package_isab_pytorch(n: int, d: int, heads: int, k: int) -> None:
    # isab-pytorch 0.3.0 has no rFF, no norm, no residual, and heads of 64: (4N + 4m)·d·inner + 4mN·inner.
    component = Inducing(heads=heads, head_dim=64, points=k, induce="attention", projection_bias=False)
    inner = heads * 64
    rows = list(component.operations(at(n, dim=d)))
    assert total(rows, "macs") == (4 * n + 4 * k) * d * inner + 4 * k * n * inner
    assert total(rows, "params") == 8 * d * inner + k * d


def test_more_points_than_tokens_are_told() -> None:
    notes = [list(Inducing(heads=1, points=k).notes(at(9, dim=4))) for k in (8, 9)]
    assert notes[0] == []
    assert notes[1] == ["9 inducing points for 9 tokens: full attention reads as much with less work"]


# No order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def shuffled(n: int, d: int) -> tuple[Tensor, Tensor]:
    noise = torch.Generator().manual_seed(1)
    x = torch.randn(2, n, d, generator=noise, dtype=torch.float64)
    return x, torch.randperm(n, generator=noise)


SET_BLOCKS = [
    (Full(heads=2), Dense()),
    (Full(heads=2, output_projection=False), Dense(act="gelu")),
    (Inducing(heads=2, points=3), Dense()),
    (Inducing(heads=2, points=3, induce="attention"), Dense(act="none")),
]


@BOTH_EXECUTIONS
@pytest.mark.parametrize("residual", [POST, PLAIN, Residual()], ids=["post", "plain", "pre"])
@pytest.mark.parametrize("components", SET_BLOCKS, ids=lambda components: type(components[0]).__name__)
def test_tokens_in_another_order_give_outputs_in_that_order(
    components: tuple[SubLayer, ...], residual: Residual, *, fused: bool
) -> None:
    module = block(at(11, dim=6, fused=fused), residual, *components)
    x, order = shuffled(11, 6)
    with torch.no_grad():
        straight, other = module(x, None), module(x[:, order], None)
    torch.testing.assert_close(other, straight[:, order], rtol=1e-12, atol=1e-13)
    assert not torch.allclose(other, straight)


# Refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("component", [Full, Inducing])
def test_without_w_o_the_heads_make_the_width(component: Any) -> None:
    more = {"points": 2} if component is Inducing else {}
    with pytest.raises(ComponentError, match=r"have the output's width 6, and they have 10;") as refused:
        component(heads=2, head_dim=5, output_projection=False, **more).check(at(3, dim=6))
    assert refused.value.field == "output_projection"
    component(heads=2, head_dim=3, output_projection=False, **more).check(at(3, dim=6))


def test_inducing_points_are_never_causal() -> None:
    with pytest.raises(ComponentError, match="'inducing' has no causal form: every point reads all tokens") as refused:
        Inducing(heads=2, points=3, causal=True).check(at(5, dim=6))
    assert refused.value.field == "causal"


def test_the_point_cloud_preset_is_the_authors_model_but_for_its_first_projections() -> None:
    # juho-lee/set_transformer, main_pointcloud.py: ISAB(3, d), ISAB(d, d), PMA(d), Linear(d, 40), d=256, m=16, n=1000.
    d, m, n, channels = 256, 16, 1000, 3

    def mab(a: int, b: int, queries: int = d, keys: int = d) -> tuple[int, int]:
        """(parameters, MACs) of MAB(dim_Q, dim_K, d) on a queries and b keys."""
        macs = a * queries * d + 2 * b * keys * d + 2 * a * b * d + a * d * d
        return queries * d + 2 * keys * d + d * d + 4 * d, macs

    parts = [
        mab(m, n, keys=channels), mab(n, m, queries=channels), (m * d, 0),  # ISAB(3, d)
        mab(m, n), mab(n, m), (m * d, 0),  # ISAB(d, d)
        mab(1, n), (d, 0),  # PMA, one seed
        (d * 40 + 40, d * 40),
    ]  # fmt: skip
    ledger = counted("set-transformer")
    narrower = d - channels  # of three maps: the first ISAB's K and V of the points' MAB, and Q of the tokens'
    assert ledger.total("params") == sum(p for p, _ in parts) + (channels * d + d) + 3 * narrower * d
    assert ledger.total("macs") == sum(macs for _, macs in parts) + n * channels * d + 3 * n * narrower * d
