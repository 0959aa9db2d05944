"""Attention after a sort: tokens by the hash of their queries (Reformer), blocks of keys softly (Sinkhorn)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, floor_sqrt, lesser, round_up
from xfcost.formulas.attention import attention_of, masked
from xfcost.formulas.banded_attention import of_cropped
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
from xfcost.formulas.mixers import ApproximatelyCausalMixer, CausalMixer
from xfcost.formulas.rows import (
    elementwise,
    linear,
    matmul,
    maximum,
    move,
    on_raw_input,
    sort,
    static_weights,
    with_gradient_operands,
)
from xfcost.formulas.tensors import copied, cropped, passed, product, reading
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
            yield from self._sorted(grid, t)
        yield _normalised(t)
        if not fits_one_chunk:
            # the previous chunk rolled to its place, then both side by side: of keys and of values
            reads = (t.rows("normalise"), t.order("sort"), t.rows(_GATHERED_VALUES))
            stands = Tensor(_STANDS, (t.heads, 2 * t.copies), "int64", constant=True)
            tensors = Tensors(reads, (t.rows(OUTPUT, 2), stands, t.rows(_VALUES, 2)))
            yield move("look_back", "Chunks beside those before them", 2 * 3 * copies * inner, tensors=tensors)
        yield from self._core(grid, t)
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
                yield from _combined(t)
        out = linear("out", "Output projection W_O", padded, inner, d, bias=self.projection_bias)
        yield cropped(out, padded - place.grid.total)

    def _sorted(self, grid: Grid, t: _LshTensors) -> Iterator[Operation]:
        """Hashing, sorting and gathering."""
        factors, times = self.factors(grid), t.heads * t.copies
        columns = t.rounds * (sum(factors) // 2)
        # No gradient passes
        output = Tensor(OUTPUT, (t.heads, t.tokens, columns), constant=True)
        tensors = Tensors((Tensor("query_key", (t.tokens, t.inner)),), (output,))
        rotate = matmul("rotate", "Random rotations xR", t.tokens * t.inner * columns, tensors=tensors)
        yield with_gradient_operands(rotate, 0)  # a choice has none
        opposite = times * len(factors) * FLOPS_PER_ELEMENT["multiply"]
        tensors = Tensors((Tensor(BEFORE, (t.heads, t.tokens, columns)),), (t.order(OUTPUT),))
        yield maximum("hash", "Hash argmax([xR; -xR])", times * sum(factors), flops=opposite, tensors=tensors)
        # The order, and the place of each token in it
        tensors = Tensors((t.order(BEFORE),), (t.order(OUTPUT), t.order(_UNDO)))
        yield sort("sort", "Sort by bucket", t.rounds * t.heads, t.tokens, tensors=tensors)
        # What is gathered is saved, and the order
        order = t.order("sort")
        reads = tuple(Tensor(name, (t.tokens, t.inner)) for name in ("query_key", "value"))
        saves = tuple(one for read in reads for one in (Saved(read.name), t.places("sort")))
        tensors = Tensors((reads[0], order, reads[1], order), (t.rows(OUTPUT), t.rows(_GATHERED_VALUES)), saves)
        yield move("gather", "Gather queries and values by bucket", 2 * t.copies * t.inner, tensors=tensors)

    def _core(self, grid: Grid, t: _LshTensors) -> Iterator[Operation]:
        """Attention in the chunks, or full where one holds all tokens."""
        mixing: dict[str, Any] = {"mixing": "global", "reads": "N", "reads_tokens": t.keys}
        if not t.whole:
            most = lesser(t.rounds * t.keys, grid.total)
            mixing = {"mixing": "local", "reads": "2·b·r", "reads_tokens": most}
        mixing |= {"heads": self.heads}
        entries, macs = t.heads * t.copies * t.keys, t.copies * t.keys * t.inner
        content = mixing | {"content_dependent": True}
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


def _combined(t: _LshTensors) -> Iterator[Operation]:
    """The rounds' outputs, weighted by the softmax of their normalisers."""
    title = "Softmax over the rounds"
    shape = (t.heads, t.copies)
    tensors = Tensors((Tensor(_LOGITS, shape),), (Tensor(OUTPUT, shape),), (Saved(OUTPUT),))
    yield elementwise("round_weights", title, "softmax", t.copies * t.heads, tensors=tensors)
    tensors = product(t.rows("undo"), Tensor(BEFORE, shape), (t.tokens, t.inner))
    yield elementwise("combine", "Weighted sum of the rounds", "multiply + sum", t.copies * t.inner, tensors=tensors)


