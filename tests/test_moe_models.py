"""Mixtures of experts beside transformers: parameters of every size, MACs and outputs with their weights.

Their experts run eager: the default kernel is one that counters miss.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bert import put_joined
from test_against_transformers import ours_of, put, scrambled, take, transformers, weights_of
from xfcost.counted import count
from xfcost.ledger import Ledger
from xfcost.spec.load import load
from xfcost.spec.walk import Run, place

VOCABULARY, DIM, HIDDEN, LAYERS, HEADS = 29, 24, 20, 3, 4
EPS = torch.finfo(torch.float64).eps  # what torch's own norm adds
SMALL = {
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


def theirs(family: str, head: str = "ForCausalLM", **settings: Any) -> nn.Module:
    """One of transformers' models, its attention and its experts eager, on the current device."""
    config, model = getattr(transformers, f"{family}Config"), getattr(transformers, f"{family}{head}")
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    made = model(config(**settings, **eager)).eval().requires_grad_(requires_grad=False)
    assert isinstance(made, nn.Module)
    return made


def decoder(mixer: dict[str, Any], blocks: list[list[dict[str, Any]]], folder: Path, length: int = 11) -> Any:
    """A decoder with RMS norms whose blocks are `mixer` and what of `blocks` follows it."""
    spec = {
        "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": length},
        "residual": {"norm": "rms_norm"},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": DIM, "blocks": [[mixer, *block] for block in blocks]}],
        "head": {"kind": "language_model", "norm": "rms_norm"},
    }
    return ours_of(spec, folder, batch=2, dtype="float64")


def put_ends(ours: Any, weights: dict[str, torch.Tensor]) -> None:
    put(ours.streams[0].embed[0].lookup, weights, "model.embed_tokens")
    put(ours.head.linear, weights, "lm_head")
    put(ours.head.norm, weights, "model.norm")


def put_experts(moe: Any, weights: dict[str, torch.Tensor], layer: str) -> None:
    """A router and its SwiGLU experts; their gate and up-projection are one tensor."""
    moe.router.weight.copy_(take(weights, f"{layer}gate.weight"))
    gate, up = take(weights, f"{layer}experts.gate_up_proj").chunk(2, dim=1)
    moe.experts.gate.weight.copy_(gate)
    moe.experts.up.weight.copy_(up)
    moe.experts.down.weight.copy_(take(weights, f"{layer}experts.down_proj"))


def compare(model: nn.Module, ours: Any, *inputs: torch.Tensor, **more: Any) -> None:
    """Parameters, MACs, and outputs with the same weights."""
    architecture, live = ours
    totals = count(architecture).totals()
    assert totals["params"] == sum(parameter.numel() for parameter in model.parameters())
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            answer = model(*(inputs or live.inputs), use_cache=False, **more).logits
        torch.testing.assert_close(live.model(*live.inputs), answer, rtol=1e-5, atol=1e-5)  # float32 norms and routers
    assert 2 * totals["macs"] == counter.get_total_flops()


@pytest.mark.parametrize(("experts", "active", "kv_heads"), [(8, 2, 2), (5, 3, 4), (3, 1, 1)])
def test_mixtral_with_their_weights(experts: int, active: int, kv_heads: int, tmp_path: Path) -> None:
    model = theirs(
        "Mixtral", **SMALL, num_local_experts=experts, num_experts_per_tok=active, num_key_value_heads=kv_heads
    )
    model = scrambled(model.double())
    moe = {"kind": "moe", "experts": experts, "active": active, "expert": {"kind": "swiglu", "hidden": HIDDEN}}
    mixer = {"kind": "full", "heads": HEADS, "kv_heads": kv_heads, "causal": True, "position": "rope"}
    base = model.config.rope_parameters["rope_theta"]
    ours = decoder(mixer | {"projection_bias": False, "rope_base": base}, [[moe]] * LAYERS, tmp_path)
    weights = weights_of(model)
    put_ends(ours[1].model, weights)
    for number, (attention, block) in enumerate(ours[1].model.streams[0].stages[0].run):
        layer = f"model.layers.{number}."
        put(attention.residual_norm, weights, f"{layer}input_layernorm")
        put_joined(attention.inner.qkv, weights, *(f"{layer}self_attn.{name}_proj" for name in "qkv"))
        put(attention.inner.out, weights, f"{layer}self_attn.o_proj")
        put(block.residual_norm, weights, f"{layer}post_attention_layernorm")
        put_experts(block.inner, weights, f"{layer}mlp.")
    assert not weights
    compare(model, ours)


def counted(name: str) -> Ledger:
    return count(place(load(name), Run()))


MIXTRAL: dict[str, dict[str, Any]] = {
    "mixtral-8x7b": {},
    "mixtral-8x22b": {
        "hidden_size": 6144,
        "intermediate_size": 16384,
        "num_hidden_layers": 56,
        "num_attention_heads": 48,
    },
}


@pytest.mark.parametrize(("name", "settings"), MIXTRAL.items())
def test_params_of_mixtral_in_every_size(name: str, settings: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = theirs("Mixtral", num_key_value_heads=8, **settings)
    assert counted(name).total("params") == sum(parameter.numel() for parameter in model.parameters())


# of E experts of 3·d·H in every layer, all but A idle
ACTIVE = {"mixtral-8x7b": 12_879_925_248}


@pytest.mark.parametrize(("name", "active"), ACTIVE.items())
def test_active_parameters(name: str, active: int) -> None:
    assert counted(name).totals()["active_params"] == active
