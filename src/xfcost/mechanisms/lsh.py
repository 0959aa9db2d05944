"""LSH attention: tokens are sorted by the hash of their queries, and read their chunk and the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import lesser, round_up
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    Number,
    Observed,
    Operation,
    PaddingNote,
    Place,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.mixers import ApproximatelyCausalMixer
from xfcost.formulas.rows import elementwise, linear, matmul, maximum, move, on_raw_input, sort, with_gradient_operands
from xfcost.formulas.tensors import copied, product, reading
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, Exchanged, Saved, Tensor, Tensors, merged_heads

Buckets = Annotated[int, msgspec.Meta(ge=2, le=2**24)]


class Lsh(ApproximatelyCausalMixer, frozen=True, kw_only=True, tag="lsh"):
    """Attention by locality-sensitive hashing, queries and keys being one (Reformer: Kitaev et al. 2020, §2).

    N tokens, width d, h heads of width d_k. In each of R rounds the tokens of a head are sorted by their bucket
    argmax([xR; -xR]), R a fixed random d_k × b/2 matrix, cut into chunks of c, and read their own chunk and the one
    before it, circularly; keys have length one, and a token reads itself only where it can read no other. As in the
    public implementations, tokens of a chunk read each other whether or not they share a bucket. The rounds are then
    weighted by their softmax normalisers.

        query_key, value  N·d·h·d_k MACs each
        rotate            R·N·h·d_k·b/2 MACs; b = 2N/c buckets (§2): quadratic in N. Factorised buckets
                          b = b₁·b₂ take (b₁ + b₂)/2 columns, any fixed count is linear in N
        hash              R·N·h·b comparisons
        sort              R·h·N·log₂N comparisons
        scores            R·N·2c·h·d_k MACs, R·h·N·2c entries kept
        weighted_sum      R·N·2c·h·d_k MACs
        out               N·h·d_k·d MACs

    Up to c tokens there is one chunk, and attention is full; more tokens are padded to whole chunks.
    """

    short_name = "LSH attention"
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

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """Any token may share a chunk with `token`; up to R·2c of them do."""
        return super().reads(grid, token, memory)

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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, grid = place.grid.total, place.dim, place.grid
        inner, padded, fits_one_chunk = self.inner(d), self.padded(grid), self.fits_one_chunk(grid)
        copies = padded if fits_one_chunk else self.rounds * padded  # tokens in all rounds
        keys, read = grid.total if fits_one_chunk else 2 * self.bucket, INPUT
        t = _LshTensors(padded, copies, self.rounds, self.heads, inner, keys, fits_one_chunk)
        if padded != n:
            yield move("pad", "Pad to whole chunks", padded * d, tensors=copied((n, d), (padded, d)))
            read = "pad"
        for path, title in (("query_key", "Shared Q, K projection"), ("value", "V projection")):
            yield reading(on_raw_input(linear(path, title, padded, d, inner, bias=self.projection_bias)), read)
        if not fits_one_chunk:
            yield from self._sorted(grid, inner, t)
        yield _normalised(copies, self.heads, inner, t)
        if not fits_one_chunk:
            # the previous chunk rolled to its place, then both side by side: of keys and of values
            reads = (t.rows("normalise"), t.order("sort"), t.rows(_GATHERED_VALUES))
            stands = Tensor(_STANDS, (t.heads, 2 * t.copies), "int64", constant=True)
            tensors = Tensors(reads, (t.rows(OUTPUT, 2), stands, t.rows(_VALUES, 2)))
            yield move("look_back", "Chunks beside those before them", 2 * 3 * copies * inner, tensors=tensors)
        yield from self._core(grid, copies, inner, t)
        if not fits_one_chunk:
            several = self.rounds != 1
            moved = copies * (inner + (self.heads if several else 0))
            # What is brought back is saved, and the places
            places, saves = t.order(_UNDO), (Saved(BEFORE), t.places(_UNDO))
            tensors = Tensors((t.rows(BEFORE), places), (t.rows(OUTPUT),), saves)
            if several:
                logits = Tensor("logsumexp", (t.heads, t.copies))
                writes = (*tensors.writes, msgspec.structs.replace(logits, name=_LOGITS))
                more = (Saved("logsumexp"), t.places(_UNDO))
                tensors = Tensors((*tensors.reads, logits, places), writes, (*saves, *more))
            yield move("undo", "Back into the tokens' order", moved, tensors=tensors)
            if several:
                yield from _combined(copies, self.heads, inner, t)
        yield linear("out", "Output projection W_O", padded, inner, d, bias=self.projection_bias)

    def _sorted(self, grid: Grid, inner: Number, t: _LshTensors) -> Iterator[Operation]:
        """Hashing, sorting and gathering."""
        padded, rounds, heads = self.padded(grid), self.rounds, self.heads
        buckets = sum(self.factors(grid))
        hashed = rounds * heads * padded * buckets
        columns = rounds * (buckets // 2)
        # No gradient passes
        output = Tensor(OUTPUT, (t.heads, t.tokens, columns), constant=True)
        tensors = Tensors((Tensor("query_key", (t.tokens, t.inner)),), (output,))
        rotate = matmul("rotate", "Random rotations xR", padded * inner * columns, tensors=tensors)
        yield with_gradient_operands(rotate, 0)  # a choice has none
        opposite = rounds * heads * padded * len(self.factors(grid)) * FLOPS_PER_ELEMENT["multiply"]
        tensors = Tensors((Tensor(BEFORE, (t.heads, t.tokens, columns)),), (t.order(OUTPUT),))
        yield maximum("hash", "Hash argmax([xR; -xR])", hashed, flops=opposite, tensors=tensors)
        # The order, and the place of each token in it
        tensors = Tensors((t.order(BEFORE),), (t.order(OUTPUT), t.order(_UNDO)))
        yield sort("sort", "Sort by bucket", rounds * heads, padded, tensors=tensors)
        moved = 2 * rounds * padded * inner
        # What is gathered is saved, and the order
        order = t.order("sort")
        reads = tuple(Tensor(name, (t.tokens, t.inner)) for name in ("query_key", "value"))
        saves = tuple(one for read in reads for one in (Saved(read.name), t.places("sort")))
        tensors = Tensors((reads[0], order, reads[1], order), (t.rows(OUTPUT), t.rows(_GATHERED_VALUES)), saves)
        yield move("gather", "Gather queries and values by bucket", moved, tensors=tensors)

    def _core(self, grid: Grid, queries: Number, inner: Number, t: _LshTensors) -> Iterator[Operation]:
        """Attention in the chunks, or full where one holds all tokens."""
        if self.fits_one_chunk(grid):
            keys = grid.total
            mixing: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": keys}
        else:
            keys = 2 * self.bucket
            most = lesser(self.rounds * keys, grid.total)
            mixing = {"mixing": "local", "reads": "2·b·r", "reads_tokens": most}
        mixing |= {"heads": self.heads}
        entries = self.heads * queries * keys
        content = mixing | {"content_dependent": True}
        macs = queries * keys * inner
        q, k, v = t.rows("gather"), t.rows("look_back", 2), t.rows(_VALUES, 2)
        merged = None
        if t.whole:
            q, k, v = t.rows("query_key"), t.rows("normalise"), t.rows("value")
            merged = merged_heads((t.tokens, t.inner), t.heads, t.tokens)
        tensors = product(q, k, t.entries("").shape, merged, merged)
        # the log-sum-exp keeps them
        score_facts = {"attention_entries": entries, "matrix": matrix(entries, saved=True), "tensors": tensors}
        yield matmul("scores", "Attention scores QKᵀ", macs, symbol="QKᵀ", **score_facts, **content)
        # In place; saved are the masks of padding, of later tokens and of the token itself
        masks = 2 if self.causal else 1
        stands: tuple[Tensor, ...]
        if t.whole:
            stands = (Tensor("tokens", (t.tokens,), "int64", once=True, held=True),)
            makes = [Tensor("masks", (masks, t.tokens, t.tokens), "bool", once=True)]
        else:
            stands = t.order("sort"), Tensor(_STANDS, (t.heads, 2 * t.copies), "int64")
            makes = [Tensor("masks", (masks, *t.entries("").shape), "bool")]
        if self.padded(grid) != grid.total:
            makes.append(Tensor("padding", (t.heads, 2 * t.copies), "bool"))
        output = Tensor(OUTPUT, (0,), view_of=BEFORE)  # the scores themselves, which count once
        tensors = Tensors((t.entries(BEFORE), *stands), (output,), (), tuple(makes))
        yield Operation(path="mask", title="Mask", symbol="mask", tensors=tensors, **mixing)
        # The scores and itself are saved
        output = Tensor(OUTPUT, (t.heads, t.copies))
        tensors = Tensors((t.entries(BEFORE),), (output,), (Saved(BEFORE), Saved(OUTPUT)))
        yield elementwise("logsumexp", "Log-sum-exp per query", "logsumexp", entries, tensors=tensors, **content)
        reads = (t.entries("mask"), Tensor("logsumexp", (t.heads, t.copies)))
        tensors = Tensors(reads, (t.entries(OUTPUT),), (Saved(OUTPUT),))
        weights = content | {"matrix": matrix(entries, entries, saved=True), "tensors": tensors}
        yield elementwise("softmax", "Softmax", "add + exp", entries, symbol="softmax", **weights)
        tensors = product(t.entries(BEFORE), v, (t.copies, t.inner), None, merged)
        yield matmul("weighted_sum", "Weighted sum AV", macs, symbol="AV", tensors=tensors, **content)

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
                "and head, which is quadratic in N; the published O(N·log N) is the sort's. "
                "A fixed or factorised `buckets` is linear"
            )


def _combined(copies: Number, heads: int, inner: Number, t: _LshTensors) -> Iterator[Operation]:
    """The rounds' outputs, weighted by the softmax of their normalisers."""
    title = "Softmax over the rounds"
    shape = (t.heads, t.copies)
    tensors = Tensors((Tensor(_LOGITS, shape),), (Tensor(OUTPUT, shape),), (Saved(OUTPUT),))
    yield elementwise("round_weights", title, "softmax", copies * heads, tensors=tensors)
    weights = Tensor(BEFORE, (t.heads, t.copies))
    tensors = product(t.rows("undo"), weights, (t.tokens, t.inner))
    yield elementwise("combine", "Weighted sum of the rounds", "multiply + sum", copies * inner, tensors=tensors)


