"""Recurrent layers: a state of constant size, updated token by token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from xfcost.formulas.component import ComponentError, Grid, Mixer, Number, Observed, Place, Sources, Width, tag_of
from xfcost.formulas.mixers import global_mixing, state_note
from xfcost.program.functions import added, beside, joined, mean, multiplied, product
from xfcost.program.leaves import Weight, Worked
from xfcost.program.operations import Functions, Operations
from xfcost.program.symbolic import Tensor

State = Sequence[Tensor]


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

    widens: ClassVar[bool] = True
    decodes: ClassVar[bool] = True
    continues: ClassVar[bool] = True
    takes_state: ClassVar[bool] = True
    titles: ClassVar[Mapping[str, str]] = {
        "input": "Input map",
        "recurrence": "Recurrence over tokens",
        "context": "Map of the context",
        "add_context": "Add the context to the input",
    }

    gates: ClassVar[int]
    states: ClassVar[str] = "h"
    """States, one letter each: `h`, and an LSTM's `c`."""

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

    @property
    def loop(self) -> str:
        """The loop over the tokens (`program/loops.py`)."""
        return tag_of(type(self))

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

    def forward(self, t: Operations, x: Tensor, place: Place, *memory: Tensor) -> Tensor:
        if self.attend is not None:
            return self._attending(t, self.attend, x, place, *memory)
        if self.bidirectional:
            ways = [
                self._along(t.part(way, way), x, place, number) for number, way in enumerate(("forwards", "backwards"))
            ]
            t.hand_over(*(state for _, state in ways))
            return t.leaf("join", beside, *(y for y, _ in ways), title="Join both directions")
        y, state = self._along(t, x, place)
        if t.decodes:
            t.keep("state", *state)
        t.hand_over(state)
        return y

    def _along(self, t: Operations, x: Tensor, place: Place, number: int = 0) -> tuple[Tensor, State]:
        """One direction, and its last state."""
        x = t.linear("input", x, self.gates * self.units(place), bias=self.bias)
        start: State = ()
        if self.start == "encoder":
            taken = t.computed_before(lambda: t.handed_over(number, self._shapes(place)))
            start = t.started("state", taken) if t.decodes else taken
        elif t.decodes:
            start = t.state("state", *self._shapes(place))
        return self._recurrence(t, x, start, place, reverse=number == 1)

    def _shapes(self, place: Place) -> tuple[tuple[Number], ...]:
        return ((self.units(place),),) * len(self.states)

    def _recurrence(
        self, t: Operations, x: Tensor, start: State, place: Place, *, reverse: bool = False
    ) -> tuple[Tensor, State]:  # fmt: skip
        """The cells over tokens whose input is mapped: (B, N, G) -> (B, N, H), and the last state."""
        units = self.units(place)
        gates = self.gates * units
        shapes: dict[str, tuple[Number, ...]] = {"weight": (gates, units)} | ({"bias": (gates,)} if self.bias else {})
        weights = [
            Weight(shape, Worked("recurrence:cell_weights", {"units": units, "shape": shape}), name)
            for name, shape in shapes.items()
        ]
        options = {"loop": self.loop, "states": len(self.states), "bias": self.bias, "reverse": reverse}
        tokens = 1 if t.decodes else place.grid.total
        facts = global_mixing(place.grid.total) | {"sequential": tokens}
        y, *state = t.leaf("recurrence", recurred, x, *start, weights=weights, options=options, **facts)
        return y, state

    def _attending(
        self, t: Operations, attend: Additive, x: Tensor, place: Place, memory: Tensor
    ) -> Tensor:  # fmt: skip
        """Each step attends to the memory with the state before it."""
        units, readout, shapes = self.units(place), self.readout, self._shapes(place)
        keys, memory = t.of_memory(
            "cache", lambda: (attend.keys(t, memory), memory), "Cached keys and tokens of the memory"
        )
        state = t.computed_before(lambda: self._first_state(t, memory, units))
        if t.decodes:
            state = t.started("state", state) if state else t.state("state", *shapes)
        mapped = t.linear("input", x, self.gates * units, bias=self.bias)

        def step(x: Tensor, state: State) -> tuple[tuple[Tensor, ...], State]:
            """The states and contexts of T tokens that attend with the same state, and the next state."""
            asking = state[0].unsqueeze(1).expand(-1, x.shape[1], -1)
            context = attend.forward(t, asking, keys, memory, place)
            of_context = t.linear("context", context, self.gates * units, bias=False)
            y, state = self._recurrence(t, t.leaf("add_context", added, x, of_context), state, place)
            return (y, context), state

        before = [state[0].unsqueeze(1)] if readout is not None and readout.reads_state_before else []
        if t.decodes:
            (y, context), state = step(mapped, state)
            read = before[0] if before else y
        else:
            (states, contexts), state = t.each_token(step, mapped, state)
            # of N + 1 states, the one before each step is read
            y = read = t.leaf("join", joined, *before, *states, title="Join the steps").narrow(1, 0, mapped.shape[1])
            context = y if readout is None else t.leaf("join", joined, *contexts)
        if readout is not None:
            y = readout.forward(t, x, read, context, bias=self.bias)
        if t.decodes:
            t.keep("state", *state)
        return y

    def _first_state(self, t: Operations, memory: Tensor, units: Number) -> State:
        """The state before the first step: computed from the memory, or zeros."""
        if self.start in {"backwards", "mean"}:
            return first_state(t, self.start, memory, len(self.states) * units, bias=self.bias).chunk(
                len(self.states), dim=-1
            )
        return () if t.decodes else (t.zeros(memory.shape[0], units, like=memory),) * len(self.states)

    def notes(self, place: Place) -> Iterator[str]:
        numbers = len(self.states) * self.directions * self.units(place)
        among = ", and reads the encoder's tokens" if self.attend else ""
        yield state_note(numbers, place.grid.total, among)


