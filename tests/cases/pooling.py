"""Pooling attention under the contract."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from cases.base import GRIDS_WITH_EXTRA, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.pooling import Pooling

# One token, odd sides through strides, more in one direction than in the other.
GRIDS_FEW = tuple(Grid(sides) for sides in [(5,), (1, 1), (1, 4), (7, 9), (13, 13)])
# No side shorter than a mean's kernel, which torch refuses in three axes.
SMALL_VOLUME = Grid((3, 4, 3))
# So wide that every token is the largest of a kernel's nine in some channel.
WIDE = 48


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """What both kinds of pooling attention have."""
    odd, stride = st.sampled_from([1, 3, 5]), st.sampled_from([1, 2, 4])
    q_stride, kv_stride = draw(stride), draw(stride)
    return {
        "heads": draw(st.sampled_from([1, 2, 3, 4])),
        "q_size": draw(odd),
        "q_stride": q_stride,
        "kv_size": draw(odd),
        "kv_stride": kv_stride,
        "function": draw(st.sampled_from(["conv", "max", "mean"])),
        "bias": draw(st.sampled_from(["none", "decomposed"])),
        "residual_pooling": draw(st.sampled_from(["none", "grid", "all"])),
        "out_width": draw(st.sampled_from([None, 12, 24])),
        "projection_bias": draw(st.booleans()),
    }


CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((8, 8)), Grid((8, 16)))),
    component=Pooling,
    examples=(
        Pooling(heads=2, q_size=1, kv_stride=2),
        Pooling(heads=2, q_stride=2, kv_stride=4, bias="decomposed", residual_pooling="all", out_width=12),
        Pooling(heads=3, head_dim=5, kv_size=1, bias="decomposed", residual_pooling="grid", projection_bias=False),
        Pooling(heads=2, q_size=1, q_stride=4, kv_size=1),
        Pooling(heads=2, q_stride=2, kv_stride=2, function="max"),
        Pooling(heads=2, q_size=3, kv_stride=2, function="mean", bias="decomposed"),
    ),
    components=st.builds(lambda given: Pooling(**given), options()),
    growth=lambda component: (Grid((8, 4)), Grid((16, 4))),
    grids=(*GRIDS_FEW, *GRIDS_WITH_EXTRA, SMALL_VOLUME),
    image=True,
    dim=WIDE,
)
