"""Convolutional feed-forward networks, depthwise convolutions and PVT v2: refusals, and transformers' models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from specs import counted
from test_pvt import SMALL, at, put_attention
from transformers_models import CLASSES, EPS, compare, ours_of, put, same_totals, theirs_of, weights_of
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.conv_mlp import ConvMlp
from xfcost.mechanisms.depthwise_conv import DepthwiseConv

# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("component", [ConvMlp, DepthwiseConv])
def test_places_where_kernels_can_not_stand(component: Any) -> None:
    with pytest.raises(ComponentError, match="4 is even, and the kernel is centred; try 3 or 5"):
        component(size=4).check(at(4, 4))
    with pytest.raises(ComponentError, match=r"expected no special tokens, got 1"):
        component().check(at(4, 4, special=1))


def test_no_weight_is_bound_to_the_resolution() -> None:
    assert counted("pvt-v2-b0").bound_params == 0
    assert counted("pvt-tiny").bound_params > 0


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────


def pvt_v2_spec(size: int, reductions: list[int] | None) -> dict[str, Any]:
    """Linear where no reductions are given."""

    def stage(number: int) -> dict[str, Any]:
        reduced = {"reduction": reductions[number]} if reductions else {"pooled": 7}
        mixer = {"kind": "spatial_reduction", "heads": SMALL["num_attention_heads"][number]} | reduced
        mlp = {"kind": "conv_mlp", "ratio": SMALL["mlp_ratios"][number], "hidden_act": "none" if reductions else "relu"}
        stem_layers = [{"kind": "norm"}, {"kind": "conv", "size": 3, "stride": 2, "norm": "layer_norm"}]
        enter = {"enter": stem_layers} if number else {}
        return enter | {"dim": SMALL["hidden_sizes"][number], "depth": SMALL["depths"][number], "block": [mixer, mlp]}

    return {
        "input": {"kind": "image", "size": size},
        "embed": [{"kind": "conv", "size": 7, "stride": 4, "norm": "layer_norm"}],
        "stages": [stage(number) for number in range(4)],
        "head": {"kind": "classifier", "pool": "mean", "classes": CLASSES},
    }


def copied_pvt_v2(theirs: nn.Module, ours: Any) -> None:
    weights, stream = weights_of(theirs), ours.streams[0]
    for index, stage in enumerate(stream.stages):
        there = f"pvt_v2.encoder.layers.{index}"
        *before, entry = stage.enter if index else stream.embed
        for last in before:  # our norm opens a stage, theirs closes the one before
            put(last.norm, weights, f"pvt_v2.encoder.layers.{index - 1}.layer_norm")
        put(entry.conv, weights, f"{there}.patch_embedding.proj")
        put(entry.norm, weights, f"{there}.patch_embedding.layer_norm")
        for number, (mixer, mlp) in enumerate(stage.run):
            block = f"{there}.blocks.{number}"
            put(mixer.residual_norm, weights, f"{block}.layer_norm_1")
            put_attention(mixer.inner, weights, f"{block}.attention", "spatial_reduction")
            put(mixer.inner.out, weights, f"{block}.attention.proj")
            put(mlp.residual_norm, weights, f"{block}.layer_norm_2")
            put(mlp.inner.fc1, weights, f"{block}.mlp.dense1")
            put(mlp.inner.conv, weights, f"{block}.mlp.dwconv.dwconv")
            put(mlp.inner.fc2, weights, f"{block}.mlp.dense2")
    put(ours.head.norm, weights, f"pvt_v2.encoder.layers.{len(stream.stages) - 1}.layer_norm")
    put(ours.head.linear, weights, "classifier")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("size", "reductions"),
    [
        (96, [8, 4, 2, 1]),  # 24×24, 12×12, 6×6, 3×3
        (70, [4, 2, 2, 1]),  # 18×18, 9×9, 5×5, 3×3: odd grids, rests that stand in no patch
        (70, None),  # pooled to 7×7 from 18×18, 9×9, and up from 5×5 and 3×3
        (112, None),  # 28×28, 14×14, 7×7, 4×4
    ],
)
def test_pvt_v2_with_their_weights(size: int, reductions: list[int] | None, attention: str, tmp_path: Path) -> None:
    theirs = theirs_of(
        "PvtV2ForImageClassification",
        **SMALL,
        image_size=size,
        sr_ratios=reductions or [1] * 4,
        linear_attention=not reductions,
        layer_norm_eps=EPS,
        num_labels=CLASSES,
    )
    ours = ours_of(pvt_v2_spec(size, reductions), tmp_path, batch=2, dtype="float64", attention=attention)
    compare(theirs, ours, copied_pvt_v2, tolerance=1e-10)


def pvt_v2(dims: list[int], ratios: list[int], depths: list[int], *, linear: bool = False) -> nn.Module:
    return theirs_of(
        "PvtV2ForImageClassification",
        hidden_sizes=dims,
        mlp_ratios=ratios,
        depths=depths,
        linear_attention=linear,
        num_labels=1000,
    )


B0, B1 = [32, 64, 160, 256], [64, 128, 320, 512]
PRESETS: dict[str, dict[str, Any]] = {
    "pvt-v2-b0": {"dims": B0, "ratios": [8, 8, 4, 4], "depths": [2, 2, 2, 2]},
    "pvt-v2-b1": {"dims": B1, "ratios": [8, 8, 4, 4], "depths": [2, 2, 2, 2]},
    "pvt-v2-b2": {"dims": B1, "ratios": [8, 8, 4, 4], "depths": [3, 4, 6, 3]},
    "pvt-v2-b2-li": {"dims": B1, "ratios": [8, 8, 4, 4], "depths": [3, 4, 6, 3], "linear": True},
    "pvt-v2-b3": {"dims": B1, "ratios": [8, 8, 4, 4], "depths": [3, 4, 18, 3]},
    "pvt-v2-b4": {"dims": B1, "ratios": [8, 8, 4, 4], "depths": [3, 8, 27, 3]},
    "pvt-v2-b5": {"dims": B1, "ratios": [4, 4, 4, 4], "depths": [3, 6, 40, 3]},
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_their_parameters_and_their_macs(preset: str) -> None:
    same_totals(preset, lambda: pvt_v2(**PRESETS[preset]))
