"""The blocks of residual networks by hand, what they refuse, and what stands in place of the 3×3 convolution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest
import torch
from torch import Tensor, nn

from cases.base import Case
from growth import orders_at
from test_every_mechanism import example, joined, make, probed
from xfcost.formulas.component import Mixer, Place
from xfcost.formulas.receptive_field import pairs_of_one_kernel, pairs_of_two_kernels, tokens_read
from xfcost.formulas.rows import elementwise, linear
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.basic import Basic
from xfcost.mechanisms.bottleneck import Bottleneck
from xfcost.torch_models.mechanisms import bottleneck as live


def spot(sides: tuple[int, ...], dim: int, out_dim: int | None = None) -> Place:
    return Place(grid=Grid(sides), dim=dim, out_dim=out_dim or dim)


def by_name(component: Mixer, place: Place) -> dict[str, Operation]:
    return {row.path: row for row in component.operations(place)}


# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_block_that_opens_stage_two_of_resnet_50_by_hand():
    rows = by_name(Bottleneck(width=128, stride=2), spot((56, 56), 256, 512))
    # 56² positions into 256·128, 28² out of 9·128·128, of 128·512 and of the shortcut's 256·512.
    assert rows["conv1"].macs == 3136 * 256 * 128
    assert rows["conv2"].macs == 784 * 9 * 128 * 128
    assert rows["conv3"].macs == 784 * 128 * 512
    assert rows["shortcut_conv"].macs == 784 * 256 * 512
    # No convolution has a bias; every norm has two numbers per channel.
    assert [rows[f"conv{n}"].params for n in (1, 2, 3)] == [256 * 128, 9 * 128 * 128, 128 * 512]
    assert [rows[name].params for name in ("norm1", "norm2", "norm3", "shortcut_norm")] == [256, 256, 1024, 1024]
    assert [name for name, row in rows.items() if row.mixes] == ["conv2"]
    assert (rows["conv2"].mixing, rows["conv2"].reads, rows["conv2"].reads_tokens) == ("local", "W²", 9)
    assert not rows["conv2"].content_dependent


def test_the_first_version_strides_on_the_first_convolution():
    place = spot((56, 56), 256, 512)
    later, first = (by_name(Bottleneck(width=128, stride=2, stride_on=on), place) for on in ("3x3", "1x1"))
    assert first["conv1"].macs == later["conv1"].macs // 4 == 784 * 256 * 128
    assert all(first[name].macs == row.macs for name, row in later.items() if name != "conv1")
    assert [row.params for row in first.values()] == [row.params for row in later.values()]
    assert list(Bottleneck(width=128, stride=2, stride_on="1x1").notes(place)) == [
        "stride 2 on the first 1×1 convolution: 2352 of 3136 positions are read by nothing"
    ]
    assert not list(Bottleneck(width=128, stride=2).notes(place))


def test_the_shortcut_is_x_itself_where_the_shape_stays():
    for component in (Bottleneck(width=64), Basic()):
        assert not [name for name in by_name(component, spot((8, 8), 256)) if name.startswith("shortcut")]
        assert "shortcut_conv" in by_name(component, spot((8, 8), 64, 256))
        assert "shortcut_conv" in by_name(msgspec.structs.replace(component, stride=2), spot((8, 8), 256))


def test_the_inner_width_is_given_or_a_part_of_the_stage_s():
    place = spot((8, 8), 256)
    assert [component.inner(place) for component in (Bottleneck(), Bottleneck(expansion=1), Bottleneck(width=100))] == [
        64,
        256,
        100,
    ]


def test_squeeze_and_excitation_by_hand():
    # RegNetY's: behind the 3×3, a quarter of the block's input; 224 -> 448, so 56 of 448 channels.
    rows = by_name(Bottleneck(expansion=1, group_width=112, stride=2, squeeze=0.25), spot((56, 56), 224, 448))
    assert rows["conv2"].macs == 784 * 9 * 112 * 448
    assert rows["squeeze_conv1"].macs == rows["squeeze_conv2"].macs == 448 * 56
    assert (rows["squeeze_conv1"].params, rows["squeeze_conv2"].params) == (448 * 56 + 56, 448 * 56 + 448)
    assert rows["squeeze_pool"].flops == rows["squeeze_scale"].flops == 784 * 448
    assert rows["squeeze_gate"].flops == 3 * 448
    mixing = [(name, row.mixing, row.reads_tokens, row.content_dependent) for name, row in rows.items() if row.mixes]
    assert mixing == [
        ("conv2", "local", 9, False),
        ("squeeze_pool", "global", 784, False),
        ("squeeze_scale", "global", 784, True),
    ]


@pytest.mark.parametrize(("width", "squeezed"), [(4, 1), (6, 2), (10, 2), (14, 4), (32, 8), (1232, 308)])
def test_a_part_of_a_width_is_rounded_as_the_public_code_rounds(width, squeezed):
    # Python's round: of two whole numbers as near, the even one (1.5 and 2.5 are both 2).
    assert Bottleneck(squeeze=0.25).squeezed(spot((4, 4), width)) == squeezed == round(width * 0.25)


def test_groups_and_their_width_say_the_same():
    place = spot((8, 8), 256)
    groups, width = (by_name(Bottleneck(width=128, **way), place) for way in ({"groups": 32}, {"group_width": 4}))
    assert groups == width
    assert groups["conv2"].params == 9 * 4 * 128


def test_what_is_read_by_hand():
    # 3×3 at 0, 2, 4 of five: {0,1}, {1,2,3}, {3,4} along an axis. Only 0, 2, 4 where conv1 has the stride.
    row = Grid((5,))
    assert [list(Bottleneck(stride=2).reads(row, token)) for token in range(3)] == [[0, 1], [1, 2, 3], [3, 4]]
    before = Bottleneck(stride=2, stride_on="1x1")
    assert [list(before.reads(row, token)) for token in range(3)] == [[0, 2], [0, 2, 4], [2, 4]]
    assert [list(Bottleneck(stride=2, squeeze=1).reads(row, token)) for token in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert list(Basic().reads(Grid((7, 7)), 24)) == [
        7 * y + x for y in range(1, 6) for x in range(1, 6)
    ]  # 5×5 around the middle
    assert Basic().pairs(Grid((7, 7))) == (5 * 7 - 6) ** 2


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 7])
def test_receptive_fields_in_closed_form(stride):
    for side in range(1, 30):
        outputs = range(0, side, stride)
        windows = [{place for place in (at - 1, at, at + 1) if 0 <= place < side} for at in outputs]
        assert pairs_of_one_kernel(side, stride) == sum(map(len, windows))
        assert tokens_read(side, stride) == len(set().union(*windows))
        near = [set().union(*windows[max(0, at - 1) : at + 2]) for at in range(len(windows))]
        assert pairs_of_two_kernels(side, stride) == sum(map(len, near))


# What is refused ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 3, "expansion": 4}, "expansion: means the same as `width`"),
        ({"expansion": 5}, "expansion: 5 does not divide the stage's width 12; it could be 1, 2, 3, 4, 6"),
        ({"width": 6, "groups": 4}, "groups: 4 does not divide the inner width 6; it could be 1, 2, 3, 6"),
        ({"width": 6, "group_width": 4}, "group_width: 4 does not divide the inner width 6; it could be 1, 2, 3, 6"),
        ({"width": 6, "groups": 2, "group_width": 3}, "group_width: means the same as `groups`"),
        ({"squeeze": 0.01}, "squeeze: 0.01 of the width 12 is no channel at all; try 0.25"),
    ],
)
def test_what_can_not_be_is_refused(options, message):
    with pytest.raises(ComponentError) as refused:
        Bottleneck(**options).check(spot((4, 4), 12))
    assert f"{refused.value.field}: {refused.value.message}".startswith(message)


@pytest.mark.parametrize("component", [Bottleneck(), Basic()])
def test_extra_tokens_have_no_neighbours(component):
    with pytest.raises(ComponentError, match="expected no special tokens, got 1"):
        component.check(Place(grid=Grid((4, 4), 1), dim=12, out_dim=12))


# Another mixer in place of the 3×3 ───────────────────────────────────────────────────────────────────────────────────


class Anywhere(Mixer, frozen=True, kw_only=True, tag="anywhere"):
    """A mixer of this test: every stride-th token in a row is projected, and the mean token added to it."""

    stride: int = 1

    def label(self) -> str:
        return "Anywhere"

    def out(self, place: Place) -> tuple[Grid, int]:
        return Grid(tuple(-(-side // self.stride) for side in place.grid.sides)), place.dim

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        return range(grid.tokens)

    def pairs(self, grid: Grid, memory: Grid | None = None) -> int:
        return grid.tokens * self.out(Place(grid=grid, dim=1, out_dim=1))[0].tokens

    def operations(self, place: Place) -> Iterator[Operation]:
        n, out, d = place.grid.tokens, self.out(place)[0].tokens, place.dim
        yield elementwise("mean", "Mean", "mean", n * d, mixing="global", reads="N", reads_tokens=n)
        yield linear("project", "Projection", out, d, d)
        yield elementwise("join", "Add", "add", out * d, mixing="global", reads="N", reads_tokens=n)

    def notes(self, place: Place) -> Iterator[str]:
        yield f"width {place.dim}"


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True)


class Join(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class AnywhereModule(nn.Module):
    def __init__(self, component: Anywhere, place: Place) -> None:
        super().__init__()
        self.sides, self.stride = place.grid.sides, component.stride
        self.mean, self.project, self.join = Mean(), nn.Linear(place.dim, place.dim), Join()

    def forward(self, x_BND: Tensor) -> Tensor:
        grid = x_BND.unflatten(1, self.sides)
        for axis in range(len(self.sides)):
            grid = grid.index_select(1 + axis, torch.arange(0, self.sides[axis], self.stride, device=x_BND.device))
        return self.join(self.project(grid.flatten(1, -2)), self.mean(x_BND))


@pytest.fixture
def _anywhere(monkeypatch):
    monkeypatch.setitem(live.SPATIAL, Anywhere, AnywhereModule)


@pytest.mark.usefixtures("_anywhere")
@pytest.mark.parametrize("stride_on", ["1x1", "3x3"])
@pytest.mark.parametrize("sides", [(4, 4), (3, 5)])
def test_another_mixer_stands_in_place_of_the_3x3(stride_on, sides):
    component = Bottleneck(width=20, stride=2, stride_on=stride_on, spatial=Anywhere())
    place = spot(sides, 24)
    component.check(place)
    ledger = joined(component, place, 2, "none")
    assert not ledger.agreement.differences  # but for the gather, which this test's mixer names nowhere
    # the trace says so, and the dispatcher
    assert [text.partition(":")[0] for text in ledger.agreement.uncounted] == ["it.inner.spatial"] * 2
    names = list(by_name(component, place))
    at = names.index("spatial_mean")
    assert names[at - 1 : at + 4] == ["act1", "spatial_mean", "spatial_project", "spatial_join", "norm2"]
    assert "conv2" not in names
    # it is w = 20 wide, and stands behind the stride where conv1 has it
    outside = {(4, 4): 2 * 2, (3, 5): 2 * 3}[sides]
    inside = outside if stride_on == "1x1" else place.grid.tokens
    assert by_name(component, place)["spatial_mean"].flops == inside * 20
    assert by_name(component, place)["spatial_project"].macs == outside * 20 * 20
    assert next(component.notes(place)) == "width 20"
    assert component.label() == "Bottleneck, Anywhere"
    assert orders_at(component, place)["spatial_project"] == "O(N·d²)"

    seen, listed = probed_of(component, place)
    assert seen == [frozenset(reads) for reads in listed]
    assert sum(map(len, listed)) == component.pairs(place.grid)
    module = make(Case(component, place))
    assert module(*example(place, 2)).shape == (2, outside, 24)


def probed_of(component: Bottleneck, place: Place) -> tuple[list[frozenset[int]], list[Sequence[int]]]:
    outputs = component.out(place)[0].tokens
    found, _ = probed(Case(component, place))
    return list(found.reads), [component.reads(place.grid, token) for token in range(outputs)]


class Shorter(Anywhere, frozen=True, kw_only=True, tag="shorter"):
    """It leaves fewer positions than the shortcut."""

    def out(self, place: Place) -> tuple[Grid, int]:
        return Grid(tuple(side // self.stride for side in place.grid.sides)), place.dim


def test_what_stands_in_place_of_the_3x3_must_leave_the_shortcut_s_grid():
    Bottleneck(stride=2, spatial=Shorter()).check(spot((4, 4), 12))
    with pytest.raises(ComponentError, match="leaves 1×2 positions, and the shortcut 2×2"):
        Bottleneck(stride=2, spatial=Shorter()).check(spot((3, 4), 12))


@pytest.mark.parametrize("options", [{"groups": 3}, {"group_width": 3}, {"squeeze": 0.25}])
def test_what_belongs_to_the_3x3_is_refused_beside_another_mixer(options):
    with pytest.raises(ComponentError, match="belongs to the 3×3 convolution"):
        Bottleneck(spatial=Anywhere(), **options).check(spot((4, 4), 12))
