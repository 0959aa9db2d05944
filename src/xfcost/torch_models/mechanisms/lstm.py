"""Module of `mechanisms/recurrent.py`: a long short-term memory. B batch, N tokens, D width, H hidden units."""

from __future__ import annotations

from xfcost.torch_models.shared.recurrent import RecurrentLayer


class LstmLayer(RecurrentLayer):
    """(B, N, D) -> (B, N, H), bidirectional (B, N, 2·H). The state is h and c."""
