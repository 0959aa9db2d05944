"""Sinkhorn attention: blocks of keys are softly sorted; a block reads itself and one sorted block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, floor_sqrt, lesser
from xfcost.formulas.attention import attention_of, masked
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
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.query_blocks import of_cropped
from xfcost.formulas.rows import elementwise, linear, matmul, move, static_weights
from xfcost.formulas.tensors import copied, passed, product, reading
from xfcost.ledger.matrices import matrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Exchanged, Saved, Tensor, Tensors, merged_heads


class Sinkhorn(CausalMixer, frozen=True, kw_only=True, tag="sinkhorn"):
    """Sparse Sinkhorn attention (Tay et al. 2020, §3), its sorting network as in sinkhorn-transformer 0.11.4.

    N tokens, padded to u blocks of b, width d, h heads of d_k. Pooled queries and keys of the blocks score how well
    they fit; Sinkhorn's iterations (rows, then columns, sum to 1) make a soft permutation of the scores, which mixes
    the blocks of keys and values. A block's queries read their own block and their sorted one.

        qkv            N·d·3h·d_k MACs
        pool           means of blocks: 2·N·h·d_k elements
        sort_scores    u²·h·d_k MACs, h·u² entries kept
        sort_logits    log(relu(score) + ε) / temperature: 5·h·u² elements
        balance        `iterations`·2 log-sum-exps over h·u² elements, and what they subtract
        reorder        2·u²·b·h·d_k MACs: N²·d/b, for a soft permutation mixes all blocks
        scores         N·2b·h·d_k MACs, h·N·2b entries kept
        weighted_sum   N·2b·h·d_k MACs
        out            N·h·d_k·d MACs

    Values are sorted like the keys; the public non-causal implementation uses the sorted keys as values.

    Causal, a block sorts what lies before it: u blocks and a learned null block, which the first reads. Queries are
    pooled as the running mean at the block's first token. Rows are balanced alone (a softmax), for the sum of a column
    runs over later blocks.

    `sortcut` (§3.4): every query reads the first k sorted blocks and no block of its own: 2·k·u·b·h·d_k MACs reorder,
    N·k·b·h·d_k score.
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
        blocks = self.blocks(place.grid)
        padded = blocks * self.block
        yield linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        t = self._tensors(place.grid, inner)
        read, written = (t.tokens, 3 * t.inner), (t.blocks * t.block, 3 * t.inner)
        tensors = passed(read) if read == written else copied(read, written)
        yield move("pad", "Pad to whole blocks", 3 * padded * inner * lesser(1, padded - n), tensors=tensors)
        yield from self._pooled(blocks, inner, t)
        if self.causal:
            moved = (blocks + 1) * self.block * inner
            for tensor in ("keys", "values"):
                tensors = Tensors((t.own("pad"),), (t.in_blocks(OUTPUT, t.blocks + 1),))
                yield move(f"null_{tensor}", f"Null block of {tensor}", moved, params=inner, tensors=tensors)
        yield from self._sorted(place.grid, inner, t)
        *rows, last = self._attended(place, blocks, inner, t)
        yield from [*rows, t.joined(last, masked=bool(self.causal) or self.padded(place.grid))]
        out = linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)
        # one head's tokens lie as they are, cropped; several are copied beside each other
        yield of_cropped(out, n, padded, inner) if self.heads == 1 else out

    def _tensors(self, grid: Grid, inner: Number) -> _SinkhornTensors:
        blocks = self.blocks(grid)
        candidates = blocks + 1 if self.causal else blocks
        sizes = (grid.total, blocks, self.block, candidates, self.sorted_blocks(grid), self.heads, inner)
        return _SinkhornTensors(*sizes, bool(self.causal), self.sortcut is not None)

    def _pooled(self, blocks: Number, inner: Number, t: _SinkhornTensors) -> Iterator[Operation]:
        """Pooling: one query and one key per block."""
        tokens = blocks * self.block * inner
        keys = tokens * FLOPS_PER_ELEMENT["mean"]
        if not self.causal:
            keys *= 2
        if t.causal:
            tensors = Tensors((t.own("pad"),), (t.pooled(OUTPUT),))
        else:
            tensors = Tensors((t.own("pad"),) * 2, (t.pooled(OUTPUT), t.pooled(_POOLED_KEYS)))
        mixing = self._mixing("b", self.block, tensors=tensors)
        yield Operation(path="pool", title="Means of blocks", flops=keys, **mixing)
        if not self.causal:
            return
        running = tokens * FLOPS_PER_ELEMENT["cumsum"] + blocks * inner * FLOPS_PER_ELEMENT["multiply"]
        tensors = Tensors((t.own("pad"),), (t.pooled(OUTPUT),))
        mixing = self._mixing("N", blocks * self.block, mixing="global", tensors=tensors)
        yield Operation(path="pool_queries", title="Running means at the blocks' first tokens", flops=running, **mixing)

    def _mixing(self, reads: str, tokens: Number, **other_facts: Any) -> dict[str, Any]:
        return {"mixing": "local", "reads": reads, "reads_tokens": tokens} | other_facts

    def _sorted(self, grid: Grid, inner: Number, t: _SinkhornTensors) -> Iterator[Operation]:
        """Scores of blocks, their soft permutation, and the sorted keys and values."""
        cost, blocks = FLOPS_PER_ELEMENT, self.blocks(grid)
        candidates = blocks + 1 if self.causal else blocks
        entries = self.heads * blocks * candidates
        mixing = self._mixing("N", blocks * self.block, mixing="global", content_dependent=True, heads=self.heads)
        scores = self.heads * blocks * blocks
        names = ("pool_queries", "pool") if t.causal else ("pool", _POOLED_KEYS)
        queries, keys = (t.pooled(name) for name in names)
        tensors = product(queries, keys, (t.heads, t.blocks, t.blocks))
        score_facts = {"attention_entries": scores, "matrix": matrix(scores), "tensors": tensors}
        yield matmul("sort_scores", "Scores of blocks", blocks**2 * inner, **score_facts, **mixing)
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
        reordered = self.sorted_blocks(grid) * candidates * self.block * inner
        # The order times blocks, which are copied where they are parts of `pad`
        names = ("null_keys", "null_values") if t.causal else ("pad", "pad")
        ordered, (keys, values) = t.order("balance"), (t.in_blocks(name, t.candidates) for name in names)
        makes = () if t.causal else (Tensor("blocks", (2, *keys.shape)),)
        saves = (Saved("balance"), *(Saved(name) for name in names if t.causal))
        writes = t.in_blocks(OUTPUT, t.ordered), t.in_blocks(_SORTED_VALUES, t.ordered)
        tensors = Tensors((ordered, keys, ordered, values), writes, saves, makes)
        yield matmul("reorder", "Sort blocks of keys and values", 2 * reordered, tensors=tensors, **mixing)

    def _attended(self, place: Place, blocks: Number, inner: Number, t: _SinkhornTensors) -> Iterator[Operation]:
        """Attention of a block over itself and its sorted block; SortCut: over the first sorted blocks."""
        b = self.block
        cut = self.sortcut is not None
        keys = self.sorted_blocks(place.grid) * b if cut else 2 * b
        masked = not cut and (bool(self.causal) or self.padded(place.grid))
        mixing: dict[str, Any] = {"mixing": "global", "reads": "k·b" if cut else "2·b"}
        if not cut:
            own, both = t.own("pad"), 2 * t.blocks
            reads = (t.own("reorder"), own, t.own(_SORTED_VALUES), own)
            tensors = Tensors(reads, (t.in_blocks(OUTPUT, both), t.in_blocks(_VALUES, both)))
            yield move("beside", "Sorted blocks beside their own", 4 * blocks * b * inner, tensors=tensors)
        if masked and place.fused:
            tensors = Tensors((), (msgspec.structs.replace(t.mask, name=OUTPUT),), beside=True)
            yield Operation(path="mask", title="Mask", reads_tokens=keys, symbol="mask", tensors=tensors, **mixing)
        operands = ("pad", "reorder", _SORTED_VALUES) if cut else ("pad", "beside", _VALUES)
        rows = attention_of(
            self,
            place,
            queries=blocks * b if cut else b,
            keys=keys,
            groups=1 if cut else blocks,
            pairs=None,
            masked=masked,
            other_entries=self.heads * blocks * (blocks + 1 if self.causal else blocks),  # the order of the blocks
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
_VALUES: Final = "values beside their own"


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
