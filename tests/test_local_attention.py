"""Local attention and local relation in place of convolutions: by hand, at the border, refused, never N×N."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from xfcost.counting.forward import count
from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Mixer, Place
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.neighbourhood import Neighbourhood
from xfcost.formulas.rows import convolution
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.local_relation import LocalRelation
from xfcost.spec.load import load
from xfcost.spec.placement import place as architecture
from xfcost.spec.run import Run
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.tracing.trace import trace


def at(sides: tuple[int, ...], dim: int, *, special: int = 0, fused: bool = False) -> Place:
    return Place(grid=Grid(sides, special), dim=dim, out_dim=dim, fused=fused)


def rows(component: Mixer, place: Place) -> dict[str, Operation]:
    component.check(place)
    return {row.path: row for row in component.operations(place)}


def total(every: dict[str, Operation], quantity: str) -> int:
    return sum(getattr(row, quantity) for row in every.values())


# Windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_windows_by_hand():
    # Windows of 3 along 5 positions hold 2 + 3 + 3 + 3 + 2 = 13; every second of them 2 + 3 + 2 = 7.
    assert Neighbourhood(Grid((5,)), 3).pairs() == 13
    assert Neighbourhood(Grid((5,)), 3, 2).pairs() == 7
    assert [Neighbourhood(Grid((5,)), 3, 2).tokens(out) for out in range(3)] == [[0, 1], [1, 2, 3], [3, 4]]
    # Cells of 2 hold the windows of both: 0-2, 1-4, 3-4 are 3 + 4 + 2 positions.
    cells = Neighbourhood(Grid((5,)), 3, 2)
    assert [cells.tokens(out, cell=True) for out in range(3)] == [[0, 1, 2], [1, 2, 3, 4], [3, 4]]
    assert cells.pairs(cell=True) == 9
    assert Neighbourhood(Grid((5, 5)), 3).pairs() == 13**2


@pytest.mark.parametrize("size", [3, 5, 9])
def test_pairs_in_closed_form_are_counted_on_every_axis_length(size):
    for side, stride, cell in product(range(1, 14), (1, 2, 3, 5), (False, True)):
        windows = Neighbourhood(Grid((side,)), size, stride)
        assert windows.out.tokens == ceil_div(side, stride)
        assert windows.pairs(cell=cell) == sum(len(windows.tokens(out, cell=cell)) for out in range(windows.out.tokens))


# Stand-alone self-attention ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_layer_of_sasa_50_s_first_stage_by_hand():
    # 56² = 3136 positions of width 64, windows of 49, 8 heads.
    place = at((56, 56), 64)
    layer = rows(LocalAttention(), place)
    assert layer["qkv"].macs == 3136 * 64 * 192
    assert layer["scores"].macs == layer["weighted_sum"].macs == 3136 * 49 * 64
    assert layer["add_positions"].flops == 3136 * 49 * 64
    assert layer["scores"].attention_entries == 3136 * 49 * 8
    # three maps without biases, and 7 embeddings of half the width along each of two axes
    assert total(layer, "params") == 3 * 64 * 64 + 2 * 7 * 32
    assert layer["gather_keys"].moved == layer["gather_values"].moved == (62 * 62 + 3136 * 49) * 64
    # Along 56 positions windows of 7 hold 7·56 - 2·(1 + 2 + 3) = 380 real ones.
    assert layer["scores"].pairs == LocalAttention().pairs(place.grid) == 380**2
    assert next(LocalAttention().notes(place)) == (
        "windows of 7×7 cross the border: 9,264 of 153,664 keys are padding, zeros that take part in the softmax, "
        "and counted"
    )
    assert {row.mixing for row in layer.values()} == {"per-token", "local"}


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


def test_fused_keeps_one_number_per_query_and_head():
    eager, fused = (rows(LocalAttention(heads=4), at((4, 4), 16, fused=fused)) for fused in (False, True))
    assert total(eager, "flops") == total(fused, "flops")
    assert (eager["scores"].attention_entries, fused["attention"].attention_entries) == (16 * 49 * 4, 16 * 4)


# Local relation ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_lr_net_s_stem_by_hand():
    # 224² positions of width 64, 8 groups of 8 channels; windows of 49 around every second position along both axes.
    place = at((224, 224), 64)
    layer = rows(LocalRelation(stride=2), place)
    leaving = 112 * 112
    assert LocalRelation(stride=2).out(place)[0] == Grid((112, 112))
    assert layer["q"].macs == leaving * 64 * 8
    assert layer["k"].macs == 224 * 224 * 64 * 8
    assert layer["scores"].macs == 0
    assert layer["scores"].flops == 3 * leaving * 49 * 8
    assert layer["scores"].attention_entries == leaving * 49 * 8
    assert layer["weighted_sum"].macs == leaving * 49 * 64
    assert layer["out"].macs == leaving * 64 * 64
    # the prior: 49 offsets through 2 -> 4 -> 8, whatever the batch
    assert layer["prior_fc1"].macs + layer["prior_fc2"].macs == 49 * (2 * 4 + 4 * 8)
    assert layer["prior_fc1"].once
    assert total(layer, "params") == 2 * 64 * 8 + 2 * 4 + 4 * 8 + 64 * 64


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


def test_resnet_50_beside_its_local_relatives():
    """The same depth and stem's side: fewer parameters and MACs than with convolutions, and a matrix that they lack."""
    conv, attention, relation = (
        count(architecture(load(name), Run())) for name in ("resnet-50", "sasa-50", "lr-net-50")
    )
    assert attention.total("params") < relation.total("params") < conv.total("params")
    assert attention.total("macs") < relation.total("macs") < conv.total("macs")
    assert (conv.total("attention_entries"), conv.total("moved")) == (0, 0)
    # A window of 11 costs attention 8 % more MACs than one of 7, where a convolution's spatial part would grow 121/49.
    wider = count(architecture(load("sasa-50-k11"), Run()))
    assert 1.08 < wider.total("macs") / attention.total("macs") < 1.09


