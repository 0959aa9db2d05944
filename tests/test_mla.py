"""Latent attention: its cache, what is refused, and its cost beside multi-head attention's."""

from __future__ import annotations

import pytest
import torch

from cases.base import Case
from contract import example, logits_step_by_step, make
from places import at
from refused import refusals
from strategies import exact
from xfcost.api.analysis import analyze
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.mla import Mla
from xfcost.spec.load import load


def test_keys_of_one_token_share_their_turned_part() -> None:
    component = Mla(heads=2, rope_dim=2, kv_rank=4)
    module, seen = make(Case(component, at(5, dim=6))), []
    module.join.register_forward_hook(lambda _, inputs, output: seen.append(inputs[1]))
    module(*example(at(5, dim=6), 1))
    queries, keys = seen
    assert keys[:, 0].equal(keys[:, 1])
    assert not queries[:, 0].allclose(queries[:, 1])
    assert keys.untyped_storage().nbytes() == 5 * 2 * 8, "one copy for all heads, in float64"


def test_a_step_reads_the_latents_themselves() -> None:
    # DeepSeek-V3 at 32,768 tokens: 128·32,768·(2·512 + 64) MACs and the maps, 128·512·(128 + 128), once: 4.58e9. Keys
    # and values of all tokens written out again would take 32,768 times the maps: 5.51e11.
    component = Mla(heads=128, head_dim=128, rope_dim=64, kv_rank=512, q_rank=1536, causal=True)
    rows = {row.path: row for row in component.decoding(at(32768, dim=7168))}
    assert rows["kv_up"].macs == 128 * 512 * 256
    core = rows["scores"].macs + rows["weighted_sum"].macs
    assert core == 128 * 32768 * (2 * 512 + 64)
    assert core + rows["kv_up"].macs == pytest.approx(4.58e9, rel=1e-3)
    assert 32768 * rows["kv_up"].macs + 128 * 32768 * (192 + 128) == pytest.approx(5.51e11, rel=1e-3)
    assert (rows["cache"].cached, rows["cache"].cache.per_token) == (32768 * 576, 576)


def test_a_model_that_reads_later_tokens_has_no_step() -> None:
    with pytest.raises(ComponentError, match="reads later tokens, so nothing can be cached"):
        list(Mla(heads=3, rope_dim=2, kv_rank=10).decoding(at(7, dim=12)))


TINY = [
    *("stages.0.blocks.1.repeat=1", "stages.0.dim=8", "**.heads=2", "**.head_dim=4", "**.rope_dim=2", "**.kv_rank=6"),
    *("**.q_rank=5", "**.hidden=12", "**.experts=8", "**.active=2", "**.groups.count=4", "input.vocabulary=13"),
]


def test_deepseek_step_by_step_is_the_whole_forward() -> None:
    expected, got = logits_step_by_step(load("deepseek-v2", tuple(TINY)), (9,))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("preset", ["deepseek-v2-lite", "deepseek-moe-16b", "mixtral-8x7b"])
def test_a_decoding_preset_is_counted_as_it_is_traced(preset: str, attention: str) -> None:
    ledger = analyze(preset, N=2048, mode="decode", attention=attention, batch=3)  # type: ignore[arg-type]
    exact(ledger)
    assert ledger.total("params") == analyze(preset, trace=False).total("params")


def test_the_cache_of_deepseek_v3_by_hand() -> None:
    """61 layers · 576 · 2 bytes = 70,272 a token; multi-head attention with 128 heads of 128 keeps 57 times as much."""
    ledger = analyze("deepseek-v3", N=4096, dtype="bfloat16", mode="decode", trace=False)
    assert ledger.cache is not None
    assert (ledger.cache.bytes_per_token, ledger.cache.bytes) == (70_272, 4096 * 70_272)
    assert pytest.approx(56.9, abs=0.1) == 2 * 128 * 128 * 2 * 61 / 70_272
    # all that a token uses is read, of the embedding one row
    assert ledger.step is not None
    assert ledger.step.weight_bytes == 2 * (37_552_282_624 - 129_280 * 7168 + 7168)


test_what_can_not_be_is_refused = refusals(
    [
        (Mla(heads=5, rope_dim=2, kv_rank=4), "heads", "5 does not divide the width 12"),
        (Mla(heads=3, rope_dim=3, kv_rank=4), "rope_dim", "3 is odd; give an even number"),
    ],
    at(7, dim=12),
)
