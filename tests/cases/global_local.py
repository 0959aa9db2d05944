"""Global-local attention under the contract."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, Rows, masked_attention, readable
from xfcost.grid import Grid
from xfcost.mechanisms import GlobalLocal
from xfcost.mechanisms.base import Place


def reference(page: GlobalLocal, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """The rows of both kinds of tokens, each among all keys, as its own projections make them."""
    g, may_read = place.grid.extra, readable(page, place.grid)
    x_BGD, x_BLD = x_BND[:, :g], x_BND[:, g:]
    if hasattr(twin, "qkv"):
        q, *kv = project(twin.qkv, x_BND, 3)
        of_global, of_text = (q[:, :g], *kv), (q[:, g:], *kv)
    else:
        of_global, of_text = project(twin.global_qkv, x_BGD, 3), project(twin.long_qkv, x_BLD, 3)
        of_global[1:] = joined(of_global[1:], project(twin.g2l_kv, x_BLD, 2))
        of_text[1:] = joined(project(twin.l2g_kv, x_BGD, 2), of_text[1:])
    y_BGD = masked_attention(*of_global, page.heads, may_read[:g])
    y_BLD = masked_attention(*of_text, page.heads, may_read[g:])
    outs = (twin.global_out or twin.out, twin.out)
    parts = [F.linear(y, out.weight, out.bias) for y, out in zip((y_BGD, y_BLD), outs, strict=True)]
    return torch.cat(parts, dim=1)


def project(layer: nn.Module, x_BND: Tensor, parts: int) -> list[Tensor]:
    return list(F.linear(x_BND, layer.weight, layer.bias).chunk(parts, dim=-1))


def joined(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
    return [torch.cat(pair, dim=1) for pair in zip(first, second, strict=True)]


def whole_blocks(page: GlobalLocal) -> tuple[Grid, Grid]:
    tokens = 3 * (page.radius + 1)
    return Grid((tokens,), 2), Grid((2 * tokens,), 2)


CASE = MechanismCase(
    rows=Rows(more={"scores": lambda page, place: page.radius + 2}),
    page=GlobalLocal,
    examples=(
        GlobalLocal(heads=2, radius=1),
        GlobalLocal(heads=3, radius=2, share_projections=False, share_output=False),
        GlobalLocal(heads=1, radius=4, share_output=False, head_dim=5, projection_bias=False),
    ),
    pages=st.builds(
        GlobalLocal,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        radius=st.integers(1, 20),
        share_projections=st.booleans(),
        share_output=st.booleans(),
        projection_bias=st.booleans(),
        causal=st.none() | st.just(value=False),
    ),
    reference=reference,
    growth=whole_blocks,
    grids=(Grid((1,)), Grid((9,)), Grid((1,), 1), Grid((2,), 3), Grid((7,), 1), Grid((13,), 2), Grid((3, 5), 4)),
    fused=False,
)
