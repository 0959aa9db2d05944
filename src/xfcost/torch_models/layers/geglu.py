"""Module of `layers/feed_forward.py`: a feed-forward network gated by GELU. B batch, N tokens, D width."""

from __future__ import annotations

from xfcost.torch_models.shared.gated import GatedFeedForward


class GegluFeedForward(GatedFeedForward):
    """(gelu(xW) ⊗ xV)W₂: (B, N, D) -> (B, N, D)."""
