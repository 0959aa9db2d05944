"""Memory-compressed attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.compressed import Compressed


@st.composite
def components(draw: st.DrawFn) -> Compressed:
    compression, causal = draw(st.integers(1, 6)), draw(st.none() | st.booleans())
    return Compressed(
        heads=draw(HEADS),
        compression=compression,
        kernel=draw(st.none() | st.integers(compression, 9)),
        groups=draw(st.sampled_from([1, 2, 3])),
        causal=causal,
        null_key=draw(st.booleans()) or bool(causal),
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((6 * component.compression,)), Grid((12 * component.compression,)))),
    component=Compressed,
    examples=(
        Compressed(heads=2, causal=True),
        Compressed(heads=3, compression=2, kernel=5, groups=3, causal=True, projection_bias=False),
        Compressed(heads=2, compression=4, null_key=False),
        Compressed(heads=2, compression=2, function="mean"),
        Compressed(heads=1, head_dim=16, function="max", kernel=4, causal=True),
    ),
    components=components(),
    growth=lambda component: (Grid((2 * component.compression,)), Grid((4 * component.compression,))),
    # One token, two, a prime, whole blocks and not, a class token and a grid's tokens in raster order.
    grids=(*(Grid((n,)) for n in (1, 2, 5, 12)), Grid((2, 3), 1)),
    sides=st.lists(st.integers(1, 40), min_size=1, max_size=2).map(tuple),
    length=7,
)
