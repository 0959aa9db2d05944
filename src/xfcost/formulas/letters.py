"""The letters of orders, and the annotation that gives a field its letter."""

from __future__ import annotations

from typing import Final, NamedTuple

# In the order of a printed product: O(h·N²), O(N·W²·d).
LETTERS: Final[dict[str, str]] = {
    "h": "heads",
    "N": "tokens",
    "M": "tokens of the memory (cross-attention)",
    "W": "side of a window or of a kernel",
    "w": "tokens of a sliding window or of a cluster",
    "b": "tokens of a block, chunk or bucket",
    "l": "stride of a pattern or of a pool",
    "c": "compression: tokens per compressed one; or summary cells of a block",
    "g": "global tokens",
    "r": "random blocks per block, or rounds of hashing",
    "k": "rank, landmarks, random features, inducing or sampled points, clusters, buckets or hidden units over tokens",
    "m": "memory tokens, positions beside a block that it reads, or positions kept from earlier segments",
    "i": "iterations",
    "o": "order of a Hyena operator",
    "E": "experts, or expansion of the width of a Mamba block",
    "A": "experts that a token uses",
    "P": "side of a patch",
    "R": "side of the patch of tokens that is reduced to one key",
    "C": "channels of the image",
    "V": "entries of the vocabulary",
    "L": "rows of a position table that is not as long as the input",
    "K": "classes",
    "d": "width",
    "dₖ": "width of a head or of a group of channels",
}


class Letter(NamedTuple):
    """`Annotated[int, Letter("W")]`: the letter of a field's number in orders."""

    name: str | None
    """One of `LETTERS`; None for a constant."""
    least: int = 1
    """The smallest number with the letter: a stride of 1 has none."""
