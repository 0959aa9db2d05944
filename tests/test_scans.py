"""Mamba and RWKV-4: beside transformers with the same weights, their scans' one node, and what stays constant."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import places
from growth import sequential_steps
from modules import Call
from specs import counted
from xfcost.formulas.component import Mixer, Place
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.ledger.errors import ComponentError
from xfcost.mechanisms.mamba import Mamba
from xfcost.mechanisms.rwkv_channel import RwkvChannel
from xfcost.mechanisms.rwkv_time import RwkvTime
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.shared import recurrence as scans
from xfcost.torch_models.tracing.trace import trace

spot = partial(places.at, dim=8)


def live(component: Mixer, where: Place) -> Any:
    torch.manual_seed(0)
    return MODULES[type(component)](component, where).requires_grad_(requires_grad=False)


@pytest.mark.parametrize("name", ["selective_scan", "wkv"])
def test_a_step_of_the_one_node_costs_what_a_step_of_the_loop_does(name: str) -> None:
    # One step more: what the last one leaves for none to read, a trace of the loop drops.
    def traced(run: Any, tokens: int) -> list[int]:
        x, few = (2, tokens, 6), (2, tokens, 3)
        shapes = [x, x, (6, 3), few, few] if name == "selective_scan" else [x, x, (6,), (6,)]
        found = trace(Call(run), tuple(torch.randn(shape) for shape in shapes))
        assert found.unsupported == {}
        own = found.modules[""]
        return [own.macs, own.flops, own.comparisons, own.moved]

    steps = []
    for run in (getattr(torch.ops.xfcost, name), getattr(scans, name)):
        few, more = traced(run, 5), traced(run, 6)
        steps.append([b - a for a, b in zip(few, more, strict=True)])
    node = traced(getattr(torch.ops.xfcost, name), 5)
    assert steps[0] == steps[1]
    assert node == [5 * each for each in steps[0]]


def test_softplus_is_counted_by_its_convention() -> None:
    assert trace(nn.Softplus(), (torch.randn(3, 4),)).flops == 12 * FLOPS_PER_ELEMENT["softplus"]


@pytest.mark.parametrize("name", ["430m", "1b5", "7b", "14b"])
def test_rwkv_s_printed_flops_per_token_are_twice_the_macs_of_its_maps(name: str) -> None:
    printed = {"430m": 7.573e8, "1b5": 2.823e9, "7b": 1.437e10, "14b": 2.778e10}[name]
    one = counted(f"rwkv4-{name}", tokens=(1,)).total("macs")
    assert float(f"{2 * (one or 0):.3e}") == printed
    assert counted(f"rwkv4-{name}", tokens=(7,)).total("macs") == 7 * (one or 0)


# Beside transformers ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_mamba_block_is_transformers_own() -> None:
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    torch.manual_seed(1)
    config = MambaConfig(hidden_size=32, state_size=5, conv_kernel=4, expand=2, num_hidden_layers=1, use_mambapy=False)
    theirs = MambaMixer(config, layer_idx=0).eval().requires_grad_(requires_grad=False)
    component, where = Mamba(state=5), spot(11, dim=32)
    ours = live(component, where)
    ours.decay.log.copy_(theirs.A_log.normal_())
    ours.skip.weight.copy_(theirs.D.normal_())
    for name in ("in_proj", "x_proj", "dt_proj", "out_proj"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
    ours.conv.load_state_dict(theirs.conv1d.state_dict())
    x = torch.randn(2, 11, 32)
    with FlopCounterMode(display=False) as counter:
        expected = theirs(x)
    torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
    rows = list(component.operations(where))
    assert counter.get_total_flops() == 2 * 2 * sum(row.macs for row in rows)
    assert sum(parameter.numel() for parameter in theirs.parameters()) == sum(row.params for row in rows)


def test_an_rwkv_block_is_transformers_own() -> None:
    from transformers import RwkvConfig
    from transformers.models.rwkv.modeling_rwkv import RwkvFeedForward, RwkvSelfAttention

    torch.manual_seed(1)
    config = RwkvConfig(hidden_size=16, attention_hidden_size=16, intermediate_size=64, num_hidden_layers=1)
    x = torch.randn(2, 11, 16)
    for component, make, uses in (
        (RwkvTime(), RwkvSelfAttention, "key value receptance"),
        (RwkvChannel(), RwkvFeedForward, "key receptance"),
    ):
        theirs = make(config).eval().requires_grad_(requires_grad=False)
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
        ours = live(component, spot(11, dim=16))
        for row, use in enumerate(uses.split()):
            ours.mix.weight[row].copy_(getattr(theirs, f"time_mix_{use}").flatten())
        maps = (
            ("key", "value", "receptance", "output")
            if isinstance(component, RwkvTime)
            else ("key", "value", "receptance")
        )
        for name in maps:
            getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
        if isinstance(component, RwkvTime):
            ours.decay.weight.copy_(theirs.time_decay)
            ours.wkv.first.copy_(theirs.time_first)
        torch.testing.assert_close(ours(x), theirs(x)[0], rtol=1e-4, atol=1e-5)
        assert sum(parameter.numel() for parameter in theirs.parameters()) == sum(
            row.params for row in component.operations(spot(11, dim=16))
        )


@pytest.mark.parametrize("component", [Mamba(), RwkvTime(), RwkvChannel()], ids=str)
def test_a_grid_is_refused(component: Mixer) -> None:
    with pytest.raises(ComponentError, match=r"needs a sequence without special tokens, got 9 \(3×3\) tokens"):
        component.check(spot(3, 3))


def test_the_state_that_is_told_does_not_grow() -> None:
    notes = [next(iter(component.notes(spot(n)))) for component in (Mamba(), RwkvTime()) for n in (100, 1000)]
    # 16·(16 + 3), and 4·8
    assert [text.partition("a state of ")[2].split()[0] for text in notes] == ["304", "304", "32", "32"]
    assert [sequential_steps(one, spot(100)) for one in (Mamba(), RwkvTime(), RwkvChannel())] == [100, 100, 1]
