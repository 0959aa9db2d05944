"""SAGAN's self-attention layer: every position of a feature map reads every (pooled) position, scaled by one number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from xfcost.formulas.attention import DenseAttention
from xfcost.formulas.component import ComponentError, Grid, Mixer, Number, Operation, Place, Side, Width, check_divides
from xfcost.formulas.letters import Letter
from xfcost.formulas.pooled import PooledKeys
from xfcost.formulas.rows import elementwise, linear, on_raw_input
from xfcost.formulas.tensors import of_grid, reading, scaled_by_weights
from xfcost.ledger.tensors import INPUT


class Sagan(Mixer, frozen=True, kw_only=True, tag="sagan"):
    """Self-attention of SAGAN (Zhang et al. 2019, §3): y = γ·v(softmax(f(x)ᵀg(x))·h(x)) + x, γ one learned number.

    N positions on a grid, width d, keys d/r wide (r = 8), values d/s wide. Scores are not scaled. The paper has two
    versions, and the public code is a third:

        arXiv v1     h: d -> d, no output map                  value_reduction: 1, output_projection: false
        arXiv v2     h: d -> d/8, then v: d/8 -> d             the defaults
        public code  h: d -> d/2, keys and values max-pooled   value_reduction: 2, pool: 2

        f, g, h        N·d·(d/r), N·d·(d/r), N·d·(d/s) MACs, no biases
        scores         N·M·d/r MACs, N·M entries kept, M = N or the pooled positions
        weighted_sum   N·M·d/s MACs
        v              N·(d/s)·d MACs
        gamma          1 parameter, which starts at 0 in the paper (here at 1, so that the layer does something)

    Keys and values are pooled after their maps, unlike the non-local block's. The sum with x is the block's residual:
    `residual: {norm: none}`.
    """

    short_name = "SAGAN self-attention"

    reduction: Annotated[Width, Letter(None)] = 8
    """Reduction r: queries and keys are d/r wide."""
    value_reduction: Annotated[Width, Letter(None)] = 8
    """Reduction s of the values, which are d/s wide."""
    output_projection: bool = True
    """Whether the output map v brings d/s back to d."""
    pool: Annotated[Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=3)], Letter("W", least=2)] = 1
    """Positions along every axis (or along each) that are max-pooled to one key and value; 1 pools nothing."""

    def keys(self, grid: Grid) -> PooledKeys:
        """The pools of keys and values."""
        return PooledKeys.on(grid, self.pool)

    def check(self, place: Place) -> None:
        for field in ("reduction", "value_reduction"):
            check_divides(field, getattr(self, field), place.dim, f"the width {place.dim}")
        if not self.output_projection and self.value_reduction != 1:
            raise ComponentError(
                "output_projection",
                f"without it values must be as wide as the output ({place.dim}), and they are "
                f"{place.dim // self.value_reduction} wide; write value_reduction: 1",
            )
        self.keys(place.grid).check(place.grid)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return self.keys(grid).covered(grid)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * self.keys(grid).covers(grid)

    def operations(self, place: Place) -> Iterator[Operation]:
        grid, n, d = place.grid, place.grid.total, place.dim
        inner, values, keys = d // self.reduction, d // self.value_reduction, self.keys(grid)
        yield of_grid(on_raw_input(linear("f", "f, queries", n, d, inner, bias=False)), INPUT, n, d)
        yield of_grid(on_raw_input(linear("g", "g, keys", n, d, inner, bias=False)), INPUT, n, d)
        yield of_grid(on_raw_input(linear("h", "h, values", n, d, values, bias=False)), INPUT, n, d)
        if keys.pools:
            yield reading(keys.row("pool_keys", "Max-pool keys", grid, inner), "g")
            yield reading(keys.row("pool_values", "Max-pool values", grid, values), "h")
        # a pooled key stands for several tokens: entries are no pairs of tokens then
        pairs = None if keys.pools else self.pairs(grid)
        operands = ("f", "pool_keys", "pool_values") if keys.pools else ("f", "g", "h")
        core = DenseAttention(n, keys.count(grid), 1, inner, pairs, fused=place.fused, values=values, scaled=False)
        yield from msgspec.structs.replace(core, reads=keys.reads, operands=operands).rows()
        if self.output_projection:
            yield linear("v", "v, output", n, values, d, bias=False)
        gamma = elementwise("gamma", "Scale by γ", "multiply", n * d, tensors=scaled_by_weights(n * d))
        yield msgspec.structs.replace(gamma, params=1)

    def notes(self, place: Place) -> Iterator[str]:
        yield from self.keys(place.grid).notes(place.grid)
