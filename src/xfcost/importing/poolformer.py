"""PoolFormer: average pools instead of attention, a group norm before each sub-layer."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from xfcost.formulas.component import Ratio, Side, Width
from xfcost.importing.activations import Activation, act
from xfcost.importing.family import Draft, Family
from xfcost.importing.images import STAGES, check_lengths
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat


class PoolFormer(Family, frozen=True, kw_only=True):
    """PoolFormerConfig of transformers; it has no image size."""

    paper = "Yu et al. 2022, arXiv:2111.11418"
    architectures = ("PoolFormerForImageClassification",)
    # the model reads `patch_sizes` and `strides` instead
    cost_free = frozenset({"patch_size", "stride"})

    num_channels: Side = 3
    pool_size: Annotated[int, msgspec.Meta(ge=3, le=2**16)] = 3
    mlp_ratio: Ratio = 4.0
    num_encoder_blocks: Side = 4
    depths: Annotated[list[Repeat], STAGES] = msgspec.field(default_factory=lambda: [2, 2, 6, 2])
    hidden_sizes: Annotated[list[Width], STAGES] = msgspec.field(default_factory=lambda: [64, 128, 320, 512])
    patch_sizes: Annotated[list[Side], STAGES] = msgspec.field(default_factory=lambda: [7, 3, 3, 3])
    strides: Annotated[list[Side], STAGES] = msgspec.field(default_factory=lambda: [4, 2, 2, 2])
    padding: Annotated[list[int], STAGES] = msgspec.field(default_factory=lambda: [2, 1, 1, 1])
    hidden_act: Activation = "gelu"
    use_layer_scale: bool = True
    layer_scale_init_value: float = 1e-5

    def check(self) -> None:
        check_lengths(self, "num_encoder_blocks", "depths", "hidden_sizes", "patch_sizes", "strides", "padding")
        if self.pool_size % 2 == 0:
            raise ComponentError("pool_size", f"{self.pool_size} is even, and a pool is centred on its token")
        if self.use_layer_scale and self.layer_scale_init_value <= 0:
            raise ComponentError("layer_scale_init_value", f"expected more than 0, got {self.layer_scale_init_value}")
        if any(padding < 0 for padding in self.padding):
            raise ComponentError("padding", f"expected 0 or more, got {self.padding}")

    def draft(self, architecture: str) -> Draft:
        scale = {"layer_scale": self.layer_scale_init_value} if self.use_layer_scale else {}
        keys = {
            "input": {"kind": "image", "size": 224, "channels": self.num_channels},
            "residual": {"norm": "group_norm"} | scale,
            "embed": [self._patches(0)],
            "stages": [self._stage(number) for number in range(self.num_encoder_blocks)],
            "head": {"kind": "classifier", "pool": "mean", "norm": "group_norm", "classes": self.num_labels},
        }
        return Draft(keys, ["Assumed: an image of 224; the config has no image size."])

    def _patches(self, number: int) -> dict[str, Any]:
        size, stride, padding = self.patch_sizes[number], self.strides[number], self.padding[number]
        return {"kind": "conv", "size": size, "stride": stride, "padding": padding}

    def _stage(self, number: int) -> dict[str, Any]:
        width = self.hidden_sizes[number]
        pool = {"kind": "average_pool", "size": self.pool_size}
        feed_forward = {"kind": "mlp", "hidden": int(width * self.mlp_ratio)} | act(self.hidden_act)
        enter = {"enter": [self._patches(number)]} if number else {}
        return enter | {"dim": width, "depth": self.depths[number], "block": [pool, feed_forward]}
