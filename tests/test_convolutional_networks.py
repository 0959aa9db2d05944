"""VGG, MobileNetV2 and EfficientNet: their blocks and the flattening head by hand, and plain networks beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from plain_convolutional import SCALES, VGG, noisy, plain
from strategies import as_yaml
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.layers.flatten_classifier import FlattenClassifier
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.mechanisms.inverted_residual import InvertedResidual
from xfcost.mechanisms.vgg import Vgg
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build


def spot(*sides: int, dim: int = 6, out_dim: int | None = None, special: int = 0) -> Place:
    return Place(grid=Grid(sides, special), dim=dim, out_dim=out_dim or dim)


# Squeezed inverted residuals ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_squeezed_block_by_hand() -> None:
    # 4×5 tokens of 8, 16 inside, every second row and column: 2×3 leave, 7 wide; a quarter of 8 is 2.
    block = InvertedResidual(ratio=2, stride=2, size=5, squeeze=0.25, act="relu6")
    rows = {row.path: row for row in block.operations(spot(4, 5, dim=8, out_dim=7))}
    assert {path: row.macs for path, row in rows.items() if row.macs} == {
        "expand_conv": 2560,  # 20·8·16
        "conv": 2400,  # 6·25·16
        "squeeze_conv1": 32,  # 16·2
        "squeeze_conv2": 32,
        "project_conv": 672,  # 6·16·7
    }
    assert (rows["squeeze_conv1"].params, rows["squeeze_conv2"].params) == (34, 48)
    # two bounds each; 2 numbers inside the squeeze
    assert [rows[path].flops for path in ("expand_act", "act", "squeeze_act")] == [640, 192, 4]
    assert {path: row.mixing for path, row in rows.items() if row.mixes} == {
        "conv": "local",
        "squeeze_pool": "global",
        "squeeze_scale": "global",
    }
    assert [path for path, row in rows.items() if row.content_dependent] == ["squeeze_scale"]


def test_the_squeeze_is_of_the_blocks_input_and_not_of_the_hidden_width() -> None:
    narrow, wide = (
        next(row for row in InvertedResidual(ratio=ratio, squeeze=0.5).operations(spot(4, 4)) if "conv1" in row.path)
        for ratio in (1, 4)
    )
    assert (narrow.macs, wide.macs) == (6 * 3, 24 * 3)


def test_a_squeezed_block_reads_all_tokens_and_another_its_kernel() -> None:
    grid = Grid((7, 9))
    assert len(InvertedResidual(size=5).reads(grid, 31)) == 25
    assert list(InvertedResidual(size=5, squeeze=0.25, stride=2).reads(grid, 3)) == list(range(63))


def test_what_a_block_refuses() -> None:
    with pytest.raises(ComponentError, match=r"0\.05 of the width 6 is no channel at all") as refused:
        InvertedResidual(squeeze=0.05).check(spot(4, 4))
    assert refused.value.field == "squeeze"
    with pytest.raises(ComponentError, match="4 is even, and the kernel is centred; try 3 or 5") as refused:
        InvertedResidual(size=4).check(spot(4, 4))
    assert refused.value.field == "size"


# VGG's block ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_vgg_s_block_by_hand() -> None:
    # 4×5 tokens of 3 to 2×2 of 8: the last column goes into no maximum.
    rows = {row.path: row for row in Vgg(convs=2, norm="batch_norm").operations(spot(4, 5, dim=3, out_dim=8))}
    assert list(rows) == ["conv1", "norm1", "act1", "conv2", "norm2", "act2", "pool"]
    assert {path: (row.macs, row.params) for path, row in rows.items() if row.params} == {
        "conv1": (20 * 9 * 3 * 8, 9 * 3 * 8 + 8),
        "norm1": (0, 16),
        "conv2": (20 * 9 * 8 * 8, 9 * 8 * 8 + 8),
        "norm2": (0, 16),
    }
    assert (rows["pool"].comparisons, rows["pool"].reads, rows["pool"].reads_tokens) == (4 * 4 * 8, "l²", 4)
    assert [path for path, row in rows.items() if row.content_dependent] == ["pool"]
    assert Vgg().out(spot(4, 5, out_dim=8)) == (Grid((2, 2)), 8)
    assert next(Vgg().notes(spot(4, 5))).endswith("the last 0×1 positions along its axes go into no output")


@pytest.mark.parametrize(("convs", "side"), [(1, 4), (2, 6), (4, 10)])
def test_a_token_reads_two_more_for_every_convolution(convs: int, side: int) -> None:
    # in the middle of 32×32
    assert len(Vgg(convs=convs).reads(Grid((32, 32)), 8 * 16 + 8)) == side**2


def test_vgg_s_block_refuses() -> None:
    with pytest.raises(ComponentError, match="halves every side, and the grid is 1×4; use a larger input"):
        Vgg().check(spot(1, 4))
    with pytest.raises(ComponentError, match="expected no special tokens, got 1"):
        Vgg().check(spot(4, 4, special=1))


# The head that flattens ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_flattening_head_by_hand() -> None:
    # 5 rows to 2: the first and the second share the third, 6 rows read; 4 columns to 2 share none
    rows = {
        row.path: row for row in FlattenClassifier(pooled=2, hidden=[7, 5], classes=3).operations(spot(5, 4, dim=6))
    }
    assert (rows["pool"].flops, rows["pool"].mixing, rows["pool"].reads_tokens) == (6 * 4 * 6, "global", 3 * 2)
    apart = next(FlattenClassifier(pooled=2, hidden=[7]).operations(spot(6, 4, dim=6)))
    assert (apart.flops, apart.mixing) == (6 * 4 * 6, "per-token")
    assert {path: (row.macs, row.params) for path, row in rows.items() if row.params} == {
        "fc1": (4 * 6 * 7, 4 * 6 * 7 + 7),
        "fc2": (35, 40),
        "linear": (15, 18),
    }
    with pytest.raises(ComponentError, match="expected no special tokens, got 1"):
        FlattenClassifier(pooled=2, hidden=[7]).check(spot(4, 4, special=1))


# Whole networks ──────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = [*SCALES, *VGG, *(f"{name}-bn" for name in VGG), "mobilenetv2-1.0"]


def counted(name: str, *settings: str, **run: object) -> Ledger:
    return count(place(load(name, list(settings)), Run(**run)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_the_plain_one_s_parameters_and_macs(name: str) -> None:
    size = SCALES[name][2] if name in SCALES else 224
    with torch.device("meta"):
        model, pixels = plain(name).eval(), torch.empty(1, 3, size, size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(pixels)
    ledger = counted(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == ledger.total("params")
    assert counter.get_total_flops() == 2 * (ledger.total("macs") or 0)


def test_another_size_is_one_option() -> None:
    # the size at which torchvision runs B2; a larger image has the same parameters in VGG too, of the pooled grid
    assert counted("efficientnet-b2", size=(288, 288)).total("macs") == 1_087_529_456
    assert counted("vgg-11", size=(320, 288)).total("params") == counted("vgg-11").total("params")


@pytest.mark.parametrize(
    ("name", "size"),
    [("efficientnet-b0", (64, 96)), ("mobilenetv2-1.0", (64, 75)), ("vgg-11", (64, 75)), ("vgg-11-bn", (224, 32))],
)
def test_the_whole_with_the_plain_one_s_weights(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    data = {"extends": name, "name": "ours", "head": {"classes": 7} | ({"hidden": [9, 9]} if "vgg" in name else {})}
    file = tmp_path / "ours.yaml"
    file.write_text(as_yaml(data), encoding="utf-8")
    live = build(place(load(str(file)), Run(size=size, batch=2, dtype="float64")), "cpu")
    with torch.no_grad():
        theirs = noisy(plain(name, classes=7, hidden=9).double().eval())
        ours, state = live.model.state_dict(), list(theirs.state_dict().values())
        # in the order in which they run
        assert len(ours) == len(state)
        for mine, other in zip(ours.values(), state, strict=True):
            mine.copy_(other.reshape(mine.shape))
        expected = theirs(*live.inputs)
        torch.testing.assert_close(live.model(*live.inputs), expected, rtol=1e-9, atol=1e-10)
    assert expected.std(0).min() > 1e-3  # not all alike