def _normalised(copies: Number, heads: int, inner: Number, t: _LshTensors) -> Operation:
    """Normalised keys: x / √(mean(x²) + ε) / √d_k; square, mean, multiply, divide per element; add, root per key."""
    each = 3 * FLOPS_PER_ELEMENT["multiply"] + FLOPS_PER_ELEMENT["mean"]
    per_key = FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT["exp"]
    flops = copies * (inner * each + heads * per_key)
    # Keys and their factors are saved
    read = "query_key" if t.whole else "gather"
    factors = Tensor("factors", (t.heads, t.copies))
    tensors = Tensors((t.rows(read),), (t.rows(OUTPUT),), (Saved(read),), (factors,))
    return Operation(path="normalise", title="Keys of length one", flops=flops, tensors=tensors)


# Beside the rows' first outputs.
_UNDO: Final = "places of the tokens"
_GATHERED_VALUES: Final = "gathered values"
_VALUES: Final = "values beside those before them"
_STANDS: Final = "tokens of the keys"
_LOGITS: Final = "log-sum-exps by token"


class _LshTensors(NamedTuple):
    """P padded `tokens`, S = R·P `copies` of them in R `rounds`, h `heads` of the width `inner`, m `keys` per query."""

    tokens: Number
    copies: Number
    rounds: Number
    heads: Number
    inner: Number
    keys: Number
    whole: bool
    """Is there one chunk, neither hashed nor sorted?"""

    def order(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.copies), "int64", constant=True)

    def rows(self, name: str, times: int = 1) -> Tensor:
        return Tensor(name, (times * self.copies, self.inner))

    def entries(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.copies, self.keys))

    def places(self, name: str) -> Saved:
        """Every gather by an order of several rounds copies it: rounds lie innermost."""
        return Saved(name, copied=Exchanged((self.heads, self.copies), (self.rounds, self.tokens)))
