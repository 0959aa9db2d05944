"""Module of `layers/stems.py`: joins an earlier stage's output.

B batch, N tokens, D width, E width of the earlier stage.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import Concatenate
from xfcost.torch_models.shared.leaves import Leaf, joined


class ConcatenateLayer(nn.Module):
    """(B, N, D), the earlier stage's output (B, N, E) -> (B, N, E+D)."""

    def __init__(self, config: Concatenate, place: Place) -> None:
        super().__init__()
        self.concatenate = Leaf(joined, dim=-1)

    def forward(self, x_BND: Tensor, earlier_BNE: Tensor) -> Tensor:
        return self.concatenate(earlier_BNE, x_BND)