def _normalised(t: _LshTensors) -> Operation:
    """Normalised keys: x / √(mean(x²) + ε) / √d_k; square, mean, multiply, divide per element; add, root per key."""
    each = 3 * FLOPS_PER_ELEMENT["multiply"] + FLOPS_PER_ELEMENT["mean"]
    per_key = FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT["exp"]
    flops = t.copies * (t.inner * each + t.heads * per_key)
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

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, inner = place.grid.total, place.dim, self.inner(place.dim)
        t = self._tensors(place.grid, inner)
        padded = t.blocks * t.block
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        read, written = (n, 3 * inner), (padded, 3 * inner)
        tensors = passed(read) if read == written else copied(read, written)
        yield move("pad", "Pad to whole blocks", 3 * padded * inner * lesser(1, padded - n), tensors=tensors)
        yield from self._pooled(t)
        yield from self._sorted(t)
        *rows, last = self._attended(place, t)
        yield from [*rows, t.joined(last, masked=bool(self.causal) or self.padded(place.grid))]
        out = linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)
        # one head's tokens lie as they are, cropped; several are copied beside each other
        yield of_cropped(out, n, padded, inner) if self.heads == 1 else out

    def _tensors(self, grid: Grid, inner: Number) -> _SinkhornTensors:
        blocks = self.blocks(grid)
        candidates = blocks + 1 if self.causal else blocks
        sizes = (grid.total, blocks, self.block, candidates, self.sorted_blocks(grid), self.heads, inner)
        return _SinkhornTensors(*sizes, bool(self.causal), self.sortcut is not None)

    def _pooled(self, t: _SinkhornTensors) -> Iterator[Operation]:
        """Pooling: one query and one key per block."""
        elements, cost, one = t.blocks * t.block * t.inner, FLOPS_PER_ELEMENT, t.pooled(OUTPUT)
        pooled = (one,) if self.causal else (one, t.pooled(_POOLED_KEYS))
        mixing = self._mixing("b", self.block, tensors=Tensors((t.own("pad"),) * len(pooled), pooled))
        means = Operation(path="pool", title="Means of blocks", flops=len(pooled) * elements * cost["mean"], **mixing)
        if self.causal:
            running = elements * cost["cumsum"] + t.blocks * t.inner * cost["multiply"]
            mixing = self._mixing("N", t.blocks * t.block, mixing="global", tensors=Tensors((t.own("pad"),), (one,)))
            title = "Running means at the blocks' first tokens"
            yield Operation(path="pool_queries", title=title, flops=running, **mixing)
        yield means

    def _mixing(self, reads: str, tokens: Number, **other_facts: Any) -> dict[str, Any]:
        return {"mixing": "local", "reads": reads, "reads_tokens": tokens} | other_facts

    def _sorted(self, t: _SinkhornTensors) -> Iterator[Operation]:
        """Scores of blocks, their soft permutation, and the sorted keys and values."""
        cost, entries, scores = FLOPS_PER_ELEMENT, t.heads * t.blocks * t.candidates, t.heads * t.blocks**2
        mixing = self._mixing("N", t.blocks * t.block, mixing="global", content_dependent=True, heads=self.heads)
        names = ("pool_queries", "pool") if t.causal else ("pool", _POOLED_KEYS)
        queries, keys = (t.pooled(name) for name in names)
        tensors = product(queries, keys, (t.heads, t.blocks, t.blocks))
        score_facts = {"attention_entries": scores, "matrix": matrix(scores), "tensors": tensors}
        yield matmul("sort_scores", "Scores of blocks", t.blocks**2 * t.inner, **score_facts, **mixing)
        # the first log-sum-exp of the iterations keeps them
        logits = mixing | {"matrix": matrix(entries, scores, saved=not self.causal and bool(self.iterations))}
        order = mixing | {"matrix": matrix(entries, entries, saved=True)}
        if self.causal:
            masked = static_weights(logits) | {"moved": entries, "tensors": t.sort_logits}
            yield elementwise("sort_logits", "Scale, mask", "multiply", scores, **masked)
            yield elementwise("balance", "Softmax of rows", "softmax", entries, **order)
        else:
            work = "multiply + relu + add + exp + multiply"
            logits |= {"tensors": t.sort_logits}
            yield elementwise("sort_logits", "Log of positive scores", work, entries, **logits)
            flops_per_entry = 2 * self.iterations * (cost["logsumexp"] + cost["add"]) + cost["exp"]
            order |= {"tensors": t.balance(self.iterations)}
            yield Operation(path="balance", title="Sinkhorn iterations", flops=entries * flops_per_entry, **order)
        if self.causal:
            moved = t.candidates * t.block * t.inner
            for tensor in ("keys", "values"):
                tensors = Tensors((t.own("pad"),), (t.in_blocks(OUTPUT, t.candidates),))
                yield move(f"null_{tensor}", f"Null block of {tensor}", moved, params=t.inner, tensors=tensors)
        reordered = t.ordered * t.candidates * t.block * t.inner
        # The order times blocks, which are copied where they are parts of `pad`
        names = ("null_keys", "null_values") if t.causal else ("pad", "pad")
        ordered, (keys, values) = t.order("balance"), (t.in_blocks(name, t.candidates) for name in names)
        makes = () if t.causal else (Tensor("blocks", (2, *keys.shape)),)
        saves = (Saved("balance"), *(Saved(name) for name in names if t.causal))
        writes = t.in_blocks(OUTPUT, t.ordered), t.in_blocks(_SORTED_VALUES, t.ordered)
        tensors = Tensors((ordered, keys, ordered, values), writes, saves, makes)
        yield matmul("reorder", "Sort blocks of keys and values", 2 * reordered, tensors=tensors, **mixing)

    def _attended(self, place: Place, t: _SinkhornTensors) -> Iterator[Operation]:
        """Attention of a block over itself and its sorted block; SortCut: over the first sorted blocks."""
        b, blocks, cut = t.block, t.blocks, t.cut
        keys = t.ordered * b if cut else 2 * b
        masked = not cut and (bool(self.causal) or self.padded(place.grid))
        mixing: dict[str, Any] = {"mixing": "global", "reads": "k·b" if cut else "2·b"}
        if not cut:
            own, both = t.own("pad"), 2 * blocks
            reads = (t.own("reorder"), own, t.own(_SORTED_VALUES), own)
            tensors = Tensors(reads, (t.in_blocks(OUTPUT, both), t.in_blocks(_BLOCK_VALUES, both)))
            yield move("beside", "Sorted blocks beside their own", 4 * blocks * b * t.inner, tensors=tensors)
        if masked and place.fused:
            tensors = Tensors((), (msgspec.structs.replace(t.mask, name=OUTPUT),), beside=True)
            yield Operation(path="mask", title="Mask", reads_tokens=keys, symbol="mask", tensors=tensors, **mixing)
        operands = ("pad", "reorder", _SORTED_VALUES) if cut else ("pad", "beside", _BLOCK_VALUES)
        rows = attention_of(
            self,
            place,
            queries=blocks * b if cut else b,
            keys=keys,
            groups=1 if cut else blocks,
            pairs=None,
            masked=masked,
            other_entries=t.heads * blocks * t.candidates,  # the order of the blocks
            operands=operands,
            gathered=True,
            **mixing,
        )
        yield from (t.core(row, has_mask=masked) for row in rows)

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


