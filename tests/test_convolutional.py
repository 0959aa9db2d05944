"""Convolutional mixers: what kernels read, causal and pooled ones, bottlenecks, non-local blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cases.base import Case
from compared import given as conv_given
from compared import referred
from places import at, rows_of
from whole_probe import probe
from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import ConvKernel, pairs_of_one_kernel, pairs_of_two_kernels, tokens_read
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv import Conv
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.non_local import NonLocal, Sagan
from xfcost.mechanisms.residual_blocks import Bottleneck, squeezed_width
from xfcost.program.residual import component_rows
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.tracing.trace import trace

# `--kind` of one of these selects this file
KINDS = ("convnext", "conv", "bottleneck", "non_local")


# PoolFormer ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def kernels(draw):
    rank = draw(st.integers(1, 2))
    axes = []
    for _ in range(rank):
        kernel, side = draw(st.integers(1, 6)), draw(st.integers(1, 9))
        least = max(0, -(-(kernel - side) // 2))
        axes.append((kernel, draw(st.integers(1, 4)), draw(st.integers(least, max(least, kernel - 1))), side))
    kernel, stride, padding, sides = zip(*axes, strict=True)
    return ConvKernel(kernel, stride, padding), sides


@given(drawn=kernels())
@settings(max_examples=200, deadline=None)
def test_what_a_kernel_of_any_stride_reads(drawn):
    kernel, sides = drawn
    # torch's unfold says which positions stand under every output; padding is 0, so tokens are numbered from 1.
    numbered = torch.arange(1.0, 1 + Grid(sides).tokens).reshape(1, 1, *sides)
    if len(sides) == 1:
        numbered, sides = numbered.unsqueeze(2), (1, *sides)
        kernel = ConvKernel((1, *kernel.sides), (1, *kernel.stride), (0, *kernel.padding))
    columns = nn.functional.unfold(numbered, kernel.sides, stride=kernel.stride, padding=kernel.padding)[0].T
    listed = [kernel.reads(sides, output) for output in range(len(columns))]
    assert [sorted(tokens) for tokens in listed] == [sorted(int(n) - 1 for n in column if n) for column in columns]
    assert all(list(tokens) == sorted(tokens) for tokens in listed)
    assert kernel.pairs(sides) == sum(map(len, listed))


# Convolutions as sub-layers ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_causal_one_writes_its_zeros():
    rows = rows_of(Conv(size=4, dilation=3, causal=True), at(10))
    assert rows["pad"].moved == (10 + 9) * 6
    assert "pad" not in rows_of(Conv(size=1, causal=True), at(10))
    assert Conv().with_stream_defaults(decoder=True).causality == "exact"
    assert Conv().with_stream_defaults(decoder=False).causality == "none"
    assert Conv(causal=False).with_stream_defaults(decoder=True).causality == "none"


GRIDS = [Grid((1, 1)), Grid((1, 4)), Grid((3, 5)), Grid((7, 9)), Grid((2, 3, 4))]
COMPONENTS = [Conv(), Conv(size=5, dilation=2), Conv(form="separable", act="glu"), Conv(form="depthwise")]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("component", COMPONENTS, ids=str)
def test_on_grids_it_reads_counts_and_answers_as_it_says(component, grid):
    where = Place(grid=grid, dim=4, out_dim=4)
    component.check(where)
    torch.manual_seed(0)
    module = ProgramModule(component, where).double().requires_grad_(requires_grad=False)
    x = torch.randn(2, grid.total, 4).double()
    plain = referred(Case(component, where), conv_given(module), x)
    torch.testing.assert_close(module(x), plain, rtol=1e-11, atol=1e-12)
    told = [component.reads(grid, token) for token in range(grid.total)]
    assert probe(module, (x,)).reads == tuple(map(frozenset, told))
    assert sum(map(len, told)) == component.pairs(grid)
    traced, rows = trace(module, (x,)), rows_of(component, where)
    assert traced.unsupported == {}
    assert traced.macs == 2 * sum(row.macs for row in rows.values())
    assert traced.flops == 2 * sum(row.flops for row in rows.values())
    assert traced.params == sum(row.params for row in rows.values())


@pytest.mark.parametrize(("width", "squeezed"), [(4, 1), (6, 2), (10, 2), (14, 4), (32, 8), (1232, 308)])
def test_a_part_of_a_width_is_rounded_as_the_public_code_rounds(width, squeezed):
    # Python's round: of two whole numbers as near, the even one (1.5 and 2.5 are both 2).
    assert squeezed_width(0.25, width) == squeezed == round(width * 0.25)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 7])
def test_receptive_fields_in_closed_form(stride):
    for side in range(1, 30):
        outputs = range(0, side, stride)
        windows = [{place for place in (at - 1, at, at + 1) if 0 <= place < side} for at in outputs]
        assert pairs_of_one_kernel(side, stride) == sum(map(len, windows))
        assert tokens_read(side, stride) == len(set().union(*windows))
        near = [set().union(*windows[max(0, at - 1) : at + 2]) for at in range(len(windows))]
        assert pairs_of_two_kernels(side, stride) == sum(map(len, near))


class Shorter(LocalAttention, frozen=True, kw_only=True, tag="shorter"):
    """It leaves fewer positions than the shortcut."""

    def out(self, place: Place) -> tuple[Grid, int]:
        return Grid(tuple(side // self.stride for side in place.grid.sides)), place.dim


def test_what_stands_in_place_of_the_3x3_must_leave_the_shortcut_s_grid():
    spatial = Shorter(heads=1, size=3, position="none")
    Bottleneck(stride=2, spatial=spatial).check(at(4, 4, dim=12))
    with pytest.raises(ComponentError, match="leaves 1×2 positions, and the shortcut 2×2"):
        Bottleneck(stride=2, spatial=spatial).check(at(3, 4, dim=12))


# The non-local block and SAGAN's layer ────────────────────────────────────────────────────────────────────────────────


def rows(component, place):
    component.check(place)
    return {row.path: row for row in component_rows(component, place)}


def totals(component, place):
    every = rows(component, place).values()
    return tuple(sum(getattr(row, what) for row in every) for what in ("params", "macs", "attention_entries"))


# Wang et al. 2018: SlowFast's Nonlocal module by torch's counter on meta.
NON_LOCAL = [
    ("res4", (14, 14), 1024, 1, 512, (2101760, 450379776, 38416)),
    ("res4, pooled", (14, 14), 1024, 2, 512, (2101760, 266735616, 9604)),
    ("res3", (28, 28), 512, 1, 256, (526592, 725745664, 614656)),
    ("res3, pooled", (28, 28), 512, 2, 256, (526592, 335577088, 153664)),
    ("spacetime, T = 4", (4, 14, 14), 1024, 1, 512, (2101760, 2273574912, 614656)),
]


@pytest.mark.parametrize(("sides", "dim", "pool", "width", "expected"), [row[1:] for row in NON_LOCAL])
def test_non_local_blocks_to_the_unit(sides, dim, pool, width, expected):
    component, place = NonLocal(width=width, pool=pool), at(*sides, dim=dim)
    assert totals(component, place) == expected
    with torch.device("meta"):
        torch_module = ProgramModule(component, place)
        traced = trace(torch_module.eval(), (torch.randn(1, place.grid.total, dim),))
    assert (traced.params, traced.macs) == expected[:2]
    assert traced.unsupported == {}


SAGAN = [
    ({"value_reduction": 1, "output_projection": False}, 32, 256, (81921, 385875968, 1048576)),
    ({}, 32, 256, (32769, 100663296, 1048576)),
    ({"value_reduction": 2, "pool": 2}, 32, 256, (81921, 125829120, 262144)),
    ({"value_reduction": 1, "output_projection": False}, 64, 128, (20481, 2499805184, 16777216)),
    ({}, 64, 128, (8193, 570425344, 16777216)),
    ({"value_reduction": 2, "pool": 2}, 64, 128, (20481, 419430400, 4194304)),
]


@pytest.mark.parametrize(("options", "side", "dim", "expected"), SAGAN)
def test_sagan_layers_to_the_unit(options, side, dim, expected):
    assert totals(Sagan(**options), at(side, side, dim=dim)) == expected
