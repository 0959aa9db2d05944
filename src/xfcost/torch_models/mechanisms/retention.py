"""Module of `mechanisms/retention.py`: retention, in parallel, chunks or recurrently, and RWKV's two layers.

B batch, N tokens, C chunks of T tokens, D width, H heads (of RWKV: hidden units), K width of a head's keys, V of its
values.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xfcost.formulas.component import Place
from xfcost.mechanisms.retention import Retention, RwkvChannel, RwkvTime
from xfcost.torch_models.mechanisms.kernel import state_of
from xfcost.torch_models.mechanisms.mamba import gated
from xfcost.torch_models.shared.attention import Rotary, RotaryAtPosition
from xfcost.torch_models.shared.cache import RecurrentState
from xfcost.torch_models.shared.leaves import (
    Add,
    Leaf,
    Linear,
    Multiply,
    Scale,
    Scores,
    WeightedSum,
    drawn,
    join_heads,
    split_heads,
    with_zeros,
)
from xfcost.torch_models.shared.recurrence import NOTHING_SEEN, retention_step, wkv_step

# The base of the rotary angles.
ROTARY_BASE: Final = 10000.0


class MultiScaleRetention(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a recurrent state."""

    def __init__(self, config: Retention, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim, values, self.heads = place.dim, config.values(place.dim), config.heads
        self.parts = (dim, dim, values)
        self.qkv = Linear(dim, sum(self.parts), bias=False)
        self.scale = Scale((dim // config.heads) ** -0.5)
        rotary = Rotary if cache_batch is None else RotaryAtPosition
        self.rotary = rotary(place.grid.total, dim // config.heads, ROTARY_BASE)
        if cache_batch is None:
            self.core = _core(config, place)
        else:
            self.core = RetentionStep(cache_batch, config.heads, dim // config.heads, values // config.heads)
        self.norm = Leaf(head_norm, centred=config.norm == "layer_norm")
        self.gate_proj = Linear(dim, values, bias=False)
        self.gate = Leaf(gated)
        self.out = Linear(values, dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        q_BHNK, k_BHNK, v_BHNV = (split_heads(part, self.heads) for part in self.qkv(x_BND).split(self.parts, dim=-1))
        k_BHNK = self.scale(k_BHNK)
        y_BHNV = self.core(self.rotary(q_BHNK), self.rotary(k_BHNK), v_BHNV)
        y_BNE = self.norm(y_BHNV.transpose(1, 2)).flatten(2)
        return self.out(self.gate(y_BNE, self.gate_proj(x_BND)))


def _core(config: Retention, place: Place) -> nn.Module:
    if config.form == "recurrent":
        return RecurrentRetention(config.heads)
    return ParallelRetention(config.heads) if config.form == "parallel" else Chunkwise(config, place)


def decay(heads: int) -> Tensor:
    """γ of each head, exactly 1 - 2^(-5-i): (H,)."""
    return 1 - 2.0 ** (-5 - torch.arange(heads))


def head_norm(y_BNHV: Tensor, *, centred: bool) -> Tensor:
    """The norm of each head's columns, without weights: (B, N, H, V) -> (B, N, H, V)."""
    width = y_BNHV.shape[-1:]
    return F.layer_norm(y_BNHV, width) if centred else F.rms_norm(y_BNHV, width, eps=1e-6)


class Decays(nn.Module):
    """D for N tokens: γ^(n-m), 0 for later ones: -> (H, N, N)."""

    decay_H: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("decay_H", decay(heads), persistent=False)

    def forward(self, tokens: int) -> Tensor:
        at_N = torch.arange(tokens, device=self.decay_H.device)
        back_NN = (at_N.unsqueeze(-1) - at_N).clamp(min=0)
        return (self.decay_H.view(-1, 1, 1) ** back_NN).tril()


class ChunkDecays(Decays):
    """D for the tokens of a chunk, (H, 1, T, T), and the decays since its start, γ^1 to γ^T: (H, T)."""

    def forward(self, tokens: int) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        decays_HTT = super().forward(tokens)
        since_HT = decays_HTT[..., 0] * self.decay_H.unsqueeze(-1)
        return decays_HTT.unsqueeze(1), since_HT


def by_decay(y: Tensor, decay_HT: Tensor) -> Tensor:
    """y times a decay per head and position in the chunk: (B, H, C, T, V), (H, T) -> (B, H, C, T, V)."""
    return y * decay_HT.unsqueeze(1).unsqueeze(-1)


class WithinChunk(nn.Module):
    """(QKᵀ∘D)V: (…, T, K) twice, (…, T, V), (…, T, T) -> (…, T, V)."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = Scores()
        self.weigh = Multiply()
        self.weighted_sum = WeightedSum()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, decays: Tensor) -> Tensor:
        return self.weighted_sum(self.weigh(self.scores(q, k), decays), v)


class ParallelRetention(WithinChunk):
    """The masked matrix of all products: (B, H, N, K) twice, (B, H, N, V) -> (B, H, N, V)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.decays = Decays(heads)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(q, k, v, self.decays(q.shape[2]))


class Chunkwise(nn.Module):
    """The products inside a chunk, and a state of all earlier chunks. Shapes as in ParallelRetention."""

    def __init__(self, config: Retention, place: Place) -> None:
        super().__init__()
        self.tokens, self.chunks = place.grid.total, config.chunks(place.grid)
        self.pad = Leaf(with_zeros, after=self.chunks[0] * self.chunks[1] - self.tokens)
        self.decays = ChunkDecays(config.heads)
        self.local = WithinChunk()
        self.fade = Leaf(by_decay)
        self.state = Leaf(state_of)
        self.carry = Leaf(carried)
        self.read = WeightedSum()
        self.reach = Leaf(by_decay)
        self.add = Add()

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q_BHCTK, k_BHCTK, v_BHCTV = (self.pad(part).unflatten(2, self.chunks) for part in (q, k, v))
        decays_H1TT, since_HT = self.decays(self.chunks[1])
        near_BHCTV = self.local(q_BHCTK, k_BHCTK, v_BHCTV, decays_H1TT)
        added_BHCKV = self.state(k_BHCTK, self.fade(v_BHCTV, decays_H1TT[:, 0, -1]))
        before_BHCKV = self.carry(added_BHCKV, since_HT[:, -1])
        y_BHCTV = self.add(near_BHCTV, self.reach(self.read(q_BHCTK, before_BHCKV), since_HT))
        return y_BHCTV.flatten(2, 3)[:, :, : self.tokens]


def carried(added: Tensor, decay_H: Tensor) -> Tensor:
    """The states at the chunk starts: (B, H, C, K, V), γ^T (H,) -> (B, H, C, K, V)."""
    added_BCHKV = added.transpose(1, 2)
    before = torch.ops.xfcost.decayed_sums(added_BCHKV.flatten(2), decay_H)
    return before.view_as(added_BCHKV).transpose(1, 2)


class RecurrentRetention(nn.Module):
    """One token after the other. Shapes as in ParallelRetention."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.scan = Scan(heads)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        read_BNE = self.scan(*(join_heads(part) for part in (q, k, v)))
        return split_heads(read_BNE, q.shape[1])


class Scan(nn.Module):
    """The scan over tokens; heads share an axis with their columns: (B, N, D) twice, (B, N, E) -> (B, N, E)."""

    decay_H: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("decay_H", decay(heads), persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.ops.xfcost.retention(q, k, v, self.decay_H)


class RetentionStep(nn.Module):
    """One token on a state: (B, H, 1, K) twice, (B, H, 1, V) -> (B, H, 1, V)."""

    def __init__(self, batch: int, heads: int, width: int, values: int) -> None:
        super().__init__()
        self.scan = ScanStep(heads)
        self.state = RecurrentState((batch, heads, width, values))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y_BH1V, state_BHKV = self.scan(*self.state.past, q, k, v)
        self.state(state_BHKV)
        return y_BH1V


class ScanStep(Scan):
    """State (B, H, K, V), then the arguments of RetentionStep -> (B, H, 1, V), and the next state."""

    def forward(self, state_BHKV: Tensor, *parts: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        q_BHK, k_BHK, v_BHV = (part.squeeze(2) for part in parts)
        y_BHV, state_BHKV = retention_step(state_BHKV, self.decay_H.view(-1, 1, 1), q_BHK, k_BHK, v_BHV)
        return y_BHV.unsqueeze(2), state_BHKV


def token_shift(cache_batch: int | None, dim: int) -> Leaf | RecurrentState:
    """The token before each, zeros for the first; with a batch size, a state that caches the previous token."""
    return Leaf(F.pad, pad=(0, 0, 1, -1)) if cache_batch is None else RecurrentState((cache_batch, 1, dim))


def mixed(x_BND: Tensor, shift: Leaf | RecurrentState, mix: Mixtures) -> list[Tensor]:
    """Mixtures of each token with the one before it."""
    if isinstance(shift, Leaf):
        return mix(x_BND, shift(x_BND))
    mixtures: list[Tensor] = mix(x_BND, *shift.past)
    shift(x_BND)
    return mixtures


class Mixtures(nn.Module):
    """μ∘x + (1 - μ)∘before for each μ: two of (B, N, D) -> one tensor per μ."""

    def __init__(self, uses: int, dim: int) -> None:
        super().__init__()
        self.weight = drawn(uses, dim, by=nn.init.uniform_)

    def forward(self, x_BND: Tensor, before_BND: Tensor) -> list[Tensor]:
        apart_BND = x_BND - before_BND
        return [before_BND + share_D * apart_BND for share_D in self.weight.unbind()]


def sigmoid_gated(r_BND: Tensor, x_BND: Tensor) -> Tensor:
    """σ(r)∘x."""
    return r_BND.sigmoid() * x_BND


class TimeMixing(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) with a state and the previous token."""

    def __init__(self, config: RwkvTime, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim = place.dim
        self.shift = token_shift(cache_batch, dim)
        self.mix = Mixtures(3, dim)
        self.key, self.value, self.receptance = (Linear(dim, dim, bias=False) for _ in range(3))
        self.decay = ChannelDecay(dim)
        self.wkv = Wkv(dim) if cache_batch is None else WkvStep(dim)
        self.state: RecurrentState | None = None
        if cache_batch is not None:
            self.state = RecurrentState(*((cache_batch, dim),) * 3, starts=(0.0, 0.0, NOTHING_SEEN))
        self.gate = Leaf(sigmoid_gated)
        self.output = Linear(dim, dim, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        for_k, for_v, for_r = mixed(x_BND, self.shift, self.mix)
        inputs = (self.key(for_k), self.value(for_v), self.decay())
        if self.state is None:
            read_BND = self.wkv(*inputs)
        else:
            read_BND, *state = self.wkv(*inputs, *self.state.past)
            self.state(*state)
        return self.output(self.gate(self.receptance(for_r), read_BND))


class ChannelDecay(nn.Module):
    """w = -exp(·): (D,)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-5, 1, dim))

    def forward(self) -> Tensor:
        return -self.weight.exp()


class Wkv(nn.Module):
    """Keys, values (B, N, D), decays (D,) -> (B, N, D). The learned u weights the token itself."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(dim))

    def forward(self, k_BND: Tensor, v_BND: Tensor, w_D: Tensor) -> Tensor:
        return torch.ops.xfcost.wkv(k_BND, v_BND, w_D, self.first)


class WkvStep(Wkv):
    """One token's keys and values (B, 1, D), decays (D,), three states (B, D) -> (B, 1, D), and the next states."""

    def forward(self, k_B1D: Tensor, v_B1D: Tensor, w_D: Tensor, *state: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        y_BD, state = wkv_step(state, k_B1D.squeeze(1), v_B1D.squeeze(1), w_D, self.first)
        return y_BD.unsqueeze(1), *state


class ChannelMixing(nn.Module):
    """(B, N, D) -> (B, N, D), or a decode step (B, 1, D) -> (B, 1, D) that caches the previous token."""

    def __init__(self, config: RwkvChannel, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim, hidden = place.dim, config.inner(place.dim)
        self.shift = token_shift(cache_batch, dim)
        self.mix = Mixtures(2, dim)
        self.key = Linear(dim, hidden, bias=False)
        self.act = nn.ReLU()
        self.square = Leaf(torch.square)
        self.value = Linear(hidden, dim, bias=False)
        self.receptance = Linear(dim, dim, bias=False)
        self.gate = Leaf(sigmoid_gated)

    def forward(self, x_BND: Tensor) -> Tensor:
        for_k, for_r = mixed(x_BND, self.shift, self.mix)
        return self.gate(self.receptance(for_r), self.value(self.square(self.act(self.key(for_k)))))