# Beside the rows' first outputs.
_POOLED_KEYS: Final = "pooled keys"
_SORTED_VALUES: Final = "sorted values"
_BLOCK_VALUES: Final = "values beside their own"


class _SinkhornTensors(NamedTuple):
    """N `tokens` in u `blocks` of b, h `heads` of the width `inner` together; of `candidates` `ordered` are sorted."""

    tokens: Number
    blocks: Number
    block: Number
    candidates: Number
    ordered: Number
    heads: Number
    inner: Number
    causal: bool
    cut: bool

    def in_blocks(self, name: str, blocks: Number) -> Tensor:
        return Tensor(name, (blocks * self.block, self.inner))

    def own(self, name: str) -> Tensor:
        return self.in_blocks(name, self.blocks)

    def pooled(self, name: str) -> Tensor:
        return Tensor(name, (self.blocks, self.inner))

    def order(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.blocks, self.candidates))

    @property
    def sort_logits(self) -> Tensors:
        """Causal a mask; else the positive scores, and what the logarithm is of."""
        scores = Tensor(BEFORE, (self.heads, self.blocks, self.blocks))
        if self.causal:
            made = masked(scores.shape, (self.blocks, self.candidates))
            return msgspec.structs.replace(made, writes=(self.order(OUTPUT),))
        return Tensors((scores,), (self.order(OUTPUT),), (), (Tensor("positive", (2, *scores.shape)),))

    def balance(self, iterations: int) -> Tensors:
        """Each sum's logits and itself are saved, and the exponential."""
        order, sums = self.order(BEFORE), 2 * iterations
        if not sums:
            return Tensors((order,), (self.order(OUTPUT),), (Saved(OUTPUT),))
        makes = Tensor("logits", (sums - 1, *order.shape)), Tensor("sums", (sums, self.heads, self.blocks))
        return Tensors((order,), (self.order(OUTPUT),), (Saved(BEFORE), Saved(OUTPUT)), makes)

    @property
    def mask(self) -> Tensor:
        """Of the own block: later tokens, or in every block the padding."""
        shape = (1, self.block) if self.causal else (self.blocks, 1)
        return Tensor("mask", (*shape, 2 * self.block), "bool", once=True)

    def core(self, row: Operation, *, has_mask: bool) -> Operation:
        """`row` of the core, whose blocks are groups inside the heads."""
        if row.tensors is None or self.cut:
            return row
        if row.path == "mask":
            return msgspec.structs.replace(row, tensors=msgspec.structs.replace(row.tensors, makes=()))
        if not row.fused:
            return row
        reads, saves = row.tensors.reads, row.tensors.saves
        if has_mask:
            every = Tensor("masks", (self.heads, self.blocks, *self.mask.shape[1:]), "bool", once=True)
            saves = (Saved("pad", copied=Exchanged(reads[0].shape, (self.heads, self.blocks))), *saves[1:])
            expanded = (*reads, msgspec.structs.replace(every, name="mask"))
            makes = (*row.tensors.makes, Tensor("masks", every.shape, once=True))  # in the queries' type
            tensors = msgspec.structs.replace(row.tensors, reads=expanded, saves=saves, makes=makes)
        else:
            saves = (Saved("pad", copied=merged_heads(reads[0].shape, self.heads, reads[0].shape[0])), *saves[1:])
            tensors = msgspec.structs.replace(row.tensors, saves=saves)
        return msgspec.structs.replace(row, tensors=tensors)

    def joined(self, row: Operation, *, masked: bool) -> Operation:
        """The core's last row: its heads are joined, of the tokens without padding.

        A fused kernel writes them as the queries lie: of all tokens beside each other, of blocks apart where the batch
        and the heads, or a mask's blocks and the heads, were merged.
        """
        shape, axes = (self.tokens, self.inner), (self.heads, self.tokens)
        if not row.fused:
            return reading(row, rearranged=Exchanged(shape, axes))
        if self.cut:
            return reading(row, rearranged=None)
        return reading(row, rearranged=Exchanged(shape, axes) if masked else merged_heads(shape, *axes))
