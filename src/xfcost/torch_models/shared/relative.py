"""Module of `formulas/relative_attention.py`: scores of relative positions.

B batch, N query tokens, M keys, T encodings of distances, D width, I = H·K the width of H heads of K.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import HeadBias, Linear, Scale, Scores, Table, join_heads, split_heads


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
        bias_BHNM = self.bias(q_BNI)
        content_BHNK = split_heads(self.content_bias(q_BNI), self.heads)
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
