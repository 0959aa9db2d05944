"""Relative attention under the contract."""

from __future__ import annotations

import math

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import HEADS, SEQUENCES, MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import Relative
from xfcost.mechanisms.base import Place


def reference(page: Relative, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """With zeros for a memory, as the twin stands."""
    memory_BPD = x_BND.new_zeros(x_BND.shape[0], page.memory, place.dim)
    return with_memory(page, twin, x_BND, memory_BPD)


def with_memory(page: Relative, twin: nn.Module, x_BND: Tensor, memory_BPD: Tensor) -> Tensor:
    """Dai et al. 2019, §3.3, term by term: A = q·k + q·W_R R + u·k + v·W_R R, with R of the distance i-j."""
    past, tokens = memory_BPD.shape[1], x_BND.shape[1]
    all_BMD = torch.cat([memory_BPD, x_BND], dim=1)
    q = F.linear(x_BND, twin.q.weight, twin.q.bias)
    k, v = F.linear(all_BMD, twin.kv.weight, twin.kv.bias).chunk(2, dim=-1)
    u, w = twin.core.content_bias.weight[0], twin.core.position_bias.weight[0]
    heads = []
    for here in torch.arange(q.shape[-1]).chunk(page.heads):
        rows = []
        for i in range(tokens):
            keys = range(past + i + 1) if page.causal else range(past + tokens)
            r = torch.stack([encoding(past + i - j, x_BND) for j in keys]) @ twin.core.r.weight[here].T
            mine_BK, theirs_BMK = q[:, i, here], k[:, list(keys)][..., here]
            content = torch.einsum("bk,bmk->bm", mine_BK, theirs_BMK) + theirs_BMK @ u[here]
            position = mine_BK @ r.T + r @ w[here]
            weights = ((content + position) / math.sqrt(len(here))).softmax(-1)
            rows.append(torch.einsum("bm,bmk->bk", weights, v[:, list(keys)][..., here]))
        heads.append(torch.stack(rows, dim=1))
    return F.linear(torch.cat(heads, dim=-1), twin.out.weight, twin.out.bias)


def encoding(distance: int, like: Tensor) -> Tensor:
    """sin and cos of distance/10000^(2i/d), in single precision as a model holds it."""
    width = like.shape[-1]
    angles = [distance / 10000 ** (2 * i / width) for i in range((width + 1) // 2)]
    waves = [wave(angle) for wave in (math.sin, math.cos) for angle in angles]
    return torch.tensor(waves[:width], dtype=torch.float32).to(like.dtype)


CASE = MechanismCase(
    rows=Rows(
        positional=lambda page: frozenset(
            (
                "position_scores",
                "position_shift",
            )
        ),
        masks=frozenset(("mask",)),
        past=lambda page, place: (torch.zeros(1, page.past, place.dim),) if page.past else (),
        more={"position_scores": lambda page, place: 0 if page.causal else place.grid.total - 1},
    ),
    page=Relative,
    examples=(
        Relative(heads=2, causal=True, memory=3),
        Relative(heads=3, projection_bias=True),
        Relative(heads=1, head_dim=4, causal=True, memory=7, memory_queries=True),
        Relative(heads=2, memory=2),
    ),
    pages=st.builds(
        Relative,
        heads=HEADS,
        head_dim=st.none() | st.integers(1, 64),
        causal=st.none() | st.booleans(),
        projection_bias=st.booleans(),
        memory=st.integers(0, 9),
        memory_queries=st.booleans(),
        share=st.sampled_from([None, "biases"]),
    ),
    reference=reference,
    grids=(*SEQUENCES[:-1], Grid((2, 2), 1)),
)
