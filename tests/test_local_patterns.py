"""Attention in windows and blocks of a sequence, and public models beside it."""

from functools import partial

import numpy as np
import pytest
import torch

import places
import transformers_models as hf
from growth import orders_at
from specs import architecture_of, counted
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.blockwise import BlockSparse, Blockwise
from xfcost.mechanisms.full import Full
from xfcost.program.residual import component_rows
from xfcost.torch_models.program import ProgramModule

# `--kind` of one of these selects this file
KINDS = ("sliding", "block_sparse", "blockwise", "global_local")


# Sliding windows ──────────────────────────────────────────────────────────────────────────────────────────────────────

at = partial(places.at, dim=8)


def copied(theirs, ours, pooler, first=0):
    """Their weights into ours, every one of them; their positions begin with row `first`."""
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    hf.put_embeddings(stream.embed, weights, first)
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer, names = f"encoder.layer.{number}.", ("key", "value")
        if hasattr(mixer.inner, "global_q"):
            weights.put(mixer.inner.global_q, f"{layer}attention.self.query_global")
            weights.put_joined(mixer.inner.global_kv, *(f"{layer}attention.self.{name}_global" for name in names))
        hf.put_layer(mixer, mlp, weights, layer, mixer.inner)
    weights.put(ours.head.linear, pooler)
    assert not weights


# Theirs pads before its first layer, so that the MLPs work on padding too: in 2 layers and 2 samples.
PADDING = 2 * 2 * 8 * 12 * 12


@pytest.mark.parametrize("global_tokens", [0, 1, 3])
@pytest.mark.parametrize("length", [8, 64, 50])
def test_longformer_with_their_weights(length, global_tokens, tmp_path):
    mixer = {"kind": "sliding", "heads": 2, "window": 8, "global_tokens": global_tokens, "global_projections": True}
    spec = hf.text_spec(mixer, length, 70, types=1) | {"head": {"kind": "pooler"}}
    ours = hf.ours_of(spec, tmp_path, batch=2, dtype="float64")
    theirs = hf.theirs_of_text(
        "LongformerModel", num_attention_heads=2, max_position_embeddings=70, type_vocab_size=1, attention_window=8,
        pad_token_id=1,
    )  # fmt: skip
    theirs = hf.scrambled(theirs.double())
    copied(theirs, ours[1].model, "pooler.dense", first=2)
    numbers = ours[1].inputs[0].clamp_min(2)  # 1 is padding there, and masked
    attends = torch.zeros_like(numbers)
    attends[:, :global_tokens] = 1
    ours = ours[0], ours[1]._replace(inputs=(numbers,))
    pooled = lambda model, numbers: model(numbers, global_attention_mask=attends).pooler_output  # noqa: E731
    hf.alike(theirs, ours, pooled, more=-length % 8 * PADDING)


# transformers 5.23.0, LongformerModel of base size, 4096 tokens: FlopCounterMode over 2 (eager, on the CPU)
BASE_4096 = {0: 413_122_756_608, 1: 471_262_887_936, 8: 472_369_397_760}


@pytest.mark.parametrize(("global_tokens", "macs"), BASE_4096.items())
def test_the_released_encoder(global_tokens, macs):
    mixer = "stages.0.block.0"
    settings = (f"{mixer}.global_tokens={global_tokens}", f"{mixer}.global_projections=true")
    ledger = counted("longformer-base-4096", *settings)
    assert (ledger.total("params"), ledger.total("macs")) == (148_659_456, macs)


@pytest.mark.parametrize(("preset", "layers", "printed"), [("small", 12, 41e6), ("large", 30, 102e6)])
def test_character_models_lack_their_relative_positions_alone(preset, layers, printed):
    ledger = counted(f"longformer-char-{preset}")
    # a d×d map of the encodings per layer, and two vectors u and v for all layers
    relative = layers * 512 * 512 + 2 * 512
    assert abs((ledger.total("params") or 0) + relative - printed) < 0.5e6


def test_the_small_character_model_s_windows_have_the_paper_s_mean():
    # Table 4: windows that grow from 32 to 512 beside a fixed one of 230, "the average"
    blocks = architecture_of("longformer-char-small").streams[0].stages[0].blocks
    windows = [part.component.window for block in blocks for part in block.parts[:1] for _ in range(block.times)]
    assert (windows[0], windows[-1], len(windows)) == (32, 512, 12)
    assert windows == sorted(windows)
    assert sum(windows) / 12 == pytest.approx(230, abs=1)


# Block-sparse attention ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("r", [0, 1, 3, 5])
@pytest.mark.parametrize("more", [0, 1, 40])
def test_drawn_blocks_are_new_to_the_block(r, more):
    component, blocks = BlockSparse(heads=1, block=1, random_blocks=r), 6 + 2 * r + more
    for block in range(1, blocks - 1):
        drawn = component.drawn(blocks, block)
        assert len(drawn) == len(set(drawn)) == r
        assert not set(drawn) & {0, block - 1, block, block + 1, blocks - 1}
        assert set(drawn) <= set(range(blocks))


def test_all_blocks_are_drawn_about_equally_often():
    # block 5 of 16 chooses 3 of 11, 2000 times: each is chosen 2000·3/11 = 545 times, give or take 20 (one deviation)
    times = np.zeros(16, dtype=int)
    for seed in range(2000):
        times[BlockSparse(heads=1, block=1, seed=seed).drawn(16, 5)] += 1
    assert not times[[0, 4, 5, 6, 15]].any()
    chosen = times[times > 0]
    assert len(chosen) == 11
    assert abs(chosen - 2000 * 3 / 11).max() < 100


