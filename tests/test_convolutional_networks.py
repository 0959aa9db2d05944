"""VGG, MobileNetV2 and EfficientNet: what their blocks refuse, and plain networks beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from places import at
from plain_convolutional import SCALES, VGG, noisy, plain
from specs import counted
from strategies import placed
from transformers_models import same_totals
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.inverted_residual import InvertedResidual
from xfcost.mechanisms.vgg import Vgg
from xfcost.torch_models.build import build

# Squeezed inverted residuals ─────────────────────────────────────────────────────────────────────────────────────────


def test_what_a_block_refuses() -> None:
    with pytest.raises(ComponentError, match=r"0\.05 of the width 6 is no channel at all") as refused:
        InvertedResidual(squeeze=0.05).check(at(4, 4))
    assert refused.value.field == "squeeze"
    with pytest.raises(ComponentError, match="4 is even, and the kernel is centred; try 3 or 5") as refused:
        InvertedResidual(size=4).check(at(4, 4))
    assert refused.value.field == "size"


# VGG's block ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_vgg_s_block_refuses() -> None:
    with pytest.raises(ComponentError, match="halves every side, and the grid is 1×4; use a larger input"):
        Vgg().check(at(1, 4))
    with pytest.raises(ComponentError, match="expected no special tokens, got 1"):
        Vgg().check(at(4, 4, special=1))


# Whole networks ──────────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = [*SCALES, *VGG, *(f"{name}-bn" for name in VGG), "mobilenetv2-1.0"]


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_the_plain_one_s_parameters_and_macs(name: str) -> None:
    same_totals(name, lambda: plain(name))


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
    live = build(placed(data, tmp_path, size=size, batch=2, dtype="float64"), "cpu")
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
