"""ConvNeXt: blocks with a depthwise convolution, a 2×2 convolution between stages."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from xfcost.formulas.component import Side, Width
from xfcost.importing.activations import Activation, act
from xfcost.importing.family import Aliases, Draft, Family
from xfcost.importing.images import STAGES, Size, check_lengths, check_patches, image, square
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat


class ConvNext(Family, frozen=True, kw_only=True):
    """ConvNextConfig of transformers."""

    paper = "Liu et al. 2022, A ConvNet for the 2020s, arXiv:2201.03545"
    architectures = ("ConvNextForImageClassification",)
    aliases: ClassVar[Aliases] = {"num_hidden_layers": "num_stages"}
    cost_free = frozenset({"out_features", "out_indices", "stage_names"})

    num_channels: Side = 3
    patch_size: Size = 4
    num_stages: Side = 4
    hidden_sizes: Annotated[list[Width], STAGES] = msgspec.field(default_factory=lambda: [96, 192, 384, 768])
    depths: Annotated[list[Repeat], STAGES] = msgspec.field(default_factory=lambda: [3, 3, 9, 3])
    hidden_act: Activation = "gelu"
    layer_scale_init_value: float = 1e-6
    image_size: Size = 224

    def check(self) -> None:
        check_lengths(self, "num_stages", "hidden_sizes", "depths")
        check_patches(self.image_size, self.patch_size)
        if self.layer_scale_init_value < 0:
            raise ComponentError("layer_scale_init_value", f"expected 0 or more, got {self.layer_scale_init_value}")

    def draft(self, architecture: str) -> Draft:
        patch = square(self.patch_size)
        scale = {"layer_scale": self.layer_scale_init_value} if self.layer_scale_init_value > 0 else {}
        keys = {
            "input": image(self.image_size, self.num_channels),
            "residual": {"norm": "none"} | scale,
            "embed": [{"kind": "conv", "size": patch, "stride": patch, "norm": "layer_norm"}],
            "stages": [self._stage(number) for number in range(self.num_stages)],
            "head": {
                "kind": "classifier", "pool": "mean", "norm": "layer_norm", "norm_after_pool": True,
                "classes": self.num_labels,
            },
        }  # fmt: skip
        return Draft(keys, [])

    def _stage(self, number: int) -> dict[str, Any]:
        downsampling = [{"kind": "norm", "norm": "layer_norm"}, {"kind": "conv", "size": 2, "stride": 2}]
        block = [{"kind": "convnext", "size": 7, "ratio": 4} | act(self.hidden_act)]
        enter = {"enter": downsampling} if number else {}
        return enter | {"dim": self.hidden_sizes[number], "depth": self.depths[number], "block": block}
