"""A norm of its own: among the embedding layers, at a stage's entry, or between the sub-layers of a block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from xfcost.formulas.component import NormKind, Operation, Place
from xfcost.formulas.layer import Embed, PerToken
from xfcost.formulas.rows import norm


class Norm(Embed, frozen=True, kw_only=True, tag="norm"):
    """A norm outside blocks: after the embeddings (BERT's public implementation), before a convolution (ConvNeXt's)."""

    token_wise: ClassVar[bool] = True

    norm: NormKind = "layer_norm"
    """Which norm."""

    def operations(self, place: Place) -> Iterator[Operation]:
        yield from norm(self.norm, "norm", place.grid.total, place.dim)


class NormSubLayer(PerToken, frozen=True, kw_only=True, tag="norm"):
    """A norm on the stream itself, in a block: the last step of a Conformer's (Gulati et al. 2020, equation 1)."""

    only_norm: ClassVar[bool] = True

    residual: Literal["none"] = "none"
    """Only `none`: the norm stands on the stream itself."""
    norm: NormKind = "layer_norm"
    """Which norm."""

    def operations(self, place: Place) -> Iterator[Operation]:
        yield from norm(self.norm, "norm", place.grid.total, place.dim)
