"""Pooling attention (MViT): queries, keys and values are pooled on the grid once projected; whole, or in windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, greater
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Letter,
    Number,
    Observed,
    PaddingNote,
    Place,
    Side,
    Sources,
    Width,
    check_no_special_tokens,
)
from xfcost.formulas.conv_kernel import ConvKernel, per_axis
from xfcost.formulas.grid_axes import numbers, position
from xfcost.formulas.letters import lettered
from xfcost.formulas.mixers import NonCausalMixer, letter_power
from xfcost.ledger.grid import sides_text
from xfcost.mechanisms.window import Cut, merged, partition
from xfcost.program.attention import attend, join_heads, split_heads
from xfcost.program.convolution import Convolution, Pool, in_rows, on_grid
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Symbolic, Tensor
from xfcost.program.tape import Tape

# Decomposed relative position bias: the sum of one term per axis of the grid ─────────────────────────────────────────


Sides = tuple[Number, ...]


def distances(queries: Sides, keys: Sides) -> Sides:
    """Rows of each axis's table: 2·max(q, k) - 1 distances."""
    return tuple(2 * greater(q, k) - 1 for q, k in zip(queries, keys, strict=True))


def decomposed_bias(  # noqa: PLR0913 - what the bias depends on
    t: Operations, q: Tensor, queries: Sides, keys: Sides, special: Number, *,
    bound: bool, mixing: Mapping[str, Any],
) -> Tensor:  # fmt: skip
    """Bias of query i and key j: Σ over the axes a of qᵢ·R^a[iₐ - jₐ] (Li et al. 2022, §4.1, equation 4).

    Q queries of each of G groups (windows), h heads of width d_k; kₐ keys and qₐ queries along axis a, K = Σ kₐ. Where
    one grid is finer, distances are counted in its steps: R = Σ (2·max(qₐ, kₐ) - 1) of them.

        tables            R·d_k parameters, for all heads; Σ qₐ·kₐ·d_k looked up, once for a batch
        position_scores   G·h·Q·d_k·K MACs
        spread            the sum of the terms for all pairs, from the last axis on; none for special tokens

    (B, G, H, e+P, K) -> (B, G, H, e+P, e+M). The tables' rows depend on the grid's sides: another resolution needs
    other tables, which the public code interpolates linearly.
    """
    rows, pairs = distances(queries, keys), list(zip(queries, keys, strict=True))
    tables = [Weight((count, q.shape[-1]), name=f"axis_{axis}") for axis, count in enumerate(rows)]
    numbered = [
        Weight((m, n), Worked("windows:distance_rows", {"queries": m, "keys": n}), f"rows_{axis}", learns=False)
        for axis, (m, n) in enumerate(pairs)
    ]
    title = "Relative positions along each axis"
    looked = t.leaf("tables", looked_up, weights=[*tables, *numbered], title=title, bound=bound)
    facts = {"content_dependent": True, "matrix": True, **mixing}
    options = {"queries": queries, "special": special}
    title = "Position scores QRᵀ, axis by axis"
    terms = t.leaf("position_scores", position_scores, q, *looked, options=options, title=title, **facts)
    title = "Add up the axes' scores for all pairs"
    options = {"special": special}
    return t.leaf("spread", spread_over_pairs, *terms, options=options, title=title, matrix=True, **mixing)


