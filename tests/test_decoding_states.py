"""One token more of models whose past is a state: it neither grows with N nor costs more, and gives the same text."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers import PLAIN
from strategies import exact
from test_decoding import logits_step_by_step
from xfcost.api.analysis import analyze
from xfcost.ledger.errors import SpecError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.spec.load import load

# Every family, small, under its preset's own stem_layers, heads and order of layers.
TINY = {
    "mamba-130m": ["stages.0.depth=2", "stages.0.dim=8", "input.vocabulary=11"],
    "mamba2-130m": ["stages.0.depth=2", "stages.0.dim=8", "**.head_dim=4", "**.state=3", "input.vocabulary=11"],
    "rwkv4-169m": ["stages.0.depth=2", "stages.0.dim=8", "input.vocabulary=11"],
    "retnet-1.3b": [
        "stages.0.depth=2",
        "stages.0.dim=8",
        "**.heads=2",
        "stages.0.block.0.value_dim=12",
        "input.vocabulary=11",
    ],
    "linear-transformer-mnist": ["stages.0.depth=2", "stages.0.dim=8", "**.heads=2"],
    "common-lstm": ["stages.0.depth=2", "stages.0.dim=8"],
    "common-conv": ["stages.0.depth=2", "stages.0.dim=8", "stages.0.block.0.causal=true"],
    "bytenet-lm": ["stages.0.depth=5", "stages.0.dim=8"],
    "igpt-s": ["stages.0.depth=2", "stages.0.dim=8", "**.heads=2"],
}


@pytest.mark.parametrize("preset", TINY)
def test_a_whole_decoder_step_by_step(preset: str) -> None:
    expected, got = logits_step_by_step(load(preset, tuple(TINY[preset])), (9,))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


TWO = {
    "seq2seq-lstm": ["encoder.stages.0.dim=6", "decoder.stages.0.dim=6", "encoder.input.vocabulary=9"],
    "rnnsearch": [
        *("encoder.stages.0.dim=6", "decoder.stages.0.dim=5", "decoder.stages.0.block.0.hidden=4"),
        *("decoder.stages.0.block.0.attend.hidden=3", "decoder.stages.0.block.0.readout.hidden=5"),
    ],
    "convs2s-en-de": [
        *("encoder.stages.0.depth=1", "encoder.stages.1.depth=1", "encoder.stages.2.depth=1", "encoder.stages.2.dim=6"),
        *("decoder.stages.0.depth=2", "decoder.stages.0.dim=6", "decoder.stages.1.depth=1", "**.head_dim=4"),
        *("decoder.stages.1.dim=4", "decoder.stages.2.depth=1", "decoder.stages.2.dim=5"),
    ],
    "bytenet-translation": ["encoder.stages.0.dim=6", "decoder.stages.0.dim=6"],
}


@pytest.mark.parametrize("preset", TWO)
def test_a_whole_encoder_decoder_step_by_step(preset: str) -> None:
    settings = (*TWO[preset], "input.vocabulary=13")
    sizes = (7, 7) if preset == "bytenet-translation" else (5, 7)
    expected, got = logits_step_by_step(load(preset, settings), sizes)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


# One preset of every family, at its size.
FULL = (
    *("mamba-130m", "mamba2-130m", "rwkv4-169m", "retnet-1.3b", "retnet-1.3b-recurrent", "linear-transformer-mnist"),
    *("common-lstm", "bytenet-lm", "igpt-s", "seq2seq-lstm", "rnnsearch", "convs2s-en-de", "bytenet-translation"),
    "show-attend-tell",
)


@pytest.mark.parametrize("preset", FULL)
def test_a_decoding_preset_is_counted_as_it_is_traced(preset: str) -> None:
    ledger = analyze(preset, mode="decode", batch=3)
    exact(ledger)
    assert ledger.total("params") == analyze(preset, trace=False).total("params")


STATES = {
    "mamba-130m": (),
    "mamba2-130m": (),
    "rwkv4-169m": (),
    "retnet-1.3b": (),
    "common-lstm": (),
    "linear-transformer-mnist": (),
    "common-performer": ("stages.0.block.0.causal=true",),
    "common-conv": ("stages.0.block.0.causal=true",),
    "bytenet-lm": (),
}


def decoded(preset: str, tokens: str | int, settings: tuple[str, ...] = ()) -> Ledger:
    return analyze(preset, N=tokens, mode="decode", trace=False, settings=settings, **PLAIN)  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", STATES)
def test_a_state_neither_grows_nor_costs_more_with_n(preset: str) -> None:
    few, many = (decoded(preset, tokens, STATES[preset]) for tokens in (100, 400))
    assert few.cache == many.cache
    assert few.cache is not None
    assert few.cache.bytes == few.cache.state_bytes > 0
    assert few.cache.bytes_per_token == 0
    for quantity in ("macs", "flops", "moved", "comparisons"):
        assert few.total(quantity) == many.total(quantity)
    assert few.step == many.step


def test_the_state_of_mamba_by_hand() -> None:
    """24 layers of E = 1536 channels: 16 numbers of state and 3 inputs of the convolution each, 4 bytes."""
    ledger = decoded("mamba-130m", 2048)
    assert ledger.cache is not None
    assert ledger.cache.bytes == 24 * 1536 * (16 + 3) * 4


def test_the_state_of_mamba_2_by_hand() -> None:
    """24 layers of E = 1536, S = 128: S·E numbers, and 3 inputs of the E + 2·S channels of the convolution."""
    ledger = decoded("mamba2-130m", 2048)
    assert ledger.cache is not None
    assert ledger.cache.bytes == 24 * (128 * 1536 + 3 * (1536 + 256)) * 4


def test_the_state_of_rwkv_by_hand() -> None:
    """12 layers of d = 768: three numbers per channel, and the token before, of time and of channel mixing."""
    ledger = decoded("rwkv4-169m", 1024)
    assert ledger.cache is not None
    assert ledger.cache.bytes == 12 * 768 * (3 + 1 + 1) * 4


def test_the_state_of_retnet_by_hand() -> None:
    """24 layers of 8 heads (as printed: d = 2048, v = 4096): d·v/h numbers each."""
    spec = load("retnet-1.3b").spec.stages
    component = spec[0].block[0]  # type: ignore[index]
    ledger = decoded("retnet-1.3b", 1024)
    assert ledger.cache is not None
    values = component.values(spec[0].dim)  # type: ignore[index]
    assert ledger.cache.bytes == spec[0].depth * spec[0].dim * values // component.heads * 4  # type: ignore[index, operator]


def test_all_forms_of_retention_decode_alike() -> None:
    ledgers = [decoded(f"retnet-1.3b{form}", 1000) for form in ("", "-chunkwise", "-recurrent")]
    costs = {(one.total("macs"), one.total("flops"), one.cache, one.step) for one in ledgers}
    assert len(costs) == 1


def test_a_step_of_rnnsearch_by_hand() -> None:
    """n = 1000, m = 620, n' = 1000, l = 500, M = 30 source tokens of 2000; the keys are kept, and the tokens."""
    ledger = decoded("rnnsearch", "30,50")
    rows = {row.path: row for row in ledger.rows}
    step = "decoder.stages.0.block.0."
    assert rows[step + "query"].macs == 1000 * 1000
    assert rows[step + "energies"].macs == 30 * 1000
    assert rows[step + "weighted_sum"].macs == 30 * 2000
    assert rows[step + "recurrence"].macs == 1000 * 3000
    assert rows[step + "keys"].macs == rows[step + "start_linear"].macs == 0
    assert rows[step + "keys"].params == 2000 * 1000
    assert rows[step + "cache"].cached == 30 * (1000 + 2000)
    assert rows[step + "state"].cached == 1000
    assert ledger.cache is not None
    assert ledger.cache.bytes_per_token == 0


