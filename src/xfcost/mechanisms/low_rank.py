"""Low-rank attention (Linformer): keys and values are projected along the sequence to k rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.attention import attention_of
from xfcost.formulas.component import Length, Letter, Number, Operation, Place
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import linear, matmul
from xfcost.ledger.tensors import OUTPUT, Saved, Tensor, Tensors, merged_heads

# Projected values, where one row projects keys and values.
_VALUES: Final = "projected values"


class LowRank(NonCausalMixer, frozen=True, kw_only=True, tag="low_rank"):
    """Linformer: softmax(Q(EᵀK)ᵀ/√d_k) FᵀV with learned E and F of N×k (Wang et al. 2020, §4, equation 7).

    N tokens, width d, h heads of width d_k, rank k.

        qkv               N·d·3h·d_k MACs
        key_projection    N·k·h·d_k MACs: EᵀK, the same weights whatever the input
        value_projection  N·k·h·d_k MACs: FᵀV
        scores            N·k·h·d_k MACs, h·N·k entries kept
        weighted_sum      N·k·h·d_k MACs
        out               N·h·d_k·d MACs

    E and F have a row per token: their parameters grow with N and hold for that N alone. By `share` there are 2h tables
    of N·k (none), 2 (headwise), 1 for keys and values (key_value) or 1 for the whole model (layerwise); the work is the
    same. (The package linformer also projects tokens once for both under `share_kv`; the paper shares E and F alone.)
    """

    short_name = "Linformer attention"
    binds_tables: ClassVar[bool] = True

    non_causal_reason: ClassVar[str] = "every projected key and value is a mixture of all tokens"

    rank: Annotated[Length, Letter("k")] = 256
    """Rank k: the number of projected keys and values."""
    share: Literal["none", "headwise", "key_value", "layerwise"] = "headwise"
    """Who shares the projections E and F: no one, a layer's heads, keys and values too, or all layers."""

    def table(self, place: Place) -> str | None:
        """Name of the table shared by the whole model, if any; the name includes the shape."""
        return f"projection_{place.grid.total}x{self.rank}" if self.share == "layerwise" else None

    def tables(self, place: Place) -> dict[str, tuple[int, int]]:
        name = self.table(place)
        return {name: (place.grid.total, self.rank)} if name else {}

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner = self.inner(d)
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        yield from self._projections(place, inner)
        operands = ("qkv", "projection", _VALUES) if self._one_table else ("qkv", "key_projection", "value_projection")
        core = {"keys": self.rank, "reads": "k", "pairs": None, "operands": operands, "gathered": True}
        yield from attention_of(self, place, **core)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    @property
    def _one_table(self) -> bool:
        """Do keys and values share one?"""
        return self.share in ("key_value", "layerwise")

    def _projections(self, place: Place, inner: Number) -> Iterator[Operation]:
        n = place.grid.total
        macs = n * self.rank * inner
        static: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": n}
        if self._one_table:
            shared = self.table(place)
            title, tensors = "Project keys and values along the sequence EᵀK, EᵀV", self._projected(n, inner, 2)
            row = matmul("projection", title, 2 * macs, tensors=tensors, **static)
            yield msgspec.structs.replace(row, params=0 if shared else n * self.rank, bound=not shared, shared=shared)
            return
        static |= {"params": n * self.rank * (self.heads if self.share == "none" else 1), "bound": True}
        static |= {"tensors": self._projected(n, inner, 1)}
        yield matmul("key_projection", "Project keys along the sequence EᵀK", macs, **static)
        yield matmul("value_projection", "Project values along the sequence FᵀV", macs, **static)

    def _projected(self, tokens: Number, inner: Number, times: int) -> Tensors:
        """Parts of `qkv` are saved; the product with one table merges batch and columns, and copies them.

        With a table per head it merges batch and heads, and copies the tables too, for every sample.
        """
        read = Tensor("qkv", (tokens, inner))
        merged = merged_heads(read.shape, inner, tokens)
        if self.share == "none":
            merged = merged_heads((tokens, inner + self.heads * self.rank), self.heads, tokens)
        writes = (Tensor(OUTPUT, (self.rank, inner)), Tensor(_VALUES, (self.rank, inner)))
        return Tensors((read,) * times, writes[:times], (Saved("qkv", copied=merged),) * times)

    def notes(self, place: Place) -> Iterator[str]:
        n = place.grid.total
        yield f"the projections along the sequence have one row per token ({n}): another N needs new weights"
        if n <= 2 * self.rank:
            yield (
                f"{n} tokens are projected to {self.rank} rows: "
                f"cheaper than full attention only where N exceeds {2 * self.rank}"
            )