def looked_up(t: Functions, *held: Tensor) -> tuple[Tensor, ...]:
    """Tables (R, K) of the axes and their rows' numbers (q, k) -> the row of each distance, (q, k, K) of each axis."""
    tables, numbered = held[: len(held) // 2], held[len(held) // 2 :]
    each = zip(tables, numbered, strict=True)
    return tuple(t.take_rows(table, rows.flatten()).unflatten(0, rows.shape) for table, rows in each)


def position_scores(
    t: Functions, q: Tensor, *tables: Tensor, queries: Sides, special: Number
) -> tuple[Tensor, ...]:  # fmt: skip
    """qᵢ·R[iₐ - jₐ] for every axis a: (…, e+P, K) -> one tensor (…, *queries, kₐ) per axis."""
    grid = q.narrow(-2, special, prod(queries)).unflatten(-2, queries)
    found = []
    for axis, table in enumerate(tables, grid.dim() - 1 - len(queries)):
        first = grid.movedim(axis, 0)
        scores = first.flatten(1, -2) @ table.mT
        found.append(scores.unflatten(1, first.shape[1:-1]).movedim(0, axis))
    return tuple(found)


def spread_over_pairs(t: Functions, *scores: Tensor, special: Number) -> Tensor:
    """The sum of one term per axis for each pair, 0 for special tokens: (…, *queries, kₐ) each -> (…, e+P, e+M)."""
    rank, total = len(scores), scores[-1]
    for behind, term in enumerate(reversed(scores[:-1]), 1):
        total = term.unflatten(-1, (-1, *[1] * behind)) + total.unsqueeze(-1 - behind)
    bias = total.flatten(-rank).flatten(-1 - rank, -2)
    return t.pad(bias, (-2, -1), before=special)


# Pools of attention heads on a grid, and windows of it: heads are pooled as samples ──────────────────────────────────


class OverHeads(NamedTuple):
    """A pool of each head's grid; special tokens pass unchanged: (B, H, e+N, K) -> (B, H, e+P, K)."""

    pool: Convolution | Pool
    grid: Grid

    def traced(self, t: Tape, x: Symbolic) -> Symbolic:
        y: Symbolic = self.applied(t, partial(self.pool.traced, t), x)
        return y

    def applied(self, t: Any, pool: Callable[[Any], Any], x: Any) -> Any:
        """The same, `pool` being what the pool does."""
        special = self.grid.special
        pooled = in_rows(pool(on_grid(x.narrow(2, special, self.grid.tokens).flatten(0, 1), self.grid.sides)))
        pooled = pooled.unflatten(0, (-1, x.shape[1]))
        return t.cat([x.narrow(2, 0, special), pooled], 2) if special else pooled


def partition_heads(t: Functions, x: Tensor, *, cut: Cut) -> Tensor:
    """(B, H, P, K) -> (B, G, H, T, K)."""
    return partition(t, x.flatten(0, 1), cut=cut).unflatten(0, (-1, x.shape[1])).transpose(1, 2)


def merge_heads(t: Functions, x: Tensor, *, cut: Cut) -> Tensor:
    """The inverse of `partition_heads`: (B, G, H, T, K) -> (B, H, P, K)."""
    return merged(t, x.transpose(1, 2).flatten(0, 1), cut=cut).unflatten(0, (-1, x.shape[2]))


def with_queries(t: Functions, y: Tensor, q: Tensor, *, apart: Number) -> Tensor:
    """y + q, except for the first `apart` tokens: (B, H, P, K)."""
    if not apart:
        return y + q
    rest = y.shape[2] - apart
    return t.cat([y.narrow(2, 0, apart), y.narrow(2, apart, rest) + q.narrow(2, apart, rest)], 2)


# Tokens that queries read where queries and keys are pooled from a grid, axis by axis ────────────────────────────────


class PooledAxis(NamedTuple):
    """One axis of `side` tokens: centred kernels (size, stride) of queries and of keys, and a window."""

    side: int
    query: tuple[int, int]
    key: tuple[int, int]
    window: int | None = None

    @property
    def queries(self) -> int:
        """Number of queries."""
        return (self.side - 1) // self.query[1] + 1

    def _run(self, kernel: tuple[int, int], output: int) -> range:
        """The tokens that an output of a kernel reads."""
        size, stride = kernel
        first = output * stride - size // 2
        return range(max(0, first), min(self.side, first + size))

    def own_tokens(self, query: int) -> range:
        """The tokens that a query is pooled from."""
        return self._run(self.query, query)

    def covered_tokens(self, query: int) -> Sequence[int]:
        """The tokens that go into the keys of a query: all keys, or those of its window."""
        keys = range((self.side - 1) // self.key[1] + 1)
        if self.window is not None:
            query_window, keys_per_window = query // (self.window // self.query[1]), self.window // self.key[1]
            keys = keys[query_window * keys_per_window : (query_window + 1) * keys_per_window]
        return sorted({token for key in keys for token in self._run(self.key, key)})

    def sums(self) -> tuple[int, int, int]:
        """Over its queries: Σ tokens covered, Σ tokens of its own, Σ tokens that are both."""
        totals = [0, 0, 0]
        for query in range(self.queries):
            if not query or self.window is not None:
                covered_tokens = set(self.covered_tokens(query))
            own_tokens = set(self.own_tokens(query))
            totals = [
                total + len(tokens)
                for total, tokens in zip(totals, (covered_tokens, own_tokens, covered_tokens & own_tokens), strict=True)
            ]
        return totals[0], totals[1], totals[2]


class PooledReads(NamedTuple):
    """Tokens that a grid's queries read: those of their keys and, where keys are `weighed`, of the query itself.

    Special tokens are not pooled: they read every key and each other, and every query reads them.
    """

    axes: tuple[PooledAxis, ...]
    special: int
    weighed: bool
    """Does the output depend on the query? A single key has the weight 1 whatever the query is."""

    def reads(self, token: int) -> list[int]:
        """The tokens that output `token` reads."""
        first = list(range(self.special))
        if token < self.special:
            return first + self._numbers([axis.covered_tokens(0) for axis in self.axes])
        places = position(token - self.special, [axis.queries for axis in self.axes])
        coordinates = list(zip(self.axes, places, strict=True))
        read = set(self._numbers([axis.covered_tokens(place) for axis, place in coordinates]))
        if self.weighed:
            read |= set(self._numbers([axis.own_tokens(place) for axis, place in coordinates]))
        return first + sorted(read)

    def products(self) -> list[list[list[Sequence[int]]]]:
        """What the grid's queries read of the grid, as products: along each axis the places that each query reads."""
        covered = [[axis.covered_tokens(query) for query in range(axis.queries)] for axis in self.axes]
        own: list[list[Sequence[int]]] = [
            [axis.own_tokens(query) for query in range(axis.queries)] for axis in self.axes
        ]
        return [covered, own] if self.weighed else [covered]

    def _numbers(self, runs: Sequence[Sequence[int]]) -> list[int]:
        return [self.special + number for number in numbers(runs, [axis.side for axis in self.axes])]

    def pairs(self) -> int:
        """Σ tokens read over all outputs: products of sums along the axes, covered + own - shared."""
        covered_tokens, own_tokens, shared = (
            int(prod(sums)) for sums in zip(*(axis.sums() for axis in self.axes), strict=True)
        )
        queries = prod(axis.queries for axis in self.axes)
        on_grid: int = covered_tokens + (own_tokens - shared if self.weighed else 0) + queries * self.special
        return on_grid + self.special * (self.special + prod(len(axis.covered_tokens(0)) for axis in self.axes))


# One number for every axis, or one each (of two axes or three).
PerAxis = Side | Annotated[list[Side], msgspec.Meta(min_length=2, max_length=3)]


class Pooling(NonCausalMixer, frozen=True, kw_only=True, tag="pooling"):
    """Multi-head pooling attention (Fan et al. 2021, §3.1): softmax(P(Q) P(K)ᵀ/√d_k) P(V), P strided pools.

    N tokens on a grid of any rank come in, e special ones among them, width d; d' goes out (`out_width`), h heads of
    d_k = d'/h. Kernels of k positions (k_q for queries), around their middle as padding has it; strides leave P
    queries, which go out, and M keys.

        qkv             N·d·3h·d_k MACs
        pool_q          P·k_q·h·d_k MACs, k_q·d_k parameters, or 0 MACs, 0 parameters, where it pools
        pool_k, pool_v  M·k·h·d_k MACs, k·d_k parameters each, or 0 MACs, 0 parameters, where it pools
        norm_q          (e + P)·h·d_k elements of a layer norm, 2·d_k parameters, with pool_q
        norm_k, norm_v  (e + M)·h·d_k elements of a layer norm, 2·d_k parameters each, with pool_k and pool_v
        scores          (e + P)·(e + M)·h·d_k MACs, h·(e + P)·(e + M) entries kept
        weighted_sum    (e + P)·(e + M)·h·d_k MACs
        add_queries     (e + P)·h·d_k additions, or P·h·d_k additions, with `residual_pooling` (Li et al. 2022, §4.1)
        out             (e + P)·h·d_k·d' MACs, (h·d_k + β)·d' parameters

    Pools are depthwise convolutions of d_k channels, the same for all heads, then a layer norm of d_k; or a maximum or
    a mean, without MACs or parameters. A kernel of one position that takes no strides is no pool. Extra tokens ([CLS])
    are not pooled, but normed as the others. What joins the stream is pooled too: by a maximum of stride + 1 positions
    (`residual_pool`), after a projection of what enters where the width grows (`residual_projection`). `bias:
    decomposed` adds `tables`, `position_scores` and `spread` (mechanisms/pooling.py).
    """

    short_name = "Pooling attention"
    pool_letter: ClassVar[str] = "W"
    """Side of the pools' windows, in `reads`."""
    _parts: ClassVar[tuple[tuple[str, Literal["q", "kv"]], ...]] = (("q", "q"), ("k", "kv"), ("v", "kv"))
    """Queries, keys and values, and the fields that say how they are pooled."""
    non_causal_reason: ClassVar[str] = "a key is pooled from tokens around it, later ones among them"

    q_size: Annotated[PerAxis, Letter("W", least=2)] = 3
    """Kernel size of the query pooling, one number for all axes or one per axis."""
    q_stride: Annotated[PerAxis, Letter(None)] = 1
    """Stride of the query pooling, one number for all axes or one per axis."""
    kv_size: Annotated[PerAxis, Letter("W", least=2)] = 3
    """Kernel size of the key and value pooling, one number for all axes or one per axis."""
    kv_stride: Annotated[PerAxis, Letter("l", least=2)] = 1
    """Stride of the key and value pooling, one number for all axes or one per axis."""
    function: Literal["conv", "max", "mean"] = "conv"
    """How tokens are pooled: a depthwise convolution, the maximum or the mean."""
    bias: Literal["none", "decomposed"] = "none"
    """`decomposed` adds relative position biases, one term per axis (Li et al. 2022, §4.1)."""
    residual_pooling: Literal["none", "grid", "all"] = "none"
    """Whether pooled queries are added to the attention's output: not, for the grid's tokens, or for special tokens
    too."""
    out_width: Width | None = None
    """Output width d'; d by default."""

    def check(self, place: Place) -> None:
        super().check(msgspec.structs.replace(place, dim=self.width(place)))
        rank = len(place.grid.sides)
        for field in ("q_size", "q_stride", "kv_size", "kv_stride"):
            value = getattr(self, field)
            if isinstance(value, list) and len(value) != rank:
                sides = sides_text(place.grid.sides)
                raise ComponentError(field, f"expected one number, or {rank} for the grid {sides}; got {value}")
            if field.endswith("size") and any(side % 2 == 0 for side in per_axis(value, rank)):
                raise ComponentError(field, f"kernels are centred; expected odd sizes, got {value}")
        if any(stride > 1 and stride % 2 for stride in per_axis(self.q_stride, rank)):
            raise ComponentError(
                "q_stride",
                "the residual's pool of stride + 1 positions is centred; expected 1 or an even stride, got "
                f"{self.q_stride}",
            )

        self._check_volume(place.grid)

    def _check_volume(self, grid: Grid) -> None:
        """Torch's 3-D average pool needs sides of at least the kernel."""
        for field in ("q_size", "kv_size"):
            kernel = self.kernel(grid, "q" if field == "q_size" else "kv")
            if self.function != "mean" or kernel is None or len(grid.sides) < 3:  # noqa: PLR2004 - a volume
                continue
            if any(side < size for side, size in zip(grid.sides, kernel.sides, strict=True)):
                raise ComponentError(
                    field,
                    f"a mean of {sides_text(kernel.sides)} tokens does not fit the grid {sides_text(grid.sides)}; "
                    "expected a smaller kernel or a larger input",
                )

    @property
    def widens(self) -> bool:
        return self.out_width is not None

    def width(self, place: Place) -> Number:
        """d'."""
        return place.dim if self.out_width is None else self.out_width

    def out(self, place: Place) -> tuple[Grid, Number]:
        return Grid(self.queries(place.grid), place.grid.special), self.width(place)

    def kernel(self, grid: Grid, which: Literal["q", "kv"]) -> ConvKernel | None:
        """The pool of the queries, or of keys and values; None where there is none."""
        rank = len(grid.sides)
        size, stride = (per_axis(getattr(self, f"{which}_{field}"), rank) for field in ("size", "stride"))
        if all(side == 1 and step == 1 for side, step in zip(size, stride, strict=True)):
            return None
        return ConvKernel(size, stride, tuple(side // 2 for side in size))

    def queries(self, grid: Grid) -> tuple[Number, ...]:
        """Sides of the queries' grid."""
        kernel = self.kernel(grid, "q")
        return grid.sides if kernel is None else kernel.out(grid.sides)

    def keys(self, grid: Grid) -> tuple[Number, ...]:
        """Sides of the keys' grid."""
        kernel = self.kernel(grid, "kv")
        return grid.sides if kernel is None else kernel.out(grid.sides)

    def windows(self, grid: Grid) -> tuple[Grid, Grid, tuple[Number, ...]]:
        """Grids of queries and keys of one attention window, and the number of windows along each axis: one of all."""
        queries, keys = self.queries(grid), self.keys(grid)
        return Grid(queries, grid.special), Grid(keys, grid.special), (1,) * len(queries)

    def stream_pool(self, grid: Grid) -> ConvKernel | None:
        """The shortcut's max-pool of stride + 1 positions along strided axes; None without strides."""
        strides = per_axis(self.q_stride, len(grid.sides))
        if all(stride == 1 for stride in strides):
            return None
        sizes = tuple(stride + 1 if stride > 1 else 1 for stride in strides)
        return ConvKernel(sizes, strides, tuple(size // 2 for size in sizes))

    @property
    def window_side(self) -> int | None:
        """Window side W; None without windows."""
        return None

    def pooled_reads(self, grid: Grid) -> PooledReads:
        """What each query reads, axis by axis."""
        rank, single_key = len(grid.sides), self.windows(grid)[1].total == 1
        queries = zip(per_axis(self.q_size, rank), per_axis(self.q_stride, rank), strict=True)
        keys = zip(per_axis(self.kv_size, rank), per_axis(self.kv_stride, rank), strict=True)
        axes = (PooledAxis(*axis, self.window_side) for axis in zip(grid.sides, queries, keys, strict=True))
        return PooledReads(tuple(axes), grid.special, weighed=not single_key or self.residual_pooling != "none")

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """The tokens of its keys and of its query; strides above the kernel leave tokens out."""
        return self.pooled_reads(grid).reads(token)

    def sources(self, place: Place) -> Sources:
        grid = place.grid
        products = self.pooled_reads(grid).products()
        return Sources(lambda token: self.reads(grid, token), products=products, shortcut=self.stream_pool(grid))

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        return self.pooled_reads(grid).pairs()

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        grid, width = place.grid, self.width(place)
        parts = t.linear("qkv", x, 3 * self.inner(width), bias=self.projection_bias).chunk(3, -1)
        q, k, v = (
            self._pooled(t, name, split_heads(part, self.heads), grid, which)
            for (name, which), part in zip(self._parts, parts, strict=True)
        )
        y = self.attended(t, place, q, k, v)
        if self.residual_pooling != "none":
            options = {"apart": grid.special if self.residual_pooling == "grid" else 0}
            y = t.leaf("add_queries", with_queries, y, q, options=options, title="Add the pooled queries")
        return t.linear("out", join_heads(y), width, bias=self.projection_bias)

    def _pooled(self, t: Operations, name: str, x: Tensor, grid: Grid, which: Literal["q", "kv"]) -> Tensor:
        """A pool of each head, and after a convolution its norm: (B, H, e+N, K) -> (B, H, e+P, K)."""
        kernel = self.kernel(grid, which)
        if kernel is None:
            return x
        sides, width, window = kernel.out(grid.sides), x.shape[-1], prod(kernel.sides)
        facts: dict[str, Any] = {"title": f"Pool {name.upper()} ({self.function})"}
        if window != 1:  # a window of one token takes some of the tokens, and mixes none
            letters = letter_power(self.pool_letter, len(kernel.sides))
            facts |= {"mixing": "local", "reads": letters, "reads_tokens": window}
            facts |= {"content_dependent": self.function == "max"}
        if self.function == "conv":
            pool: Convolution | Pool = Convolution(width, kernel, sides, groups=width, bias=False)
        else:
            pool = Pool(self.function, kernel, sides)
        y = t.run(f"pool_{name}", OverHeads(pool, grid), x, **facts)
        return t.norm(f"norm_{name}", y, "layer_norm") if self.function == "conv" else y

    def attended(self, t: Operations, place: Place, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of each query to each key: (B, H, P, K), (B, H, M, K) twice -> (B, H, P, K)."""
        return self.core(t, place, q, k, v)

    def core(self, t: Operations, place: Place, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The same of each window: (B, [G,] H, P, K), (B, [G,] H, M, K) twice -> (B, [G,] H, P, K)."""
        queries, keys, _ = self.windows(place.grid)
        mixing, bias = self.mixing(place.grid), None
        if self.bias == "decomposed":
            facts = mixing | {"reads_tokens": keys.total}
            bias = decomposed_bias(
                t, q, queries.sides, keys.sides, place.grid.special,
                bound=self.window_side is None, mixing=facts,
            )  # fmt: skip
        # a key that stands for several tokens makes no pair of tokens
        return attend(t, q, k, v, fused=place.fused, mixing=mixing, bias=bias, pairs=None)

    def mixing(self, grid: Grid) -> dict[str, Any]:
        """Mixing kind and reads."""
        return {"mixing": "global", "reads": f"N{self.thinned(grid)}"}

    def thinned(self, grid: Grid) -> str:
        """The divisor of N that gives the keys, in letters."""
        strided = [stride for stride in per_axis(self.kv_stride, len(grid.sides)) if stride != 1]
        return f"/{letter_power('l', len(strided))}" if strided else ""

    def skip(self, t: Operations, given: Tensor, x: Tensor, place: Place) -> Tensor:
        width, kernel = self.width(place), self.stream_pool(place.grid)
        if width != place.dim:
            x = t.linear("residual_projection", given, width)
        if kernel is None:
            return x
        pool = OverHeads(Pool("max", kernel, kernel.out(place.grid.sides)), place.grid)
        reads = letter_power(self.pool_letter, sum(1 for side in kernel.sides if side > 1))
        facts = {"mixing": "local", "reads": reads, "reads_tokens": prod(kernel.sides), "content_dependent": True}
        return t.run("residual_pool", pool, x.unsqueeze(1), title="Pool the residual stream", **facts).squeeze(1)

    def notes(self, place: Place) -> Iterator[str]:
        grid = place.grid
        tokens_in_keys = prod(len(axis.covered_tokens(0)) for axis in self.pooled_reads(grid).axes)
        if self.window_side is None and tokens_in_keys < grid.tokens:
            sizes, steps = (sides_text(per_axis(value, len(grid.sides))) for value in (self.kv_size, self.kv_stride))
            yield (
                f"keys of {sizes} tokens at every {steps}: {tokens_in_keys:,} of {grid.tokens:,} tokens go into a key, "
                "the rest into none"
            )
        if self.bias == "decomposed" and self.window_side is None:
            yield (
                "tables of relative positions have 2·max(q, k) - 1 rows along an axis of q queries and k keys, bound "
                "to the resolution; those for another one can be interpolated from them, once, on the weights"
            )


class WindowPooling(Pooling, frozen=True, kw_only=True, tag="window_pooling"):
    """Hwin: pooled queries read the pooled keys of their window (Li et al. 2022, §4.2; detectron2's public code).

    As `pooling`, with W×W tokens of the grid that comes in to a window: it is cut after pooling, so that kernels read
    across its borders, and queries, keys and values are padded by zeros up to whole windows, which are attended over.
    G windows of T = W²/s_q² queries and S = W²/s_k² keys, s the strides:

        scores        G·T·S·h·d_k MACs, h·G·T·S entries kept
        weighted_sum  G·T·S·h·d_k MACs

    In orders W is a window's side in keys, W/s_k here. Relative positions are those within a window, and their tables
    of one size whatever the grid.
    """

    has_windows: ClassVar[bool] = True
    short_name = "Window pooling attention"
    pool_letter: ClassVar[str] = "K"

    window: Side
    """Side W of a window, in tokens of the input grid."""
    q_size: Annotated[PerAxis, Letter("K", least=2)] = 3
    kv_size: Annotated[PerAxis, Letter("K", least=2)] = 3

    def check(self, place: Place) -> None:
        super().check(place)
        check_no_special_tokens(place.grid, "windows tile a grid", field="window")
        for field in ("q_stride", "kv_stride"):
            stride = getattr(self, field)
            if any(self.window % step for step in per_axis(stride, len(place.grid.sides))):
                raise ComponentError("window", f"expected a multiple of the `{field}` {stride}, got {self.window}")

    @property
    def window_side(self) -> int | None:
        return self.window

    def in_letters(self, place: Place) -> tuple[WindowPooling, Place]:
        """W is a window's side in keys."""
        component, lettered_place = super().in_letters(place)
        stride = max(per_axis(component.kv_stride, len(place.grid.sides)))
        window = stride * lettered(self.window // stride, "W")
        return msgspec.structs.replace(component, window=window), lettered_place

    def windows(self, grid: Grid) -> tuple[Grid, Grid, tuple[Number, ...]]:
        rank = len(grid.sides)
        query_sides, key_sides = (
            tuple(self.window // stride for stride in per_axis(strides, rank))
            for strides in (self.q_stride, self.kv_stride)
        )
        counts = (ceil_div(side, w) for side, w in zip(self.queries(grid), query_sides, strict=True))
        return Grid(query_sides), Grid(key_sides), tuple(counts)

    def mixing(self, grid: Grid) -> dict[str, Any]:
        return {"mixing": "local", "reads": letter_power("W", len(grid.sides)) + self.thinned(grid)}

    def padded(self, grid: Grid) -> tuple[tuple[Number, ...], tuple[Number, ...]]:
        """Sides of queries and of keys, padded to whole windows."""
        *window_grids, counts = self.windows(grid)
        query_sides, key_sides = (
            tuple(count * side for count, side in zip(counts, window_grid.sides, strict=True))
            for window_grid in window_grids
        )
        return query_sides, key_sides

    def attended(self, t: Operations, place: Place, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        grid, still = place.grid, (0,) * len(place.grid.sides)
        (queries, keys, _), (padded, padded_keys) = self.windows(grid), self.padded(grid)
        of_queries = Cut(self.queries(grid), padded, queries.sides, still)
        of_keys = Cut(self.keys(grid), padded_keys, keys.sides, still)
        cuts = (("q", q, of_queries), ("k", k, of_keys), ("v", v, of_keys))
        titles = {name: f"Cut {name.upper()} into windows" for name, _, _ in cuts}
        parts = (
            t.leaf(f"partition_{name}", partition_heads, x, options={"cut": cut}, title=titles[name])
            for name, x, cut in cuts
        )
        y = self.core(t, place, *parts)
        return t.leaf("merge", merge_heads, y, options={"cut": of_queries}, title="Join windows, crop", symbol="")

    def observed(self, place: Place) -> Observed:
        return Observed(whole=self.window, letters={"K": "W", "/l²": ""})

    def notes(self, place: Place) -> Iterator[str]:
        yield from super().notes(place)
        query_grid, (padded, _) = self.queries(place.grid), self.padded(place.grid)
        if padded != query_grid:
            yield PaddingNote(
                f"queries on {sides_text(query_grid)} padded to {sides_text(padded)} for windows of "
                f"{sides_text(self.windows(place.grid)[0].sides)}, keys and values likewise: padding is attended over, "
                "and counted"
            )
