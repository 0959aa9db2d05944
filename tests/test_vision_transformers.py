"""ViT's descendants beside transformers: Swin, Swin V2, DeiT and CaiT."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import transformers_models as hf
from specs import counted
from strategies import placed, stack
from transformers_models import TheirWeights
from whole_probe import probe
from xfcost.comparing.comparison import compared
from xfcost.counting.forward import count
from xfcost.formulas.component import Place, Residual
from xfcost.layers.feed_forward import Mlp
from xfcost.ledger.grid import Grid
from xfcost.ledger.ledger import Ledger
from xfcost.mechanisms.full import ClassAttention
from xfcost.spec.architecture import Part
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.build import ModuleMaker, SubLayerModel
from xfcost.torch_models.shared.leaves import Fused
from xfcost.torch_models.tracing.trace import trace

# Swin and GPT-2 ───────────────────────────────────────────────────────────────────────────────────────────────────────


def copied_swin(theirs: nn.Module, ours: Any) -> None:
    weights, stream, version = hf.TheirWeights(theirs), ours.streams[0], theirs.config.model_type
    weights.put(stream.embed[0].projection, f"{version}.embeddings.patch_embeddings.projection")
    weights.put(stream.embed[0].norm, f"{version}.embeddings.norm")
    for index, stage in enumerate(stream.stages):
        if index:  # our merging opens a stage, theirs closes the one before
            weights.put(stage.enter[0].norm, f"{version}.encoder.layers.{index - 1}.downsample.norm")
            weights.put(stage.enter[0].reduction, f"{version}.encoder.layers.{index - 1}.downsample.reduction")
        for number, block in enumerate(stage.run):
            prefix = f"{version}.encoder.layers.{index}.blocks.{number}."
            if version == "swinv2":
                copied_v2_block(block, weights, prefix)
            else:
                hf.copy_block("swin", block, weights, prefix)
    weights.put(ours.head.norm, f"{version}.layernorm")
    weights.put(ours.head.linear, "classifier")
    assert not weights


def copied_gpt2(theirs: nn.Module, ours: Any) -> None:
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    ours.shared["embedding"].weight.copy_(weights.take("transformer.wte.weight"))
    stream.embed[1].table.weight.copy_(weights.take("transformer.wpe.weight"))
    for number, block in enumerate(stream.stages[0].run):
        hf.copy_block("gpt2", block, weights, f"transformer.h.{number}.")
    weights.put(ours.head.norm, "transformer.ln_f")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("length", [1, 2, 11, 16])
def test_gpt2_with_their_weights(length: int, attention: str, tmp_path: Path) -> None:
    theirs = hf.theirs_of(
        "GPT2LMHeadModel", vocab_size=29, n_positions=16, n_embd=12, n_layer=2, n_head=3, bos_token_id=0,
        eos_token_id=0, use_cache=False,
    )  # fmt: skip
    ours = hf.imported(theirs, tmp_path, tokens=(length,), attention=attention)
    hf.compare(theirs, ours, copied_gpt2, tolerance=1e-10)


# Swin V2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scaled", [True, False])
def test_the_trace_counts_the_fused_kernel_s_own_scaling_where_it_scales(scaled):
    parts = tuple(torch.zeros(1, 2, 3, 4) for _ in range(3))
    with torch.device("cpu"):
        traced = trace(Fused(scale=None if scaled else 1.0), parts)
    # 2·2·9·4 MACs, 18 softmax elements of 5, and 24 query elements
    assert traced.macs == 144
    assert traced.flops == 2 * 144 + 18 * 5 + (24 if scaled else 0)


def copied_v2_block(block: Any, weights: TheirWeights, prefix: str) -> None:
    mixer, mlp = block
    window, its = mixer.inner, f"{prefix}attention.self."
    weights.put_joined(window.qv, *(f"{its}{name}" for name in ("query", "value")))
    weights.put(window.k, f"{its}key")
    window.cosine.temperature.weight.copy_(weights.take(f"{its}logit_scale")[..., 0])
    weights.put(window.cpb.fc1, f"{its}continuous_position_bias_mlp.0")
    weights.put(window.cpb.fc2, f"{its}continuous_position_bias_mlp.2")
    weights.put(window.out, f"{prefix}attention.output.dense")
    weights.put(mixer.residual_norm, f"{prefix}layernorm_before")  # theirs keep V1's names; it stands after
    weights.put_mlp(mlp, *(f"{prefix}{name}" for name in ("intermediate.dense", "output.dense", "layernorm_after")))


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("version", "size", "window", "depths"),
    [
        ("Swin", 48, 3, (2, 4, 2)),  # 12×12, 6×6, 3×3: whole windows; the last stage is one window and not shifted
        ("Swin", 40, 3, (2, 4, 2)),  # 10×10 padded to 12×12, 5×5 to 6×6, then 3×3: windows and merging don't divide
        ("Swin", 36, 2, (2, 4, 2)),  # 9×9, 5×5, 3×3: padded for windows and for merging in every stage
        ("Swin", 56, 4, (2, 4, 2)),  # 14×14 to 16×16, 7×7 to 8×8, 4×4
        ("Swinv2", (48, 48), 3, (2, 4, 2)),  # as above
        ("Swinv2", (56, 56), 4, (2, 4)),  # 14×14 padded to 16×16, 7×7 to 8×8
        ("Swinv2", (44, 36), 3, (2, 2)),  # 11×9 padded to 12×9; odd sides merge to 6×5, padded to 6×6
        ("Swinv2", (48, 72), 3, (2, 2)),  # 12×18, 6×9
    ],
)
def test_swin_with_their_weights(version, size, window, depths, attention, tmp_path):
    # V2's clips windows to ⌊side/2⌋ where an odd side merges to ⌈side/2⌉, and its height alone says whether there is
    # a shift (timm and torchvision ask every side, as we do): no such stage here.
    sizes = {"layer_norm_eps": hf.EPS, "num_labels": hf.CLASSES, "embed_dim": 12, "patch_size": 4, "image_size": size}
    sizes |= {"depths": list(depths), "num_heads": [2, 3, 6][: len(depths)], "window_size": window}
    theirs = hf.theirs_of(f"{version}ForImageClassification", **sizes)
    # V1's softmax runs in float32, and V2's offsets are held in single precision
    hf.compare(theirs, hf.imported(theirs, tmp_path, attention=attention), copied_swin, tolerance=1e-6)


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


# DeiT's second token and second classifier, and positions that follow the resolution ──────────────────────────────────

DEIT_CLASSES = 7
BOTH = ("class_token", "distillation_token")


def copied_deit(theirs: nn.Module, ours: Any) -> None:
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    patch, token, distillation, position = stream.embed
    weights.put(patch.projection, "deit.embeddings.patch_embeddings.projection")
    token.prepend.weight.copy_(weights.take("deit.embeddings.cls_token"))
    distillation.insert.weight.copy_(weights.take("deit.embeddings.distillation_token"))
    position.table.weight.copy_(weights.take("deit.embeddings.position_embeddings")[0])
    for number, block in enumerate(stream.stages[0].run):  # a DeiT block is a ViT block, tensor for tensor
        hf.copy_block("vit", block, weights, f"deit.layers.{number}.")
    weights.put(ours.head.norm, "deit.layernorm")
    weights.put(ours.head.linear, "cls_classifier")
    weights.put(ours.head.distillation_linear, "distillation_classifier")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_a_distilled_deit_with_their_weights(attention: str, tmp_path: Path) -> None:
    theirs = hf.theirs_of(
        "DeiTForImageClassificationWithTeacher", layer_norm_eps=1e-5, num_labels=DEIT_CLASSES, hidden_size=12,
        num_hidden_layers=2, num_attention_heads=3, intermediate_size=48, image_size=(16, 24), patch_size=8,
    )  # fmt: skip
    ours = hf.imported(theirs, tmp_path, attention=attention)
    hf.compare(theirs, ours, copied_deit, tolerance=1e-6)  # their softmax runs in float32


def figures_of(spec: Any) -> Any:
    (figures,) = compared([SpecSystem(spec)], [count(place(spec, Run()))], Run()).figures.values()
    return figures


def test_on_the_grid_alone_both_tokens_are_left_out(tmp_path: Path) -> None:
    over = {
        "input": {"kind": "image", "size": [16, 24]},
        "embed": [{"kind": kind} | ({"size": 8} if kind == "patch" else {}) for kind in ("patch", *BOTH, "position")],
        "head": {"kind": "classifier", "pool": BOTH, "classes": DEIT_CLASSES},
    }
    alone = placed(stack({"kind": "mlp"}, dim=12, **over), tmp_path, extra_tokens=False)
    assert alone.grid == Grid((2, 3))
    assert alone.head.component.pool == "mean"
    figures = figures_of(load("deit-ti-distilled"))
    assert figures["score_dot_products"] == 196**2
    assert figures["score_dot_products_with_extra_tokens"] == 198**2


# CaiT ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cait_spec(**more: Any) -> dict[str, Any]:
    return {
        "name": "a small CaiT",
        "input": {"kind": "image", "size": 24},
        "residual": {"layer_scale": 0.5},
        "embed": [{"kind": "patch", "size": 8}, {"kind": "position"}],
        "stages": [
            {"dim": 12, "depth": 3, "block": [{"kind": "full", "heads": 3, "talking_heads": True}, {"kind": "mlp"}]},
            {"enter": [{"kind": "class_token"}], "dim": 12, "depth": 2}
            | {"block": [{"kind": "class_attention", "heads": 3}, {"kind": "mlp", "tokens": "class_token"}]},
        ],
        "head": {"kind": "classifier", "pool": "class_token", "classes": 7},
    } | more


@pytest.mark.parametrize("residual", ["none", Residual(), Residual(place="post"), Residual(place="res_post")], ids=str)
@pytest.mark.parametrize("special", [1, 2])
@pytest.mark.parametrize(
    "component", [ClassAttention(heads=2), Mlp(tokens="class_token"), Mlp(tokens="class_token", chunks=2)]
)
def test_the_grid_s_tokens_pass_by_as_they_are(component: Any, special: int, residual: Any) -> None:
    spot = Place(grid=Grid((3, 4), special), dim=6, out_dim=6)
    model = SubLayerModel(Part("it", component, spot, residual), ModuleMaker({})).double().eval()
    x = torch.randn(2, 12 + special, 6, dtype=torch.float64)
    with torch.no_grad():
        found = model(x)
    torch.testing.assert_close(found[:, special:], x[:, special:], rtol=0, atol=0)
    assert not torch.isclose(found[:, :special], x[:, :special]).all(-1).any()
    reads = [
        frozenset(range(12 + special)) if isinstance(component, ClassAttention) else frozenset({n})
        for n in range(special)
    ]
    assert probe(model, (x[:1],)).reads == (*reads, *(frozenset({n}) for n in range(special, 12 + special)))


def test_asked_for_fused_talking_heads_run_eager_and_say_so(tmp_path: Path) -> None:
    eager, fused = (count(placed(cait_spec(), tmp_path, attention=way)) for way in ("eager", "fused"))
    kept = [[row.path for row in ledger.rows if row.attention_entries] for ledger in (eager, fused)]
    assert kept[0] == ["stages.0.block.0.scores", "stages.1.block.0.scores"]
    assert kept[1] == ["stages.0.block.0.scores", "stages.1.block.0.attention"]
    # nor is it told what a tiled kernel would move, for there is none
    told = count(placed(cait_spec(), tmp_path, memory_level=2**20))
    assert [row.path for row in told.rows if row.traffic] == ["stages.1.block.0.scores"]


def test_on_the_grid_alone_what_works_on_the_class_token_is_left_out(tmp_path: Path) -> None:
    for data in (
        cait_spec(),
        # the class token from the first: it is an special token of the first stage too
        cait_spec(embed=[{"kind": "patch", "size": 8}, {"kind": "class_token"}, {"kind": "position"}])
        | {"stages": [cait_spec()["stages"][0], cait_spec()["stages"][1] | {"enter": []}]},
    ):
        alone = placed(data, tmp_path, extra_tokens=False)
        assert [part.component for block in alone.streams[0].stages[1].blocks for part in block.parts] == []
        assert {row.path.split(".")[1] for row in count(alone).rows if row.path.startswith("stages.")} == {"0"}
        assert alone.head.component.pool == "mean"
        assert figures_of(load(str(tmp_path / "spec.yaml")))["score_dot_products"] == 9**2
