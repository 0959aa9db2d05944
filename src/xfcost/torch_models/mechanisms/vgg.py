"""Module of `mechanisms/residual_blocks.py`: convolutions, a max-pool. B batch, N tokens, D width, Y and X sides."""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.formulas.conv_kernel import kernel_of_three
from xfcost.mechanisms.residual_blocks import Vgg
from xfcost.torch_models.shared.chain import Chain
from xfcost.torch_models.shared.convolution import Convolution, Pooling, in_rows, on_grid
from xfcost.torch_models.shared.norms import GridNorm


class VggBlock(Chain):
    """(B, N, D) -> (B, N', D'), by (B, D, Y, X)."""

    def __init__(self, config: Vgg, place: Place) -> None:
        leaves: dict[str, nn.Module | None] = {}
        width = place.out_dim
        for number in range(1, config.convs + 1):
            inputs = place.dim if number == 1 else width
            leaves[f"conv{number}"] = Convolution(inputs, width, kernel_of_three(place.grid))
            leaves[f"norm{number}"] = None if config.norm == "none" else GridNorm(width)
            leaves[f"act{number}"] = nn.ReLU()
        super().__init__(**leaves, pool=Pooling("max", config.pool(place.grid)))
        self.sides = place.grid.sides

    def forward(self, x_BND: Tensor) -> Tensor:
        return in_rows(super().forward(on_grid(x_BND, self.sides)))
