"""Mamba-2 under the contract: its convolution tap by tap, its state token by token."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase, Rows
from cases.mamba import silu
from xfcost.grid import Grid
from xfcost.mechanisms import Mamba2
from xfcost.mechanisms.base import Place


def convolved(page: Mamba2, place: Place, twin: nn.Module, x: Tensor) -> Tensor:
    taps, answers = twin.conv.weight[:, 0], []
    for token in range(place.grid.total):
        back = [(page.conv - 1 - lag, token - lag) for lag in range(min(page.conv, token + 1))]
        answers.append(sum(x[:, other] * taps[:, at] for at, other in back) + twin.conv.bias)
    return silu(torch.stack(answers, dim=1))


def reference(page: Mamba2, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Dao and Gu 2024, equation 2 with A a number per head: h_t = exp(Δ A) h + Δ u⊗B, y = C·h."""
    inner, heads = page.inner(place.dim), page.head_count(place.dim)
    mixed = page.groups * page.state
    z, entering, step = (x_BND @ twin.in_proj.weight.T).split([inner, inner + 2 * mixed, heads], dim=-1)
    u, b, c = convolved(page, place, twin, entering).split([inner, mixed, mixed], dim=-1)
    step = (1 + (step + twin.step.bias).exp()).log()
    states = [torch.zeros(len(x_BND), page.head_dim, page.state, dtype=x_BND.dtype) for _ in range(heads)]
    tokens = []
    for token in range(place.grid.total):
        answers = []
        for head in range(heads):
            group = head // (heads // page.groups)
            part = slice(head * page.head_dim, (head + 1) * page.head_dim)
            numbers = slice(group * page.state, (group + 1) * page.state)
            dt, now = step[:, token, head, None, None], u[:, token, part, None]
            kept = (-dt * twin.decay.log[head].exp()).exp()
            states[head] = kept * states[head] + dt * now * b[:, token, None, numbers]
            read = (states[head] * c[:, token, None, numbers]).sum(-1)
            answers.append(read + twin.skip.weight[head] * now.squeeze(-1))
        tokens.append(torch.cat(answers, dim=-1))
    y = torch.stack(tokens, dim=1) * silu(z)
    parts = [part / (part.square().mean(-1, keepdim=True) + 1e-5).sqrt() for part in y.chunk(page.groups, dim=-1)]
    return (torch.cat(parts, dim=-1) * twin.norm.weight) @ twin.out_proj.weight.T


@st.composite
def pages(draw: st.DrawFn) -> Mamba2:
    expand = draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([1, 2, 3, 6]))
    heads = expand * 12 // head_dim
    return Mamba2(
        state=draw(st.integers(1, 20)),
        head_dim=head_dim,
        groups=draw(st.sampled_from([group for group in range(1, heads + 1) if heads % group == 0])),
        conv=draw(st.integers(1, 9)),
        expand=expand,
        chunk=draw(st.integers(1, 9)),
    )


CASE = MechanismCase(
    rows=Rows(
        dim=12,
        grids=lambda page: (Grid((3 * page.chunk,)), Grid((6 * page.chunk,))),
        # of some heads, the first chunks have decayed to nothing
        uncounted=frozenset(("read",)),
        states=frozenset(("carry",)),
        in_tokens=frozenset(("carry", "spans")),
        # the states before the last chunk don't hold it; a chunk's sum stands at its last token
        fewer=dict.fromkeys(("carry", "read"), lambda page, place: page.chunk)
        | {
            "fade": lambda page, place: page.chunk - 2,
            "spans": lambda page, place: place.grid.total - place.grid.total // page.chunk,
        },
    ),
    page=Mamba2,
    examples=(
        Mamba2(state=3, head_dim=3, chunk=4),
        Mamba2(state=2, head_dim=2, groups=2, conv=1, expand=2, chunk=5),
        Mamba2(state=4, head_dim=2, expand=1, conv=9, chunk=8),
    ),
    pages=pages(),
    reference=reference,
    growth=lambda page: (Grid((page.chunk,)), Grid((2 * page.chunk,))),
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    channels_first=lambda leaf: leaf == "conv",
)
