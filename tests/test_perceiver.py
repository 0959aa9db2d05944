"""Perceiver IO beside transformers' own: parameters and MACs to the unit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from specs import counted
from strategies import placed
from xfcost.counting.forward import count

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers = pytest.importorskip("transformers")

LATENTS, WIDTH, HEADS, LAYERS, CLASSES = 5, 12, 3, 2, 7
FEATURES = 3 + 2 * (2 * 64 + 1)


def theirs(**settings: Any) -> nn.Module:
    """transformers' Perceiver for ImageNet with Fourier features; one block, whose layers thus share no weights."""
    sizes = {
        "num_latents": LATENTS,
        "d_latents": WIDTH,
        "d_model": FEATURES,
        "num_blocks": 1,
        "num_self_attends_per_block": LAYERS,
        "num_self_attention_heads": HEADS,
        "num_cross_attention_heads": 1,
        "cross_attention_shape_for_attention": "kv",
        "self_attention_widening_factor": 1,
        "cross_attention_widening_factor": 1,
        "num_labels": CLASSES,
    }
    config = transformers.PerceiverConfig(**(sizes | settings))
    model = transformers.PerceiverForImageClassificationFourier(config)
    return model.eval().requires_grad_(requires_grad=False)


def small() -> dict[str, Any]:
    """The same, as a spec."""
    pre = {"norm": "layer_norm", "place": "pre"}
    pool = {"kind": "pooling_attention", "heads": 1, "residual": pre}
    layer = [{"kind": "full", "heads": HEADS}, {"kind": "mlp", "ratio": 1}]
    return {
        "input": {"kind": "image", "size": 224},  # the positions of theirs are made for 224×224 alone
        "embed": [{"kind": "pixels"}, {"kind": "fourier"}],
        "stages": [
            {
                "dim": WIDTH,
                "enter": [pool | {"count": LATENTS, "head_dim": FEATURES}],
                "blocks": [[{"kind": "mlp", "ratio": 1}], *[layer] * LAYERS],
            },
            {"dim": WIDTH, "enter": [pool | {"count": 1}], "depth": 1, "block": [{"kind": "mlp", "ratio": 1}]},
        ],
        "head": {"kind": "classifier", "pool": "mean", "norm": "none", "classes": CLASSES},
    }


def test_the_same_parameters_and_macs(tmp_path: Path) -> None:
    ledger = count(placed(small(), tmp_path))
    reference, image = theirs(), torch.randn(1, 3, 224, 224)
    assert sum(parameter.numel() for parameter in reference.parameters()) == ledger.total("params")
    with FlopCounterMode(display=False) as counter:
        reference(inputs=image)
    assert counter.get_total_flops() == 2 * (ledger.total("macs") or 0) > 0


def test_the_preset_is_the_released_size_with_weights_of_its_own_in_every_layer() -> None:
    # config of deepmind/vision-perceiver-fourier: 512 latents of 1024, 8 blocks of 6 layers, 8 heads; 48.4M parameters
    with torch.device("meta"):
        shared = theirs(num_latents=512, d_latents=1024, num_blocks=8, num_self_attends_per_block=6,
                        num_self_attention_heads=8, num_labels=1000)  # fmt: skip
    released = sum(parameter.numel() for parameter in shared.parameters())
    assert round(released / 1e6, 1) == 48.4
    layer = 6 * 1024**2 + 6 * 1024 + 4 * 1024
    assert counted("perceiver-io").total("params") == released + 42 * layer


def test_the_work_that_grows_with_pixels_is_the_first_reading() -> None:
    small, large = (counted("perceiver-io", tokens=(n,)) for n in (112**2, 224**2))
    grown = {row.path for row, other in zip(small.rows, large.rows, strict=True) if other.macs != row.macs and row.macs}
    assert grown == {f"stages.0.enter.0.{name}" for name in ("kv", "scores", "weighted_sum")}
    assert (small.metadata.grid_tokens, large.metadata.grid_tokens) == (112**2, 224**2)
