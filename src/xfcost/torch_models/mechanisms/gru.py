"""Module of `mechanisms/recurrent.py`: a gated recurrent unit. B batch, N tokens, D width, H hidden units."""

from __future__ import annotations

from xfcost.torch_models.shared.recurrent import RecurrentLayer


class GruLayer(RecurrentLayer):
    """(B, N, D) -> (B, N, H), bidirectional (B, N, 2·H). The reset gate applies after or before the state's map."""
