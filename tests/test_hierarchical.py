"""Hierarchical vision transformers: PVT, Twins and CvT."""

import pytest
import torch
from torch.nn import functional

import transformers_models as hf
from places import at, rows_of
from references.local import windows
from specs import counted
from transformers_models import CLASSES, TheirWeights, compare, ours_of, theirs_of
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.spatial_reduction import ConvAttention, SpatialReduction

# Spatial-reduction attention, PVT and PVT v2 ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pooled", range(1, 9))
@pytest.mark.parametrize("side", range(1, 20))
def test_an_adaptive_pool_is_as_torch_cuts_it(side, pooled):
    cut = windows((side,), pooled)
    found = rows_of(SpatialReduction(heads=1, pooled=pooled), at(side, dim=1))["pool"]
    assert found.flops == sum(map(len, cut))
    assert found.reads_tokens == max(map(len, cut))
    numbers = torch.arange(side).double() ** 2
    means = torch.stack([numbers[list(tokens)].mean() for tokens in cut])
    torch.testing.assert_close(functional.adaptive_avg_pool1d(numbers[None], pooled)[0], means)


PVT_SMALL = {
    "hidden_sizes": [6, 12, 12, 24],
    "depths": [1, 2, 1, 2],
    "num_attention_heads": [1, 2, 3, 4],
    "mlp_ratios": [4, 3, 2, 2],
}


def put_attention(mixer, weights, theirs):
    weights.put_projections(mixer, f"{theirs}.query", f"{theirs}.key", f"{theirs}.value")
    if hasattr(mixer, "reduce"):
        for kind in ("weight", "bias"):
            whole = weights.take(f"{theirs}.spatial_reduction.{kind}")
            getattr(mixer.reduce, kind).copy_(whole.reshape(getattr(mixer.reduce, kind).shape))
        weights.put(mixer.norm, f"{theirs}.layer_norm")


# Convolutional feed-forward networks, depthwise convolutions and PVT v2 ───────────────────────────────────────────────


def pvt_v2_spec(size, reductions):
    """Linear where no reductions are given."""

    def stage(number):
        reduced = {"reduction": reductions[number]} if reductions else {"pooled": 7}
        dim, depth, heads, ratio = (sizes[number] for sizes in PVT_SMALL.values())
        mixer = {"kind": "spatial_reduction", "heads": heads} | reduced
        mlp = {"kind": "conv_mlp", "ratio": ratio, "hidden_act": "none" if reductions else "relu"}
        enter = [{"kind": "norm"}, {"kind": "conv", "size": 3, "stride": 2, "norm": "layer_norm"}] if number else []
        return {"enter": enter, "dim": dim, "depth": depth, "block": [mixer, mlp]}

    return {
        "input": {"kind": "image", "size": size},
        "embed": [{"kind": "conv", "size": 7, "stride": 4, "norm": "layer_norm"}],
        "stages": [stage(number) for number in range(4)],
        "head": {"kind": "classifier", "pool": "mean", "classes": hf.CLASSES},
    }


def copied_pvt_v2(theirs, ours):
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    for index, stage in enumerate(stream.stages):
        there = f"pvt_v2.encoder.layers.{index}"
        *before, entry = stage.enter if index else stream.embed
        for last in before:  # our norm opens a stage, theirs closes the one before
            weights.put(last.norm, f"pvt_v2.encoder.layers.{index - 1}.layer_norm")
        weights.put(entry.conv, f"{there}.patch_embedding.proj")
        weights.put(entry.norm, f"{there}.patch_embedding.layer_norm")
        for number, (mixer, mlp) in enumerate(stage.run):
            block = f"{there}.blocks.{number}"
            weights.put(mixer.residual_norm, f"{block}.layer_norm_1")
            put_attention(mixer.inner, weights, f"{block}.attention")
            weights.put(mixer.inner.out, f"{block}.attention.proj")
            weights.put_mlp(mlp, *(f"{block}.{name}" for name in ("mlp.dense1", "mlp.dense2", "layer_norm_2")))
            weights.put(mlp.inner.conv, f"{block}.mlp.dwconv.dwconv")
    weights.put(ours.head.norm, f"pvt_v2.encoder.layers.{len(stream.stages) - 1}.layer_norm")
    weights.put(ours.head.linear, "classifier")
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
def test_pvt_v2_with_their_weights(size, reductions, attention, tmp_path):
    theirs = hf.theirs_of(
        "PvtV2ForImageClassification", **PVT_SMALL, image_size=size, sr_ratios=reductions or [1] * 4,
        linear_attention=not reductions, layer_norm_eps=hf.EPS, num_labels=hf.CLASSES,
    )  # fmt: skip
    ours = hf.ours_of(pvt_v2_spec(size, reductions), tmp_path, batch=2, dtype="float64", attention=attention)
    hf.compare(theirs, ours, copied_pvt_v2, tolerance=1e-10)


