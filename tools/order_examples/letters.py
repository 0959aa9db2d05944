"""The letters of the derivation, and pages placed among them."""

from __future__ import annotations

from typing import Any

import msgspec
import sympy

from xfcost.grid import Grid
from xfcost.mechanisms.base import Page, Place

# The letters, in the order in which a product is written: O(h·N²), O(N·W²·d).
LETTERS = {
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
SYMBOLS: dict[str, Any] = {letter: sympy.Symbol(letter, integer=True, positive=True) for letter in LETTERS}
h, N, M, W, w, b, stride, c, g, r, k, m, E, A, P, R, C, V, L, K, d, dk = SYMBOLS.values()
# s = √N, the side of the square grid: formulas round it, so it is an integer of its own.
s = sympy.Symbol("s", integer=True, positive=True)
S = sympy.Symbol("S", integer=True, positive=True)  # a shift

SQUARE = Grid((s, s))


def place(**given: Any) -> Place:
    """A square grid of s×s tokens of width d, or what is `given`."""
    return Place(**({"grid": SQUARE, "dim": d, "out_dim": d} | given))


def both(spot: Place, *pages: Page) -> list[tuple[Page, Place]]:
    """`pages` at `spot`, eager and fused."""
    return [(page, where) for page in pages for where in (spot, msgspec.structs.replace(spot, fused=True))]
