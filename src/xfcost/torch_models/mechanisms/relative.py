"""Module of `mechanisms/relative.py`: Transformer-XL's attention, with a memory and relative positions.

B batch, N query tokens, M keys (the memory's and the segment's), T encodings of distances, D width, I = H·K the width
of H heads of K.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.relative import Relative
from xfcost.torch_models.shared.leaves import NO_TABLES, CausalMask, Leaf, Linear, Tables
from xfcost.torch_models.shared.relative import RelativeCore, RelativeShift, encodings


class RelativeAttention(nn.Module):
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
            mask=CausalMask(config.past) if config.causal else None,
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
