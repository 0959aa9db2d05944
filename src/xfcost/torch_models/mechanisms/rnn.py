"""Module of `mechanisms/recurrent.py`: a network without gates. B batch, N tokens, D width, H hidden units."""

from __future__ import annotations

from xfcost.torch_models.shared.recurrent import RecurrentLayer


class RnnLayer(RecurrentLayer):
    """(B, N, D) -> (B, N, H), bidirectional (B, N, 2·H): h = act(x + U h + b')."""
