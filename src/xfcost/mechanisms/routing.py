"""Routing attention: online k-means clusters the tokens; a token reads the tokens of its clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, floor_sqrt, greater, lesser, round_up
from xfcost.formulas.attention import DenseAttention, attention_of, masks_of_groups, with_mask
from xfcost.formulas.banded_attention import squares
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
from xfcost.formulas.letters import lettered
from xfcost.formulas.mixers import ApproximatelyCausalMixer
from xfcost.formulas.rows import l2_normalize, linear, matmul, move, on_raw_input, sort, with_gradient_operands
from xfcost.formulas.tensors import copied, view
from xfcost.ledger.matrices import matrix
from xfcost.ledger.operation import Mixing
from xfcost.ledger.tensors import BEFORE, OUTPUT, Saved, Tensor, Tensors, merged_heads


class Clusters(NamedTuple):
    """k clusters of w tokens, and how w depends on N."""

    count: Number
    window: Number
    mixing: Mixing
    reads: str


class Routing(ApproximatelyCausalMixer, frozen=True, kw_only=True, tag="routing"):
    """Routing Transformer (Roy et al. 2021, §4.1): attention inside k clusters of w tokens, found by online k-means.

    N tokens, width d, H heads that are routed, d_k their width. Every cluster takes the w queries and the w keys that
    are nearest to its centroid, so a token may be in several clusters (its answers' mean is taken) or in none (it
    reads nothing, its answer is zero). Centroids are no parameters: a moving average of their members, in training.

        qkv           N·d·3H·d_k MACs, (d + β)·3H·d_k parameters, or where queries are the keys (`shared_qk`):
        qv            N·d·2H·d_k MACs, (d + β)·2H·d_k parameters, with `shared_qk`
        normalize     queries and keys to length 1
        distances     2·H·N·k·d_k MACs, 2·H·N·k entries kept; with `shared_qk` H·N·k·d_k MACs, H·N·k entries
        choose        H·k·N·⌈log₂ N⌉ comparisons: lists of N are sorted for their top w
        choose_keys   H·k·N·⌈log₂ N⌉ comparisons, unless they are the queries, with `shared_qk`
        gather        3·H·k·w·d_k elements written
        memory_keys, memory_values  k·m·H·d_k parameters each, with m memory keys per cluster
        scores        H·k·w·(w + m)·d_k MACs, H·k·w·(w + m) entries kept
        weighted_sum  H·k·w·(w + m)·d_k MACs
        average       H·k·w·(d_k + 1) elements written where they came from, divided by how many came
        out           N·h·d_k·d MACs

    With neither `clusters` nor `window` k is √N and w is √N: O(N√N·d). With `window` alone k = N/w, as in
    routing-transformer 1.6.1: the distances are N²·d/w. With `clusters` alone w = N/k: the scores are N²·d/k.

    `local_heads` of the h heads, H_l, read their block and the one before it (and after it, where nothing is causal) in
    place of clusters, as in the published models: G blocks of b tokens, t = 2 or 3 of them.

        local_qkv           N·d·3H_l·d_k MACs, (d + β)·3H_l·d_k parameters, with `local_heads`
        local_scores        H_l·G·b·t·b·d_k MACs, H_l·G·b·t·b entries kept, with `local_heads`
        local_weighted_sum  H_l·G·b·t·b·d_k MACs, with `local_heads`
    """

    short_name = "Routing attention"
    content_selects_tokens: ClassVar[bool] = True
    leak: ClassVar[str] = "later tokens compete for the places of a cluster, and so move earlier ones in and out of it"

    clusters: Annotated[Length | None, Letter("k")] = None
    """Number of clusters k; by default N/w, or √N if `window` is not given either."""
    window: Annotated[Length | None, Letter("w")] = None
    """Tokens w of a cluster, at most N; N/k by default."""
    shared_qk: bool = False
    """Whether keys are the queries, of length 1; a token then reads itself only where it can read nothing else."""
    memory_keys: Annotated[int, msgspec.Meta(ge=0, le=2**16), Letter("m")] = 0
    """Learned keys and values of every cluster, which all its queries read."""
    local_heads: Annotated[int, msgspec.Meta(ge=0, le=2**16), Letter("h")] = 0
    """Number of heads that read their block and its neighbours instead of clusters."""
    local_window: Annotated[Length | None, Letter("b")] = None
    """Tokens b of a block of the local heads; `window` by default."""

    def check(self, place: Place) -> None:
        super().check(place)
        if self.local_heads >= self.heads:
            raise ComponentError(
                "local_heads",
                f"{self.local_heads} of {self.heads} heads are local, and none is left to route; use fewer",
            )
        if self.local_heads and self.local_window is None and self.window is None:
            raise ComponentError("local_heads", "local heads need a block size; give `local_window`")

    def head_width(self, width: Number) -> Number:
        """d_k."""
        return width // self.heads if self.head_dim is None else self.head_dim

    def sizes(self, grid: Grid) -> Clusters:
        """k and w on this grid."""
        n = grid.total
        if self.window is None:
            count = floor_sqrt(n) if self.clusters is None else self.clusters
            return Clusters(count, ceil_div(n, count), "global", "√N" if self.clusters is None else "N/k")
        window = lesser(self.window, n)
        return Clusters(ceil_div(n, window) if self.clusters is None else self.clusters, window, "local", "w")

    def memories(self) -> int:
        """m, memory keys of a cluster; causal, at least one, for queries with no earlier token in their cluster."""
        return max(self.memory_keys, 1 if self.causal and not self.shared_qk else 0)

    def block(self) -> int:
        """b, tokens of a block of the local heads."""
        return self.local_window or self.window or 1

    def in_letters(self, place: Place) -> tuple[Routing, Place]:
        component, lettered_place = super().in_letters(place)
        return msgspec.structs.replace(component, local_window=lettered(self.block(), "b")), lettered_place

    def observed(self, place: Place) -> Observed:
        names = ("scores", "mask", "softmax", "weighted_sum", "attention")
        return Observed(unread=dict.fromkeys(names, -self.memories()))

    def operations(self, place: Place) -> Iterator[Operation]:
        n, d, width = place.grid.total, place.dim, self.head_width(place.dim)
        inner = (self.heads - self.local_heads) * width
        projected = linear("qkv", "Q, K, V projections", n, d, 3 * inner, bias=self.projection_bias)
        if self.shared_qk:
            projected = linear("qv", "Q = K, V projections", n, d, 2 * inner, bias=self.projection_bias)
        yield on_raw_input(projected)
        count, window, *_ = self.sizes(place.grid)
        heads = self.heads - self.local_heads
        t = _RoutingTensors(place.grid.total, count, window, self.memories(), heads, inner, self.shared_qk)
        yield from self._assigned(width, t)
        yield from self._attended(place, width, t)
        if self.local_heads:
            yield from self._local(place, width)
            title, both = "Local and routed heads beside each other", n * self.heads * width
            yield move("join", title, both, tensors=t.join(self.local_heads * width))
        yield linear("out", "Output projection W_O", n, self.heads * width, d, bias=self.projection_bias)

    def _assigned(self, width: Number, t: _RoutingTensors) -> Iterator[Operation]:
        """Assignment of queries and keys to clusters."""
        heads, sides = self.heads - self.local_heads, len(t.sides)
        vectors = sides * t.tokens * heads
        writes = tuple(t.vectors(name) for name in (OUTPUT, _UNIT_KEYS)[:sides])
        lengths = Tensor("lengths", (2, sides, t.tokens, t.heads))
        tensors = Tensors((t.vectors(BEFORE),) * sides, writes, (Saved(BEFORE),), (lengths,))
        yield l2_normalize("normalize", vectors, width, tensors=tensors)
        distance_count = vectors * t.clusters
        # No gradient passes
        reads = tuple(t.vectors(name) for name in (BEFORE, _UNIT_KEYS)[:sides])
        tensors = Tensors(reads, tuple(t.distances(name) for name in (OUTPUT, _KEY_DISTANCES)[:sides]))
        distances = matmul("distances", "Distances to the centroids", distance_count * width, tensors=tensors)
        # they decide what is read, which has no gradient
        yield with_gradient_operands(
            msgspec.structs.replace(
                distances, attention_entries=distance_count, matrix=matrix(distance_count), heads=heads
            ),
            0,
        )
        lists = heads * t.clusters
        tensors = Tensors((t.distances(BEFORE),), (t.chosen(OUTPUT),))
        yield sort("choose", "Nearest queries of every cluster", lists, t.tokens, tensors=tensors)
        if not self.shared_qk:
            tensors = Tensors((t.distances(_KEY_DISTANCES),), (t.chosen(OUTPUT),))
            yield sort("choose_keys", "Nearest keys of every cluster", lists, t.tokens, tensors=tensors)

    def _attended(self, place: Place, width: Number, t: _RoutingTensors) -> Iterator[Operation]:
        """Attention inside the clusters, and the mean over a token's clusters."""
        n, heads, clusters = place.grid.total, self.heads - self.local_heads, self.sizes(place.grid)
        places = heads * clusters.count * clusters.window
        yield from self._gathered(clusters, heads * width, t)
        mixing = {"mixing": clusters.mixing, "reads": clusters.reads, "reads_tokens": clusters.window, "heads": heads}
        masked = bool(self.causal) or self.shared_qk
        if masked and place.fused:
            yield Operation(path="mask", title="Mask", symbol="mask", tensors=t.mask, **mixing)
        core = DenseAttention(
            queries=clusters.window,
            keys=clusters.window + self.memories(),
            groups=clusters.count,
            heads=heads,
            inner=heads * width,
            pairs=self._cluster_pairs(clusters),
            mixing=clusters.mixing,
            reads=clusters.reads,
            fused=place.fused,
            masked=masked,
            other_entries=(1 if self.shared_qk else 2) * n * heads * clusters.count,  # the distances
            operands=t.operands,
            gathered=True,
            gathered_queries=True,
            mask_kind="held",
        )
        for row in (t.core(row, has_mask=masked) for row in core.rows()):
            yield msgspec.structs.replace(row, **mixing) if row.mixes else row
        add, divide = FLOPS_PER_ELEMENT["add"], FLOPS_PER_ELEMENT["multiply"]
        counts = Tensor("counts", (t.tokens, t.heads))
        reads = (t.members(BEFORE), t.chosen("choose"))
        tensors = Tensors(reads, (t.vectors(OUTPUT),), (Saved("choose"),), (counts,))
        yield Operation(
            path="average",
            title="Mean over the clusters of a token",
            flops=places * (width + 1) * add + n * heads * (FLOPS_PER_ELEMENT["clamp"] + width * divide),
            moved=places * (width + 1),
            tensors=tensors,
        )

    def _gathered(self, clusters: Clusters, inner: Number, t: _RoutingTensors) -> Iterator[Operation]:
        """Queries, keys and values of the clusters, and memory keys and values."""
        moved = clusters.count * clusters.window * inner
        # What is gathered is saved, and the places; shared queries are keys once they have length 1
        at_q, at_k = t.sides[0], t.sides[-1]
        keys = "normalize" if t.shared else t.projected
        pairs = ((t.projected, at_q), (keys, at_k), (t.projected, at_k))
        reads = tuple(one for name, at in pairs for one in (t.vectors(name), t.chosen(at)))
        writes = tuple(t.members(name) for name in (OUTPUT, _GATHERED_KEYS, _GATHERED_VALUES))
        tensors = Tensors(reads, writes, tuple(Saved(each.name) for each in reads))
        yield move("gather", "Gather the clusters' queries, keys, values", 3 * moved, tensors=tensors)
        if self.memories():
            learned = clusters.count * self.memories() * inner
            for what in ("keys", "values"):
                members = (t.clusters, t.window, t.inner)
                tensors = copied(members, (t.clusters, t.window + t.memories, t.inner), f"gathered {what}")
                facts = {"params": learned, "tensors": tensors}
                yield move(f"memory_{what}", f"Memory {what}", moved + learned, **facts)

    def _cluster_pairs(self, clusters: Clusters) -> Number:
        """Pairs per head of all clusters, memory keys among them; None where they depend on the content."""
        w, learned = clusters.window, clusters.window * self.memories()
        if not self.shared_qk:
            return None if self.causal else clusters.count * (w * w + learned)
        other_pairs = w * (w - 1) // 2 if self.causal else w * (w - 1)
        self_pairs = 1 if self.causal else 1 - lesser(1, w - 1)
        return clusters.count * (other_pairs + (learned if self.memories() else self_pairs))

    def _local(self, place: Place, width: Number) -> Iterator[Operation]:
        """The local heads: blocks and their neighbours."""
        n, block, block_count = place.grid.total, self.block(), 2 if self.causal else 3
        inner, padded = self.local_heads * width, round_up(place.grid.total, block)
        yield on_raw_input(
            linear("local_qkv", "Q, K, V projections (local)", n, place.dim, 3 * inner, bias=self.projection_bias)
        )
        t = _LocalTensors(n, padded // block, block, block_count, self.local_heads, inner)
        more = padded * inner * lesser(1, padded - n)
        reads, writes = (t.tokens, t.inner), (t.padded, t.inner)
        tensors = view(reads, writes) if reads == writes else copied(reads, writes)
        yield move("local_cut", "Pad queries to whole blocks", more, tensors=tensors)
        storage = (t.padded + (t.blocks - 1) * t.block) * t.inner
        blocks = tuple(Tensor(name, t.keys, storage=storage) for name in (OUTPUT, _VALUES))
        tensors = Tensors((Tensor("local_qkv", reads),) * 2, blocks)
        yield move(
            "local_look",
            "Blocks of keys, values and their neighbours",
            2 * (padded + (block_count - 1) * block) * inner,
            tensors=tensors,
        )
        mixing: dict[str, Any] = {"mixing": "local", "reads": f"{block_count}·b"}
        if place.fused:
            masks = masks_of_groups(t.groups, t.block, t.blocks * t.block)
            facts = mixing | {"reads_tokens": block_count * block, "tensors": masks}
            yield Operation(path="local_mask", title="Mask (local)", **facts)
        core: dict[str, Any] = {
            "queries": block,
            "keys": block_count * block,
            "groups": padded // block,
            "pairs": self._local_pairs(n),
        }
        core |= {"heads": self.local_heads, "inner": inner, "prefix": "local_", "masked": True}
        # The fused kernel takes blocks as samples, which copies what overlaps
        overlapping = merged_heads(t.keys, t.groups, t.keys[1])
        core |= {"operands": t.operands, "fused_copies": (None, overlapping, overlapping)}
        core |= {"mask_kind": "groups" if place.fused else "held"}
        yield from (t.core(row) for row in attention_of(self, place, **core, **mixing))

    def _local_pairs(self, n: Number) -> Number:
        """Pairs per local head: inside n // b blocks and a shorter last one, and between neighbours."""
        b = self.block()
        whole = n // b
        inside = squares(n, b)
        between = greater(whole - 1, 0) * b * b + lesser(1, whole) * (n - whole * b) * b
        return (inside + n) // 2 + between if self.causal else inside + 2 * between

    def notes(self, place: Place) -> Iterator[str]:
        yield from super().notes(place)
        n, (count, window, *_) = place.grid.total, self.sizes(place.grid)
        yield (
            f"{count} cluster(s) take the {window} queries and keys nearest to each: a token may be in several, or in "
            "none (its routed heads then read nothing)"
        )
        if window == n:
            yield f"a cluster holds all {n} tokens: attention is full"
        elif self.window is not None and self.clusters is None:
            yield f"k = N/w: the distances cost N²·d/w; N√N needs w = √N, here {floor_sqrt(n)}"
        elif self.clusters is not None and self.window is None:
            yield f"w = N/k: attention costs N²·d/k; N√N needs k = √N, here {floor_sqrt(n)}"
        if self.memories():
            yield f"{self.memories()} memory key(s) and value(s) per cluster: parameters depend on how many there are"
        padded = round_up(n, self.block())
        if self.local_heads and padded != n:
            yield PaddingNote(
                f"local heads pad {n} tokens to {padded}, whole blocks of {self.block()}; the padding is counted"
            )


# Beside the rows' first outputs.
_UNIT_KEYS: Final = "keys of length 1"
_KEY_DISTANCES: Final = "distances of the keys"
_GATHERED_KEYS: Final = "gathered keys"
_GATHERED_VALUES: Final = "gathered values"
_VALUES: Final = "values and their neighbours"


class _RoutingTensors(NamedTuple):
    """N `tokens`, h routed `heads` of the width `inner` together; k `clusters` of w tokens and m memory keys each."""

    tokens: Number
    clusters: Number
    window: Number
    memories: Number
    heads: Number
    inner: Number
    shared: bool

    @property
    def projected(self) -> str:
        return "qv" if self.shared else "qkv"

    def vectors(self, name: str) -> Tensor:
        return Tensor(name, (self.tokens, self.inner))

    def distances(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.tokens, self.clusters), constant=True)

    def chosen(self, name: str) -> Tensor:
        return Tensor(name, (self.heads, self.clusters, self.window), "int64", constant=True)

    def members(self, name: str) -> Tensor:
        return Tensor(name, (self.clusters, self.window, self.inner))

    def _mask(self, name: str) -> Tensor:
        shape = (self.heads, self.clusters, self.window, self.window + self.memories)
        return Tensor(name, shape, "bool", constant=True)

    @property
    def sides(self) -> tuple[str, ...]:
        """The rows that choose queries and keys."""
        return ("choose",) if self.shared else ("choose", "choose_keys")

    @property
    def operands(self) -> tuple[str, str, str]:
        """Queries, keys and values of the clusters."""
        return ("gather", *(("memory_keys", "memory_values") if self.memories else (_GATHERED_KEYS, _GATHERED_VALUES)))

    @property
    def mask(self) -> Tensors:
        """Of a fused kernel, from the places."""
        places = tuple(self.chosen(at) for at in self.sides)
        return Tensors(places, (self._mask(OUTPUT),), beside=True)

    def core(self, row: Operation, *, has_mask: bool) -> Operation:
        """`row` of the core: every sample has masks of its own, and no heads are joined after it."""
        if row.tensors is None:
            return row
        if row.path == "mask":
            reads = (*row.tensors.reads, *(self.chosen(at) for at in self.sides))
            tensors = msgspec.structs.replace(row.tensors, reads=reads, makes=(self._mask("masks"),))
        else:
            tensors = msgspec.structs.replace(row.tensors, rearranged=None)
        row = msgspec.structs.replace(row, tensors=tensors)
        return with_mask(row, self._mask("mask")) if has_mask else row

    def join(self, local: Number) -> Tensors:
        """Local heads, of the width `local` together, before the routed ones."""
        reads = (Tensor(BEFORE, (self.tokens, local)), self.vectors("average"))
        return Tensors(reads, (Tensor(OUTPUT, (self.tokens, local + self.inner)),))


class _LocalTensors(NamedTuple):
    """N `tokens` in G `groups` of b, which read `blocks` blocks each; h local `heads` of the width `inner` together."""

    tokens: Number
    groups: Number
    block: Number
    blocks: Number
    heads: Number
    inner: Number

    @property
    def padded(self) -> Number:
        return self.groups * self.block

    @property
    def keys(self) -> tuple[Number, ...]:
        return self.groups, self.blocks * self.block, self.inner

    @property
    def operands(self) -> tuple[str, str, str]:
        """Queries, keys and values of the blocks."""
        return "local_cut", "local_look", _VALUES

    def core(self, row: Operation) -> Operation:
        """`row` of the core: blocks, heads and samples of overlapping keys and values are merged by a copy."""
        if row.tensors is None:
            return row
        merged = merged_heads(self.keys, self.groups, self.keys[1], self.heads)
        saves = row.tensors.saves
        if not row.fused:
            saves = tuple(
                msgspec.structs.replace(one, copied=merged) if one.name in self.operands[1:] else one for one in saves
            )
        return msgspec.structs.replace(row, tensors=msgspec.structs.replace(row.tensors, saves=saves, rearranged=None))
