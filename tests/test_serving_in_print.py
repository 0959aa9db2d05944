"""Serving figures in print: none that was measured beats the lower bound, and KV bytes per token are exact."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(TOOLS))
    try:
        import serving
    finally:
        sys.path.remove(str(TOOLS))
    return serving


@pytest.fixture(scope="module")
def served(tables):
    return tables.served()


def test_no_measured_figure_beats_the_bound(served):
    measured = [one for one in served if one.line["what"] == "measured"]
    assert len(measured) == 99
    for one in measured:
        assert 0.09 < one.share < 0.81, (one.line["id"], one.share)


def test_an_impossible_figure_is_seen(served):
    trap = next(one for one in served if one.line["what"] == "impossible")
    assert trap.line["id"] == "trap-70b-h100"
    assert trap.share > 3
    assert trap.on.memory.fits is False
    # 16-bit weights of 69 billion parameters (all but the embedding), at 3.35 TB/s
    assert trap.bound == pytest.approx(3350 / (2 * 68.7), rel=0.01)


def test_bounds_by_others_agree_with_ours(served):
    """Austin et al., chapter 7, round the parameters and the bandwidth."""
    predicted = [one for one in served if one.line["what"] == "prediction"]
    assert len(predicted) == 7
    for one in predicted:
        assert one.share == pytest.approx(1, rel=0.012), one.line["id"]


@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [("Llama-2-13B", 819_200), ("Llama-3-70B", 327_680), ("Llama-2-7B", 524_288), ("Llama-3.1-8B", 131_072)],
)
def test_the_cache_per_token_is_exact(served, model, bytes_per_token):
    """In 16 bits: 2 · layers · KV heads · head width · 2 bytes; the first two are in print."""
    assert {one.cache_bytes_per_token for one in served if one.line["model"] == model} == {bytes_per_token}


def test_every_published_figure_is_used_or_left_out_with_a_reason(tables, served):
    left = [name for names in tables.left_out().values() for name in names]
    names = [one.line["id"] for one in served] + left
    assert len(names) == len(set(names)) == 171
    assert all(line["source"] for line in (one.line for one in served))
