"""Mixtures of experts: routing by hand, capacity, and DeepSeek beside transformers."""

from math import ceil
from pathlib import Path
from types import EllipsisType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import contract
import transformers_models as hf
from cases.base import Case
from cases.layers import PACKED, SLOTTED
from contract import example
from modules import counted_by_torch
from places import at, on, rows_of, total
from specs import counted
from xfcost.formulas.component import Place
from xfcost.layers.feed_forward import Mlp, Swiglu
from xfcost.layers.moe import Moe
from xfcost.ledger.grid import Grid
from xfcost.ledger.json_objects import grouped

# `--kind` of one of these selects this file
KINDS = ("moe",)


# Mixtures of experts ──────────────────────────────────────────────────────────────────────────────────────────────────

GRIDS = (Grid((1,)), Grid((2,)), Grid((7,)), Grid((3, 5)), Grid((2, 4), 1))
every_component = pytest.mark.parametrize("component", [*PACKED, *SLOTTED], ids=str)
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=str)


def make(component: Moe, place: Place, device: str = "cpu") -> nn.Module:
    module = contract.make(Case(component, place), device)
    if component.correction and device == "cpu":
        module.correction.bias_E.copy_(torch.randn(component.experts))
    return module


@pytest.mark.parametrize(
    ("normalize", "scale", "each"), [(False, None, 0), (True, None, 2), (False, 2.5, 1), (True, 2.5, 3)]
)
def test_weights_of_the_chosen_by_hand(*, normalize: bool, scale: float | None, each: int) -> None:
    """7 tokens choose 3 experts each: a number of their sum and a quotient, a product with the scale."""
    rows = rows_of(Moe(active=3, normalize=normalize, scale=scale), at(7))
    assert (rows["weights"].flops, rows["weights"].moved) == (7 * 3 * each, 7 * 3)


def network(component: Moe, experts: nn.Module, number: int | EllipsisType, x_D: Tensor) -> Tensor:
    """What one expert says of one token; with `...` what the shared ones say together."""

    def mapped(leaf: nn.Module, y: Tensor) -> Tensor:
        bias = 0 if leaf.bias is None else leaf.bias[number]
        return leaf.weight[number] @ y + bias

    if isinstance(component.expert, Mlp):
        act = F.relu if component.expert.act == "relu" else F.gelu
        return mapped(experts.fc2, act(mapped(experts.fc1, x_D)))
    act = F.silu if isinstance(component.expert, Swiglu) else F.gelu
    return mapped(experts.down, act(mapped(experts.gate, x_D)) * mapped(experts.up, x_D))


def chosen(component: Moe, torch_module: nn.Module, x_D: Tensor) -> list[tuple[int, Tensor]]:
    """The experts of one token, the best first, and their weights."""
    scores = torch_module.router.weight @ x_D
    probability = scores.softmax(0) if component.router == "softmax" else 1 / (1 + (-scores).exp())
    by = (probability + torch_module.correction.bias_E if component.correction else probability).detach()
    may = range(component.experts)
    if component.groups:
        each = component.experts // component.groups.count
        best = 1 if component.groups.score == "max" else 2
        members = [range(first, first + each) for first in range(0, component.experts, each)]
        worth = [sum(sorted((float(by[one]) for one in group), reverse=True)[:best]) for group in members]
        groups = sorted(range(component.groups.count), key=lambda group: -worth[group])[: component.groups.active]
        may = [expert for group in groups for expert in members[group]]
    ranked = sorted(may, key=lambda expert: -float(by[expert]))[: component.active]
    weights = [probability[expert] for expert in ranked]
    if component.normalize:
        weights = [weight / sum(weights) for weight in weights]
    return [(expert, weight * (component.scale or 1)) for expert, weight in zip(ranked, weights, strict=True)]


def reference(component: Moe, torch_module: nn.Module, x_ND: Tensor) -> Tensor:
    """One sample, token after token, expert after expert; with a capacity, first choices before second ones."""
    plans = [chosen(component, torch_module, x_D) for x_D in x_ND]
    room = [
        ceil(component.capacity * component.active * len(x_ND) / component.experts) if component.capacity else len(x_ND)
    ] * component.experts
    answers = [0 * x_D for x_D in x_ND]
    for rank in range(component.active):
        for token, plan in enumerate(plans):
            expert, weight = plan[rank]
            if room[expert]:
                room[expert] -= 1
                answers[token] = answers[token] + weight * network(component, torch_module.experts, expert, x_ND[token])
    if component.shared is not None:
        shared = torch_module.shared
        answers = [answer + network(component, shared, ..., x_D) for answer, x_D in zip(answers, x_ND, strict=True)]
    return torch.stack(answers)


