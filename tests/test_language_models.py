"""GPT-1, GPT-3, LLaMA, Mistral and BLOOM: parameters of every size, MACs and outputs beside transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import transformers_models as hf
from specs import counted
from xfcost.counting.forward import count
from xfcost.torch_models.build import BuiltModel

# Brown et al. 2020, Table D.1: parameters in millions; Table 2.1: layers, width, heads (XL's as its width has them)
GPT3_SIZES = {
    "gpt3-small": (125, 12, 768, 12),
    "gpt3-medium": (356, 24, 1024, 16),
    "gpt3-large": (760, 24, 1536, 16),
    "gpt3-xl": (1320, 24, 2048, 16),
    "gpt3-2.7b": (2650, 32, 2560, 32),
    "gpt3-6.7b": (6660, 32, 4096, 32),
    "gpt3-13b": (12850, 40, 5120, 40),
    "gpt3-175b": (174600, 96, 12288, 96),
}


def params(name: str, *settings: str) -> int:
    total = counted(name, *settings).total("params")
    assert total is not None
    return total


@pytest.mark.parametrize("preset", GPT3_SIZES)
def test_table_d_1_within_four_thousandths(preset: str) -> None:
    printed, layers, dim, heads = GPT3_SIZES[preset]
    assert params(preset) == pytest.approx(printed * 1e6, rel=4e-3)
    with torch.device("meta"):
        model = hf.theirs_gpt2(n_embd=dim, n_layer=layers, n_head=heads, n_positions=2048)
    assert params(preset) == hf.parameters(model)


def test_the_two_rows_of_table_2_1_that_do_not_add_up() -> None:
    # 24 heads of 128 in XL: 24 layers with 4·2048·1024 weights and 3·1024 biases more, 1517M and not 1320M
    block = "[{kind: full, heads: 24, head_dim: 128, causal: true}, {kind: mlp, ratio: 4, act: gelu_tanh}]"
    wide = params("gpt3-xl", f"stages.0.block={block}")
    assert wide - params("gpt3-xl") == 24 * (4 * 2048 * 1024 + 3 * 1024)
    assert round(wide / 1e6) == 1517
    # 5140 in the 13B model: 12,953M and not 12,850M
    assert round(params("gpt3-13b-5140") / 1e6) == 12953
    assert round(params("gpt3-13b") / 1e6) == 12853


# LLaMA and Mistral beside transformers: parameters of every size, MACs and outputs with their weights ─────────────────


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
    return hf.ours_of(spec, folder, batch=2, dtype="float64", **run)


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
    return hf.theirs_of(f"{family}ForCausalLM", **(small | settings))


def copied(model: nn.Module, ours: Any, *, tied: bool) -> None:
    """Their weights into ours, every one of them."""
    weights, stream = hf.TheirWeights(model), ours.streams[0]
    if tied:
        ours.shared["embedding"].weight.copy_(weights.take("model.embed_tokens.weight"))
    else:
        weights.put(stream.embed[0].lookup, "model.embed_tokens")
        weights.put(ours.head.linear, "lm_head")
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"model.layers.{number}."
        weights.put(mixer.residual_norm, f"{layer}input_layernorm")
        weights.put_joined(mixer.inner.qkv, *(f"{layer}self_attn.{name}_proj" for name in "qkv"))
        weights.put(mixer.inner.out, f"{layer}self_attn.o_proj")
        weights.put(mlp.residual_norm, f"{layer}post_attention_layernorm")
        for name in ("gate", "up", "down"):
            weights.put(getattr(mlp.inner, name), f"{layer}mlp.{name}_proj")
    weights.put(ours.head.norm, "model.norm")
    assert not weights


def compare_llama(model: nn.Module, ours: Any, *, tied: bool = False, dense: bool = True) -> None:
    """Parameters, outputs with the same weights, and (where both run the dense product) MACs."""
    model = hf.scrambled(model.double())
    copied(model, ours[1].model, tied=tied)
    hf.alike(model, ours, hf.logits_uncached, tolerance=1e-5, macs=dense)  # norms and softmax in float32


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
    compare_llama(model, llama(tmp_path, 11, mixer, tied=tied, attention=attention), tied=tied)


@pytest.mark.parametrize("length", [3, 4, 11, 16])
def test_mistral_with_their_weights(length: int, tmp_path: Path) -> None:
    """Gathered windows give what a masked dense product gives; the dense product alone has its MACs."""
    model = theirs("Mistral", num_key_value_heads=2, sliding_window=4)
    windows = {"kind": "sliding", "window": 4, "kv_heads": 2}
    compare_llama(model, llama(tmp_path, length, windows), dense=False)
    if length <= 4:
        compare_llama(model, llama(tmp_path, length, {"kind": "full", "kv_heads": 2}))
    else:
        dense = count(llama(tmp_path, length, {"kind": "full", "kv_heads": 2})[0])
        gathered = count(llama(tmp_path, length, windows)[0])
        # blocks of 2 queries by 6 keys: below the dense product from 6 keys on, padding counted
        pairs = {11: (12 * 6, 11 * 11), 16: (16 * 6, 16 * 16)}[length]
        products = [sum(row.times_over("macs") for row in one.rows if row.mixes) for one in (gathered, dense)]
        assert products == [2 * LAYERS * 2 * DIM * pair for pair in pairs]


def test_rope_binds_no_weights_to_the_length() -> None:
    short, long = (counted("llama-7b", tokens=(n,)) for n in (16, 100_000))
    assert short.total("params") == long.total("params")
    assert short.bound_params == 0


# BLOOM beside transformers: parameters of every size, MACs and outputs with the same weights ──────────────────────────


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("heads", [2, 6])  # 6 is no power of two: slopes of two series
def test_bloom_with_their_weights(heads: int, attention: str, tmp_path: Path) -> None:
    settings = {"vocab_size": 29, "hidden_size": DIM, "n_layer": LAYERS, "n_head": heads}
    model = hf.theirs_of("BloomForCausalLM", **settings)
    model = hf.scrambled(model.double())
    block = [{"kind": "full", "heads": heads, "causal": True, "position": "alibi"}, {"kind": "mlp", "act": "gelu_tanh"}]
    spec = {
        "input": {"kind": "tokens", "vocabulary": 29, "length": 11},
        "embed": [{"kind": "token", "share": "embedding"}, {"kind": "norm"}],
        "stages": [{"dim": DIM, "depth": LAYERS, "block": block}],
        "head": {"kind": "language_model", "share": "embedding"},
    }
    architecture, live = hf.ours_of(spec, tmp_path, batch=2, dtype="float64", attention=attention)
    weights, stream = hf.TheirWeights(model), live.model.streams[0]
    live.model.shared["embedding"].weight.copy_(weights.take("transformer.word_embeddings.weight"))
    weights.put(stream.embed[1].norm, "transformer.word_embeddings_layernorm")
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"transformer.h.{number}."
        weights.put(mixer.residual_norm, f"{layer}input_layernorm")
        for kind, parameter in mixer.inner.qkv.named_parameters():
            # theirs: q, k and v of a head beside each other, head after head
            mixed = weights.take(f"{layer}self_attention.query_key_value.{kind}").unflatten(0, (heads, 3, -1))
            parameter.copy_(mixed.transpose(0, 1).flatten(0, 2))
        weights.put(mixer.inner.out, f"{layer}self_attention.dense")
        weights.put(mlp.residual_norm, f"{layer}post_attention_layernorm")
        weights.put(mlp.inner.fc1, f"{layer}mlp.dense_h_to_4h")
        weights.put(mlp.inner.fc2, f"{layer}mlp.dense_4h_to_h")
    weights.put(live.model.head.norm, "transformer.ln_f")
    assert not weights
    # their softmax is in float32, and their √(2/π) has eight digits
    hf.alike(model, (architecture, live), hf.logits_uncached, tolerance=1e-5)
