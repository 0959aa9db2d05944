"""ResNet, ResNeXt, RegNet, VGG, MobileNetV2 and EfficientNet: what their blocks refuse, other networks beside them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from places import at
from specs import counted
from strategies import placed
from transformers_models import parameters, transformers
from xfcost.counting.forward import count
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.inverted_residual import InvertedResidual
from xfcost.mechanisms.vgg import Vgg
from xfcost.torch_models.build import build

CLASSES, SIZE = 7, (37, 50)  # odd sides come up under the strides
WIDTHS, DEPTHS = [16, 24], [2, 2]

STEM = {"kind": "conv", "size": 7, "stride": 2, "padding": 3, "channels": 8, "bias": False}
POOL = {"kind": "pool", "form": "max", "size": 3, "stride": 2, "padding": 1}
NORMED = {"norm": "batch_norm", "act": "relu"}


def spec(embed: list[dict[str, Any]], block: dict[str, Any], strided: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Two stages, the first block of each with its options of `strided`."""
    stages = [
        {"dim": dim, "blocks": [[block | first], {"repeat": depth - 1, "blocks": [[block]]}]}
        for dim, depth, first in zip(WIDTHS, DEPTHS, strided, strict=True)
    ]
    head = {"kind": "classifier", "norm": "none", "classes": CLASSES}
    return {"name": "ours", "input": {"kind": "image", "size": list(SIZE)}, "embed": embed, "stages": stages} | {
        "head": head
    }


def resnet(block: dict[str, Any], strided: dict[str, Any], **settings: Any) -> tuple[dict[str, Any], nn.Module]:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=WIDTHS, depths=DEPTHS, num_labels=CLASSES, **settings
    )
    ours = spec([STEM | NORMED, POOL], block, ({}, {"stride": 2} | strided))
    return ours, transformers.ResNetForImageClassification(config)


def regnet(layer: str) -> tuple[dict[str, Any], nn.Module]:
    config = transformers.RegNetConfig(
        embedding_size=8, hidden_sizes=WIDTHS, depths=DEPTHS, groups_width=8, layer_type=layer, num_labels=CLASSES
    )
    block = {"kind": "bottleneck", "expansion": 1, "group_width": 8} | ({"squeeze": 0.25} if layer == "y" else {})
    embed = [STEM | NORMED | {"size": 3, "padding": 1}]
    return spec(embed, block, ({"stride": 2}, {"stride": 2})), transformers.RegNetForImageClassification(config)


PAIRS = {
    "basic": lambda: resnet({"kind": "basic"}, {}, layer_type="basic"),
    "bottleneck": lambda: resnet({"kind": "bottleneck"}, {}, layer_type="bottleneck"),
    "bottleneck v1": lambda: resnet(
        {"kind": "bottleneck"}, {"stride_on": "1x1"}, layer_type="bottleneck", downsample_in_bottleneck=True
    ),
    "RegNetX": lambda: regnet("x"),
    "RegNetY": lambda: regnet("y"),
}


def named(theirs: str) -> str:
    """Our name of one of their weights."""
    stem = re.fullmatch(r"\w+\.embedder\.embedder\.(\w+)\.(\w+)", theirs)
    if stem:
        return f"streams.0.embed.0.{LEAVES[stem[1]]}.{stem[2]}"
    if theirs.startswith("classifier"):
        return f"head.linear.{theirs.rpartition('.')[2]}"
    block = re.fullmatch(r"\w+\.encoder\.stages\.(\d+)\.layers\.(\d+)\.(.+)\.(\w+)", theirs)
    assert block
    stage, layer, leaf, weight = block.groups()
    return f"streams.0.stages.{stage}.run.{layer}.0.inner.{our_leaf(leaf)}.{weight}"


LEAVES = {"convolution": "conv", "normalization": "norm"}


def our_leaf(leaf: str) -> str:
    """`layer.1.convolution` -> `conv2`; a Y layer has squeeze-and-excitation before its `conv3`."""
    if leaf.startswith("shortcut"):
        return f"shortcut.{LEAVES[leaf.partition('.')[2]]}"
    _, step, kind, *at = leaf.split(".")
    if kind == "attention":
        return f"squeeze.conv{int(at[0]) // 2 + 1}"
    return f"{LEAVES[kind]}{min(int(step) + 1, 3)}"


@pytest.mark.parametrize("pair", PAIRS)
def test_a_small_network_is_theirs(pair, tmp_path):
    torch.manual_seed(0)
    data, theirs = PAIRS[pair]()
    architecture = placed(data, tmp_path, batch=2)
    ours = build(architecture, "cpu").model.double()
    theirs = theirs.double().eval().requires_grad_(requires_grad=False)
    for name, weight in theirs.state_dict().items():  # running statistics that are not those of a fresh norm, too
        if weight.is_floating_point():
            weight.copy_(torch.rand_like(weight) + 0.5 if "running_var" in name else torch.randn_like(weight) * 0.3)
    ours.load_state_dict({named(name): weight for name, weight in theirs.state_dict().items()})

    pixels = torch.randn(2, 3, *SIZE, dtype=torch.float64)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        answer = theirs(pixels).logits
    with torch.no_grad():
        torch.testing.assert_close(ours(pixels), answer, rtol=1e-10, atol=1e-10)
    ledger = count(architecture)
    assert counter.get_total_flops() == 2 * ledger.total("macs")
    assert parameters(theirs) == ledger.total("params")


def test_another_depth_is_one_setting():
    deeper = counted("resnet-50", "stages.2.blocks.1.repeat=22")
    known = counted("resnet-101")
    assert [deeper.total(quantity) for quantity in ("params", "macs", "flops")] == [
        known.total(quantity) for quantity in ("params", "macs", "flops")
    ]


def test_what_of_a_network_mixes():
    resnet_rows = counted("resnet-50").rows
    assert {row.operation for row in resnet_rows if row.mixes} == {"conv", "pool", "conv2"}
    assert not any(row.bound for row in resnet_rows)
    assert {row.operation for row in resnet_rows if row.content_dependent} == {"pool"}  # a maximum chooses
    regnet_rows = counted("regnety-16gf").rows
    everywhere = [row for row in regnet_rows if row.mixing == "global"]
    assert {(row.operation, row.content_dependent, row.reads) for row in everywhere} == {
        ("squeeze_pool", False, "N"),
        ("squeeze_scale", True, "N"),
    }
    # the gate reads all tokens of its stage: 56², 28², 14² and 7²
    assert [row.reads_tokens for row in everywhere[::4]] == [3136, 784, 196, 49]


# VGG, MobileNetV2 and EfficientNet: what their blocks refuse, and plain networks beside them ──────────────────────────


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


def test_another_size_is_one_option() -> None:
    # the size at which torchvision runs B2; a larger image has the same parameters in VGG too, of the pooled grid
    assert counted("efficientnet-b2", size=(288, 288)).total("macs") == 1_087_529_456
    assert counted("vgg-11", size=(320, 288)).total("params") == counted("vgg-11").total("params")
