"""Spatial-reduction attention, PVT and PVT v2: at their edges, and beside transformers' models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import transformers_models as hf
from cases.base import Case
from compared import given, referred
from places import at, rows_of
from references.local import windows
from refused import refusals
from specs import architecture_of, counted
from xfcost.counting.forward import count
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.conv_mlp import ConvMlp
from xfcost.mechanisms.depthwise_conv import DepthwiseConv
from xfcost.mechanisms.spatial_reduction import SpatialReduction
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.tracing.trace import trace


@pytest.mark.parametrize("pooled", range(1, 9))
@pytest.mark.parametrize("side", range(1, 20))
def test_an_adaptive_pool_is_as_torch_cuts_it(side: int, pooled: int) -> None:
    cut = windows((side,), pooled)
    found = rows_of(SpatialReduction(heads=1, pooled=pooled), at(side, dim=1))["pool"]
    assert found.flops == sum(map(len, cut))
    assert found.reads_tokens == max(map(len, cut))
    numbers = torch.arange(side).double() ** 2
    means = torch.stack([numbers[list(tokens)].mean() for tokens in cut])
    torch.testing.assert_close(functional.adaptive_avg_pool1d(numbers[None], pooled)[0], means)


@pytest.mark.parametrize(
    ("pool", "shape", "size", "flops"),
    [
        # 5 to 3: 7 tokens enter, 4 to 3: 6; twice as many samples, 6 columns each
        (functional.adaptive_avg_pool1d, (2, 6, 5), (3,), 2 * 6 * 7),
        (functional.adaptive_avg_pool2d, (2, 6, 5, 4), (3, 3), 2 * 6 * 7 * 6),
        (functional.adaptive_avg_pool3d, (2, 6, 5, 4, 2), (3, 3, 2), 2 * 6 * 7 * 6 * 2),
    ],
)
def test_the_trace_counts_adaptive_pools(pool: Any, shape: tuple[int, ...], size: tuple[int, ...], flops: int) -> None:
    class Pools(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return pool(x, size)

    for device in ("cpu", "meta"):
        found = trace(Pools(), (torch.ones(shape, device=device),))
        assert (found.macs, found.flops, found.unsupported) == (0, flops, {})


# At its edges ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_stands_in_no_patch_is_told_and_read_by_no_other() -> None:
    component, spot = SpatialReduction(heads=2, reduction=2), at(3, 5)
    assert list(component.reads(spot.grid, 14)) == [0, 1, 2, 3, 5, 6, 7, 8]
    (note,) = component.notes(spot)
    assert note.startswith("patches of 2×2 don't tile the grid 3×5: its last 1×1 rows and columns go into no key")
    assert list(component.notes(at(4, 6))) == []
    module = MODULES[SpatialReduction](component, spot).double().eval()
    x_BND = torch.randn(1, 15, 6, dtype=torch.float64)
    changed = x_BND.clone()
    changed[:, 4] += 1  # the end of the first row
    with torch.no_grad():
        differs = (module(x_BND) != module(changed)).any(-1)[0]
        torch.testing.assert_close(module(changed), referred(Case(component, spot), given(module), changed))
    assert differs.nonzero().flatten().tolist() == [4]


def test_a_grid_below_the_pooled_one_is_told() -> None:
    component = SpatialReduction(heads=2, pooled=7)
    assert list(component.notes(at(14, 14))) == []
    assert list(component.notes(at(3, 3))) == ["the grid 3×3 is pooled to more: 7×7 keys"]


test_places_where_it_can_not_stand = refusals(
    [
        (SpatialReduction(heads=4), at(4, 4), "heads", "4 does not divide the width 6"),
        (
            SpatialReduction(heads=1, reduction=2, pooled=7),
            at(8, 8),
            "pooled",
            "`pooled` and `reduction` exclude each other",
        ),
        (
            SpatialReduction(heads=1, reduction=2),
            at(4, 4, special=1),
            "reduction",
            r"expected no special tokens, got 1",
        ),
        (SpatialReduction(heads=1, pooled=2), at(4, 4, special=2), "pooled", r"expected no special tokens, got 2"),
        (
            SpatialReduction(heads=1, reduction=8),
            at(7, 9),
            "reduction",
            "do not fit the grid 7×9; it could be at most 7",
        ),
        (SpatialReduction(heads=1, causal=True), at(4, 4), "causal", "has no causal form: a key stands for a patch"),
    ]
)


def test_pvt_on_other_grids() -> None:
    # 40×40 tokens: 40, 20, 10 and 5 along each side, patches of 8, 4 and 2; every table has a row per token, the last
    # one for the class token too.
    architecture = architecture_of("pvt-tiny", tokens=(1600,))
    ledger = count(architecture)
    keys = [row.reads_tokens for row in ledger.rows if row.operation == "scores"]
    assert keys == [25, 25, 25, 26]
    bound = {row.path: row.params for row in ledger.rows if row.bound}
    assert list(bound.values()) == [1600 * 64, 400 * 128, 100 * 320, 26 * 512]
    # without the class token, as comparisons on the grid alone ask for
    alone = counted("pvt-tiny", extra_tokens=False)
    assert [row.reads_tokens for row in alone.rows if row.operation == "scores"] == [49] * 4


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────

SMALL: dict[str, Any] = {
    "depths": [1, 2, 1, 2],
    "hidden_sizes": [6, 12, 12, 24],
    "num_attention_heads": [1, 2, 3, 4],
    "mlp_ratios": [4, 3, 2, 2],
}


def put_attention(mixer: Any, weights: hf.TheirWeights, theirs: str, sr: str) -> None:
    weights.put(mixer.q, f"{theirs}.query")
    weights.put_joined(mixer.kv, f"{theirs}.key", f"{theirs}.value")
    if mixer.reduce is not None:
        for kind in ("weight", "bias"):
            whole = weights.take(f"{theirs}.{sr}.{kind}")
            getattr(mixer.reduce, kind).copy_(whole.reshape(getattr(mixer.reduce, kind).shape))
        weights.put(mixer.norm, f"{theirs}.layer_norm")


def pvt(*depths: int) -> nn.Module:
    return hf.theirs_of("PvtForImageClassification", depths=depths)


# Convolutional feed-forward networks, depthwise convolutions and PVT v2: refusals, and transformers' models ───────────


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
        "head": {"kind": "classifier", "pool": "mean", "classes": hf.CLASSES},
    }


def copied_pvt_v2(theirs: nn.Module, ours: Any) -> None:
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
            put_attention(mixer.inner, weights, f"{block}.attention", "spatial_reduction")
            weights.put(mixer.inner.out, f"{block}.attention.proj")
            weights.put(mlp.residual_norm, f"{block}.layer_norm_2")
            weights.put(mlp.inner.fc1, f"{block}.mlp.dense1")
            weights.put(mlp.inner.conv, f"{block}.mlp.dwconv.dwconv")
            weights.put(mlp.inner.fc2, f"{block}.mlp.dense2")
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
def test_pvt_v2_with_their_weights(size: int, reductions: list[int] | None, attention: str, tmp_path: Path) -> None:
    theirs = hf.theirs_of(
        "PvtV2ForImageClassification",
        **SMALL,
        image_size=size,
        sr_ratios=reductions or [1] * 4,
        linear_attention=not reductions,
        layer_norm_eps=hf.EPS,
        num_labels=hf.CLASSES,
    )
    ours = hf.ours_of(pvt_v2_spec(size, reductions), tmp_path, batch=2, dtype="float64", attention=attention)
    hf.compare(theirs, ours, copied_pvt_v2, tolerance=1e-10)


def pvt_v2(dims: list[int], ratios: list[int], depths: list[int], *, linear: bool = False) -> nn.Module:
    return hf.theirs_of(
        "PvtV2ForImageClassification",
        hidden_sizes=dims,
        mlp_ratios=ratios,
        depths=depths,
        linear_attention=linear,
        num_labels=1000,
    )
