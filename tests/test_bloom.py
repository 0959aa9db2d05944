"""BLOOM beside transformers: parameters of every size."""

from __future__ import annotations

import pytest
import torch

from specs import counted
from test_against_transformers import theirs_of, transformers
from xfcost.spec.load import load


@pytest.mark.parametrize("name", ["560m", "1b1", "1b7", "3b", "7b1", "176b"])
def test_every_size_has_their_parameters(name: str) -> None:
    stage = load(f"bloom-{name}").spec.stages[0]
    settings = {"vocab_size": 250880, "hidden_size": stage.dim, "n_layer": stage.depth}
    with torch.device("meta"):
        model = theirs_of(
            transformers.BloomConfig, transformers.BloomForCausalLM, **settings, n_head=stage.block[0].heads
        )
    ours = counted(f"bloom-{name}").total("params")
    assert ours == sum(parameter.numel() for parameter in model.parameters())
