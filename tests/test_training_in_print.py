"""Training compute in print: GPT-3's appendix by its rule, the Transformer's table by its own, ours beside both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(TOOLS))
    try:
        import training
    finally:
        sys.path.remove(str(TOOLS))
    return training


def test_gpt_3_s_table_is_parameters_and_tokens_alone(tables):
    found = tables.computes()
    assert len(found) == 15
    for one in found:
        # printed to three digits
        assert one.by_rule == pytest.approx(one.printed_flops, rel=0.005), one.model


def test_gpt_3_s_parameters_are_ours_within_0_4_percent_and_the_count_is_above_the_rule(tables):
    sizes = [one for one in tables.computes() if one.model.startswith("GPT-3")]
    assert len(sizes) == 8
    above = [one.counted / one.printed_flops for one in sizes]
    assert all(one.params == pytest.approx(one.printed_params, rel=0.004) for one in sizes)
    # attention is a part that shrinks as the width grows beside N
    assert above == sorted(above, reverse=True)
    assert above[0] == pytest.approx(1.29, abs=0.005)
    assert above[-1] == pytest.approx(1.028, abs=0.0005)


def test_gpt_3_175b_is_counted_by_hand(tables):
    # language.csv: 367,402,130,866,176 MACs of 2,048 tokens; 2 FLOPs, thrice, 300e9 / 2,048 times
    largest = next(one for one in tables.computes() if one.model == "GPT-3 175B")
    assert largest.counted == 6 * 367_402_130_866_176 * 146_484_375


def test_the_transformer_s_training_cost_is_time_gpus_and_rate(tables):
    base, big = tables.times()
    assert base.device_flops == 8 * 9.5e12 * 12 * 3600 == 3.2832e18
    assert big.device_flops == 8 * 9.5e12 * 3.5 * 24 * 3600 == pytest.approx(2.298e19, rel=1e-3)
    for one in (base, big):
        assert one.device_flops == pytest.approx(one.printed_flops, rel=0.01)
        assert 0.2 < one.counted / one.device_flops < 0.5
    # 100,000 steps of 50,000 tokens, 25 and 25 of a sentence pair: 1,586,124,800 MACs, thrice
    assert base.counted == 6 * 1_586_124_800 * 10**8
