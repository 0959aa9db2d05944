"""Module of `mechanisms/lstm.py`. B batch, N tokens, D width, H hidden units."""

from __future__ import annotations

from xfcost.torch_models.shared.recurrent import RecurrentLayer


class LstmLayer(RecurrentLayer):
    """(B, N, D) -> (B, N, H), or (B, N, 2·H) where it reads both ways: the state is h and c."""
