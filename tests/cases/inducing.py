"""Attention through inducing points under the contract."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, masked_attention
from xfcost.mechanisms import Inducing
from xfcost.mechanisms.base import Place


def reference(page: Inducing, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """MH(X, H, H) with H = MAB(I, X), as the paper writes it, every sample with points of its own."""
    points_BSD = twin.points.weight.repeat(x_BND.shape[0], 1, 1)
    induced = twin.induced
    h = multihead(induced.inner, points_BSD, x_BND, page.heads)
    if page.induce == "mab":
        z = normed(induced.norm, points_BSD + h)
        h = normed(induced.rff_norm, z + F.relu(F.linear(z, induced.rff.weight, induced.rff.bias)))
    return multihead(twin.inner, x_BND, h, page.heads)


def multihead(weights: Any, x_BND: Tensor, y_BME: Tensor, heads: int) -> Tensor:
    """MH(X, Y, Y): every query reads every key."""
    q = F.linear(x_BND, weights.q.weight, weights.q.bias)
    k, v = F.linear(y_BME, weights.kv.weight, weights.kv.bias).chunk(2, dim=-1)
    everything = torch.ones(x_BND.shape[1], y_BME.shape[1], dtype=torch.bool)
    read = masked_attention(q, k, v, heads, everything)
    return read if weights.out is None else F.linear(read, weights.out.weight, weights.out.bias)


def normed(norm: nn.LayerNorm | None, x_BND: Tensor) -> Tensor:
    """Layer norm out of its definition."""
    if norm is None:
        return x_BND
    away = x_BND - x_BND.mean(-1, keepdim=True)
    return away / (away.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


EXAMPLES = (
    Inducing(heads=2, points=3),
    Inducing(heads=3, points=1, norm="none", output_projection=False),
    Inducing(heads=1, points=4, induce="attention", head_dim=5, projection_bias=False),
)

CASE = MechanismCase(
    page=Inducing,
    examples=EXAMPLES,
    pages=st.builds(
        Inducing,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.just(value=False),
        projection_bias=st.booleans(),
        points=st.integers(1, 99),
        induce=st.sampled_from(["mab", "attention"]),
        norm=st.sampled_from(["layer_norm", "none"]),
    ),
    reference=reference,
    symbolic=EXAMPLES,
)
