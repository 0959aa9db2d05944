"""Reformer as a whole: chunked feed-forward, axial positions, and the public models that all its parts make."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import places
from saved import saved_bytes
from specs import counted
from strategies import placed
from transformers_models import parameters, transformers
from xfcost.counting.forward import count
from xfcost.layers.mlp import Mlp
from xfcost.layers.position import Position
from xfcost.ledger.errors import ComponentError, SpecError
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.timing.rows import row_seconds

DIM = 12


spot = partial(places.at, dim=DIM)


# Chunked feed-forward ────────────────────────────────────────────────────────────────────────────────────────────────


def feed_forward(chunks: int, tokens: int, dim: int = DIM, device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    with torch.device(device):
        return MODULES[Mlp](Mlp(chunks=chunks), spot(tokens, dim=dim))


def spec(block: list[Any], tokens: int, **more: Any) -> dict[str, Any]:
    embed = [{"kind": "token"}, *more.pop("embed", [])]
    entry = {"kind": "tokens", "vocabulary": 11, "length": tokens}
    stages = [{"dim": DIM, "depth": 2, "block": block}]
    return {"name": "part", "input": entry, "embed": embed, "stages": stages} | more


def test_the_peak_of_chunks_is_what_is_told():
    tokens, dim = 64, 8
    whole, parts = (
        peak_bytes(feed_forward(chunks, tokens, dim, "meta"), (torch.empty(1, tokens, dim, device="meta"),))
        for chunks in (1, 8)
    )
    weights = 4 * sum(weight.numel() for weight in feed_forward(1, tokens, dim, "meta").parameters())
    hidden, stream = 4 * tokens * 4 * dim, 4 * tokens * dim
    assert whole == weights + stream + 2 * hidden  # before and after the activation
    # the last chunk's hidden elements stand beside the answers of the seven before it; less than joining all takes
    assert parts == weights + stream + 2 * stream
    assert 2 * hidden // 8 + stream * 7 // 8 < 2 * stream
    (note,) = Mlp(chunks=8).notes(spot(tokens, dim=dim))
    assert "8 chunks of up to 8 tokens: 8·32 = 256 hidden elements" in note
    assert f"in place of {tokens * 32:,}" in note


@pytest.mark.parametrize(("chunks", "tokens", "told"), [(4, 7, "4 chunks of up to 2"), (50, 7, "7 chunks of up to 1")])
def test_chunks_need_not_divide_the_tokens(chunks, tokens, told):
    (note,) = Mlp(chunks=chunks).notes(spot(tokens))
    assert told in note
    assert len(torch.empty(1, tokens, 1).chunk(chunks, dim=1)) == int(told.split()[0])


def test_training_keeps_the_hidden_elements_of_chunks_unless_they_are_worked_out_again(tmp_path):
    kept = []
    for chunks, form in ((1, "ordinary"), (8, "ordinary"), (8, "reversible")):
        block = [{"kind": "full", "heads": 3}, {"kind": "mlp", "chunks": chunks}]
        live = build(placed(spec(block, 64, residual={"form": form}), tmp_path))
        stage = live.model.requires_grad_().streams[0].stages[0]
        kept.append(saved_bytes(stage, (torch.empty(1, 64, DIM, device="meta"), None)))
    assert kept[0] == kept[1]
    assert kept[2] == 4 * 2 * 64 * DIM


def test_a_leaf_that_is_called_for_every_chunk_took_the_sum(tmp_path):
    class Ticks:
        now = 0.0

        def __call__(self) -> float:
            self.now += 1.0
            return self.now

    live = build(placed(spec([{"kind": "mlp", "chunks": 4}], 8), tmp_path), "cpu")
    seconds = row_seconds(live, lambda: live.model(*live.inputs), Ticks())
    assert seconds["stages.0.block.0.fc1"] == 2 * 4.0  # in two blocks
    assert seconds["stages.0.block.0.join"] == 2 * 1.0


# Axial positions ─────────────────────────────────────────────────────────────────────────────────────────────────────


REFUSED = [
    ({"shape": [3, 4]}, "shape: belongs to form: axial; leave it out for form: learned"),
    ({"form": "sinusoidal", "widths": [5, 7]}, "widths: belongs to form: axial"),
    ({"form": "axial", "widths": [5, 7]}, "shape: is missing: one number per axis"),
    ({"form": "axial", "shape": [3, 4]}, "widths: is missing"),
    (
        {"form": "axial", "shape": [3, 4], "widths": [5, 5]},
        "widths: expected 2 widths, one per axis, that add up to the",
    ),
    ({"form": "axial", "shape": [3, 4], "widths": [4, 4, 4]}, "got 3 that add up to 12"),
    ({"form": "axial", "shape": [2, 4], "widths": [5, 7]}, "shape: 12 tokens do not fit 2×4 = 8 positions"),
    ({"form": "axial", "shape": [3, 4], "widths": [5, 7], "length": 12}, "length: axial positions are as many as"),
]


@pytest.mark.parametrize(("position", "said"), REFUSED, ids=str)
def test_axial_positions_that_cannot_be(position, said, tmp_path):
    with pytest.raises(SpecError) as refused:
        placed(spec([{"kind": "mlp"}], 12, embed=[{"kind": "position"} | position]), tmp_path)
    assert said in str(refused.value)
    assert "embed[1]." in str(refused.value)


def test_other_positions_are_as_they_were():
    Position().check(spot(5))
    with pytest.raises(ComponentError, match="do not fit 4 positions"):
        Position(length=4).check(spot(5))


# The public models ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "macs"),
    [
        (["stages.0.pattern.2.0.rounds=1"], 1_286_376_259_584),
        ([], 1_383_013_023_744),
        (["stages.0.pattern.2.0.buckets=[16, 32]"], 1_359_659_139_072),
    ],
)
def test_reformer_enwik8_is_the_public_count_at_8192(settings, macs):
    """transformers 5.23.0, ReformerModelWithLMHead, torch's FlopCounterMode, one input of 8192 characters."""
    ledger = counted("reformer-enwik8", *settings, tokens=(8192,))
    assert ledger.total("macs") == macs
    assert ledger.total("params") == 149_182_722


