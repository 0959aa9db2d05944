"""Recurrent networks, one of which may attend to a memory at each step (additive attention, with a readout).

B batch, N tokens, T steps side by side, D width, G numbers of all gates, H hidden units; M memory tokens of width E, K
of the alignment.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place, tag_of
from xfcost.mechanisms.recurrent import Additive, Maxout, Readout, Recurrent
from xfcost.torch_models.shared.cache import MemoryCache, RecurrentState
from xfcost.torch_models.shared.leaves import Add, Leaf, Linear, Multiply, Softmax, WeightedSum, drawn, joined
from xfcost.torch_models.shared.recurrence import asks_shapes_alone

if TYPE_CHECKING:
    from xfcost.mechanisms.recurrent import Gru, Rnn


class AdditiveAttention(nn.Module):
    """States (B, T, H), keys (B, M, K), memory (B, M, E) -> contexts (B, T, E)."""

    def __init__(self, config: Additive, units: int, memory_dim: int) -> None:
        super().__init__()
        self.keys = Linear(memory_dim, config.hidden, bias=config.bias)
        self.query = Linear(units, config.hidden, bias=False)
        self.add = Add()
        self.tanh = nn.Tanh()
        self.energies = Linear(config.hidden, 1, bias=config.bias)
        self.softmax = Softmax()
        self.weighted_sum = WeightedSum()
        self.gate = Gate(units) if config.gate else None

    def forward(self, state_BTH: Tensor, keys_BMK: Tensor, memory_BME: Tensor) -> Tensor:
        asked_BTMK = self.add(self.query(state_BTH).unsqueeze(2), keys_BMK.unsqueeze(1))
        energies_BTM = self.energies(self.tanh(asked_BTMK)).squeeze(-1)
        context_BTE = self.weighted_sum(self.softmax(energies_BTM), memory_BME)
        return context_BTE if self.gate is None else self.gate(state_BTH, context_BTE)


class Gate(nn.Module):
    """σ(w·s + b)·c: (B, T, H), (B, T, E) -> (B, T, E)."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.linear = Linear(units, 1)
        self.sigmoid = nn.Sigmoid()
        self.multiply = Multiply()

    def forward(self, state_BTH: Tensor, context_BTE: Tensor) -> Tensor:
        return self.multiply(context_BTE, self.sigmoid(self.linear(state_BTH)))


