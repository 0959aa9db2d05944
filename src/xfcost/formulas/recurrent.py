"""Recurrent layers: a state of constant size, updated token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from xfcost.formulas.additive_attention import Additive, Readout, Start, check_attend, first_state
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
    move,
    on_raw_input,
    precomputed_in_decode,
    state_write,
)
from xfcost.formulas.state_tensors import Steps, joined_steps, recurrent, recurrent_in_attention
from xfcost.formulas.tensors import copied, of_grid
from xfcost.ledger.tensors import INPUT, Tensors


class Recurrent(Mixer, frozen=True, kw_only=True):
    """s_t = cell(x_t, s_{t-1}), in N sequential steps.

    N tokens of width d, h hidden units, g gates (1, 4 or 3). The input's map runs for all tokens at
    once, the state's map step by step.

        input        N·d·g·h MACs, g·(d·h + h) parameters
        recurrence   N·h·g·h MACs, g·(h² + h) parameters, N·h elements of the cell

    Each map has a bias of its own, as in torch.nn.RNN, LSTM and GRU. `bidirectional` adds a second layer that
    reads from the last token to the first, and concatenates both outputs (Schuster and Paliwal 1997): width 2·h, twice
    the cost. A token reads all earlier tokens (or all) through a state of constant size.
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
        """What the recurrence reads, writes and saves."""
        units = self.units(place)
        numbers = (self.gates * units, len(self.states), self.saved_in_step())
        steps = Steps(place.grid.total, units, *numbers, saves_state=self.saves_state)
        if self.attend is not None:
            return recurrent_in_attention(steps, self.start)
        return recurrent(steps, prefix, self.start)

    def _without_gradient(self, units: Number) -> Number:
        """MACs that the backward pass omits in the first step, whose state of zeros has no gradient."""
        return self.gates * units * units if self.start == "zeros" else 0

    def _attending(self, place: Place, attend: Additive) -> Iterator[Operation]:
        """Rows with attention: keys, first state and input map, the steps, the output."""
        n, units = place.grid.total, self.units(place)
        yield precomputed_in_decode(attend.keys(place), attend.cached_memory(place))
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
        tensors = joined_steps(n, units, width, before=before, contexts=readout is not None)
        return move("join", "Join the steps", moved, in_decode=(), tensors=tensors)

    def notes(self, place: Place) -> Iterator[str]:
        n, units = place.grid.total, self.units(place)
        numbers = len(self.states) * self.directions * units
        encoder_note = ", beside which every step reads the encoder's tokens" if self.attend else ""
        yield (
            f"{n:,} sequential steps per recurrent layer; what was read is carried in a state of {numbers:,} "
            f"numbers, whatever N is{encoder_note}"
        )
