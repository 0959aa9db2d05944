"""Selective state-space models: Mamba's scan, and Mamba-2's duality in chunks.

B batch, N tokens, C chunks of Q tokens, D width, E inner channels, S state size, R rank of Δ, H heads of P channels, G
groups of heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.mamba import Mamba, Mamba2
from xfcost.program.loops import selective_step
from xfcost.torch_models.mechanisms.kernel import state_of
from xfcost.torch_models.shared.cache import RecurrentState, conv_state
from xfcost.torch_models.shared.convolution import causal_depthwise, convolved
from xfcost.torch_models.shared.leaves import Add, Leaf, Linear, Multiply, Scores, WeightedSum, through, with_zeros
from xfcost.torch_models.shared.recurrence import Loops


class MambaBlock(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with the convolution's and the scan's states."""

    def __init__(self, config: Mamba, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        inner, rank = config.inner(place.dim), config.step_rank(place.dim)
        self.parts = (rank, config.state, config.state)
        self.in_proj = Linear(place.dim, 2 * inner, bias=False)
        self.conv = causal_depthwise(inner, config.conv, padded=cache_batch is None)
        self.window = conv_state(cache_batch, config.conv, inner)
        self.act = nn.SiLU()
        self.x_proj = Linear(inner, rank + 2 * config.state, bias=False)
        self.dt_proj = Linear(rank, inner)
        self.softplus = nn.Softplus()
        self.decay = Decay(inner, config.state)
        self.scan = Leaf(scanned) if cache_batch is None else Leaf(scan_step)
        self.state = None if cache_batch is None else RecurrentState((cache_batch, inner, config.state))
        self.skip = Skip(inner)
        self.gate = Leaf(gated)
        self.out_proj = Linear(inner, place.dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        u_BNE, z_BNE = self.in_proj(x_BND).chunk(2, dim=-1)
        u_BNE = self.act(convolved(u_BNE, self.conv, self.window))
        dt_BNR, b_BNS, c_BNS = self.x_proj(u_BNE).split(self.parts, dim=-1)
        dt_BNE = self.softplus(self.dt_proj(dt_BNR))
        inputs = (u_BNE, dt_BNE, self.decay(), b_BNS, c_BNS)
        if self.state is None:
            y_BNE = self.scan(*inputs)
        else:
            y_BNE, state_BES = self.scan(*self.state.past, *inputs)
            self.state(state_BES)
        return self.out_proj(self.gate(self.skip(y_BNE, u_BNE), z_BNE))


class Decay(nn.Module):
    """A = -exp(A_log); -A starts at 1, 2, … along its last axis, as in the authors' code: (…, S)."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.arange(1.0, shape[-1] + 1).log().repeat(*shape[:-1], 1))

    def forward(self) -> Tensor:
        return -self.log.exp()


def scanned(*inputs: Tensor) -> Tensor:
    """u and Δ (B, N, E), A (E, S), B and C (B, N, S) -> (B, N, E)."""
    return torch.ops.xfcost.selective_scan(*inputs)


def scan_step(state_BES: Tensor, u: Tensor, dt: Tensor, a_ES: Tensor, *b_c: Tensor) -> tuple[Tensor, Tensor]:
    """State (B, E, S), then a token's arguments of SelectiveScan -> (B, 1, E), and the next state."""
    dt_BE, entering_BE, b_BS, c_BS = (part.squeeze(1) for part in (dt, dt * u, *b_c))
    step: Any = selective_step
    y_BE, state_BES = step(Loops, state_BES, dt_BE, entering_BE, b_BS, c_BS, a_ES)
    return y_BE.unsqueeze(1), state_BES


class Skip(nn.Module):
    """y + D∘u."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inner))

    def forward(self, y_BNE: Tensor, u_BNE: Tensor) -> Tensor:
        return y_BNE + self.weight * u_BNE


def gated(y_BNE: Tensor, z_BNE: Tensor) -> Tensor:
    """y∘silu(z)."""
    return y_BNE * nn.functional.silu(z_BNE)


class Mamba2Block(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D): a chunk of one token, with states."""

    def __init__(self, config: Mamba2, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        inner, heads, channels = config.inner(place.dim), config.head_count(place.dim), config.convolved(place.dim)
        mixed = config.groups * config.state
        self.tokens = place.grid.total if cache_batch is None else 1
        self.heads, self.groups = heads, config.groups
        self.chunks = (config.chunks(place.grid), config.chunk) if cache_batch is None else (1, 1)
        self.projected, self.parts = (inner, channels, heads), (inner, mixed, mixed)
        self.in_proj = Linear(place.dim, sum(self.projected), bias=False)
        self.conv = causal_depthwise(channels, config.conv, padded=cache_batch is None)
        self.window = conv_state(cache_batch, config.conv, channels)
        self.act = nn.SiLU()
        self.step = Step(heads)
        self.decay = Decay(heads)
        more = self.chunks[0] * self.chunks[1] - self.tokens
        self.pad = Leaf(with_zeros, after=more) if cache_batch is None else None
        self.core = Duality() if cache_batch is None else DualityStep(cache_batch, config, heads)
        self.skip = HeadSkip(heads)
        self.gate = Leaf(gated)
        self.norm = GroupedRms(inner, config.groups)
        self.out_proj = Linear(inner, place.dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        z_BNE, entering, dt_BNH = self.in_proj(x_BND).split(self.projected, dim=-1)
        entering = self.act(convolved(entering, self.conv, self.window))
        dt_BHCQ1 = self._chunked(through(dt_BNH, self.step, self.pad), self.heads)
        u, b, c = through(entering, self.pad).split(self.parts, dim=-1)
        u_BHCQP, b_BHCQS, c_BHCQS = self._chunked(u, self.heads), self._shared(b), self._shared(c)
        y_BHCQP = self.core(u_BHCQP, dt_BHCQ1, self.decay(), b_BHCQS, c_BHCQS)
        y_BNE = y_BHCQP.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)[:, : self.tokens]
        u_BNE = entering[..., : self.parts[0]]
        return self.out_proj(self.norm(self.gate(self.skip(y_BNE, u_BNE), z_BNE)))

    def _chunked(self, x: Tensor, heads: int) -> Tensor:
        """(B, C·Q, H·P) -> (B, H, C, Q, P)."""
        return x.unflatten(-1, (heads, -1)).unflatten(1, self.chunks).permute(0, 3, 1, 2, 4)

    def _shared(self, x: Tensor) -> Tensor:
        """B or C of each group, repeated for its heads: (B, C·Q, G·S) -> (B, H, C, Q, S)."""
        x_BGCQS = self._chunked(x, self.groups)
        shared = self.heads // self.groups
        return x_BGCQS.unsqueeze(2).expand(-1, -1, shared, -1, -1, -1).flatten(1, 2)


class Duality(nn.Module):
    """The state-space model in chunks.

    u (B, H, C, Q, P), Δ (B, H, C, Q, 1), A (H,), B and C (B, H, C, Q, S) -> (B, H, C, Q, P).
    """

    def __init__(self) -> None:
        super().__init__()
        self.inputs = Multiply()
        self.rates = Leaf(rates)
        self.sums = Leaf(torch.cumsum, dim=-2)
        self.local = Inside()
        self.fade = Leaf(faded)
        self.state = Leaf(state_of)
        self.spans = Leaf(spans_of)
        self.carry = Leaf(carried)
        self.read = WeightedSum()
        self.reach = Leaf(reached)
        self.add = Add()

    def forward(self, u: Tensor, dt: Tensor, a_H: Tensor, b: Tensor, c: Tensor) -> Tensor:
        u_BHCQP = self.inputs(u, dt)
        sum_BHCQ1 = self.sums(self.rates(dt, a_H))
        near_BHCQP = self.local(sum_BHCQ1, c, b, u_BHCQP)
        added_BHCSP = self.state(self.fade(b, sum_BHCQ1), u_BHCQP)
        before_BHCSP = self.carry(self.spans(sum_BHCQ1[..., -1, 0]), added_BHCSP)
        return self.add(near_BHCQP, self.reach(self.read(c, before_BHCSP), sum_BHCQ1))


class DualityStep(nn.Module):
    """One token on a state: Duality for C = Q = 1."""

    def __init__(self, batch: int, config: Mamba2, heads: int) -> None:
        super().__init__()
        self.inputs = Multiply()
        self.rates = Leaf(rates)
        self.state = Leaf(state_of)
        self.update = Leaf(updated)
        self.cache = RecurrentState((batch, heads, 1, config.state, config.head_dim))
        self.read = WeightedSum()

    def forward(self, u: Tensor, dt: Tensor, a_H: Tensor, b: Tensor, c: Tensor) -> Tensor:
        added_BH1SP = self.state(b, self.inputs(u, dt))
        state_BH1SP = self.update(*self.cache.past, self.rates(dt, a_H), added_BH1SP)
        self.cache(state_BH1SP)
        return self.read(c, state_BH1SP)


def updated(state: Tensor, rate: Tensor, added: Tensor) -> Tensor:
    """exp(ΔA)·h + the token's contribution: (B, H, 1, S, P), (B, H, 1, 1, 1), (B, H, 1, S, P) -> (B, H, 1, S, P)."""
    return state * rate.exp() + added


class Inside(nn.Module):
    """The masked products inside a chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.decays = Leaf(decays)
        self.scores = Scores()
        self.weigh = Multiply()
        self.weighted_sum = WeightedSum()

    def forward(self, sums: Tensor, c: Tensor, b: Tensor, u: Tensor) -> Tensor:
        return self.weighted_sum(self.weigh(self.scores(c, b), self.decays(sums)), u)


class Step(nn.Module):
    """Δ = softplus(Δ + b), initialised between 0.001 and 0.1: (B, N, H) -> (B, N, H)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.logspace(-3, -1, heads).expm1().log())

    def forward(self, dt_BNH: Tensor) -> Tensor:
        return F.softplus(dt_BNH + self.bias)


def rates(dt_BHCQ1: Tensor, a_H: Tensor) -> Tensor:
    """ΔA: (B, H, C, Q, 1), (H,) -> (B, H, C, Q, 1)."""
    return dt_BHCQ1 * a_H.view(-1, 1, 1, 1)


def _decayed(sums: Tensor) -> Tensor:
    """exp(sum to i - sum to j), 0 if j comes after i: (…, T) -> (…, T, T)."""
    later = torch.ones(sums.shape[-1], sums.shape[-1], dtype=torch.bool, device=sums.device).triu(1)
    return (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill(later, -torch.inf).exp()


def decays(sums_BHCQ1: Tensor) -> Tensor:
    """Decays from each token of a chunk to each later one: (B, H, C, Q, 1) -> (B, H, C, Q, Q)."""
    return _decayed(sums_BHCQ1.squeeze(-1))


def faded(b: Tensor, sums: Tensor) -> Tensor:
    """B times the decay from its token to the chunk's end: (B, H, C, Q, S), (B, H, C, Q, 1) -> (B, H, C, Q, S)."""
    return b * (sums[..., -1:, :] - sums).exp()


def spans_of(whole_BHC: Tensor) -> Tensor:
    """Decays between chunk starts: (B, H, C) -> (B, H, C + 1, C + 1)."""
    return _decayed(F.pad(whole_BHC, (1, 0)).cumsum(-1))


def carried(spans: Tensor, added: Tensor) -> Tensor:
    """The states at the chunk starts, the first zero: (B, H, C + 1, C + 1), (B, H, C, S, P) -> (B, H, C, S, P)."""
    first_last = F.pad(added, (0, 0, 0, 0, 1, 0))
    return (spans @ first_last.flatten(3)).view_as(first_last)[:, :, :-1]


def reached(y: Tensor, sums: Tensor) -> Tensor:
    """The read-out of the state at the chunk's start, times the decay since: (B, H, C, Q, P), (B, H, C, Q, 1)."""
    return y * sums.exp()


class HeadSkip(Skip):
    """The same with one D per head: (B, N, E) twice -> (B, N, E)."""

    def forward(self, y_BNE: Tensor, u_BNE: Tensor) -> Tensor:
        y_BNHP, u_BNHP = (part.unflatten(-1, (len(self.weight), -1)) for part in (y_BNE, u_BNE))
        return (y_BNHP + self.weight.unsqueeze(-1) * u_BNHP).flatten(2)


class GroupedRms(nn.Module):
    """RMS norm of each group of channels, with a gain: (B, N, E) -> (B, N, E)."""

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x_BNE: Tensor) -> Tensor:
        if self.groups == 1:
            return F.rms_norm(x_BNE, self.weight.shape, self.weight, 1e-5)
        x_BNGK = x_BNE.unflatten(-1, (self.groups, -1))
        return F.rms_norm(x_BNGK, x_BNGK.shape[-1:], None, 1e-5).flatten(2) * self.weight
