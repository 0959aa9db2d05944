"""ResNet: bottlenecks or pairs of convolutions, batch norms, a stride in a stage's first block."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from xfcost.formulas.component import Side, Width
from xfcost.importing.family import Draft, Family
from xfcost.importing.images import STAGES, check_lengths
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat

# A bottleneck has a quarter of the block's width.
_REDUCTION: Final = 4


class ResNet(Family, frozen=True, kw_only=True):
    """ResNetConfig of transformers; it has no image size."""

    paper = "He et al. 2016, arXiv:1512.03385"
    architectures = ("ResNetForImageClassification",)
    cost_free = frozenset({"out_features", "out_indices", "stage_names"})

    num_channels: Side = 3
    embedding_size: Width = 64
    hidden_sizes: Annotated[list[Width], STAGES] = msgspec.field(default_factory=lambda: [256, 512, 1024, 2048])
    depths: Annotated[list[Repeat], STAGES] = msgspec.field(default_factory=lambda: [3, 4, 6, 3])
    layer_type: Literal["bottleneck", "basic"] = "bottleneck"
    hidden_act: Literal["relu"] = "relu"
    downsample_in_first_stage: bool = False
    downsample_in_bottleneck: bool = False

    def check(self) -> None:
        check_lengths(self, "depths", "hidden_sizes")
        if self.layer_type == "bottleneck" and any(width < _REDUCTION for width in self.hidden_sizes):
            raise ComponentError(
                "hidden_sizes", f"expected at least {_REDUCTION}: a bottleneck has a quarter of the width"
            )

    def draft(self, architecture: str) -> Draft:
        keys = {
            "input": {"kind": "image", "size": 224, "channels": self.num_channels},
            "embed": [
                {
                    "kind": "conv", "size": 7, "stride": 2, "padding": 3, "channels": self.embedding_size,
                    "bias": False, "norm": "batch_norm", "act": "relu",
                },
                {"kind": "pool", "form": "max", "size": 3, "stride": 2, "padding": 1},
            ],
            "stages": [self._stage(number) for number in range(len(self.depths))],
            "head": {"kind": "classifier", "pool": "mean", "norm": "none", "classes": self.num_labels},
        }  # fmt: skip
        return Draft(keys, ["Assumed: an image of 224; the config has no image size."])

    def _stage(self, number: int) -> dict[str, Any]:
        width, depth = self.hidden_sizes[number], self.depths[number]
        bottleneck_width = {"width": width // _REDUCTION} if self.layer_type == "bottleneck" else {}
        block = {"kind": self.layer_type} | bottleneck_width
        has_stride = number or self.downsample_in_first_stage
        stride_on = {"stride_on": "1x1"} if self.downsample_in_bottleneck and bottleneck_width else {}
        first = block | ({"stride": 2} | stride_on if has_stride else {})
        rest = [{"repeat": depth - 1, "blocks": [[block]]}] if depth > 1 else []
        return {"dim": width, "blocks": [[first], *rest]}
