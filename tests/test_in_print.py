"""Figures in print beside ours: serving (no measured one beats the bound, KV bytes are exact), compute of training."""

import pytest
import serving
import training

# Serving ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def served():
    return serving.served()


@pytest.mark.rest
def test_no_measured_figure_beats_the_bound(served):
    measured = [one for one in served if one.line["what"] == "measured"]
    assert len(measured) == 109
    for one in measured:
        assert 0.09 < one.share < 0.81, (one.line["id"], one.share)


@pytest.mark.rest
def test_an_impossible_figure_is_seen(served):
    trap = next(one for one in served if one.line["what"] == "impossible")
    assert trap.line["id"] == "trap-70b-h100"
    assert trap.share > 3
    assert trap.on.memory.fits is False
    # 16-bit weights of 69 billion parameters (all but the embedding), at 3.35 TB/s
    assert trap.bound == pytest.approx(3350 / (2 * 68.7), rel=0.01)


@pytest.mark.rest
def test_bounds_by_others_agree_with_ours(served):
    """Austin et al., chapter 7, round the parameters and the bandwidth."""
    predicted = [one for one in served if one.line["what"] == "prediction"]
    assert len(predicted) == 7
    for one in predicted:
        assert one.share == pytest.approx(1, rel=0.012), one.line["id"]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [("Llama-2-13B", 819_200), ("Llama-3-70B", 327_680), ("Llama-2-7B", 524_288), ("Llama-3.1-8B", 131_072)],
)
def test_the_cache_per_token_is_exact(served, model, bytes_per_token):
    """In 16 bits: 2 · layers · KV heads · head width · 2 bytes; the first two are in print."""
    assert {one.cache_bytes_per_token for one in served if one.line["model"] == model} == {bytes_per_token}


@pytest.mark.rest
def test_every_published_figure_is_used_or_left_out_with_a_reason(served):
    left = [name for names in serving.left_out().values() for name in names]
    names = [one.line["id"] for one in served] + left
    assert len(names) == len(set(names)) == 171
    assert all(line["source"] for line in (one.line for one in served))


# GPT-3's appendix by its rule, the Transformer's table by its own ────────────────────────────────────────────────────


def test_gpt_3_s_table_is_parameters_and_tokens_alone():
    found = training.computes()
    assert len(found) == 15
    for one in found:
        # printed to three digits
        assert one.by_rule == pytest.approx(one.printed_flops, rel=0.005), one.model


def test_gpt_3_s_parameters_are_ours_within_0_4_percent_and_the_count_is_above_the_rule():
    sizes = [one for one in training.computes() if one.model.startswith("GPT-3")]
    assert len(sizes) == 8
    above = [one.counted / one.printed_flops for one in sizes]
    assert all(one.params == pytest.approx(one.printed_params, rel=0.004) for one in sizes)
    # attention is a part that shrinks as the width grows beside N
    assert above == sorted(above, reverse=True)
    assert above[0] == pytest.approx(1.29, abs=0.005)
    assert above[-1] == pytest.approx(1.028, abs=0.0005)


def test_gpt_3_175b_is_counted_by_hand():
    # language.csv: 367,402,130,866,176 MACs of 2,048 tokens; 2 FLOPs, thrice, 300e9 / 2,048 times
    largest = next(one for one in training.computes() if one.model == "GPT-3 175B")
    assert largest.counted == 6 * 367_402_130_866_176 * 146_484_375


def test_the_transformer_s_training_cost_is_time_gpus_and_rate():
    base, big = training.times()
    assert base.device_flops == 8 * 9.5e12 * 12 * 3600 == 3.2832e18
    assert big.device_flops == 8 * 9.5e12 * 3.5 * 24 * 3600 == pytest.approx(2.298e19, rel=1e-3)
    for one in (base, big):
        assert one.device_flops == pytest.approx(one.printed_flops, rel=0.01)
        assert 0.2 < one.counted / one.device_flops < 0.5
    # 100,000 steps of 50,000 tokens, 25 and 25 of a sentence pair: 1,586,124,800 MACs, thrice
    assert base.counted == 6 * 1_586_124_800 * 10**8
