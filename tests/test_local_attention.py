"""Local attention and local relation in place of convolutions: whole nets, at the border, what is refused."""

from __future__ import annotations

from itertools import product

import pytest

from places import at
from refused import refusals
from xfcost.counting.forward import count
from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Mixer, Place
from xfcost.ledger.errors import SpecError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation, Neighbourhood
from xfcost.spec.load import load
from xfcost.spec.placement import place as architecture
from xfcost.spec.run import Run


def rows(component: Mixer, place: Place) -> dict[str, Operation]:
    component.check(place)
    return {row.path: row for row in component.operations(place)}


# Windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [3, 5, 9])
def test_pairs_in_closed_form_are_counted_on_every_axis_length(size):
    for side, stride, cell in product(range(1, 14), (1, 2, 3, 5), (False, True)):
        windows = Neighbourhood(Grid((side,)), size, stride)
        assert windows.out.tokens == ceil_div(side, stride)
        assert windows.pairs(cell=cell) == sum(len(windows.tokens(out, cell=cell)) for out in range(windows.out.tokens))


# Stand-alone self-attention ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_paper_s_figure_per_position():
    """Beyond its maps a layer costs 5·k²·d per position: two products of 2 FLOPs, and an addition to the keys."""
    layer = rows(LocalAttention(size=5), at(9, 9, dim=16))
    spatial = [layer[name].flops for name in ("scores", "weighted_sum", "add_positions")]
    assert sum(spatial) == 81 * 5 * 25 * 16


# Local relation ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_channels_that_fill_no_group_are_filled_up_and_told():
    # 100 channels in groups of 8: 13 groups, 104 channels summed.
    component, place = LocalRelation(), at(56, 56, dim=100)
    layer = rows(component, place)
    assert layer["weighted_sum"].macs == 3136 * 49 * 104
    assert layer["scores"].attention_entries == 3136 * 49 * 13
    assert layer["gather_values"].moved == (62 * 62 + 3136 * 49) * 104
    assert layer["out"].macs == 3136 * 100 * 100
    told = list(component.notes(place))
    assert "are padding, masked, and counted" in told[0]
    assert told[1].startswith("100 channels filled up to 104 for groups of 8: 4 channels of zeros")
    assert "no fused form" in list(component.notes(at(56, 56, dim=64, fused=True)))[-1]


# Refused ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

REFUSED: list[tuple[Mixer, Place, str, str]] = [
    (LocalAttention(size=4), at(8, 8, dim=16), "size", "4 is even, .* try 3 or 5"),
    (LocalRelation(size=8), at(8, 8, dim=16), "size", "try 7 or 9"),
    (LocalAttention(), at(8, 8, dim=16, special=1), "kind", "expected no special tokens, got 1"),
    (LocalAttention(heads=3), at(8, 8, dim=16), "heads", "3 does not divide the width 16"),
    (LocalAttention(heads=8), at(2, 4, 4, dim=16), "heads", "2 wide, which the embeddings of 3 axes can't share"),
    (LocalAttention(heads=16), at(4, 4, dim=16), "heads", "1 wide"),
    (LocalRelation(size=3, stride=3), at(9, 9, dim=16), "stride", "don't overlap; use 2 at most"),
]


test_what_can_not_stand_is_refused = refusals(REFUSED)


# Inside a bottleneck, and at the entry ────────────────────────────────────────────────────────────────────────────────


INSIDE = [
    ("heads=7", r"spatial: heads: 7 does not divide the width 64"),
    ("size=8", r"spatial: size: 8 is even"),
    ("stride=2", r"spatial: `stride` belongs to the block"),
    ("residual=none", r"spatial: `residual` belongs to the block"),
]


@pytest.mark.parametrize(("setting", "message"), INSIDE)
def test_what_can_not_stand_in_a_bottleneck_is_refused_with_its_place(setting, message):
    with pytest.raises(SpecError, match=rf"sasa-50.*stages\[0\]\.blocks\[0\]\[0\]\.{message}"):
        architecture(load("sasa-50", [f"stages.0.blocks.0.0.spatial.{setting}"]), Run())


def test_fused_attention_inside_a_bottleneck():
    eager, fused = (count(architecture(load("sasa-26"), Run(attention=way))) for way in ("eager", "fused"))
    assert fused.total("macs") == eager.total("macs")
    # one number per query and head in place of 49
    assert fused.total("attention_entries") * 49 == eager.total("attention_entries")
