"""The basic block under the contract."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import MechanismCase, Rows
from cases.conv_block import AWKWARD, WIDE, convolved, normed, rectified, shortcut, shrunk
from xfcost.grid import Grid
from xfcost.mechanisms import Basic
from xfcost.mechanisms.base import Place


def reference(page: Basic, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """He et al. 2016, equations 1 and 2, position by position."""
    sides = place.grid.sides
    y = rectified(normed(convolved(x_BND, sides, twin.conv1, page.stride), twin.norm1))
    y = normed(convolved(y, shrunk(sides, page.stride), twin.conv2, 1), twin.norm2)
    return rectified(y + shortcut(x_BND, place, twin, page.stride))


CASE = MechanismCase(
    rows=Rows(
        grids=lambda page: (Grid((12, 12)), Grid((12, 24))),
        # a shortcut that takes every second token: its labels are those of tokens, the convolution's of what leaves
        left_out=lambda page: frozenset(("add", "act2")) if page.stride > 1 else frozenset(),
    ),
    page=Basic,
    examples=(Basic(), Basic(stride=2), Basic(stride=3)),
    pages=st.builds(Basic, stride=st.integers(1, 5)),
    reference=reference,
    grids=AWKWARD,
    growth=lambda page: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    image=True,
    dim=WIDE,
    out_dim=lambda page: WIDE + 2 * (page.stride - 1),
    channels_first=lambda leaf: True,
)
