"""Transformer-XL's attention, with a memory and relative positions, and one with a compressed memory too.

B batch, N query tokens, M keys (the memory's and the segment's), T encodings of distances, D width, I = H·K the width
of H heads of K; P positions of the memory, C of the compressed memory, S newly compressed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.relative import Compressive, Relative
from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import (
    NO_TABLES,
    HeadBias,
    Leaf,
    Linear,
    Scale,
    Scores,
    Table,
    Tables,
    causal_mask,
    join_heads,
    split_heads,
)


class RelativeCore(nn.Module):
    """Queries (B, N, I), keys and values (B, M, I) -> (B, N, I)."""

    encodings_1TD: Tensor

    def __init__(  # noqa: PLR0913 - what the formula is made of
        self,
        encodings_1TD: Tensor,
        shift: RelativeShift,
        *,
        heads: int,
        inner: int,
        fused: bool,
        mask: nn.Module | None = None,
        shared: Table | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.register_buffer("encodings_1TD", encodings_1TD, persistent=False)
        self.r = Linear(encodings_1TD.shape[-1], inner, bias=False)
        self.content_bias = HeadBias(inner, shared, row=0)
        self.position_bias = HeadBias(inner, shared, row=1)
        self.position_scale = Scale((inner // heads) ** -0.5)
        self.position_scores = Scores()
        self.position_shift = shift
        self.core = Core(inner // heads, fused=fused, biased=True, mask=mask)

    def forward(self, q_BNI: Tensor, k_BMI: Tensor, v_BMI: Tensor) -> Tensor:
        content_BHNK = split_heads(self.content_bias(q_BNI), self.heads)
        bias_BHNM = self.bias(q_BNI)
        k_BHMK, v_BHMK = split_heads(k_BMI, self.heads), split_heads(v_BMI, self.heads)
        return join_heads(self.core(content_BHNK, k_BHMK, v_BHMK, bias_BHNM))

    def bias(self, q_BNI: Tensor) -> Tensor:
        """The position term of the scores: (B, N, I) -> (B, H, N, M)."""
        r_1HTK = split_heads(self.r(self.encodings_1TD), self.heads)
        position_BHNK = split_heads(self.position_scale(self.position_bias(q_BNI)), self.heads)
        return self.position_shift(self.position_scores(position_BHNK, r_1HTK))


class RelativeShift(nn.Module):
    """Scores by distance to scores by key: (B, H, N, T) -> (B, H, N, M), a view of overlapping rows.

    Each query's columns begin `step` before those of the previous query; the last query's begin at `spare`. So row i
    begins at i·T + spare + step·(N-1-i) of the flat matrix, T - step after the row before.
    """

    def __init__(self, queries: int, keys: int, encodings: int, *, step: int = 1, spare: int = 0) -> None:
        super().__init__()
        self.queries, self.keys = queries, keys
        self.first = step * (queries - 1) + spare
        self.further = max(1, encodings - step)

    def forward(self, scores_BHNT: Tensor) -> Tensor:
        rows = scores_BHNT.flatten(-2)[..., self.first :].unfold(-1, self.keys, self.further)
        return rows[..., : self.queries, :]


def encodings(first: int, count: int, width: int, spacing: int = 1) -> Tensor:
    """Sinusoids of the distances first, first - spacing, …: (1, T, D), sines before cosines (Dai et al. 2019, §3.3).

    Computed in float64 and rounded once, so that they are the same on every machine.
    """
    distance_T1 = torch.arange(first, first - spacing * count, -spacing, dtype=torch.float64)[:, None]
    column = torch.arange(0, width, 2, dtype=torch.float64)
    angle = distance_T1 / 10000 ** (column / width)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[None, :, :width].to(torch.get_default_dtype())


class TransformerXlAttention(nn.Module):
    """(B, N, D) -> (B, N, D), with a memory (B, P, D); without a given memory, zeros."""

    memory_1PD: Tensor

    def __init__(self, config: Relative, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__()
        inner, tokens = config.inner(place.dim), place.grid.total
        self.past, self.memory_queries = config.past, config.memory_queries
        self.register_buffer("memory_1PD", torch.zeros(1, config.past, place.dim), persistent=False)
        self.recall = Leaf(with_memory) if config.past else None
        self.q = Linear(place.dim, inner, bias=config.projection_bias)
        self.kv = Linear(place.dim, 2 * inner, bias=config.projection_bias)
        self.core = RelativeCore(
            encodings(tokens + config.past - 1, config.encodings(place), place.dim),
            RelativeShift(tokens, tokens + config.past, config.encodings(place)),
            heads=config.heads,
            inner=inner,
            fused=place.fused,
            mask=Leaf(causal_mask, memory=config.past) if config.causal else None,
            shared=tables[config.share] if config.share else None,
        )
        self.out = Linear(inner, place.dim, bias=config.projection_bias)

    def forward(self, x_BND: Tensor, memory_BPD: Tensor | None = None) -> Tensor:
        memory = self.memory_1PD if memory_BPD is None else memory_BPD
        return self.attend(x_BND, memory.detach())

    @property
    def remembered(self) -> tuple[Tensor, ...]:
        """The buffers in which the past lies where none is given, (1, tokens, D) each."""
        return (self.memory_1PD,)

    def attend(self, x_BND: Tensor, *remembered_BPD: Tensor) -> Tensor:
        """Attention of the segment to the memory and itself."""
        all_BMD = x_BND if self.recall is None else self.recall(x_BND, *remembered_BPD)
        q_BNI = self.q(all_BMD)[:, self.past :] if self.memory_queries else self.q(x_BND)
        k_BMI, v_BMI = self.kv(all_BMD).chunk(2, dim=-1)
        return self.out(self.core(q_BNI, k_BMI, v_BMI))


def with_memory(x_BND: Tensor, *remembered_BPD: Tensor) -> Tensor:
    """The memory, oldest first, before the segment: -> (B, M, D). One memory serves all samples, or each has one."""
    return torch.cat([*(part.expand(x_BND.shape[0], -1, -1) for part in remembered_BPD), x_BND], dim=1)


class CompressivePast(NamedTuple):
    """The state at the start of a segment: compressed memory, tokens evicted by the previous segment, memory."""

    compressed_BCD: Tensor
    evicted_BND: Tensor
    memory_BPD: Tensor


class CompressiveAttention(TransformerXlAttention):
    """(B, N, D) -> (B, N, D). Without a given past, the past is zeros."""

    evicted_1ND: Tensor

    def __init__(self, config: Compressive, place: Place, tables: Tables = NO_TABLES) -> None:
        super().__init__(config, place, tables)
        self.slots = config.compressed_memory
        self.made = config.compressed(place)
        self.compress = compressor(config, self.made, place.dim)
        self.register_buffer("evicted_1ND", torch.zeros(1, place.grid.total, place.dim), persistent=False)

    def forward(self, x_BND: Tensor, past: CompressivePast | None = None) -> Tensor:  # type: ignore[override]
        past = self.standing(x_BND) if past is None else past
        memory = (past.memory_BPD.detach(),) if self.past > self.slots else ()
        return self.attend(x_BND, *self.compressed(past), *memory)

    @property
    def remembered(self) -> tuple[Tensor, ...]:
        return (self.memory_1PD, self.evicted_1ND)

    def standing(self, x_BND: Tensor) -> CompressivePast:
        """Zeros: the past of the first segment."""
        zeros = self.memory_1PD.split([self.slots, self.past - self.slots], dim=1)
        parts = (zeros[0], self.evicted_1ND, zeros[1])
        return CompressivePast(*(part.expand(x_BND.shape[0], -1, -1) for part in parts))

    def compressed(self, past: CompressivePast) -> tuple[Tensor, ...]:
        """The compressed memory that this segment reads, oldest first: retained old entries, then new ones."""
        if not self.made:
            return (past.compressed_BCD.detach(),)
        new_BSD = self.compress(past.evicted_BND.detach())
        old = (past.compressed_BCD[:, self.made :].detach(),) if self.made < self.slots else ()
        return *old, new_BSD[:, -self.slots :]

    def remember(self, x_BND: Tensor, past: CompressivePast) -> CompressivePast:
        """The past of the next segment."""
        kept_BXD = torch.cat([past.memory_BPD, x_BND], dim=1)
        tokens = x_BND.shape[1]
        return CompressivePast(torch.cat(self.compressed(past), dim=1), kept_BXD[:, :tokens], kept_BXD[:, tokens:])


def compressor(config: Compressive, made: int, width: int) -> nn.Module:
    """The module that compresses evicted tokens: (B, N, D) -> (B, S, D)."""
    if config.function == "conv":
        return ConvCompressor(config.compression, made, width)
    return Leaf(pooled, groups=(made, config.compression), function=config.function)


class ConvCompressor(Linear):
    """A convolution whose stride is its kernel size: a linear map of c adjacent positions."""

    def __init__(self, compression: int, made: int, width: int) -> None:
        super().__init__(compression * width, width)
        self.groups = (made, compression)

    def forward(self, x_BND: Tensor) -> Tensor:
        return super().forward(grouped(x_BND, self.groups).flatten(2))


def pooled(x_BND: Tensor, *, groups: tuple[int, int], function: str) -> Tensor:
    """The mean or the maximum of c positions."""
    x_BSCD = grouped(x_BND, groups)
    return x_BSCD.mean(2) if function == "mean" else x_BSCD.amax(2)


def grouped(x_BND: Tensor, groups: tuple[int, int]) -> Tensor:
    """Groups of c adjacent positions: (B, N, D) -> (B, S, c, D). An incomplete last group is dropped."""
    return x_BND[:, : groups[0] * groups[1]].unflatten(1, groups)
