"""Attention to keys and values made fewer by a strided convolution or pooling: on a grid (PVT, CvT), in a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.arithmetic import ceil_div, common_divisor
from xfcost.formulas.component import (
    ComponentError,
    CroppingNote,
    Grid,
    Letter,
    Number,
    PaddingNote,
    Place,
    Side,
    check_divides,
    check_no_special_tokens,
    check_odd,
)
from xfcost.formulas.conv_kernel import ConvKernel, centred_kernel, kernel_of
from xfcost.formulas.grid_axes import numbers
from xfcost.formulas.letters import lettered
from xfcost.formulas.mixers import CausalMixer, NonCausalMixer, letter_power
from xfcost.ledger.grid import sides_text
from xfcost.program.attention import attend, compared_mask, join_heads, split_heads
from xfcost.program.convolution import AdaptiveMean, Convolution, convolution, depthwise, in_rows, on_grid
from xfcost.program.functions import multiplied, padded, positions
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


class SpatialReduction(NonCausalMixer, frozen=True, kw_only=True, tag="spatial_reduction"):
    """SRA: softmax(Q K'ᵀ/√d_k) V' with K', V' from a grid reduced R times along each side (Wang et al. 2021, §3.3).

    N tokens on a grid of r axes, width d, h heads of width d_k, R the `reduction`, M = N/R^r keys.

        q             N·d·h·d_k MACs
        reduce        M·R^r·d² MACs, (R^r·d + 1)·d parameters: an R×R convolution of stride R, where R > 1 or `pooled`
        norm          M·d elements of a layer norm, 2d parameters, where R > 1 or `pooled`
        kv            M·d·2h·d_k MACs
        scores        N·M·h·d_k MACs, h·N·M entries kept
        weighted_sum  N·M·h·d_k MACs
        out           N·h·d_k·d MACs

    With R = 1 nothing is reduced: full attention, which alone can hold special tokens. The convolution isn't padded, as
    in the public code: what R doesn't divide is in no patch, and no other token reads it.

    Linear SRA (Wang et al. 2022, PVT v2, §3.1) `pooled` to P×P by an adaptive average, whatever N; a 1×1 convolution,
    the norm and a GELU follow. M is then P^r, R = 1 in the rows, and the cost linear in N.
    """

    non_causal_reason: ClassVar[str] = "a key stands for a patch of tokens, later ones among them"

    titles: ClassVar[Mapping[str, str]] = {"pool": "Adaptive average pool"}

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
        return kernel_of(grid, self.reduction, self.reduction, 0)

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner, bias = self.inner(place.dim), self.projection_bias
        q = t.linear("q", x, inner, bias=bias)
        k, v = t.linear("kv", self._reduced(t, x, place), 2 * inner, bias=bias).chunk(2, -1)
        heads = (split_heads(part, self.heads) for part in (q, k, v))
        # a key that stands for several tokens makes no pair of tokens
        pairs = None if self._reduces else self.pairs(place.grid)
        mixing = {"mixing": "global", "reads": self._keys_in_letters(place.grid)}
        y = attend(t, *heads, fused=place.fused, pairs=pairs, mixing=mixing)
        return t.linear("out", join_heads(y), place.dim, bias=bias)

    def _keys_in_letters(self, grid: Grid) -> str:
        if self.pooled is not None:
            return "k"
        return f"N/{letter_power('R', len(grid.sides))}" if self._reduces else "N"

    def _reduced(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        """The tokens that keys and values are made of: (B, N, D) -> (B, M, D)."""
        sides, d = place.grid.sides, place.dim
        if self.pooled is not None:
            mean = AdaptiveMean(self.reduced(place.grid).sides)
            y = in_rows(t.run("pool", mean, on_grid(x, sides), **self._pooling(place.grid)))
            y = t.norm("norm", t.linear("reduce", y, d, title="1×1 convolution"), "layer_norm")
            return t.act("act", y, "gelu")
        if self.reduction == 1:
            return x
        kernel = self.kernel(place.grid)
        facts: dict[str, Any] = {"reads": letter_power("R", len(sides)), "title": "Reduce patches"}
        y = convolution(t, "reduce", on_grid(x, sides), d, kernel, self.reduced(place.grid).sides, **facts)
        return t.norm("norm", in_rows(y), "layer_norm")

    def _pooling(self, grid: Grid) -> dict[str, Any]:
        """An adaptive mean of n tokens to P along a side: the i-th of them is of tokens ⌊i·n/P⌋ to ⌈(i+1)·n/P⌉.

        They read n + P - gcd(n, P) tokens in total, the longest ⌈(n + P - gcd(n, P))/P⌉.
        """
        longest = (ceil_div(side + self.pooled - common_divisor(side, self.pooled), self.pooled) for side in grid.sides)
        return {"mixing": "global", "reads": "N/k", "reads_tokens": prod(longest)}

    def notes(self, place: Place) -> Iterator[str]:
        grid = place.grid
        remainder = [side - inside for side, inside in zip(grid.sides, self._in_patches(grid), strict=True)]
        if any(remainder):
            yield CroppingNote(
                f"patches of {sides_text(self.kernel(grid).sides)} don't tile the grid {sides_text(grid.sides)}: "
                f"its last {sides_text(remainder)} rows and columns go into no key, and no other token reads them"
            )
        if self.pooled is not None and min(grid.sides) < self.pooled:
            yield f"the grid {sides_text(grid.sides)} is pooled to more: {sides_text(self.reduced(grid).sides)} keys"


Span = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class Compressed(CausalMixer, frozen=True, kw_only=True, tag="compressed"):
    """Softmax attention over keys and values that a strided convolution compressed (Liu et al. 2018, §4.2.4).

    N tokens, width d, h heads of width d_k = d/h; a convolution of κ tokens and stride c, in g groups, makes M = ⌈N/c⌉
    keys and, with the same weights, M values of them. One learned null key and value stand before them.

        qkv           N·d·3h·d_k MACs
        compress      2·M·κ·(h·d_k)²/g MACs, (κ·h·d_k/g + 1)·h·d_k parameters; of a mean or a maximum, 0 MACs and
                      0 parameters
        null          2·h·d_k parameters, with a `null_key`
        compressed_scores        N·(M + t)·h·d_k MACs, h·N·(M + t) entries kept
        compressed_weighted_sum  N·(M + t)·h·d_k MACs
        out           N·h·d_k·d MACs

    t is 1 where there is a null key, else 0. Queries are not compressed: N²/c, and not the (N/c)² that a survey prints.
    As in the public package memory-compressed-attention 0.0.7 (g = h there, 1 in the paper) zeros stand before the
    first token, so that a block ends at the last one; causal, a token reads the blocks that end at it or before it, and
    the first tokens, before the end of the first block, the null key alone. (The authors' own code appends the first
    token in its place.)
    """

    short_name = "Memory-compressed attention"

    titles: ClassVar[Mapping[str, str]] = {"pad": "Pad keys and values", "null": "Null key and value"}

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner = self.inner(place.dim)
        q, kv = t.linear("qkv", x, 3 * inner, bias=self.projection_bias).split((inner, 2 * inner), -1)
        kv = self._compressed(t, kv.unflatten(-1, (2, inner)).transpose(1, 2), place.grid)
        heads = (split_heads(part, self.heads) for part in (q, kv.select(1, 0), kv.select(1, 1)))
        part = t.part("compressed", "compressed")
        mixing = {"mixing": "global", "reads": "N/c + 1" if self.null_key else "N/c"}
        mask = self._mask(part, place.grid) if self.causal else None
        y = attend(part, *heads, fused=place.fused, pairs=self.scored(place.grid), mixing=mixing, mask=mask)
        return t.linear("out", join_heads(y), place.dim, bias=self.projection_bias)

    def _compressed(self, t: Operations, kv: Tensor, grid: Grid) -> Tensor:
        """Keys and values of κ tokens each, behind a null key and value: (B, 2, N, I) -> (B, 2, M, I)."""
        inner = kv.shape[-1]
        if padding := self.padding(grid):
            neutral = float("-inf") if self.function == "max" else 0.0
            kv = t.leaf("pad", padded, kv, options={"dim": 2, "before": padding, "value": neutral})
        facts: dict[str, Any] = {"title": f"Compress keys and values ({self.function})", "reads_tokens": self.span}
        facts |= {"mixing": "local", "reads": "c" if self.span == self.compression else "κ"}
        if self.function == "conv":
            kernel = ConvKernel((self.span,), (self.compression,), (0,))
            leaf = Convolution(inner, kernel, (self.compressed_keys(grid),), self.groups)
            kv = (
                t.run("compress", leaf, kv.flatten(0, 1).transpose(1, 2), **facts).transpose(1, 2).unflatten(0, (-1, 2))
            )
        else:
            facts["content_dependent"] = self.function == "max"
            windows = {"span": self.span, "stride": self.compression}
            kv = t.leaf("compress", POOLS[self.function], kv, options=windows, **facts)
        return t.leaf("null", null_first, kv, weights=(Weight((2, 1, inner), "zeros"),)) if self.null_key else kv

    def _mask(self, t: Operations, grid: Grid) -> Callable[..., Tensor]:
        """-∞ at blocks that end after the query; all queries read the null key, the first."""
        blocks = Worked(ends_of_blocks, {"first": self.first_end(grid), "stride": self.compression}, "int64")
        end = Weight((self.keys(grid),), blocks, "end_M", learns=False)
        token = Weight((grid.total, 1), Worked(positions, type="int64"), "token_N1", learns=False)
        return compared_mask(t, ended, (token, end))

    def notes(self, place: Place) -> Iterator[str]:
        first, padding = self.first_end(place.grid), self.padding(place.grid)
        if padding:
            yield PaddingNote(
                f"keys and values of the {place.grid.total} tokens are padded by {padding} at the front, and counted"
            )
        if self.causal and first:
            yield f"the first block ends at token {first}, counted from 0: the tokens before it read the null key alone"


def ends_of_blocks(key: Any, *, first: int, stride: int) -> Any:
    """The last token of each block behind the null key, which ends before all tokens."""
    return first + (key - 1) * stride


def ended(t: Functions, token: Tensor, end: Tensor) -> Tensor:
    """Ends a block after the token? (N, 1), (M,) -> (N, M)."""
    return end > token


def window_means(t: Functions, x: Tensor, *, span: int, stride: int) -> Tensor:
    """The mean of κ tokens at each stride: (B, 2, P, I) -> (B, 2, M, I)."""
    return x.unfold(2, span, stride).mean(-1)


def window_maxima(t: Functions, x: Tensor, *, span: int, stride: int) -> Tensor:
    """The maximum of the same: (B, 2, P, I) -> (B, 2, M, I)."""
    return x.unfold(2, span, stride).amax(-1)


POOLS: Final = {"mean": window_means, "max": window_maxima}


def null_first(t: Functions, x: Tensor, null: Tensor) -> Tensor:
    """A learned key and value before the others, so that every query can read one: (B, 2, M, I) -> (B, 2, M+1, I)."""
    return t.cat([null.expand(x.shape[0], -1, -1, -1), x], 2)


class ConvAttention(NonCausalMixer, frozen=True, kw_only=True, tag="conv_attention"):
    """Q, K and V each by a depthwise convolution, a batch norm and a linear map (Wu et al. 2021, CvT, §3.2).

    N tokens on a grid of r axes, width d, h heads of width d_k, kernels of W×W padded by ⌊W/2⌋, R the `kv_stride`,
    M = ⌈√N/R⌉² keys; e special tokens, which go round the convolutions.

        q_conv         N·W^r·d MACs, W^r·d parameters, no bias
        q_norm         N·d elements of a batch norm, 2d parameters
        q_join         (e+N)·d elements written, where there are special tokens
        q_linear       (e+N)·d·h·d_k MACs, (d + β)·h·d_k parameters
        k_conv, v_conv      M·W^r·d MACs each, W^r·d parameters
        k_norm, v_norm      M·d elements of a batch norm each, 2d parameters
        k_linear, v_linear  (e+M)·d·h·d_k MACs each, (d + β)·h·d_k parameters
        scale          (e+N)·h·d_k multiplications by 1/√(h·d_k), the whole width's root, as the public code has it
        scores         (e+N)·(e+M)·h·d_k MACs, h·(e+N)·(e+M) entries kept
        weighted_sum   (e+N)·(e+M)·h·d_k MACs
        out            (e+N)·h·d_k·d MACs

    The convolutions give a token its place: CvT has no other positions.
    """

    short_name = "Convolutional-projection attention"
    non_causal_reason: ClassVar[str] = "a query and a key are made of their neighbours, later ones among them"

    size: Annotated[Side, Letter("W")] = 3
    """Kernel side W of the depthwise convolutions, odd."""
    kv_stride: Annotated[Side, Letter("R", least=2)] = 2
    """Stride R of the key and value convolutions."""

    def check(self, place: Place) -> None:
        super().check(place)
        check_odd("size", self.size)
        if self.kv_stride > self.size // 2 + 1:
            raise ComponentError(
                "kv_stride",
                f"kernels of {self.size} at every {self.kv_stride} positions leave some that no key reads; "
                f"expected at most {self.size // 2 + 1}",
            )

    def kernel(self, grid: Grid, stride: int = 1) -> ConvKernel:
        """The kernel, centred on every `stride`-th token along each axis."""
        return centred_kernel(grid, self.size, stride)

    def keys(self, grid: Grid) -> Grid:
        """The grid of the keys."""
        return Grid(self.kernel(grid, self.kv_stride).out(grid.sides), grid.special)

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        inner, grid = self.inner(place.dim), place.grid
        title = "Scale queries by the whole width, 1/√(h·d_k)"
        q = self._projected(t, "q", x, 1, place)
        q = t.leaf("scale", multiplied, q, options={"factor": float(inner) ** -0.5}, title=title, symbol="")
        k, v = (self._projected(t, name, x, self.kv_stride, place) for name in ("k", "v"))
        reads = "N" if self.kv_stride == 1 else f"N/{letter_power('R', len(grid.sides))}"
        heads = (split_heads(part, self.heads) for part in (q, k, v))
        # a key is made of several tokens, and makes no pair of tokens
        y = attend(t, *heads, fused=place.fused, pairs=None, mixing={"mixing": "global", "reads": reads}, scaled=False)
        return t.linear("out", join_heads(y), place.dim, bias=self.projection_bias)

    def _projected(self, t: Operations, name: str, x: Tensor, stride: int, place: Place) -> Tensor:
        """A convolution and a norm of the grid's tokens, then a linear map of all: (B, N, D) -> (B, M, I)."""
        part, what, grid = t.part(name), name.upper(), place.grid
        kernel, tokens = self.kernel(grid, stride), on_grid(x.narrow(1, grid.special, grid.tokens), grid.sides)
        facts = {"title": f"{what} depthwise convolution", "bias": False}
        y = in_rows(depthwise(part, "conv", tokens, kernel, kernel.out(grid.sides), **facts))
        y = part.norm("norm", y, "batch_norm")
        if grid.special:
            y = part.leaf(
                "join", after_special, y, x, options={"count": grid.special}, title=f"{what}: join the special tokens"
            )
        return part.linear("linear", y, self.inner(place.dim), bias=self.projection_bias, title=f"{what} projection")

    def notes(self, place: Place) -> Iterator[str]:
        if place.grid.special:
            yield f"{place.grid.special} special token(s) skip the convolutions, and are concatenated after them"


def after_special(t: Functions, y: Tensor, x: Tensor, *, count: int) -> Tensor:
    """The first tokens of x, then y: (B, M, D), (B, N, D) -> (B, count + M, D)."""
    return t.cat([x.narrow(1, 0, count), y], 1)
