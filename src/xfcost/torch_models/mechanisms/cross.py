"""Module of `mechanisms/cross.py`. B batch, N tokens here, M tokens of the memory, D width, E the memory's width."""

from __future__ import annotations

from xfcost.formulas.component import Place
from xfcost.mechanisms.cross import Cross
from xfcost.torch_models.shared.leaves import NO_TABLES, Tables
from xfcost.torch_models.shared.reading import Reading


class CrossAttention(Reading):
    """(B, N, D), memory (B, M, E) -> (B, N, D)."""

    def __init__(self, config: Cross, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__(
            place.dim,
            place.memory_dim,
            config.inner(place.dim),
            config.heads,
            values=config.value_inner(place.dim),
            bias=config.projection_bias,
            fused=place.fused,
            scaled=config.scaled,
        )
