"""The lectures' claims about sequences: three ways of processing them, matrix multiplies, masks."""

from __future__ import annotations

import pytest

from xfcost.api.analysis import analyze, compare
from xfcost.report.table import document, mask_texts, matrix_multiply_texts

THREE = ("common-lstm", "common-conv", "common-full")


def test_three_ways_of_processing_sequences() -> None:
    """12 layers over N tokens: a recurrence takes 12·N steps, one token at a time; the others 12, of all N at once."""
    comparison = compare(*THREE, N=500)
    figures = [comparison.figures[name] for name in comparison.names]
    assert [one["sequential_steps"] for one in figures] == [12 * 500, 12, 12]
    assert [one["parallel_width"] for one in figures] == [1, 500, 500]
    # a layer's mixing: 500 · 768 · 4·768 of the state's map; 3 taps of 768²; 2 · 500² · 768
    assert [one["mixing_macs"] for one in figures] == [
        12 * 500 * 768 * 4 * 768,
        12 * 500 * 3 * 768**2,
        12 * 2 * 500**2 * 768,
    ]
    growth = [comparison.growth[name] for name in comparison.names]
    assert [one["sequential_steps"] for one in growth] == [1, 0, 0]
    assert [one["mixing_macs"] for one in growth] == [1, 1, 2]
    assert [one["attention_bytes"] for one in figures] == [0, 0, 12 * 12 * 500**2 * 4]


def test_systems_of_which_none_waits_are_not_told_of_steps() -> None:
    from xfcost.report.compare import paper_table

    with_recurrence, without = compare(*THREE, N=64), compare("vit", "swin", N=784)
    said = [{row[0].strip() for row in paper_table(one).rows} for one in (with_recurrence, without)]
    assert {"sequential steps of all mixers", "tokens at once"} <= said[0]
    assert not {"sequential steps of all mixers", "tokens at once"} & said[1]


@pytest.mark.parametrize("attention", ["eager", "fused"])
def test_self_attention_is_four_matrix_multiplies_and_a_block_six(attention: str) -> None:
    ledger = analyze("vit", attention=attention, trace=False)  # type: ignore[arg-type]
    (text,) = matrix_multiply_texts(ledger)
    assert text.plain.startswith("matrix multiplies of a block: 6 = 4 (Q, K, V projections · ")
    assert text.plain.endswith(" + 2 (MLP up-projection · MLP down-projection)")
    assert text.plain in " ".join(document(ledger).text("table").split())


def test_one_sub_layer_is_no_sum() -> None:
    (text,) = matrix_multiply_texts(analyze("rwkv4-169m", trace=False, settings=["stages.0.block=[{kind: rwkv_time}]"]))
    assert text.plain.startswith("matrix multiplies of a block: 4 (")


def test_heads_cost_nothing() -> None:
    """Multi-head attention costs what one head does: MACs, parameters; its matrices are as many as heads."""
    one, many = (analyze("gpt2", trace=False, settings=[f"**.heads={heads}"]) for heads in (1, 12))
    assert (one.total("macs"), one.total("params")) == (many.total("macs"), many.total("params"))
    assert 12 * (one.total("attention_entries") or 0) == many.total("attention_entries")


def test_flash_attention_leaves_compute_quadratic_and_makes_memory_linear() -> None:
    comparison = compare("gpt2", "gpt2", N=512, attention="fused")
    growth = comparison.growth[comparison.names[0]]
    assert growth["mixing_macs"] == 2
    assert growth["attention_bytes"] == 1


def test_masks_are_told_with_what_they_leave() -> None:
    """N = 8: 36 of 64 scores per head of a causal layer."""
    (text,) = mask_texts(analyze("gpt2", N=8, trace=False))
    assert f"{12 * 12 * 36:,}".replace(",", "") in text.plain.replace(",", "")
    assert "the causal mask keeps 56.2 % of scores" in text.plain
    assert not list(mask_texts(analyze("vit", trace=False)))


def test_a_gated_feed_forward_of_eight_thirds_costs_what_the_plain_one_of_four_does() -> None:
    """3·d·(8d/3) = 2·d·4d (Shazeer 2020, §2)."""
    figures = compare("ffn-gelu", "ffn-swiglu", "ffn-geglu", N=100).figures.values()
    assert len({(one["params"], one["macs"]) for one in figures}) == 1
