"""References of recurrent layers, state-space models and long convolutions."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from references.attention import turned
from references.plain import Options, Place, Weights, linear, sigmoid, silu
from references.static import convolved

GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def recurrent(options: Options, weights: Weights, x: Tensor, memory: Tensor | None, torch_s: Any) -> Tensor:
    """What the references of RNN, LSTM and GRU share: torch's own layer, else the papers' equations token by token."""
    if memory is not None:
        return attending(options, weights, list(x.unbind(1)), memory)
    ways = [weights.forwards, weights.backwards] if options.bidirectional else [weights]
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
    ask, answers = weights, []
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


def rnn(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor | None = None) -> Tensor:
    """Elman's recurrent network.

    h = act(W x + U h) (Elman 1990).
    """
    return recurrent(options, weights, x, memory, lambda: nn.RNN(1, 1, nonlinearity=options.act))


def lstm(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor | None = None) -> Tensor:
    """Long short-term memory.

    Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000.
    """
    return recurrent(options, weights, x, memory, lambda: nn.LSTM(1, 1))


def gru(options: Options, place: Place, weights: Weights, x: Tensor, memory: Tensor | None = None) -> Tensor:
    """Gated recurrent units.

    Cho et al. 2014; the state reset before its map as in the paper, or behind it as torch has it.
    """
    return recurrent(options, weights, x, memory, None if options.reset == "before" else lambda: nn.GRU(1, 1))


def evenly(first: float, last: float, count: int) -> Tensor:
    return torch.linspace(first, last, count, dtype=torch.float64)


def single(x: Tensor) -> Tensor:
    """As a table in single precision holds it."""
    return x.float().double()


def filters(options: Options, place: Place, weights: Weights) -> Tensor:
    """h_t = window(t)·FFN(positions(t)) (equation 7): (N, E)."""
    n, width, parts = place.total, (options.order - 1) * place.dim, weights
    time, bands = evenly(0, 1, n)[:, None], (options.features - 1) // 2
    angle = 2 * math.pi * torch.arange(n).double()[:, None] / n * evenly(1e-4, bands - 1, bands)
    h = single(torch.cat([time, angle.cos(), -angle.sin()], -1))
    if options.positions == "learned":
        h = parts.positions.weight
    h, frequency = linear(parts.filter_in, h), parts.filter_sin.frequency
    for weight, bias in zip(parts.filter_hidden.weight, parts.filter_hidden.bias, strict=True):
        h = (frequency * h).sin() @ weight.T + bias
    rates = single(evenly(math.log(0.01) / 1.5, math.log(0.01) / 0.3, width))
    return (frequency * h).sin() @ parts.filter_out.weight.T * (single(time) * rates).exp()


def hyena(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Hyena (Poli et al. 2023), its long convolutions as plain sums.

    v, then in turn a gate and a convolution over all that came before (definition 3.1).
    """
    n, d = place.total, place.dim
    wide = linear(weights.in_proj, x)
    wide = convolved(wide, (n,), weights.short_conv, groups=wide.shape[-1], causal=True)
    parts = [wide[..., at * d : (at + 1) * d] for at in range(options.order + 1)]
    v, h = parts.pop(), filters(options, place, weights)
    for step in range(options.order - 1):
        v = v * parts.pop()
        mine = h[:, step * d : (step + 1) * d]
        sums = [sum(mine[token - other] * v[:, other] for other in range(token + 1)) for token in range(n)]
        v = torch.stack(sums, 1) + weights.skip.weight[step] * v
    return linear(weights.out_proj, v * parts.pop())


