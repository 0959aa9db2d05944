"""Recurrent decoders that attend: RNNsearch by hand, steps side by side as one after the other, what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

from specs import counted
from xfcost.formulas.additive_attention import Additive, Maxout, Sum
from xfcost.formulas.component import Place
from xfcost.formulas.recurrent import Recurrent
from xfcost.layers.token import Token
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.gru import Gru
from xfcost.mechanisms.lstm import Lstm
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.tracing.trace import trace

SEARCH = Gru(
    hidden=5,
    bias=False,
    reset="before",
    attend=Additive(hidden=3),
    start="backwards",
    readout=Maxout(hidden=2),
    residual="none",
)
TELL = Lstm(hidden=5, attend=Additive(hidden=3, bias=True, gate=True), start="mean", readout=Sum(), residual="none")


def spot(tokens: int = 7, memory: int = 4, dim: int = 6, memory_dim: int = 8) -> Place:
    return Place(grid=Grid((tokens,)), dim=dim, out_dim=dim, memory=Grid((memory,)), memory_dim=memory_dim)


def test_n_takes_both_lengths() -> None:
    macs = {pair: counted("rnnsearch", tokens=pair).total("macs") for pair in ((30, 20), (60, 20), (30, 40))}
    # one more source token: both directions of the encoder and its key, and 20 energies and terms of the sum
    assert macs[60, 20] - macs[30, 20] == 30 * (6 * 1_620_000 + 2_000_000 + 20 * 3000)


# As it runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("component", [SEARCH, TELL, Gru(attend=Additive(hidden=3))], ids=str)
def test_steps_side_by_side_cost_what_they_cost_one_by_one(component: Recurrent) -> None:
    # On `meta` a trace lets all steps stand beside each other; on the CPU it walks them.
    traces = []
    for device in ("meta", "cpu"):
        with torch.device(device):
            module = MODULES[type(component)](component, spot()).requires_grad_(requires_grad=False)
            traced = trace(module, (torch.randn(2, 7, 6), torch.randn(2, 4, 8)))
        assert traced.unsupported == {}
        traces.append(traced.modules)
    assert traces[0] == traces[1]
    assert sum(costs.macs for costs in traces[0].values()) == 2 * sum(row.macs for row in component.operations(spot()))


# What is refused ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("component", "changes", "expected"),
    [
        (SEARCH, {"memory": None}, "attend: reads an encoder's output, and the spec has no `encoder:`"),
        (SEARCH, {"memory_dim": 7}, "start: the encoder's backward half needs an even width, got 7"),
        (
            Gru(attend=Additive(hidden=3), bidirectional=True),
            {},
            "bidirectional: every step attends with the state before",
        ),
        (
            Gru(attend=Additive(hidden=3), start="encoder"),
            {},
            "start: with `attend`, expected zeros, backwards or mean",
        ),
        (Gru(attend=Additive(hidden=3), readout=Sum()), {}, "hidden: with a `readout`, give the state's width"),
        (Gru(readout=Sum()), {}, "readout: needs attention over the encoder; give `attend`"),
        (Gru(start="mean"), {}, "start: needs attention over the encoder; give `attend`"),
    ],
)
def test_what_can_not_attend_is_refused(component: Recurrent, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ComponentError) as refused:
        component.check(msgspec.structs.replace(spot(), **changes))
    assert f"{refused.value.field}: {refused.value.message}".startswith(expected)


def test_a_token_s_table_may_be_of_another_width_than_the_stage() -> None:
    where = Place(grid=Grid((7,)), dim=11, out_dim=12, vocabulary=11)
    assert Token(dim=5).out(where) == (Grid((7,)), 5)
    (row,) = Token(dim=5).operations(where)
    assert (row.params, row.moved) == (55, 35)
    assert Token(dim=5, share="table").tables(where) == {"table": (11, 5)}
    assert Token().out(where)[1] == 12
