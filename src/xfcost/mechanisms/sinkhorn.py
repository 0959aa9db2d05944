"""Sinkhorn attention: blocks of keys are softly sorted; a block reads itself and one sorted block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from xfcost.formulas.arithmetic import ceil_div, floor_sqrt, lesser
from xfcost.formulas.attention import attention_of
from xfcost.formulas.block_tensors import of_cropped
from xfcost.formulas.causal_mixers import CausalMixer
from xfcost.formulas.component import ComponentError, Grid, Length, Letter, Number, Observed, Operation, Place
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.notes import PaddingNote
from xfcost.formulas.rows import elementwise, linear, matmul, move, static_weights
from xfcost.formulas.sinkhorn_tensors import SinkhornTensors
from xfcost.ledger.matrices import matrix


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
        yield move("pad", "Pad to whole blocks", 3 * padded * inner * lesser(1, padded - n), tensors=t.pad)
        yield from self._pooled(blocks, inner, t)
        if self.causal:
            moved = (blocks + 1) * self.block * inner
            for tensor in ("keys", "values"):
                yield move(f"null_{tensor}", f"Null block of {tensor}", moved, params=inner, tensors=t.null)
        yield from self._sorted(place.grid, inner, t)
        *rows, last = self._attended(place, blocks, inner, t)
        yield from [*rows, t.joined(last, masked=bool(self.causal) or self.padded(place.grid))]
        out = linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)
        # one head's tokens lie as they are, cropped; several are copied beside each other
        yield of_cropped(out, n, padded, inner) if self.heads == 1 else out

    def _tensors(self, grid: Grid, inner: Number) -> SinkhornTensors:
        blocks = self.blocks(grid)
        candidates = blocks + 1 if self.causal else blocks
        sizes = (grid.total, blocks, self.block, candidates, self.sorted_blocks(grid), self.heads, inner)
        return SinkhornTensors(*sizes, bool(self.causal), self.sortcut is not None)

    def _pooled(self, blocks: Number, inner: Number, t: SinkhornTensors) -> Iterator[Operation]:
        """Pooling: one query and one key per block."""
        tokens = blocks * self.block * inner
        keys = tokens * FLOPS_PER_ELEMENT["mean"]
        if not self.causal:
            keys *= 2
        mixing = self._mixing("b", self.block, tensors=t.pool)
        yield Operation(path="pool", title="Means of blocks", flops=keys, **mixing)
        if not self.causal:
            return
        running = tokens * FLOPS_PER_ELEMENT["cumsum"] + blocks * inner * FLOPS_PER_ELEMENT["multiply"]
        mixing = self._mixing("N", blocks * self.block, mixing="global", tensors=t.pool_queries)
        yield Operation(path="pool_queries", title="Running means at the blocks' first tokens", flops=running, **mixing)

    def _mixing(self, reads: str, tokens: Number, **other_facts: Any) -> dict[str, Any]:
        return {"mixing": "local", "reads": reads, "reads_tokens": tokens} | other_facts

    def _sorted(self, grid: Grid, inner: Number, t: SinkhornTensors) -> Iterator[Operation]:
        """Scores of blocks, their soft permutation, and the sorted keys and values."""
        cost, blocks = FLOPS_PER_ELEMENT, self.blocks(grid)
        candidates = blocks + 1 if self.causal else blocks
        entries = self.heads * blocks * candidates
        mixing = self._mixing("N", blocks * self.block, mixing="global", content_dependent=True, heads=self.heads)
        scores = self.heads * blocks * blocks
        score_facts = {"attention_entries": scores, "matrix": matrix(scores), "tensors": t.sort_scores}
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
        yield matmul("reorder", "Sort blocks of keys and values", 2 * reordered, tensors=t.reorder, **mixing)

    def _attended(self, place: Place, blocks: Number, inner: Number, t: SinkhornTensors) -> Iterator[Operation]:
        """Attention of a block over itself and its sorted block; SortCut: over the first sorted blocks."""
        b = self.block
        cut = self.sortcut is not None
        keys = self.sorted_blocks(place.grid) * b if cut else 2 * b
        masked = not cut and (bool(self.causal) or self.padded(place.grid))
        mixing: dict[str, Any] = {"mixing": "global", "reads": "k·b" if cut else "2·b"}
        if not cut:
            yield move("beside", "Sorted blocks beside their own", 4 * blocks * b * inner, tensors=t.beside)
        if masked and place.fused:
            yield Operation(path="mask", title="Mask", reads_tokens=keys, symbol="mask", tensors=t.mask, **mixing)
        rows = attention_of(
            self,
            place,
            queries=blocks * b if cut else b,
            keys=keys,
            groups=1 if cut else blocks,
            pairs=None,
            masked=masked,
            other_entries=self.heads * blocks * (blocks + 1 if self.causal else blocks),  # the order of the blocks
            operands=t.operands,
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
