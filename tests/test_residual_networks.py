"""Residual networks, MobileViT, and local attention in place of convolutions."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from places import at
from specs import counted
from strategies import counted_spec, placed
from transformers_models import parameters, transformers
from xfcost.counting.forward import count
from xfcost.formulas.arithmetic import ceil_div
from xfcost.formulas.component import Mixer, Place, Residual
from xfcost.layers.feed_forward import Dense
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation, Neighbourhood
from xfcost.spec.load import load
from xfcost.spec.placement import place as architecture
from xfcost.spec.run import Run
from xfcost.torch_models.build import build

# `--kind` of one of these selects this file
KINDS = ("local_attention",)


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


def test_another_size_is_one_option() -> None:
    # the size at which torchvision runs B2; a larger image has the same parameters in VGG too, of the pooled grid
    assert counted("efficientnet-b2", size=(288, 288)).total("macs") == 1_087_529_456
    assert counted("vgg-11", size=(320, 288)).total("params") == counted("vgg-11").total("params")


def test_what_stands_beside_is_mapped_with_it(tmp_path: Path) -> None:
    mlp, conv = [{"kind": "mlp"}], {"kind": "conv", "size": 1}
    spec = {
        "input": {"kind": "image", "size": 8},
        "embed": [{"kind": "patch", "size": 2}],
        "stages": [
            {"dim": 4, "depth": 1, "block": mlp},
            {"dim": 6, "depth": 1, "block": mlp, "enter": [conv]},
            {"dim": 8, "depth": 1, "block": mlp, "enter": [{"kind": "concatenate", "stage": 1}, conv]},
        ],
    }
    # 16 tokens of 4 and 6 beside each other, mapped to 8
    (fused,) = [row for row in counted_spec(spec, tmp_path).rows if row.path == "stages.2.enter.1.conv"]
    assert fused.macs == 16 * 10 * 8


def test_a_dense_layer_widens_where_nothing_is_added() -> None:
    wide = Dense(norm="batch_norm", act="silu", bias=False, residual="none")
    rows = {row.path: row for row in wide.operations(at(5, dim=3, out_dim=7))}
    assert (rows["linear"].macs, rows["linear"].params) == (105, 21)
    assert (rows["norm"].params, rows["norm"].flops, rows["act"].flops) == (14, 70, 140)
    assert wide.out(at(5, dim=3, out_dim=7)) == (Grid((5,)), 7)
    assert not Dense(residual=Residual()).widens


@pytest.mark.parametrize(("name", "printed"), [("xxs", 0.42e9), ("xs", 1.05e9), ("s", 2.03e9)])
def test_the_printed_work_counts_norms_and_no_classifier(name: str, printed: float) -> None:
    ledger = counted(f"mobilevit-{name}")
    norms = ledger.part(row for row in ledger.rows if row.operation.endswith("norm"))
    head = ledger.part(row for row in ledger.rows if row.path.startswith("head."))
    theirs = ledger.total("macs") + norms.total("flops") - head.total("macs")
    assert abs(theirs - printed) < 0.005e9


def test_sizes_that_patches_tile() -> None:
    # 2¹⁴ tokens behind the stem; 320 is 10 in the last stage, and attention (10²/8²)² = 2.44 times there
    assert counted("mobilevit-s", tokens=(128 * 128,)).total("macs") == counted("mobilevit-s").total("macs")
    small, large = (
        next(row for row in counted("mobilevit-s", size=(side, side)).rows if row.path == "stages.7.block.0.scores")
        for side in (256, 320)
    )
    assert (small.macs, large.macs) == (4 * 16**2 * 240, 4 * 25**2 * 240)


def rows(component: Mixer, place: Place) -> dict[str, Operation]:
    component.check(place)
    return {row.path: row for row in component.operations(place)}


@pytest.mark.parametrize("size", [3, 5, 9])
def test_pairs_in_closed_form_are_counted_on_every_axis_length(size):
    for side, stride, cell in product(range(1, 14), (1, 2, 3, 5), (False, True)):
        windows = Neighbourhood(Grid((side,)), size, stride)
        assert windows.out.tokens == ceil_div(side, stride)
        assert windows.pairs(cell=cell) == sum(len(windows.tokens(out, cell=cell)) for out in range(windows.out.tokens))


def test_the_paper_s_figure_per_position():
    """Beyond its maps a layer costs 5·k²·d per position: two products of 2 FLOPs, and an addition to the keys."""
    layer = rows(LocalAttention(size=5), at(9, 9, dim=16))
    spatial = [layer[name].flops for name in ("scores", "weighted_sum", "add_positions")]
    assert sum(spatial) == 81 * 5 * 25 * 16


def test_channels_that_fill_no_group_are_filled_up_and_told():
    # 100 channels in groups of 8: 13 groups, 104 channels summed.
    component, place = LocalRelation(), at(56, 56, dim=100)
    layer = rows(component, place)
    assert layer["weighted_sum"].macs == 3136 * 49 * 104
    assert layer["scores"].attention_entries == 3136 * 49 * 13
    assert layer["gather_values"].moved == (62 * 62 + 3136 * 49) * 104
    assert layer["out"].macs == 3136 * 100 * 100


def test_fused_attention_inside_a_bottleneck():
    eager, fused = (count(architecture(load("sasa-26"), Run(attention=way))) for way in ("eager", "fused"))
    assert fused.total("macs") == eager.total("macs")
    # one number per query and head in place of 49
    assert fused.total("attention_entries") * 49 == eager.total("attention_entries")
