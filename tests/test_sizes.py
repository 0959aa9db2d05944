"""Image sizes: --size, costs as images grow, stages side by side, and weights that are bound to the input's size."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import xfcost
from helpers import error_of, stdout_of
from specs import counted
from strategies import exact
from tiers import tiered_presets
from xfcost.counting.forward import count
from xfcost.counting.sweep import PIXELS, sweep
from xfcost.counting.system import SpecSystem
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.operation import Operation
from xfcost.report.compare import comparison_plain
from xfcost.report.table import ledger_plain
from xfcost.spec.inputs import image_size_for_grid
from xfcost.spec.load import Loaded, load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def test_a_size_is_the_image_s_height_and_width():
    # 224/4 × 320/4
    assert xfcost.analyze("swin-t", size="224x320", trace=False).metadata.tokens == "4,480 (56×80)"
    for given in (384, "384", (384, 384), "384x384"):
        ledger = xfcost.analyze("vit-b16", size=given, trace=False)
        assert ledger.metadata.tokens == "576 (24×24) + 1"
        assert ledger.total("macs") == counted("vit-b16-384").total("macs")


@pytest.mark.parametrize("given", [0, -1, True, 2.5, "a", "224x", "1x2x3", 2**17, ()])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(UsageError, match="expected the image's side in pixels"):
        xfcost.analyze("vit", size=given, trace=False)


def test_a_size_where_there_is_no_image_or_n_too_is_refused():
    with pytest.raises(UsageError, match=r"GPT-2 \(124M\) takes tokens, which have no height and width; give --N"):
        xfcost.analyze("gpt2", size=224, trace=False)
    with pytest.raises(UsageError, match="--N and --size: both say how large the input is"):
        xfcost.analyze("vit", N=784, size=224, trace=False)
    with pytest.raises(XfcostError, match="16 does not divide the image 230×230"):
        xfcost.analyze("vit-b16", size=230, trace=False)


def test_a_traced_model_of_another_size_agrees():
    ledger = xfcost.analyze("swin-t", size=(224, 320))
    exact(ledger)


def test_the_input_for_a_grid():
    assert image_size_for_grid(load("vit-b16"), Run(), (14, 20)) == (224, 320)
    assert image_size_for_grid(load("swin-t"), Run(), (1, 1)) == (4, 4)


def test_a_sweep_over_sizes_takes_images_that_patches_tile():
    one = sweep("ViT", SpecSystem(load("vit-b14")), Run(), (200, 1000), [384, 518], PIXELS)
    assert (one.xs[0], one.xs[-1]) == (210, 994)
    assert all(x % 14 == 0 for x in one.xs)
    assert 518 in one.xs  # 37·14, which was asked for; 384 is no multiple of 14
    assert 384 not in one.xs
    assert [ledger.metadata.grid_tokens for ledger in one.ledgers] == [(x // 14) ** 2 for x in one.xs]


def test_plot_over_sizes(tmp_path: Path):
    table = tmp_path / "sizes.csv"
    done = stdout_of("plot", "vit-b16", "swin-t", "--size", "224:1024", "--metric", "macs", "-o", table)
    assert "ViT-B/16: slope 2.40 from side = 224 to 1,024" in done
    with table.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert {"224", "1024"} <= {row["size"] for row in rows}
    assert all(int(row["N"]) == (int(row["size"]) // 16) ** 2 for row in rows if row["system"] == "ViT-B/16")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--size", "224"], "--size 224: expected a range LOW:HIGH, as in --size 224:1024"),
        (
            ["--size", "300:303"],
            "multiples of 16 pixels, and there are fewer than two in this range; try --size 288",
        ),
        (["--size", "224:384", "--N", "49:196"], "--N and --size: one axis at a time"),
        (["--size", "224:384", "--mark", "400"], "--mark 400: is outside the range; expected side from 224 to 384"),
    ],
)
def test_what_is_no_range_of_sizes_is_refused(options, words, tmp_path: Path):
    assert words in " ".join(error_of("plot", "vit-b16", *options, "-o", tmp_path / "a.svg").split())


def test_systems_that_take_images_stand_beside_each_other_at_usual_sizes():
    found = xfcost.compare("vit-b16", "swin-b", "vit-b14")
    assert list(found.by_size["ViT-B/16"]) == [224, 384, 512, 1024]
    for side, name in ((224, "vit-b16"), (384, "vit-b16-384")):
        at = found.by_size["ViT-B/16"][side]
        assert at is not None
        assert at["macs"] == counted(name).total("macs")
    assert found.by_size["ViT-B/14"][512] is None  # 14 · 36.6
    assert xfcost.compare("vit-b16", "gpt2").by_size == {}
    assert json.loads(found.to_json())["by_size"]["Swin-B"]["224"]["tokens"] == 3136


def test_stages_of_an_isotropic_and_of_a_hierarchical_system():
    found = xfcost.compare("vit-b16", "swin-b")
    swin = found.ledgers[1].by_stage()
    assert [(stage["tokens"], stage["width"], stage["blocks"]) for stage in swin] == [
        (3136, 128, 2),
        (784, 256, 2),
        (196, 512, 18),
        (49, 1024, 2),
    ]
    stem_layers = counted("swin-b").part(row for row in found.ledgers[1].rows if row.stage in ("embed", "head"))
    assert sum(stage["macs"] for stage in swin) + (stem_layers.total("macs") or 0) == counted("swin-b").total("macs")
    text = comparison_plain(found)
    assert "by stage: " in text
    assert "ViT-B/16: isotropic, 196 tokens × 768 throughout" in text
    assert "Swin-B: hierarchical, 3,136 → 49 tokens (64× fewer), 128 → 1,024 wide" in text
    assert "by stage: " not in comparison_plain(xfcost.compare("vit-b16", "gpt2"))


def test_patches_beside_pixels():
    # 224² pixels, 14² patches of 16²: 256 times fewer tokens, 256² = 65 536 times fewer pairs.
    found = xfcost.compare("pixels-224", "vit-b16")
    ratios = found.ratios["ViT-B/16"]
    assert (ratios["tokens"], ratios["token_pairs"]) == (1 / 256, 1 / 65_536)
    text = comparison_plain(found)
    assert "256× less" in text
    assert "65,536× less" in text


@pytest.mark.parametrize("name", tiered_presets(preset_names()))
def test_weights_are_bound_to_the_input_s_size_where_they_say_so(name):
    """A row whose parameters differ at another size is marked, and a marked one differs at some size."""
    loaded = load(name)
    here = {row.path: row for row in count(place(loaded, Run())).rows}
    # Larger inputs, for a smaller one may clip a window that nothing clips here; smaller ones where tables are full.
    larger, smaller = (_differing(loaded, here, scales) for scales in (((2, 1), (3, 1), (3, 2)), ((1, 2),)))
    differing = smaller if larger is None else larger
    if differing is not None:
        assert differing == {path for path, row in here.items() if row.bound}


def _differing(loaded: Loaded, here: dict[str, Operation], scales: Iterable[tuple[int, int]]) -> set[str] | None:
    """Rows with other parameters at another size; None where no size fits."""
    found: set[str] | None = None
    for scale in scales:
        try:
            there = {row.path: row.params for row in count(place(loaded, Run(scale=scale))).rows}
        except XfcostError:  # a learned position table is full, or a side can't be halved
            continue
        found = (found or set()) | {path for path, row in here.items() if there.get(path, 0) != row.params}
    return found


def test_a_rebuilt_model_says_so():
    own = xfcost.analyze("vit-b16", trace=False)
    assert own.bound_params == 197 * 768
    assert not any("rebuilt" in note for note in own.metadata.notes)
    other = xfcost.analyze("vit-b16", N=784, trace=False)
    assert f"rebuilt for 784 (28×28) + 1 tokens: {785 * 768:,} parameters" in " ".join(ledger_plain(other).split())
    assert json.loads(other.to_json())["totals"]["bound_params"] == 785 * 768
    swin = xfcost.analyze("swin-t", size=448, trace=False)  # windows cover no map here either
    assert not any("rebuilt" in note for note in swin.metadata.notes)


def test_systems_with_tokens_of_other_sizes_cross_at_equal_images():
    # ViT-Ti/16 costs 1.25 G at 224, Swin-S 8.74 G; global attention overtakes windows as images grow.
    found = xfcost.compare("vit-s16", "swin-t")
    crossings = {one["quantity"]: one for one in found.size_crossovers}
    side = crossings["mixing_macs"]["size"]
    below, above = (
        [counted(name, size=(at, at)).total("macs", lambda row: row.mixes) or 0 for name in ("vit-s16", "swin-t")]
        for at in (side - 16, side)
    )
    assert below[0] < below[1]
    assert above[0] > above[1]
    told = f"ViT-S/16 costs less up to {side - 16}×{side - 16}, Swin-T from {side}×{side} to 1024×1024; Swin-T at all"
    assert told in " ".join(comparison_plain(found).split())
    assert xfcost.compare("vit-s16", "vit-b16").size_crossovers == ()  # N says the same


def test_places_traded_again_and_again_take_one_line():
    found = xfcost.compare("swin-t", "swinv2-t-w8-256")
    many = [one for one in found.crossovers if one["quantity"] == "mixing_macs"]
    assert len(many) > 3
    (searched,) = found.searches
    orders = [one for one in searched.orders if one.quantity == "mixing_macs" and one.last <= 64**2]
    points = {who: sum(one.points for one in orders if one.cheaper == who) for who in (*found.names, None)}
    assert sum(points.values()) == 64
    told = " ".join(comparison_plain(found).split())
    assert (
        f"mixing MACs: Swin-T and SwinV2-T (window 8, 256) are equal up to N = 49, then the order changes "
        f"{len(orders) - 1} times up to N = 4,096 (Swin-T at {points['Swin-T']}, SwinV2-T (window 8, 256) at "
        f"{points['SwinV2-T (window 8, 256)']}, equal at {points[None]} of 64); counted above: "
    ) in told
