"""Routing attention under the contract."""

from __future__ import annotations

import copy

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, Frozen, MechanismCase, Rows
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.routing import Routing

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


class Held(nn.Module):
    """What was chosen once, whatever comes in."""

    def __init__(self, chosen_1HCW: Tensor) -> None:
        super().__init__()
        self.register_buffer("chosen_1HCW", chosen_1HCW)

    def forward(self, near_BHNC: Tensor) -> Tensor:
        return self.chosen_1HCW.expand(near_BHNC.shape[0], -1, -1, -1)


def frozen(torch_module: nn.Module, inputs: tuple[Tensor, ...]) -> Frozen:
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
        leaf = getattr(module, name)
        if leaf is not None:
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


@st.composite
def components(draw: st.DrawFn) -> Routing:
    heads = draw(HEADS)
    local_heads = draw(st.integers(0, heads - 1))
    sizes = st.none() | st.integers(1, 9)
    return Routing(
        heads=heads,
        clusters=draw(sizes),
        window=draw(sizes),
        shared_qk=draw(st.booleans()),
        memory_keys=draw(st.integers(0, 2)),
        local_heads=local_heads,
        local_window=draw(st.integers(1, 9)) if local_heads else draw(sizes),
        causal=draw(st.none() | st.just("approximate") | st.just(value=False)),
        projection_bias=draw(st.booleans()),
    )


def growth(component: Routing) -> tuple[Grid, Grid]:
    """Whole clusters and blocks; √N has to grow with N, too."""
    n = 16 if component.window is None else 16 * component.window
    return Grid((n,)), Grid((2 * n,))


CASE = MechanismCase(
    rows=Rows(own_parts=frozenset(("average",))),
    component=Routing,
    examples=(
        Routing(heads=2),
        Routing(heads=2, window=4, shared_qk=True, causal="approximate"),
        Routing(heads=3, clusters=2, causal="approximate", projection_bias=False),
        Routing(heads=2, head_dim=2, window=6, local_heads=1, local_window=2, causal="approximate", shared_qk=True),
        Routing(heads=2, clusters=2, window=3, memory_keys=1, shared_qk=True, local_heads=1),
    ),
    components=components(),
    growth=growth,
    grids=(Grid((1,)), Grid((2,)), Grid((5,)), Grid((2, 4)), Grid((13,)), Grid((3, 4)), Grid((9,), 1)),
    frozen=frozen,
)
