"""Modules of `mechanisms/recurrent.py`: additive attention of a recurrent decoder, and its readout.

B batch, T steps side by side, M memory tokens of width E, H hidden units, K of the alignment, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.mechanisms.recurrent import Additive, Maxout, Readout, Sum
from xfcost.torch_models.shared.leaves import Add, Linear, Multiply, Softmax, WeightedSum


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
        self.take = BackwardHalf() if start == "backwards" else None
        self.mean = Mean() if start == "mean" else None
        self.linear = Linear(memory_dim // 2 if self.take else memory_dim, states * units, bias=bias)
        self.tanh = nn.Tanh()

    def forward(self, memory_BME: Tensor) -> tuple[Tensor, ...]:
        summary = self.take or self.mean
        return self.tanh(self.linear(summary(memory_BME))).chunk(self.states, dim=-1)  # type: ignore[misc]


class BackwardHalf(nn.Module):
    """The encoder's backward output at the first token: (B, M, E) -> (B, E/2)."""

    def forward(self, memory_BME: Tensor) -> Tensor:
        return memory_BME[:, 0, memory_BME.shape[-1] // 2 :]


class Mean(nn.Module):
    """Over the tokens: (B, M, E) -> (B, E)."""

    def forward(self, memory_BME: Tensor) -> Tensor:
        return memory_BME.mean(dim=1)


class AddThree(nn.Module):
    """x + y + z."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x + y + z


class MaxoutReadout(nn.Module):
    """States before each step (B, N, H), inputs (B, N, D), contexts (B, N, E) -> (B, N, L)."""

    def __init__(self, config: Maxout, widths: tuple[int, int, int], *, bias: bool) -> None:
        super().__init__()
        dim, units, memory_dim = widths
        self.state = Linear(units, 2 * config.hidden, bias=bias)
        self.input = Linear(dim, 2 * config.hidden, bias=False)
        self.context = Linear(memory_dim, 2 * config.hidden, bias=False)
        self.add = AddThree()
        self.maxout = LargerOfTwo()

    def forward(self, x_BND: Tensor, state_BNH: Tensor, context_BNE: Tensor) -> Tensor:
        return self.maxout(self.add(self.state(state_BNH), self.input(x_BND), self.context(context_BNE)))


class LargerOfTwo(nn.Module):
    """The maximum of each pair of adjacent units: (B, N, 2·L) -> (B, N, L)."""

    def forward(self, x_BNF: Tensor) -> Tensor:
        return x_BNF.unflatten(-1, (-1, 2)).amax(dim=-1)


class SumReadout(nn.Module):
    """Inputs (B, N, D), states (B, N, H), contexts (B, N, E) -> (B, N, D)."""

    def __init__(self, config: Sum, widths: tuple[int, int, int], *, bias: bool) -> None:
        super().__init__()
        dim, units, memory_dim = widths
        self.state = Linear(units, dim, bias=bias)
        self.context = Linear(memory_dim, dim, bias=bias)
        self.add = AddThree()
        self.tanh = nn.Tanh()

    def forward(self, x_BND: Tensor, state_BNH: Tensor, context_BNE: Tensor) -> Tensor:
        return self.tanh(self.add(x_BND, self.state(state_BNH), self.context(context_BNE)))


def readout(config: Readout | None, widths: tuple[int, int, int], *, bias: bool) -> MaxoutReadout | SumReadout | None:
    """The readout module for inputs, states and contexts of these widths, or None."""
    if config is None:
        return None
    return (
        MaxoutReadout(config, widths, bias=bias)
        if isinstance(config, Maxout)
        else SumReadout(config, widths, bias=bias)
    )


class JoinSteps(nn.Module):
    """Concatenates the steps: first state and N more, (B, T, H) each, and contexts -> (B, N, H), (B, N, E).

    A maxout reads the state before each step, so the last state is dropped.
    """

    def __init__(self, config: Readout | None) -> None:
        super().__init__()
        self.states_before, self.contexts_too = isinstance(config, Maxout), config is not None

    def forward(self, states: list[Tensor], contexts: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        state_BNH = torch.cat(states, dim=1)[:, :-1] if self.states_before else torch.cat(states[1:], dim=1)
        return state_BNH, torch.cat(contexts, dim=1) if self.contexts_too else None
