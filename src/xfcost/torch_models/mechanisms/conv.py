"""Module of `mechanisms/conv.py`: a causal or centred convolution over the tokens.

B batch, N tokens, D width, E output width.
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.mechanisms.conv import Conv
from xfcost.torch_models.shared.cache import conv_state
from xfcost.torch_models.shared.convolution import in_rows, on_grid
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Glu, Linear, through
from xfcost.torch_models.shared.taps import convolution, padded, zeros_before


class ConvolutionLayer(nn.Module):
    """(B, N, D) -> (B, N, E), or a decode step (B, 1, D) -> (B, 1, E) that caches the convolution's inputs."""

    def __init__(self, config: Conv, place: Place, cache_batch: int | None = None) -> None:
        super().__init__()
        dim, width = place.dim, config.out(place)[1]
        wide = 2 * width if config.act == "glu" else width
        plain, decodes = config.form == "plain", cache_batch is not None
        self.sides, self.widths = (config.size,) if decodes else place.grid.sides, (dim, width)
        self.pad = None if decodes else zeros_before(config, place)
        self.window = conv_state(cache_batch, config.size, dim, dilation=config.dilation)
        widths, groups = ((dim, wide), 1) if plain else ((dim, dim), dim)
        convolve = convolution(config, place, widths, groups=groups, bias=config.bias, decodes=decodes)
        self.conv, self.depthwise = convolve if plain else None, None if plain else convolve
        self.pointwise = Linear(dim, wide, bias=config.bias) if config.form == "separable" else None
        self.glu: nn.Module | None = None
        self.act: nn.Module | None = None
        if config.act == "glu":
            self.glu = Glu()
        elif config.act != "none":
            self.act = ACTIVATIONS[config.act]()

    def residual_projection(self) -> nn.Module | None:
        """The projection of the residual stream to the new width."""
        return Linear(*self.widths) if self.widths[0] != self.widths[1] else None

    def forward(self, x_BND: Tensor) -> Tensor:
        convolve = self.conv or self.depthwise
        taps = x_BND if self.window is None else self.window(x_BND)
        y = in_rows(convolve(padded(self.pad, on_grid(taps, self.sides))))  # type: ignore[misc]
        return through(y, self.pointwise, self.glu, self.act)
