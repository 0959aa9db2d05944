"""fvcore handles of recurrences, scans and Fourier transforms. Each is one node of a trace."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Final

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.tracing.graph import Counts, Handle, Value, counts, elements_of, given, shape


def recurrence(work: int) -> Handle:
    """x (…, N, gates·h) and the state's map (gates·h, h): N steps of its product, and `work` per hidden unit."""

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        *steps, gates = shape(inputs[0])
        units = shape(inputs[1])[1]
        biases = gates * FLOPS_PER_ELEMENT["add"] if given(inputs[2]) else 0
        products = counts(prod(steps) * gates * units, prod(steps) * (units * work + biases))
        return products + Counter(moved=prod(steps) * units)

    return handle


def selective_scan(inputs: list[Value], outputs: list[Value]) -> Counts:
    """u (…, N, e), A (e, s): N steps over e·s state elements, each read out by a product; and Δ∘u."""
    elements, states = prod(shape(inputs[0])), shape(inputs[2])[1]
    work = elements * (states * FLOPS_PER_ELEMENT["selective_scan"] + FLOPS_PER_ELEMENT["multiply"])
    return counts(elements * states, work) + Counter(moved=elements)


def wkv(inputs: list[Value], outputs: list[Value]) -> Counts:
    """k (…, N, d): per channel and step its work and two maxima."""
    elements = prod(shape(inputs[0]))
    return Counter(flops=elements * FLOPS_PER_ELEMENT["wkv"], comparisons=2 * elements, moved=elements)


def retention(inputs: list[Value], outputs: list[Value]) -> Counts:
    """q (…, N, h·k), v (…, N, h·v), γ (h,): N steps over a state of h·k·v: an update product, a read-out, a decay."""
    values = prod(shape(inputs[2]))
    numbers = values * shape(inputs[0])[-1] // shape(inputs[3])[0]
    decayed = numbers * (FLOPS_PER_ELEMENT["multiply"] + FLOPS_PER_ELEMENT["add"])
    return counts(2 * numbers, decayed) + Counter(moved=values)


def decayed_sums(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(…, C, numbers): C steps of a decay and a sum per element; the states are written out."""
    elements = prod(shape(inputs[0]))
    work = elements * (FLOPS_PER_ELEMENT["multiply"] + FLOPS_PER_ELEMENT["add"])
    return Counter(flops=work, moved=elements)


def real_fourier(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(x, n, axis): n real numbers, x cut or zero-padded to n, to their spectrum.

    If n is a runtime value, it is inferred from the spectrum of n/2 + 1; an odd n then counts as n - 1.
    """
    sizes, axis = shape(inputs[0]), inputs[2].toIValue()
    n = inputs[1].toIValue() if given(inputs[1]) else sizes[axis]
    return _fourier(prod(sizes) // sizes[axis], n or 2 * (shape(outputs[0])[axis] - 1))


def inverse_real_fourier(inputs: list[Value], outputs: list[Value]) -> Counts:
    """(spectrum, n, axis): the spectrum back to n real numbers."""
    sizes, axis = shape(outputs[0]), inputs[2].toIValue()
    return _fourier(prod(sizes) // sizes[axis], sizes[axis])


def _fourier(times: int, n: int) -> Counts:
    """n real numbers cost as much as n/2 complex ones: 5·n/2·⌈log₂ n⌉ FLOPs."""
    return Counter(flops=times * (FLOPS_PER_ELEMENT["fft"] * n * ceil_log2(n) // 2))


def torch_recurrence(gates: int, work: int) -> Handle:
    """`nn.LSTM`, `nn.GRU`, `nn.RNN`: each token meets each matrix of each layer and direction once.

    Tokens are (N, B, …), (B, N, …) or, packed, (all tokens, …). A layer's parameters are its maps of the input
    (gates·h, in) and of the state (gates·h, h), their biases, and the projection of the state (p, h).
    """

    def handle(inputs: list[Value], outputs: list[Value]) -> Counts:
        tokens = prod(shape(inputs[0])[:-1])
        total: Counts = Counter()
        for weights in _layers(inputs):
            matrices = sum(prod(sizes) for sizes in weights if len(sizes) == 2)  # noqa: PLR2004
            biases = sum(sizes[0] for sizes in weights if len(sizes) == 1)
            units = weights[0][0] // gates
            written = weights[1][1]  # the input width of the state map: h, or its projection
            total += counts(tokens * matrices, tokens * (units * work + biases * FLOPS_PER_ELEMENT["add"]))
            total += Counter(moved=tokens * written)
        return total

    return handle


def _layers(inputs: list[Value]) -> list[list[list[int]]]:
    """The parameter shapes of each layer and direction. Each begins with the map of the input.

    (…, parameters, has_biases, num_layers, dropout, train, bidirectional, …): the last list of tensors holds them.
    """
    last = max(place for place, value in enumerate(inputs) if value.node().kind() == "prim::ListConstruct")
    shapes = [shape(value) for value in elements_of(inputs[last])]
    directions = 2 if inputs[last + 5].toIValue() else 1
    each = len(shapes) // (inputs[last + 2].toIValue() * directions)
    return [shapes[first : first + each] for first in range(0, len(shapes), each)]


SEQUENTIAL: Final[dict[str, Handle]] = {
    **{f"xfcost::rnn_{act}": recurrence(FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT[act]) for act in ("tanh", "relu")},
    **{f"xfcost::gru_reset_{when}": recurrence(FLOPS_PER_ELEMENT["gru"]) for when in ("after", "before")},
    "xfcost::lstm": recurrence(FLOPS_PER_ELEMENT["lstm"]),
    "xfcost::selective_scan": selective_scan,
    "xfcost::wkv": wkv,
    "xfcost::retention": retention,
    "xfcost::decayed_sums": decayed_sums,
    "aten::lstm": torch_recurrence(4, FLOPS_PER_ELEMENT["lstm"]),
    "aten::gru": torch_recurrence(3, FLOPS_PER_ELEMENT["gru"]),
    **{
        f"aten::rnn_{act}": torch_recurrence(1, FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT[act])
        for act in ("tanh", "relu")
    },
    "aten::fft_rfft": real_fourier,
    "aten::fft_irfft": inverse_real_fourier,
}
