"""Pooling attention under the contract."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from cases.base import GRIDS_WITH_EXTRA, MechanismCase, Rows, masked_attention
from xfcost.grid import Grid
from xfcost.mechanisms import Pooling, WindowPooling
from xfcost.mechanisms.base import Place

Places = list[tuple[int, ...]]


def reference(page: Pooling, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """Fan et al. 2021, equations 3 to 5, and Li et al. 2022, equations 3 to 5, one output position after the other."""
    qkv = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    q, k, v = (pooled(page, place.grid, twin, *named) for named in zip("qkv", qkv, strict=True))
    answer = torch.zeros_like(q)
    extra, strides = place.grid.extra, (page.q_stride, page.kv_stride)
    queries, keys = (spots(shape(place.grid.sides, stride)) for stride in strides)
    if not isinstance(page, WindowPooling):
        everything = list(range(q.shape[1])), list(range(k.shape[1]))
        answer = attended(
            page, twin, (q, k, v), everything, tuple(shape(place.grid.sides, one) for one in strides), extra
        )
    else:
        sides = tuple((page.window // stride,) * len(place.grid.sides) for stride in strides)
        for window in sorted({tuple(at // sides[0][0] for at in spot) for spot in queries}):
            mine = [members(window, each, all_) for each, all_ in zip(sides, (queries, keys), strict=True)]
            padded = [with_zeros(part) for part in (q, k, v)]
            found = attended(page, twin, padded, (mine[0], mine[1]), sides, 0)
            real = [at for at, number in enumerate(mine[0]) if number < len(queries)]
            answer = answer.index_copy(1, torch.tensor([mine[0][at] for at in real]), found[:, real])
    if page.residual_pooling != "none":
        kept = extra if page.residual_pooling == "grid" else 0
        answer = torch.cat([answer[:, :kept], answer[:, kept:] + q[:, kept:]], dim=1)
    return F.linear(answer, twin.out.weight, twin.out.bias)


def shape(sides: tuple[int, ...], stride: int | list[int]) -> tuple[int, ...]:
    """⌈side / stride⌉ along every axis: what an odd kernel around its middle leaves."""
    strides = stride if isinstance(stride, list) else [stride] * len(sides)
    return tuple(math.ceil(side / step) for side, step in zip(sides, strides, strict=True))


def spots(sides: tuple[int, ...]) -> Places:
    return list(itertools.product(*(range(side) for side in sides)))


def with_zeros(x_BNI: Tensor) -> Tensor:
    """A zero after the last token, for all that stand outside the grid."""
    return F.pad(x_BNI, (0, 0, 0, 1))


def members(window: tuple[int, ...], sides: tuple[int, ...], known: Places) -> list[int]:
    """The numbers of a window's places; the number after the last for those outside the grid."""
    number = {spot: at for at, spot in enumerate(known)}
    inside = (tuple(w * side + at for w, side, at in zip(window, sides, spot, strict=True)) for spot in spots(sides))
    return [number.get(spot, len(known)) for spot in inside]


