"""GPT-1 and all of GPT-3: beside transformers, and beside the table in print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from specs import counted
from test_against_transformers import theirs_gpt2
from transformers_models import compare, ours_of, parameters, put, same_totals, take, theirs_of, weights_of

# Brown et al. 2020, Table D.1: parameters in millions; Table 2.1: layers, width, heads (XL's as its width has them)
SIZES = {
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


@pytest.mark.parametrize("preset", SIZES)
def test_table_d_1_within_four_thousandths(preset: str) -> None:
    printed, layers, dim, heads = SIZES[preset]
    assert params(preset) == pytest.approx(printed * 1e6, rel=4e-3)
    with torch.device("meta"):
        model = theirs_gpt2(n_embd=dim, n_layer=layers, n_head=heads, n_positions=2048)
    assert params(preset) == parameters(model)


def test_the_two_rows_of_table_2_1_that_do_not_add_up() -> None:
    # 24 heads of 128 in XL: 24 layers with 4·2048·1024 weights and 3·1024 biases more, 1517M and not 1320M
    block = "[{kind: full, heads: 24, head_dim: 128, causal: true}, {kind: mlp, ratio: 4, act: gelu_tanh}]"
    wide = params("gpt3-xl", f"stages.0.block={block}")
    assert wide - params("gpt3-xl") == 24 * (4 * 2048 * 1024 + 3 * 1024)
    assert round(wide / 1e6) == 1517
    # 5140 in the 13B model: 12,953M and not 12,850M
    assert round(params("gpt3-13b-5140") / 1e6) == 12953
    assert round(params("gpt3-13b") / 1e6) == 12853


def gpt1_spec(length: int, *, head: bool) -> dict[str, Any]:
    block = [{"kind": "full", "heads": 3, "causal": True}, {"kind": "mlp", "act": "gelu_tanh"}]
    return {
        "input": {"kind": "tokens", "vocabulary": 29, "length": length},
        "residual": {"place": "post"},
        "embed": [{"kind": "token", "share": "embedding"}, {"kind": "position", "length": 16}],
        "stages": [{"dim": 12, "depth": 2, "block": block}],
    } | ({"head": {"kind": "language_model", "norm": "none", "share": "embedding"}} if head else {})


def copied(theirs: nn.Module, ours: Any) -> None:
    weights = {name.removeprefix("transformer."): weight for name, weight in weights_of(theirs).items()}
    stream = ours.streams[0]
    ours.shared["embedding"].weight.copy_(take(weights, "tokens_embed.weight"))
    stream.embed[1].table.weight.copy_(take(weights, "positions_embed.weight"))
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"h.{number}."
        for module, name in (
            (mixer.inner.qkv, "attn.c_attn"),
            (mixer.inner.out, "attn.c_proj"),
            (mlp.inner.fc1, "mlp.c_fc"),
            (mlp.inner.fc2, "mlp.c_proj"),
        ):
            module.weight.copy_(take(weights, f"{layer}{name}.weight").T)  # theirs are transposed
            module.bias.copy_(take(weights, f"{layer}{name}.bias"))
        put(mixer.residual_norm, weights, f"{layer}ln_1")
        put(mlp.residual_norm, weights, f"{layer}ln_2")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize(("length", "head"), [(1, True), (11, True), (16, False)])
def test_gpt1_with_their_weights(length: int, head: bool, attention: str, tmp_path: Path) -> None:
    model = theirs_of(
        "OpenAIGPTLMHeadModel" if head else "OpenAIGPTModel",
        vocab_size=29,
        n_positions=16,
        n_embd=12,
        n_layer=2,
        n_head=3,
    )
    ours = ours_of(gpt1_spec(length, head=head), tmp_path, batch=2, dtype="float64", attention=attention)
    compare(model, ours, copied, lambda model, *inputs: model(*inputs)[0], tolerance=1e-10)


def test_gpt1_at_full_size() -> None:
    same_totals("gpt1", lambda: theirs_of("OpenAIGPTLMHeadModel"))
