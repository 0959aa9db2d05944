"""A lecture's example: what 48 layers of 16 heads keep of attention, pixel by pixel and patch by patch, in fp32.

R×R tokens, no class token, batch 1: (R²)² scores of 4 bytes per head, 768 matrices in all.
"""

from __future__ import annotations

import json

import pytest

from helpers import stdout_of
from xfcost.counting.forward import count
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run

KIB, MIB, GIB = 2**10, 2**20, 2**30
LAYERS, HEADS = 48, 16


@pytest.mark.parametrize(
    ("words", "tokens", "matrix", "together"),
    [
        (["pixels-128"], 128**2, GIB, 768 * GIB),
        # 196² = 38,416 scores are 153,664 bytes, 150 KiB; 768 of them 118,013,952 bytes, 112.5 MiB
        (["patches-224"], 14**2, 153_664, 118_013_952),
        (["pixels-128", "--N", 196], 14**2, 153_664, 118_013_952),
        # 256² scores are 256 KiB; 768 of them 192 MiB
        (["patches-256"], 16**2, 256 * KIB, 192 * MIB),
        (["pixels-128", "--N", 256], 16**2, 256 * KIB, 192 * MIB),
    ],
    ids=str,
)
def test_one_command_gives_the_lecture_s_bytes(words, tokens, matrix, together):
    ran = stdout_of("analyze", *words, "--no-trace", "--format", "json")
    said = json.loads(ran)
    assert (said["tokens"], said["extra_tokens"]) == (tokens, 0)
    assert said["totals"]["attention_entries"] == LAYERS * HEADS * tokens**2
    assert said["totals"]["attention_bytes"] == LAYERS * HEADS * matrix == together
    assert said["totals"]["attention_peak_bytes"] == 2 * HEADS * matrix  # scores and softmax output


def test_a_class_token_is_no_part_of_the_example():
    """With one: 197² and 257² scores, 113.70 and 193.50 MiB."""
    kept = []
    for patches, image in ((14, 224), (16, 256)):
        loaded = load(f"patches-{image}", ["embed.1={kind: class_token}", "head.pool=class_token"])
        ledger = count(place(loaded, Run()))
        assert ledger.metadata.tokens == f"{patches**2} ({patches}×{patches}) + 1"
        kept.append(ledger.attention_memory()["all_layers"])
    assert kept == [4 * 768 * 197**2, 4 * 768 * 257**2]
    assert [round(bytes_ / MIB, 2) for bytes_ in kept] == [113.70, 193.50]
