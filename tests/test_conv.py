"""Convolutions as sub-layers: on grids, what is refused, and how far stacks of the presets read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from cases.base import Case
from compared import given, referred
from places import at, rows_of
from specs import architecture_of
from strategies import counted_spec
from whole_probe import probe
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv import ByteNet, Conv
from xfcost.torch_models.build import build
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.tracing.trace import trace


def test_a_causal_one_writes_its_zeros() -> None:
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
def test_on_grids_it_reads_counts_and_answers_as_it_says(component: Conv, grid: Grid) -> None:
    where = Place(grid=grid, dim=4, out_dim=4)
    component.check(where)
    torch.manual_seed(0)
    module, x = (
        MODULES[Conv](component, where).double().requires_grad_(requires_grad=False),
        torch.randn(2, grid.total, 4).double(),
    )
    torch.testing.assert_close(module(x), referred(Case(component, where), given(module), x), rtol=1e-11, atol=1e-12)
    told = [component.reads(grid, token) for token in range(grid.total)]
    assert probe(module, (x,)).reads == tuple(map(frozenset, told))
    assert sum(map(len, told)) == component.pairs(grid)
    traced, rows = trace(module, (x,)), rows_of(component, where)
    assert traced.unsupported == {}
    assert traced.macs == 2 * sum(row.macs for row in rows.values())
    assert traced.flops == 2 * sum(row.flops for row in rows.values())
    assert traced.params == sum(row.params for row in rows.values())


@pytest.mark.parametrize(
    ("component", "where", "expected"),
    [
        (Conv(size=4), at(9), "size: 4 is even, and the kernel is centred; try 3 or 5, or causal: true"),
        (Conv(causal=True), at(3, 3), r"causal: tokens of a grid (9 (3×3)) have no order; write causal: false"),
        (Conv(), at(9, special=1), "kind: a kernel slides over a grid: expected no special tokens, got 1"),
        (Conv(form="depthwise", act="glu"), at(9), "act: a gate halves the width, and a depthwise convolution"),
        (ByteNet(), at(9, dim=7), "kind: 'bytenet' works at half the width, and 7 is odd"),
    ],
)
def test_what_can_not_stand_is_refused(component: Conv | ByteNet, where: Place, expected: str) -> None:
    with pytest.raises(ComponentError) as refused:
        component.check(where)
    assert f"{refused.value.field}: {refused.value.message}".startswith(expected)


def test_a_wider_output_projects_the_residual_stream(tmp_path: Path) -> None:
    ledger = counted_spec(
        {
            "input": {"kind": "vectors", "channels": 6, "length": 5},
            "residual": {"norm": "none"},
            "stages": [{"dim": 8, "depth": 2, "block": [{"kind": "conv", "bias": False}]}],
        },
        tmp_path,
    )
    # 3·6·8 and the projection 6·8 + 8; then 3·8·8
    assert ledger.total("params") == 144 + 56 + 192


def test_ten_dilated_blocks_read_as_far_as_their_dilations_sum() -> None:
    # 1 + 2·(1 + 2 + 4 + 8 + 16)·2 tokens after two sets of five.
    architecture = architecture_of("bytenet-lm", "stages.0.depth=10", "stages.0.dim=64", tokens=(150,))
    stage = build(architecture, "cpu").model.get_submodule("streams.0.stages.0")

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.it = stage

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.it(x, None)

    seen = probe(Alone(), (torch.zeros(1, 150, 64),))
    assert seen.most == 125
    assert seen.reads[149] == frozenset(range(25, 150))