def test_seq2seq_needs_only_the_last_state_of_its_encoder() -> None:
    """4 layers of h and c, 1000 each, whatever was read."""
    short, long = (decoded("seq2seq-lstm", size) for size in ("5,5", "500,50"))
    assert short.cache == long.cache
    assert short.cache is not None
    assert short.cache.bytes == 4 * 2 * 1000 * 4


def total(rows: tuple[Operation, ...], quantity: str) -> int:
    return sum(getattr(row, quantity) * row.times for row in rows)


@pytest.mark.parametrize("preset", ["mamba-130m", "rnnsearch"])
def test_steps_of_a_text_add_up(preset: str) -> None:
    """The prefill, and every step by itself, are what generating costs."""
    sizes: Any = "7,10" if preset == "rnnsearch" else 10
    ledger = analyze(preset, N=sizes, mode="generate", new_tokens=40, trace=False)
    generation = ledger.generation
    assert generation is not None
    assert generation.decode is not None
    steps = [decoded(preset, f"7,{tokens}" if preset == "rnnsearch" else tokens) for tokens in range(11, 50)]
    assert generation.decode.macs == sum(total(step.rows, "macs") for step in steps)
    assert generation.decode.flops == sum(total(step.rows, "flops") for step in steps)


@pytest.mark.parametrize("component", ["lstm, bidirectional: true", "kernel, heads: 2", "conv, size: 3"])
def test_what_reads_later_tokens_has_no_step(component: str, tmp_path: Any) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(
        "name: one\ninput: {kind: tokens, vocabulary: 7, length: 5}\nembed: [{kind: token}]\n"
        f"stages: [{{dim: 8, depth: 1, block: [{{kind: {component}}}]}}]\nhead: {{kind: language_model}}\n",
        encoding="utf-8",
    )
    with pytest.raises(SpecError, match="reads later tokens"):
        analyze(str(file), mode="decode", trace=False)


def test_what_has_filters_as_long_as_the_text_has_no_step() -> None:
    with pytest.raises(SpecError, match="as long as the text"):
        decoded("hyena-153m", 100)
    generation = analyze("hyena-153m", N=100, mode="generate", new_tokens=3, trace=False).generation
    assert generation is not None
    assert generation.decode is None
    assert generation.refused is not None