def test_the_seed_decides():
    first, again, other = (BlockSparse(heads=1, block=1, seed=seed) for seed in (1, 1, 2))
    patterns = [listed(component, Grid((40,))) for component in (first, again, other)]
    assert patterns[0] == patterns[1] != patterns[2]
    # pinned, for a pattern that another release draws otherwise would be another architecture
    assert BlockSparse(heads=1).drawn(64, 10) == [17, 45, 1]


def test_on_meta_nothing_is_drawn(monkeypatch):
    # 2²⁶ blocks, one after the other in Python, would take minutes; shapes need none of them.
    monkeypatch.delattr(BlockSparse, "drawn")
    spot = at(2**32)
    with torch.device("meta"):
        module = ProgramModule(BlockSparse(heads=2, block=64, random_blocks=3), spot)
    assert module.middle_GX.shape == (2**26 - 4, 8)
    assert module(torch.empty(1, 2**32, 8, device="meta")).shape == (1, 2**32, 8)


def test_too_few_blocks_are_full_attention():
    component = BlockSparse(heads=2, block=2, random_blocks=1, projection_bias=False)
    assert list(component_rows(component, at(14))) == list(component_rows(Full(heads=2, projection_bias=False), at(14)))
    assert orders_at(component, at(14))["scores"] == "O(N²·d)"
    assert list(component.reads(Grid((14,)), 5)) == list(range(14))
    assert orders_at(component, at(15))["scores"] == "O(N·b·r·d)"


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("length", [20, 36, 40, 51])
def test_bigbird_with_their_weights(length, attention, tmp_path, monkeypatch):
    mixer = {"kind": "block_sparse", "heads": 2, "block": 4, "random_blocks": 2, "seed": 3}
    spec = hf.text_spec(mixer, length, 64) | {"head": {"kind": "pooler"}}
    ours = hf.ours_of(spec, tmp_path, batch=2, dtype="float64", attention=attention)
    # in training, without dropout: in evaluation theirs draws nothing, and reads the first block r times more
    theirs = hf.theirs_of_text(
        "BigBirdModel", num_attention_heads=2, max_position_embeddings=64, block_size=4, num_random_blocks=2,
        hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ).train()  # fmt: skip
    theirs = hf.scrambled(theirs.double())
    copied(theirs, ours[1].model, "pooler")
    component = ours[0].streams[0].stages[0].blocks[0].parts[0].component

    def our_plan(self, *, from_seq_length, num_heads, **more):
        blocks = from_seq_length // 4
        return [np.array([component.drawn(blocks, block) for block in range(1, blocks - 1)])] * num_heads

    attentions = hf.transformers.models.big_bird.modeling_big_bird.BigBirdBlockSparseAttention
    monkeypatch.setattr(attentions, "_bigbird_block_rand_mask_with_head", our_plan)
    # 36 tokens and fewer are full attention, and not padded; theirs masks by subtracting 10000
    ours = ours[0], ours[1]._replace(inputs=(ours[1].inputs[0].clamp_min(1),))
    pooled = lambda model, numbers: model(numbers).pooler_output  # noqa: E731
    hf.alike(theirs, ours, pooled, more=-length % 4 * PADDING if length > 36 else 0)


# Blockwise local attention ────────────────────────────────────────────────────────────────────────────────────────────


def listed(component, grid):
    return [sorted(component.reads(grid, token)) for token in range(grid.total)]


def test_image_transformer_2d_by_hand():
    # 4×6 in blocks of 2×3, one row above, one column beside. Tokens are numbered in rows of 6:
    #    0  1  2 |  3  4  5
    #    6  7  8 |  9 10 11
    #   ─────────┼─────────
    #   12 13 14 | 15 16 17
    #   18 19 20 | 21 22 23
    component = Blockwise(heads=1, block=[2, 3], above=1, beside=1, causal=True)
    grid = Grid((4, 6))
    reads = listed(component, grid)
    assert reads[6] == [0, 1, 2, 6]  # nothing of the block to the right, though 3 is numbered lower
    assert reads[3] == [2, 3, 8]  # the column to the left is generated already: 8 is numbered higher
    assert reads[12] == [6, 7, 8, 9, 12]  # the row above, one column further to the right
    assert reads[22] == sorted([8, 9, 10, 11, 14, 20, 15, 16, 17, 21, 22])
    # Inside 4 blocks 6·7/2 = 21 each; the right-hand blocks read 2 on their left, 12 tokens in all; the lower ones
    # 4 above each, 12 tokens in all: 84 + 24 + 48.
    assert sum(map(len, reads)) == component.pairs(grid) == 84 + 24 + 48
    # A memory block is an area, (2 + 1)·(3 + 2·1) = 15 positions, and not the survey's sum of lengths, 6 + 2·(1 + 1).
    scores = places.rows_of(component, places.on(grid))["scores"]
    assert (scores.reads_tokens, scores.attention_entries) == (15, 4 * 6 * 15)
    turns = [component.blocks(grid).generation_order(token) for token in range(24)]
    assert turns[:6] == [0, 1, 2, 6, 7, 8]
    assert turns[6:12] == [3, 4, 5, 9, 10, 11]
