"""ConvNeXt's block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import GRIDS, VOLUME, MechanismCase
from cases.depthwise_conv import convolved
from cases.token_mlp import ACTS
from xfcost.grid import Grid
from xfcost.mechanisms import ConvNext
from xfcost.mechanisms.base import Place


def reference(page: ConvNext, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Every token's neighbours, each times its place of every channel's own kernel; then the rest token by token."""
    y = convolved(x_BND, place.grid, twin.conv, page.size)
    if page.norm == "layer_norm":
        centred = y - y.mean(-1, keepdim=True)
        y = centred / (centred.square().mean(-1, keepdim=True) + twin.norm.eps).sqrt()
        y = y * twin.norm.weight + twin.norm.bias
    hidden = ACTS[page.act](y @ twin.fc1.weight.T + twin.fc1.bias)
    return hidden @ twin.fc2.weight.T + twin.fc2.bias


CASE = MechanismCase(
    page=ConvNext,
    examples=(ConvNext(), ConvNext(size=3, norm="none", act="silu"), ConvNext(size=1, hidden=5), ConvNext(size=5)),
    pages=st.builds(
        ConvNext,
        size=st.integers(0, 6).map(lambda half: 2 * half + 1),
        ratio=st.sampled_from([0.5, 2, 4]),
        norm=st.sampled_from(["layer_norm", "rms_norm"]),
        act=st.sampled_from(["gelu", "silu"]),
    ),
    reference=reference,
    growth=lambda page: (Grid((page.size, page.size)), Grid((2 * page.size, page.size))),
    grids=(*GRIDS, VOLUME),
    fused=False,
    image=True,
)
