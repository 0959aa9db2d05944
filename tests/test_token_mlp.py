"""MLP-Mixer, ResMLP and gMLP: weights bound to N, a plain model beside each."""

from __future__ import annotations

import msgspec
import pytest
from torch import Tensor
from torch.nn import functional as F

from specs import counted
from xfcost.formulas.component import Mixer, Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.gmlp import Gmlp
from xfcost.mechanisms.token_linear import TokenLinear
from xfcost.mechanisms.token_mlp import TokenMlp

SPOT = Place(grid=Grid((3, 4)), dim=10, out_dim=10)


@pytest.mark.parametrize(
    "component", [TokenMlp(hidden=5), TokenLinear(), Gmlp()], ids=lambda component: component.label()
)
def test_token_mixing_is_global_static_and_bound_to_n(component: Mixer) -> None:
    larger = msgspec.structs.replace(SPOT, grid=Grid((4, 4)))
    for row, other in zip(component.operations(SPOT), component.operations(larger), strict=True):
        assert row.bound == row.mixes == (row.params != other.params)
        assert not row.content_dependent
        assert (row.mixing, row.reads) in {("per-token", None), ("global", "N"), ("global", "k")}
    assert list(component.notes(SPOT)) == ["the weights over tokens are for 12 tokens: another N needs new weights"]


def test_bound_parameters_are_what_another_n_changes() -> None:
    # 12 blocks of 2·196·384 + 384 + 196 weights over tokens.
    ledgers = [counted("mixer-b16", tokens=tokens) for tokens in (None, (784,))]
    assert ledgers[0].bound_params == 12 * (2 * 196 * 384 + 384 + 196)
    assert len({ledger.total("params") - ledger.bound_params for ledger in ledgers}) == 1
    assert any("784 tokens: another N needs new weights" in note for note in ledgers[1].metadata.notes)


@pytest.mark.parametrize("component", [Gmlp(hidden=5), Gmlp(ratio=1.5)])
def test_an_odd_half_is_refused(component: Gmlp) -> None:
    with pytest.raises(ComponentError, match="are odd, and one half gates the other"):
        component.check(SPOT)


# A plain model beside each, with the same weights ───────────────────────────────────────────────────────────────────


def layer_norm(x_BND: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x_BND, weight.shape, weight, bias)


def mlp(x: Tensor, w: dict[str, Tensor], at: str) -> Tensor:
    hidden = F.gelu(x @ w[f"{at}.fc1.weight"].T + w[f"{at}.fc1.bias"])
    return hidden @ w[f"{at}.fc2.weight"].T + w[f"{at}.fc2.bias"]


def mixer(x_BND: Tensor, w: dict[str, Tensor], at: str) -> Tensor:
    normed = layer_norm(x_BND, *(w[f"{at}.0.residual_norm.{one}"] for one in ("weight", "bias")))
    x_BND = x_BND + mlp(normed.mT, w, f"{at}.0.inner").mT
    return x_BND + mlp(
        layer_norm(x_BND, *(w[f"{at}.1.residual_norm.{p}"] for p in ("weight", "bias"))), w, f"{at}.1.inner"
    )


def gmlp(x_BND: Tensor, w: dict[str, Tensor], at: str) -> Tensor:
    normed = layer_norm(x_BND, *(w[f"{at}.0.residual_norm.{one}"] for one in ("weight", "bias")))
    at = f"{at}.0.inner"
    u, v = F.gelu(normed @ w[f"{at}.fc1.weight"].T + w[f"{at}.fc1.bias"]).chunk(2, dim=-1)
    v = layer_norm(v, w[f"{at}.gate.norm.weight"], w[f"{at}.gate.norm.bias"])
    v = (v.mT @ w[f"{at}.gate.spatial.weight"].T + w[f"{at}.gate.spatial.bias"]).mT
    return x_BND + (u * v) @ w[f"{at}.fc2.weight"].T + w[f"{at}.fc2.bias"]
