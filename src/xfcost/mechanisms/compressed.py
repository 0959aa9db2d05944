"""Memory-compressed attention: a strided convolution reduces the keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.attention import attention_of, with_mask
from xfcost.formulas.component import ComponentError, Grid, Letter, Number, Operation, PaddingNote, Place, check_divides
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.rows import elementwise, linear, matmul, maximum, move
from xfcost.formulas.tensors import copied
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Tensor, Tensors, merged_heads

Span = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class Compressed(CausalMixer, frozen=True, kw_only=True, tag="compressed"):
    """Softmax attention over keys and values that a strided convolution compressed (Liu et al. 2018, §4.2.4).

    N tokens, width d, h heads of width d_k = d/h; a convolution of κ tokens and stride c, in g groups, makes M = ⌈N/c⌉
    keys and, with the same weights, M values of them. One learned null key and value stand before them.

        qkv           N·d·3h·d_k MACs
        compress      2·M·κ·(h·d_k)²/g MACs (mean: 2·M·κ·h·d_k elements, max: as many comparisons)
        scores        N·(M + 1)·h·d_k MACs, h·N·(M + 1) entries kept
        weighted_sum  N·(M + 1)·h·d_k MACs
        out           N·h·d_k·d MACs

    Queries are not compressed: N²/c, and not the (N/c)² that a survey prints. As in the public package
    memory-compressed-attention 0.0.7 (g = h there, 1 in the paper) zeros stand before the first token, so that a block
    ends at the last one; causal, a token reads the blocks that end at it or before it, and the first tokens, before the
    end of the first block, the null key alone. (The authors' own code appends the first token in its place.)
    """

    compression: Annotated[Span, Letter("c")] = 3
    """Stride c of the convolution: tokens per compressed key."""
    kernel: Annotated[Span | None, Letter("c")] = None
    """Kernel size κ of the convolution, in tokens; c by default."""
    groups: Annotated[int, msgspec.Meta(ge=1, le=2**20), Letter(None)] = 1
    """Number of channel groups g of the convolution."""
    function: Literal["conv", "mean", "max"] = "conv"
    """How tokens are compressed: a convolution, or the mean or maximum of each window."""
    null_key: bool = True
    """Whether one learned key and value precede the compressed ones."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.span < self.compression:
            raise ComponentError(
                "kernel",
                f"{self.kernel} tokens every {self.compression} tokens leave tokens unread; "
                f"give at least {self.compression}, or leave `kernel` out",
            )
        width = self.inner(place.dim)
        check_divides("groups", self.groups, width, f"the {width} channels")
        if self.function != "conv" and self.groups > 1:
            raise ComponentError("groups", f"{self.function!r} has no channel groups; leave `groups` out")
        if self.causal and not self.null_key:
            raise ComponentError("null_key", "causal: the first tokens read the null key alone; leave `null_key` out")

    def label(self) -> str:
        return "Causal memory-compressed attention" if self.causal else "Memory-compressed attention"

    @property
    def span(self) -> int:
        """κ."""
        return self.compression if self.kernel is None else self.kernel

    def compressed_keys(self, grid: Grid) -> Number:
        """M, the compressed keys."""
        return ceil_div(grid.total, self.compression)

    def keys(self, grid: Grid) -> Number:
        """The compressed keys and the null key."""
        return self.compressed_keys(grid) + (1 if self.null_key else 0)

    def padding(self, grid: Grid) -> Number:
        """Zeros before the first token; the last block ends at the last token."""
        return (self.compressed_keys(grid) - 1) * self.compression + self.span - grid.total

    def first_end(self, grid: Grid) -> Number:
        """The token at which the first block ends; one block ends every c tokens, the last at the last token."""
        return (grid.total - 1) % self.compression

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """All tokens; causal, those up to the end of the last block that ends at `token` or before it, and its own.

        Its own, for its query weighs what it reads; where that is the null key alone, there is nothing to weigh.
        """
        if not self.causal:
            return range(grid.total)
        past_first_end = token - self.first_end(grid)
        if past_first_end < 0:
            return ()
        end = token - past_first_end % self.compression
        return range(token + 1) if end == token else (*range(end + 1), token)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """Pairs of tokens: causal, c tokens read up to the end of every block but the last, c - 1 themselves too."""
        n, c = grid.total, self.compression
        if not self.causal:
            return n * n
        earlier_keys = self.compressed_keys(grid) - 1
        return (
            c * (earlier_keys * (self.first_end(grid) + 1) + c * (earlier_keys * (earlier_keys - 1) // 2))
            + earlier_keys * (c - 1)
            + n
        )

    def scored(self, grid: Grid) -> Number:
        """Pairs of a token and a key; causal, c·M(M-1)/2 + M + N."""
        n, compressed_keys = grid.total, self.compressed_keys(grid)
        return (
            self.compression * (compressed_keys * (compressed_keys - 1) // 2) + compressed_keys + n
            if self.causal
            else n * self.keys(grid)
        )

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, grid = place.grid.total, place.dim, place.grid
        inner, keys = self.inner(d), self.keys(grid)
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        if self.padding(grid):
            padded = n + self.padding(grid)
            tensors = copied((n, 2 * inner), (padded, 2 * inner), "qkv")
            yield move("pad", "Pad keys and values", 2 * padded * inner, tensors=tensors)
        yield self._compress(grid, inner)
        if self.null_key:
            tensors = copied((self.compressed_keys(grid), 2 * inner), (keys, 2 * inner))
            facts = {"params": 2 * inner, "moved": 2 * keys * inner, "tensors": tensors}
            yield Operation(path="null", title="Null key and value", **facts)
        mixing: dict[str, Any] = {"mixing": "global", "reads": "N/c + 1" if self.null_key else "N/c"}
        mask = Tensor("compressed_mask", (n, keys), "bool", once=True)
        if self.causal and place.fused:
            written = msgspec.structs.replace(mask, name=OUTPUT)
            facts = {"reads_tokens": keys, "tensors": Tensors((), (written,), beside=True)}
            yield Operation(path="compressed_mask", title="Mask (compressed)", **facts, **mixing)
        read = "null" if self.null_key else "compress"
        core: dict[str, Any] = mixing | {"keys": keys, "pairs": self.scored(grid), "operands": ("qkv", read, read)}
        rows = attention_of(self, place, prefix="compressed_", **core)
        yield from (with_mask(row, mask) for row in rows) if self.causal else rows
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def _compress(self, grid: Grid, inner: Number) -> Operation:
        """Compression of κ tokens to one, for keys and values."""
        compressed_keys = self.compressed_keys(grid)
        title = f"Compress keys and values ({self.function})"
        # What is compressed is saved, but for a mean; a convolution merges batch, keys and values
        tokens, padding = grid.total, self.padding(grid)
        read = Tensor(BEFORE, (tokens + padding, 2 * inner)) if padding else Tensor("qkv", (tokens, 2 * inner))
        merged = merged_heads(read.shape, 2, tokens)
        saves = {
            "conv": (Saved(read.name, copied=None if padding else merged),),
            "max": (Saved(read.name), Saved(OUTPUT)),
            "mean": (),
        }
        writes = (Tensor(OUTPUT, (self.compressed_keys(grid), 2 * inner)),)
        tensors = Tensors((read,), writes, saves[self.function])
        mixing: dict[str, Any] = {
            "mixing": "local",
            "reads": "c" if self.span == self.compression else "κ",
            "reads_tokens": self.span,
            "tensors": tensors,
        }
        window_elements = 2 * compressed_keys * self.span * inner
        if self.function == "mean":
            return elementwise("compress", title, "mean", window_elements, **mixing)
        if self.function == "max":
            return maximum("compress", title, window_elements, content_dependent=True, **mixing)
        group_width = inner // self.groups
        row = matmul(
            "compress", title, window_elements * group_width, params=self.span * group_width * inner + inner, **mixing
        )
        return msgspec.structs.replace(row, flops=row.flops + 2 * compressed_keys * inner * FLOPS_PER_ELEMENT["add"])

    def notes(self, place: Place) -> Iterator[str]:
        first, padding = self.first_end(place.grid), self.padding(place.grid)
        if padding:
            yield PaddingNote(
                f"keys and values of the {place.grid.total} tokens are padded by {padding} at the front, and counted"
            )
        if self.causal and first:
            yield f"the first block ends at token {first}, counted from 0: the tokens before it read the null key alone"
