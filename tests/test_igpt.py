"""iGPT's parameters beside transformers' code, which has biases that the authors' code hasn't; who reads whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from specs import counted
from test_against_transformers import ours_of, theirs_of
from whole_probe import probe

transformers = pytest.importorskip("transformers")

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


def theirs_igpt(**settings: Any) -> nn.Module:
    """Their vocabulary has one entry more: the start of the sequence is a token."""
    return theirs_of(transformers.ImageGPTConfig, transformers.ImageGPTForCausalImageModeling, **settings)


SIZES = {"igpt-s": (512, 24, 8), "igpt-m": (1024, 36, 8), "igpt-l": (1536, 48, 16), "igpt-xl": (3072, 60, 16)}


@pytest.mark.parametrize("preset", SIZES)
def test_a_preset_has_their_parameters_but_for_the_biases(preset: str) -> None:
    width, layers, heads = SIZES[preset]
    with torch.device("meta"):
        theirs = theirs_igpt(n_embd=width, n_layer=layers, n_head=heads)
    ours = counted(preset).total("params")
    assert ours == sum(parameter.numel() for parameter in theirs.parameters()) - layers * 9 * width


def test_no_pixel_is_read_before_its_turn(tmp_path: Path) -> None:
    """The scores of pixel n depend on those before it alone."""
    architecture, live = ours_of(igpt_spec(7), tmp_path, dtype="float64")
    stream = live.model.streams[0]
    behind = nn.Sequential(*list(stream.embed)[1:], *[sublayer for block in stream.stages[0].run for sublayer in block])
    x = torch.randn(1, architecture.grid.total, WIDTH, dtype=torch.float64)
    assert probe(behind, (x,)).reads == tuple(frozenset(range(n)) for n in range(7))
