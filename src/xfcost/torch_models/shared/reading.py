"""Module of `formulas/attention.CrossAttention`: multi-head attention of some tokens to others.

B batch, N query tokens, M key tokens, D width, E width of the key tokens, H heads, K head width, V width of values.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.torch_models.shared.attention import Core
from xfcost.torch_models.shared.leaves import Linear, join_heads, split_heads


class Reading(nn.Module):
    """(B, N, D), (B, M, E) -> (B, N, D). Learned queries (1, N, D) serve all samples."""

    def __init__(  # noqa: PLR0913 - sizes, as in the formula
        self,
        width: int,
        memory_width: int,
        inner: int,
        heads: int,
        *,
        values: int | None = None,
        bias: bool,
        fused: bool,
        output: bool = True,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.q = Linear(width, inner, bias=bias)
        self.widths = (inner, inner if values is None else values)
        self.kv = Linear(memory_width, sum(self.widths), bias=bias)
        self.core = Core(inner // heads, fused=fused, scaled=scaled)
        self.out = Linear(self.widths[1], width, bias=bias) if output else None

    def forward(self, x_BND: Tensor, y_BME: Tensor) -> Tensor:
        q_BHNK = split_heads(self.q(x_BND), self.heads).expand(y_BME.shape[0], -1, -1, -1)
        return self.attend(q_BHNK, *self.keys_and_values(y_BME))

    def attend(self, q_BHNK: Tensor, k_BHMK: Tensor, v_BHMV: Tensor) -> Tensor:
        """Attention and the output projection: -> (B, N, D)."""
        read_BND = join_heads(self.core(q_BHNK, k_BHMK, v_BHMV))
        return read_BND if self.out is None else self.out(read_BND)

    def keys_and_values(self, y_BME: Tensor) -> tuple[Tensor, Tensor]:
        """(B, H, M, K), (B, H, M, V)."""
        k_BMD, v_BMD = self.kv(y_BME).split(self.widths, dim=-1)
        return split_heads(k_BMD, self.heads), split_heads(v_BMD, self.heads)
