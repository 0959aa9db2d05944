"""MobileViT's attention: a token reads the tokens at its own position in all patches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, ClassVar

from xfcost.formulas.attention import attention_of
from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place, Side, check_no_special_tokens
from xfcost.formulas.letters import Letter
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import letter_power, linear
from xfcost.ledger.grid import sides_text


class Unfolded(NonCausalMixer, frozen=True, kw_only=True, tag="unfolded"):
    """Softmax attention among the tokens of one place of all patches (Mehta and Rastegari 2022, §3.1, equation 1).

    N tokens on a grid of patches of P×P, width d, h heads of width d_k = d/h: P² groups of N/P² tokens, a group being
    every P-th row's every P-th token.

        qkv           N·d·3h·d_k MACs
        scores        N²/P²·h·d_k MACs, h·N²/P² entries kept
        weighted_sum  N²/P²·h·d_k MACs
        out           N·h·d_k·d MACs

    So P² times cheaper than full attention, and as quadratic. A convolution before it brings each token's neighbours,
    and so a token learns of all of them where the kernel covers a patch.
    """

    short_name = "Unfolded attention"
    non_causal_reason: ClassVar[str] = "a token reads its place of all patches, of those behind it too"

    patch: Annotated[Side, Letter("P")] = 2
    """Side P of a patch, in tokens."""

    def check(self, place: Place) -> None:
        super().check(place)
        grid = place.grid
        check_no_special_tokens(grid, "patches tile a grid")
        if any(side % self.patch for side in grid.sides):
            raise ComponentError(
                "patch",
                f"{self.patch} does not divide the grid {sides_text(grid.sides)}; expected sides that are multiples of "
                "it, by another image size or patch (the public code resizes the map there, which is not done here)",
            )

    def groups(self, grid: Grid) -> Number:
        """P² on a map."""
        return self.patch ** len(grid.sides)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        tokens, place = [0], token
        lines = []
        for side in reversed(grid.sides):
            place, at = divmod(place, side)
            lines.append(range(at % self.patch, side, self.patch))
        for side, line in zip(grid.sides, reversed(lines), strict=True):
            tokens = [before * side + at for before, at in product(tokens, line)]
        return tokens

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.tokens * (grid.tokens // self.groups(grid))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, groups = place.grid.tokens, place.dim, self.groups(place.grid)
        inner = self.inner(d)
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        core = {"queries": n // groups, "keys": n // groups, "groups": groups}
        yield from attention_of(self, place, reads=f"N/{letter_power('P', len(place.grid.sides))}", **core)
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)
