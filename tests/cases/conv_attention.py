"""Attention with convolutional projections under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import GRIDS, GRIDS_WITH_EXTRA, HEADS, VOLUME, MechanismCase
from cases.depthwise_conv import convolved
from xfcost.grid import Grid
from xfcost.mechanisms import ConvAttention
from xfcost.mechanisms.base import Place


def reference(page: ConvAttention, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """One head after the other, scores over the root of the whole width."""
    strides = {"q": 1, "k": page.kv_stride, "v": page.kv_stride}
    parts = [projected(page, place, getattr(twin, name), x_BND, stride) for name, stride in strides.items()]
    width = parts[0].shape[-1]
    answers = []
    for q_BNK, k_BMK, v_BMK in zip(*(part.chunk(page.heads, dim=-1) for part in parts), strict=True):
        scores_BNM = torch.einsum("bnk,bmk->bnm", q_BNK, k_BMK) / width**0.5
        answers.append(scores_BNM.softmax(-1) @ v_BMK)
    return F.linear(torch.cat(answers, dim=-1), twin.out.weight, twin.out.bias)


def projected(page: ConvAttention, place: Place, projection: nn.Module, x_BND: Tensor, stride: int) -> Tensor:
    """Convolution, batch norm by running statistics, linear map; extra tokens by the map alone."""
    extra, norm = place.grid.extra, projection.norm
    y_BMD = convolved(x_BND[:, extra:], place.grid._replace(extra=0), projection.conv, page.size, stride)
    y_BMD = (y_BMD - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    joined = torch.cat([x_BND[:, :extra], y_BMD], dim=1)
    return F.linear(joined, projection.linear.weight, projection.linear.bias)


@st.composite
def pages(draw: st.DrawFn) -> ConvAttention:
    half = draw(st.integers(0, 3))
    return ConvAttention(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        size=2 * half + 1,
        kv_stride=draw(st.integers(1, half + 1)),
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    page=ConvAttention,
    examples=(
        ConvAttention(heads=2),
        ConvAttention(heads=1, head_dim=5, kv_stride=1, projection_bias=False),
        ConvAttention(heads=3, size=5, kv_stride=3),
    ),
    pages=pages(),
    reference=reference,
    # Whole strides of both, 2 and 3.
    growth=lambda page: (Grid((6,)), Grid((12,))),
    grids=(*(grid for grid in GRIDS if grid.tokens < 100), *GRIDS_WITH_EXTRA, VOLUME),
    image=True,
)
