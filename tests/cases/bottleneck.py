"""The bottleneck under the contract."""

from __future__ import annotations

from math import prod

from hypothesis import strategies as st
from torch import Tensor, nn

from cases import local_attention, local_relation
from cases.base import MechanismCase, Rows
from cases.conv_block import AWKWARD, WIDE, convolved, normed, rectified, shortcut, shrunk
from xfcost.grid import Grid
from xfcost.mechanisms import Bottleneck, LocalAttention, LocalRelation
from xfcost.mechanisms.base import Place

SPATIAL = {LocalAttention: local_attention.reference, LocalRelation: local_relation.reference}


def reference(page: Bottleneck, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """He et al. 2016, figure 5; Hu et al. 2018, equations 2 to 4, position by position."""
    first = page.stride if page.stride_on == "1x1" else 1
    y = rectified(normed(convolved(x_BND, place.grid.sides, twin.conv1, first), twin.norm1))
    y = rectified(normed(mixed(page, place, twin, y), twin.norm2))
    if page.squeeze:
        y = y * gate(y, twin.squeeze)[:, None]
    y = normed(convolved(y, (y.shape[1],), Flat(twin.conv3), 1), twin.norm3)
    return rectified(y + shortcut(x_BND, place, twin, page.stride))


def mixed(page: Bottleneck, place: Place, twin: nn.Module, y_BND: Tensor) -> Tensor:
    """The 3×3 convolution, or what stands in its place by its own slow reference."""
    if page.spatial is not None:
        plain = SPATIAL[type(page.spatial)]
        return plain(page.instead, page.inside(place), twin.spatial, y_BND)
    first, second = page.strides
    groups = page.groups or (y_BND.shape[-1] // page.group_width if page.group_width else 1)
    return convolved(y_BND, shrunk(place.grid.sides, first), twin.conv2, second, groups)


def gate(y_BND: Tensor, twin: nn.Module) -> Tensor:
    """(B, D), between 0 and 1, out of the mean token."""
    hidden = y_BND.sum(1) / y_BND.shape[1] @ twin.conv1.weight.flatten(1).T + twin.conv1.bias
    excited = rectified(hidden) @ twin.conv2.weight.flatten(1).T + twin.conv2.bias
    return 1 / (1 + (-excited).exp())


class Flat:
    """A convolution of one position, for tokens in a row."""

    def __init__(self, leaf: nn.Module) -> None:
        self.weight = leaf.weight.flatten(2)


def widened(page: Bottleneck) -> int:
    """A stage of another width for most examples: the shortcut is a convolution there, even without a stride."""
    return WIDE if page.width == 20 else 2 * WIDE


@st.composite
def pages(draw: st.DrawFn) -> Bottleneck:
    width = draw(st.sampled_from([{"width": 6}, {"expansion": 2}, {"expansion": 1}, {"width": 12}]))
    return Bottleneck(
        stride=draw(st.integers(1, 5)),
        stride_on=draw(st.sampled_from(["1x1", "3x3"])),
        squeeze=draw(st.sampled_from([None, 0.25, 0.5])),
        **width,
        **draw(st.sampled_from([{}, {"groups": 3}, {"group_width": 2}])),
    )


CASE = MechanismCase(
    rows=Rows(
        grids=lambda page: (Grid((10, 10)), Grid((10, 22))),
        # what is pooled is counted in tokens that leave, and stands for s² of those that came
        more={
            "squeeze_scale": lambda page, place: place.grid.total - prod(-(-n // page.stride) for n in place.grid.sides)
        },
        # a table, and its sums with keys that are gathered already; a shortcut that takes every second token
        left_out=lambda page: frozenset(("spatial_positions", "spatial_add_positions", "add", "act3")),
    ),
    page=Bottleneck,
    examples=(
        Bottleneck(width=20),
        Bottleneck(expansion=3, stride=2),
        Bottleneck(expansion=2, stride=2, stride_on="1x1", groups=3),
        Bottleneck(expansion=1, stride=2, group_width=6, squeeze=0.25),
        Bottleneck(width=20, stride=3, squeeze=0.5),
        Bottleneck(width=12, stride=2, spatial=LocalAttention(heads=2, size=3)),
        Bottleneck(width=12, stride=2, stride_on="1x1", spatial=LocalAttention(heads=2, size=3)),
        Bottleneck(width=12, stride=2, spatial=LocalRelation(size=3, share=5)),
    ),
    pages=pages(),
    reference=reference,
    grids=AWKWARD,
    growth=lambda page: (Grid((12, 2)), Grid((24, 2))),
    fused=False,
    image=True,
    dim=WIDE,
    out_dim=widened,
    channels_first=lambda leaf: not leaf.startswith("spatial"),
)
