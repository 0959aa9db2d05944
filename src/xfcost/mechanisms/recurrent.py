"""Recurrent layers: a state of constant size, updated token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import (
    ComponentError,
    Grid,
    Mixer,
    Number,
    Observed,
    Operation,
    Place,
    Sources,
    Width,
    single_token,
    tag_of,
)
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.rows import (
    decode_step,
    elementwise,
    linear,
    matmul,
    maximum,
    move,
    on_raw_input,
    precomputed_in_decode,
    state_write,
    static_weights,
)
from xfcost.formulas.tensors import copied, of_grid, product, reading, saving_copies, view
from xfcost.ledger.accounts import Cached
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.tensors import (
    BEFORE,
    INPUT,
    MEMORY,
    OUTPUT,
    Saved,
    Tensor,
    Tensors,
    merged_heads,
    of_encoder,
)

# What autograd saves of a recurrence: numbers of every step, and the states between the steps ────────────────────────
# With attention, every step runs by itself: its state is copied out of it, and the query's map saves the copy.


CELLS: Final = "cells"
"""The last cells of an LSTM."""
CONTEXTS: Final = "contexts"
"""The contexts of all steps, joined."""
STATES: Final = "states"
"""The states before all steps."""


def of_states(row: Operation, steps: Number, units: Number, *, learned: bool, new: Number | None = None) -> Operation:
    """`row`, a map of the states before all steps, which it saves; the first is `learned`, or zeros without a gradient.

    The first map is given the `new` ones: each step leaves one, and the first may be a tensor that is saved already.
    """
    backward_macs = None if learned else 2 * row.macs - row.macs // steps
    between = () if new is None else (Tensor(STATES, (new, units)),)
    row = reading(row, reads=(Tensor(STATES, (steps, units)),), saves=(Saved(STATES),), between=between)
    return msgspec.structs.replace(row, backward_macs=backward_macs)


class Recurrent(Mixer, frozen=True, kw_only=True):
    """s_t = cell(x_t, s_{t-1}), in N sequential steps.

    N tokens of width d, h hidden units, g gates (1, 4 or 3). The input's map runs for all tokens at
    once, the state's map step by step.

        input, forwards_input, backwards_input  N·d·g·h MACs, g·(d + β)·h parameters each, where it reads so
        recurrence, forwards_recurrence, backwards_recurrence  N·h·g·h MACs, g·(h + β)·h parameters each, likewise where
                     it reads so, and the cell's FLOPs
        context      N·E·g·h MACs, E·g·h parameters, with `attend`: the memory's width is E

    β is 1 where there is a `bias`, else 0. Each map has one of its own, as in torch.nn.RNN, LSTM and GRU.
    `bidirectional` adds a second layer that reads from the last token to the first, and concatenates both outputs
    (Schuster and Paliwal 1997): width 2·h, twice the cost. A token reads all earlier tokens (or all) through a state of
    constant size.
    """

    takes_state: ClassVar[bool] = True

    gates: ClassVar[int]
    states: ClassVar[str] = "h"
    """States, one letter each: `h`, and an LSTM's `c`."""
    saves_state: ClassVar[bool] = False
    """Is the new state among the numbers that a step saves (`saved_in_step`)?"""

    hidden: Width | None = None
    """Hidden units h; by default what makes the output as wide as the stage."""
    bidirectional: bool = False
    """Whether a second network reads the tokens from the last to the first."""
    bias: bool = True
    """Whether both linear maps have biases."""
    start: Start = "zeros"
    """First state: zeros, the encoder's last (`encoder`), or a map of its backward state (`backwards`) or of its mean
    (`mean`)."""
    attend: Additive | None = None
    """Attention over the encoder's tokens in every step, whose context joins the input; none by default."""
    readout: Readout | None = None
    """Output computed from state, input and context, with `attend`; the state by default."""

    @property
    def widens(self) -> bool:
        return True

    @property
    def reads_memory(self) -> bool:
        return self.start == "encoder" or self.attend is not None

    @property
    def causality(self) -> Literal["none", "exact"]:
        return "none" if self.bidirectional else "exact"

    @property
    def directions(self) -> int:
        """Number of directions."""
        return 2 if self.bidirectional else 1

    def units(self, place: Place) -> Number:
        """h, of each direction."""
        return place.out_dim // self.directions if self.hidden is None else self.hidden

    def work(self) -> int:
        """FLOPs of the cell per hidden unit and step, without both maps and their biases."""
        return FLOPS_PER_ELEMENT[tag_of(type(self))]

    def saved_in_step(self) -> int:
        """Numbers that autograd saves per hidden unit and step, beside the states before the step."""
        raise NotImplementedError

    def check(self, place: Place) -> None:
        if self.hidden is None and place.out_dim % self.directions:
            raise ComponentError(
                "bidirectional",
                f"two directions share the width; expected an even one, got {place.out_dim}: give `hidden`",
            )
        if self.attend is not None:
            check_attend(self, place)
        elif self.readout is not None or self.start in {"backwards", "mean"}:
            raise ComponentError(
                "readout" if self.readout else "start", "needs attention over the encoder; give `attend`"
            )
        elif self.start == "encoder" and place.memory is None:
            raise ComponentError("start", "the spec has no `encoder:`; use zeros")

    def label(self) -> str:
        name = tag_of(type(self)).upper()
        if self.attend is not None:
            return f"{name} with attention"
        return f"Bidirectional {name}" if self.bidirectional else name

    def out(self, place: Place) -> tuple[Grid, Number]:
        return place.grid, self.directions * self.units(place) if self.readout is None else self.readout.out(place)

    def reads(self, grid: Grid, token: int, memory: Grid | None = None) -> Sequence[int]:
        """With `attend`, the encoder's tokens; it also reads the earlier tokens, through the state."""
        if self.attend is not None:
            return range(memory.total if memory else 0)
        return super().reads(grid, token, memory)

    def sources(self, place: Place) -> Sources:
        """Its own stream's tokens through the state; all of the encoder's, attended to or as its last state."""
        grid, memory = place.grid, place.memory
        own = Sources(lambda token: Mixer.reads(self, grid, token), whole=self.bidirectional)
        if self.reads_memory and memory is not None:
            return own._replace(memory=lambda token: range(memory.total))
        return own

    def pairs(self, grid: Grid, memory: Grid | None = None) -> Number:
        if self.attend is not None:
            return grid.total * (memory.total if memory else 0)
        return super().pairs(grid, memory)

    def observed(self, place: Place) -> Observed:
        asks = "it asks with the state of the step before: what it reads is counted for that step's token"
        names = ("add_context", "recurrence", "readout_context", "readout_add", "readout_tanh") if self.attend else ()
        return Observed(left_out=dict.fromkeys(names, asks))

    def operations(self, place: Place) -> Iterator[Operation]:
        if self.attend is not None:
            yield from self._attending(place, self.attend)
            return
        if not self.bidirectional:
            yield from self._one_way(place)
            return
        yield from self._one_way(place, "forwards_", " (forwards)")
        yield from self._one_way(place, "backwards_", " (backwards)")
        n, units = place.grid.total, self.units(place)
        both = copied((n, units), (n, 2 * units), "forwards_recurrence", "backwards_recurrence")
        yield move("join", "Join both directions", n * 2 * units, tensors=both)

    def step(self, place: Place) -> Iterator[Operation]:
        """One step from the previous state; the encoder's keys are cached."""
        yield from decode_step(self.operations(single_token(place)), place.grid.total)
        yield state_write("State for the next token", len(self.states) * self.units(place))

    def _one_way(self, place: Place, prefix: str = "", title_suffix: str = "") -> Iterator[Operation]:
        n, units = place.grid.total, self.units(place)
        gates = self.gates * units
        mapped = linear(f"{prefix}input", f"Input map{title_suffix}", n, place.dim, gates, bias=self.bias)
        yield of_grid(on_raw_input(mapped), INPUT, n, place.dim)
        recurrent_map = linear(f"{prefix}recurrence", "", n, units, gates, bias=self.bias)
        yield Operation(
            path=recurrent_map.path,
            title=f"Recurrence over tokens{title_suffix}",
            params=recurrent_map.params,
            macs=recurrent_map.macs,
            flops=recurrent_map.flops + n * units * self.work(),
            moved=n * units,
            mixing="global",
            reads="N",
            reads_tokens=n,
            content_dependent=True,
            backward_macs=2 * recurrent_map.macs - self._without_gradient(units),
            sequential=n,
            tensors=self._tensors(place, prefix),
        )

    def _tensors(self, place: Place, prefix: str) -> Tensors:
        """What the recurrence reads, writes and saves: the numbers of every step, and the states before it."""
        n, units, states = place.grid.total, self.units(place), len(self.states)
        gates, made = Tensor(BEFORE, (n, self.gates * units)), n * self.saved_in_step()
        if self.attend is not None:
            # one step after the other: the query's map saves h, and cells are saved but the first, made with its h
            made += (n - 1) * (states - 1)
            # zeros are one tensor for h and cells
            asked = n * states - (states - 1 if self.start == "zeros" else 0)
            writes = (Tensor(OUTPUT, (n, units)), Tensor("last", (n * states, units)))
            return Tensors((gates, Tensor(STATES, (asked, units))), writes, makes=(Tensor("steps", (made, units)),))
        made += 0 if self.saves_state else (n - 1) * states
        # the first states are those of the encoder's layer, views of its output, and its cells; or zeros made here
        of_state, cells = (units,), f"{prefix}{CELLS}"
        given: tuple[str, ...] = ()
        if self.start == "encoder":
            given = tuple(of_encoder(name) for name in (f"{prefix}recurrence", cells)[:states])
        else:
            made += states
        reads = (gates, *(Tensor(name, of_state) for name in given))
        last = (Tensor(f"{prefix}last", of_state), Tensor(cells, of_state))[:states]
        saves = tuple(Saved(name) for name in given)
        return Tensors(reads, (Tensor(OUTPUT, (n, units)), *last), saves, (Tensor("steps", (made, units)),))

    def _without_gradient(self, units: Number) -> Number:
        """MACs that the backward pass omits in the first step, whose state of zeros has no gradient."""
        return self.gates * units * units if self.start == "zeros" else 0

    def _attending(self, place: Place, attend: Additive) -> Iterator[Operation]:
        """Rows with attention: keys, first state and input map, the steps, the output."""
        n, units = place.grid.total, self.units(place)
        # every decode step reads U h_j and h_j
        cached = Cached(_memory_tokens(place) * (attend.hidden + place.memory_dim), cross_attention=True)
        memory = Operation(path="cache", title="Cached keys and tokens of the memory", cache=cached)
        yield precomputed_in_decode(attend.keys(place), memory)
        yield from map(precomputed_in_decode, first_state(self.start, place, len(self.states) * units, bias=self.bias))
        mapped, recurrence = self._one_way(place)
        yield mapped
        yield from attend.operations(place, units, learned=self.start != "zeros")
        gates = self.gates * units
        yield linear("context", "Map of the context", n, place.memory_dim, gates, bias=False)
        yield elementwise("add_context", "Add the context to the input", "add", n * gates, of=("input", "context"))
        yield recurrence
        yield self._joined(place)
        if self.readout is not None:
            yield from self.readout.operations(place, units, bias=self.bias)

    def _joined(self, place: Place) -> Operation:
        """The states of all steps, and for a readout the contexts."""
        n, units, width, readout = place.grid.total, self.units(place), place.memory_dim, self.readout
        before = readout is not None and readout.reads_state_before
        moved = (n + 1 if before else n) * units + (0 if readout is None else n * width)
        # States and contexts of all steps, joined; of N + 1 states, the one `before` each step is seen. The leaf is
        # given N + 1 states and the contexts, whatever it joins.
        reads = (Tensor("recurrence", (n + 1, units)), Tensor("weighted_sum", (n, width)))
        states = Tensor(OUTPUT, (n, units), storage=(n + 1) * units if before else None)
        joined = (Tensor(CONTEXTS, (n, width)),) if readout is not None else ()
        tensors = Tensors(reads, (states, *joined))
        return move("join", "Join the steps", moved, in_decode=(), tensors=tensors)

    def notes(self, place: Place) -> Iterator[str]:
        n, units = place.grid.total, self.units(place)
        numbers = len(self.states) * self.directions * units
        encoder_note = ", beside which every step reads the encoder's tokens" if self.attend else ""
        yield (
            f"{n:,} sequential steps per recurrent layer; what was read is carried in a state of {numbers:,} "
            f"numbers, whatever N is{encoder_note}"
        )


