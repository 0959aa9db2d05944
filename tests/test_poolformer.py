"""PoolFormer: what kernels of any stride read, what mixes globally, and totals beside transformers'."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from specs import counted
from test_against_transformers import same_totals
from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import Kernel
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.average_pool import AveragePool

transformers = pytest.importorskip("transformers")


def spot(grid: Grid, dim: int = 1) -> Place:
    return Place(grid=grid, dim=dim, out_dim=dim)


@pytest.mark.parametrize(
    ("component", "grid", "message"),
    [
        (AveragePool(size=4), Grid((5, 5)), "4 is even, and the kernel is centred; try 3 or 5"),
        (AveragePool(), Grid((5, 5), 1), "slides over a grid: expected no special tokens, got 1"),
        (AveragePool(size=5), Grid((5, 5, 4)), "5 is larger than a side of the volume 5×5×4"),
    ],
)
def test_pools_that_can_not_stand_are_refused(component: AveragePool, grid: Grid, message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        component.check(spot(grid))


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Kernel, tuple[int, ...]]:
    rank = draw(st.integers(1, 2))
    axes = []
    for _ in range(rank):
        kernel, side = draw(st.integers(1, 6)), draw(st.integers(1, 9))
        least = max(0, -(-(kernel - side) // 2))
        axes.append((kernel, draw(st.integers(1, 4)), draw(st.integers(least, max(least, kernel - 1))), side))
    kernel, stride, padding, sides = zip(*axes, strict=True)
    return Kernel(kernel, stride, padding), sides


@given(drawn=kernels())
@settings(max_examples=200, deadline=None)
def test_what_a_kernel_of_any_stride_reads(drawn: tuple[Kernel, tuple[int, ...]]) -> None:
    kernel, sides = drawn
    # torch's unfold says which positions stand under every output; padding is 0, so tokens are numbered from 1.
    numbered = torch.arange(1.0, 1 + Grid(sides).tokens).reshape(1, 1, *sides)
    if len(sides) == 1:
        numbered, kernel = (
            numbered.unsqueeze(2),
            Kernel(
                *(
                    (fill, *axis)
                    for fill, axis in zip((1, 1, 0), (kernel.sides, kernel.stride, kernel.padding), strict=True)
                )
            ),
        )
        sides = (1, *sides)
    columns = nn.functional.unfold(numbered, kernel.sides, stride=kernel.stride, padding=kernel.padding)[0].T
    listed = [kernel.reads(sides, output) for output in range(len(columns))]
    assert [sorted(tokens) for tokens in listed] == [sorted(int(n) - 1 for n in column if n) for column in columns]
    assert all(list(tokens) == sorted(tokens) for tokens in listed)
    assert kernel.pairs(sides) == sum(map(len, listed))


def test_pooling_is_local_and_its_group_norms_are_global() -> None:
    ledger = counted("poolformer-s12")
    mixing = {row.operation: (row.mixing, row.reads) for row in ledger.rows if row.mixes}
    assert mixing == {
        "conv": ("local", "W²"),
        "pool": ("local", "W²"),
        "residual_norm": ("global", "N"),
        "norm": ("global", "N"),
    }
    # a group norm's statistics come from the content; nothing else that mixes does
    assert {row.operation for row in ledger.rows if row.content_dependent} == {"residual_norm", "norm"}
    assert any("over all tokens: the norms of the residuals mix globally" in note for note in ledger.metadata.notes)
    assert not any("mix globally" in note for note in counted("convnext-t").metadata.notes)
    # in MACs it mixes by the convolutions at its stem_layers alone
    assert {row.operation for row in ledger.rows if row.mixes and row.macs} == {"conv"}


# transformers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def theirs(**settings: object) -> nn.Module:
    config = transformers.PoolFormerConfig(**settings)
    return transformers.PoolFormerForImageClassification(config).eval().requires_grad_(requires_grad=False)


SIZES = {"s12": (64, 2), "s24": (64, 4), "s36": (64, 6), "m36": (96, 6), "m48": (96, 8)}


@pytest.mark.parametrize("size", SIZES)
def test_parameters_and_macs_are_transformers_to_the_unit(size: str) -> None:
    dim, depth = SIZES[size]
    last = [320, 512] if dim == 64 else [4 * dim, 8 * dim]
    sizes = {"hidden_sizes": [dim, 2 * dim, *last], "depths": [depth, depth, 3 * depth, depth], "num_labels": 1000}
    same_totals(f"poolformer-{size}", lambda: theirs(**sizes))
