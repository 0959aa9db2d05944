"""Recurrent layers: their one node in a trace, states handed to a decoder, decoders that attend."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from places import at
from specs import counted
from strategies import placed
from xfcost.formulas.component import Place
from xfcost.layers.tokens import Token
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.recurrent import Additive, Gru, Lstm, Maxout, Recurrent, Sum
from xfcost.program.residual import component_rows
from xfcost.torch_models.build import build
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.recurrence import PLAIN
from xfcost.torch_models.tracing.trace import trace

# Recurrent layers ─────────────────────────────────────────────────────────────────────────────────────────────────────


LOOPS: dict[str, tuple[Any, int]] = {
    "rnn_tanh": (PLAIN["rnn_tanh"], 1),
    "rnn_relu": (PLAIN["rnn_relu"], 1),
    "lstm": (PLAIN["lstm"], 4),
    "gru_reset_after": (PLAIN["gru_reset_after"], 3),
    "gru_reset_before": (PLAIN["gru_reset_before"], 3),
}


class Cell(nn.Module):
    """A recurrence as one operation, or as the plain loop that it is."""

    def __init__(self, run: Any, gates: int, states: int, *, bias: bool) -> None:
        super().__init__()
        self.run, self.states = run, states
        self.weight = nn.Parameter(torch.randn(gates * 4, 4))
        self.bias = nn.Parameter(torch.randn(gates * 4)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        answer = self.run(x, self.weight, self.bias, *[None] * self.states, False)
        return answer if isinstance(answer, Tensor) else answer[0]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_the_one_node_costs_what_the_loop_inside_it_does(name: str, bias: bool) -> None:
    loop, gates = LOOPS[name]
    states = 2 if name == "lstm" else 1
    x = torch.randn(2, 5, gates * 4)
    cells = [Cell(run, gates, states, bias=bias) for run in (getattr(torch.ops.xfcost, name), loop)]
    node, steps = (trace(cell.requires_grad_(False), (x,)) for cell in cells)
    assert node.unsupported == steps.unsupported == {}
    assert node.modules[""] == steps.modules[""]
    assert node.macs == 2 * 5 * gates * 4 * 4
    with torch.no_grad():
        cells[1].load_state_dict(cells[0].state_dict())
        assert torch.equal(cells[0](x), cells[1](x))


def test_memory_is_walked_through_the_loop() -> None:
    # Alive at the end: what came in (N·4h), every step's answer and all of them stacked (2·N·h), and a step's own.
    with torch.device("meta"), torch.no_grad(), Recorder(calls=False) as walk:
        x = torch.randn(1, 1000, 16)
        weight = torch.randn(16, 4)
        torch.ops.xfcost.lstm(x, weight, None, None, None, False)
    numbers = walk.run.peak_bytes() / 4
    assert 16_000 + 8_000 <= numbers <= 16_000 + 8_000 + 200


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("both", [False, True])
def test_each_decoder_layer_starts_where_the_encoder_s_ended(kind: str, both: bool, tmp_path: Path) -> None:
    layer = {"kind": kind, "bidirectional": both}
    encoder, decoder = (
        {"embed": [{"kind": "token"}], "stages": [{"dim": 6, "depth": 2, "block": [layer | more]}]}
        for more in ({}, {"start": "encoder"})
    )
    spec = {"name": "two streams", "input": {"kind": "tokens", "vocabulary": 11}, "residual": "none"}
    architecture = placed(spec | {"encoder": encoder, "decoder": decoder}, tmp_path, tokens=(7, 4))
    torch.manual_seed(0)
    model = build(architecture, "cpu").model.double()
    source, target = torch.randint(11, (2, 7)), torch.randint(11, (2, 4))
    theirs = []
    for stream in model.streams:
        sizes = {"input_size": 6, "hidden_size": 3 if both else 6, "num_layers": 2}
        stack = getattr(nn, kind.upper())(**sizes, bidirectional=both, batch_first=True).double()
        for number, block in enumerate(stream.stages[0].run):
            module = block[0].inner
            ways = [module.forwards, module.backwards] if both else [module]
            for way, suffix in zip(ways, ("", "_reverse"), strict=False):
                for leaf, short in ((way.input, "ih"), (way.recurrence, "hh")):
                    getattr(stack, f"weight_{short}_l{number}{suffix}").data.copy_(leaf.weight)
                    getattr(stack, f"bias_{short}_l{number}{suffix}").data.copy_(leaf.bias)
        theirs.append(stack)
    with torch.no_grad():
        first, second = (stream.embed[0](one) for stream, one in zip(model.streams, (source, target), strict=True))
        _, state = theirs[0](first)
        expected, _ = theirs[1](second, state)
        from_zeros, _ = theirs[1](second)
        answer = model(source, target)
    torch.testing.assert_close(answer, expected, rtol=1e-12, atol=1e-13)
    assert not torch.allclose(answer, from_zeros)


def test_a_decoder_layer_alone_has_nothing_to_start_from() -> None:
    where = at(3, memory=Grid((4,)), memory_dim=6)
    module = ProgramModule(Gru(start="encoder"), where)
    with pytest.raises(RuntimeError, match="no encoder ran before it"):
        module(torch.randn(1, 3, 6), torch.randn(1, 4, 6))


# Recurrent decoders that attend ───────────────────────────────────────────────────────────────────────────────────────

SEARCH = Gru(
    hidden=5, bias=False, reset="before", attend=Additive(hidden=3), start="backwards", readout=Maxout(hidden=2),
    residual="none",
)  # fmt: skip
TELL = Lstm(hidden=5, attend=Additive(hidden=3, bias=True, gate=True), start="mean", readout=Sum(), residual="none")


SPOT = at(7, memory=Grid((4,)), memory_dim=8)


def test_n_takes_both_lengths() -> None:
    macs = {pair: counted("rnnsearch", tokens=pair).total("macs") for pair in ((30, 20), (60, 20), (30, 40))}
    # one more source token: both directions of the encoder and its key, and 20 energies and terms of the sum
    assert macs[60, 20] - macs[30, 20] == 30 * (6 * 1_620_000 + 2_000_000 + 20 * 3000)


@pytest.mark.parametrize("component", [SEARCH, TELL, Gru(attend=Additive(hidden=3))], ids=str)
def test_steps_side_by_side_cost_what_they_cost_one_by_one(component: Recurrent) -> None:
    # On `meta` a trace lets all steps stand beside each other; on the CPU it walks them.
    traces = []
    for device in ("meta", "cpu"):
        with torch.device(device):
            module = ProgramModule(component, SPOT).requires_grad_(requires_grad=False)
            traced = trace(module, (torch.randn(2, 7, 6), torch.randn(2, 4, 8)))
        assert traced.unsupported == {}
        traces.append(traced.modules)
    assert traces[0] == traces[1]
    assert sum(costs.macs for costs in traces[0].values()) == 2 * sum(
        row.macs for row in component_rows(component, SPOT)
    )


def test_a_token_s_table_may_be_of_another_width_than_the_stage() -> None:
    where = Place(grid=Grid((7,)), dim=11, out_dim=12, vocabulary=11)
    assert Token(dim=5).out(where) == (Grid((7,)), 5)
    (row,) = component_rows(Token(dim=5), where)
    assert (row.params, row.moved) == (55, 35)
    assert Token(dim=5, share="table").tables(where) == {"table": (11, 5)}
    assert Token().out(where)[1] == 12
