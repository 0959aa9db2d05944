"""Attention whose content chooses what is read, under the contract."""

import copy
import math
from math import isqrt
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import SEQUENCES, Frozen, Letters, MechanismCase, Rows, any_of, ceil_div, doubled, whole
from references.chosen import Readings, everything, readings
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.deformable import Deformable
from xfcost.mechanisms.routing import Routing
from xfcost.mechanisms.sorting import Lsh, Sinkhorn


def _lsh(component: Any, place: Place) -> Letters:
    n, chunk = place.grid.total, component.bucket
    padded = n if n <= chunk else whole(n, chunk)
    buckets = component.buckets or 2 * padded // chunk
    return {"R": component.rounds, "c": chunk, "P": padded, "b": sum(buckets) if isinstance(buckets, list) else buckets}


def _routing(component: Any, place: Place) -> Letters:
    n, local, causal = place.grid.total, component.local_heads, bool(component.causal)
    clusters, window = component.clusters, component.window and min(component.window, n)
    clusters = clusters or (ceil_div(n, window) if window else isqrt(n))
    block = component.local_window or component.window or 1
    return {
        "H": component.heads - local,
        "H_l": local,
        "k": clusters,
        "w": window or ceil_div(n, clusters),
        "m": max(component.memory_keys, int(causal and not component.shared_qk)),
        "b": block,
        "G": ceil_div(n, block),
        "t": 2 if causal else 3,
    }


