"""Sparse Transformer: two factors of attention, a local one and a strided or fixed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isqrt, prod
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import greater, lesser
from xfcost.formulas.attention import DenseAttention, masks_of_groups
from xfcost.formulas.banded_attention import Blocks, memory_blocks, of_cropped, overlapping, padded, squares
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
    Width,
)
from xfcost.formulas.mixers import CausalMixer
from xfcost.formulas.rows import elementwise, linear, matmul, move
from xfcost.formulas.tensors import Shape, copied, product, reading
from xfcost.ledger.matrices import AttentionCore, matrix
from xfcost.ledger.tensors import BEFORE, OUTPUT, Copy, Exchanged, Strided, Tensor, Tensors


class Sparse(CausalMixer, frozen=True, kw_only=True, tag="sparse"):
    """Factorised self-attention, `strided` or `fixed` (Child et al. 2019, §4.3 and §5.1).

    N tokens padded up to u blocks of l (the stride), P = u·l. The first factor A⁽¹⁾, `local`, and the second A⁽²⁾,
    `long`, of token i, causal:

    - strided: local {i-l, …, i}, l + 1 keys; long {j ≤ i: (i - j) mod l = 0}
    - fixed: local {j ≤ i of its own block}; long {j ≤ i: j mod l ≥ l - c}, the last c cells of every block

    Without causality, which the paper has no need of, the same holds to both sides. Each runs as dense products:

        qkv                 N·d·h·(2·d_q + d_k) MACs, (d + β)·h·(2·d_q + d_k) parameters
        local_scores        P·m·H·d_q MACs, H·P·m entries kept, where a block uses it
        local_weighted_sum  P·m·H·d_k MACs, where a block uses it
        long_scores         P·n·H·d_q MACs, H·P·n entries kept, where a block uses it
        long_weighted_sum   P·n·H·d_k MACs, where a block uses it
        out                 N·h·d_k·d MACs

    Width d, h heads, of which H = h use a factor (or half of them), d_q = d_k wide for queries and keys unless
    `key_dim` says otherwise. Local are blocks of l queries × m keys, their own l and, strided, those of the block
    before, 2l, or both ways 3l. Long are, strided, l residue classes of u × u tokens, n = u, and fixed P queries × n =
    u·c cells.

    `integration` is how a block uses the two (§5.1): one of them alone, for blocks that take turns (equation 6);
    `merged`, one softmax over their union (equation 7), keys of both counted once; `heads`, the first half of the heads
    local, the second half long (equation 8). At l = √N all of it is N√N·d; at a fixed l the long factor is N²/l·d.

    The paper prints the cells as {l - c, …, l}, c + 1 of them; j mod l is below l, so they are c. It also lets the
    heads of a fixed pattern have other c cells each, which costs the same product.
    """

    pattern: Literal["strided", "fixed"]
    """`strided` or `fixed` (Child et al. 2019, §4.3)."""
    stride: Annotated[Length, Letter("l")]
    """Stride l, the tokens of a block."""
    summary: Annotated[Length | None, Letter("c")] = None
    """Cells c at the end of every block that later tokens read; only for the fixed pattern."""
    integration: Literal["local", "long", "merged", "heads"] = "merged"
    """How the two factors are used: only one (`local`, `long`), one softmax over both (`merged`), or half the heads
    each."""
    key_dim: Annotated[Width | None, Letter("dₖ")] = None
    """Width of a head's queries and keys, if it differs from its values'; d_k by default."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.pattern == "strided" and self.summary is not None:
            raise ComponentError("summary", "the strided pattern has no summary cells; leave `summary` out")
        if self.pattern == "fixed" and self.summary is None:
            raise ComponentError(
                "summary", "the fixed pattern needs the number of summary cells; the paper has 8, 16, 32"
            )
        if self.summary is not None and self.summary > self.stride:
            raise ComponentError(
                "summary", f"{self.summary} cells do not fit a block of {self.stride} tokens (`stride`)"
            )
        if self.integration == "heads" and self.heads % 2:
            raise ComponentError("heads", f"half the heads are local and half are long, and {self.heads} is odd")

    def label(self) -> str:
        factor = {"local": ", local factor", "long": ", long factor", "merged": ", merged", "heads": ", split heads"}
        causal = "causal " if self.causal else ""
        return f"{self.pattern.capitalize()} sparse {causal}attention{factor[self.integration]}"

    def blocks(self, grid: Grid) -> Blocks:
        """The blocks of the local factor."""
        near = self.stride if self.pattern == "strided" else 0
        return Blocks((1, grid.total), (1, self.stride), (0, near), (0, 0 if self.causal else near))

    # What is read ────────────────────────────────────────────────────────────────────────────────────────────────────

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        joint = self.integration in ("merged", "heads")
        local = self._local(grid.total, token) if joint or self.integration == "local" else range(0)
        distant = self._long(grid.total, token) if joint or self.integration == "long" else []
        return [*local, *(other for other in distant if other not in local)]

    def _local(self, n: int, token: int) -> range:
        block = token // self.stride * self.stride
        first = block if self.pattern == "fixed" else max(0, token - self.stride)
        last = block + self.stride - 1 if self.pattern == "fixed" else token + self.stride
        return range(first, (token if self.causal else min(n - 1, last)) + 1)

    def _long(self, n: int, token: int) -> Sequence[int]:
        end = token + 1 if self.causal else n
        if self.summary is None:
            return range(token % self.stride, end, self.stride)
        cells = self.stride - self.summary
        return [
            other
            for block in range(0, end, self.stride)
            for other in range(block + cells, min(end, block + self.stride))
        ]

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        """|A⁽¹⁾| + |A⁽²⁾| - |A⁽¹⁾ ∩ A⁽²⁾|, or one of the first two."""
        n = grid.total
        if self.integration == "local":
            return self.local_pairs(n)
        if self.integration == "long":
            return self.long_pairs(n)
        return self.local_pairs(n) + self.long_pairs(n) - self.overlap(n)

    def local_pairs(self, n: Number) -> Number:
        """Strided: Σ min(i, l) + 1, before and after a token alike. Fixed: Σ over blocks of s² or s(s + 1)/2."""
        if self.pattern == "fixed":
            return (squares(n, self.stride) + n) // 2 if self.causal else squares(n, self.stride)
        begun = lesser(n, self.stride)
        live_entries = begun * (begun - 1) // 2 + (n - begun) * self.stride
        return live_entries + n if self.causal else 2 * live_entries + n

    def long_pairs(self, n: Number) -> Number:
        """Strided: Σ over residue classes of s² or s(s + 1)/2. Fixed: Σ over cells of the tokens that read them."""
        full_blocks, remainder = n // self.stride, n % self.stride
        if self.summary is None:
            class_pairs = (self.stride - remainder) * full_blocks**2 + remainder * (full_blocks + 1) ** 2
            return (class_pairs + n) // 2 if self.causal else class_pairs
        c, last_cells = self.summary, self.cells_of_last_block(n)
        if not self.causal:
            return n * (full_blocks * c + last_cells)
        later = full_blocks * c * (n - self.stride + c) - c * self.stride * (full_blocks * (full_blocks - 1) // 2)
        return later - full_blocks * (c * (c - 1) // 2) + last_cells * (last_cells + 1) // 2

    def overlap(self, n: Number) -> Number:
        """Pairs in both factors: a token with itself and with tokens l apart; fixed: with its own block's cells."""
        full_blocks, remainder = n // self.stride, n % self.stride
        if self.summary is None:
            distant_pairs = greater(0, n - self.stride)
            return n + distant_pairs if self.causal else n + 2 * distant_pairs
        c, last_cells = self.summary, self.cells_of_last_block(n)
        if not self.causal:
            return full_blocks * self.stride * c + remainder * last_cells
        return full_blocks * (c * (c + 1) // 2) + last_cells * (last_cells + 1) // 2

    def cells_of_last_block(self, n: Number) -> Number:
        """Summary cells of a last, incomplete block."""
        return greater(0, n % self.stride - self.stride + (self.summary or 0))

    def key_inner(self, width: Number) -> Number:
        """Width of the queries, and of the keys, of all heads together."""
        return self.inner(width) if self.key_dim is None else self.heads * self.key_dim

    # What it costs ───────────────────────────────────────────────────────────────────────────────────────────────────

    def observed(self, place: Place) -> Observed:
        return Observed(at_most=frozenset(("join", "softmax")))  # at borders, and where both patterns have a key

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d = place.grid.total, place.dim
        inner, blocks = self.inner(d), self.blocks(place.grid)
        projected = inner + 2 * self.key_inner(d)
        yield linear("qkv", "Q, K, V projections", n, d, projected, bias=self.projection_bias)
        filled = padded((n, projected), (blocks.padded, projected))
        yield move("pad", "Pad to whole blocks", blocks.padded * projected if blocks.padded != n else 0, tensors=filled)
        if self.integration == "merged":
            yield from self._merged(place, blocks)
        if self.integration in ("local", "heads"):
            yield self._memory_blocks("local_memory_blocks", place, blocks)
            yield from self._core("local", place, blocks)
        if self.integration in ("long", "heads"):
            yield from self._core("long", place, blocks)
            if self.summary is not None:
                shape = (blocks.padded, inner // self._share)
                yield move("long_silence", "Zeros where no cell may be read yet", tensors=copied(shape, shape))
        if self.integration == "heads":
            halves = (blocks.padded, inner // 2)
            local = "local_attention" if place.fused else "local_weighted_sum"
            both = (Tensor(local, halves), Tensor(BEFORE, halves))
            joined = Tensors(both, (Tensor(OUTPUT, (blocks.padded, inner)),))
            yield move("join_heads", "Join heads of both factors", blocks.padded * inner, tensors=joined)
        out = linear("out", "Output projection W_O", n, inner, d, bias=self.projection_bias)
        yield of_cropped(out, n, blocks.padded, inner)

    @property
    def _share(self) -> int:
        """Number of factors that share the heads."""
        return 2 if self.integration == "heads" else 1

    def _memory_blocks(self, path: str, place: Place, blocks: Blocks) -> Operation:
        around = blocks.memory_elements if self.pattern == "strided" else 0
        width = sum(self._widths(place))
        tensors = memory_blocks(blocks._replace(sides=(1, blocks.padded)), width, self._source(place, blocks))
        return move(path, "Pad keys and values, cut memory blocks", around * width, tensors=tensors)

    def _widths(self, place: Place) -> tuple[Number, Number]:
        """Keys and values of one factor's heads together."""
        return self.key_inner(place.dim) // self._share, self.inner(place.dim) // self._share

    @staticmethod
    def _source(place: Place, blocks: Blocks) -> str:
        """The row that gives queries, keys and values."""
        return "qkv" if blocks.padded == place.grid.total else "pad"

    def _laid(self, place: Place, blocks: Blocks) -> Laid:
        products, source = self.products("long", blocks), self._source(place, blocks)
        viewed = self.summary in (1, self.stride) or blocks.groups == 1
        return Laid(products, self._widths(place), source, cells=self.summary is not None, viewed=viewed)

    def _operands(self, factor: Factor, place: Place, blocks: Blocks) -> dict[str, Any]:
        """Options of a factor's core that say where its operands are."""
        if factor == "long":
            return self._laid(place, blocks).core()
        copies = (None, *(overlapping(blocks, width) for width in self._widths(place)))
        operands = (self._source(place, blocks), "local_memory_blocks", "local_memory_blocks")
        return {"operands": operands, "fused_copies": copies}

    def _core(self, factor: Factor, place: Place, blocks: Blocks) -> Iterator[Operation]:
        """Attention by one factor, on all heads or half of them."""
        n, mixing = place.grid.total, self._mixing(factor, blocks)
        groups, queries, keys = self.products(factor, blocks)
        if place.fused:
            masks = masks_of_groups(groups, queries, keys)
            yield Operation(path=f"{factor}_mask", title=f"Mask ({factor})", tensors=masks, **mixing)
        rows = DenseAttention(
            queries=queries,
            keys=keys,
            groups=groups,
            heads=self.heads // self._share,
            inner=self._widths(place)[0],
            values=self._widths(place)[1],
            mask_kind="groups",
            **self._operands(factor, place, blocks),
            mixing=mixing["mixing"],
            reads=mixing["reads"],
            pairs=self.local_pairs(n) if factor == "local" else self.long_pairs(n),
            fused=place.fused,
            masked=True,
            mask_in_place=True,
            prefix=f"{factor}_",
        ).rows()
        laid, heads = self._laid(place, blocks), self.heads // self._share
        yield from (laid.back(row, heads) for row in rows) if factor == "long" else rows

    def _merged(self, place: Place, blocks: Blocks) -> Iterator[Operation]:
        """One softmax over both factors; pairs of both are the local one's."""
        n = place.grid.total
        yield self._memory_blocks("memory_blocks", place, blocks)
        yield from MergedFactors(
            heads=self.heads,
            long=self._laid(place, blocks),
            memory=blocks.frame,
            products={factor: self.products(factor, blocks) for factor in FACTORS},
            pairs={"local": self.local_pairs(n), "long": self.long_pairs(n) - self.overlap(n)},
            mixing={factor: self._mixing(factor, blocks) | {"heads": self.heads} for factor in FACTORS},
        ).rows()

    def products(self, factor: Factor, blocks: Blocks) -> tuple[Number, Number, Number]:
        """Groups, queries and keys of a factor's products."""
        if factor == "local":
            return blocks.groups, blocks.queries, blocks.keys
        if self.summary is None:
            return self.stride, blocks.groups, blocks.groups
        return 1, blocks.padded, blocks.groups * self.summary

    def _mixing(self, factor: Factor, blocks: Blocks) -> dict[str, Any]:
        local = factor == "local"
        keys = self.products(factor, blocks)[2]
        # strided, a block reads the one before it too, and both ways the one after it
        beside = {1: "l", 2: "2·l", 3: "3·l"}[1 if self.pattern == "fixed" else 2 if self.causal else 3]
        reads = beside if local else "N/l" if self.summary is None else "c·N/l"
        return {"mixing": "local" if local else "global", "reads": reads, "reads_tokens": keys}

    def notes(self, place: Place) -> Iterator[str]:
        n, blocks = place.grid.total, self.blocks(place.grid)
        if blocks.padded != n:
            yield PaddingNote(
                f"{n} tokens padded to whole blocks of {self.stride}: "
                f"{blocks.padded - n} positions more are attended over, and counted"
            )
        if self.integration != "local":
            more = (
                "" if self.summary is None else f", and {self.summary} summary cells of a block {self.summary} times it"
            )
            yield (
                f"N√N needs a stride that grows as √N, here about {max(1, isqrt(n))}; at a stride of {self.stride}, "
                f"whatever N, the long factor is N²/{self.stride}{more}"
            )
        if self.integration == "merged" and place.fused:
            yield "one softmax over two products has no fused kernel in PyTorch: it runs eager, and is counted so"
        if not self.causal:
            yield "the paper's patterns are causal; this one reads tokens on both sides"


# Tensors of factorized sparse attention whose factors share one softmax (`mechanisms/sparse.py`) ─────────────────────


Products = tuple[Number, Number, Number]


class Laid(NamedTuple):
    """How queries, keys and values of the long factor lie: G groups of T queries and M keys.

    Columns of the sequence in rows of l tokens are views. Summary `cells` are copied, unless they are `viewed`: one of
    each block, all of its tokens, or those of a single block.
    """

    products: Products
    widths: tuple[Number, Number]
    """Of keys, and of values, of all heads together."""
    source: str
    """The tensor that all are parts of."""
    cells: bool
    viewed: bool

    @property
    def copied(self) -> bool:
        """Are the cells copied?"""
        return self.cells and not self.viewed

    def core(self) -> dict[str, Any]:
        """Options of an attention core of this factor alone."""
        (groups, queries, keys), source = self.products, self.source
        if self.copied:
            parts = zip(("cell keys", "cell values"), self.widths, strict=True)
            made = tuple(Tensor(name, (keys, width)) for name, width in parts)
            return {"operands": (source, made[0].name, made[1].name), "between": made}
        widths = (self.widths[0], *self.widths)
        axes = ((groups, 1, 0),)
        merged = tuple(Strided((groups, queries, width), groups * queries, axes) for width in widths)
        return {"operands": (source, source, source), "fused_copies": merged}

    def back(self, row: Operation, heads: Number) -> Operation:
        """`row` of that core: columns are copied to the order of the tokens after it, heads joined."""
        (groups, queries, _), values = self.products, self.widths[1]
        if self.cells or not row.fused:
            return row
        return reading(row, rearranged=Exchanged((groups, queries, values), (groups * heads, queries)))


# Rows of factorized attention whose two factors share one softmax (Child et al. 2019, equation 7) ────────────────────


Factor = Literal["local", "long"]
FACTORS: Final[tuple[Factor, ...]] = ("local", "long")


class MergedFactors(NamedTuple):
    """Two score matrices, concatenated, then two weighted sums, in h heads.

    By factor: groups, queries and keys of its products, pairs that no other factor has, and how it mixes.
    """

    heads: Number
    long: Laid
    memory: Number
    """Tokens of the keys and values of all local blocks, which may overlap."""
    products: Mapping[Factor, Products]
    pairs: Mapping[Factor, Number]
    mixing: Mapping[Factor, dict[str, Any]]

    @property
    def _tokens(self) -> Number:
        return prod(self.products["local"][:2])

    def _entries(self, factor: Factor) -> Shape:
        groups, queries, keys = self.products[factor]
        return groups, self.heads, queries, keys

    def _keys(self, factor: Factor, width: Number) -> tuple[Tensor, Strided]:
        """Keys or values, and their copy."""
        (groups, _, keys), cells = self.products[factor], self.long.copied
        name = "memory_blocks" if factor == "local" else "cells" if cells else self.long.source
        tokens = self.memory if factor == "local" else keys if cells else self._tokens
        step = self.products["local"][1] if factor == "local" else 1
        shape, axes = (groups, keys, width), ((groups, step, 0), (self.heads, 0, width // self.heads))
        return Tensor(name, shape), Strided(shape, tokens, axes)

    def rows(self) -> Iterator[Operation]:
        """The rows from queries, and keys and values laid out, to the sum of both factors."""
        h, tokens, (key_inner, inner) = self.heads, self._tokens, self.long.widths
        entries = {factor: prod(self.products[factor]) for factor in FACTORS}
        scaled = copied((tokens, key_inner), (tokens, key_inner), self.long.source)
        yield elementwise("scale", "Scale queries 1/√d_k", "multiply", tokens * key_inner, symbol="", tensors=scaled)
        for factor in FACTORS:
            yield from self._scores(factor, h * entries["local"] if factor == "long" else 0)
        all_entries = h * sum(entries.values())
        joint = self.mixing["long"] | {
            "reads": " + ".join(self.mixing[factor]["reads"] for factor in FACTORS),
            "reads_tokens": sum(self.mixing[factor]["reads_tokens"] for factor in FACTORS),
        }
        both = tuple(Tensor(f"{factor}_scores", self._entries(factor)) for factor in FACTORS)
        beside = Tensor(OUTPUT, (tokens, h, sum(self.products[factor][2] for factor in FACTORS)))
        facts: dict[str, Any] = {"matrix": matrix(all_entries, all_entries), "tensors": Tensors(both, (beside,))}
        yield move("join", "Join scores of both factors", all_entries, **facts, **joint)
        weights = joint | {"content_dependent": True, "matrix": matrix(all_entries, 2 * all_entries, saved=True)}
        yield elementwise("softmax", "Softmax", "softmax", all_entries, symbol="softmax", **weights)
        for factor in FACTORS:
            macs, title = entries[factor] * inner, f"Weighted sum AV ({factor})"
            facts = {"content_dependent": True, "tensors": self._weighted_sum(factor)}
            yield matmul(f"{factor}_weighted_sum", title, macs, **facts, **self.mixing[factor])
        yield elementwise("add", "Add both factors", "add", tokens * inner, of=("local_weighted_sum", BEFORE))

    def _weighted_sum(self, factor: Factor) -> Tensors:
        """AV saves both; the long factor's weights lie block by block, then head by head: laid out anew, a copy."""
        width = self.long.widths[1]
        weights, (v, copy) = Tensor("softmax", self._entries(factor)), self._keys(factor, width)
        blocks, queries, _ = self.products["local"]
        anew: Copy | None = None
        if factor == "long" and self.long.cells:
            anew = Exchanged(weights.shape, (blocks, self.heads))
        elif factor == "long":
            axes = (queries, 1, 0), (self.heads, queries, 0)
            anew = Strided(weights.shape, blocks * self.heads * queries, axes)
        return product(weights, v, (*self.products[factor][:2], width), anew, copy)

    def _scores(self, factor: Factor, live_entries: Number) -> Iterator[Operation]:
        """A factor's scores and its mask, `live_entries` of the other being there; summary cells are copied before."""
        (groups, queries, keys), h, (width, values) = self.products[factor], self.heads, self.long.widths
        entries = groups * queries * keys
        # queries are blocks of l tokens, columns of every l-th token, or all together
        axes = (groups, queries if factor == "local" else 1, 0), (h, 0, width // h)
        q, (k, copy) = Tensor("scale", (groups, queries, width)), self._keys(factor, width)
        tensors = product(q, k, self._entries(factor), Strided(q.shape, self._tokens, axes), copy)
        if k.name == "cells":
            tensors = msgspec.structs.replace(tensors, between=(Tensor("cells", (keys, width + values)),))
        yield matmul(
            f"{factor}_scores",
            f"Attention scores QKᵀ ({factor})",
            entries * width,
            attention_entries=h * entries,
            matrix=matrix(h * entries, live_entries),
            pairs=self.pairs[factor],
            core=AttentionCore(groups * h, queries, keys, width // h, values // h),
            content_dependent=True,
            tensors=tensors,
            **self.mixing[factor],
        )
        # in place; one mask of each group, made in every pass
        mask = Tensor("mask", self.products[factor], "bool", once=True)
        tensors = Tensors((Tensor(BEFORE, self._entries(factor)),), makes=(mask,))
        yield Operation(path=f"{factor}_mask", title=f"Mask ({factor})", tensors=tensors, **self.mixing[factor])
