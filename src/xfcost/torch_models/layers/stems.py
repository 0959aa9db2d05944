"""Stems: pixels, vectors or sequences become tokens, or another grid of tokens.

B batch, N tokens, D width, C channels, Y and X the grid's sides (X also the length of a folded axis).
"""

from __future__ import annotations

from torch import Tensor, nn

from xfcost.formulas.component import Place
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.layers.stems import ConvEmbed, Fold, FoldAxis, Patch, Pixels, Pool, Projection
from xfcost.torch_models.mechanisms.local_attention import LocalRelationLayer
from xfcost.torch_models.shared.convolution import TokenConvolution, TokenPooling, in_rows
from xfcost.torch_models.shared.leaves import ACTIVATIONS, Chain, Leaf, Linear, Uninitialised
from xfcost.torch_models.shared.norms import norm


class PatchProjection(Uninitialised, nn.Conv2d):
    """nn.Conv2d with tokens as output; it skips the initialisation on `meta`: (B, C, Y, X) -> (B, N, D)."""

    def forward(self, image_BCYX: Tensor) -> Tensor:
        return in_rows(super().forward(image_BCYX))


class PatchEmbedding(Chain):
    """(B, C, Y, X) -> (B, N, D)."""

    def __init__(self, config: Patch, place: Place) -> None:
        projection = PatchProjection(place.dim, place.out_dim, config.size, config.size, bias=config.bias)
        super().__init__(projection=projection, norm=norm(config.norm, place.out_dim))


class PixelEmbedding(Chain):
    """(B, C, Y, X) or, for a video, (B, C, T, Y, X) -> (B, N, C)."""

    def __init__(self, config: Pixels, place: Place) -> None:
        super().__init__(flatten=Leaf(in_rows))


class ProjectionLayer(Chain):
    """(B, N, C) -> (B, N, D)."""

    def __init__(self, config: Projection, place: Place) -> None:
        super().__init__(projection=Linear(place.dim, place.out_dim, bias=config.bias))


class ConvolutionStem(Chain):
    """(B, C, Y, X) or (B, N, C) -> (B, N', D)."""

    def __init__(self, config: ConvEmbed, place: Place) -> None:
        width, options = config.out(place)[1], {"groups": config.groups, "bias": config.bias}
        conv = TokenConvolution(place.grid.sides, place.dim, width, config.kernel(place), **options)
        act = None if config.act == "none" else ACTIVATIONS[config.act]()
        super().__init__(conv=conv, norm=norm(config.norm, width), act=act)


class PoolingStem(Chain):
    """(B, C, Y, X) or (B, N, D) -> (B, N', D)."""

    def __init__(self, config: Pool, place: Place) -> None:
        super().__init__(pool=TokenPooling(place.grid.sides, config.form, config.kernel(place)))


class LocalRelationStem(Chain):
    """(B, N, D) -> (B, N', D)."""

    def __init__(self, config: LocalRelationEmbed, place: Place) -> None:
        act = None if config.act == "none" else ACTIVATIONS[config.act]()
        super().__init__(inner=LocalRelationLayer(config.layer, place), norm=norm(config.norm, place.dim), act=act)


class FoldLayer(Chain):
    """(B, N, D) -> (B, N, D), unchanged: tokens of a grid are in raster order."""

    def __init__(self, config: Fold, place: Place) -> None:
        super().__init__(fold=nn.Identity())


class FoldAxisLayer(Chain):
    """(B, N·X, D) -> (B, N, X·D)."""

    def __init__(self, config: FoldAxis, place: Place) -> None:
        super().__init__(fold=Leaf(side_by_side, count=place.grid.sides[-1]))


def side_by_side(x_BND: Tensor, *, count: int) -> Tensor:
    """Each run of `count` tokens as one token: a view."""
    return x_BND.unflatten(1, (-1, count)).flatten(2)
