"""Additive attention in a recurrent decoder: every step attends to the encoder's tokens with its previous state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from xfcost.formulas.component import ComponentError, Number, Operation, Place, Width
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import elementwise, linear, matmul, maximum, move, on_raw_input, static_weights
from xfcost.formulas.state_tensors import CONTEXTS, of_states, seen_states
from xfcost.formulas.tensors import copied, of_grid, product, reading, saving_copies, view
from xfcost.ledger.accounts import Cached
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.tensors import BEFORE, INPUT, MEMORY, OUTPUT, Saved, Tensor, Tensors

if TYPE_CHECKING:
    from xfcost.formulas.recurrent import Recurrent


class Additive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="additive"):
    """e_tj = v·tanh(W s_{t-1} + U h_j), their softmax over j, c_t = Σ α_tj h_j (Bahdanau et al. 2015, appendix A.1.2).

    N steps, M tokens of the memory of width E, a state of h, k hidden units of the alignment.

        keys          M·E·k MACs: U h_j for all tokens, once for all steps
        query         N·h·k MACs
        add, tanh     N·M·k elements
        energies      N·M·k MACs, N·M entries
        softmax       N·M elements
        weighted_sum  N·M·E MACs

    With a `gate`, c_t is multiplied by β_t = σ(w·s_{t-1} + b), h MACs per step (Xu et al. 2015, §4.2.1).
    """

    hidden: Width
    """Width k of the alignment's hidden layer (Bahdanau et al. 2015, appendix A.1.2)."""
    bias: bool = False
    """Whether U h_j and the energies have biases."""
    gate: bool = False
    """Whether the context c_t is multiplied by a gate β_t of the state (Xu et al. 2015, §4.2.1)."""

    def operations(self, place: Place, units: Number, *, learned: bool) -> Iterator[Operation]:
        """Rows of all steps, without the keys. Is the first state `learned`, or zeros?"""
        n, m, width = place.grid.total, _memory_tokens(place), place.memory_dim
        pairs = n * m
        mixing: dict[str, Any] = {"mixing": "global", "reads": "M", "reads_tokens": m, "content_dependent": True}
        query = linear("query", "Alignment: map of the state", n, units, self.hidden, bias=False)
        yield of_states(_learned(query, n, learned), n, units, new=n - 1 if learned else n)
        tensors = _asked(n, pairs, self.hidden)
        yield elementwise("add", "Alignment: query + key", "add", pairs * self.hidden, tensors=tensors, **mixing)
        yield elementwise("tanh", "Alignment: tanh", "tanh", pairs * self.hidden, **mixing)
        energies = linear("energies", "Alignment energies", pairs, self.hidden, 1, bias=self.bias)
        # one step's are alive at once; training saves all
        energy_facts = {"attention_entries": pairs, "matrix": Matrix(pairs, m), "pairs": pairs, "heads": 1}
        yield msgspec.structs.replace(energies, **energy_facts, **static_weights(mixing))
        yield elementwise(
            "softmax", "Softmax", "softmax", pairs, matrix=Matrix(pairs, 2 * m, pairs), symbol="softmax", **mixing
        )
        read = product(Tensor("softmax", (pairs,)), Tensor(MEMORY, (pairs, width)), (n, width))
        yield matmul("weighted_sum", "Weighted sum: context", pairs * width, symbol="AV", tensors=read, **mixing)
        if self.gate:
            gate = linear("gate_linear", "Gate: map of the state", n, units, 1)
            yield of_states(_learned(gate, n, learned), n, units)
            yield elementwise("gate_sigmoid", "Gate: sigmoid", "sigmoid", n)
            gated = product(Tensor("weighted_sum", (n, width)), Tensor("gate_sigmoid", (n,)), (n, width))
            yield elementwise("gate_multiply", "Gate the context", "multiply", n * width, tensors=gated)

    def keys(self, place: Place) -> Operation:
        """U h_j."""
        m, width = _memory_tokens(place), place.memory_dim
        return of_grid(linear("keys", "Alignment: keys", m, width, self.hidden, bias=self.bias), MEMORY, m, width)

    def cached_memory(self, place: Place) -> Operation:
        """The cache of U h_j and h_j, which every decode step reads."""
        cached = _memory_tokens(place) * (self.hidden + place.memory_dim)
        return Operation(path="cache", title="Cached keys and tokens of the memory", cache=Cached(cached))


def _asked(steps: Number, pairs: Number, width: Number) -> Tensors:
    """Every step's query plus all keys."""
    reads = (Tensor("query", (steps, width)), Tensor("keys", (pairs, width)))
    return Tensors(reads, (Tensor(OUTPUT, (pairs, width)),))


