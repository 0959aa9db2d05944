"""Numbers that must come out, each with its arithmetic; what lectures say of processing sequences."""

import tracemalloc
from typing import Any

import pytest

from specs import architecture_of, counted
from strategies import both_accounts, exact
from xfcost.api.analysis import analyze, compare
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation

MIB, GIB = 2**20, 2**30


def both(name: str, *settings: str, **run: Any) -> Ledger:
    """Counted and traced, asserted to agree exactly."""
    return exact(both_accounts(architecture_of(name, *settings, **run)))


def the(ledger: Ledger, path: str) -> Operation:
    return next(row for row in ledger.rows if row.path == path)


def per_head(row: Operation) -> int:
    return row.attention_entries // row.heads


GRID_ALONE = {"tokens": (784,), "extra_tokens": False}


def test_score_dot_products_per_head_per_block_at_784_tokens():
    full = the(counted("vit", **GRID_ALONE), "stages.0.block.0.scores")
    window = the(counted("swin", **GRID_ALONE), "stages.0.pattern.0.0.scores")
    # 784² = 614,656; a 28×28 grid has 4×4 windows of 7² = 49 tokens: 16·49² = 38,416
    assert per_head(full) == full.pairs == 614_656
    assert per_head(window) == window.pairs == 38_416
    # 784² / (784·49) = 784/49
    assert per_head(full) / per_head(window) == 16
    # one dot product is d_k MACs: ViT-S has 6 heads of 64, Swin-T's first stage 3 of 32
    assert full.macs == 614_656 * 6 * 64
    assert window.macs == 38_416 * 3 * 32


def test_a_shifted_window_computes_as_much_and_keeps_fewer_pairs():
    row = the(counted("swin", **GRID_ALONE), "stages.0.pattern.1.0.scores")
    assert per_head(row) == 38_416
    # a side of 28 shifted by 3 falls into runs 3, 7, 7, 7, 4: 9 + 3·49 + 16 = 172; 172² = 29,584
    assert row.pairs == 29_584


def test_pixels_as_tokens_are_told_and_never_allocated():
    tracemalloc.start()
    ledger = counted("pixels-128")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 128·128 = 16,384 tokens; 16,384² · 4 bytes = 1 GiB per matrix; 48 · 16 · 1 GiB = 768 GiB
    assert ledger.metadata.grid_tokens == 16_384
    assert ledger.metadata.extra_tokens == 0
    assert ledger.attention_memory()["per_head"] == GIB
    assert ledger.attention_memory()["all_layers"] == 824_633_720_832 == 768 * GIB
    # its 48 blocks are one row per operation: no more work than one block is
    assert peak < 10 * MIB
    assert len(ledger.rows) == len(counted("pixels-128", "stages.0.depth=1").rows) < 25


def test_full_attention_in_swins_first_stage_and_windows_in_it():
    windows = the(counted("swin-t"), "stages.0.pattern.0.0.scores")
    full = counted("swin-t", "stages.0.pattern=[[{kind: full, heads: 3}, {kind: mlp}]]")
    # 224/4 = 56 tokens a side: (56²)² = 56⁴ = 9,834,496; 8×8 windows of 49²: 64·2401 = 153,664
    assert per_head(the(full, "stages.0.pattern.0.0.scores")) == 9_834_496
    assert per_head(windows) == 153_664
    # what is not in stage 1 stays as it was
    assert the(full, "stages.1.pattern.0.0.scores") == the(counted("swin-t"), "stages.1.pattern.0.0.scores")


def test_attention_memory_of_vit_b16_eager_and_fused():
    # 12 layers · 12 heads · 197² = 5,588,496 entries, ·4 bytes; fused 12 · 12 · 197 = 28,368
    assert counted("vit-b16").attention_memory()["all_layers"] == 4 * 5_588_496
    assert counted("vit-b16", attention="fused").attention_memory()["all_layers"] == 4 * 28_368
    # the dtype halves bytes, the batch doubles them, and neither touches one matrix's entries
    half = counted("vit-b16", dtype="float16", batch=2).attention_memory()
    assert half["all_layers"] == 2 * 2 * 5_588_496
    assert half["per_head"] == 2 * 197**2


# A spec that nobody foresaw composes ──────────────────────────────────────────────────────────────────────────────────


HYBRID = """
    name: Three windows, then one global block
    paper: nobody's
    input: {kind: image, size: [224, 320]}
    embed: [{kind: patch, size: 16}]
    stages:
      - dim: 192
        blocks:
          - repeat: 3
            blocks:
              - {repeat: 3, blocks: [[{kind: window, size: 7, heads: 6}, {kind: mlp}]]}
              - [{kind: full, heads: 6}, {kind: mlp}]
    head: {kind: classifier}
"""


