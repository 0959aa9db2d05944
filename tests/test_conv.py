"""Convolutions as sub-layers: by hand, on grids, beside torch.nn.Conv1d, and the stacks of the presets."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cases.base import Case
from compared import given, referred
from growth import sequential_steps
from strategies import counted_spec
from whole_probe import probe
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.conv import Conv
from xfcost.mechanisms.lstm import Lstm
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.tracing.trace import trace


def spot(*sides: int, dim: int = 6, out_dim: int | None = None, special: int = 0) -> Place:
    return Place(grid=Grid(sides, special), dim=dim, out_dim=out_dim or dim)


def rows_of(component: Conv | ByteNet, where: Place) -> dict[str, Operation]:
    return {row.path: row for row in component.operations(where)}


def test_plain_depthwise_and_separable_by_hand() -> None:
    # 10 tokens of 6, 5 taps, to 8 channels.
    plain, separable = (rows_of(Conv(size=5, form=form), spot(10, out_dim=8)) for form in ("plain", "separable"))
    alone = rows_of(Conv(size=5, form="depthwise"), spot(10))
    assert (plain["conv"].macs, plain["conv"].params) == (2400, 248)  # 10·5·6·8; 5·6·8 + 8
    assert (alone["depthwise"].macs, alone["depthwise"].params) == (300, 36)  # 10·5·6; 5·6 + 6
    assert (separable["depthwise"].macs, separable["pointwise"].macs) == (300, 480)
    assert [plain["conv"].reads_tokens, separable["depthwise"].reads_tokens] == [5, 5]
    assert plain["conv"].mixing == separable["depthwise"].mixing == "local"
    assert not separable["pointwise"].mixes


def test_a_gate_is_twice_as_wide_before_it() -> None:
    rows = rows_of(Conv(act="glu", bias=False), spot(10))
    assert (rows["conv"].macs, rows["glu"].flops) == (10 * 3 * 6 * 12, 10 * 6 * 4)
    assert Conv(act="glu").out(spot(10))[1] == 6


def test_dilation_costs_nothing_and_reaches_further() -> None:
    near, far = (rows_of(Conv(dilation=dilation), spot(100)) for dilation in (1, 16))
    assert near == far
    assert list(Conv(dilation=16).reads(Grid((100,)), 50)) == [34, 50, 66]
    assert list(Conv(dilation=16, causal=True).reads(Grid((100,)), 50)) == [18, 34, 50]
    # 100 tokens, and 84 on either side; causal, 84 and 68 before
    assert (Conv(dilation=16).pairs(Grid((100,))), Conv(dilation=16, causal=True).pairs(Grid((100,)))) == (268, 252)


def test_a_causal_one_writes_its_zeros() -> None:
    rows = rows_of(Conv(size=4, dilation=3, causal=True), spot(10))
    assert rows["pad"].moved == (10 + 9) * 6
    assert "pad" not in rows_of(Conv(size=1, causal=True), spot(10))
    assert Conv().with_stream_defaults(decoder=True).causality == "exact"
    assert Conv().with_stream_defaults(decoder=False).causality == "none"
    assert Conv(causal=False).with_stream_defaults(decoder=True).causality == "none"


def test_a_bytenet_block_by_hand() -> None:
    # 10 tokens of 8, inside 4: 10·8·4, 10·3·16, 10·4·8.
    rows = rows_of(ByteNet(causal=True), spot(10, dim=8))
    assert {path: row.macs for path, row in rows.items() if row.macs} == {
        "pointwise1": 320,
        "conv": 480,
        "pointwise2": 320,
    }
    assert (rows["act1"].flops, rows["act2"].flops, rows["norm1"].flops) == (80, 40, 5 * 40)
    assert rows["pad"].moved == 12 * 4


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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dilation", [1, 4])
def test_outputs_are_torch_nn_conv1d_s(causal: bool, dilation: int) -> None:
    torch.manual_seed(0)
    component = Conv(dilation=dilation, causal=causal)
    ours = MODULES[Conv](component, spot(11, out_dim=5))
    theirs = nn.Conv1d(6, 5, 3, dilation=dilation, padding=0 if causal else dilation)
    ours.conv.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 11, 6)
    before = F.pad(x.mT, (2 * dilation if causal else 0, 0))
    torch.testing.assert_close(ours(x), theirs(before).mT)


@pytest.mark.parametrize(
    ("component", "where", "expected"),
    [
        (Conv(size=4), spot(9), "size: 4 is even, and the kernel is centred; try 3 or 5, or causal: true"),
        (Conv(causal=True), spot(3, 3), r"causal: tokens of a grid (9 (3×3)) have no order; write causal: false"),
        (Conv(), spot(9, special=1), "kind: a kernel slides over a grid: expected no special tokens, got 1"),
        (Conv(form="depthwise", act="glu"), spot(9), "act: a gate halves the width, and a depthwise convolution"),
        (ByteNet(), spot(9, dim=7), "kind: 'bytenet' works at half the width, and 7 is odd"),
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
    architecture = place(load("bytenet-lm", settings=("stages.0.depth=10", "stages.0.dim=64")), Run(tokens=(150,)))
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


def test_three_ways_of_processing_a_sequence() -> None:
    # Table 1 of Vaswani et al.: N²·d against N·d², and N steps against 1. Crossings: 2·N²·d passes 4·N·d² at N = 2·d.
    macs = {
        (name, n): count(place(load(f"common-{name}"), Run(tokens=(n,)))).total("macs")
        for name, n in itertools.product(("lstm", "conv", "full"), (1024, 2048, 4096))
    }
    assert [macs[name, 4096] / macs[name, 2048] for name in ("lstm", "conv")] == [2, 2]
    assert macs["full", 4096] > 2 * macs["full", 2048]
    # per layer beside the MLP: 8·N·d², 3·N·d², 4·N·d² + 2·N²·d
    mixers = {name: macs[name, 1024] - 12 * 8 * 1024 * 768**2 for name in ("lstm", "conv", "full")}
    assert mixers["lstm"] == 12 * 8 * 1024 * 768**2
    assert mixers["conv"] == 12 * 3 * 1024 * 768**2
    assert mixers["full"] == 12 * (4 * 1024 * 768**2 + 2 * 1024**2 * 768)
    assert [sequential_steps(one, spot(1024)) for one in (Lstm(), Conv())] == [1024, 1]
