"""Module of `formulas/mixers.py`: projections with fewer heads of keys and values.

B batch, N tokens, D width, H heads of queries, G heads of keys and values, K head width, V width of values.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.mixers import GroupedQueryMixer
from xfcost.torch_models.shared.leaves import Linear, split_heads
from xfcost.torch_models.shared.positions import Rotary, RotaryAtPosition


class GroupedHeads(nn.Module):
    """Base class: projections to queries, keys and values, and rotary positions.

    `decodes`: for a decode step, at its position among the `tokens`.
    """

    def __init__(self, config: GroupedQueryMixer, width: int, tokens: int, *, decodes: bool) -> None:
        super().__init__()
        inner, kv_inner, kv_width = config.inner(width), config.kv_inner(width), config.kv_width(width)
        self.heads = (config.heads, config.kv_heads or config.heads, config.kv_heads or config.heads)
        self.widths = (inner, kv_inner, kv_width - kv_inner)
        self.qkv = Linear(width, inner + kv_width, bias=config.projection_bias)
        rotary = RotaryAtPosition if decodes else Rotary
        self.rotary = rotary(tokens, inner // config.heads, config.rope_base) if config.position == "rope" else None

    @property
    def cached_widths(self) -> tuple[int, int]:
        """The widths of a head's keys and values: K, V."""
        return self.widths[1] // self.heads[1], self.widths[2] // self.heads[2]

    def projected(self, x_BND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, H, N, K), keys (B, G, N, K) and values (B, G, N, V)."""
        parts = zip(self.qkv(x_BND).split(self.widths, dim=-1), self.heads, strict=True)
        q_BHNK, k_BGNK, v_BGNV = (split_heads(part_BND, heads) for part_BND, heads in parts)
        if self.rotary is None:
            return q_BHNK, k_BGNK, v_BGNV
        return self.rotary(q_BHNK), self.rotary(k_BGNK), v_BGNV
