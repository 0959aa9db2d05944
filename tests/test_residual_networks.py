"""Residual networks, MobileViT, and local attention in place of convolutions."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from places import at, rows_of
from specs import counted
from transformers_models import alike, imported, ours_of, transformers
from xfcost.mechanisms.local_attention import LocalAttention
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel

# `--kind` of one of these selects this file
KINDS = ("local_attention",)


SIZE = (37, 50)  # odd sides come up under the strides
SIZES: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [16, 24], "depths": [2, 2], "num_labels": 7}


def resnet(folder: Path, **settings: Any) -> tuple[nn.Module, tuple[Architecture, BuiltModel]]:
    theirs = transformers.ResNetForImageClassification(transformers.ResNetConfig(**SIZES, **settings))
    return theirs, imported(theirs, folder, size=SIZE)


def regnet(folder: Path, layer: str) -> tuple[nn.Module, tuple[Architecture, BuiltModel]]:
    config = transformers.RegNetConfig(**SIZES, groups_width=8, layer_type=layer)
    block = {"kind": "bottleneck", "expansion": 1, "group_width": 8} | ({"squeeze": 0.25} if layer == "y" else {})
    stages = [
        {"dim": dim, "blocks": [[block | {"stride": 2}], {"repeat": depth - 1, "blocks": [[block]]}]}
        for dim, depth in zip(SIZES["hidden_sizes"], SIZES["depths"], strict=True)
    ]
    stem = {"kind": "conv", "size": 3, "stride": 2, "padding": 1, "channels": 8, "bias": False}
    data = {
        "name": "ours",
        "input": {"kind": "image", "size": list(SIZE)},
        "embed": [stem | {"norm": "batch_norm", "act": "relu"}],
        "stages": stages,
        "head": {"kind": "classifier", "norm": "none", "classes": SIZES["num_labels"]},
    }
    return transformers.RegNetForImageClassification(config), ours_of(data, folder, batch=2, dtype="float64")


PAIRS = {
    "basic": partial(resnet, layer_type="basic"),
    "bottleneck": partial(resnet, layer_type="bottleneck"),
    "bottleneck v1": partial(resnet, layer_type="bottleneck", downsample_in_bottleneck=True),
    "RegNetX": partial(regnet, layer="x"),
    "RegNetY": partial(regnet, layer="y"),
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
    theirs, ours = PAIRS[pair](tmp_path)
    theirs = theirs.double().eval().requires_grad_(requires_grad=False)
    for name, weight in theirs.state_dict().items():  # running statistics that are not those of a fresh norm, too
        if weight.is_floating_point():
            weight.copy_(torch.rand_like(weight) + 0.5 if "running_var" in name else torch.randn_like(weight) * 0.3)
    ours[1].model.load_state_dict({named(name): weight for name, weight in theirs.state_dict().items()})
    alike(theirs, ours, tolerance=1e-10)


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


def test_another_size_is_one_option() -> None:
    # the size at which torchvision runs B2; a larger image has the same parameters in VGG too, of the pooled grid
    assert counted("efficientnet-b2", size=(288, 288)).total("macs") == 1_087_529_456
    assert counted("vgg-11", size=(320, 288)).total("params") == counted("vgg-11").total("params")


@pytest.mark.parametrize(("name", "printed"), [("xxs", 0.42e9), ("xs", 1.05e9), ("s", 2.03e9)])
def test_the_printed_work_counts_norms_and_no_classifier(name: str, printed: float) -> None:
    ledger = counted(f"mobilevit-{name}")
    norms = ledger.part(row for row in ledger.rows if row.operation.endswith("norm"))
    head = ledger.part(row for row in ledger.rows if row.path.startswith("head."))
    theirs = ledger.total("macs") + norms.total("flops") - head.total("macs")
    assert abs(theirs - printed) < 0.005e9


def test_the_paper_s_figure_per_position():
    """Beyond its maps a layer costs 5·k²·d per position: two products of 2 FLOPs, and an addition to the keys."""
    layer = rows_of(LocalAttention(size=5), at(9, 9, dim=16))
    spatial = [layer[name].flops for name in ("scores", "weighted_sum", "add_positions")]
    assert sum(spatial) == 81 * 5 * 25 * 16