# Additive attention in a recurrent decoder: every step attends to the encoder's tokens with its previous state.


class Additive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="additive"):
    """e_tj = v·tanh(W s_{t-1} + U h_j), their softmax over j, c_t = Σ α_tj h_j (Bahdanau et al. 2015, appendix A.1.2).

    N steps, M tokens of the memory of width E, a state of h, k hidden units of the alignment.

        keys          M·E·k MACs, (E + β')·k parameters: U h_j for all tokens, once for all steps
        query         N·h·k MACs, h·k parameters
        add           N·M·k additions
        tanh          N·M·k elements
        energies      N·M·k MACs, N·M entries, k + β' parameters
        softmax       N·M elements
        weighted_sum  N·M·E MACs
        gate_linear   N·h MACs, h + 1 parameters, with a `gate`

    β' is 1 where the alignment has biases, else 0. With a `gate`, c_t is multiplied by β_t = σ(w·s_{t-1} + b), h MACs
    per step (Xu et al. 2015, §4.2.1).
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
        yield of_states(query, n, units, learned=learned, new=n - 1 if learned else n)
        reads = (Tensor("query", (n, self.hidden)), Tensor("keys", (pairs, self.hidden)))
        tensors = Tensors(reads, (Tensor(OUTPUT, (pairs, self.hidden)),))
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
            yield of_states(gate, n, units, learned=learned)
            yield elementwise("gate_sigmoid", "Gate: sigmoid", "sigmoid", n)
            gated = product(Tensor("weighted_sum", (n, width)), Tensor("gate_sigmoid", (n,)), (n, width))
            yield elementwise("gate_multiply", "Gate the context", "multiply", n * width, tensors=gated)

    def keys(self, place: Place) -> Operation:
        """U h_j."""
        m, width = _memory_tokens(place), place.memory_dim
        return of_grid(linear("keys", "Alignment: keys", m, width, self.hidden, bias=self.bias), MEMORY, m, width)


class Maxout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="maxout"):
    """The larger of every two of 2·l numbers U s_{t-1} + V x_t + C c_t (Bahdanau et al. 2015, appendix A.2.2).

    readout_state    N·h·2l MACs, (h + β)·2l parameters
    readout_input    N·d·2l MACs, d·2l parameters
    readout_context  N·E·2l MACs, E·2l parameters
    readout_add      2·N·2l additions
    readout_maxout   N·2l comparisons
    """

    reads_state_before: ClassVar[bool] = True

    hidden: Width
    """Outputs l; 2·l numbers are computed, and the larger of every two is the output."""

    def out(self, place: Place) -> Number:
        """Output width."""
        return self.hidden

    def operations(self, place: Place, units: Number, *, bias: bool) -> Iterator[Operation]:
        """Rows of all steps."""
        n, outputs = place.grid.total, 2 * self.hidden
        state = linear("readout_state", "Readout: map of the state", n, units, outputs, bias=bias)
        # N of N + 1 joined states: a map of them merges steps and batch
        yield reading(saving_copies(state, merged_heads((n, units), n, units)), "join")
        of_input = on_raw_input(linear("readout_input", "Readout: map of the input", n, place.dim, outputs, bias=False))
        yield of_grid(of_input, INPUT, n, place.dim)
        context = linear("readout_context", "Readout: map of the context", n, place.memory_dim, outputs, bias=False)
        yield reading(context, CONTEXTS)
        yield _sum(n * outputs, "readout_input")
        # A maximum saves what it compares and what it finds
        found = Tensor(OUTPUT, (n * self.hidden,))
        tensors = Tensors((Tensor(BEFORE, (n * outputs,)),), (found,), (Saved(BEFORE), Saved(OUTPUT)))
        yield maximum("readout_maxout", "Readout: maxout", n * outputs, tensors=tensors)


class Sum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="sum"):
    """tanh(x_t + L s_t + Z c_t), as wide as the input (Xu et al. 2015, equation 7; the tanh: their public code).

    readout_state    N·h·d MACs, (h + β)·d parameters
    readout_context  N·E·d MACs, (E + β)·d parameters
    readout_add      2·N·d additions
    readout_tanh     N·d elements of tanh
    """

    reads_state_before: ClassVar[bool] = False

    def out(self, place: Place) -> Number:
        """Output width."""
        return place.dim

    def operations(self, place: Place, units: Number, *, bias: bool) -> Iterator[Operation]:
        """Rows of all steps."""
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


def _memory_tokens(place: Place) -> Number:
    return 0 if place.memory is None else place.memory.total


Start = Literal["zeros", "encoder", "backwards", "mean"]


def first_state(start: Start, place: Place, numbers: Number, *, bias: bool) -> Iterator[Operation]:
    """The decoder's first state of `numbers` elements, from the memory: tanh(W h + b).

    start_linear  E/2·s MACs, (E/2 + β)·s parameters for `backwards`: h is the encoder's backward state at the first
                  token (Bahdanau et al. 2015, A.2.2); E·s MACs, (E + β)·s parameters for `mean`: h is the mean of all
                  tokens (Xu et al. 2015, §3.1.2); s numbers, E wide
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