class FirstState(nn.Module):
    """tanh(W h + b), with h from the memory: (B, M, E) -> (B, H) for each state of the cell."""

    def __init__(self, start: str, memory_dim: int, units: int, states: int, *, bias: bool) -> None:
        super().__init__()
        self.states = states
        self.take = Leaf(backward_half) if start == "backwards" else None
        self.mean = Leaf(torch.mean, dim=1) if start == "mean" else None
        self.linear = Linear(memory_dim // 2 if self.take else memory_dim, states * units, bias=bias)
        self.tanh = nn.Tanh()

    def forward(self, memory_BME: Tensor) -> tuple[Tensor, ...]:
        summary = self.take or self.mean
        return self.tanh(self.linear(summary(memory_BME))).chunk(self.states, dim=-1)  # type: ignore[misc]


def backward_half(memory_BME: Tensor) -> Tensor:
    """The encoder's backward output at the first token: (B, M, E) -> (B, E/2)."""
    return memory_BME[:, 0, memory_BME.shape[-1] // 2 :]


def sum_of_three(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x + y + z."""
    return x + y + z


class MaxoutReadout(nn.Module):
    """States before each step (B, N, H), inputs (B, N, D), contexts (B, N, E) -> (B, N, L)."""

    def __init__(self, config: Maxout, widths: tuple[int, int, int], *, bias: bool) -> None:
        super().__init__()
        dim, units, memory_dim = widths
        self.state = Linear(units, 2 * config.hidden, bias=bias)
        self.input = Linear(dim, 2 * config.hidden, bias=False)
        self.context = Linear(memory_dim, 2 * config.hidden, bias=False)
        self.add = Leaf(sum_of_three)
        self.maxout = Leaf(larger_of_two)

    def forward(self, x_BND: Tensor, state_BNH: Tensor, context_BNE: Tensor) -> Tensor:
        return self.maxout(self.add(self.state(state_BNH), self.input(x_BND), self.context(context_BNE)))


def larger_of_two(x_BNF: Tensor) -> Tensor:
    """The maximum of each pair of adjacent units: (B, N, 2·L) -> (B, N, L)."""
    return x_BNF.unflatten(-1, (-1, 2)).amax(dim=-1)


class SumReadout(nn.Module):
    """Inputs (B, N, D), states (B, N, H), contexts (B, N, E) -> (B, N, D)."""

    def __init__(self, widths: tuple[int, int, int], *, bias: bool) -> None:
        super().__init__()
        dim, units, memory_dim = widths
        self.state = Linear(units, dim, bias=bias)
        self.context = Linear(memory_dim, dim, bias=bias)
        self.add = Leaf(sum_of_three)
        self.tanh = nn.Tanh()

    def forward(self, x_BND: Tensor, state_BNH: Tensor, context_BNE: Tensor) -> Tensor:
        return self.tanh(self.add(x_BND, self.state(state_BNH), self.context(context_BNE)))


def readout(config: Readout | None, widths: tuple[int, int, int], *, bias: bool) -> MaxoutReadout | SumReadout | None:
    """The readout module for inputs, states and contexts of these widths, or None."""
    if config is None:
        return None
    return MaxoutReadout(config, widths, bias=bias) if isinstance(config, Maxout) else SumReadout(widths, bias=bias)


def joined_steps(
    states: list[Tensor], contexts: list[Tensor], *, config: Readout | None
) -> tuple[Tensor, Tensor | None]:
    """Concatenates the steps: first state and N more, (B, T, H) each, and contexts -> (B, N, H), (B, N, E).

    A maxout reads the state before each step, so the last state is dropped.
    """
    state_BNH = torch.cat(states, dim=1)[:, :-1] if isinstance(config, Maxout) else torch.cat(states[1:], dim=1)
    return state_BNH, None if config is None else torch.cat(contexts, dim=1)


# The last state of a direction: h and, for an LSTM, its cells, (B, H) each.
State = tuple[Tensor, ...]


class RecurrentLayer(nn.Module):
    """(B, N, D) -> (B, N, H), bidirectional (B, N, 2·H); or a decode step (B, 1, D) -> (B, 1, H)."""

    def __init__(self, config: Recurrent, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        self.starts_from_encoder = config.start == "encoder"
        self.giver: tuple[RecurrentLayer, ...] = ()  # in a tuple, so that torch does not register the encoder's layer
        self.gives = False
        self.last: tuple[State, ...] = ()
        attends = config.attend is not None
        self.state = None if cache_batch is None or attends else zero_state(config, place, cache_batch)
        self.core: Attending | Direction | None = None
        if not config.bidirectional:
            self.core = Attending(config, place, cache_batch) if attends else Direction(config, place)
        self.forwards = Direction(config, place) if config.bidirectional else None
        self.backwards = Direction(config, place, reverse=True) if config.bidirectional else None
        self.join = Leaf(joined, dim=-1) if config.bidirectional else None

    def forward(self, x_BND: Tensor, *memory_BMD: Tensor) -> Tensor:
        """`memory` is given to a layer that attends to it or that starts from the encoder's state."""
        if isinstance(self.core, Attending):
            return self.core(x_BND, *memory_BMD)
        if self.core is not None and self.state is not None:
            y_B1H, last = self.core(x_BND, self.state.past)
            self.state(*last)
            return y_B1H
        directions = [way for way in (self.core, self.forwards, self.backwards) if way is not None]
        answers, states = zip(
            *(way(x_BND, start) for way, start in zip(directions, self.first_states(), strict=False)), strict=True
        )
        self.last = states if self.gives else ()
        return answers[0] if self.join is None else self.join(*answers)

    def first_states(self) -> tuple[State, ...]:
        """The first state of each direction: the encoder's last, or None for zeros."""
        if not self.starts_from_encoder:
            return ((), ())
        if not self.giver or not self.giver[0].last:
            raise RuntimeError("it starts from an encoder's last state, and no encoder ran before it")
        return self.giver[0].last


def hand_over(encoder: nn.Module, decoder: nn.Module) -> None:
    """Give the decoder's recurrent layers that start from the encoder the encoder's layers of the same number."""
    takers = [layer for layer in decoder.modules() if isinstance(layer, RecurrentLayer) and layer.starts_from_encoder]
    givers = [layer for layer in encoder.modules() if isinstance(layer, RecurrentLayer)]
    for taker, giver in zip(takers, givers, strict=False):
        giver.gives = True
        taker.giver = (giver,)


class Direction(nn.Module):
    """One direction along the tokens: (B, N, D) -> (B, N, H) and the last state."""

    def __init__(self, config: Recurrent, place: Place, *, reverse: bool = False) -> None:
        super().__init__()
        units = config.units(place)
        self.input = Linear(place.dim, config.gates * units, bias=config.bias)
        self.recurrence = CELLS[tag_of(type(config))](config, units, reverse=reverse)

    def forward(self, x_BND: Tensor, start: State = ()) -> tuple[Tensor, State]:
        return self.recurrence(self.input(x_BND), start)


class Attending(nn.Module):
    """Each step attends to the memory with the previous state: (B, N, D), (B, M, E) -> (B, N, H), or the readout.

    Steps run one after the other through all leaves. A trace on `meta` needs only shapes, equal in all steps, so there
    N steps run at once.

    With `cache_batch`, a decode step: (B, 1, D) -> (B, 1, H), or the readout, with the memory and its keys cached.
    """

    def __init__(self, config: Recurrent, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        if config.attend is None or place.memory is None:
            raise TypeError("a recurrent layer without `attend` and a memory has nothing to attend to")
        units, width = config.units(place), place.memory_dim
        states, gates = len(config.states), config.gates * units
        self.tokens, self.units, self.states = place.grid.total, units, states
        asks = config.start in {"backwards", "mean"}
        self.start = FirstState(config.start, width, units, states, bias=config.bias) if asks else None
        self.input = Linear(place.dim, gates, bias=config.bias)
        self.inner = AdditiveAttention(config.attend, units, width)
        self.context = Linear(width, gates, bias=False)
        self.add_context = Add()
        self.recurrence = CELLS[tag_of(type(config))](config, units, reverse=False)
        self.reads_state_before = isinstance(config.readout, Maxout)
        self.cache: MemoryCache | None = None
        self.state: RecurrentState | None = None
        if cache_batch is None:
            self.join = Leaf(joined_steps, config=config.readout)
        else:
            self.cache = MemoryCache(cache_batch, place.memory.total, config.attend.hidden, value_width=width)
            self.state = zero_state(config, place, cache_batch)
        self.readout = readout(config.readout, (place.dim, units, width), bias=config.bias)

    def forward(self, x_BND: Tensor, *memory_BME: Tensor) -> Tensor:
        if self.cache is None or self.state is None:
            return self._all_steps(x_BND, *memory_BME)
        return self._one_step(x_BND, self.cache, self.state)

    def _all_steps(self, x_BND: Tensor, memory_BME: Tensor) -> Tensor:
        keys_BMK, state = self.inner.keys(memory_BME), self.first_state(memory_BME)
        input_BNG = self.input(x_BND)
        states, contexts = [state[0].unsqueeze(1)], []
        for part_BTG in input_BNG.split(self._side_by_side(input_BNG), dim=1):
            state_BTH, context_BTE, state = self._step(part_BTG, state, keys_BMK, memory_BME)
            states.append(state_BTH)
            contexts.append(context_BTE)
        state_BNH, context_BNE = self.join(states, contexts)
        return state_BNH if self.readout is None else self.readout(x_BND, state_BNH, context_BNE)

    def _one_step(self, x_B1D: Tensor, cache: MemoryCache, state: RecurrentState) -> Tensor:
        before, memory = state.past, cache()
        y_B1H, context_B1E, last = self._step(self.input(x_B1D), before, *memory)
        if self.readout is not None:
            read_B1H = before[0].unsqueeze(1) if self.reads_state_before else y_B1H
            y_B1H = self.readout(x_B1D, read_B1H, context_B1E)
        state(*last)
        return y_B1H

    def _step(
        self, input_BTG: Tensor, state: State, keys_BMK: Tensor, memory_BME: Tensor
    ) -> tuple[Tensor, Tensor, State]:
        """The outputs of T steps that attend with the same state, their contexts, and the next state."""
        asking_BTH = state[0].unsqueeze(1).expand(-1, input_BTG.shape[1], -1)
        context_BTE = self.inner(asking_BTH, keys_BMK, memory_BME)
        y_BTH, state = self.recurrence(self.add_context(input_BTG, self.context(context_BTE)), state)
        return y_BTH, context_BTE, state

    def first_state(self, memory_BME: Tensor) -> State:
        """The state before the first step: computed from the memory, or zeros."""
        if self.start is not None:
            return self.start(memory_BME)
        return (memory_BME.new_zeros(memory_BME.shape[0], self.units),) * self.states

    def _side_by_side(self, x_BNG: Tensor) -> int:
        """The number of steps that run at once: all if only shapes are needed, otherwise one."""
        return self.tokens if asks_shapes_alone(x_BNG) else 1


def zero_state(config: Recurrent, place: Place, batch: int) -> RecurrentState:
    """The state before the first token: h, and the cells of an LSTM, all zeros."""
    return RecurrentState(*((batch, config.units(place)),) * len(config.states))


class Recurrence(nn.Module):
    """Steps along the tokens: (B, N, G) -> (B, N, H) and the last state; weights (G, H), initialised like torch's."""

    def __init__(self, config: Recurrent, units: int, *, reverse: bool) -> None:
        super().__init__()
        self.reverse = reverse
        draw = partial(nn.init.uniform_, a=-(units**-0.5), b=units**-0.5)
        self.weight = drawn(config.gates * units, units, by=draw)
        self.bias = drawn(config.gates * units, by=draw) if config.bias else None

    def last(self, y_BNH: Tensor) -> Tensor:
        """The output at the last token in reading order."""
        return y_BNH[:, 0 if self.reverse else -1]


class RnnRecurrence(Recurrence):
    """h = act(x + U h + b')."""

    def __init__(self, config: Rnn, units: int, *, reverse: bool) -> None:
        super().__init__(config, units, reverse=reverse)
        self.act = config.act

    def forward(self, x_BNG: Tensor, start: State) -> tuple[Tensor, State]:
        run = torch.ops.xfcost.rnn_tanh if self.act == "tanh" else torch.ops.xfcost.rnn_relu
        y_BNH = run(x_BNG, self.weight, self.bias, *(start or (None,)), self.reverse)
        return y_BNH, (self.last(y_BNH),)


class LstmRecurrence(Recurrence):
    """The state is h and c."""

    def forward(self, x_BNG: Tensor, start: State) -> tuple[Tensor, State]:
        y_BNH, c_BH = torch.ops.xfcost.lstm(x_BNG, self.weight, self.bias, *(start or (None, None)), self.reverse)
        return y_BNH, (self.last(y_BNH), c_BH)


class GruRecurrence(Recurrence):
    """The reset gate applies after or before the state's map."""

    def __init__(self, config: Gru, units: int, *, reverse: bool) -> None:
        super().__init__(config, units, reverse=reverse)
        self.reset = config.reset

    def forward(self, x_BNG: Tensor, start: State) -> tuple[Tensor, State]:
        run = torch.ops.xfcost.gru_reset_after if self.reset == "after" else torch.ops.xfcost.gru_reset_before
        y_BNH = run(x_BNG, self.weight, self.bias, *(start or (None,)), self.reverse)
        return y_BNH, (self.last(y_BNH),)


CELLS: dict[str, type[Recurrence]] = {"rnn": RnnRecurrence, "lstm": LstmRecurrence, "gru": GruRecurrence}
