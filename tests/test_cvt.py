"""Attention with convolutional projections and CvT: at its edges, and totals beside transformers'."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from refused import refusals
from specs import counted
from test_against_transformers import same_totals, theirs_of
from test_pvt import at
from whole_probe import probe
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv_attention import ConvAttention
from xfcost.torch_models.modules import MODULES

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers = pytest.importorskip("transformers")


# By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_query_is_made_of_its_neighbours() -> None:
    component, spot = ConvAttention(heads=1), at(4, 5, special=1)
    module = MODULES[ConvAttention](component, spot).double().eval()
    seen = probe(module.q, (torch.zeros(1, 21, 6),)).reads
    assert seen[0] == frozenset({0})  # the special token goes round the convolution
    assert seen[1] == frozenset({1, 2, 6, 7})
    keys = probe(module.k, (torch.zeros(1, 21, 6),)).reads
    assert len(keys) == 7
    assert frozenset().union(*keys) == frozenset(range(21))
    assert list(component.notes(spot)) == ["1 special token(s) skip the convolutions, and are concatenated after them"]
    assert list(component.notes(at(4, 5))) == []


test_places_where_it_can_not_stand = refusals(
    [
        (ConvAttention(heads=4), "heads", "4 does not divide the width 6"),
        (ConvAttention(heads=1, size=4), "size", "4 is even, and the kernel is centred; try 3 or 5"),
        (ConvAttention(heads=1, kv_stride=3), "kv_stride", "leave some that no key reads; expected at most 2"),
        (ConvAttention(heads=1, causal=True), "causal", "has no causal form: a query and a key are made of"),
    ],
    at(4, 4),
)


@pytest.mark.parametrize("half", range(4))
def test_up_to_that_stride_the_keys_read_every_token(half: int) -> None:
    for side in range(1, 12):
        component = ConvAttention(heads=1, size=2 * half + 1, kv_stride=half + 1)
        component.check(Place(grid=Grid((side,)), dim=1, out_dim=1))
        kernel = component.kernel(Grid((side,)), component.kv_stride)
        read = {token for key in range(component.keys(Grid((side,))).total) for token in kernel.reads((side,), key)}
        assert read == set(range(side))


def test_cvt_on_other_grids() -> None:
    # 30×30 tokens in the first stage, 15×15 and 8×8 behind: keys at every second position.
    ledger = counted("cvt-13", tokens=(900,))
    assert [row.reads_tokens for row in ledger.rows if row.operation == "scores"] == [225, 64, 17]
    assert ledger.bound_params == 0


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────


PRESETS: dict[str, dict[str, Any]] = {
    "cvt-13": {},
    "cvt-13-384": {},
    "cvt-21": {"depth": [1, 4, 16]},
    "cvt-21-384": {"depth": [1, 4, 16]},
    "cvt-w24-384": {"embed_dim": [192, 768, 1024], "num_heads": [3, 12, 16], "depth": [2, 2, 20]},
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_their_parameters_and_their_macs(preset: str) -> None:
    model, config = transformers.CvtForImageClassification, PRESETS[preset] | {"num_labels": 1000}
    same_totals(preset, lambda: theirs_of(transformers.CvtConfig, model, **config))
