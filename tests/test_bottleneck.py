"""The blocks of residual networks: receptive fields, what they refuse, what stands in place of the 3×3 convolution."""

from __future__ import annotations

import pytest

from places import at, rows_of
from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import pairs_of_one_kernel, pairs_of_two_kernels, tokens_read
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.mechanisms.residual_blocks import Bottleneck

# Strides and widths ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_version_strides_on_the_first_convolution():
    place = at(56, 56, dim=256, out_dim=512)
    later, first = (rows_of(Bottleneck(width=128, stride=2, stride_on=on), place) for on in ("3x3", "1x1"))
    assert first["conv1"].macs == later["conv1"].macs // 4 == 784 * 256 * 128
    assert all(first[name].macs == row.macs for name, row in later.items() if name != "conv1")
    assert [row.params for row in first.values()] == [row.params for row in later.values()]
    assert list(Bottleneck(width=128, stride=2, stride_on="1x1").notes(place)) == [
        "stride 2 on the first 1×1 convolution: 2352 of 3136 positions are read by nothing"
    ]
    assert not list(Bottleneck(width=128, stride=2).notes(place))


@pytest.mark.parametrize(("width", "squeezed"), [(4, 1), (6, 2), (10, 2), (14, 4), (32, 8), (1232, 308)])
def test_a_part_of_a_width_is_rounded_as_the_public_code_rounds(width, squeezed):
    # Python's round: of two whole numbers as near, the even one (1.5 and 2.5 are both 2).
    assert Bottleneck(squeeze=0.25).squeezed(at(4, 4, dim=width)) == squeezed == round(width * 0.25)


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
        Bottleneck(**options).check(at(4, 4, dim=12))
    assert f"{refused.value.field}: {refused.value.message}".startswith(message)


# Another mixer in place of the 3×3 ───────────────────────────────────────────────────────────────────────────────────


class Shorter(LocalAttention, frozen=True, kw_only=True, tag="shorter"):
    """It leaves fewer positions than the shortcut."""

    def out(self, place: Place) -> tuple[Grid, int]:
        return Grid(tuple(side // self.stride for side in place.grid.sides)), place.dim


def test_what_stands_in_place_of_the_3x3_must_leave_the_shortcut_s_grid():
    spatial = Shorter(heads=1, size=3, position="none")
    Bottleneck(stride=2, spatial=spatial).check(at(4, 4, dim=12))
    with pytest.raises(ComponentError, match="leaves 1×2 positions, and the shortcut 2×2"):
        Bottleneck(stride=2, spatial=spatial).check(at(3, 4, dim=12))


@pytest.mark.parametrize("options", [{"groups": 3}, {"group_width": 3}, {"squeeze": 0.25}])
def test_what_belongs_to_the_3x3_is_refused_beside_another_mixer(options):
    with pytest.raises(ComponentError, match="belongs to the 3×3 convolution"):
        Bottleneck(spatial=LocalAttention(heads=1, size=3, position="none"), **options).check(at(4, 4, dim=12))