def buckets_of(module: nn.Module, qk_BPD: Tensor) -> Tensor:
    """(B, H, R, P): the number of the column that a query is nearest to, of all columns and their opposites."""
    columns_HKr = module.rotate.columns_HKr
    queries_BHPK = torch.stack(qk_BPD.detach().chunk(len(columns_HKr), -1), 1)
    rounds = torch.einsum("bhpk,hkr->bhpr", queries_BHPK, columns_HKr).chunk(module.hash.rounds, -1)
    numbers = []
    for rotated in rounds:
        number, times = 0, 1
        for part, factor in zip(
            rotated.split([f // 2 for f in module.hash.factors], -1), module.hash.factors, strict=True
        ):
            column = part.abs().argmax(-1)
            opposite = part.gather(-1, column.unsqueeze(-1)).squeeze(-1) < 0
            number = number + times * (column + opposite * (factor // 2))
            times *= factor
        numbers.append(number)
    return torch.stack(numbers, 2)


class Held(nn.Module):
    """What was chosen once, for every sample whatever comes in."""

    def __init__(self, chosen: Tensor) -> None:
        super().__init__()
        self.register_buffer("chosen", chosen)

    def forward(self, x: Tensor) -> Tensor:
        return self.chosen.expand(len(x), *self.chosen.shape[1:])


def lsh_frozen(module: nn.Module, inputs: tuple[Tensor, ...]) -> Frozen:
    """The module with the buckets of these inputs held, and what each token then reads, over all heads and rounds.

    A token sways its own answer through its query wherever that has something to weigh: one key alone is weighed 1.
    """
    (x_1ND,) = inputs
    tokens, causal = x_1ND.shape[1], bool(module.config.causal)
    if module.config.fits_one_chunk(module.place.grid):
        return Frozen(module, read_by_token([everything(tokens, causal=causal)], tokens))
    padded = module.hash.token_P1.shape[0]
    qk_1PD = F.linear(F.pad(x_1ND, (0, 0, 0, padded - tokens)), module.query_key.weight, module.query_key.bias)
    buckets = buckets_of(module, qk_1PD)
    held = copy.deepcopy(module)
    held.hash = Held(torch.where(module.hash.token_P1.squeeze(-1), buckets, buckets.max() + 1))
    heads = [readings(bucket_RP.tolist(), tokens, module.config.bucket, causal=causal) for bucket_RP in buckets[0]]
    return Frozen(held, read_by_token(heads, tokens))


def read_by_token(heads: list[Readings], tokens: int) -> tuple[frozenset[int], ...]:
    found = []
    for token in range(tokens):
        reads: set[int] = set()
        for rounds in heads:
            keys = [key for one in rounds for key in one[token]]
            reads |= set(keys) if len(keys) == 1 else {token, *keys}
        found.append(frozenset(reads))
    return tuple(found)


EVEN = st.integers(1, 20).map(lambda half: 2 * half)

LSH = MechanismCase(
    letters=lambda component, place: _lsh(component, place) | {"r": component.rounds},
    letters_of_reads=lambda component, place: {"b": component.bucket},
    flags={
        "causal": "nothing (pairs)",
        "heads": "hash logsumexp normalise scores softmax undo weights",
        "head_dim": "all but hash logsumexp mask pad softmax sort weights",
        "projection_bias": "key out value",
        "rounds": "all but key mask out pad sort value",
        "bucket": "all but mask",
        "buckets": "hash rotate",
    },
    examples=(
        Lsh(heads=2, rounds=2, bucket=3),
        Lsh(heads=2, rounds=1, bucket=2, causal="approximate"),
        Lsh(heads=1, rounds=3, bucket=4, buckets=[2, 4], head_dim=5, projection_bias=True),
        Lsh(heads=3, rounds=1, bucket=3, buckets=6),
    ),
    components=any_of(Lsh, buckets=st.none() | EVEN | st.lists(EVEN, min_size=2, max_size=4)),
    # long enough that in both some token reads as many as it can: none twice, in no round and no head
    growth=lambda component: doubled(32 * component.bucket),
    grids=SEQUENCES,
    frozen=lsh_frozen,
    fused=False,
)


# One head's choice: for every cluster, its queries and its keys.
Members = list[tuple[list[int], list[int]]]


def projected(torch_module: nn.Module, x_BND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, values of the routed heads."""
    if hasattr(torch_module, "qv"):
        q, v = F.linear(x_BND, torch_module.qv.weight, torch_module.qv.bias).chunk(2, dim=-1)
        return q, q, v
    q, k, v = F.linear(x_BND, torch_module.qkv.weight, torch_module.qkv.bias).chunk(3, dim=-1)
    return q, k, v


def reads_key(component: Routing, query: int, key: int) -> bool:
    return key <= query or not component.causal


def routing_frozen(torch_module: nn.Module, inputs: tuple[Tensor, ...]) -> Frozen:
    """The choice for tokens in as many groups as there are clusters, round robin, each centroid on its group.

    Queries and keys are given the same weights, so that a group's queries and keys lie in one place.
    """
    module, (x_BND,) = copy.deepcopy(torch_module).requires_grad_(requires_grad=False), inputs
    if hasattr(module, "qkv"):
        q_part, k_part, _ = module.qkv.weight.chunk(3)
        k_part.copy_(q_part)
        if module.qkv.bias is not None:
            q_part, k_part, _ = module.qkv.bias.chunk(3)
            k_part.copy_(q_part)
    heads, count, _ = module.distances.centroids_HCK.shape
    tokens = x_BND.shape[1]
    noise = torch.Generator().manual_seed(4)
    middle_CD = torch.randn(count, x_BND.shape[2], generator=noise, dtype=x_BND.dtype)
    blur_1ND = torch.randn(1, *x_BND.shape[1:], generator=noise, dtype=x_BND.dtype) * 1e-5
    q_1CI = projected(module, middle_CD[None])[0]
    module.distances.centroids_HCK.copy_(F.normalize(q_1CI[0].unflatten(-1, (heads, -1)).transpose(0, 1), dim=-1))
    chosen = {}
    for name in ("choose", "choose_keys"):
        if hasattr(module, name):
            leaf = getattr(module, name)
            leaf.register_forward_hook(lambda _, __, output, name=name: chosen.update({name: output}))
    module(middle_CD[torch.arange(tokens) % count][None] + blur_1ND)
    for name, choice in chosen.items():
        setattr(module, name, Held(choice))
    queries = chosen["choose"][0].tolist()
    keys = chosen.get("choose_keys", chosen["choose"])[0].tolist()
    members: list[Members] = [list(zip(*head, strict=True)) for head in zip(queries, keys, strict=True)]
    return Frozen(module, *what_is_read(module, tokens, members))


def what_is_read(module: nn.Module, tokens: int, members: list[Members]) -> tuple[tuple[frozenset[int], ...], int]:
    """Out of the clusters' members alone. A query with one key alone reads the key and not itself: its weight is 1."""
    component = module.config
    read: list[set[int]] = [set() for _ in range(tokens)]
    most = 1
    for head in members:
        most = max(most, *(sum(token in queries for queries, _ in head) for token in range(tokens)))
        for queries, keys in head:
            for query in queries:
                mine = [key for key in keys if reads_key(component, query, key)]
                if component.shared_qk:
                    mine = [key for key in mine if key != query] or ([] if component.memories() else [query])
                read[query] |= {*mine, query} if len(mine) + component.memories() > 1 and mine else set(mine)
    if component.local_heads:
        block = component.local_window or component.window
        for token in range(tokens):
            around = range(token // block * block - block, (token // block + (1 if component.causal else 2)) * block)
            read[token] |= {key for key in around if 0 <= key < tokens and reads_key(component, token, key)}
    return tuple(map(frozenset, read)), most + (1 if component.local_heads else 0)


ROUTING = MechanismCase(
    rows=Rows(own_parts=frozenset(("average",))),
    letters=_routing,
    flags={
        "heads": "all but ^qkv choose choose_keys join local_softmax mask out",
        "head_dim": "all but choose choose_keys mask softmax",
        "projection_bias": "out qkv qv",
        "causal": "^mask look memory_keys scores softmax sum values",
        "clusters": "^scale ^scores ^softmax ^weighted_sum average distances gather memory_keys values",
        "window": "all but choose choose_keys join mask normalize out qkv qv",
        "shared_qk": "^mask ^qkv ^scores ^softmax ^weighted_sum distances keys normalize qv values",
        "memory_keys": "^scores ^softmax ^weighted_sum memory_keys values",
        "local_heads": "all but ^mask ^qkv choose choose_keys out",
        "local_window": "cut local_scale local_scores local_softmax local_weighted_sum look",
    },
    examples=(
        Routing(heads=2),
        Routing(heads=2, window=4, shared_qk=True, causal="approximate"),
        Routing(heads=3, clusters=2, causal="approximate", projection_bias=False),
        Routing(heads=2, head_dim=2, window=6, local_heads=1, local_window=2, causal="approximate", shared_qk=True),
        Routing(heads=2, clusters=2, window=3, memory_keys=1, shared_qk=True, local_heads=1),
    ),
    # whole clusters and blocks; √N has to grow with N, too
    growth=lambda component: doubled(16 * (component.window or 1)),
    grids=(Grid((1,)), Grid((2,)), Grid((5,)), Grid((2, 4)), Grid((13,)), Grid((3, 4)), Grid((9,), 1)),
    frozen=routing_frozen,
)


SINKHORN = MechanismCase(
    letters=lambda component, place: {
        "b": component.block,
        "I": component.iterations,
        "u": (u := ceil_div(place.grid.total, component.block)),
        "P": u * component.block,
        "v": u + bool(component.causal),
        "t": min(component.sortcut or u, u),
        "k": component.sortcut or 0,
    },
    flags={
        "heads": "balance logits scores softmax",
        "head_dim": "all but balance logits mask softmax",
        "causal": "balance keys logits mask pool queries reorder values",
        "block": "all but out qkv",
        "iterations": "balance",
        "sortcut": "^scores beside mask reorder softmax sum",
        "temperature": "nothing (numbers)",
    },
    examples=(
        Sinkhorn(heads=2, block=4),
        Sinkhorn(heads=3, block=3, iterations=2, temperature=0.5, projection_bias=False),
        Sinkhorn(heads=2, head_dim=4, block=4, causal=True),
        Sinkhorn(heads=1, block=2, iterations=1, sortcut=2),
    ),
    growth=lambda component: doubled(4 * component.block),
    grids=(Grid((1,)), Grid((2,)), Grid((5,)), Grid((3, 4)), Grid((13,)), Grid((7,), 1)),
)


def several(*maps: tuple[int, int]) -> Grid:
    """The tokens of several feature maps."""
    return Grid((sum(map(math.prod, maps)),), levels=maps)


def deformable_frozen(torch_module: nn.Module, inputs: tuple[Tensor, ...]) -> Frozen:
    """Offsets of up to two cells either way, the same for all tokens, so that all read as many off the border.

    Which cells lie around the points is worked out from the sides of the maps.
    """
    module = copy.deepcopy(torch_module).requires_grad_(requires_grad=False)
    maps = module.sample.options["maps"]
    tokens, heads, points = inputs[0].shape[1], module.config.heads, module.config.points
    noise = torch.Generator().manual_seed(6)
    # no multiple of a half: a point in the middle of a cell reads that cell alone
    offsets = 4 * torch.rand(1, 1, heads * len(maps) * points * 2, generator=noise, dtype=torch.float64) - 2
    offsets = offsets.expand(-1, tokens, -1)
    module.offsets = Held(offsets)
    places = [
        ((row + 0.5) / height, (column + 0.5) / width)
        for height, width in maps
        for row in range(height)
        for column in range(width)
    ]
    read: list[set[int]] = []
    for (y, x), mine in zip(places, offsets[0].reshape(tokens, heads, len(maps), points, 2).tolist(), strict=True):
        read.append(set())
        for head in mine:
            first = 0
            for (height, width), given in zip(maps, head, strict=True):
                for right, down in given:
                    top, left = math.floor(y * height + down - 0.5), math.floor(x * width + right - 0.5)
                    around = [(row, column) for row in (top, top + 1) for column in (left, left + 1)]
                    read[-1] |= {
                        first + row * width + column
                        for row, column in around
                        if 0 <= row < height and 0 <= column < width
                    }
                first += height * width
    return Frozen(module, tuple(map(frozenset, read)))


DEFORMABLE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12, 12)), Grid((16, 16))), own_parts=frozenset(("combine",))),
    letters=lambda component, place: {"k": component.points, "L": len(place.grid.levels or [0])},
    flags={
        "heads": "locate normalize offsets sample weights",
        "head_dim": "combine out sample value",
        "projection_bias": "offsets out value weights",
        "points": "all but out value",
    },
    examples=(
        Deformable(heads=2, points=1),
        Deformable(heads=3, points=2, projection_bias=False),
        Deformable(heads=2, head_dim=2, points=4),
    ),
    components=any_of(Deformable, on=Grid((3, 5))),
    growth=lambda component: doubled(8, 10),
    grids=(
        *(Grid(sides) for sides in [(1, 1), (1, 4), (3, 5), (5, 3), (7, 9)]),
        several((4, 5), (2, 3)),
        several((5, 3), (3, 2), (2, 1), (1, 1)),
        several((1, 2), (1, 1)),
    ),
    sides=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    image=True,
    fused=False,
    frozen=deformable_frozen,
)
