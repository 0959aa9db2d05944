"""Convolutions as sub-layers under the contract, tap by tap."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import SEQUENCES, MechanismCase
from xfcost.grid import Grid
from xfcost.mechanisms import Conv
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.conv import Convolve


def convolved(page: Convolve, grid: Grid, leaf: nn.Module, x_BND: Tensor) -> Tensor:
    """Every token out of its taps, each with a matrix (or, depthwise, a vector) of its own."""
    weight, answers = leaf.weight, []
    numbers = {spot: token for token, spot in enumerate(itertools.product(*map(range, grid.sides)))}
    before = page.size - 1 if page.causal else (page.size - 1) / 2
    for spot in numbers:
        total = 0
        for taps in itertools.product(range(page.size), repeat=len(grid.sides)):
            there = tuple(at + int((tap - before) * page.dilation) for at, tap in zip(spot, taps, strict=True))
            if there in numbers:
                x, here = x_BND[:, numbers[there]], weight[(slice(None), slice(None), *taps)]
                total = total + (x @ here.T if weight.shape[1] == x.shape[1] > 1 else x * here[:, 0])
        answers.append(total)
    return torch.stack(answers, dim=1) + (0 if leaf.bias is None else leaf.bias)


def reference(page: Conv, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    y = convolved(page, place.grid, twin.conv or twin.depthwise, x_BND)
    if page.form == "separable":
        y = y @ twin.pointwise.weight.T + (twin.pointwise.bias if page.bias else 0)
    if page.act == "glu":
        value, gate = y.chunk(2, dim=-1)
        return value / (1 + (-gate).exp())
    return y.clamp_min(0) if page.act == "relu" else y


FORMS = st.sampled_from(["plain", "depthwise", "separable"])


@st.composite
def pages(draw: st.DrawFn) -> Conv:
    causal = draw(st.none() | st.booleans())
    return Conv(
        size=draw(st.integers(1, 9)) if causal else draw(st.integers(0, 4)) * 2 + 1,
        dilation=draw(st.integers(1, 5)),
        causal=causal,
        form=draw(FORMS),
        bias=draw(st.booleans()),
        act=draw(st.sampled_from(["none", "relu", "gelu", "glu"])),
    )


def growth(page: Convolve) -> tuple[Grid, Grid]:
    """Longer than the farthest tap."""
    side = 2 * page.size * page.dilation
    return Grid((side,)), Grid((2 * side,))


CASE = MechanismCase(
    page=Conv,
    examples=(
        Conv(act="relu"),
        Conv(size=5, dilation=2, bias=False),
        Conv(form="depthwise"),
        Conv(form="separable", act="glu"),
        Conv(size=1, act="glu"),
        Conv(size=4, dilation=2, causal=True),
        Conv(size=2, causal=True, form="separable", bias=False),
    ),
    pages=pages(),
    reference=reference,
    growth=growth,
    # other grids: tests/test_conv.py
    grids=SEQUENCES,
    sides=st.integers(1, 60).map(lambda n: (n,)),
    fused=False,
    per_token=False,
    channels_first=lambda leaf: leaf in {"conv", "depthwise", "pad"},
)
