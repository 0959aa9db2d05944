"""GPT-1 and all of GPT-3: totals beside transformers, and beside the table in print."""

from __future__ import annotations

import pytest
import torch

from specs import counted
from test_against_transformers import (
    same_totals,
    theirs_gpt2,
    theirs_of,
    transformers,
)

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
    assert params(preset) == sum(parameter.numel() for parameter in model.parameters())


def test_the_two_rows_of_table_2_1_that_do_not_add_up() -> None:
    # 24 heads of 128 in XL: 24 layers with 4·2048·1024 weights and 3·1024 biases more, 1517M and not 1320M
    block = "[{kind: full, heads: 24, head_dim: 128, causal: true}, {kind: mlp, ratio: 4, act: gelu_tanh}]"
    wide = params("gpt3-xl", f"stages.0.block={block}")
    assert wide - params("gpt3-xl") == 24 * (4 * 2048 * 1024 + 3 * 1024)
    assert round(wide / 1e6) == 1517
    # 5140 in the 13B model: 12,953M and not 12,850M
    assert round(params("gpt3-13b-5140") / 1e6) == 12953
    assert round(params("gpt3-13b") / 1e6) == 12853


def test_gpt1_at_full_size() -> None:
    same_totals("gpt1", lambda: theirs_of(transformers.OpenAIGPTConfig, transformers.OpenAIGPTLMHeadModel))
