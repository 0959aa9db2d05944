"""BLOOM beside transformers: parameters of every size, MACs and outputs with the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specs import counted
from transformers_models import alike, logits_uncached, ours_of, parameters, put, scrambled, take, theirs_of, weights_of
from xfcost.spec.load import load

DIM, LAYERS = 24, 2


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("heads", [2, 6])  # 6 is no power of two: slopes of two series
def test_bloom_with_their_weights(heads: int, attention: str, tmp_path: Path) -> None:
    settings = {"vocab_size": 29, "hidden_size": DIM, "n_layer": LAYERS, "n_head": heads}
    model = theirs_of("BloomForCausalLM", **settings)
    model = scrambled(model.double())
    block = [{"kind": "full", "heads": heads, "causal": True, "position": "alibi"}, {"kind": "mlp", "act": "gelu_tanh"}]
    spec = {
        "input": {"kind": "tokens", "vocabulary": 29, "length": 11},
        "embed": [{"kind": "token", "share": "embedding"}, {"kind": "norm"}],
        "stages": [{"dim": DIM, "depth": LAYERS, "block": block}],
        "head": {"kind": "language_model", "share": "embedding"},
    }
    architecture, live = ours_of(spec, tmp_path, batch=2, dtype="float64", attention=attention)
    weights, stream = weights_of(model), live.model.streams[0]
    live.model.shared["embedding"].weight.copy_(take(weights, "transformer.word_embeddings.weight"))
    put(stream.embed[1].norm, weights, "transformer.word_embeddings_layernorm")
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"transformer.h.{number}."
        put(mixer.residual_norm, weights, f"{layer}input_layernorm")
        for kind, parameter in mixer.inner.qkv.named_parameters():
            # theirs: q, k and v of a head beside each other, head after head
            mixed = take(weights, f"{layer}self_attention.query_key_value.{kind}").unflatten(0, (heads, 3, -1))
            parameter.copy_(mixed.transpose(0, 1).flatten(0, 2))
        put(mixer.inner.out, weights, f"{layer}self_attention.dense")
        put(mlp.residual_norm, weights, f"{layer}post_attention_layernorm")
        put(mlp.inner.fc1, weights, f"{layer}mlp.dense_h_to_4h")
        put(mlp.inner.fc2, weights, f"{layer}mlp.dense_4h_to_h")
    put(live.model.head.norm, weights, "transformer.ln_f")
    assert not weights
    # their softmax is in float32, and their √(2/π) has eight digits
    alike(model, (architecture, live), logits_uncached, tolerance=1e-5)


@pytest.mark.parametrize("name", ["560m", "1b1", "1b7", "3b", "7b1", "176b"])
def test_every_size_has_their_parameters(name: str) -> None:
    stage = load(f"bloom-{name}").spec.stages[0]
    settings = {"vocab_size": 250880, "hidden_size": stage.dim, "n_layer": stage.depth}
    with torch.device("meta"):
        model = theirs_of("BloomForCausalLM", **settings, n_head=stage.block[0].heads)
    assert counted(f"bloom-{name}").total("params") == parameters(model)
