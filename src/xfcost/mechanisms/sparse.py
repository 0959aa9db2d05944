"""Sparse Transformer: two factors of attention, a local one and a strided or fixed one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import isqrt, prod
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from xfcost.formulas.arithmetic import greater, lesser
from xfcost.formulas.banded_attention import Blocks, squares
from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Length,
    Letter,
    Number,
    Observed,
    PaddingNote,
    Place,
    Width,
)
from xfcost.formulas.mixers import CausalMixer
from xfcost.ledger.matrices import AttentionCore
from xfcost.mechanisms.blockwise import cut_blocks
from xfcost.program.attention import attend, in_place, join_heads, softmax, split_heads
from xfcost.program.functions import added, beside, multiplied, padded, product, scores
from xfcost.program.leaves import IntervalMask, Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

Factor = Literal["local", "long"]
FACTORS: Final[tuple[Factor, ...]] = ("local", "long")


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

    titles: ClassVar[Mapping[str, str]] = {
        "add": "Add both factors",
        "join": "Join scores of both factors",
        "join_heads": "Join heads of both factors",
        "pad": "Pad to whole blocks",
        "silence": "Zeros where no cell may be read yet",
    }

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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        n, blocks, inner = place.grid.total, self.blocks(place.grid), self.inner(place.dim)
        keys = self.key_inner(place.dim)
        x = t.linear("qkv", x, inner + 2 * keys, bias=self.projection_bias, parts=(keys, keys, inner))
        x = t.leaf("pad", padded, x, options={"after": blocks.padded - n})
        if self.integration == "merged":
            y = self._merged(t, x, place, blocks)
        elif self.integration == "heads":  # the projection holds queries, keys and values of the first, then the second
            local, long = x.chunk(2, -1)
            answers = self._local_factor(t, local, place, blocks), self._long_factor(t, long, place, blocks)
            y = t.leaf("join_heads", beside, *answers)
        else:
            y = (self._local_factor if self.integration == "local" else self._long_factor)(t, x, place, blocks)
        return t.linear("out", y.narrow(1, 0, n), place.dim, bias=self.projection_bias)

    @property
    def _share(self) -> int:
        """Number of factors that share the heads."""
        return 2 if self.integration == "heads" else 1

    def _widths(self, place: Place) -> tuple[Number, Number]:
        """Keys and values of one factor's heads together."""
        return self.key_inner(place.dim) // self._share, self.inner(place.dim) // self._share

    def _memory(self, t: Operations, kv: Tensor, place: Place, blocks: Blocks) -> Tensor:
        """Keys and values of every block of the local factor: (B, P, X) -> (B, U, M, X)."""
        cut = {"blocks": blocks._replace(sides=(1, blocks.padded)), "around": True}
        return t.leaf("memory_blocks", cut_blocks, kv, options=cut)

    def _local_factor(self, t: Operations, x: Tensor, place: Place, blocks: Blocks) -> Tensor:
        """A⁽¹⁾: each block reads itself and, if strided, its neighbours. (B, P, Q + Q + S) -> (B, P, S)."""
        keys, values = self._widths(place)
        q, kv = x.split((keys, keys + values), -1)
        k, v = self._memory(t.part("local"), kv, place, blocks).split((keys, values), -1)
        y = self._attended(t, "local", (in_blocks(q, blocks), k, v), place, blocks)
        return join_heads(y).flatten(1, 2)

    def _long_factor(self, t: Operations, x: Tensor, place: Place, blocks: Blocks) -> Tensor:
        """A⁽²⁾: columns of the sequence in rows of l tokens, or its summary cells. (B, P, Q + Q + S) -> (B, P, S)."""
        keys, values = self._widths(place)
        q, k, v = x.split((keys, keys, values), -1)
        layout = self.layout(place.grid)
        y = self._attended(t, "long", (layout.queries(q), layout.keys(k), layout.keys(v)), place, blocks)
        y = layout.back(join_heads(y))
        if self.summary is None:
            return y
        unread = Worked("windows:without_cells", {"config": self, "grid": place.grid})
        lonely = Weight((blocks.padded,), unread, "lonely_P", learns=False)
        return t.part("long").leaf("silence", silenced, y, weights=(lonely,))

    def _attended(
        self, t: Operations, factor: Factor, parts: tuple[Tensor, ...], place: Place, blocks: Blocks
    ) -> Tensor:  # fmt: skip
        """Attention by one factor, on all heads or half of them: (B, G, T, Q), … -> (B, G, H, T, K)."""
        heads, n = self.heads // self._share, place.grid.total
        q, k, v = (split_heads(part, heads) for part in parts)
        pairs = self.local_pairs(n) if factor == "local" else self.long_pairs(n)
        part, mixing = t.part(factor, factor), self._mixing(factor, blocks)
        mask = in_place(partial(part.run, "mask", self._mask(factor, place.grid)))
        return attend(part, q, k, v, fused=place.fused, pairs=pairs, mixing=mixing, mask=mask)

    def _mask(self, factor: Factor, grid: Grid) -> IntervalMask:
        """-∞ at keys that a factor does not read; merged, at those of the local one in the long one too."""
        worked = Worked(f"windows:{factor}_mask", {"config": self, "grid": grid})
        return IntervalMask(self.products(factor, self.blocks(grid)), worked)

    def _merged(self, t: Operations, x: Tensor, place: Place, blocks: Blocks) -> Tensor:
        """One softmax over the keys of both factors, pairs of both being the local one's: -> (B, P, S).

        Scores of the long factor are computed in its own layout, then viewed block by block next to the local ones.
        """
        h, n, layout, (keys, values) = self.heads, place.grid.total, self.layout(place.grid), self._widths(place)
        parts = {factor: t.part(factor, factor) for factor in FACTORS}
        sizes = {factor: self.products(factor, blocks) for factor in parts}
        entries = {factor: h * prod(sizes[factor]) for factor in parts}
        mixing = {factor: self._mixing(factor, blocks) | {"heads": h} for factor in parts}
        pairs = {"local": self.local_pairs(n), "long": self.long_pairs(n) - self.overlap(n)}

        def scored(factor: Factor, q: Tensor, k: Tensor) -> Tensor:
            groups, queries, read = sizes[factor]
            facts: dict[str, Any] = {"attention_entries": entries[factor], "matrix": True}
            facts["core"] = AttentionCore(groups * h, queries, read, keys // h, values // h)
            facts |= {"pairs": pairs[factor], "content_dependent": True} | mixing[factor]
            z = parts[factor].leaf("scores", scores, split_heads(q, h), k, **facts)
            return parts[factor].run("mask", self._mask(factor, place.grid), z, **mixing[factor])

        def split(kv: Tensor) -> list[Tensor]:
            return [split_heads(part, h) for part in kv.split((keys, values), -1)]

        q, kv = x.split((keys, keys + values), -1)
        local_k, local_v = split(self._memory(t, kv, place, blocks))
        scale = {"factor": float(keys // h) ** -0.5}
        q = t.leaf("scale", multiplied, q, options=scale, symbol="")
        long_k, long_v = split(layout.keys(kv))
        local = scored("local", in_blocks(q, blocks), local_k)
        long = scored("long", layout.queries(q), long_k)
        joint = mixing["long"] | {"matrix": True}
        for name, between in (("reads", " + "), ("reads_tokens", None)):
            of_each = [mixing[factor][name] for factor in parts]
            joint[name] = sum(of_each) if between is None else between.join(of_each)
        z = t.leaf("join", beside, local, layout.by_block(long), **joint)
        z = t.leaf("softmax", softmax, z, symbol="softmax", content_dependent=True, **joint)
        local, long = z.split((sizes["local"][2], sizes["long"][2]), -1)
        y = parts["local"].leaf("weighted_sum", product, local, local_v, content_dependent=True, **mixing["local"])
        long = layout.from_block(long)
        more = parts["long"].leaf("weighted_sum", product, long, long_v, content_dependent=True, **mixing["long"])
        return join_heads(t.leaf("add", added, y, layout.by_block(more))).flatten(1, 2)

    def layout(self, grid: Grid) -> Columns | Cells:
        """How the long factor groups tokens."""
        blocks = self.blocks(grid).groups
        return Columns(blocks, self.stride) if self.summary is None else Cells(blocks, self.stride, self.summary)

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
                f"{blocks.padded - n} padding tokens are attended over, and counted"
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


def in_blocks(x: Tensor, blocks: Blocks) -> Tensor:
    """Consecutive blocks of l tokens: (B, P, S) -> (B, U, L, S)."""
    return x.unflatten(1, (blocks.groups, blocks.queries))


def silenced(t: Functions, x: Tensor, lonely: Tensor) -> Tensor:
    """Zeros at queries without keys: (B, P, S), (P,) -> (B, P, S)."""
    return x.masked_fill(lonely.unsqueeze(-1), 0.0)


class Columns(NamedTuple):
    """Every l-th token: G = L groups of T = U queries and U keys."""

    blocks: Number
    stride: Number

    def queries(self, x: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, T, S)."""
        return x.unflatten(1, (self.blocks, self.stride)).transpose(1, 2)

    def keys(self, x: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, M, S)."""
        return self.queries(x)

    def back(self, y: Tensor) -> Tensor:
        """(B, G, T, S) -> (B, P, S)."""
        return y.transpose(1, 2).flatten(1, 2)

    def by_block(self, z: Tensor) -> Tensor:
        """(B, G, H, T, X) -> (B, U, H, L, X)."""
        return z.transpose(1, 3)

    def from_block(self, z: Tensor) -> Tensor:
        """(B, U, H, L, X) -> (B, G, H, T, X)."""
        return z.transpose(1, 3)


class Cells(NamedTuple):
    """The last c tokens of each block: one group of all queries and U·c keys."""

    blocks: Number
    stride: Number
    summary: Number

    def queries(self, x: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, T, S)."""
        return x.unsqueeze(1)

    def keys(self, x: Tensor) -> Tensor:
        """(B, P, S) -> (B, G, M, S)."""
        x = x.unflatten(1, (self.blocks, self.stride))
        return x.narrow(2, self.stride - self.summary, self.summary).flatten(1, 2).unsqueeze(1)

    def back(self, y: Tensor) -> Tensor:
        """(B, G, T, S) -> (B, P, S)."""
        return y.squeeze(1)

    def by_block(self, z: Tensor) -> Tensor:
        """(B, G, H, T, X) -> (B, U, H, L, X)."""
        return z.squeeze(1).unflatten(2, (self.blocks, self.stride)).transpose(1, 2)

    def from_block(self, z: Tensor) -> Tensor:
        """(B, U, H, L, X) -> (B, G, H, T, X)."""
        return z.transpose(1, 2).flatten(2, 3).unsqueeze(1)
