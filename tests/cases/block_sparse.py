"""Block-sparse attention under the contract."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from cases.base import HEADS, MechanismCase
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.block_sparse import BlockSparse


def drawn(component: BlockSparse, place: Place) -> dict[str, Any]:
    """The random blocks of every block that is not global."""
    blocks = math.ceil(place.grid.total / component.block)
    return {
        "drawn": {}
        if component.is_full(place.grid)
        else {at: component.drawn(blocks, at) for at in range(1, blocks - 1)}
    }


def enough(component: BlockSparse) -> tuple[Grid, Grid]:
    """Twice as many whole blocks as full attention takes, and four times."""
    tokens = 2 * (6 + 2 * component.random_blocks) * component.block
    return Grid((tokens,)), Grid((2 * tokens,))


EXAMPLES = (
    BlockSparse(heads=2, block=2, random_blocks=1),
    BlockSparse(heads=1, block=3, random_blocks=0, head_dim=5, projection_bias=False),
    BlockSparse(heads=3, block=1, random_blocks=3, seed=7),
)

CASE = MechanismCase(
    component=BlockSparse,
    examples=EXAMPLES,
    components=st.builds(
        BlockSparse,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        block=st.integers(1, 12),
        random_blocks=st.integers(0, 4),
        seed=st.integers(0, 99),
        projection_bias=st.booleans(),
        causal=st.none() | st.just(value=False),
    ),
    growth=enough,
    drawn=drawn,
    # full attention up to 14, 15 and 11 tokens; 17 and 25 leave blocks of 2 and 3 unfilled
    grids=(*(Grid((n,)) for n in (1, 5, 14, 15, 16, 17, 25)), Grid((3, 6), 1), Grid((5, 6))),
)
