"""Sliding windows: what is refused and noted, and transformers' Longformer beside it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import places
import transformers_models as hf
from refused import refusals
from specs import architecture_of, counted
from xfcost.counting.forward import count
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.sliding import Sliding
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel

at = partial(places.at, dim=8)


# What it refuses and tells ───────────────────────────────────────────────────────────────────────────────────────────


test_what_can_not_stand_is_refused = refusals(
    [
        (Sliding(heads=2, window=5), "window", "5 is odd, and half of it is on each side; try 4 or 6"),
        (Sliding(heads=2, window=4, global_tokens=11), "global_tokens", "11 are more than the 10 tokens"),
        (Sliding(heads=2, window=4, global_tokens=1, causal=True), "global_tokens", "later tokens too"),
        (Sliding(heads=3, window=4), "heads", "3 does not divide the width 8"),
    ],
    at(10),
)


def test_a_decoder_has_no_global_tokens() -> None:
    component = Sliding(heads=2, window=4, global_tokens=1)
    component.with_stream_defaults(decoder=False).check(at(10))
    with pytest.raises(ComponentError, match="this is causal; leave them out, or write causal: false"):
        component.with_stream_defaults(decoder=True).check(at(10))


def test_notes() -> None:
    plain = Sliding(heads=2, window=4)
    assert list(plain.notes(at(12))) == []
    (padded,) = plain.notes(at(10))
    assert padded.startswith("10 tokens padded to 12 for windows of 4: 2 padding tokens are projected")
    (dilated,) = Sliding(heads=2, window=4, dilation=3).notes(at(10))
    assert dilated.startswith("10 tokens padded to 12 for windows of 4, 3 apart")
    (unused,) = Sliding(heads=2, window=4, global_projections=True).notes(at(12))
    assert unused.startswith("the three projections of global tokens have parameters and are unused")
    (fused,) = plain.notes(at(12, fused=True))
    assert "no fused form" in fused


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────


def longformer(folder: Path, length: int, global_tokens: int, **run: Any) -> tuple[Architecture, BuiltModel]:
    mixer = {"kind": "sliding", "heads": 2, "window": 8, "global_tokens": global_tokens, "global_projections": True}
    spec = {
        "input": {"kind": "tokens", "vocabulary": 29, "length": length},
        "residual": {"place": "post"},
        "embed": [
            {"kind": "token"},
            {"kind": "position", "length": 70},
            {"kind": "token_type", "types": 1},
            {"kind": "norm"},
        ],
        "stages": [{"dim": 12, "depth": 2, "block": [mixer, {"kind": "mlp"}]}],
        "head": {"kind": "pooler"},
    }
    return hf.ours_of(spec, folder, **run)


def their_longformer() -> nn.Module:
    return hf.theirs_of(
        "LongformerModel",
        vocab_size=29,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=70,
        type_vocab_size=1,
        attention_window=8,
        layer_norm_eps=1e-5,
        pad_token_id=1,
    )


def copied(theirs: nn.Module, ours: Any) -> None:
    """Their weights into ours, every one of them; their positions begin with row 2."""
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    hf.put_embeddings(stream.embed, weights, first=2)
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"encoder.layer.{number}."
        weights.put(mixer.inner.global_q, f"{layer}attention.self.query_global")
        weights.put_joined(
            mixer.inner.global_kv, *(f"{layer}attention.self.{name}_global" for name in ("key", "value"))
        )
        hf.put_layer(mixer, mlp, weights, layer, mixer.inner)
    weights.put(ours.head.linear, "pooler.dense")
    assert not weights


@pytest.mark.parametrize("global_tokens", [0, 1, 3])
@pytest.mark.parametrize("length", [8, 64, 50])
def test_longformer_with_their_weights(length: int, global_tokens: int, tmp_path: Path) -> None:
    architecture, live = longformer(tmp_path, length, global_tokens, batch=2, dtype="float64")
    theirs = hf.scrambled(their_longformer().double())
    copied(theirs, live.model)
    numbers = live.inputs[0].clamp_min(2)  # 1 is padding there, and masked
    attends = torch.zeros_like(numbers)
    attends[:, :global_tokens] = 1
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            answer = theirs(numbers, global_attention_mask=attends).pooler_output
        torch.testing.assert_close(live.model(numbers), answer, rtol=1e-6, atol=1e-6)
    totals = count(architecture).totals()
    assert totals["params"] == sum(parameter.numel() for parameter in theirs.parameters())
    # theirs pads before its first layer, so that the MLPs, of 2·4·12·12 MACs a token, work on padding too: in 2 layers
    # and 2 samples
    padding = -length % 8
    assert 2 * (totals["macs"] + 2 * 2 * padding * 8 * 12 * 12) == counter.get_total_flops()


# transformers 5.23.0, LongformerModel of base size, 4096 tokens: FlopCounterMode over 2 (eager, on the CPU)
BASE_4096 = {0: 413_122_756_608, 1: 471_262_887_936, 8: 472_369_397_760}


LED_SIZES = {"layers": 6, "attention_heads": 12, "ffn_dim": 3072}


@pytest.mark.parametrize(("global_tokens", "macs"), BASE_4096.items())
def test_the_released_encoder(global_tokens: int, macs: int) -> None:
    mixer = "stages.0.block.0"
    settings = (f"{mixer}.global_tokens={global_tokens}", f"{mixer}.global_projections=true")
    ledger = counted("longformer-base-4096", *settings)
    assert (ledger.total("params"), ledger.total("macs")) == (148_659_456, macs)


def test_led_has_their_parameters() -> None:
    sizes = {f"{part}_{what}": size for part in ("encoder", "decoder") for what, size in LED_SIZES.items()}
    with torch.device("meta"):
        theirs = hf.transformers.LEDModel(
            hf.transformers.LEDConfig(vocab_size=50265, d_model=768, attention_window=1024, **sizes)
        )
        parameters = sum(parameter.numel() for parameter in theirs.parameters())
    assert counted("led-base-16384").total("params") == parameters


@pytest.mark.parametrize(("preset", "layers", "printed"), [("small", 12, 41e6), ("large", 30, 102e6)])
def test_character_models_lack_their_relative_positions_alone(preset: str, layers: int, printed: float) -> None:
    ledger = counted(f"longformer-char-{preset}")
    # a d×d map of the encodings per layer, and two vectors u and v for all layers
    relative = layers * 512 * 512 + 2 * 512
    assert abs((ledger.total("params") or 0) + relative - printed) < 0.5e6


def test_the_small_character_model_s_windows_have_the_paper_s_mean() -> None:
    # Table 4: windows that grow from 32 to 512 beside a fixed one of 230, "the average"
    blocks = architecture_of("longformer-char-small").streams[0].stages[0].blocks
    windows = [part.component.window for block in blocks for part in block.parts[:1] for _ in range(block.times)]
    assert (windows[0], windows[-1], len(windows)) == (32, 512, 12)
    assert windows == sorted(windows)
    assert sum(windows) / 12 == pytest.approx(230, abs=1)
