"""ViT, Swin and GPT-2 against transformers: parameters to the unit, MACs, and outputs with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

import transformers_models as hf


def theirs_swin(**settings: Any) -> nn.Module:
    settings = {"layer_norm_eps": hf.EPS, "num_labels": hf.CLASSES} | settings
    return hf.theirs_of("SwinForImageClassification", **settings)


def swin_spec(size: int, window: int) -> dict[str, Any]:
    def stage(number: int, depth: int, heads: int) -> dict[str, Any]:
        blocks = [
            [{"kind": "window", "size": window, "heads": heads, "shift": shift}, {"kind": "mlp"}]
            for shift in (0, window // 2)
        ]
        enter = [{"kind": "patch_merging"}] if number else []
        return {"enter": enter, "dim": 12 * 2**number, "depth": depth, "pattern": blocks}

    return {
        "input": {"kind": "image", "size": size},
        "embed": [{"kind": "patch", "size": 4, "norm": "layer_norm"}],
        "stages": [stage(0, 2, 2), stage(1, 4, 3), stage(2, 2, 6)],
        "head": {"kind": "classifier", "pool": "mean", "classes": hf.CLASSES},
    }


def gpt2_spec(length: int) -> dict[str, Any]:
    block = [{"kind": "full", "heads": 3, "causal": True}, {"kind": "mlp", "act": "gelu_tanh"}]
    return {
        "input": {"kind": "tokens", "vocabulary": 29, "length": length},
        "embed": [{"kind": "token", "share": "embedding"}, {"kind": "position", "length": 16}],
        "stages": [{"dim": 12, "depth": 2, "block": block}],
        "head": {"kind": "language_model", "share": "embedding"},
    }


def copied_swin(theirs: nn.Module, ours: Any) -> None:
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    weights.put(stream.embed[0].projection, "swin.embeddings.patch_embeddings.projection")
    weights.put(stream.embed[0].norm, "swin.embeddings.norm")
    for index, stage in enumerate(stream.stages):
        if index:  # our merging opens a stage, theirs closes the one before
            weights.put(stage.enter[0].norm, f"swin.encoder.layers.{index - 1}.downsample.norm")
            weights.put(stage.enter[0].reduction, f"swin.encoder.layers.{index - 1}.downsample.reduction")
        for number, block in enumerate(stage.run):
            hf.copy_block("swin", block, weights, f"swin.encoder.layers.{index}.blocks.{number}.")
    weights.put(ours.head.norm, "swin.layernorm")
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
@pytest.mark.parametrize(
    ("size", "window"),
    [
        (48, 3),  # 12×12, 6×6, 3×3: whole windows; the last stage is one window and not shifted
        (40, 3),  # 10×10 padded to 12×12, 5×5 to 6×6, then 3×3: grids that windows and merging don't divide
        (36, 2),  # 9×9, 5×5, 3×3: padded for windows and for merging in every stage
        (56, 4),  # 14×14 to 16×16, 7×7 to 8×8, 4×4
    ],
)
def test_swin_with_their_weights(size: int, window: int, attention: str, tmp_path: Path) -> None:
    theirs = theirs_swin(
        embed_dim=12, depths=[2, 4, 2], num_heads=[2, 3, 6], image_size=size, patch_size=4, window_size=window
    )
    ours = hf.ours_of(swin_spec(size, window), tmp_path, batch=2, dtype="float64", attention=attention)
    hf.compare(theirs, ours, copied_swin, tolerance=1e-6)  # their softmax runs in float32


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("length", [1, 2, 11, 16])
def test_gpt2_with_their_weights(length: int, attention: str, tmp_path: Path) -> None:
    theirs = hf.theirs_gpt2(
        vocab_size=29, n_positions=16, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    ours = hf.ours_of(gpt2_spec(length), tmp_path, batch=2, dtype="float64", attention=attention)
    hf.compare(theirs, ours, copied_gpt2, tolerance=1e-10)


# Presets at full size, on `meta` ─────────────────────────────────────────────────────────────────────────────────────


def swin(dim: int, depth: int, heads: int, size: int = 224) -> nn.Module:
    return theirs_swin(
        embed_dim=dim,
        depths=[2, 2, depth, 2],
        num_heads=[heads * 2**stage for stage in range(4)],
        image_size=size,
        window_size=size // 32,
        num_labels=1000,
    )


def gpt2(dim: int, depth: int, heads: int) -> nn.Module:
    return hf.theirs_gpt2(n_embd=dim, n_layer=depth, n_head=heads, use_cache=False)
