"""Perceiver IO beside transformers' own: parameters and MACs to the unit, the same numbers out of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from specs import counted
from strategies import placed
from transformers_models import parameters, transformers
from xfcost.counting.forward import count
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel, build

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


def ours(folder: Path, device: str) -> tuple[Architecture, BuiltModel]:
    pre = {"norm": "layer_norm", "place": "pre"}
    pool = {"kind": "pooling_attention", "heads": 1, "residual": pre}
    layer = [{"kind": "full", "heads": HEADS}, {"kind": "mlp", "ratio": 1}]
    data = {
        "name": "small",
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
    architecture = placed(data, folder, dtype="float64")
    return architecture, build(architecture, device)


def copied(live: nn.Module, weights: dict[str, Tensor]) -> None:
    """Their weights into our modules, none left over."""
    left = dict(weights)

    def put(ours_: Any, *names: str) -> None:
        for kind in ("weight", "bias"):
            getattr(ours_, kind).copy_(torch.cat([left.pop(f"{name}.{kind}") for name in names]))

    def attention(norms: Any, reading: Any, prefix: str, *, cross: bool) -> None:
        put(norms[0], f"{prefix}.attention.self.layernorm1")
        if cross:
            put(norms[1], f"{prefix}.attention.self.layernorm2")
            put(reading.q, f"{prefix}.attention.self.query")
            put(reading.kv, *(f"{prefix}.attention.self.{name}" for name in ("key", "value")))
        else:
            put(reading.qkv, *(f"{prefix}.attention.self.{name}" for name in ("query", "key", "value")))
        put(reading.out, f"{prefix}.attention.output.dense")

    def mlp(ours_: Any, prefix: str) -> None:
        put(ours_.residual_norm, f"{prefix}.layernorm")
        put(ours_.inner.fc1, f"{prefix}.mlp.dense1")
        put(ours_.inner.fc2, f"{prefix}.mlp.dense2")

    first, second = live.get_submodule("streams.0.stages")
    queries = "perceiver.decoder.decoder.output_position_encodings.position_embeddings"
    stem_layers = {
        "perceiver.encoder.cross_attention": (first, "perceiver.embeddings.latents"),
        "perceiver.decoder.decoder.decoding_cross_attention": (second, queries),
    }
    for prefix, (stage, seeds) in stem_layers.items():
        entry = stage.enter[0]
        entry.seeds.weight.copy_(left.pop(seeds)[None])
        attention((entry.seeds_norm, entry.tokens_norm), entry.inner, prefix, cross=True)
        mlp(stage.run[0][0], prefix)
    for number in range(LAYERS):
        mixer, feed = first.run[1 + number]
        prefix = f"perceiver.encoder.self_attends.{number}"
        attention((mixer.residual_norm,), mixer.inner, prefix, cross=False)
        mlp(feed, prefix)
    put(live.get_submodule("head.linear"), "perceiver.decoder.decoder.final_layer")
    assert not left


def test_the_same_parameters_macs_and_numbers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = theirs()
    architecture, live = ours(tmp_path, "cpu")
    ledger = count(architecture)
    assert parameters(reference) == ledger.total("params")
    image = torch.randn(1, 3, 224, 224)
    with FlopCounterMode(display=False) as counter:
        logits = reference(inputs=image).logits
    assert counter.get_total_flops() == 2 * (ledger.total("macs") or 0) > 0
    copied(live.model, reference.state_dict())
    torch.testing.assert_close(live.model(image.double()).float(), logits, rtol=1e-3, atol=1e-5)


def test_the_preset_is_the_released_size_with_weights_of_its_own_in_every_layer() -> None:
    # config of deepmind/vision-perceiver-fourier: 512 latents of 1024, 8 blocks of 6 layers, 8 heads; 48.4M parameters
    with torch.device("meta"):
        shared = theirs(num_latents=512, d_latents=1024, num_blocks=8, num_self_attends_per_block=6,
                        num_self_attention_heads=8, num_labels=1000)  # fmt: skip
    released = parameters(shared)
    assert round(released / 1e6, 1) == 48.4
    layer = 6 * 1024**2 + 6 * 1024 + 4 * 1024
    assert counted("perceiver-io").total("params") == released + 42 * layer


def test_the_work_that_grows_with_pixels_is_the_first_reading() -> None:
    small, large = (counted("perceiver-io", tokens=(n,)) for n in (112**2, 224**2))
    grown = {row.path for row, other in zip(small.rows, large.rows, strict=True) if other.macs != row.macs and row.macs}
    assert grown == {f"stages.0.enter.0.{name}" for name in ("kv", "scores", "weighted_sum")}
    assert (small.metadata.grid_tokens, large.metadata.grid_tokens) == (112**2, 224**2)