@every_component
@every_grid
def test_outputs_and_gradients_are_those_of_a_loop(component: Moe, grid: Grid) -> None:
    torch_module, (x_BND,) = make(component, on(grid)), example(on(grid), 2)
    leaves = [x_BND.requires_grad_(), *torch_module.parameters()]
    ours, plain = torch_module(x_BND), torch.stack([reference(component, torch_module, x_ND) for x_ND in x_BND])
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-12)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    both = [torch.autograd.grad((one * weights).sum(), leaves, materialize_grads=True) for one in (ours, plain)]
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_an_expert_that_no_token_chose_is_not_run() -> None:
    component = Moe(experts=6, active=1, expert=Mlp(hidden=5), normalize=False)
    torch_module, (x_BND,) = make(component, at(7)), example(at(7), 1)
    torch_module.requires_grad_(requires_grad=False)
    with torch.no_grad():
        torch_module.router.weight.fill_(0)
        x_BND[..., 0] = 1
        torch_module.router.weight[4, 0] = 1  # all choose the fifth
        before = torch_module(x_BND)
        for leaf in (torch_module.experts.fc1, torch_module.experts.fc2):
            leaf.weight[[0, 1, 2, 3, 5]] = float("nan")
        assert torch.equal(torch_module(x_BND), before)
    assert counted_by_torch(lambda: torch_module(x_BND))[1] == total(component, at(7), "macs")


def test_slots_by_hand() -> None:
    # 1.1 is 11/10 as it is written: 1.1·1·20/2 = 11 slots, and not 12 for the float above it
    assert Moe(experts=2, active=1, capacity=1.1).slots(20) == 11
    # ⌈1.25·2·7/8⌉ = ⌈2.1875⌉ = 3 slots, 24 computed for 14 copies
    component = Moe(capacity=1.25)
    assert (component.slots(7), component.computed(7)) == (3, 24)
    assert rows_of(component, at(7))["experts_gate"].macs == 24 * 6 * 16


def test_a_matrix_of_all_experts_is_one_tensor() -> None:
    """However many they are: a trace of 256 experts holds no more than one of 8."""
    many, few = (make(Moe(experts=experts, expert=Swiglu(hidden=4)), at(7), "meta") for experts in (256, 8))
    assert len(list(many.parameters())) == len(list(few.parameters())) == 4
    assert many.experts.gate.weight.shape == (256, 4, 6)


# DeepSeek beside transformers, and active parameters ──────────────────────────────────────────────────────────────────
#
# Their experts run eager: the default kernel is one that counters miss.

VOCABULARY, DIM, HIDDEN, LAYERS, HEADS = 29, 24, 20, 3, 4
EPS = torch.finfo(torch.float64).eps  # what torch's own norm adds
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": DIM, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "rms_norm_eps": EPS, "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0,
    "kv_lora_rank": 10, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "num_key_value_heads": HEADS,
    "num_experts_per_tok": 3, "n_routed_experts": 8, "n_shared_experts": 2, "moe_intermediate_size": 7,
    "first_k_dense_replace": 1,
}  # fmt: skip


def in_halves(weight_OD: torch.Tensor, heads: int, content: int) -> torch.Tensor:
    """Their turned columns are pairs side by side; ours stand half a head apart."""
    parts = weight_OD.unflatten(0, (heads, -1))
    turned = parts[:, content:]
    return torch.cat([parts[:, :content], turned[:, 0::2], turned[:, 1::2]], dim=1).flatten(0, 1)


