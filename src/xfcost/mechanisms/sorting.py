"""Attention after a sort: tokens by the hash of their queries (Reformer), blocks of keys softly (Sinkhorn)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Annotated, Any, ClassVar, Final

import msgspec

from xfcost.formulas.arithmetic import ceil_div, floor_sqrt, lesser, round_up
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    Number,
    Observed,
    PaddingNote,
    Place,
)
from xfcost.formulas.mixers import ApproximatelyCausalMixer, CausalMixer
from xfcost.program.attention import attend, fixed_mask, join_heads, softmax, split_heads
from xfcost.program.functions import joined, later_masked, mean, padded, positions, product, scores
from xfcost.program.leaves import BucketOrder, Hash, SortLogits, Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

Buckets = Annotated[int, msgspec.Meta(ge=2, le=2**24)]


class Lsh(ApproximatelyCausalMixer, frozen=True, kw_only=True, tag="lsh"):
    """Attention by locality-sensitive hashing, queries and keys being one (Reformer: Kitaev et al. 2020, §2).

    N tokens, width d, h heads of width d_k. In each of R rounds the tokens of a head are sorted by their bucket
    argmax([xR; -xR]), R a fixed random d_k × b/2 matrix, cut into chunks of c, and read their own chunk and the one
    before it, circularly; keys have length one, and a token reads itself only where it can read no other. As in the
    public implementations, tokens of a chunk read each other whether or not they share a bucket. The rounds are then
    weighted by their softmax normalisers.

        query_key, value  P·d·h·d_k MACs, (d + β)·h·d_k parameters each
        rotate            R·P·h·d_k·b/2 MACs, where there are several chunks
        hash              R·P·h·b comparisons, where there are several chunks
        sort              R·h·P·⌈log₂ P⌉ comparisons, where there are several chunks
        scores            R·P·2c·h·d_k MACs, R·h·P·2c entries kept; full, N²·h·d_k MACs, h·N² entries
        weighted_sum      R·P·2c·h·d_k MACs; full, N²·h·d_k MACs
        out               P·h·d_k·d MACs

    There are b = 2P/c buckets (§2), so that hashing is quadratic in N; any fixed number is linear. Factorised buckets
    b₁·b₂ take (b₁ + b₂)/2 columns: b is then their sum.

    Up to c tokens there is one chunk, P = N, and attention is full; more tokens are padded to P, whole chunks.
    """

    short_name = "LSH attention"
    titles: ClassVar[Mapping[str, str]] = {
        "combine": "Weighted sum of the rounds",
        "gather": "Gather queries and values by bucket",
        "hash": "Hash argmax([xR; -xR])",
        "logsumexp": "Log-sum-exp per query",
        "look_back": "Chunks beside those before them",
        "normalise": "Keys of length one",
        "query_key": "Shared Q, K projection",
        "rotate": "Random rotations xR",
        "round_weights": "Softmax over the rounds",
        "sort": "Sort by bucket",
        "undo": "Back into the tokens' order",
        "value": "V projection",
    }
    content_selects_tokens: ClassVar[bool] = True
    leak: ClassVar[str] = "later tokens are hashed and sorted too, and move the chunks' borders"

    rounds: Annotated[int, msgspec.Meta(ge=1, le=1024), Letter("r")] = 4
    """Rounds of hashing R."""
    bucket: Annotated[Length, Letter("b")] = 64
    """Tokens c of a chunk of the sorted sequence."""
    buckets: Annotated[
        Buckets | Annotated[list[Buckets], msgspec.Meta(min_length=2, max_length=8)] | None, Letter("k")
    ] = None
    """Number of hash buckets b, or its factors; 2N/c by default."""
    projection_bias: bool = False
    """Whether the query-key, value and output projections have biases."""

    def check(self, place: Place) -> None:
        super().check(place)
        for count in self.buckets if isinstance(self.buckets, list) else [self.buckets or 2]:
            if count % 2:
                raise ComponentError(
                    "buckets",
                    f"{count} is odd, and half of the buckets lie opposite the other half; "
                    f"it could be {count - 1} or {count + 1}",
                )

    def fits_one_chunk(self, grid: Grid) -> bool:
        """Do all tokens fit one chunk? Attention is then full."""
        return bool(grid.total <= self.bucket)

    def padded(self, grid: Grid) -> Number:
        """P, the tokens padded to whole chunks."""
        return grid.total if self.fits_one_chunk(grid) else round_up(grid.total, self.bucket)

    def factors(self, grid: Grid) -> list[Number]:
        """Bucket counts: b, or its factors."""
        if self.buckets is None:
            return [2 * (self.padded(grid) // self.bucket)]
        return list(self.buckets) if isinstance(self.buckets, list) else [self.buckets]

    def observed(self, place: Place) -> Observed:
        others = 2 * self.bucket * (self.rounds - 1)  # each hashing round is seen for itself
        masked = dict.fromkeys(("mask", "logsumexp", "softmax", "weighted_sum"), others + 1)  # a token masks itself
        return Observed(unread=masked | {"scores": others})

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, inner, places, bias = place.grid.total, self.inner(place.dim), self.padded(place.grid), self.projection_bias
        if places != n:
            x = t.leaf("pad", padded, x, options={"after": places - n})
        qk, v = (split_heads(t.linear(name, x, inner, bias=bias), self.heads) for name in ("query_key", "value"))
        y = (self._whole if self.fits_one_chunk(place.grid) else self._chunked)(t, qk, v, place)
        return t.linear("out", join_heads(y), place.dim, bias=bias).narrow(1, 0, n)

    def _whole(self, t: Operations, qk: Tensor, v: Tensor, place: Place) -> Tensor:
        """One chunk: full attention."""
        x = t.leaf("scores", scores, qk, self._unit(t, qk), **self._score_facts(qk, place))
        at = Weight((qk.shape[2],), Worked(positions, type="int64"), "at_N", learns=False)
        options = {"tokens": None, "causal": bool(self.causal)}
        x = t.leaf("mask", masked_in_order, x, weights=(at,), options=options, symbol="mask", **self._mixing(place))
        x, _ = self._weights(t, x, place)
        return self._weighted_sum(t, x, v, place)

    def _chunked(self, t: Operations, qk: Tensor, v: Tensor, place: Place) -> Tensor:
        """Sorted by bucket, in chunks that read themselves and the one before, in every round."""
        rounds, n, padded = self.rounds, place.grid.total, self.padded(place.grid)
        order, undo = self._sorted(t, qk, place)
        stands = order.flatten(2).unflatten(2, (-1, self.bucket))
        by_bucket = {"chunk": self.bucket}
        q = t.leaf("gather", gathered, qk, order, options=by_bucket)
        k = t.leaf("look_back", with_chunk_before, self._unit(t, q))
        x = t.leaf("scores", scores, q, k, **self._score_facts(q, place))
        del q, k  # copies for each round, no longer needed
        options = {"tokens": n if padded != n else None, "causal": bool(self.causal)}
        at_key = t.leaf("look_back", with_chunk_before, stands)
        x = t.leaf("mask", masked, x, stands, at_key, options=options, symbol="mask", **self._mixing(place))
        x, logits = self._weights(t, x, place)
        v = t.leaf("look_back", with_chunk_before, t.leaf("gather", gathered, v, order, options=by_bucket))
        y = t.leaf("undo", by_token, self._weighted_sum(t, x, v, place), undo)
        if rounds == 1:
            return y.narrow(2, 0, padded)
        logits = t.leaf("undo", by_token, logits, undo).unflatten(2, (-1, rounds)).flatten(3)
        y = y.unflatten(2, (-1, rounds)).flatten(3)  # a token's outputs of all rounds: R·K
        return t.leaf("combine", combined, y, t.leaf("round_weights", softmax, logits), options={"rounds": rounds})

    def _sorted(self, t: Operations, x: Tensor, place: Place) -> tuple[Tensor, Tensor]:
        """The order of the tokens in every round, and each token's places in it: (B, H, R, P), (B, H, P, R)."""
        factors, (heads, padded, width) = self.factors(place.grid), x.shape[1:]
        columns = Weight((heads, width, self.rounds * (sum(factors) // 2)), "standard", "columns_HKr", learns=False)
        x = t.leaf("rotate", rotated, x, weights=(columns,))
        buckets = t.run("hash", Hash(self.rounds, tuple(factors), place.grid.total, padded), x)
        found: Any = t.run("sort", BucketOrder(), buckets)
        return found  # type: ignore[no-any-return]

    def _unit(self, t: Operations, k: Tensor) -> Tensor:
        """Keys of length 1, over √d_k."""
        return t.leaf("normalise", of_unit_length, k, options={"root": float(k.shape[-1]) ** 0.5})

    def _mixing(self, place: Place) -> dict[str, Any]:
        keys = 2 * self.bucket
        if self.fits_one_chunk(place.grid):
            return {"mixing": "global", "reads": "N", "reads_tokens": place.grid.total, "heads": self.heads}
        most = lesser(self.rounds * keys, place.grid.total)
        return {"mixing": "local", "reads": "2·b·r", "reads_tokens": most, "heads": self.heads}

    def _score_facts(self, q: Tensor, place: Place) -> dict[str, Any]:
        """Facts of scores of queries (…, N, K)."""
        entries = prod(q.shape[1:-1]) * (place.grid.total if self.fits_one_chunk(place.grid) else 2 * self.bucket)
        facts = {"attention_entries": entries, "matrix": True, "symbol": "QKᵀ"}
        return facts | self._mixing(place) | {"content_dependent": True}

    def _weights(self, t: Operations, x: Tensor, place: Place) -> tuple[Tensor, Tensor]:
        """The softmax of masked scores (…, N, M), and its log-sum-exps (…, N, 1)."""
        content = self._mixing(place) | {"content_dependent": True}
        logits = t.leaf("logsumexp", log_sums, x, **content)
        return t.leaf("softmax", exponentials, x, logits, symbol="softmax", matrix=True, **content), logits

    def _weighted_sum(self, t: Operations, x: Tensor, v: Tensor, place: Place) -> Tensor:
        facts = self._mixing(place) | {"content_dependent": True}
        return t.leaf("weighted_sum", product, x, v, symbol="AV", **facts)

    def notes(self, place: Place) -> Iterator[str]:
        yield from super().notes(place)
        n, padded, chunk = place.grid.total, self.padded(place.grid), self.bucket
        if self.fits_one_chunk(place.grid):
            yield f"{n} tokens fit one chunk of {chunk}: nothing is hashed or sorted, attention is full"
            return
        if padded != n:
            yield PaddingNote(
                f"{n} tokens padded to {padded} for chunks of {chunk}: "
                f"{padded - n} padding tokens are projected, hashed and attended over, and counted; no token reads them"
            )
        columns = sum(self.factors(place.grid)) // 2
        if self.buckets is None:
            yield (
                f"2N/{chunk} = {2 * columns} buckets: hashing multiplies every token by {columns} columns per round "
                "and head, which is quadratic in N; the published O(N·log N) is the cost of sorting. "
                "A fixed or factorised `buckets` is linear"
            )


# Keys are divided by √(mean(x²) + ε). Scores at masked keys, and at the token itself, which counts only alone.
EPSILON: Final = 1e-6
MASKED, ITSELF = -1e9, -1e5
MASKED_HALF, ITSELF_HALF = -1e4, -1e3


def rotated(t: Functions, x: Tensor, columns: Tensor) -> Tensor:
    """x times fixed random columns of all rounds, with no gradient: (B, H, P, K), (H, K, r) -> (B, H, P, r)."""
    return x.detach() @ columns


def gathered(t: Functions, x: Tensor, order: Tensor, *, chunk: int) -> Tensor:
    """Tokens in the order of each round, in chunks: (B, H, P, K) -> (B, H, G, C, K)."""
    return _rows_at(x, order).unflatten(2, (-1, chunk))


def by_token(t: Functions, x: Tensor, undo: Tensor) -> Tensor:
    """Sorted back by token, the outputs of all rounds adjacent: (B, H, G, C, K) -> (B, H, S, K)."""
    return _rows_at(x.flatten(2, 3), undo)


def _rows_at(x: Tensor, index: Tensor) -> Tensor:
    return x.gather(2, index.flatten(2).unsqueeze(-1).expand(-1, -1, -1, x.shape[-1]))


def with_chunk_before(t: Functions, x: Tensor) -> Tensor:
    """Each chunk with the chunk before it, the first with the last: (B, H, G, C, …) -> (B, H, G, 2C, …)."""
    return t.cat([x.roll(1, 2), x], 3)


def of_unit_length(t: Functions, x: Tensor, *, root: float) -> Tensor:
    """Keys scaled to length 1."""
    return x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() / root


def masked(
    t: Functions, x: Tensor, at_query: Tensor, at_key: Tensor, *, tokens: Number | None, causal: bool
) -> Tensor:  # fmt: skip
    """A very low score at padding and later tokens, a low one at the token itself. In place.

    Scores (…, Q, M) of tokens at the places (…, Q) and (…, M) of the sequence.
    """
    shut, itself = (MASKED_HALF, ITSELF_HALF) if t.is_half(x) else (MASKED, ITSELF)
    query, key = at_query.unsqueeze(-1), at_key.unsqueeze(-2)
    if tokens is not None:
        x = x.masked_fill_(key >= tokens, shut)
    if causal:
        x = x.masked_fill_(key > query, shut)
    return x.masked_fill_(t.eq(key, query), itself)


def masked_in_order(t: Functions, x: Tensor, at: Tensor, **options: Any) -> Tensor:
    """The same of all tokens in their order."""
    return masked(t, x, at, at, **options)


def log_sums(t: Functions, x: Tensor) -> Tensor:
    """The log-sum-exp over the keys: (…, N, M) -> (…, N, 1)."""
    return x.logsumexp(-1, keepdim=True)


def exponentials(t: Functions, x: Tensor, logits: Tensor) -> Tensor:
    """softmax(x), from the log-sum-exp."""
    return (x - logits).exp_()


def combined(t: Functions, y: Tensor, weights: Tensor, *, rounds: int) -> Tensor:
    """Outputs of all rounds (B, H, P, R·K), weighted by (B, H, P, R) -> (B, H, P, K)."""
    return (y.unflatten(-1, (rounds, -1)) * weights.unsqueeze(-1)).sum(-2)


class Sinkhorn(CausalMixer, frozen=True, kw_only=True, tag="sinkhorn"):
    """Sparse Sinkhorn attention (Tay et al. 2020, §3), its sorting network as in sinkhorn-transformer 0.11.4.

    N tokens, padded to u blocks of b, width d, h heads of d_k. Pooled queries and keys of the blocks score how well
    they fit; Sinkhorn's iterations (rows, then columns, sum to 1) make a soft permutation of the scores, which mixes
    the blocks of keys and values. A block's queries read their own block and their sorted one.

        qkv            N·d·3h·d_k MACs
        pool           2·P·h·d_k additions: means of blocks; causal, of keys alone: P·h·d_k additions
        sort_scores    u²·h·d_k MACs, h·u² entries kept
        sort_logits    5·h·u² FLOPs: log(relu(score) + ε) / temperature; causal, h·u² FLOPs of the temperature
        balance        (10·I + 1)·h·u² FLOPs: I iterations of 2 log-sum-exps, and what they subtract; causal,
                       5·h·u·v FLOPs of a softmax
        reorder        2·t·v·b·h·d_k MACs: N²·d/b, for a soft permutation mixes all blocks
        scores         P·2b·h·d_k MACs, P·h·2b entries kept; with `sortcut` P·t·b·h·d_k MACs, P·h·t·b entries
        weighted_sum   P·2b·h·d_k MACs; with `sortcut` P·t·b·h·d_k MACs
        out            N·h·d_k·d MACs

    P = u·b; v = u blocks are sorted to t = u of them, unless there is a null block or a `sortcut`. Values are sorted
    like the keys; the public non-causal implementation uses the sorted keys as values.

    Causal, a block sorts what lies before it: u blocks and a learned null block, which the first reads, v = u + 1.
    Queries are pooled as the running mean at the block's first token. Rows are balanced alone (a softmax), for the sum
    of a column runs over later blocks.

        null_keys, null_values  h·d_k parameters each, with `causal`

    `sortcut` (§3.4): every query reads the first t = k sorted blocks (u, where there are no more) and no block of its
    own.
    """

    titles: ClassVar[Mapping[str, str]] = {
        "beside": "Sorted blocks beside their own",
        "null_keys": "Null block of keys",
        "null_values": "Null block of values",
        "pad": "Pad to whole blocks",
        "pool": "Means of blocks",
        "pool_queries": "Running means at the blocks' first tokens",
        "reorder": "Sort blocks of keys and values",
        "sort_scores": "Scores of blocks",
    }

    block: Annotated[Length, Letter("b")] = 64
    """Tokens b of a block."""
    iterations: Annotated[int, msgspec.Meta(ge=0, le=10_000), Letter("i")] = 5
    """Sinkhorn iterations over rows and columns; the causal form has none."""
    temperature: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 0.75
    """Temperature of the sorting; lower is closer to a permutation."""
    sortcut: Annotated[Length | None, Letter("k")] = None
    """Sorted blocks k that all queries read (SortCut); by default each reads its own block and its sorted one."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.sortcut is not None and self.causal:
            raise ComponentError(
                "sortcut", "the first sorted blocks mix all tokens, later ones too; write causal: false"
            )

    def label(self) -> str:
        return "SortCut Sinkhorn attention" if self.sortcut else "Sinkhorn attention"

    def blocks(self, grid: Grid) -> Number:
        """u, the number of blocks, the last one padded."""
        return ceil_div(grid.total, self.block)

    def sorted_blocks(self, grid: Grid) -> Number:
        """Number of sorted blocks: u, or the first k."""
        return self.blocks(grid) if self.sortcut is None else lesser(self.sortcut, self.blocks(grid))

    def padded(self, grid: Grid) -> bool:
        """Is the last block padded?"""
        return bool(self.blocks(grid) * self.block != grid.total)

    def observed(self, place: Place) -> Observed:
        earlier = self.block if self.causal else 0  # blocks after its own
        return Observed(unread=dict.fromkeys(("sort_scores", "sort_logits", "balance", "reorder"), earlier))

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, inner, u, b = place.grid.total, self.inner(place.dim), self.blocks(place.grid), self.block
        x = t.linear("qkv", x, 3 * inner, bias=self.projection_bias)
        parts = t.leaf("pad", padded, x, options={"after": u * b - n}).chunk(3, -1)
        q, k, v = (split_heads(part, self.heads).unflatten(2, (u, b)) for part in parts)
        order = self._order(t, q, k)
        keys, values = (self._null_first(t, name, part) for name, part in (("null_keys", k), ("null_values", v)))
        mixing = self._global(u) | {"content_dependent": True}
        options = {"limit": None if self.sortcut is None else self.sorted_blocks(place.grid)}
        sorted_k, sorted_v = (
            t.leaf("reorder", reordered, order, part, options=options, **mixing) for part in (keys, values)
        )
        facts: dict[str, Any] = {
            "mixing": "global",
            "reads": "2·b" if self.sortcut is None else "k·b",
            "heads": self.heads,
        }
        core: dict[str, Any] = {"fused": place.fused, "pairs": None, "mixing": facts}
        if self.sortcut is None:
            beside = partial(t.leaf, "beside", joined, options={"dim": 3})
            k, v = beside(sorted_k, k), beside(sorted_v, v)
            y = attend(t, q, k, v, mask=self._mask(t, place.grid), **core).flatten(2, 3)
        else:
            y = attend(t, *(part.flatten(2, 3) for part in (q, sorted_k, sorted_v)), **core)
        return t.linear("out", join_heads(y.narrow(2, 0, n)), place.dim, bias=self.projection_bias)

    def _global(self, blocks: Number) -> dict[str, Any]:
        return {"mixing": "global", "reads": "N", "reads_tokens": blocks * self.block, "heads": self.heads}

    def _order(self, t: Operations, q: Tensor, k: Tensor) -> Tensor:
        """How much of each block replaces another: (B, H, U, T, K) twice -> (B, H, U, V)."""
        u, width = q.shape[2], q.shape[-1]
        of_block: dict[str, Any] = {"mixing": "local", "reads": "b", "reads_tokens": self.block}
        if self.causal:
            counts = Worked(first_tokens, {"block": self.block}, "int64")
            of_all = {"mixing": "global", "reads": "N", "reads_tokens": u * self.block}
            weights = (Weight((u, 1), counts, "count_U1", learns=False),)
            queries = t.leaf("pool_queries", running_means, q, weights=weights, **of_all)
        else:
            queries = t.leaf("pool", mean, q, options={"dim": 3}, **of_block)
        keys = t.leaf("pool", mean, k, options={"dim": 3}, **of_block)
        facts = self._global(u) | {"matrix": True}
        balanced_facts = facts | {"content_dependent": True}
        x = t.leaf("sort_scores", scores, queries, keys, attention_entries=self.heads * u * u, **balanced_facts)
        factor = float(width) ** -0.5
        if self.causal:
            options = {"factor": factor / self.temperature}
            x = t.leaf("sort_logits", causal_logits, x, options=options, title="Scale, mask", **facts)
            return t.leaf("balance", softmax, x, title="Softmax of rows", **balanced_facts)
        facts |= {"title": "Log of positive scores", "content_dependent": True}
        x = t.run("sort_logits", SortLogits(factor, self.temperature, EPSILON), x, **facts)
        options = {"iterations": self.iterations}
        return t.leaf("balance", balanced, x, options=options, title="Sinkhorn iterations", **balanced_facts)

    def _null_first(self, t: Operations, name: str, x: Tensor) -> Tensor:
        """Causal, a learned block before the others."""
        if not self.causal:
            return x
        null = Weight((x.shape[1], x.shape[-1]), "standard")
        return t.leaf(name, null_block_first, x, weights=(null,))

    def _mask(self, t: Operations, grid: Grid) -> Callable[..., Tensor] | None:
        """Shuts padding in the own block or, if causal, later tokens of it."""
        if not self.causal and not self.padded(grid):
            return None
        u, b = self.blocks(grid), self.block
        options = {"tokens": grid.total, "blocks": u, "block": b, "causal": bool(self.causal)}
        shape = (*((1, b) if self.causal else (u, 1)), 2 * b)
        return fixed_mask(t, Weight(shape, Worked("clusters:beside_sorted", options), "shut", learns=False))

    def notes(self, place: Place) -> Iterator[str]:
        n, blocks, b = place.grid.total, self.blocks(place.grid), self.block
        if self.padded(place.grid):
            yield PaddingNote(
                f"{n} tokens padded to {blocks * b}, whole blocks of {b}, once they are projected; padding is counted"
            )
        if self.sortcut:
            yield f"{self.sorted_blocks(place.grid)} of {blocks} sorted blocks are read; scoring blocks stays N²·d/b²"
        else:
            yield f"sorting {blocks} blocks softly costs N²·d/b; N√N needs b = √N, here {floor_sqrt(n)}"
        if self.causal:
            yield "causal: rows of the sorting are balanced alone, a column's sum would run over later blocks"


def first_tokens(number: Any, _: Any, *, block: int) -> Any:
    """How many tokens there are up to the first one of each block."""
    return number * block + 1


def running_means(t: Functions, q: Tensor, counts: Tensor) -> Tensor:
    """The mean of all tokens up to the first of each block, for causality: (B, H, U, T, K) -> (B, H, U, K)."""
    total = q.flatten(2, 3).cumsum(2)
    return total.unflatten(2, q.shape[2:4]).select(3, 0) / counts


def causal_logits(t: Functions, x: Tensor, *, factor: float) -> Tensor:
    """(B, H, U, U) -> (B, H, U, V): the null block scores 0; the block itself and later ones -∞."""
    return later_masked(t, t.pad(x * factor, -1, before=1))


def balanced(t: Functions, x: Tensor, *, iterations: int) -> Tensor:
    """Alternately normalises rows and columns (Sinkhorn 1964, in logarithms): logits -> a soft permutation."""
    for _ in t.steps(iterations):
        for axis in (-1, -2):
            x = x - x.logsumexp(axis, keepdim=True)
    return x.exp()


def null_block_first(t: Functions, x: Tensor, null: Tensor) -> Tensor:
    """A learned block, one vector for all its tokens, before the others: (B, H, U, T, K) -> (B, H, V, T, K)."""
    block = null.unsqueeze(1).unsqueeze(1).expand(x.shape[0], -1, -1, x.shape[3], -1)
    return t.cat([block, x], 2)


def reordered(t: Functions, order: Tensor, x: Tensor, *, limit: int | None) -> Tensor:
    """Blocks in soft order, only the first `limit`: (B, H, U, V), (B, H, V, T, K) -> (B, H, U, T, K)."""
    order = order if limit is None else order.narrow(2, 0, limit)
    return (order @ x.flatten(3)).unflatten(3, x.shape[3:])
