"""iGPT beside transformers' code, which has the biases of GPT-2 that the authors' code hasn't; the learned start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformers_models import ours_of
from whole_probe import probe

COLOURS, WIDTH, LAYERS = 11, 12, 2


def igpt_spec(length: int) -> dict[str, Any]:
    return {
        "input": {"kind": "tokens", "vocabulary": COLOURS, "length": length},
        "residual": {"norm": "rms_norm"},
        "embed": [
            {"kind": "token"},
            {"kind": "shift", "axis": "row", "start": "learned"},
            {"kind": "position"},
        ],
        "stages": [
            {
                "dim": WIDTH,
                "depth": LAYERS,
                "block": [
                    {"kind": "full", "heads": 3, "causal": True, "projection_bias": False},
                    {"kind": "mlp", "act": "gelu_quick", "bias": False},
                ],
            }
        ],
        "head": {"kind": "language_model", "norm": "rms_norm"},
    }


def test_no_pixel_is_read_before_its_turn(tmp_path: Path) -> None:
    """The scores of pixel n depend on those before it alone."""
    architecture, live = ours_of(igpt_spec(7), tmp_path, dtype="float64")
    stream = live.model.streams[0]
    behind = nn.Sequential(*list(stream.embed)[1:], *[sublayer for block in stream.stages[0].run for sublayer in block])
    x = torch.randn(1, architecture.grid.total, WIDTH, dtype=torch.float64)
    assert probe(behind, (x,)).reads == tuple(frozenset(range(n)) for n in range(7))