def pooled(page: Pooling, grid: Grid, twin: nn.Module, name: str, x_BNI: Tensor) -> Tensor:
    """Every output is a weighted sum, a mean or a maximum of a kernel's tokens, padded by zeros (maxima by none)."""
    size, stride = (page.q_size, page.q_stride) if name == "q" else (page.kv_size, page.kv_stride)
    rank = len(grid.sides)
    sizes, strides = (list(one) if isinstance(one, list) else [one] * rank for one in (size, stride))
    if set(sizes) == set(strides) == {1}:
        return x_BNI
    x_BHNK = x_BNI.unflatten(-1, (page.heads, -1)).transpose(1, 2)
    number = {spot: at + grid.extra for at, spot in enumerate(spots(grid.sides))}
    outputs = [x_BHNK[:, :, at] for at in range(grid.extra)]
    for out in spots(shape(grid.sides, stride)):
        terms, positions = [], spots(tuple(sizes))
        for at, position in enumerate(positions):
            spot = tuple(o * s + p - k // 2 for o, s, p, k in zip(out, strides, position, sizes, strict=True))
            if spot in number:
                term = x_BHNK[:, :, number[spot]]
                weight = getattr(twin, f"pool_{name}").weight.flatten(1)[:, at] if page.function == "conv" else 1
                terms.append(term * weight)
        stacked = torch.stack(terms)
        total = stacked.amax(0) if page.function == "max" else stacked.sum(0)
        outputs.append(total / len(positions) if page.function == "mean" else total)
    y_BHPK = torch.stack(outputs, dim=2)
    if page.function == "conv":
        norm = getattr(twin, f"norm_{name}")
        y_BHPK = F.layer_norm(y_BHPK, y_BHPK.shape[-1:], norm.weight, norm.bias)
    return y_BHPK.transpose(1, 2).flatten(2)


def attended(
    page: Pooling,
    twin: nn.Module,
    parts: list[Tensor] | tuple[Tensor, ...],
    members_: tuple[list[int], list[int]],
    sides: tuple[tuple[int, ...], ...],
    extra: int,
) -> Tensor:
    """Softmax attention of some queries over some keys, which lie on grids of `sides` after `extra` tokens."""
    q, k, v = (part[:, numbers] for part, numbers in zip(parts, (members_[0], *[members_[1]] * 2), strict=True))
    bias = position_bias(page, twin, q, sides, extra) if page.bias == "decomposed" else None
    return masked_attention(q, k, v, page.heads, torch.ones(q.shape[1], k.shape[1], dtype=torch.bool), bias)


def position_bias(page: Pooling, twin: nn.Module, q: Tensor, sides: tuple[tuple[int, ...], ...], extra: int) -> Tensor:
    """(H, B, N, M): Σ over the axes of qᵢ·R[iₐ - jₐ], distances in steps of the finer of the two grids."""
    keys = math.prod(sides[1])
    q_HBNK = q[:, extra:].unflatten(-1, (page.heads, -1)).permute(2, 0, 1, 3)
    bias = q.new_zeros(*q_HBNK.shape[:3], keys)
    for axis, (queries, others) in enumerate(zip(*sides, strict=True)):
        table_RK = getattr(twin.core.inner.tables, f"axis_{axis}")
        finer = Fraction(max(queries, others))
        for i, query in enumerate(spots(sides[0])):
            at = [
                int((query[axis] * finer / queries) - (key[axis] - others + 1) * finer / others)
                for key in spots(sides[1])
            ]
            bias[:, :, i] = bias[:, :, i] + q_HBNK[:, :, i] @ table_RK[at].T
    return F.pad(bias, (extra, 0, extra, 0))


# One token, odd sides through strides, more in one direction than in the other.
GRIDS_FEW = tuple(Grid(sides) for sides in [(5,), (1, 1), (1, 4), (7, 9), (13, 13)])
# No side shorter than a mean's kernel, which torch refuses in three axes.
SMALL_VOLUME = Grid((3, 4, 3))
# So wide that every token is the largest of a kernel's nine in some channel.
WIDE = 48


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """What both kinds of pooling attention have."""
    odd, stride = st.sampled_from([1, 3, 5]), st.sampled_from([1, 2, 4])
    q_stride, kv_stride = draw(stride), draw(stride)
    return {
        "heads": draw(st.sampled_from([1, 2, 3, 4])),
        "q_size": draw(odd),
        "q_stride": q_stride,
        "kv_size": draw(odd),
        "kv_stride": kv_stride,
        "function": draw(st.sampled_from(["conv", "max", "mean"])),
        "bias": draw(st.sampled_from(["none", "decomposed"])),
        "residual_pooling": draw(st.sampled_from(["none", "grid", "all"])),
        "out_width": draw(st.sampled_from([None, 12, 24])),
        "projection_bias": draw(st.booleans()),
    }


CASE = MechanismCase(
    rows=Rows(
        positional=lambda page: frozenset(
            (
                "position_scores",
                "spread",
            )
        ),
        uncounted=frozenset(("position_scores",)),
        grids=lambda page: (Grid((8, 8)), Grid((8, 16))),
    ),
    page=Pooling,
    examples=(
        Pooling(heads=2, q_size=1, kv_stride=2),
        Pooling(heads=2, q_stride=2, kv_stride=4, bias="decomposed", residual_pooling="all", out_width=12),
        Pooling(heads=3, head_dim=5, kv_size=1, bias="decomposed", residual_pooling="grid", projection_bias=False),
        Pooling(heads=2, q_size=1, q_stride=4, kv_size=1),
        Pooling(heads=2, q_stride=2, kv_stride=2, function="max"),
        Pooling(heads=2, q_size=3, kv_stride=2, function="mean", bias="decomposed"),
    ),
    pages=st.builds(lambda given: Pooling(**given), options()),
    reference=reference,
    growth=lambda page: (Grid((8, 4)), Grid((16, 4))),
    grids=(*GRIDS_FEW, *GRIDS_WITH_EXTRA, SMALL_VOLUME),
    image=True,
    dim=WIDE,
)
