"""LLaMA and Mistral beside transformers: parameters of every size, MACs and outputs with their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from specs import counted
from transformers_models import (
    alike,
    logits_uncached,
    ours_of,
    parameters,
    put,
    put_joined,
    scrambled,
    take,
    theirs_of,
    weights_of,
)
from xfcost.counting.forward import count
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel

VOCABULARY, DIM, HIDDEN, LAYERS, HEADS = 29, 24, 20, 2, 6
EPS = torch.finfo(torch.float64).eps  # what torch's own norm adds


def llama(
    folder: Path, length: int, mixer: dict[str, Any], *, tied: bool = False, **run: Any
) -> tuple[Any, BuiltModel]:
    share = {"share": "embedding"} if tied else {}
    attention = {"heads": HEADS, "causal": True, "position": "rope", "projection_bias": False} | mixer
    spec = {
        "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": length},
        "residual": {"norm": "rms_norm"},
        "embed": [{"kind": "token"} | share],
        "stages": [{"dim": DIM, "depth": LAYERS, "block": [attention, {"kind": "swiglu", "hidden": HIDDEN}]}],
        "head": {"kind": "language_model", "norm": "rms_norm"} | share,
    }
    return ours_of(spec, folder, batch=2, dtype="float64", **run)


def theirs(family: str, **settings: Any) -> nn.Module:
    small = {
        "vocab_size": VOCABULARY,
        "hidden_size": DIM,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "rms_norm_eps": EPS,
        "pad_token_id": None,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return theirs_of(f"{family}ForCausalLM", **(small | settings))


def copied(model: nn.Module, ours: Any, *, tied: bool) -> None:
    """Their weights into ours, every one of them."""
    weights, stream = weights_of(model), ours.streams[0]
    if tied:
        ours.shared["embedding"].weight.copy_(take(weights, "model.embed_tokens.weight"))
    else:
        put(stream.embed[0].lookup, weights, "model.embed_tokens")
        put(ours.head.linear, weights, "lm_head")
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"model.layers.{number}."
        put(mixer.residual_norm, weights, f"{layer}input_layernorm")
        put_joined(mixer.inner.qkv, weights, *(f"{layer}self_attn.{name}_proj" for name in "qkv"))
        put(mixer.inner.out, weights, f"{layer}self_attn.o_proj")
        put(mlp.residual_norm, weights, f"{layer}post_attention_layernorm")
        for name in ("gate", "up", "down"):
            put(getattr(mlp.inner, name), weights, f"{layer}mlp.{name}_proj")
    put(ours.head.norm, weights, "model.norm")
    assert not weights


def compare(model: nn.Module, ours: tuple[Architecture, BuiltModel], *, tied: bool = False, dense: bool = True) -> None:
    """Parameters, outputs with the same weights, and (where both run the dense product) MACs."""
    model = scrambled(model.double())
    copied(model, ours[1].model, tied=tied)
    alike(model, ours, logits_uncached, tolerance=1e-5, macs=dense)  # norms and softmax in float32


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(
    ("kv_heads", "base", "tied"), [(6, 10000.0, False), (2, 10000.0, False), (1, 500.0, True)], ids=str
)
def test_llama_with_their_weights(kv_heads: int, base: float, tied: bool, attention: str, tmp_path: Path) -> None:
    model = theirs(
        "Llama",
        num_key_value_heads=kv_heads,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    mixer = {"kind": "full", "kv_heads": kv_heads, "rope_base": base}
    compare(model, llama(tmp_path, 11, mixer, tied=tied, attention=attention), tied=tied)


@pytest.mark.parametrize("length", [3, 4, 11, 16])
def test_mistral_with_their_weights(length: int, tmp_path: Path) -> None:
    """Gathered windows give what a masked dense product gives; the dense product alone has its MACs."""
    model = theirs("Mistral", num_key_value_heads=2, sliding_window=4)
    windows = {"kind": "sliding", "window": 4, "kv_heads": 2}
    compare(model, llama(tmp_path, length, windows), dense=False)
    if length <= 4:
        compare(model, llama(tmp_path, length, {"kind": "full", "kv_heads": 2}))
    else:
        dense = count(llama(tmp_path, length, {"kind": "full", "kv_heads": 2})[0])
        gathered = count(llama(tmp_path, length, windows)[0])
        # blocks of 2 queries by 6 keys: below the dense product from 6 keys on, padding counted
        pairs = {11: (12 * 6, 11 * 11), 16: (16 * 6, 16 * 16)}[length]
        products = [sum(row.times_over("macs") for row in one.rows if row.mixes) for one in (gathered, dense)]
        assert products == [2 * LAYERS * 2 * DIM * pair for pair in pairs]


# Sizes: (width, hidden, layers, heads, heads of keys, vocabulary, tied?)
SIZES = {
    "llama-7b": (4096, 11008, 32, 32, 32, 32000),
    "llama-13b": (5120, 13824, 40, 40, 40, 32000),
    "llama-33b": (6656, 17920, 60, 52, 52, 32000),
    "llama-65b": (8192, 22016, 80, 64, 64, 32000),
    "llama2-7b": (4096, 11008, 32, 32, 32, 32000),
    "llama2-13b": (5120, 13824, 40, 40, 40, 32000),
    "llama2-70b": (8192, 28672, 80, 64, 8, 32000),
    "llama3-8b": (4096, 14336, 32, 32, 8, 128256),
    "llama3-70b": (8192, 28672, 80, 64, 8, 128256),
    "llama3.1-405b": (16384, 53248, 126, 128, 8, 128256),
    "llama3.2-1b": (2048, 8192, 16, 32, 8, 128256, True),
    "llama3.2-3b": (3072, 8192, 28, 24, 8, 128256, True),
    "mistral-7b": (4096, 14336, 32, 32, 8, 32000),
    "mistral-7b-sliding": (4096, 14336, 32, 32, 8, 32000),
}


@pytest.mark.parametrize("preset", SIZES)
def test_a_preset_has_their_parameters(preset: str) -> None:
    dim, hidden, layers, heads, kv_heads, vocabulary, *tied = SIZES[preset]
    with torch.device("meta"):
        model = theirs(
            "Mistral" if preset.startswith("mistral") else "Llama",
            hidden_size=dim,
            intermediate_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            vocab_size=vocabulary,
            tie_word_embeddings=bool(tied),
        )
    ledger = counted(preset)
    assert ledger.total("params") == parameters(model)


def test_rope_binds_no_weights_to_the_length() -> None:
    short, long = (counted("llama-7b", tokens=(n,)) for n in (16, 100_000))
    assert short.total("params") == long.total("params")
    assert short.bound_params == 0
