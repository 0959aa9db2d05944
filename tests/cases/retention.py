"""Retention under the contract, in its three forms: one plain quadratic sum."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import Retention
from xfcost.mechanisms.base import Place


def turned(x_BNK: Tensor, base: float = 10000.0) -> Tensor:
    """Column i and column i + K/2 turned by n·base^(-2i/K)."""
    half = x_BNK.shape[-1] // 2
    angle = torch.arange(x_BNK.shape[1])[:, None].double() * base ** (-torch.arange(half).double() / half)
    cos, sin = angle.cos().float().double(), angle.sin().float().double()  # as the tables are kept
    first, second = x_BNK.split(half, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def reference(page: Retention, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Sun et al. 2023, equations 5 and 8: Σ γ^(n-m) (q_n·k_m) v_m, normed head by head, gated."""
    d, n = place.dim, place.grid.total
    weights = twin.qkv.weight.T.split([d, d, page.values(d)], dim=-1)
    answers = []
    for head, parts in enumerate(zip(*((x_BND @ weight).chunk(page.heads, dim=-1) for weight in weights), strict=True)):
        q, k, v = turned(parts[0]), turned(parts[1]), parts[2]
        gamma = 1 - 2.0 ** (-5 - head)
        tokens = []
        for token in range(n):
            terms = [
                gamma ** (token - other)
                * ((q[:, token] * k[:, other]).sum(-1, keepdim=True) / q.shape[-1] ** 0.5)
                * v[:, other]
                for other in range(token + 1)
            ]
            tokens.append(sum(terms))
        y = torch.stack(tokens, dim=1)
        if page.norm == "layer_norm":
            y = y - y.mean(-1, keepdim=True)
        epsilon = 1e-5 if page.norm == "layer_norm" else 1e-6
        answers.append(y / (y.square().mean(-1, keepdim=True) + epsilon).sqrt())
    gate = x_BND @ twin.gate_proj.weight.T
    return (torch.cat(answers, dim=-1) * gate / (1 + (-gate).exp())) @ twin.out.weight.T


@st.composite
def pages(draw: st.DrawFn) -> Retention:
    heads = draw(st.sampled_from([1, 2, 3, 6]))
    form = draw(st.sampled_from(["parallel", "chunkwise", "recurrent"]))
    return Retention(
        heads=heads,
        value_dim=draw(st.none() | st.integers(1, 9).map(lambda times: times * heads)),
        form=form,
        chunk=draw(st.none() | st.integers(1, 9)) if form == "chunkwise" else None,
        norm=draw(st.sampled_from(["layer_norm", "rms_norm"])),
    )


CASE = MechanismCase(
    rows=Rows(
        dim=36,
        grids=lambda page: (Grid((3 * (page.chunk or 4),)), Grid((6 * (page.chunk or 4),))),
        states=frozenset(("carry",)),
        in_tokens=frozenset(("carry",)),
        # the states before the last chunk don't hold it
        fewer=dict.fromkeys(("carry", "read"), lambda page, place: page.chunk or 0),
    ),
    page=Retention,
    examples=(
        Retention(heads=2),
        Retention(heads=3, value_dim=15, norm="rms_norm", form="chunkwise", chunk=4),
        Retention(heads=2, form="chunkwise", chunk=5),
        Retention(heads=6, form="recurrent"),
    ),
    pages=pages(),
    reference=reference,
    growth=lambda page: (Grid((page.chunk or 6,)), Grid((2 * (page.chunk or 6),))),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    dim=12,
)
