"""Spatial-reduction attention (PVT): keys and values on a grid reduced by a strided convolution or by pooling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Annotated, Any, ClassVar

import msgspec

from xfcost.formulas.arithmetic import ceil_div, common_divisor
from xfcost.formulas.attention import attention_of
from xfcost.formulas.component import ComponentError, Grid, Number, Operation, Place, Side, check_no_special_tokens
from xfcost.formulas.conv_kernel import ConvKernel
from xfcost.formulas.grid_axes import numbers
from xfcost.formulas.letters import Letter, lettered
from xfcost.formulas.mixers import NonCausalMixer
from xfcost.formulas.rows import convolution, elementwise, letter_power, linear, norm, on_raw_input
from xfcost.formulas.tensors import adaptive_mean, of_input
from xfcost.ledger.grid import sides_text


class SpatialReduction(NonCausalMixer, frozen=True, kw_only=True, tag="spatial_reduction"):
    """SRA: softmax(Q K'ᵀ/√d_k) V' with K', V' from a grid reduced R times along each side (Wang et al. 2021, §3.3).

    N tokens on a grid, width d, h heads of width d_k, R the `reduction`, M = N/R² keys.

        q             N·d·h·d_k MACs
        reduce        M·R²·d·d MACs, R²·d² + d parameters: an R×R convolution of stride R
        norm          M·d elements
        kv            M·d·2h·d_k MACs
        scores        N·M·h·d_k MACs, h·N·M entries kept
        weighted_sum  N·M·h·d_k MACs
        out           N·h·d_k·d MACs

    With R = 1 nothing is reduced: full attention, which alone can hold special tokens. The convolution isn't padded, as
    in the public code: what R doesn't divide is in no patch, and no other token reads it.

    Linear SRA (Wang et al. 2022, PVT v2, §3.1) `pooled` to P×P by an adaptive average, whatever N; a 1×1 convolution,
    the norm and a GELU follow. M is then P², and the cost linear in N.
    """

    non_causal_reason: ClassVar[str] = "a key stands for a patch of tokens, later ones among them"

    reduction: Annotated[Side, Letter("R", least=2)] = 1
    """Reduction R of the key and value grid along each side."""
    pooled: Side | None = None
    """Side P of the grid that keys and values are average-pooled to (linear SRA, PVT v2); none by default."""

    def check(self, place: Place) -> None:
        super().check(place)
        field = "reduction" if self.pooled is None else "pooled"
        if self.pooled is not None and self.reduction > 1:
            raise ComponentError("pooled", "`pooled` and `reduction` exclude each other; leave one out")
        if not self._reduces:
            return
        check_no_special_tokens(
            place.grid, "keys are reduced on a grid", field=field, hint="; use reduction: 1, or leave them out"
        )
        if min(place.grid.sides) < self.reduction:
            raise ComponentError(
                "reduction",
                f"patches of side {self.reduction} do not fit the grid {sides_text(place.grid.sides)}; "
                f"it could be at most {min(place.grid.sides)}",
            )

    def label(self) -> str:
        return "Linear spatial-reduction attention" if self.pooled else "Spatial-reduction attention"

    @property
    def _reduces(self) -> bool:
        return self.pooled is not None or self.reduction != 1

    def kernel(self, grid: Grid) -> ConvKernel:
        """The strided convolution's kernel."""
        rank = len(grid.sides)
        return ConvKernel((self.reduction,) * rank, (self.reduction,) * rank, (0,) * rank)

    def reduced(self, grid: Grid) -> Grid:
        """The grid of the keys."""
        if self.pooled is not None:
            return Grid((self.pooled,) * len(grid.sides))
        return Grid(self.kernel(grid).out(grid.sides), grid.special)

    def _in_patches(self, grid: Grid) -> tuple[Number, ...]:
        """Tokens inside patches, along each side."""
        if self.pooled is not None:
            return grid.sides
        return tuple(side // self.reduction * self.reduction for side in grid.sides)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        inside = self._in_patches(grid)
        if inside == grid.sides:
            return range(grid.total)
        return numbers(map(range, inside), grid.sides)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return grid.total * (prod(self._in_patches(grid)) + grid.special)

    def in_letters(self, place: Place) -> tuple[SpatialReduction, Place]:
        """k is the number of pooled tokens, not a side."""
        component, lettered_place = super().in_letters(place)
        pooled = self.pooled and lettered(self.pooled, "k", root=len(place.grid.sides))
        return msgspec.structs.replace(component, pooled=pooled), lettered_place

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner, keys = self.inner(d), self.reduced(place.grid).total
        yield on_raw_input(linear("q", "Q projection", n, d, inner, bias=self.projection_bias))
        if self._reduces:
            yield from self._reduction(place)
        kv = linear("kv", "K, V projections", keys, d, 2 * inner, bias=self.projection_bias)
        yield kv if self._reduces else on_raw_input(kv)
        # a key that stands for several tokens makes no pair of tokens
        pairs = None if self._reduces else self.pairs(place.grid)
        letters = self._keys_in_letters(place.grid)
        yield from attention_of(self, place, keys=keys, reads=letters, pairs=pairs, operands=("q", "kv", "kv"))
        yield linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)

    def _keys_in_letters(self, grid: Grid) -> str:
        if self.pooled is not None:
            return "k"
        return f"N/{letter_power('R', len(grid.sides))}" if self._reduces else "N"

    def _reduction(self, place: Place) -> Iterator[Operation]:
        grid, d = place.grid, place.dim
        keys = self.reduced(grid).tokens
        if self.pooled is not None:
            yield of_input(self._pool(grid, d))
            yield msgspec.structs.replace(linear("reduce", "1×1 convolution", keys, d, d), takes_input=True)
            yield from norm("layer_norm", "norm", keys, d)
            yield elementwise("act", "Activation", "gelu", keys * d)
            return
        kernel = self.kernel(grid)
        reads = letter_power("R", len(grid.sides))
        row = on_raw_input(convolution("reduce", "Reduce patches", (grid.tokens, d), (keys, d), kernel.sides))
        patch_mixing = {"mixing": "local", "reads": reads, "reads_tokens": prod(kernel.sides)}
        yield msgspec.structs.replace(row, **patch_mixing)
        yield from norm("layer_norm", "norm", keys, d)

    def _pool(self, grid: Grid, width: Number) -> Operation:
        """An adaptive mean of n tokens to P along a side: the i-th of them is of tokens ⌊i·n/P⌋ to ⌈(i+1)·n/P⌉.

        They read n + P - gcd(n, P) tokens in total, the longest ⌈(n + P - gcd(n, P))/P⌉.
        """
        pooled_tokens = [side + self.pooled - common_divisor(side, self.pooled) for side in grid.sides]
        longest = [ceil_div(tokens, self.pooled) for tokens in pooled_tokens]
        mixing: dict[str, Any] = {"mixing": "global", "reads": "N/k", "reads_tokens": prod(longest)}
        mixing["tensors"] = adaptive_mean(grid.sides, self.reduced(grid).sides, width)
        return elementwise("pool", "Adaptive average pool", "mean", prod(pooled_tokens) * width, **mixing)

    def notes(self, place: Place) -> Iterator[str]:
        grid = place.grid
        remainder = [side - inside for side, inside in zip(grid.sides, self._in_patches(grid), strict=True)]
        if any(remainder):
            yield (
                f"patches of {sides_text(self.kernel(grid).sides)} don't tile the grid {sides_text(grid.sides)}: "
                f"its last {sides_text(remainder)} rows and columns go into no key, and no other token reads them"
            )
        if self.pooled is not None and min(grid.sides) < self.pooled:
            yield f"the grid {sides_text(grid.sides)} is pooled to more: {sides_text(self.reduced(grid).sides)} keys"
