"""Mamba-2: beside transformers with the same weights, and what its chunks cost."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import places
from refused import refusals
from xfcost.mechanisms.mamba2 import Mamba2
from xfcost.torch_models.modules import MODULES

spot = partial(places.at, dim=8)


@pytest.mark.parametrize(("groups", "tokens"), [(1, 11), (2, 16), (4, 3), (1, 1)])
def test_a_block_is_transformers_own(groups: int, tokens: int) -> None:
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "state_size": 5, "head_dim": 4, "num_heads": 8, "n_groups": groups, "chunk_size": 8}
    theirs = Mamba2Mixer(Mamba2Config(**sizes, num_hidden_layers=1), layer_idx=0).requires_grad_(requires_grad=False)
    theirs.eval()
    if groups > 1 and not hasattr(theirs.norm, "group_size"):
        pytest.skip("this version of transformers normalises all groups at once; the paper's model each alone")
    for parameter in (theirs.A_log, theirs.D, theirs.dt_bias, theirs.norm.weight):
        parameter.normal_()
    component, where = Mamba2(state=5, head_dim=4, groups=groups, chunk=8), spot(tokens, dim=16)
    ours: Any = MODULES[Mamba2](component, where).requires_grad_(requires_grad=False)
    ours.in_proj.load_state_dict(theirs.in_proj.state_dict())
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())
    ours.conv.load_state_dict(theirs.conv1d.state_dict())
    ours.step.bias.copy_(theirs.dt_bias)
    ours.decay.log.copy_(theirs.A_log)
    ours.skip.weight.copy_(theirs.D)
    ours.norm.weight.copy_(theirs.norm.weight)
    x = torch.randn(2, tokens, 16)
    with FlopCounterMode(display=False) as counter:
        expected = theirs(x)
    torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
    rows = list(component.operations(where))
    assert counter.get_total_flops() == 2 * 2 * sum(row.macs for row in rows)
    assert sum(parameter.numel() for parameter in theirs.parameters()) == sum(row.params for row in rows)


test_what_it_refuses = refusals(
    [
        (Mamba2(head_dim=3), spot(5), "head_dim", "3 does not divide the 16 channels inside; it could be 1, 2, 4"),
        (Mamba2(head_dim=4, groups=3), spot(5), "groups", "4 heads don't divide into 3; it could be 1, 2, 4"),
        (Mamba2(head_dim=4), spot(3, 3), "kind", "needs a sequence without special tokens"),
    ]
)


def test_what_it_tells() -> None:
    component = Mamba2(state=3, head_dim=4, chunk=4)
    padded, between, heads, state = component.notes(spot(5))
    assert padded.startswith("5 tokens padded to 2 chunks of 4: 3 padding tokens")
    assert "(N/Q + 1)²" in between
    assert "each of 4 heads" in heads
    assert "a state of 114 numbers" in state  # 16·3 + 3·(16 + 2·3)
    assert len(list(component.notes(spot(8)))) == 3