def recurred(
    t: Functions, x: Tensor, *rest: Tensor, loop: str, states: int, bias: bool, reverse: bool
) -> tuple[Tensor, ...]:
    """(B, N, G), first states (B, H) or none, weights (G, H) and bias (G,) -> (B, N, H), and the last states."""
    *start, weight = rest[:-1] if bias else rest
    of_gates = rest[-1] if bias else None
    first: Sequence[Tensor | None] = start or [None] * states
    result = t.loop(loop, x, weight, of_gates, *first, reverse)
    y, *cells = result if isinstance(result, tuple) else (result,)
    return y, y.select(1, 0 if reverse else -1), *cells


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

    def forward(self, t: Operations, state: Tensor, keys: Tensor, memory: Tensor, place: Place) -> Tensor:
        """States (B, T, H), keys (B, M, K), memory (B, M, E) -> contexts (B, T, E); facts are those of all steps."""
        m: Number = 0 if place.memory is None else place.memory.total
        pairs = (1 if t.decodes else place.grid.total) * m
        static: dict[str, Any] = {"mixing": "global", "reads": "M", "reads_tokens": m}
        mixing = static | {"content_dependent": True}
        asked = t.linear("query", state, self.hidden, bias=False, title="Alignment: map of the state")
        both = t.leaf("add", added_keys, asked, keys, title="Alignment: query + key", **mixing)
        both = t.act("tanh", both, "tanh", title="Alignment: tanh", **mixing)
        facts = {"attention_entries": pairs, "matrix": True, "pairs": pairs, "heads": 1}
        energies = t.linear("energies", both, 1, bias=self.bias, title="Alignment energies", **facts, **static)
        facts = {"matrix": True, "symbol": "softmax", "title": "Softmax"}
        weights = t.act("softmax", energies.squeeze(-1), "softmax", **facts, **mixing)
        facts = {"symbol": "AV", "title": "Weighted sum: context"}
        context = t.leaf("weighted_sum", product, weights, memory, **facts, **mixing)
        if self.gate:
            gate = t.linear("gate.linear", state, 1, title="Gate: map of the state")
            gate = t.act("gate.sigmoid", gate, "sigmoid", title="Gate: sigmoid")
            context = t.leaf("gate.multiply", multiplied, context, gate, title="Gate the context")
        return context

    def keys(self, t: Operations, memory: Tensor) -> Tensor:
        """U h_j."""
        return t.linear("keys", memory, self.hidden, bias=self.bias, title="Alignment: keys")


