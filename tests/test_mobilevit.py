"""MobileViT: where its blocks refuse to stand, and the whole beside transformers' with its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from places import at
from specs import counted
from strategies import counted_spec, placed
from transformers_models import TheirWeights, scrambled, theirs_of
from xfcost.formulas.component import Residual
from xfcost.layers.dense import Dense
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.inverted_residual import InvertedResidual
from xfcost.mechanisms.unfolded import Unfolded
from xfcost.torch_models.build import Model, build

# Inverted residuals ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_inverted_residual_refuses() -> None:
    with pytest.raises(ComponentError, match=r"1\.1·6 is not a whole width"):
        InvertedResidual(ratio=1.1).check(at(4, 4))
    with pytest.raises(ComponentError, match=r"expected no special tokens, got 1"):
        InvertedResidual().check(at(4, 4, special=1))


# Unfolded attention ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_unfolded_attention_refuses() -> None:
    with pytest.raises(
        ComponentError, match=r"2 does not divide the grid 7×8; expected sides that are multiples"
    ) as refused:
        Unfolded(heads=2).check(at(7, 8))
    assert refused.value.field == "patch"
    with pytest.raises(ComponentError, match=r"expected no special tokens, got 1"):
        Unfolded(heads=2).check(at(4, 4, special=1))
    with pytest.raises(ComponentError, match="has no causal form"):
        Unfolded(heads=2, causal=True).check(at(4, 4))
    with pytest.raises(SpecError, match=r"mobilevit-s.*stages\[7\].block\[0\].patch: 2 does not divide the grid 7×7"):
        counted("mobilevit-s", size=(224, 224))


# An earlier stage beside this one ────────────────────────────────────────────────────────────────────────────────────


def test_what_can_not_stand_beside_is_refused(tmp_path: Path) -> None:
    def spec(stage: int, side: int) -> dict[str, Any]:
        mlp = [{"kind": "mlp"}]
        enter = [{"kind": "concatenate", "stage": stage}, {"kind": "conv", "size": 1}]
        down = {"kind": "conv", "size": side, "stride": side}
        return {
            "input": {"kind": "image", "size": 8},
            "embed": [{"kind": "patch", "size": 2}],
            "stages": [
                {"dim": 4, "depth": 1, "block": mlp},
                {"dim": 6, "depth": 1, "block": mlp, "enter": [down]},
                {"dim": 8, "depth": 1, "block": mlp, "enter": enter},
            ],
        }

    # 16 tokens of 4 and 6 beside each other, mapped to 8
    ledger = counted_spec(spec(1, 1), tmp_path)
    (fused,) = [row for row in ledger.rows if row.path == "stages.2.enter.1.conv"]
    assert fused.macs == 16 * 10 * 8
    with pytest.raises(SpecError, match=r"enter\[0\].stage: 3 is not an earlier stage"):
        counted_spec(spec(3, 1), tmp_path)
    with pytest.raises(SpecError, match=r"stage 1 leaves 16 \(4×4\) tokens, and the input has 4 \(2×2\)"):
        counted_spec(spec(1, 2), tmp_path)


# A linear map that widens ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dense_layer_widens_where_nothing_is_added() -> None:
    wide = Dense(norm="batch_norm", act="silu", bias=False, residual="none")
    rows = {row.path: row for row in wide.operations(at(5, dim=3, out_dim=7))}
    assert (rows["linear"].macs, rows["linear"].params) == (105, 21)
    assert (rows["norm"].params, rows["norm"].flops, rows["act"].flops) == (14, 70, 140)
    assert wide.out(at(5, dim=3, out_dim=7)) == (Grid((5,)), 7)
    assert not Dense(residual=Residual()).widens
    with pytest.raises(ComponentError, match="a group norm mixes all tokens") as refused:
        Dense(norm="group_norm").check(at(5))
    assert refused.value.field == "norm"


def test_a_dense_layer_in_a_residual_can_not_widen(tmp_path: Path) -> None:
    spec = {
        "input": {"kind": "vectors", "channels": 3, "length": 5},
        "stages": [{"dim": 7, "depth": 1, "block": [{"kind": "dense"}]}],
    }
    with pytest.raises(SpecError, match="the width is 3 here and nothing in `embed` brings it to 7"):
        counted_spec(spec, tmp_path)
    spec["stages"][0]["block"][0]["residual"] = "none"  # type: ignore[index]
    assert counted_spec(spec, tmp_path).total("params") == 3 * 7 + 7


# The published figures ───────────────────────────────────────────────────────────────────────────────────────────────


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


# transformers' model ─────────────────────────────────────────────────────────────────────────────────────────────────

SIZES = {
    "mobilevit-xxs": ((16, 16, 24, 48, 64, 80, 320), (64, 80, 96), 2),
    "mobilevit-xs": ((16, 32, 48, 64, 80, 96, 384), (96, 120, 144), 4),
    "mobilevit-s": ((16, 32, 64, 96, 128, 160, 640), (144, 192, 240), 4),
}


def theirs(necks: tuple[int, ...], widths: tuple[int, ...], ratio: int, classes: int = 1000) -> nn.Module:
    return theirs_of(
        "MobileViTForImageClassification",
        neck_hidden_sizes=list(necks),
        hidden_sizes=list(widths),
        expand_ratio=float(ratio),
        num_labels=classes,
    )


def put_normed(conv: nn.Module, norm: nn.Module, model: nn.Module, name: str) -> None:
    """A convolution of theirs and its norm, running statistics too."""
    TheirWeights(model).put(conv, f"{name}.convolution")
    norm.load_state_dict(model.get_submodule(f"{name}.normalization").state_dict())


def put_inverted(block: Any, model: nn.Module, name: str) -> None:
    put_normed(block.expand.conv, block.expand.norm, model, f"{name}.expand_1x1")
    put_normed(block.conv, block.norm, model, f"{name}.conv_3x3")
    put_normed(block.project_conv, block.project_norm, model, f"{name}.reduce_1x1")


def copied(ours: Model, model: nn.Module) -> None:
    """Their weights into ours."""
    weights = TheirWeights(model)
    stream, encoder = ours.streams[0], "mobilevit.encoder.layer"
    put_normed(stream.embed[0].conv, stream.embed[0].norm, model, "mobilevit.conv_stem")
    first, second, *rest = stream.stages
    put_inverted(first.run[0][0].inner, model, f"{encoder}.0.layer.0")
    for number, block in enumerate(second.run):
        put_inverted(block[0].inner, model, f"{encoder}.1.layer.{number}")
    # every MobileViT block is three of our stages: what it is given, its transformer, and what follows them
    for number in range(3):
        given, transformer, after = rest[2 * number : 2 * number + 3]
        name = f"{encoder}.{2 + number}"
        put_inverted(given.run[0][0].inner, model, f"{name}.downsampling_layer")
        put_normed(transformer.enter[0].conv, transformer.enter[0].norm, model, f"{name}.conv_kxk")
        weights.put(transformer.enter[1].conv, f"{name}.conv_1x1.convolution")
        for layer, (attention, mlp) in enumerate(transformer.run):
            put_layer(attention, mlp, weights, f"{name}.transformer.layer.{layer}")
        normed, projection, _, fusion = after.enter
        weights.put(normed.norm, f"{name}.layernorm")
        put_normed(projection.conv, projection.norm, model, f"{name}.conv_projection")
        put_normed(fusion.conv, fusion.norm, model, f"{name}.fusion")
    dense = rest[-1].run[0][0].inner
    dense.linear.weight.copy_(weights.take("mobilevit.conv_1x1_exp.convolution.weight").flatten(1))
    dense.norm.load_state_dict(model.mobilevit.conv_1x1_exp.normalization.state_dict())
    weights.put(ours.head.linear, "classifier")


def put_layer(attention: Any, mlp: Any, weights: TheirWeights, name: str) -> None:
    for kind, parameter in attention.inner.qkv.named_parameters():
        there = [f"{name}.attention.attention.{part}.{kind}" for part in ("query", "key", "value")]
        parameter.copy_(torch.cat([weights.take(one) for one in there]))
    weights.put(attention.inner.out, f"{name}.attention.output.dense")
    weights.put(attention.residual_norm, f"{name}.layernorm_before")
    weights.put(mlp.inner.fc1, f"{name}.intermediate.dense")
    weights.put(mlp.inner.fc2, f"{name}.output.dense")
    weights.put(mlp.residual_norm, f"{name}.layernorm_after")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("size", [(64, 64), (128, 64)])
def test_the_whole_with_their_weights(size: tuple[int, int], attention: str, tmp_path: Path) -> None:
    model = theirs(*SIZES["mobilevit-xxs"], classes=7).double()
    torch.manual_seed(0)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
    scrambled(model)
    data = {"extends": "mobilevit-xxs", "name": "ours", "head": {"classes": 7}}
    architecture = placed(data, tmp_path, size=size, batch=2, dtype="float64", attention=attention)  # type: ignore[arg-type]
    live = build(architecture, "cpu")
    copied(live.model, model)
    with torch.no_grad():
        expected = model(*live.inputs).logits
        torch.testing.assert_close(live.model(*live.inputs), expected, rtol=1e-9, atol=1e-10)
    assert expected.std() > 1e-3  # not all alike
