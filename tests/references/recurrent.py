"""What the references of RNN, LSTM and GRU share: torch's own layer, else the papers' equations token by token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from references.plain import Options, Weights, linear, sigmoid

GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def recurrent(options: Options, weights: Weights, x: Tensor, memory: Tensor | None, torch_s: Any) -> Tensor:
    if memory is not None:
        return attending(options, weights.core, list(x.unbind(1)), memory)
    ways = [weights.forwards, weights.backwards] if options.bidirectional else [weights.core]
    if torch_s is None:
        answers = [one_way(options, way, x if at == 0 else x.flip(1)) for at, way in enumerate(ways)]
        return torch.cat([answers[0], *(back.flip(1) for back in answers[1:])], -1)
    return by_torch(options, ways, x, torch_s())


def by_torch(options: Options, ways: list[Weights], x: Tensor, like: nn.RNNBase) -> Tensor:
    """torch.nn's layer with these weights."""
    hidden = ways[0].recurrence.weight.shape[1]
    assert ways[0].recurrence.weight.shape[0] == GATES[options.kind] * hidden
    more = {"nonlinearity": like.nonlinearity} if isinstance(like, nn.RNN) else {}
    layer = type(like)(
        x.shape[-1], hidden, bias=options.bias, batch_first=True, bidirectional=options.bidirectional, **more
    ).double()
    tensors = {}
    for way, suffix in zip(ways, ("", "_reverse"), strict=False):
        tensors |= {f"weight_ih_l0{suffix}": way.input.weight, f"weight_hh_l0{suffix}": way.recurrence.weight}
        if options.bias:
            tensors |= {f"bias_ih_l0{suffix}": way.input.bias, f"bias_hh_l0{suffix}": way.recurrence.bias}
    return functional_call(layer, tensors, (x,))[0]


def one_way(options: Options, way: Weights, x: Tensor) -> Tensor:
    """Step after step from zeros."""
    h = c = x.new_zeros(len(x), way.recurrence.weight.shape[1])
    answers = []
    for token in x.unbind(1):
        h, c = step(options, way, linear(way.input, token), h, c)
        answers.append(h)
    return torch.stack(answers, 1)


def step(options: Options, way: Weights, w: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Gate by gate, every gate with a map of its own: what the input says of them is `w`."""
    count = GATES[options.kind]
    gates, maps = w.chunk(count, -1), way.recurrence.weight.chunk(count)
    biases = way.recurrence.bias.chunk(count) if options.bias else [0.0] * count
    s = [h @ maps[gate].T + biases[gate] for gate in range(count)]
    if options.kind == "rnn":
        both = gates[0] + s[0]
        return (both.tanh() if options.act == "tanh" else both.clamp_min(0)), c
    if options.kind == "lstm":
        i, f, g, o = (gates[gate] + s[gate] for gate in range(4))
        c = sigmoid(f) * c + sigmoid(i) * g.tanh()
        return sigmoid(o) * c.tanh(), c
    r, z = sigmoid(gates[0] + s[0]), sigmoid(gates[1] + s[1])
    new = r * s[2] if options.reset == "after" else (r * h) @ maps[2].T + biases[2]
    return (1 - z) * (gates[2] + new).tanh() + z * h, c


def first_state(options: Options, weights: Weights, memory: Tensor, zeros: Tensor) -> tuple[Tensor, Tensor]:
    """Zeros; a map of the mean (Xu et al. 2015, §3.1.2), or of the first's backward half (Bahdanau et al. 2015)."""
    if options.start == "zeros":
        return zeros, zeros
    mean, backward = sum(memory.unbind(1)) / memory.shape[1], memory[:, 0, memory.shape[-1] // 2 :]
    read = mean if options.start == "mean" else backward
    first = linear(weights.start.linear, read).tanh()
    return tuple(first.chunk(2, -1)) if options.kind == "lstm" else (first, zeros)


def attending(options: Options, weights: Weights, tokens: list[Tensor], memory: Tensor) -> Tensor:
    """Bahdanau et al. 2015, appendix A, one step after the other, and one of the memory's tokens after the other."""
    zeros = tokens[0].new_zeros(len(tokens[0]), weights.recurrence.weight.shape[1])
    h, c = first_state(options, weights, memory, zeros)
    ask, answers = weights.inner, []
    for x in tokens:
        asked = linear(ask.query, h)
        e = [linear(ask.energies, (asked + linear(ask.keys, one)).tanh()) for one in memory.unbind(1)]
        total = sum(value.exp() for value in e)
        context = sum(value.exp() / total * one for value, one in zip(e, memory.unbind(1), strict=True))
        if options.attend.gate:
            context = sigmoid(linear(ask.gate.linear, h)) * context
        before = h
        h, c = step(options, weights, linear(weights.input, x) + linear(weights.context, context), h, c)
        answers.append(read_out(options, weights.readout, x, before, h, context))
    return torch.stack(answers, 1)


def read_out(options: Options, out: Weights | None, x: Tensor, before: Tensor, h: Tensor, context: Tensor) -> Tensor:
    """The state; a maxout of the state before (Bahdanau et al. 2015, appendix A.2.2); or a sum (Xu et al. 2015, 7)."""
    if options.readout is None:
        return h
    if options.readout.kind == "maxout":
        wide = linear(out.state, before) + linear(out.input, x) + linear(out.context, context)
        return torch.maximum(wide[:, ::2], wide[:, 1::2])
    return (x + linear(out.state, h) + linear(out.context, context)).tanh()