def added_keys(t: Functions, query: Tensor, keys: Tensor) -> Tensor:
    """The sums of queries and keys: (B, T, K), (B, M, K) -> (B, T, M, K)."""
    return query.unsqueeze(2) + keys.unsqueeze(1)


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

    def forward(
        self, t: Operations, x: Tensor, state: Tensor, context: Tensor, *, bias: bool
    ) -> Tensor:  # fmt: skip
        """Inputs (B, N, D), states before each step (B, N, H), contexts (B, N, E) -> (B, N, L)."""
        outputs = 2 * self.hidden
        of_state = t.linear("readout.state", state, outputs, bias=bias, title="Readout: map of the state")
        of_x = t.linear("readout.input", x, outputs, bias=False, title="Readout: map of the input")
        of_context = t.linear("readout.context", context, outputs, bias=False, title="Readout: map of the context")
        y = t.leaf("readout.add", sum_of_three, of_state, of_x, of_context, title="Readout: sum")
        return t.leaf("readout.maxout", larger_of_two, y, title="Readout: maxout")


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

    def forward(
        self, t: Operations, x: Tensor, state: Tensor, context: Tensor, *, bias: bool
    ) -> Tensor:  # fmt: skip
        """Inputs (B, N, D), states (B, N, H), contexts (B, N, E) -> (B, N, D)."""
        width = x.shape[-1]
        of_state = t.linear("readout.state", state, width, bias=bias, title="Readout: map of the state")
        of_context = t.linear("readout.context", context, width, bias=bias, title="Readout: map of the context")
        y = t.leaf("readout.add", sum_of_three, x, of_state, of_context, title="Readout: sum")
        return t.act("readout.tanh", y, "tanh", title="Readout: tanh")


Readout = Maxout | Sum


def sum_of_three(t: Functions, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x + y + z."""
    return x + y + z


def larger_of_two(t: Functions, x: Tensor) -> Tensor:
    """The maximum of each pair of adjacent units: (B, N, 2·L) -> (B, N, L)."""
    return x.unflatten(-1, (-1, 2)).amax(-1)


Start = Literal["zeros", "encoder", "backwards", "mean"]


def first_state(t: Operations, start: Start, memory: Tensor, numbers: Number, *, bias: bool) -> Tensor:
    """The decoder's first state of `numbers` elements, from the memory: tanh(W h + b).

    start_linear  E/2·s MACs, (E/2 + β)·s parameters for `backwards`: h is the encoder's backward state at the first
                  token (Bahdanau et al. 2015, A.2.2); E·s MACs, (E + β)·s parameters for `mean`: h is the mean of all
                  tokens (Xu et al. 2015, §3.1.2); s numbers, E wide
    """
    if start == "mean":
        facts = {"mixing": "global", "reads": "M", "reads_tokens": memory.shape[1]}
        summary = t.leaf("start.mean", mean, memory, title="First state: mean of the memory", **facts)
    else:
        summary = t.leaf("start.take", backward_half, memory, title="First state: backward half of the first token")
    mapped = t.linear("start.linear", summary, numbers, bias=bias, title="First state: map")
    return t.act("start.tanh", mapped, "tanh", title="First state: tanh")


def backward_half(t: Functions, memory: Tensor) -> Tensor:
    """The encoder's backward output at the first token: (B, M, E) -> (B, E/2)."""
    half = memory.shape[-1] // 2
    return memory.select(1, 0).narrow(-1, half, half)


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

    act: Literal["tanh", "relu"] = "tanh"
    """Activation function of the cell."""

    @property
    def loop(self) -> str:
        return f"rnn_{self.act}"


class Lstm(Recurrent, frozen=True, kw_only=True, tag="lstm"):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; forget gates: Gers et al. 2000), as torch.nn.LSTM.

    i, f, o = σ(W x_t + b + U h_{t-1} + b'), g likewise with tanh; c_t = f∘c_{t-1} + i∘g, h_t = o∘tanh(c_t). The state
    is h and c; 27 FLOPs per hidden unit and step in addition to the maps.
    """

    gates: ClassVar[int] = 4
    states: ClassVar[str] = "hc"


class Gru(Recurrent, frozen=True, kw_only=True, tag="gru"):
    """Gated recurrent unit (Cho et al. 2014), as torch.nn.GRU: h_t = (1 - z)∘n + z∘h_{t-1}.

    r, z = σ(W x_t + b + U h_{t-1} + b'). `reset: after` the state's map: n = tanh(W x_t + b + r∘(U h_{t-1} + b')), one
    product per step; `before` it: n = tanh(W x_t + b + U (r∘h_{t-1}) + b'), as in both papers of 2014, two that wait
    for each other. The same work: 18 FLOPs per hidden unit and step in addition to the maps.
    """

    gates: ClassVar[int] = 3

    reset: Literal["after", "before"] = "after"
    """Whether the reset gate acts after the state's linear map (cuDNN, torch) or before it (Cho et al. 2014)."""

    @property
    def loop(self) -> str:
        return f"gru_reset_{self.reset}"
