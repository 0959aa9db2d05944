"""Local attention and local relation in place of convolutions: whole nets, at the border, what is refused."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from xfcost.counting.forward import count
from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Mixer, Place
from xfcost.formulas.neighbourhood import Neighbourhood
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.local_relation import LocalRelation
from xfcost.spec.load import load
from xfcost.spec.placement import place as architecture
from xfcost.spec.run import Run
from xfcost.torch_models.modules import MODULES


def at(sides: tuple[int, ...], dim: int, *, special: int = 0, fused: bool = False) -> Place:
    return Place(grid=Grid(sides, special), dim=dim, out_dim=dim, fused=fused)


def rows(component: Mixer, place: Place) -> dict[str, Operation]:
    component.check(place)
    return {row.path: row for row in component.operations(place)}


def total(every: dict[str, Operation], quantity: str) -> int:
    return sum(getattr(row, quantity) for row in every.values())


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
    layer = rows(LocalAttention(size=5), at((9, 9), 16))
    spatial = [layer[name].flops for name in ("scores", "weighted_sum", "add_positions")]
    assert sum(spatial) == 81 * 5 * 25 * 16


def test_a_strided_layer_attends_first_and_then_takes_means():
    full, strided = (rows(LocalAttention(stride=stride), at((8, 8), 16)) for stride in (1, 2))
    assert all(strided[name].macs == row.macs for name, row in full.items())
    # 4·4 means of four positions; of 5×5 there are 3·3, the last of which are of fewer
    assert strided["pool"].flops == 16 * 4 * 16
    component, odd = LocalAttention(size=3, heads=2, stride=2), at((5, 5), 16)
    assert component.out(odd)[0] == Grid((3, 3))
    module = MODULES[LocalAttention](component, odd).eval()
    whole = MODULES[LocalAttention](LocalAttention(size=3, heads=2), odd).eval()
    whole.load_state_dict(module.state_dict())
    x = torch.randn(1, 25, 16)
    with torch.no_grad():
        torch.testing.assert_close(module(x)[0, -1], whole(x)[0, -1])  # alone in its cell
        torch.testing.assert_close(module(x)[0, 0], whole(x)[0, [0, 1, 5, 6]].mean(0))


def test_padding_keys_are_their_positions_and_take_part():
    """One position alone: 9 keys, of which 8 are embeddings; with q = 0 every one has a ninth of the weight."""
    component, place = LocalAttention(size=3, heads=1), at((1, 1), 4)
    module = MODULES[LocalAttention](component, place).eval()
    x = torch.randn(1, 1, 4)
    with torch.no_grad():
        module.qkv.weight[:4] = 0
        value = x @ module.qkv.weight[8:].T
        torch.testing.assert_close(module(x), value / 9)


# Local relation ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_channels_that_fill_no_group_are_filled_up_and_told():
    # 100 channels in groups of 8: 13 groups, 104 channels summed.
    component, place = LocalRelation(), at((56, 56), 100)
    layer = rows(component, place)
    assert layer["weighted_sum"].macs == 3136 * 49 * 104
    assert layer["scores"].attention_entries == 3136 * 49 * 13
    assert layer["gather_values"].moved == (62 * 62 + 3136 * 49) * 104
    assert layer["out"].macs == 3136 * 100 * 100
    told = list(component.notes(place))
    assert "are padding, masked, and counted" in told[0]
    assert told[1].startswith("100 channels filled up to 104 for groups of 8: 4 channels of zeros")
    assert "no fused form" in list(component.notes(at((56, 56), 64, fused=True)))[-1]


def test_a_prior_is_a_function_of_the_offset_alone():
    component, place = LocalRelation(size=3, share=2), at((5, 5), 4)
    module = MODULES[LocalRelation](component, place).eval()
    seen = {}
    module.softmax.register_forward_hook(lambda _, inputs, output: seen.update(weights=output))
    with torch.no_grad():
        module.q.weight.zero_()
        module.k.weight.zero_()
        module(torch.randn(1, 25, 4))
    inner = [row * 5 + column for row in (1, 2, 3) for column in (1, 2, 3)]
    weights = seen["weights"][0, inner]  # (9 positions that reach no border, 2 groups, 9 offsets)
    assert (weights == weights[:1]).all()
    assert len(weights[0, 0].unique()) > 1


# Refused ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

REFUSED: list[tuple[Mixer, Place, str, str]] = [
    (LocalAttention(size=4), at((8, 8), 16), "size", "4 is even, .* try 3 or 5"),
    (LocalRelation(size=8), at((8, 8), 16), "size", "try 7 or 9"),
    (LocalAttention(), at((8, 8), 16, special=1), "kind", "expected no special tokens, got 1"),
    (LocalAttention(heads=3), at((8, 8), 16), "heads", "3 does not divide the width 16"),
    (LocalAttention(heads=8), at((2, 4, 4), 16), "heads", "2 wide, which the embeddings of 3 axes can't share"),
    (LocalAttention(heads=16), at((4, 4), 16), "heads", "1 wide"),
    (LocalRelation(size=3, stride=3), at((9, 9), 16), "stride", "don't overlap; use 2 at most"),
]


@pytest.mark.parametrize(("component", "place", "field", "message"), REFUSED)
def test_what_can_not_stand_is_refused(component, place, field, message):
    with pytest.raises(ComponentError, match=message) as refused:
        component.check(place)
    assert refused.value.field == field


def test_heads_of_any_width_stand_without_positions():
    LocalAttention(heads=16, position="none").check(at((4, 4), 16))


# Inside a bottleneck, and at the entry ────────────────────────────────────────────────────────────────────────────────


def sasa(depths: tuple[int, ...], size: int) -> tuple[int, int, int]:
    """(parameters, MACs, entries) of a ResNet at 224×224 with attention in place of its 3×3 convolutions, 8 heads."""
    params, macs, entries = 3 * 64 * 49 + 128, 112 * 112 * 3 * 64 * 49, 0
    width, side = 64, 56
    for stage, depth in enumerate(depths):
        inner, out = 64 * 2**stage, 256 * 2**stage
        for block in range(depth):
            n = side**2
            side = side // 2 if stage and not block else side
            params += width * inner + 2 * inner + 3 * inner**2 + size * inner + 2 * inner + inner * out + 2 * out
            macs += n * width * inner + n * (3 * inner**2 + 2 * size**2 * inner) + side**2 * inner * out
            entries += 8 * size**2 * n
            if not block:
                params += width * out + 2 * out
                macs += side**2 * width * out
            width = out
    return params + 2049 * 1000, macs + 2048 * 1000, entries


def lr_net(depths: tuple[int, ...]) -> tuple[int, int, int]:
    """The same of an LR-Net: layers of 49 places, 8 channels per weight, also in the stem."""
    found = [64 * 3 + 128 + 128, 224**2 * 3 * 64, 0]

    def layer(d: int, side: int, stride: int) -> None:
        groups, n, leaving = -(-d // 8), side**2, (side // stride) ** 2
        prior = 2 * (groups // 2) + groups // 2 * groups
        found[0] += 2 * d * groups + prior + d * d
        found[1] += (n + leaving) * d * groups + 49 * prior + leaving * (49 * 8 * groups + d * d)
        found[2] += 49 * groups * leaving

    layer(64, 224, 2)
    width, side = 64, 56
    for stage, depth in enumerate(depths):
        inner, out = 100 * 2**stage, 256 * 2**stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            layer(inner, side, stride)
            found[0] += width * inner + 4 * inner + inner * out + 2 * out
            found[1] += side**2 * width * inner
            side //= stride
            found[1] += side**2 * inner * out
            if not block:
                found[0] += width * out + 2 * out
                found[1] += side**2 * width * out
            width = out
    return found[0] + 2049 * 1000, found[1] + 2048 * 1000, found[2]


NETS = [
    ("sasa-26", sasa((1, 2, 4, 1), 7)),
    ("sasa-38", sasa((2, 3, 5, 2), 7)),
    *(
        (f"sasa-50{name}", sasa((3, 4, 6, 3), size))
        for name, size in [("", 7), *((f"-k{k}", k) for k in (3, 5, 9, 11))]
    ),
    ("lr-net-26", lr_net((2, 2, 2, 2))),
    ("lr-net-50", lr_net((3, 4, 6, 3))),
    ("lr-net-101", lr_net((3, 4, 23, 3))),
]


@pytest.mark.parametrize(("name", "expected"), NETS)
def test_whole_nets_in_closed_form(name, expected):
    ledger = count(architecture(load(name), Run()))
    assert tuple(ledger.total(what) for what in ("params", "macs", "attention_entries")) == expected


def test_fused_attention_inside_a_bottleneck():
    ledger = count(architecture(load("sasa-26"), Run(attention="fused")))
    assert ledger.total("macs") == sasa((1, 2, 4, 1), 7)[1]
    # one number per query and head in place of 49
    assert ledger.total("attention_entries") * 49 == sasa((1, 2, 4, 1), 7)[2]


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
