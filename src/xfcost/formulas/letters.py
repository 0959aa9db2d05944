"""The letters in which orders are written, and the annotation by which a field says that it is one of them."""

from __future__ import annotations

from typing import Final, NamedTuple

# In the order in which a product is written: O(h·N²), O(N·W²·d).
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
    "k": "rank, landmarks, random features, inducing points, clusters, buckets or hidden units over tokens",
    "m": "memory tokens, positions beside a block that it reads, or positions kept from earlier segments",
    "E": "experts",
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
    """Beside a field's type, `Annotated[int, Letter("W")]`: the letter that stands for its number in orders."""

    name: str | None
    """One of `LETTERS`; None for a number that no letter stands for, a constant of every order."""
    least: int = 1
    """From which number on: a stride of 1 is no stride, and no letter."""
