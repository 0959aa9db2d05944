"""MLP-Mixer's and ResMLP's token mixing under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import MechanismCase
from xfcost.mechanisms import TokenLinear, TokenMlp
from xfcost.mechanisms.base import ActKind, Place

ACTS: dict[ActKind, object] = {
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "silu": lambda x: x / (1 + torch.exp(-x)),
}


def mapped(layer: nn.Module, x_BN: Tensor) -> Tensor:
    """Σ over the tokens of one channel, for each of what comes out."""
    sums = [(x_BN * row_N).sum(-1) for row_N in layer.weight]
    y_BM = torch.stack(sums, dim=-1)
    return y_BM if layer.bias is None else y_BM + layer.bias


def mixer(page: TokenMlp, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """U = X + W₂σ(W₁ LayerNorm(X)) without its residual (equation 1), one channel after the other."""
    act = ACTS[page.act]
    return torch.stack([mapped(twin.fc2, act(mapped(twin.fc1, x_BN))) for x_BN in x_BND.unbind(-1)], dim=-1)


def resmlp(page: TokenLinear, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """(A Xᵀ)ᵀ (equation 2), one channel after the other."""
    return torch.stack([mapped(twin.linear, x_BN) for x_BN in x_BND.unbind(-1)], dim=-1)


CASES = [
    MechanismCase(
        page=TokenMlp,
        examples=(TokenMlp(hidden=4), TokenMlp(hidden=1, act="silu"), TokenMlp(hidden=7, bias=False)),
        pages=st.builds(TokenMlp, hidden=st.integers(1, 99), act=st.sampled_from(["gelu", "silu"]), bias=st.booleans()),
        reference=mixer,
        fused=False,
        per_token=False,
    ),
    MechanismCase(
        page=TokenLinear,
        examples=(TokenLinear(), TokenLinear(bias=False)),
        pages=st.builds(TokenLinear, bias=st.booleans()),
        reference=resmlp,
        fused=False,
        per_token=False,
    ),
]