def mamba(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Mamba (Gu and Dao 2023, algorithm 2): its convolution tap by tap, its scan number by number of the state.

    h_t = exp(Δ A) h + Δ B u, as recurrence (2a), and y = C h + D u.
    """
    inner = options.expand * place.dim
    rank = options.rank or math.ceil(place.dim / 16)
    wide = linear(weights.in_proj, x)
    u, z = wide[..., :inner], wide[..., inner:]
    u = silu(convolved(u, (place.total,), weights.conv, groups=inner, causal=True))
    projected = linear(weights.x_proj, u)
    step = (1 + linear(weights.dt_proj, projected[..., :rank]).exp()).log()
    b, c = projected[..., rank : rank + options.state], projected[..., rank + options.state :]
    a = -weights.decay.log.exp()
    states = [torch.zeros_like(u[:, 0]) for _ in range(options.state)]
    answers = []
    for token in range(place.total):
        dt, now = step[:, token], u[:, token]
        for s in range(options.state):
            states[s] = (dt * a[:, s]).exp() * states[s] + dt * b[:, token, s, None] * now
        y = sum(c[:, token, s, None] * states[s] for s in range(options.state)) + weights.skip.weight * now
        answers.append(y * silu(z[:, token]))
    return linear(weights.out_proj, torch.stack(answers, 1))


def mamba2(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Mamba-2 (Dao and Gu 2024, equation 2 with A a number per head): h_t = exp(Δ A) h + Δ u⊗B, y = C·h."""
    inner, wide, state = options.expand * place.dim, options.head_dim, options.state
    heads, mixed = inner // wide, options.groups * state
    z, entering, step = linear(weights.in_proj, x).split([inner, inner + 2 * mixed, heads], -1)
    entering = silu(convolved(entering, (place.total,), weights.conv, groups=entering.shape[-1], causal=True))
    u, b, c = entering.split([inner, mixed, mixed], -1)
    step = (1 + (step + weights.step.bias).exp()).log()
    states = [torch.zeros(len(x), wide, state, dtype=x.dtype) for _ in range(heads)]
    tokens = []
    for token in range(place.total):
        answers = []
        for head in range(heads):
            group = head * options.groups // heads
            mine, numbers = slice(head * wide, (head + 1) * wide), slice(group * state, (group + 1) * state)
            dt, now = step[:, token, head, None, None], u[:, token, mine, None]
            kept = (-dt * weights.decay.log[head].exp()).exp()
            states[head] = kept * states[head] + dt * now * b[:, token, None, numbers]
            read = (states[head] * c[:, token, None, numbers]).sum(-1)
            answers.append(read + weights.skip.weight[head] * now.squeeze(-1))
        tokens.append(torch.cat(answers, -1))
    y = torch.stack(tokens, 1) * silu(z)
    parts = [part / (part.square().mean(-1, keepdim=True) + 1e-5).sqrt() for part in y.chunk(options.groups, -1)]
    return linear(weights.out_proj, torch.cat(parts, -1) * weights.norm.weight)


def gated_delta(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Gated DeltaNet (Yang et al. 2024, equation 10), token by token: a state that is multiplied by a matrix."""
    heads, key_heads = options.heads, options.key_heads or options.heads
    wide = options.head_dim or place.dim // heads
    value, keys = options.value_dim or wide, key_heads * wide
    qkv, z = linear(weights.in_proj, x).split([2 * keys + heads * value, heads * value], -1)
    beta, a = linear(weights.gates_proj, x).chunk(2, -1)
    qkv = silu(convolved(qkv, (place.total,), weights.conv, groups=qkv.shape[-1], causal=True))
    alpha = (-weights.decay.log.exp() * (1 + (a + weights.rates.bias).exp()).log()).exp()
    answers = []
    for head in range(heads):
        at, state, tokens = head * key_heads // heads * wide, torch.zeros(len(x), wide, value, dtype=x.dtype), []
        for token in range(place.total):
            q, k = (qkv[:, token, start + at : start + at + wide, None] for start in (0, keys))
            q, k = (part / (part.square().sum(1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
            v = qkv[:, token, None, 2 * keys + head * value : 2 * keys + (head + 1) * value]
            rate = sigmoid(beta[:, token, head, None, None])
            erased = torch.eye(wide, dtype=x.dtype) - rate * (k * k.mT)
            state = alpha[:, token, head, None, None] * (erased @ state) + rate * k * v
            tokens.append((state * q).sum(1) / math.sqrt(wide))
        y = torch.stack(tokens, 1)
        y = y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weights.norm.weight
        answers.append(y * silu(z[..., head * value : (head + 1) * value]))
    return linear(weights.out_proj, torch.cat(answers, -1))


def retention(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Retention in its three forms (Sun et al. 2023, equations 5 and 8): one plain quadratic sum.

    Σ γ^(n-m) (q_n·k_m) v_m, normed head by head, gated.
    """
    d, heads = place.dim, options.heads
    width, values = d // heads, (options.value_dim or 2 * d) // heads
    wide, answers = linear(weights.qkv, x), []
    for head in range(heads):
        q = turned(wide[..., head * width : (head + 1) * width], width, 10000.0)
        k = turned(wide[..., d + head * width : d + (head + 1) * width], width, 10000.0)
        v = wide[..., 2 * d + head * values : 2 * d + (head + 1) * values]
        gamma, tokens = 1 - 2.0 ** (-5 - head), []
        for n in range(place.total):
            terms = [
                gamma ** (n - m) * (q[:, n] * k[:, m]).sum(-1, keepdim=True) / math.sqrt(width) * v[:, m]
                for m in range(n + 1)
            ]
            tokens.append(sum(terms))
        answers.append(normed(options, torch.stack(tokens, 1)))
    return linear(weights.out, torch.cat(answers, -1) * silu(linear(weights.gate_proj, x)))


def normed(options: Options, y: Tensor) -> Tensor:
    """Without learned numbers, ε = 10⁻⁵ and, uncentred, 10⁻⁶ as in torchscale."""
    if options.norm == "layer_norm":
        y = y - y.mean(-1, keepdim=True)
    return y / (y.square().mean(-1, keepdim=True) + (1e-5 if options.norm == "layer_norm" else 1e-6)).sqrt()


# RWKV-4's token shift (Peng et al. 2023), which time mixing and channel mixing share.


def shifted(weights: Weights, x: Tensor) -> list[Tensor]:
    """Each of μ⊙x_t + (1 - μ)⊙x_(t-1)."""
    before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return [share * x + (1 - share) * before for share in weights.mix.weight]


def rwkv_time(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """RWKV-4's time mixing (Peng et al. 2023, equations 11 to 17), as a quadratic sum."""
    for_k, for_v, for_r = shifted(weights, x)
    k, v, r = linear(weights.key, for_k), linear(weights.value, for_v), linear(weights.receptance, for_r)
    w, u, answers = -weights.decay.weight.exp(), weights.wkv.first, []
    for token in range(place.total):
        given = [(w * (token - 1 - other) + k[:, other]).exp() for other in range(token)] + [(u + k[:, token]).exp()]
        answers.append(sum(one * v[:, other] for other, one in enumerate(given)) / sum(given))
    return linear(weights.output, sigmoid(r) * torch.stack(answers, 1))


def rwkv_channel(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """RWKV-4's channel mixing (Peng et al. 2023, equation 18)."""
    for_k, for_r = shifted(weights, x)
    hidden = linear(weights.key, for_k).clamp_min(0) ** 2
    return sigmoid(linear(weights.receptance, for_r)) * linear(weights.value, hidden)