TOKENS, VOCABULARY = 24, 17


def ours_of(folder: Path, tokens: int) -> Architecture:
    mlp = {"kind": "mlp", "hidden": 20, "act": "relu"}
    local = {"kind": "blockwise", "block": 4, "before": 4, "heads": 3, "causal": True, "projection_bias": False}
    lsh = {"kind": "lsh", "rounds": 2, "bucket": 4, "buckets": [2, 4], "heads": 3, "causal": "approximate"}
    return placed(
        {
            "name": "reformer",
            "input": {"kind": "tokens", "vocabulary": VOCABULARY, "length": tokens},
            "embed": [{"kind": "token"}, {"kind": "position", "form": "axial", "shape": [6, 4], "widths": [5, 7]}],
            "residual": {"form": "reversible"},
            "stages": [{"dim": DIM, "depth": 4, "pattern": [[local, mlp], [lsh, mlp]]}],
            "head": {"kind": "language_model", "bias": True},
        },
        folder,
        batch=2,
    )


def theirs_of() -> nn.Module:
    config = transformers.ReformerConfig(
        vocab_size=VOCABULARY,
        hidden_size=DIM,
        feed_forward_size=20,
        num_attention_heads=3,
        attention_head_size=4,
        attn_layers=["local", "lsh"] * 2,
        axial_pos_shape=(6, 4),
        axial_pos_embds_dim=(5, 7),
        max_position_embeddings=24,
        local_attn_chunk_length=4,
        local_num_chunks_after=0,
        lsh_attn_chunk_length=4,
        num_buckets=[2, 4],
        num_hashes=2,
        is_decoder=True,
        hash_seed=3,
        layer_norm_eps=1e-5,
        tie_word_embeddings=False,
        use_cache=False,
    )
    return transformers.ReformerModelWithLMHead(config).double().eval().requires_grad_(requires_grad=False)


def copied(model: nn.Module, theirs: nn.Module) -> None:
    """Their weights, and the rotations that they draw from their seed, into ours."""
    weights, stream = theirs.state_dict(), model.streams[0]

    def put(leaf: nn.Module, *names: str, **renamed: str) -> None:
        for kind in [kind for kind, _ in leaf.named_parameters()]:
            found = [weights[f"{name}.{renamed.get(kind, kind)}"] for name in names]
            getattr(leaf, kind).copy_(torch.cat(found))

    put(stream.embed[0].lookup, "reformer.embeddings.word_embeddings")
    for axis, table in enumerate(stream.embed[1].axes):
        table.weight.copy_(weights[f"reformer.embeddings.position_embeddings.weights.{axis}"].flatten(0, 1))
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"reformer.encoder.layers.{number}"
        put(mixer.residual_norm, f"{layer}.attention.layer_norm")
        put(mlp.residual_norm, f"{layer}.feed_forward.layer_norm")
        put(mlp.inner.fc1, f"{layer}.feed_forward.dense.dense")
        put(mlp.inner.fc2, f"{layer}.feed_forward.output.dense")
        put(mixer.inner.out, f"{layer}.attention.output.dense")
        theirs_in = f"{layer}.attention.self_attention"
        if number % 2:
            put(mixer.inner.query_key, f"{theirs_in}.query_key")
            put(mixer.inner.value, f"{theirs_in}.value")
            torch.manual_seed(3)
            drawn = torch.randn(3, 4, 2, 3, dtype=torch.float64)  # heads, head width, rounds, (2 + 4)/2 columns
            mixer.inner.rotate.columns_HKr.copy_(drawn.flatten(2))
        else:
            put(mixer.inner.qkv, *(f"{theirs_in}.{name}" for name in ("query", "key", "value")))
    put(model.head.norm, "reformer.encoder.layer_norm")
    model.head.linear.weight.copy_(weights["lm_head.decoder.weight"])
    model.head.linear.bias.copy_(weights["lm_head.bias"])


def numbers(tokens: int) -> Tensor:
    return torch.randint(VOCABULARY, (2, tokens), generator=torch.Generator().manual_seed(5))


def test_the_whole_model_is_that_of_transformers(tmp_path):
    theirs, architecture = theirs_of(), ours_of(tmp_path, TOKENS)
    ledger, live = count(architecture), build(architecture, "cpu")
    model = live.model.double()
    copied(model, theirs)
    with FlopCounterMode(display=False) as counter:
        expected = theirs(numbers(TOKENS)).logits
    torch.testing.assert_close(model(numbers(TOKENS)), expected, rtol=1e-10, atol=1e-11)
    assert counter.get_total_flops() == 2 * ledger.total("macs")
    assert parameters(theirs) == ledger.total("params")


@pytest.mark.parametrize("tokens", [5, 11])
def test_padded_inputs_give_the_same_numbers(tokens, tmp_path):
    # They pad the input to whole chunks once, at the entry; ours pads in the mixers. What is read is the same.
    theirs = theirs_of()
    model = build(ours_of(tmp_path, tokens), "cpu").model.double()
    copied(model, theirs)
    torch.testing.assert_close(model(numbers(tokens)), theirs(numbers(tokens)).logits, rtol=1e-10, atol=1e-11)
