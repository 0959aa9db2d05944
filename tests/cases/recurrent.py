"""RNN, LSTM and GRU under the contract, token by token from their papers' equations."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from cases.base import MechanismCase
from xfcost.grid import Grid
from xfcost.mechanisms import Gru, Lstm, Rnn
from xfcost.mechanisms.base import Place
from xfcost.mechanisms.recurrent import Recurrent

# Recurrent layers see a sequence, a grid in raster order. A longer one forgets its first token to the last bit.
GRIDS = (*(Grid((n,)) for n in (1, 2, 5, 13)), Grid((3, 4)), Grid((1, 1), 1), Grid((2, 2), 1))


def sigma(x: Tensor) -> Tensor:
    return 1 / (1 + (-x).exp())


def tanh(x: Tensor) -> Tensor:
    return 1 - 2 / ((2 * x).exp() + 1)


def reference(page: Recurrent, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    if not page.bidirectional:
        return one_way(page, twin.core, list(x_BND.unbind(1)))
    there = one_way(page, twin.forwards, list(x_BND.unbind(1)))
    back = one_way(page, twin.backwards, list(x_BND.unbind(1))[::-1]).flip(1)
    return torch.cat([there, back], dim=-1)


def one_way(page: Recurrent, way: nn.Module, tokens: list[Tensor]) -> Tensor:
    """Gate by gate: every gate has maps of its own."""
    gates = page.gates
    inputs, states = way.input.weight.chunk(gates), way.recurrence.weight.chunk(gates)
    zero = inputs[0].new_zeros(1).expand(gates)
    b = way.input.bias.chunk(gates) if page.bias else zero.unbind()
    u = way.recurrence.bias.chunk(gates) if page.bias else zero.unbind()
    h = c = tokens[0].new_zeros(len(tokens[0]), states[0].shape[1])
    answers = []
    for x in tokens:
        w = [x @ inputs[gate].T + b[gate] for gate in range(gates)]
        s = [h @ states[gate].T + u[gate] for gate in range(gates)]
        if isinstance(page, Rnn):
            h = tanh(w[0] + s[0]) if page.act == "tanh" else (w[0] + s[0]).clamp_min(0)
        elif isinstance(page, Lstm):
            i, f, g, o = (w[gate] + s[gate] for gate in range(4))
            c = sigma(f) * c + sigma(i) * tanh(g)
            h = sigma(o) * tanh(c)
        else:
            r, z = sigma(w[0] + s[0]), sigma(w[1] + s[1])
            new = r * s[2] if page.reset == "after" else (r * h) @ states[2].T + u[2]
            h = (1 - z) * tanh(w[2] + new) + z * h
        answers.append(h)
    return torch.stack(answers, dim=1)


OPTIONS = {
    "hidden": st.none() | st.integers(1, 64),
    "bidirectional": st.booleans(),
    "bias": st.booleans(),
}
EXAMPLES = {
    Rnn: (Rnn(), Rnn(act="relu", bias=False), Rnn(bidirectional=True)),
    Lstm: (Lstm(), Lstm(bidirectional=True, bias=False), Lstm(hidden=4, residual="none")),
    Gru: (Gru(), Gru(reset="before"), Gru(reset="before", bias=False), Gru(bidirectional=True)),
}
MORE = {Rnn: {"act": st.sampled_from(["tanh", "relu"])}, Lstm: {}, Gru: {"reset": st.sampled_from(["after", "before"])}}

CASES = [
    MechanismCase(
        page=page,
        examples=examples,
        pages=st.builds(page, **OPTIONS, **MORE[page]),
        reference=reference,
        grids=GRIDS,
        fused=False,
        # its input map alone is per token; the state's is the recurrence
        per_token=False,
    )
    for page, examples in EXAMPLES.items()
]
