"""Routing attention: online k-means clusters the tokens; a token reads the tokens of its clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from xfcost.formulas.arithmetic import ceil_div, floor_sqrt, greater, lesser, round_up
from xfcost.formulas.banded_attention import squares
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
from xfcost.formulas.letters import lettered
from xfcost.formulas.mixers import ApproximatelyCausalMixer
from xfcost.ledger.operation import Mixing
from xfcost.ledger.units import number_of
from xfcost.mechanisms.window import normalized
from xfcost.program.attention import attend, compared_mask, fixed_mask, join_heads, split_heads
from xfcost.program.functions import joined
from xfcost.program.leaves import Distances, Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor


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
    titles: ClassVar[Mapping[str, str]] = {
        "average": "Mean over the clusters of a token",
        "choose": "Nearest queries of every cluster",
        "choose_keys": "Nearest keys of every cluster",
        "cut": "Pad queries to whole blocks",
        "distances": "Distances to the centroids",
        "gather": "Gather the clusters' queries, keys, values",
        "join": "Local and routed heads beside each other",
        "look": "Blocks of keys, values and their neighbours",
        "memory_keys": "Memory keys",
        "memory_values": "Memory values",
        "qv": "Q = K, V projections",
    }
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

    def forward(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        width, bias = self.head_width(place.dim), self.projection_bias
        heads = self.heads - self.local_heads
        name, parts = ("qv", 2) if self.shared_qk else ("qkv", 3)
        projected = t.linear(name, x, parts * heads * width, bias=bias).chunk(parts, -1)
        *sides, v = (split_heads(part, heads) for part in projected)
        y = self._routed(t, sides, v, place)
        if self.local_heads:
            inner = self.local_heads * width
            local = t.linear("local_qkv", x, 3 * inner, bias=bias, title="Q, K, V projections (local)")
            y = t.leaf("join", joined, self._local(t, local, place), y)
        return t.linear("out", join_heads(y), place.dim, bias=bias)

    def _routed(self, t: Operations, sides: Sequence[Tensor], v: Tensor, place: Place) -> Tensor:
        """Attention inside clusters, of queries and keys, or of queries that are the keys: (B, H, N, K)."""
        count, window, *_ = clusters = self.sizes(place.grid)
        heads, entries = v.shape[1], len(sides) * place.grid.total * v.shape[1] * count
        units = [t.leaf("normalize", normalized, part) for part in sides]
        # they decide what is read, which has no gradient
        facts = {"attention_entries": entries, "matrix": True, "heads": heads}
        near = [t.run("distances", Distances(count, len(sides)), unit, **facts) for unit in units]
        at_q, at_k = t.leaf("choose", nearest, near[0], options={"window": window}), None
        if not self.shared_qk:
            at_k = t.leaf("choose_keys", nearest, near[1], options={"window": window})
        at_k, keys = (at_q, units[0]) if at_k is None else (at_k, sides[1])
        q, k, v = (t.leaf("gather", gathered, part, at) for part, at in ((sides[0], at_q), (keys, at_k), (v, at_k)))
        if memories := self.memories():
            shape = (heads, count, memories, v.shape[-1])
            k, v = (
                t.leaf(name, memory_first, part, weights=(Weight(shape, "standard"),))
                for name, part in (("memory_keys", k), ("memory_values", v))
            )
        # clusters of all heads side by side
        parts = (part.flatten(1, 2) for part in (q, k, v))
        mixing = {"mixing": clusters.mixing, "reads": clusters.reads, "reads_tokens": window, "heads": heads}
        mask = self._mask(t, at_q, at_k, heads)
        y = attend(
            t, *parts, fused=place.fused, pairs=self._cluster_pairs(clusters), mixing=mixing, mask=mask,
        )  # fmt: skip
        options = {"tokens": place.grid.total}
        return t.leaf("average", averaged, y.unflatten(1, (heads, count)), at_q, options=options)

    def _mask(self, t: Operations, at_q: Tensor, at_k: Tensor, heads: Number) -> Callable[..., Tensor] | None:
        """Shuts later keys (causal), and the query itself (shared), unless it is the only key."""
        if not self.causal and not self.shared_qk:
            return None
        query = at_q.flatten(1, 2)
        key = query if self.shared_qk else at_k.flatten(1, 2)
        options = {"memories": self.memories(), "causal": bool(self.causal), "shared": self.shared_qk}
        mask = compared_mask(t, unread, (), query, key, **options)
        return lambda scores, **facts: mask(scores, **facts | {"heads": heads})

    def _cluster_pairs(self, clusters: Clusters) -> Number:
        """Pairs per head of all clusters, memory keys among them; None where they depend on the content."""
        w, learned = clusters.window, clusters.window * self.memories()
        if not self.shared_qk:
            return None if self.causal else clusters.count * (w * w + learned)
        other_pairs = w * (w - 1) // 2 if self.causal else w * (w - 1)
        self_pairs = 1 if self.causal else 1 - lesser(1, w - 1)
        return clusters.count * (other_pairs + (learned if self.memories() else self_pairs))

    def _local(self, t: Operations, x: Tensor, place: Place) -> Tensor:
        """Attention of each block to itself and its neighbours: (B, N, 3·H·K) -> (B, H, N, K)."""
        n, block, after = place.grid.total, self.block(), 0 if self.causal else 1
        padded, blocks, part = round_up(n, block), 2 + after, t.part("local")
        q, k, v = (split_heads(one, self.local_heads) for one in x.chunk(3, -1))
        look = {"block": block, "before": 1, "more": padded - n, "after": after}
        q = part.leaf("cut", in_blocks, q, options=look | {"before": 0, "after": 0})
        k, v = (part.leaf("look", in_blocks, one, options=look) for one in (k, v))
        mixing = {"mixing": "local", "reads": f"{blocks}·b"}
        options = {"tokens": n, "block": block, "after": after, "causal": bool(self.causal)}
        shape = (padded // block, 1, block, blocks * block)
        shut = Weight(shape, Worked("clusters:beside_block", options), "shut", learns=False)
        part = t.part("local", "local")
        mask = fixed_mask(part, shut)
        y = attend(part, q, k, v, fused=place.fused, pairs=self._local_pairs(n), mixing=mixing, mask=mask)
        return y.transpose(1, 2).flatten(2, 3).narrow(2, 0, n)

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
            f"each of {number_of(count, 'cluster')} takes its nearest {window} queries and keys: a token may be in "
            "several clusters, or in none (its routed heads then read nothing)"
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


def nearest(t: Functions, near: Tensor, *, window: int) -> Tensor:
    """The tokens nearest to each centroid: (B, H, N, C) -> (B, H, C, W)."""
    _, indices = near.mT.topk(window, -1)
    return indices


def gathered(t: Functions, x: Tensor, chosen: Tensor) -> Tensor:
    """The tokens of each cluster: (B, H, N, K), (B, H, C, W) -> (B, H, C, W, K)."""
    index = chosen.flatten(2).unsqueeze(-1).expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, index).unflatten(2, chosen.shape[2:])


def memory_first(t: Functions, x: Tensor, memory: Tensor) -> Tensor:
    """Learned keys (or values) of each cluster, before those of its tokens: (B, H, C, W, K) -> (B, H, C, M, K)."""
    return t.cat([memory.expand(x.shape[0], -1, -1, -1, -1), x], 3)


def unread(t: Functions, at_q: Tensor, at_k: Tensor, *, memories: int, causal: bool, shared: bool) -> Tensor:
    """What a query of a cluster does not read, of tokens at these places: (B, C, W), (B, C, W) -> (B, C, W, M)."""
    query, key = at_q.unsqueeze(-1), at_k.unsqueeze(-2)
    if not shared:
        shut = key > query
    else:
        itself = t.eq(key, query)
        shut = key >= query if causal else itself
        if not memories:
            others = shut.logical_not().any(-1).unsqueeze(-1)
            shut = shut.logical_and(others.logical_or(itself.logical_not()))
    return t.pad(shut, -1, before=memories) if memories else shut


def averaged(t: Functions, y: Tensor, chosen: Tensor, *, tokens: int) -> Tensor:
    """Each token's mean over the clusters that it is in, zero if in none: (B, H, C, W, K) -> (B, H, N, K)."""
    y, index = y.flatten(2, 3), chosen.flatten(2)
    batch, heads, places, width = y.shape
    total = t.zeros(batch, heads, tokens, width, like=y)
    total = total.scatter_add(2, index.unsqueeze(-1).expand(-1, -1, -1, width), y)
    counts = t.zeros(batch, heads, tokens, like=y).scatter_add(2, index, t.ones(batch, heads, places, like=y))
    return total / counts.clamp(min=1).unsqueeze(-1)


def in_blocks(t: Functions, x: Tensor, *, block: int, before: int, more: int, after: int) -> Tensor:
    """Blocks with `before` and `after` neighbours, a view of padded tokens: (B, H, N, K) -> (B, G, H, R, K).

    `more` padding tokens fill the last block.
    """
    sides = before * block, more + after * block
    if any(sides):
        x = t.pad(x, 2, before=sides[0], after=sides[1])
    return x.unfold(2, (before + 1 + after) * block, block).permute(0, 2, 1, 4, 3)
