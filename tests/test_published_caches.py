"""Published sizes of caches: what engines print, what is worked out by hand, and ours, to the byte."""

import pytest
import serving

import xfcost

CACHES = serving.caches()


@pytest.mark.parametrize(
    "one", CACHES, ids=lambda one: f"{one.line['preset']}-{one.line['quantity']}-{one.line['printed']}"
)
def test_a_published_cache_is_ours(one):
    """Where ours differs from an engine's, its table says by how many bytes, and why."""
    assert one.printed == one.line["printed"]
    assert one.ours - one.by_hand == int(one.line["difference"])
    assert bool(one.line["why"]) == (one.ours != one.by_hand)


def test_a_sum_of_products():
    assert serving.worked_out("4*32768*2+22*512*2") == 284_672


def test_the_differences_are_those_of_their_reasons():
    """Windows one token short: 52 layers of 16 heads of 128, 22 of one head of 256, 12 of 8 heads of 64 (32 samples).

    Convolutions of Gated DeltaNet, 48 layers of 10,240 channels, 4 samples: 4 inputs of 2 bytes, not 3 of 4.
    """
    found = {
        (one.line["preset"], one.line["quantity"]): int(one.line["difference"]) for one in CACHES if one.line["why"]
    }
    assert found == {
        ("gemma-3-27b", "keys and values"): -52 * 2 * 16 * 128 * 2,
        ("gemma-3-1b", "keys and values"): -22 * 2 * 256 * 2,
        ("gpt-oss-20b", "keys and values"): -12 * 2 * 8 * 64 * 2 * 32,
        ("qwen3.5-27b", "states"): 4 * 48 * 10_240 * (4 * 2 - 3 * 4),
    }


def test_vllm_holds_so_many_tokens_of_gpt_oss():
    """36 layers of 2048 bytes a token, windows or not: where 5.38 GiB are left, as many tokens fit as vLLM prints."""
    step = {"mode": "decode", "N": 16_000, "on": "h100-sxm", "trace": False, "cache_blocks": "16,whole"}
    whole = xfcost.analyze("gpt-oss-120b", **step).on.memory
    used = whole.weights + whole.attention + int(5.3825 * 2**30)
    found = xfcost.analyze("gpt-oss-120b", **step, memory_share=used / whole.available).on.memory
    assert found.reserved_cache == 16_000 * 36 * 2 * 8 * 64 * 2 == 16_000 * 73_728
    assert (found.largest_tokens, found.positions) == (78_384, False)