def _learned(row: Operation, steps: Number, learned: bool) -> Operation:
    """A map of the previous states; a first state of zeros needs no gradient."""
    return row if learned else msgspec.structs.replace(row, backward_macs=2 * row.macs - row.macs // steps)


class Maxout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="maxout"):
    """The larger of every two of 2·l numbers U s_{t-1} + V x_t + C c_t (Bahdanau et al. 2015, appendix A.2.2)."""

    reads_state_before: ClassVar[bool] = True

    hidden: Width
    """Outputs l; 2·l numbers are computed, and the larger of every two is the output."""

    def out(self, place: Place) -> Number:
        """Output width."""
        return self.hidden

    def operations(self, place: Place, units: Number, *, bias: bool) -> Iterator[Operation]:
        """N·(h + d + E)·2l MACs, 2·2·l·N additions, 2·l·N comparisons."""
        n, outputs = place.grid.total, 2 * self.hidden
        state = linear("readout_state", "Readout: map of the state", n, units, outputs, bias=bias)
        yield reading(saving_copies(state, seen_states(n, units)), "join")
        of_input = on_raw_input(linear("readout_input", "Readout: map of the input", n, place.dim, outputs, bias=False))
        yield of_grid(of_input, INPUT, n, place.dim)
        context = linear("readout_context", "Readout: map of the context", n, place.memory_dim, outputs, bias=False)
        yield reading(context, CONTEXTS)
        yield _sum(n * outputs, "readout_input")
        yield maximum("readout_maxout", "Readout: maxout", n * outputs, tensors=_larger_of_two(n * outputs))


class Sum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="sum"):
    """tanh(x_t + L s_t + Z c_t), as wide as the input (Xu et al. 2015, equation 7; the tanh: their public code)."""

    reads_state_before: ClassVar[bool] = False

    def out(self, place: Place) -> Number:
        """Output width."""
        return place.dim

    def operations(self, place: Place, units: Number, *, bias: bool) -> Iterator[Operation]:
        """N·(h + E)·d MACs, 2·d·N additions, d·N elements of tanh."""
        n, d = place.grid.total, place.dim
        yield linear("readout_state", "Readout: map of the state", n, units, d, bias=bias)
        context = linear("readout_context", "Readout: map of the context", n, place.memory_dim, d, bias=bias)
        yield reading(context, CONTEXTS)
        yield _sum(n * d, INPUT)
        yield elementwise("readout_tanh", "Readout: tanh", "tanh", n * d)


Readout = Maxout | Sum


def _sum(elements: Number, of_input: str) -> Operation:
    """The sum of three terms; `of_input` is that of the input."""
    tensors = copied((elements,), (elements,), of_input, "readout_state", "readout_context")
    flops = elements * 2 * FLOPS_PER_ELEMENT["add"]
    return Operation(path="readout_add", title="Readout: sum", flops=flops, tensors=tensors)


def _larger_of_two(elements: Number) -> Tensors:
    """A maximum saves what it compares and what it finds."""
    found = Tensor(OUTPUT, (elements // 2,))
    return Tensors((Tensor(BEFORE, (elements,)),), (found,), (Saved(BEFORE), Saved(OUTPUT)))


def _memory_tokens(place: Place) -> Number:
    return 0 if place.memory is None else place.memory.total


Start = Literal["zeros", "encoder", "backwards", "mean"]


def first_state(start: Start, place: Place, numbers: Number, *, bias: bool) -> Iterator[Operation]:
    """The decoder's first state of `numbers` elements, from the memory: tanh(W h + b).

    backwards   h is the encoder's backward state at the first token (Bahdanau et al. 2015, A.2.2)
    mean        h is the mean of all tokens (Xu et al. 2015, §3.1.2)
    """
    if start not in {"backwards", "mean"}:
        return
    width, m = place.memory_dim, _memory_tokens(place)
    mixing: dict[str, Any] = {"mixing": "global", "reads": "M", "reads_tokens": m}
    if start == "mean":
        mean = copied((m, width), (width,), MEMORY)
        yield elementwise("start_mean", "First state: mean of the memory", "mean", m * width, tensors=mean, **mixing)
    else:
        taken = view((m, width), (width // 2,), MEMORY)
        width //= 2
        yield move("start_take", "First state: backward half of the first token", tensors=taken)
    yield linear("start_linear", "First state: map", 1, width, numbers, bias=bias)
    yield elementwise("start_tanh", "First state: tanh", "tanh", numbers)


def check_attend(component: Recurrent, place: Place) -> None:
    """Raise ComponentError where a recurrent layer can't attend to the encoder."""
    if place.memory is None:
        raise ComponentError("attend", "reads an encoder's output, and the spec has no `encoder:`")
    if component.bidirectional:
        raise ComponentError("bidirectional", "every step attends with the state before it; use one direction")
    if component.start == "encoder":
        raise ComponentError("start", "with `attend`, expected zeros, backwards or mean")
    if component.start == "backwards" and place.memory_dim % 2:
        raise ComponentError("start", f"the encoder's backward half needs an even width, got {place.memory_dim}")
    if component.readout is not None and component.hidden is None:
        raise ComponentError("hidden", "with a `readout`, give the state's width")
