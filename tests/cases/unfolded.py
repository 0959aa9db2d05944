"""Unfolded attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, MechanismCase, masked_attention, readable
from xfcost.grid import Grid
from xfcost.mechanisms import Unfolded
from xfcost.mechanisms.base import Place


def reference(page: Unfolded, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Full attention under a mask."""
    q, k, v = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    attended = masked_attention(q, k, v, page.heads, readable(page, place.grid))
    return F.linear(attended, twin.out.weight, twin.out.bias)


CASE = MechanismCase(
    page=Unfolded,
    examples=(
        Unfolded(heads=2),
        Unfolded(heads=3, patch=1),
        Unfolded(heads=1, head_dim=4, projection_bias=False),
    ),
    pages=st.builds(
        Unfolded,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        patch=st.sampled_from([1, 2, 3, 6]),
        projection_bias=st.booleans(),
        causal=st.none() | st.just(value=False),
    ),
    reference=reference,
    growth=lambda page: (Grid((4, 2)), Grid((8, 2))),
    # One patch, a row and a column of them, oblong both ways, a sequence, a volume: patches must tile the grid.
    grids=tuple(Grid(sides) for sides in [(2,), (10,), (2, 2), (2, 8), (6, 2), (6, 10), (2, 4, 6)]),
    sides=st.lists(st.integers(1, 3).map(lambda patches: 6 * patches), min_size=1, max_size=3).map(tuple),
    image=True,
)
