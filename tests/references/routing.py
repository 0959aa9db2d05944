"""Routing attention (Roy et al. 2021, §4), head by head, cluster by cluster, query by query."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, attend, linear, thirds


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Local heads first, then routed ones."""
    answers, routed = [], options.heads - options.local_heads
    if options.local_heads:
        answers.append(attend(*thirds(weights.local_qkv, x), options.local_heads, near(options)))
    if weights.qv is not None:
        q, v = thirds(weights.qv, x, 2)
        k = q
    else:
        q, k, v = thirds(weights.qkv, x)
    for head, mine in enumerate(torch.arange(q.shape[-1]).chunk(routed)):
        samples = zip(*(part[..., mine] for part in (q, k, v)), strict=True)
        answers.append(torch.stack([routed_head(options, place, weights, head, *sample) for sample in samples]))
    return linear(weights.out, torch.cat(answers, -1))


def near(options: Options):
    """The block of a token, the one before it and (not causal) the one after it."""
    block = options.local_window or options.window

    def reads(n: int, m: int) -> bool:
        if options.causal:
            return m <= n and n // block - m // block <= 1
        return abs(n // block - m // block) <= 1

    return reads


def window(options: Options, tokens: int) -> int:
    """w, tokens of a cluster: as given, else N/k with k = ⌊√N⌋ clusters where they aren't given either."""
    if options.window is not None:
        return min(options.window, tokens)
    return math.ceil(tokens / (options.clusters or math.isqrt(tokens)))


def routed_head(options: Options, place: Place, weights: Weights, head: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A token that several clusters took gets their mean; one that none took gets zeros."""
    unit_q, unit_k = (part / part.norm(dim=-1, keepdim=True) for part in (q, k))
    k = unit_k if options.shared_qk else k
    memories = options.memory_keys
    if options.causal and not options.shared_qk:  # a query that nothing in its cluster comes before
        memories = max(memories, 1)
    taken: list[list[Tensor]] = [[] for _ in v]
    for cluster, centroid in enumerate(weights.distances.centroids_HCK[head]):
        w = window(options, place.total)
        queries, keys = (nearest(unit.detach() @ centroid, w) for unit in (unit_q, unit_k))
        for query in queries:
            read = [key for key in keys if key <= query or not options.causal]
            if options.shared_qk:  # itself, only where nothing else is
                read = [key for key in read if key != query] or ([] if memories else [query])
            held = [
                (weights.memory_keys.weight[head, cluster, m], weights.memory_values.weight[head, cluster, m])
                for m in range(memories)
            ]
            pairs = held + [(k[key], v[key]) for key in read]
            read_k, read_v = (torch.stack(column) for column in zip(*pairs, strict=True))
            taken[query].append((read_k @ q[query] / math.sqrt(q.shape[-1])).softmax(0) @ read_v)
    return torch.stack([sum(mine) / len(mine) if mine else 0 * v[0] for mine in taken])


def nearest(cosines: Tensor, count: int) -> list[int]:
    return sorted(range(len(cosines)), key=lambda token: -float(cosines[token]))[:count]