def test_three_window_blocks_then_one_global_block(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(HYBRID, encoding="utf-8")
    ledger = both(str(file))
    local, world = "stages.0.blocks.0.blocks.0.blocks.0.0.scores", "stages.0.blocks.0.blocks.1.0.scores"
    assert (the(ledger, local).times, the(ledger, world).times) == (9, 3)
    # 14×20 tokens: full 280² = 78,400; windows of 7 pad 20 to 21: 2·3 windows of 49²
    assert per_head(the(ledger, world)) == 280**2
    assert per_head(the(ledger, local)) == 6 * 49**2
    assert the(ledger, local).mixing == "local"
    assert the(ledger, world).mixing == "global"


def test_a_window_that_does_not_divide_the_grid_is_padded_and_told():
    ledger = both("swin-t", "input.size=256")
    # 64×64 tokens pad to 70×70: 10×10 windows of 49²
    assert per_head(the(ledger, "stages.0.pattern.0.0.scores")) == 100 * 49**2
    # all 4900 tokens are projected, d=96 to 3·96
    assert the(ledger, "stages.0.pattern.0.0.qkv").macs == 4900 * 96 * 288
    # but only the 4096 of the grid go through the MLP
    assert the(ledger, "stages.0.pattern.0.1.fc1").macs == 4096 * 96 * 384


@pytest.mark.parametrize("sides", ["[4, 4]", "[28, 36]", "[52, 52]", "[20, 332]"])
def test_swin_on_awkward_images(sides):
    """1×1, 7×9, 13×13 and 5×83 tokens: clipped, padded, odd when merged, and the same in both accounts."""
    both("swin-t", f"input.size={sides}")
    both("swin-t", f"input.size={sides}", attention="fused", batch=2)


# Public models at other lengths than their presets', as measured on transformers 5.23 by torch's counter ──────────────


# preset, N, parameters, MACs of matrix products (FlopCounterMode/2 on meta, eager attention; the T5 head tied)
MEASURED = [
    ("bert-base", "128", 109_482_240, 11_174_215_680),
    ("bert-large", "128", 335_141_888, 39_461_060_608),
    ("t5-small", "512,114", 60_506_624, 17_708_900_352),
    ("t5-base", "512,114", 222_903_552, 70_990_700_544),
    ("t5-large", "512,114", 737_668_096, 240_696_360_960),
    ("t5-11b", "512,114", 11_307_321_344, 3_794_884_362_240),
    ("t5-v1.1-base-tied", "512,114", 222_903_552, 70_990_700_544),
    ("t5-v1.1-large-tied", "512,114", 750_251_008, 244_634_812_416),
    ("t5-v1.1-xxl-tied", "512,114", 11_003_736_064, 3_483_394_375_680),
    ("transformer-base", "25", 63_045_632, 1_586_124_800),
    ("transformer-base", "25,25", 63_045_632, 1_586_124_800),
    ("rwkv4-430m", "1", 430_397_440, 378_639_360),
    ("rwkv4-1b5", "1", 1_515_106_304, 1_411_590_144),
    ("rwkv4-7b", "1", 7_392_649_216, 7_185_256_448),
    ("rwkv4-14b", "1", 14_148_597_760, 13_888_906_240),
]


@pytest.mark.parametrize(("preset", "length", "params", "macs"), MEASURED)
def test_public_models_at_other_lengths(preset: str, length: str, params: int, macs: int) -> None:
    ledger = analyze(preset, N=length, trace=False)
    assert (ledger.total("params"), ledger.total("macs")) == (params, macs)


# The lectures' claims about sequences ─────────────────────────────────────────────────────────────────────────────────

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


def test_heads_cost_nothing() -> None:
    """Multi-head attention costs what one head does: MACs, parameters; its matrices are as many as heads."""
    one, many = (analyze("gpt2", trace=False, settings=[f"**.heads={heads}"]) for heads in (1, 12))
    assert (one.total("macs"), one.total("params")) == (many.total("macs"), many.total("params"))
    assert 12 * (one.total("attention_entries") or 0) == many.total("attention_entries")


def test_a_gated_feed_forward_of_eight_thirds_costs_what_the_plain_one_of_four_does() -> None:
    """3·d·(8d/3) = 2·d·4d (Shazeer 2020, §2)."""
    figures = compare("ffn-gelu", "ffn-swiglu", "ffn-geglu", N=100).figures.values()
    assert len({(one["params"], one["macs"]) for one in figures}) == 1