def test_the_stem_is_the_layer_then_a_norm_and_an_activation():
    component, place = LocalRelationEmbed(stride=2, norm="batch_norm", act="relu"), at((8, 8), 16)
    layer, stem = LocalRelation(stride=2), {row.path: row for row in component.operations(place)}
    assert list(stem) == [*(row.path for row in layer.operations(place)), "norm", "act"]
    assert (component.out(place), component.input_sides((4, 4))) == (layer.out(place), (8, 8))
    assert (stem["norm"].params, stem["act"].flops) == (32, 16 * 16)
    assert list(component.notes(place)) == list(layer.notes(place))
    with pytest.raises(ComponentError, match="is even"):
        LocalRelationEmbed(size=4).check(place)


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


# Beside a convolution of the same window ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [3, 5, 7])
def test_beside_a_convolution_of_the_same_window(size):
    """Per position, width d: a convolution k²·d², attention 3·d² + 2·k²·d, relation d² + k²·d + 2·d²/m MACs."""
    place, d, n, k = at((14, 14), 256), 256, 196, size * size
    kernel = Kernel((size, size), (1, 1), (size // 2, size // 2))
    conv = convolution("conv", "", outputs=n, kernel=kernel.sides, width=d, out_width=d, bias=False)
    attention, relation = rows(LocalAttention(size=size), place), rows(LocalRelation(size=size), place)
    assert conv.macs == n * k * d * d
    assert total(attention, "macs") == n * (3 * d * d + 2 * k * d)
    prior = k * (2 * 16 + 16 * 32)
    assert total(relation, "macs") == n * (d * d + k * d + 2 * d * 32) + prior
    # They read the same tokens: k² of them.
    assert conv.reads_tokens == attention["scores"].reads_tokens == relation["scores"].reads_tokens == k
    assert conv.reads == attention["scores"].reads == relation["scores"].reads
    # Parameters: k²·d² against 3·d² + size·d against d² + 2·d²/m and the prior.
    assert conv.params == k * d * d
    assert total(attention, "params") == 3 * d * d + size * d
    assert total(relation, "params") == d * d + 2 * d * 32 + 2 * 16 + 16 * 32
    # What attention materialises and a convolution does not: its matrix, and every window's keys and values.
    assert (conv.attention_entries, attention["scores"].attention_entries) == (0, n * k * 8)
    assert total(attention, "moved") >= 2 * n * k * d


@pytest.mark.parametrize("component", [LocalAttention(), LocalRelation()])
def test_nothing_as_large_as_n_squared_is_made(component):
    """On a map of 4096 positions the trace holds N·k²·d elements of moves, and no operation that no handle knows."""
    place = at((64, 64), 16)
    with torch.device("meta"):
        traced = trace(MODULES[type(component)](component, place).eval(), (torch.randn(1, 4096, 16),))
    assert traced.unsupported == {}
    assert traced.macs == total(rows(component, place), "macs")
    assert traced.macs < 4096 * 4096
