"""RNN, LSTM and GRU under the contract, token by token from their papers' equations."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import MechanismCase, Rows
from xfcost.grid import Grid
from xfcost.mechanisms import Gru, Lstm, Rnn
from xfcost.mechanisms.additive import Additive, Maxout, Sum
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.recurrent import Recurrent

# Recurrent layers see a sequence, a grid in raster order. A longer one forgets its first token to the last bit.
GRIDS = (*(Grid((n,)) for n in (1, 2, 5, 13)), Grid((3, 4)), Grid((1, 1), 1), Grid((2, 2), 1))


def sigma(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def tanh(x: Tensor) -> Tensor:
    return 1 - 2 / ((2 * x).exp() + 1)


def reference(
    page: Recurrent, place: Place, twin: nn.Module, x_BND: Tensor, memory_BME: Tensor | None = None
) -> Tensor:
    if memory_BME is not None:
        return attending(page, twin.core, list(x_BND.unbind(1)), memory_BME)
    if not page.bidirectional:
        return one_way(page, twin.core, list(x_BND.unbind(1)))
    there = one_way(page, twin.forwards, list(x_BND.unbind(1)))
    back = one_way(page, twin.backwards, list(x_BND.unbind(1))[::-1]).flip(1)
    return torch.cat([there, back], dim=-1)


def one_way(page: Recurrent, way: nn.Module, tokens: list[Tensor]) -> Tensor:
    """Step after step from zeros."""
    h = c = tokens[0].new_zeros(len(tokens[0]), way.recurrence.weight.shape[1])
    answers = []
    for x in tokens:
        h, c = step(page, way, affine(way.input, x), h, c)
        answers.append(h)
    return torch.stack(answers, dim=1)


def affine(leaf: nn.Module, x: Tensor) -> Tensor:
    return x @ leaf.weight.T + (0 if leaf.bias is None else leaf.bias)


def step(page: Recurrent, way: nn.Module, w: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Gate by gate, every gate with a map of its own: what the input says of them is `w`."""
    gates, states = w.chunk(page.gates, -1), way.recurrence.weight.chunk(page.gates)
    b = way.recurrence.bias.chunk(page.gates) if page.bias else [0.0] * page.gates
    s = [h @ states[gate].T + b[gate] for gate in range(page.gates)]
    if isinstance(page, Rnn):
        both = gates[0] + s[0]
        return (tanh(both) if page.act == "tanh" else both.clamp_min(0)), c
    if isinstance(page, Lstm):
        i, f, g, o = (gates[gate] + s[gate] for gate in range(4))
        c = sigma(f) * c + sigma(i) * tanh(g)
        return sigma(o) * tanh(c), c
    r, z = sigma(gates[0] + s[0]), sigma(gates[1] + s[1])
    new = r * s[2] if page.reset == "after" else (r * h) @ states[2].T + b[2]
    return (1 - z) * tanh(gates[2] + new) + z * h, c


def attending(page: Recurrent, twin: nn.Module, tokens: list[Tensor], memory_BME: Tensor) -> Tensor:
    """Bahdanau et al. 2015, appendix A, one step after the other, and one of the memory's tokens after the other."""
    h = c = tokens[0].new_zeros(len(tokens[0]), twin.recurrence.weight.shape[1])
    if page.start == "mean":
        first = tanh(affine(twin.start.linear, memory_BME.sum(1) / memory_BME.shape[1]))
        h, c = first.chunk(2, -1) if isinstance(page, Lstm) else (first, first)
    elif page.start == "backwards":
        h = tanh(affine(twin.start.linear, memory_BME[:, 0].chunk(2, -1)[1]))
    ask, answers = twin.inner, []
    for x in tokens:
        asked = h @ ask.query.weight.T
        e = [affine(ask.energies, tanh(asked + affine(ask.keys, memory))) for memory in memory_BME.unbind(1)]
        weights = [value.exp() / sum(other.exp() for other in e) for value in e]
        context = sum(weight * memory for weight, memory in zip(weights, memory_BME.unbind(1), strict=True))
        if page.attend.gate:
            context = sigma(affine(ask.gate.linear, h)) * context
        before = h
        h, c = step(page, twin, affine(twin.input, x) + affine(twin.context, context), h, c)
        out = twin.readout
        if isinstance(page.readout, Maxout):
            wide = affine(out.state, before) + affine(out.input, x) + affine(out.context, context)
            answers.append(torch.maximum(wide[:, ::2], wide[:, 1::2]))
        elif isinstance(page.readout, Sum):
            answers.append(tanh(x + affine(out.state, h) + affine(out.context, context)))
        else:
            answers.append(h)
    return torch.stack(answers, dim=1)


OPTIONS = {
    "hidden": st.none() | st.integers(1, 64),
    "bidirectional": st.booleans(),
    "bias": st.booleans(),
}
ATTENTION = Additive(hidden=5)
EXAMPLES = {
    Rnn: (Rnn(), Rnn(act="relu", bias=False), Rnn(bidirectional=True), Rnn(attend=ATTENTION)),
    Lstm: (
        Lstm(),
        Lstm(bidirectional=True, bias=False),
        Lstm(hidden=4, residual="none"),
        Lstm(hidden=4, attend=Additive(hidden=3, bias=True, gate=True), start="mean", readout=Sum()),
    ),
    Gru: (
        Gru(),
        Gru(reset="before"),
        Gru(reset="before", bias=False),
        Gru(bidirectional=True),
        Gru(attend=ATTENTION, start="mean"),
        Gru(
            hidden=4,
            bias=False,
            reset="before",
            attend=ATTENTION,
            start="backwards",
            readout=Maxout(hidden=3),
            residual="none",
        ),
    ),
}
MORE = {Rnn: {"act": st.sampled_from(["tanh", "relu"])}, Lstm: {}, Gru: {"reset": st.sampled_from(["after", "before"])}}
READING = {
    "hidden": st.integers(1, 64),
    "bias": st.booleans(),
    "attend": st.builds(Additive, hidden=st.integers(1, 64), bias=st.booleans(), gate=st.booleans()),
    "start": st.sampled_from(["zeros", "backwards", "mean"]),
    "readout": st.none() | st.builds(Maxout, hidden=st.integers(1, 64)) | st.builds(Sum),
}

ASKING = frozenset(
    ("query", "gate_linear", "context", "add_context", "recurrence", "join", "readout_state", "readout_add")
)
CASES = [
    MechanismCase(
        page=page,
        examples=examples,
        pages=st.builds(page, **OPTIONS, **MORE[page]) | st.builds(page, **READING, **MORE[page]),
        reference=reference,
        grids=GRIDS,
        # few: where shapes are all that counts the steps are walked all the same
        growth=lambda page: (Grid((2,)), Grid((4,))),
        fused=False,
        memory=True,
        # its input map alone is per token; the state's is the recurrence
        per_token=False,
        # it asks with the state of the step before: what it reads is counted for that step's token, and not for its own
        rows=Rows(left_out=lambda page: ASKING if page.attend else frozenset()),
    )
    for page, examples in EXAMPLES.items()
]