# Twins ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

PRINTED = {
    "twins-pcpvt-s": 3.7, "twins-pcpvt-b": 6.4, "twins-pcpvt-l": 9.5, "twins-svt-s": 2.8, "twins-svt-b": 8.3,
    "twins-svt-l": 14.8,
}  # fmt: skip


@pytest.mark.parametrize(("name", "printed"), PRINTED.items())
def test_the_printed_figures_leave_out_the_products_of_attention(name, printed):
    ledger = counted(name)
    products = ("scores", "weighted_sum")
    assert round(ledger.total("macs", lambda row: row.operation not in products) / 1e9, 1) == printed
    assert round(ledger.total("macs") / 1e9, 1) > printed


# Attention with convolutional projections and CvT ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("half", range(4))
def test_up_to_that_stride_the_keys_read_every_token(half):
    for side in range(1, 12):
        component = ConvAttention(heads=1, size=2 * half + 1, kv_stride=half + 1)
        component.check(Place(grid=Grid((side,)), dim=1, out_dim=1))
        kernel = component.kernel(Grid((side,)), component.kv_stride)
        read = {token for key in range(component.keys(Grid((side,))).total) for token in kernel.reads((side,), key)}
        assert read == set(range(side))


CVT_SMALL = {
    "embed_dim": [6, 12, 24],
    "num_heads": [1, 2, 3],
    "depth": [1, 2, 3],  # no fewer than the number of the stage: their drop rates want it
    "mlp_ratio": [4.0, 2.0, 3.0],
}


def cvt_spec(size):
    def stage(number):
        dim, heads, depth, ratio = (sizes[number] for sizes in CVT_SMALL.values())
        enter = [{"kind": "conv", "size": 3, "stride": 2, "norm": "layer_norm"}] if number else []
        enter += [{"kind": "class_token"}] if number == 2 else []
        block = [{"kind": "conv_attention", "heads": heads}, {"kind": "mlp", "ratio": ratio}]
        return {"enter": enter, "dim": dim, "depth": depth, "block": block}

    return {
        "input": {"kind": "image", "size": size},
        "embed": [{"kind": "conv", "size": 7, "stride": 4, "padding": 2, "norm": "layer_norm"}],
        "stages": [stage(number) for number in range(3)],
        "head": {"kind": "classifier", "pool": "class_token", "norm_after_pool": True, "classes": CLASSES},
    }


def copied_cvt(theirs, ours):
    statistics = {name: buffer for name, buffer in theirs.named_buffers() if "running" in name}
    noise = torch.Generator().manual_seed(4)
    for buffer in statistics.values():
        buffer.copy_(torch.rand(buffer.shape, generator=noise) + 0.5)
    weights, stream = TheirWeights(theirs), ours.streams[0]
    weights.update(statistics)
    for index, stage in enumerate(stream.stages):
        there = f"cvt.encoder.stages.{index}"
        entry, *tokens = stage.enter if index else stream.embed
        weights.put(entry.conv, f"{there}.embedding.convolution_embeddings.projection")
        weights.put(entry.norm, f"{there}.embedding.convolution_embeddings.normalization")
        for token in tokens:
            token.prepend.weight.copy_(weights.take(f"{there}.cls_token"))
        for number, (mixer, mlp) in enumerate(stage.run):
            block = f"{there}.layers.{number}"
            weights.put(mixer.residual_norm, f"{block}.layernorm_before")
            for name, word in (("q", "query"), ("k", "key"), ("v", "value")):
                projection = getattr(mixer.inner, name)
                convolved = f"{block}.attention.attention.convolution_projection_{word}.convolution_projection"
                weights.put(projection.conv, f"{convolved}.convolution")
                weights.put(projection.norm, f"{convolved}.normalization")
                for statistic in ("running_mean", "running_var"):
                    taken = weights.take(f"{convolved}.normalization.{statistic}")
                    getattr(projection.norm, statistic).copy_(taken)
                weights.put(projection.linear, f"{block}.attention.attention.projection_{word}")
            weights.put(mixer.inner.out, f"{block}.attention.output.dense")
            weights.put_mlp(
                mlp, *(f"{block}.{name}" for name in ("intermediate.dense", "output.dense", "layernorm_after"))
            )
    weights.put(ours.head.norm, "layernorm")
    weights.put(ours.head.linear, "classifier")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("size", [32, 58])  # 8×8, 4×4, 2×2; 14×14, 7×7, 4×4
def test_cvt_with_their_weights(size, attention, tmp_path):
    theirs = theirs_of("CvtForImageClassification", **CVT_SMALL, num_labels=CLASSES)
    ours = ours_of(cvt_spec(size), tmp_path, batch=2, dtype="float64", attention=attention)
    compare(theirs, ours, copied_cvt, tolerance=1e-10)
