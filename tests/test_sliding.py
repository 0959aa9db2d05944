"""Sliding windows: counts worked by hand, what is refused and noted, and transformers' Longformer beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bert import put_embeddings, put_joined, put_layer
from test_against_transformers import ours_of, put, scrambled, theirs_of, transformers, weights_of
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.sliding import Sliding
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import BuiltModel


def at(tokens: int, dim: int = 8, **more: Any) -> Place:
    return Place(grid=Grid((tokens,)), dim=dim, out_dim=dim, **more)


def rows(component: Sliding, spot: Place) -> dict[str, Any]:
    return {row.path: row for row in component.operations(spot)}


# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_reads_whom() -> None:
    row = Grid((10,))
    assert list(Sliding(heads=1, window=4).reads(row, 5)) == [3, 4, 5, 6, 7]
    assert list(Sliding(heads=1, window=4, causal=True).reads(row, 5)) == [2, 3, 4, 5]
    assert list(Sliding(heads=1, window=4, dilation=2).reads(row, 5)) == [1, 3, 5, 7, 9]
    assert list(Sliding(heads=1, window=4, dilation=3).reads(row, 5)) == [2, 5, 8]  # 5 ± 6 is no token
    assert list(Sliding(heads=1, window=4, global_tokens=2).reads(row, 6)) == [0, 1, 4, 5, 6, 7, 8]
    assert list(Sliding(heads=1, window=4, global_tokens=2).reads(row, 1)) == list(range(10))


def test_pairs_by_hand() -> None:
    # 10 tokens, w = 4: 5 keys each, the two tokens at each end lack 2 and 1: 50 - 6.
    assert Sliding(heads=1, window=4).pairs(Grid((10,))) == 44
    # causal, 4 keys each, the first three lack 3, 2 and 1: 40 - 6
    assert Sliding(heads=1, window=4, causal=True).pairs(Grid((10,))) == 34
    # w longer than the row: everybody reads everybody
    assert Sliding(heads=1, window=32).pairs(Grid((10,))) == 100
    # δ = 2: two rows of 5 tokens, 25 - 6 each
    assert Sliding(heads=1, window=4, dilation=2).pairs(Grid((10,))) == 38
    # one global token reads 10 and is read by 9; among the other 9: 45 - 6
    assert Sliding(heads=1, window=4, global_tokens=1).pairs(Grid((10,))) == 10 + 9 + 39


def test_rows_by_hand() -> None:
    # N = 10 is padded to 12 = 3 windows of 4; blocks of s = 2: 6 of them, 5 overlapping chunks of 4 × 4.
    found = rows(Sliding(heads=2, window=4, global_tokens=1), at(10))
    assert found["pad"].moved == 12 * 8
    assert found["qkv"].macs == 12 * 8 * 24
    assert found["scores"].macs == 5 * 4 * 4 * 8
    # 2 heads × 12 queries × 6 keys; laid out twice: in rows, then block by block
    assert (found["scores"].attention_entries, found["scores"].moved) == (144, 288)
    assert found["weighted_sum"].macs == 12 * 6 * 8
    assert found["softmax"].flops == 5 * 2 * 12 * (6 + 1)
    assert found["join"].moved == 2 * 12 * 7
    # K and V of all for the one global row, its Q, and its row and column of products
    assert (found["global_kv"].macs, found["global_q"].macs) == (12 * 8 * 16, 64)
    products = ("global_key_scores", "global_key_weighted_sum", "global_scores", "global_weighted_sum")
    assert [found[name].macs for name in products] == [96] * 4


def test_causal_rows_by_hand() -> None:
    # 10 → 12 tokens, 6 blocks of 2 queries by 6 keys; keys padded by two blocks before the first
    found = rows(Sliding(heads=2, window=4, causal=True), at(10))
    assert found["scores"].macs == found["weighted_sum"].macs == 12 * 6 * 8
    assert found["scores"].moved == found["weighted_sum"].moved == (12 + 4) * 8
    assert "join" not in found


def test_dilation_costs_nothing_but_padding() -> None:
    # 16 tokens are whole windows in both residue classes; a chunk less per class is the only difference
    plain, dilated = (rows(Sliding(heads=2, window=4, dilation=step), at(16)) for step in (1, 2))
    assert plain["scores"].macs - dilated["scores"].macs == 4 * 4 * 8
    assert plain["weighted_sum"].macs == dilated["weighted_sum"].macs


def test_reads_and_kind_of_every_row() -> None:
    found = rows(Sliding(heads=2, window=4, global_tokens=1), at(16))
    # the band alone: two tokens on both sides and itself; with the global one beside it, the softmax reads 4 + 1 + 1
    assert (found["scores"].mixing, found["scores"].reads, found["scores"].reads_tokens) == ("local", "w+1", 5)
    assert (found["softmax"].reads, found["softmax"].reads_tokens) == ("w+g+1", 6)
    assert (found["global_key_scores"].mixing, found["global_key_scores"].reads_tokens) == ("local", 1)
    assert (found["global_scores"].mixing, found["global_scores"].reads) == ("global", "N")


# What it refuses and tells ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("component", "field", "message"),
    [
        (Sliding(heads=2, window=5), "window", "5 is odd, and half of it is on each side; try 4 or 6"),
        (Sliding(heads=2, window=4, global_tokens=11), "global_tokens", "11 are more than the 10 tokens"),
        (Sliding(heads=2, window=4, global_tokens=1, causal=True), "global_tokens", "later tokens too"),
        (Sliding(heads=3, window=4), "heads", "3 does not divide the width 8"),
    ],
)
def test_what_can_not_stand_is_refused(component: Sliding, field: str, message: str) -> None:
    with pytest.raises(ComponentError, match=message) as refused:
        component.check(at(10))
    assert refused.value.field == field


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
    return ours_of(spec, folder, **run)


def their_longformer() -> nn.Module:
    return theirs_of(
        transformers.LongformerConfig,
        transformers.LongformerModel,
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
    weights, stream = weights_of(theirs), ours.streams[0]
    put_embeddings(stream.embed, weights, first=2)
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"encoder.layer.{number}."
        put(mixer.inner.global_q, weights, f"{layer}attention.self.query_global")
        put_joined(
            mixer.inner.global_kv, weights, *(f"{layer}attention.self.{name}_global" for name in ("key", "value"))
        )
        put_layer(mixer, mlp, weights, layer, mixer.inner)
    put(ours.head.linear, weights, "pooler.dense")
    assert not weights


@pytest.mark.parametrize("global_tokens", [0, 1, 3])
@pytest.mark.parametrize("length", [8, 64, 50])
def test_longformer_with_their_weights(length: int, global_tokens: int, tmp_path: Path) -> None:
    architecture, live = longformer(tmp_path, length, global_tokens, batch=2, dtype="float64")
    theirs = scrambled(their_longformer().double())
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
    ledger = count(place(load("longformer-base-4096", settings), Run()))
    assert (ledger.total("params"), ledger.total("macs")) == (148_659_456, macs)


def test_led_has_their_parameters() -> None:
    sizes = {f"{part}_{what}": size for part in ("encoder", "decoder") for what, size in LED_SIZES.items()}
    with torch.device("meta"):
        theirs = transformers.LEDModel(
            transformers.LEDConfig(vocab_size=50265, d_model=768, attention_window=1024, **sizes)
        )
        parameters = sum(parameter.numel() for parameter in theirs.parameters())
    assert count(place(load("led-base-16384"), Run())).total("params") == parameters


@pytest.mark.parametrize(("preset", "layers", "printed"), [("small", 12, 41e6), ("large", 30, 102e6)])
def test_character_models_lack_their_relative_positions_alone(preset: str, layers: int, printed: float) -> None:
    ledger = count(place(load(f"longformer-char-{preset}"), Run()))
    # a d×d map of the encodings per layer, and two vectors u and v for all layers
    relative = layers * 512 * 512 + 2 * 512
    assert abs((ledger.total("params") or 0) + relative - printed) < 0.5e6


def test_the_small_character_model_s_windows_have_the_paper_s_mean() -> None:
    # Table 4: windows that grow from 32 to 512 beside a fixed one of 230, "the average"
    blocks = place(load("longformer-char-small"), Run()).streams[0].stages[0].blocks
    windows = [part.component.window for block in blocks for part in block.parts[:1] for _ in range(block.times)]
    assert (windows[0], windows[-1], len(windows)) == (32, 512, 12)
    assert windows == sorted(windows)
    assert sum(windows) / 12 == pytest.approx(230, abs=1)