class Rnn(Recurrent, frozen=True, kw_only=True, tag="rnn"):
    """h_t = act(W x_t + b + U h_{t-1} + b') (Elman 1990), as torch.nn.RNN: one gate."""

    gates: ClassVar[int] = 1
    saves_state: ClassVar[bool] = True

    act: Literal["tanh", "relu"] = "tanh"
    """Activation function of the cell."""

    def work(self) -> int:
        return FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT[self.act]

    def saved_in_step(self) -> int:
        """The activation's output."""
        return 1


class Lstm(Recurrent, frozen=True, kw_only=True, tag="lstm"):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; forget gates: Gers et al. 2000), as torch.nn.LSTM.

    i, f, o = σ(W x_t + b + U h_{t-1} + b'), g likewise with tanh; c_t = f∘c_{t-1} + i∘g, h_t = o∘tanh(c_t). The state
    is h and c; 27 FLOPs per hidden unit and step in addition to the maps.
    """

    gates: ClassVar[int] = 4
    states: ClassVar[str] = "hc"

    def saved_in_step(self) -> int:
        """Four gates and tanh(c_t)."""
        return 5


class Gru(Recurrent, frozen=True, kw_only=True, tag="gru"):
    """Gated recurrent unit (Cho et al. 2014), as torch.nn.GRU: h_t = (1 - z)∘n + z∘h_{t-1}.

    r, z = σ(W x_t + b + U h_{t-1} + b'). `reset: after` the state's map: n = tanh(W x_t + b + r∘(U h_{t-1} + b')), one
    product per step; `before` it: n = tanh(W x_t + b + U (r∘h_{t-1}) + b'), as in both papers of 2014, two that wait
    for each other. The same work: 18 FLOPs per hidden unit and step in addition to the maps.
    """

    gates: ClassVar[int] = 3

    reset: Literal["after", "before"] = "after"
    """Whether the reset gate acts after the state's linear map (cuDNN, torch) or before it (Cho et al. 2014)."""

    def _without_gradient(self, units: Number) -> Number:
        """With the reset before its map, the third gate multiplies r∘h, and r has a gradient."""
        return super()._without_gradient(units) * (2 if self.reset == "before" else 3) // 3

    def saved_in_step(self) -> int:
        """r, z, n, the difference of h_{t-1} and n; and what r multiplies or has multiplied.

        That is the map of the state for all three gates, or r∘h_{t-1}.
        """
        return 7 if self.reset == "after" else 5
