"""Swin V2: cosine scores, continuous position biases, clipped windows, and transformers' models beside ours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from specs import architecture_of, counted
from transformers_models import CLASSES, EPS, TheirWeights, compare, ours_of, theirs_of
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.mechanisms.window import Window
from xfcost.torch_models.shared.leaves import Fused
from xfcost.torch_models.tracing.trace import trace

V2 = {"score": "cosine", "bias": "log_cpb", "key_bias": False}


def spot(*sides: int, dim: int = 4, fused: bool = False) -> Place:
    return Place(grid=Grid(sides), dim=dim, out_dim=2 * dim, fused=fused)


# By hand -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scaled", [True, False])
def test_the_trace_counts_the_fused_kernel_s_own_scaling_where_it_scales(scaled):
    parts = tuple(torch.zeros(1, 2, 3, 4) for _ in range(3))
    with torch.device("cpu"):
        traced = trace(Fused(scaled=scaled), parts)
    # 2·2·9·4 MACs, 18 softmax elements of 5, and 24 query elements
    assert traced.macs == 144
    assert traced.flops == 2 * 144 + 18 * 5 + (24 if scaled else 0)


def test_unscaled_fused_attention_leaves_the_root_out():
    q, k, v = (torch.randn(1, 2, 3, 4, dtype=torch.float64) for _ in range(3))
    plain = (q @ k.transpose(-2, -1)).softmax(-1) @ v
    torch.testing.assert_close(Fused(scaled=False)(q, k, v), plain)
    assert not torch.allclose(Fused()(q, k, v), plain)


def test_keys_without_a_bias_where_nothing_has_one_are_refused():
    with pytest.raises(ComponentError, match="projection_bias: false leaves out all biases"):
        Window(heads=1, projection_bias=False, key_bias=False).check(spot(8, 8))


# Weights and resolutions ---------------------------------------------------------------------------------------------


def test_v2_has_as_many_parameters_whatever_the_window_and_the_resolution():
    def params(name: str, tokens: int | None = None) -> int:
        return count(architecture_of(name, tokens=tokens and (tokens,))).total("params")

    assert params("swinv2-t-w8-256") == params("swinv2-t-w16-256") == params("swinv2-t-w16-256", 56 * 80)
    assert params("swinv2-l-w16-256") == params("swinv2-l-w24-384")
    assert params("swin-t") != params("swin-t", 16 * 16)  # whose last stage is 2×2


@pytest.mark.parametrize(
    ("grid", "note"),
    [
        ((7, 7), "window 8×8 clipped to the 7×7 grid, not shifted"),
        ((7, 10), "window 8×8 clipped to 7×8 on the 7×10 grid, shifted along its longer sides alone"),
        ((7, 8), "window 8×8 clipped to the 7×8 grid, not shifted"),
    ],
)
def test_a_clipped_window_says_where_it_is_shifted(grid, note):
    assert next(Window(heads=2, size=8, shift=4, bias="log_cpb").notes(spot(*grid))) == note
    bound = "; its bias table, and so the parameters, depend on the resolution"
    assert next(Window(heads=2, size=8, shift=4).notes(spot(*grid))) == note + bound


def v2_spec(size: int | list[int], window: int, depths: tuple[int, ...] = (2, 4, 2)) -> dict[str, Any]:
    def stage(number: int, depth: int) -> dict[str, Any]:
        blocks = [
            [{"kind": "window", "size": window, "heads": (2, 3, 6)[number], "shift": shift} | V2, {"kind": "mlp"}]
            for shift in (0, window // 2)
        ]
        enter = [{"kind": "patch_merging", "norm": "post"}] if number else []
        return {"enter": enter, "dim": 12 * 2**number, "depth": depth, "pattern": blocks}

    return {
        "input": {"kind": "image", "size": size},
        "residual": {"place": "res_post"},
        "embed": [{"kind": "patch", "size": 4, "norm": "layer_norm"}],
        "stages": [stage(number, depth) for number, depth in enumerate(depths)],
        "head": {"kind": "classifier", "pool": "mean", "classes": CLASSES},
    }


# Somebody else's code ------------------------------------------------------------------------------------------------


def theirs_v2(**settings: Any) -> nn.Module:
    settings = {"layer_norm_eps": EPS, "num_labels": CLASSES} | settings
    return theirs_of("Swinv2ForImageClassification", **settings)


def copied_v2(theirs: nn.Module, ours: Any) -> None:
    weights, stream = TheirWeights(theirs), ours.streams[0]
    weights.put(stream.embed[0].projection, "swinv2.embeddings.patch_embeddings.projection")
    weights.put(stream.embed[0].norm, "swinv2.embeddings.norm")
    for index, stage in enumerate(stream.stages):
        if index:  # our merging opens a stage, theirs closes the one before
            weights.put(stage.enter[0].norm, f"swinv2.encoder.layers.{index - 1}.downsample.norm")
            weights.put(stage.enter[0].reduction, f"swinv2.encoder.layers.{index - 1}.downsample.reduction")
        for number, block in enumerate(stage.run):
            copied_block(block, weights, f"swinv2.encoder.layers.{index}.blocks.{number}.")
    weights.put(ours.head.norm, "swinv2.layernorm")
    weights.put(ours.head.linear, "classifier")
    assert not weights


def copied_block(block: Any, weights: TheirWeights, prefix: str) -> None:
    mixer, mlp = block
    window, its = mixer.inner, f"{prefix}attention.self."
    for kind in ("weight", "bias"):
        both = [weights.take(f"{its}{name}.{kind}") for name in ("query", "value")]
        getattr(window.qv, kind).copy_(torch.cat(both))
    weights.put(window.k, f"{its}key")
    window.cosine.temperature.weight.copy_(weights.take(f"{its}logit_scale")[..., 0])
    weights.put(window.cpb.fc1, f"{its}continuous_position_bias_mlp.0")
    weights.put(window.cpb.fc2, f"{its}continuous_position_bias_mlp.2")
    weights.put(window.out, f"{prefix}attention.output.dense")
    weights.put(mixer.residual_norm, f"{prefix}layernorm_before")  # theirs keep V1's names; it stands after
    weights.put(mlp.inner.fc1, f"{prefix}intermediate.dense")
    weights.put(mlp.inner.fc2, f"{prefix}output.dense")
    weights.put(mlp.residual_norm, f"{prefix}layernorm_after")


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("size", "window", "depths"),
    [
        ((48, 48), 3, (2, 4, 2)),  # 12×12, 6×6, 3×3: whole windows; the last stage is one window and not shifted
        ((56, 56), 4, (2, 4)),  # 14×14 padded to 16×16, 7×7 to 8×8
        ((44, 36), 3, (2, 2)),  # 11×9 padded to 12×9; odd sides merge to 6×5, padded to 6×6
        ((48, 72), 3, (2, 2)),  # 12×18, 6×9
    ],
)
def test_swin_v2_with_their_weights(size, window, depths, attention, tmp_path):
    # Theirs clips windows to ⌊side/2⌋ where an odd side merges to ⌈side/2⌉, and its height alone says whether there is
    # a shift (timm and torchvision ask every side, as we do): no such stage here.
    theirs = theirs_v2(
        embed_dim=12,
        depths=list(depths),
        num_heads=[2, 3, 6][: len(depths)],
        image_size=size,
        patch_size=4,
        window_size=window,
    )
    ours = ours_of(v2_spec(list(size), window, depths), tmp_path, batch=2, dtype="float64", attention=attention)
    compare(theirs, ours, copied_v2, tolerance=1e-6)  # offsets are held in single precision


ALL = [
    *("swinv2-t-w8-256", "swinv2-t-w16-256", "swinv2-s-w8-256", "swinv2-s-w16-256", "swinv2-b-w8-256"),
    *("swinv2-b-w12-192", "swinv2-b-w16-256", "swinv2-b-w24-384", "swinv2-l-w12-192", "swinv2-l-w16-256"),
    *("swinv2-l-w24-384", "swinv2-h-w12-192", "swinv2-g-w12-192"),
]


# What the public code prints -----------------------------------------------------------------------------------------


def as_the_public_code_counts(ledger: Ledger) -> int:
    """model.flops(): MACs without the bias networks, and 1 per layer-norm element.

    Its line for the last norm divides the patches by 2⁴ stages, where they are by 4³ fewer: 4 times its elements.
    """
    networks = sum(row.macs * row.times for row in ledger.rows if row.operation.startswith("cpb_"))
    norms = sum(row.flops // 5 * row.times for row in ledger.rows if row.operation.endswith("norm"))
    last = next(row.flops // 5 for row in ledger.rows if row.path == "head.norm")
    return ledger.total("macs") - networks + norms + 3 * last


@pytest.mark.parametrize(
    ("preset", "figure"),
    [
        ("swin-t", 4_494_405_120),
        ("swin-b-384", 47_105_253_376),
        ("swinv2-t-w8-256", 5_925_697_536),
        ("swinv2-t-w16-256", 6_605_174_784),
        ("swinv2-s-w8-256", 11_514_869_760),
        ("swinv2-b-w8-256", 20_285_661_184),
        ("swinv2-b-w16-256", 21_795_610_624),
        ("swinv2-l-w16-256", 47_490_920_448),
        ("swinv2-l-w24-384", 115_416_895_488),
    ],
)
def test_the_public_code_s_own_figure_to_the_unit(preset, figure):
    assert as_the_public_code_counts(counted(preset)) == figure


@pytest.mark.parametrize("preset", [name for name in ALL if "192" not in name])
def test_every_printed_figure_is_that_one_rounded(preset):
    ledger = counted(preset)
    (printed,) = (row["published"] for row in ledger.published_beside_ours() if row["quantity"] == "macs")
    assert round(as_the_public_code_counts(ledger) / 1e9, 1) * 1e9 == pytest.approx(printed)


def test_the_bias_networks_are_about_a_hundredth_at_most_and_do_not_grow_with_the_input():
    shares = {}
    for preset in ALL:
        ledger = counted(preset)
        networks = sum(row.macs * row.times for row in ledger.rows if row.operation.startswith("cpb_"))
        shares[preset] = networks / ledger.total("macs")
    assert 0.002 < min(shares.values()) < max(shares.values()) < 0.012, shares
    small, large = (
        [row.macs for row in count(architecture_of("swinv2-t-w8-256", scale=scale)).rows if "cpb" in row.path]
        for scale in ((1, 1), (4, 1))
    )
    assert small == large
