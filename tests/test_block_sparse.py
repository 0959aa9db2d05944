"""Block-sparse attention: the drawn blocks, the fall-back, and transformers' BigBird beside it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import places
import transformers_models as hf
from growth import orders_at
from xfcost.counting.forward import count
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.block_sparse import BlockSparse
from xfcost.mechanisms.full import Full
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.mechanisms.block_sparse import BlockSparseAttention

at = partial(places.at, dim=8)


# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("r", [0, 1, 3, 5])
@pytest.mark.parametrize("more", [0, 1, 40])
def test_drawn_blocks_are_new_to_the_block(r: int, more: int) -> None:
    component, blocks = BlockSparse(heads=1, block=1, random_blocks=r), 6 + 2 * r + more
    for block in range(1, blocks - 1):
        drawn = component.drawn(blocks, block)
        assert len(drawn) == len(set(drawn)) == r
        assert not set(drawn) & {0, block - 1, block, block + 1, blocks - 1}
        assert set(drawn) <= set(range(blocks))


def test_all_blocks_are_drawn_about_equally_often() -> None:
    # block 5 of 16 chooses 3 of 11, 2000 times: each is chosen 2000·3/11 = 545 times, give or take 20 (one deviation)
    times = np.zeros(16, dtype=int)
    for seed in range(2000):
        times[BlockSparse(heads=1, block=1, seed=seed).drawn(16, 5)] += 1
    assert not times[[0, 4, 5, 6, 15]].any()
    chosen = times[times > 0]
    assert len(chosen) == 11
    assert abs(chosen - 2000 * 3 / 11).max() < 100


def test_the_seed_decides() -> None:
    first, again, other = (BlockSparse(heads=1, block=1, seed=seed) for seed in (1, 1, 2))
    patterns = [
        [list(component.reads(Grid((40,)), token)) for token in range(40)] for component in (first, again, other)
    ]
    assert patterns[0] == patterns[1] != patterns[2]
    # pinned, for a pattern that another release draws otherwise would be another architecture
    assert BlockSparse(heads=1).drawn(64, 10) == [17, 45, 1]


# What it refuses and tells ───────────────────────────────────────────────────────────────────────────────────────────


def test_on_meta_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2²⁶ blocks, one after the other in Python, would take minutes; shapes need none of them.
    monkeypatch.delattr(BlockSparse, "drawn")
    spot = at(2**32)
    with torch.device("meta"):
        module = BlockSparseAttention(BlockSparse(heads=2, block=64, random_blocks=3), spot)
    assert module.inner.middle_GX.shape == (2**26 - 4, 8)
    assert module(torch.empty(1, 2**32, 8, device="meta")).shape == (1, 2**32, 8)


def test_too_few_blocks_are_full_attention() -> None:
    component = BlockSparse(heads=2, block=2, random_blocks=1, projection_bias=False)
    assert list(component.operations(at(14))) == list(Full(heads=2, projection_bias=False).operations(at(14)))
    assert orders_at(component, at(14))["scores"] == "O(N²·d)"
    (note,) = component.notes(at(14))
    assert note == "14 tokens are no more than (5 + 2·1)·2 = 14: full attention"
    assert list(component.reads(Grid((14,)), 5)) == list(range(14))
    assert orders_at(component, at(15))["scores"] == "O(N·b·r·d)"


def test_padding_is_told() -> None:
    component = BlockSparse(heads=2, block=2, random_blocks=1)
    assert list(component.notes(at(16))) == []
    (note,) = component.notes(at(15))
    assert note.startswith("15 tokens padded to 16 for blocks of 2: 1 padding tokens")


def test_there_is_no_causal_form() -> None:
    message = "no causal form: the first and the last block read all tokens, and all read them; write causal: false"
    for component in (BlockSparse(heads=2, causal=True), BlockSparse(heads=2).with_stream_defaults(decoder=True)):
        with pytest.raises(ComponentError, match=message) as refused:
            component.check(at(900))
        assert refused.value.field == "causal"
    BlockSparse(heads=2, causal=False).with_stream_defaults(decoder=True).check(at(900))


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────


def bigbird(folder: Path, length: int, **run: Any) -> tuple[Architecture, BuiltModel]:
    mixer = {"kind": "block_sparse", "heads": 2, "block": 4, "random_blocks": 2, "seed": 3}
    spec = {
        "input": {"kind": "tokens", "vocabulary": 29, "length": length},
        "residual": {"place": "post"},
        "embed": [{"kind": "token"}, {"kind": "position", "length": 64}, {"kind": "token_type"}, {"kind": "norm"}],
        "stages": [{"dim": 12, "depth": 2, "block": [mixer, {"kind": "mlp"}]}],
        "head": {"kind": "pooler"},
    }
    return hf.ours_of(spec, folder, **run)


def their_bigbird() -> nn.Module:
    """Training, without dropout: in evaluation theirs draws nothing, and reads the first block r times more."""
    return hf.theirs_of(
        "BigBirdModel",
        vocab_size=29,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        block_size=4,
        num_random_blocks=2,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-5,
    ).train()


def copied(theirs: nn.Module, ours: Any) -> None:
    """Their weights into ours, every one of them."""
    weights, stream = hf.TheirWeights(theirs), ours.streams[0]
    hf.put_embeddings(stream.embed, weights)
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        hf.put_layer(mixer, mlp, weights, f"encoder.layer.{number}.", mixer.inner.inner)
    weights.put(ours.head.linear, "pooler")
    assert not weights


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("length", [20, 36, 40, 51])
def test_bigbird_with_their_weights(
    length: int, attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture, live = bigbird(tmp_path, length, batch=2, dtype="float64", attention=attention)
    theirs = hf.scrambled(their_bigbird().double())
    copied(theirs, live.model)

    def our_plan(self: nn.Module, *, from_seq_length: int, num_heads: int, **more: Any) -> list[Any]:
        component, blocks = architecture.streams[0].stages[0].blocks[0].parts[0].component, from_seq_length // 4
        return [np.array([component.drawn(blocks, block) for block in range(1, blocks - 1)])] * num_heads

    attentions = hf.transformers.models.big_bird.modeling_big_bird.BigBirdBlockSparseAttention
    monkeypatch.setattr(attentions, "_bigbird_block_rand_mask_with_head", our_plan)
    numbers = live.inputs[0].clamp_min(1)
    with torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            answer = theirs(numbers).pooler_output
        # theirs masks by subtracting 10000
        torch.testing.assert_close(live.model(numbers), answer, rtol=1e-6, atol=1e-6)
    totals = count(architecture).totals()
    assert totals["params"] == hf.parameters(theirs)
    # theirs pads before its first layer, so that the MLPs, of 2·4·12·12 MACs a token, work on padding too: in 2 layers
    # and 2 samples. 36 tokens and fewer are full attention, and not padded.
    padding = -length % 4 if length > 36 else 0
    assert 2 * (totals["macs"] + 2 * 2 * padding * 8 * 12 * 12) == counter.get_total_flops()
