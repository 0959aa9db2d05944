"""Conformer: what is refused and noted, `--N`, and its block beside transformers' Parakeet with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from places import at
from specs import counted
from strategies import counted_spec, placed
from transformers_models import TheirWeights, parameters, scrambled, transformers
from xfcost.formulas.component import Place
from xfcost.layers.stems import FoldAxis
from xfcost.ledger.errors import ComponentError, SpecError, UsageError
from xfcost.mechanisms.conv import ConvModule
from xfcost.spec.inputs import image_size_for_grid
from xfcost.spec.load import load
from xfcost.spec.run import Run
from xfcost.torch_models.build import build

BLOCK: list[dict[str, Any]] = [
    {"kind": "mlp", "act": "silu", "residual": {"factor": 0.5}},
    {"kind": "relative", "heads": 2, "projection_bias": True},
    {"kind": "conv_module", "size": 5},
    {"kind": "mlp", "act": "silu", "residual": {"factor": 0.5}},
    {"kind": "norm"},
]
CONVOLUTION = {"kind": "conv", "size": 3, "stride": 2, "padding": 0, "act": "relu"}
ENTRY_LAYER = [CONVOLUTION, CONVOLUTION, {"kind": "fold_axis"}, {"kind": "projection"}]


def encoder(frames: int = 60, mel: int = 20, dim: int = 8) -> dict[str, Any]:
    return {
        "input": {"kind": "image", "size": [frames, mel], "channels": 1},
        "embed": ENTRY_LAYER,
        "stages": [{"dim": dim, "depth": 2, "block": BLOCK}],
    }


# The convolution module ──────────────────────────────────────────────────────────────────────────────────────────────


def test_an_odd_kernel_drops_nothing() -> None:
    rows = {row.path: row for row in ConvModule(size=3).operations(at(5))}
    assert rows["depthwise"].macs == 5 * 3 * 6
    assert list(ConvModule(size=3).notes(at(5))) == []
    (note,) = ConvModule(size=4).notes(at(5))
    assert "gives 6 outputs for 5 tokens: the last is computed and dropped" in note


@pytest.mark.parametrize("where", [at(4, 4), at(5, special=1)], ids=str)
def test_the_module_stands_on_a_sequence_alone(where: Place) -> None:
    with pytest.raises(ComponentError, match=r"convolves along a sequence, got .* tokens; fold an axis") as refused:
        ConvModule().check(where)
    assert refused.value.field == "kind"


# The entry ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_can_not_be_folded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match="the 7 tokens are a sequence already; leave it out"):
        FoldAxis().check(at(7))
    with pytest.raises(ComponentError, match=r"expected no special tokens, got 1"):
        FoldAxis().check(at(3, 4, special=1))
    with pytest.raises(SpecError, match="the width is 24 here and nothing in `embed` brings it to 8"):
        # (23 - 3)//2 + 1 = 11 and then 5 rows of (15 - 3)//2 + 1 = 7 and then 3 columns, 8 wide
        counted_spec(encoder(23, 15) | {"embed": ENTRY_LAYER[:3]}, tmp_path)


# N ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tokens", [1, 2, 7, 249, 1000, 4999])
def test_n_is_the_tokens_of_the_first_stage(tokens: int) -> None:
    ledger = counted("conformer-s", tokens=(tokens,))
    assert (ledger.metadata.grid_tokens, ledger.metadata.tokens) == (tokens, f"{tokens:,}")
    assert ledger.total("params") == 8_692_416  # the frequencies stay, and so do all weights
    assert not any("rebuilt" in note for note in ledger.metadata.notes)
    block = {row.operation: row for row in ledger.rows if ".block.1." in row.path}
    assert block["scores"].macs == tokens * tokens * 144
    assert block["position_scores"].macs == tokens * (2 * tokens - 1) * 144


def test_its_own_n_costs_what_its_own_frames_do() -> None:
    # 999 frames and 1000 are 499 after the first convolution, and 249 after the second
    assert counted("conformer-s", tokens=(249,)).total("macs") == counted("conformer-s").total("macs")


def test_frames_can_be_given_too() -> None:
    assert counted("conformer-s", size=(2000, 80)).metadata.grid_tokens == 499
    with pytest.raises(UsageError, match="keeps one side of its image, folded into the width; give --N"):
        image_size_for_grid(load("conformer-s"), Run(), (1, 1))
    with pytest.raises(UsageError, match="expected at least 1 token"):
        counted("conformer-s", tokens=(0,))


def test_its_costs_grow_with_time_alone() -> None:
    # At 249 tokens attention is a sixth of the work: between N and N², nearer to N.
    growth = xfcost.compare("conformer-s", "conformer-m").growth["Conformer-S encoder"]
    assert growth["factor"] == 2
    assert 1.1 < growth["macs"] < 1.25
    assert xfcost.compare("conformer-s", "vit-b16").by_size == {}  # a spectrogram is no image of any size
    one, two = (counted("conformer-s", scale=(up, 1)) for up in (1, 2))
    assert two.metadata.tokens == "499"
    assert one.total("params") == two.total("params")


# Somebody else's code ────────────────────────────────────────────────────────────────────────────────────────────────


def parakeet_block(dim: int, heads: int, kernel: int) -> nn.Module:
    config = transformers.ParakeetEncoderConfig(
        hidden_size=dim,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=4 * dim,
        conv_kernel_size=kernel,
        attn_implementation="eager",
    )
    modeling = transformers.models.parakeet.modeling_parakeet  # takes a second to import
    return modeling.ParakeetEncoderBlock(config, 0).eval().requires_grad_(requires_grad=False)


@pytest.mark.parametrize(
    ("name", "dim", "heads"), [("conformer-s", 144, 4), ("conformer-m", 256, 4), ("conformer-l", 512, 8)]
)
def test_a_block_has_theirs_parameters(name: str, dim: int, heads: int) -> None:
    # Their kernels are odd: 31 of them have d weights less than 32.
    block = sum(row.params for row in counted(name).rows if ".block." in row.path)
    with torch.device("meta"):
        theirs = parakeet_block(dim, heads, 31)
    assert block - dim == parameters(theirs)


def copied(block: nn.Module, theirs: nn.Module) -> None:
    """Their weights into ours."""
    weights = TheirWeights(theirs)
    first, attention, convolution, second, last = block
    for ours, number in ((first, 1), (second, 2)):
        weights.put(ours.residual_norm, f"norm_feed_forward{number}")
        weights.put(ours.inner.fc1, f"feed_forward{number}.linear1")
        weights.put(ours.inner.fc2, f"feed_forward{number}.linear2")
    weights.put(attention.residual_norm, "norm_self_att")
    weights.put(attention.inner.q, "self_attn.q_proj")
    weights.put(attention.inner.out, "self_attn.o_proj")
    for kind, parameter in attention.inner.kv.named_parameters():
        parameter.copy_(torch.cat([weights.take(f"self_attn.{name}_proj.{kind}") for name in "kv"]))
    core = attention.inner.core
    core.r.weight.copy_(beside(weights.take("self_attn.relative_k_proj.weight")))
    core.content_bias.weight.copy_(weights.take("self_attn.bias_u").flatten()[None])
    core.position_bias.weight.copy_(weights.take("self_attn.bias_v").flatten()[None])
    weights.put(convolution.residual_norm, "norm_conv")
    for ours, name in ((convolution.inner.pointwise1, "conv1"), (convolution.inner.pointwise2, "conv2")):
        ours.weight.copy_(weights.take(f"conv.pointwise_{name}.weight")[..., 0])
        ours.bias.copy_(weights.take(f"conv.pointwise_{name}.bias"))
    weights.put(convolution.inner.depthwise, "conv.depthwise_conv")
    convolution.inner.norm.load_state_dict(theirs.conv.norm.state_dict())
    weights.put(last.inner.norm, "norm_out")


def beside(interleaved: Tensor) -> Tensor:
    """Their sines and cosines take turns, ours stand one after the other."""
    return torch.cat([interleaved[..., 0::2], interleaved[..., 1::2]], dim=-1)


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("frames", [7, 23, 60])
def test_a_block_with_their_weights(frames: int, attention: str, tmp_path: Path) -> None:
    architecture = placed(encoder(frames), tmp_path, dtype="float64", attention=attention)  # type: ignore[arg-type]
    theirs = scrambled(parakeet_block(8, 2, 5)).double()
    block = build(architecture, "cpu").model.streams[0].stages[0].run[0]
    copied(block, theirs)
    tokens = architecture.grid.total
    x_BND = torch.randn(2, tokens, 8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    encoding = transformers.models.parakeet.modeling_parakeet.ParakeetEncoderRelPositionalEncoding
    positions = encoding(theirs.self_attn.config)(x_BND)
    with torch.no_grad():
        expected = theirs(x_BND, position_embeddings=positions)
        # both encode positions in single precision, and round angles differently
        torch.testing.assert_close(block(x_BND, None), expected, rtol=1e-5, atol=1e-5)
    encodings = block[1].inner.core.encodings_1TD
    torch.testing.assert_close(encodings.expand(2, -1, -1), beside(positions), rtol=1e-5, atol=1e-5)


def test_a_block_has_their_macs(tmp_path: Path) -> None:
    ledger = counted_spec(encoder(60), tmp_path)
    assert ledger.metadata.grid_tokens == 14
    ours = sum(row.macs for row in ledger.rows if ".block." in row.path)
    with torch.device("meta"):
        theirs = parakeet_block(8, 2, 5)
        x_BND, positions = torch.randn(1, 14, 8), torch.randn(1, 27, 8)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        theirs(x_BND, position_embeddings=positions)
    assert counter.get_total_flops() == 2 * ours
