"""Cross-attention: every token of the decoder reads every token of the encoder's output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from xfcost.formulas.attention import CrossAttention
from xfcost.formulas.component import ComponentError, Grid, Letter, MultiHead, Number, Operation, Place, Width
from xfcost.formulas.rows import decode_step


class Cross(MultiHead, frozen=True, kw_only=True, tag="cross"):
    """Encoder-decoder attention (Vaswani et al. 2017, §3.2.3): queries from here, keys and values from the memory.

    N tokens here, M in the memory, width d, h heads of width d_k = d/h; their values are d_v = d_k wide unless
    `value_dim` says otherwise (§3.2.2).

        q             N·d·h·d_k MACs
        kv            M·d·h·(d_k + d_v) MACs
        scores        N·M·h·d_k MACs, h·N·M entries kept
        weighted_sum  N·M·h·d_v MACs
        out           N·h·d_v·d MACs
    """

    short_name = "Cross-attention"

    value_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width d_v of a head's values; d_k by default."""
    scaled: bool = True
    """Whether scores are multiplied by 1/√d_k; T5's are not."""

    @property
    def reads_memory(self) -> bool:
        return True

    def check(self, place: Place) -> None:
        if place.memory is None:
            raise ComponentError(
                "kind", "'cross' reads an encoder's output, and the spec has no `encoder:`; use 'full'"
            )
        super().check(place)

    def value_inner(self, width: Number) -> Number:
        """h·d_v, the width of what all heads read together."""
        return self.inner(width) if self.value_dim is None else self.heads * self.value_dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """All tokens of the encoder's output."""
        return range(memory.total if memory else 0)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * (memory.total if memory else 0)

    def operations(self, place: Place) -> Iterator[Operation]:
        return self._reading(place, place.grid.total)

    def decoding(self, place: Place) -> Iterator[Operation]:
        """One query; the encoder's keys and values are cached, M·h·(d_k + d_v) numbers."""
        return decode_step(self._reading(place, 1), place.grid.total)

    def _reading(self, place: Place, queries: Number) -> Iterator[Operation]:
        memory = place.memory or place.grid
        yield from CrossAttention(
            queries=queries,
            width=place.dim,
            keys=memory.total,
            memory_width=place.memory_dim or place.dim,
            inner=self.inner(place.dim),
            values=self.value_inner(place.dim),
            heads=self.heads,
            bias=self.projection_bias,
            reads="M",
            fused=place.fused,
            scaled=self.scaled,
        ).rows()