def put_latent_attention(mixer: Any, weights: hf.TheirWeights, layer: str) -> None:
    if not hasattr(mixer, "q_down"):
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
    weights.put(ours.streams[0].embed[0].lookup, "model.embed_tokens")
    weights.put(ours.head.linear, "lm_head")
    weights.put(ours.head.norm, "model.norm")
    for number, (mixer, block) in enumerate(ours.streams[0].stages[0].run):
        layer = f"model.layers.{number}."
        weights.put(mixer.residual_norm, f"{layer}input_layernorm")
        put_latent_attention(mixer.inner, weights, f"{layer}self_attn.")
        weights.put(block.residual_norm, f"{layer}post_attention_layernorm")
        dense, place_of = block.inner, f"{layer}mlp."
        if number:
            block.inner.router.weight.copy_(weights.take(f"{place_of}gate.weight"))
            gate, up = weights.take(f"{place_of}experts.gate_up_proj").chunk(2, dim=1)  # one tensor there
            down = weights.take(f"{place_of}experts.down_proj")
            for leaf, weight in (("gate", gate), ("up", up), ("down", down)):
                getattr(block.inner.experts, leaf).weight.copy_(weight)
            if hasattr(block.inner, "correction"):
                block.inner.correction.bias_E.copy_(buffers[f"{layer}mlp.gate.e_score_correction_bias"])
            dense, place_of = block.inner.shared, f"{layer}mlp.shared_experts."
        for name in ("gate", "up", "down"):
            weights.put(getattr(dense, name), f"{place_of}{name}_proj")
    assert not weights


def compare_deepseek(name: str, folder: Path, **settings: Any) -> None:
    """Parameters, MACs, and outputs with the same weights; norms and routers are in float32."""
    model = hf.scrambled(hf.theirs_of(name, **SMALL, **settings, experts_implementation="eager").double())
    for module in model.modules():  # the norms of latents leave the configuration's epsilon aside
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = EPS
    for path, buffer in model.named_buffers():
        if path.endswith("correction_bias"):
            buffer.copy_(torch.randn(len(buffer), generator=torch.Generator().manual_seed(5)))
    torch.manual_seed(0)  # the token numbers: routers in float32 may choose otherwise where two experts are as good
    ours = hf.imported(model, folder, tokens=(11,))
    copied_deepseek(model, ours[1].model)

    def logits(model: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
        return model(*inputs, use_cache=False, attention_mask=torch.ones(2, 11)).logits

    hf.alike(model, ours, logits, tolerance=1e-5)


@pytest.mark.parametrize("q_rank", [None, 9])
@pytest.mark.parametrize("method", ["greedy", "group_limited_greedy"])
def test_deepseek_v2_with_their_weights(q_rank: int | None, method: str, tmp_path: Path) -> None:
    groups = {"n_group": 4, "topk_group": 2} if method != "greedy" else {}
    settings = {"topk_method": method, "routed_scaling_factor": 2.5, "q_lora_rank": q_rank}
    compare_deepseek("DeepseekV2ForCausalLM", tmp_path, **settings, **groups)


@pytest.mark.parametrize("bias", [False, True])
def test_deepseek_v3_with_their_weights(bias: bool, tmp_path: Path) -> None:
    settings = {"n_group": 4, "topk_group": 2, "q_lora_rank": 9, "attention_bias": bias}
    compare_deepseek("DeepseekV3ForCausalLM", tmp_path, **settings)


# embedding, routers and head whole; of the experts those that a token uses
ACTIVE = {
    "mixtral-8x7b": 12_879_925_248, "switch-base-8": 222_977_280, "switch-base-128": 224_083_200,
    "deepseek-v3": 37_552_282_624, "deepseek-v2": 21_375_800_320,
}  # fmt: skip


@pytest.mark.parametrize(("name", "active"), ACTIVE.items())
def test_active_parameters(name: str, active: int) -> None:
    ledger = counted(name)
    assert ledger.totals()["active_params"] == active
    assert sum(group["active_params"] for group in grouped(ledger, "block")) == active


def test_the_cost_of_a_count_depends_on_neither_depth_nor_experts() -> None:
    rows = [len(counted(name).rows) for name in ("switch-base-8", "switch-base-256", "switch-large-128")]
    assert len(set(rows)) == 1
    assert len(counted("deepseek-v3").rows) < 70


def test_a_token_of_switch_costs_what_one_of_t5_does_but_for_the_router() -> None:
    routers = 12 * 512 * 768 * 128
    assert counted("switch-base-128").total("macs") - counted("t5-base").total("macs") == routers
