"""Mixtures of experts beside transformers: parameters of every size, MACs and outputs with their weights.

Their experts run eager: the default kernel is one that counters miss.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import transformers_models as hf
from specs import counted
from xfcost.api.analysis import analyze
from xfcost.ledger.objects import grouped
from xfcost.mechanisms.mla import Mla
from xfcost.report.export import ledger_text
from xfcost.spec.architecture import Mode

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
    return hf.theirs_of(f"{family}{head}", **settings, experts_implementation="eager")


def decoder(mixer: dict[str, Any], blocks: list[list[dict[str, Any]]], folder: Path, length: int = 11) -> Any:
    """A decoder with RMS norms whose blocks are `mixer` and what of `blocks` follows it."""
    spec = {
        "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": length},
        "residual": {"norm": "rms_norm"},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": DIM, "blocks": [[mixer, *block] for block in blocks]}],
        "head": {"kind": "language_model", "norm": "rms_norm"},
    }
    torch.manual_seed(0)  # the token numbers: routers in float32 may choose otherwise where two experts are as good
    return hf.ours_of(spec, folder, batch=2, dtype="float64")


def put_ends(ours: Any, weights: hf.TheirWeights) -> None:
    weights.put(ours.streams[0].embed[0].lookup, "model.embed_tokens")
    weights.put(ours.head.linear, "lm_head")
    weights.put(ours.head.norm, "model.norm")


def put_experts(moe: Any, weights: hf.TheirWeights, layer: str) -> None:
    """A router and its SwiGLU experts; their gate and up-projection are one tensor."""
    moe.router.weight.copy_(weights.take(f"{layer}gate.weight"))
    gate, up = weights.take(f"{layer}experts.gate_up_proj").chunk(2, dim=1)
    moe.experts.gate.weight.copy_(gate)
    moe.experts.up.weight.copy_(up)
    moe.experts.down.weight.copy_(weights.take(f"{layer}experts.down_proj"))


def compare(model: nn.Module, ours: Any, **more: Any) -> None:
    """Parameters, MACs, and outputs with the same weights."""
    # norms and routers are in float32
    hf.alike(model, ours, lambda model, *inputs: model(*inputs, use_cache=False, **more).logits, tolerance=1e-5)


# DeepSeek ────────────────────────────────────────────────────────────────────────────────────────────────────────────

LATENT = {
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "num_key_value_heads": HEADS,
}
MLA = {"kind": "mla", "heads": HEADS, "head_dim": 6, "rope_dim": 4, "value_dim": 5, "kv_rank": 10, "causal": True}
ROUTED = {"num_experts_per_tok": 3, "n_routed_experts": 8, "n_shared_experts": 2, "moe_intermediate_size": 7}
EXPERTS = {
    "kind": "moe",
    "experts": 8,
    "active": 3,
    "expert": {"kind": "swiglu", "hidden": 7},
    "shared": {"count": 2},
    "scale": 2.5,
}


def in_halves(weight_OD: torch.Tensor, heads: int, content: int) -> torch.Tensor:
    """Their turned columns are pairs side by side; ours stand half a head apart."""
    parts = weight_OD.unflatten(0, (heads, -1))
    turned = parts[:, content:]
    return torch.cat([parts[:, :content], turned[:, 0::2], turned[:, 1::2]], dim=1).flatten(0, 1)


def put_latent_attention(mixer: Any, weights: hf.TheirWeights, layer: str) -> None:
    if mixer.q_down is None:
        mixer.q.weight.copy_(in_halves(weights.take(f"{layer}q_proj.weight"), HEADS, 6))
    else:
        weights.put(mixer.q_down, f"{layer}q_a_proj")
        weights.put(mixer.q_norm, f"{layer}q_a_layernorm")
        mixer.q_up.weight.copy_(in_halves(weights.take(f"{layer}q_b_proj.weight"), HEADS, 6))
    mixer.kv_down.weight.copy_(in_halves(weights.take(f"{layer}kv_a_proj_with_mqa.weight"), 1, 10))
    if mixer.kv_down.bias is not None:
        bias = weights.take(f"{layer}kv_a_proj_with_mqa.bias").unsqueeze(1)
        mixer.kv_down.bias.copy_(in_halves(bias, 1, 10).squeeze(1))
    weights.put(mixer.kv_norm, f"{layer}kv_a_layernorm")
    weights.put(mixer.kv_up, f"{layer}kv_b_proj")
    weights.put(mixer.out, f"{layer}o_proj")


def copied_deepseek(model: nn.Module, ours: Any) -> None:
    """Their weights into ours, every one of them, and the bias of the choice, which is a buffer."""
    weights, buffers = hf.TheirWeights(model), dict(model.named_buffers())
    put_ends(ours, weights)
    for number, (mixer, block) in enumerate(ours.streams[0].stages[0].run):
        layer = f"model.layers.{number}."
        weights.put(mixer.residual_norm, f"{layer}input_layernorm")
        put_latent_attention(mixer.inner, weights, f"{layer}self_attn.")
        weights.put(block.residual_norm, f"{layer}post_attention_layernorm")
        dense, place_of = block.inner, f"{layer}mlp."
        if number:
            put_experts(block.inner, weights, place_of)
            if block.inner.correction is not None:
                block.inner.correction.bias_E.copy_(buffers[f"{layer}mlp.gate.e_score_correction_bias"])
            dense, place_of = block.inner.shared, f"{layer}mlp.shared_experts."
        for name in ("gate", "up", "down"):
            weights.put(getattr(dense, name), f"{place_of}{name}_proj")
    assert not weights


def compare_deepseek(model: nn.Module, mixer: dict[str, Any], moe: dict[str, Any], folder: Path) -> None:
    model = hf.scrambled(model.double())
    for module in model.modules():  # the norms of latents leave the configuration's epsilon aside
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = EPS
    for name, buffer in model.named_buffers():
        if name.endswith("correction_bias"):
            buffer.copy_(torch.randn(len(buffer), generator=torch.Generator().manual_seed(5)))
    dense = {"kind": "swiglu", "hidden": HIDDEN}
    ours = decoder(mixer, [[dense], [moe], [moe]], folder)
    copied_deepseek(model, ours[1].model)
    compare(model, ours, attention_mask=torch.ones(2, 11))


@pytest.mark.parametrize("q_rank", [None, 9])
@pytest.mark.parametrize("method", ["greedy", "group_limited_greedy"])
def test_deepseek_v2_with_their_weights(q_rank: int | None, method: str, tmp_path: Path) -> None:
    groups = {"n_group": 4, "topk_group": 2} if method != "greedy" else {}
    settings = {"topk_method": method, "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "q_lora_rank": q_rank}
    model = theirs("DeepseekV2", **SMALL, **LATENT, **ROUTED, **settings, **groups)
    moe = EXPERTS | {"normalize": False} | ({"groups": {"count": 4, "active": 2}} if groups else {})
    compare_deepseek(model, MLA | {"q_rank": q_rank}, moe, tmp_path)


@pytest.mark.parametrize("bias", [False, True])
def test_deepseek_v3_with_their_weights(bias: bool, tmp_path: Path) -> None:
    settings = {"n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "q_lora_rank": 9, "attention_bias": bias}
    model = theirs("DeepseekV3", **SMALL, **LATENT, **ROUTED, **settings)
    moe = EXPERTS | {"router": "sigmoid", "correction": True}
    moe |= {"groups": {"count": 4, "active": 2, "score": "top_two"}}
    compare_deepseek(model, MLA | {"q_rank": 9, "projection_bias": bias}, moe, tmp_path)


# Every size ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def switch(experts: int, dim: int = 768, hidden: int = 3072, layers: int = 12, every: int = 2) -> dict[str, Any]:
    sparse = {"num_sparse_encoder_layers": layers // every, "num_sparse_decoder_layers": layers // every}
    heads = {768: 12, 1024: 16, 2080: 32}[dim]
    depth = {"num_layers": layers, "num_decoder_layers": layers, "num_heads": heads}
    return {"num_experts": experts, "d_model": dim, "d_ff": hidden} | sparse | depth


def test_the_router_s_bias_of_deepseek_v3_is_a_buffer_of_theirs_too() -> None:
    with torch.device("meta"):
        model = theirs("DeepseekV3")
    buffers = sum(one.numel() for name, one in model.named_buffers() if name.endswith("correction_bias"))
    assert buffers == 58 * 256 == 14_848


# embedding, routers and head whole; of the experts those that a token uses
ACTIVE = {
    "mixtral-8x7b": 12_879_925_248,
    "switch-base-8": 222_977_280,
    "switch-base-128": 224_083_200,
    "deepseek-v3": 37_552_282_624,
    "deepseek-v2": 21_375_800_320,
}


@pytest.mark.parametrize(("name", "active"), ACTIVE.items())
def test_active_parameters(name: str, active: int) -> None:
    ledger = counted(name)
    assert ledger.totals()["active_params"] == active
    assert sum(group["active_params"] for group in grouped(ledger, "block")) == active


@pytest.mark.parametrize("mode", ["prefill", "decode", "generate"])
def test_active_parameters_are_the_model_s_in_every_mode(mode: Mode) -> None:
    new = 20 if mode == "generate" else None
    ledger = analyze("mixtral-8x7b", N=64, mode=mode, new_tokens=new, trace=False)
    assert ledger.total("active_params") == ACTIVE["mixtral-8x7b"]


def test_a_batch_reads_more_experts_and_no_more_than_there_are() -> None:
    """One token reads 2 of 8 experts; 3 samples choose 6 at most, 4 all of them."""

    def read(batch: int) -> int:
        rows = analyze("mixtral-8x7b", N=64, mode="decode", batch=batch, trace=False).rows
        return next(row.weights_read.elements for row in rows if row.operation == "experts_gate")

    assert [read(batch) // (4096 * 14336) for batch in (1, 3, 4, 64)] == [2, 6, 8, 8]


def test_the_cost_of_a_count_depends_on_neither_depth_nor_experts() -> None:
    rows = [len(counted(name).rows) for name in ("switch-base-8", "switch-base-256", "switch-large-128")]
    assert len(set(rows)) == 1
    assert len(counted("deepseek-v3").rows) < 70


def test_a_token_of_switch_costs_what_one_of_t5_does_but_for_the_router() -> None:
    routers = 12 * 512 * 768 * 128
    assert counted("switch-base-128").total("macs") - counted("t5-base").total("macs") == routers


def test_latent_attention_keeps_less_for_a_cache() -> None:
    """DeepSeek-V2, Table 1: (d_c + d_r)·l numbers per token, 4.5·d_h a layer where d_c = 4·d_h and d_r = d_h/2."""
    component = Mla(heads=128, head_dim=128, rope_dim=64, kv_rank=512)
    assert component.latent == 576 == 9 * 128 // 2


def test_reports_tell_active_parameters_where_they_are_fewer() -> None:
    mixtral, llama = (analyze(name, trace=False) for name in ("mixtral-8x7b", "llama3-8b"))
    told = json.loads(mixtral.to_json())
    assert (told["totals"]["params"], told["totals"]["active_params"]) == (46_702_792_704, 12_879_925_248)
    experts = [row for row in told["operations"] if row["operation"].startswith("experts_") and row["params"]]
    assert {row["params"] // row["active_params"] for row in experts} == {4}
    text = ledger_text(mixtral, "table")
    assert "46,702,792,704 parameters (12,879,925,248 active)" in text
    assert "those that one token uses" in text
    assert "active" not in ledger_text(llama, "table")
    assert "12,879,925,248 active_params" in ledger_text(mixtral, "markdown")
    published = {row["quantity"]: row["ours"] for row in told["published"]}
    assert published == {"params": 46_702_792_704, "active_params": 12_879_925_248}
