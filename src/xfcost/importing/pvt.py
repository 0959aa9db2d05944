"""PVT: patch embeddings at every stage entry, attention over spatially reduced keys."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from xfcost.formulas.component import Heads, Ratio, Rows, Side, Width
from xfcost.importing.activations import Activation, act
from xfcost.importing.family import Draft, Family, Values, check_heads
from xfcost.importing.images import STAGES, check_lengths, image
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat


class Pvt(Family, frozen=True, kw_only=True):
    """PvtConfig of transformers."""

    paper = "Wang et al. 2021, arXiv:2102.12122"
    architectures = ("PvtForImageClassification",)
    supported_values: ClassVar[Values] = {"qkv_bias": ((True,), "this mixer cannot have a bias of the output alone")}

    image_size: Side = 224
    num_channels: Side = 3
    num_encoder_blocks: Side = 4
    depths: Annotated[list[Repeat], STAGES] = msgspec.field(default_factory=lambda: [2, 2, 2, 2])
    sequence_reduction_ratios: Annotated[list[Side], STAGES] = msgspec.field(default_factory=lambda: [8, 4, 2, 1])
    hidden_sizes: Annotated[list[Width], STAGES] = msgspec.field(default_factory=lambda: [64, 128, 320, 512])
    patch_sizes: Annotated[list[Side], STAGES] = msgspec.field(default_factory=lambda: [4, 2, 2, 2])
    strides: Annotated[list[Side], STAGES] = msgspec.field(default_factory=lambda: [4, 2, 2, 2])
    num_attention_heads: Annotated[list[Heads], STAGES] = msgspec.field(default_factory=lambda: [1, 2, 5, 8])
    mlp_ratios: Annotated[list[Ratio], STAGES] = msgspec.field(default_factory=lambda: [8, 8, 4, 4])
    hidden_act: Activation = "gelu"
    num_labels: Rows = 1000

    def check(self) -> None:
        widths = ("hidden_sizes", "patch_sizes", "strides", "num_attention_heads", "mlp_ratios")
        check_lengths(self, "num_encoder_blocks", "depths", "sequence_reduction_ratios", *widths)
        if self.num_encoder_blocks < 2:  # noqa: PLR2004 - patches enter in the first stage, the class token in the last
            raise ComponentError("num_encoder_blocks", "expected at least 2")
        if self.patch_sizes != self.strides:
            raise ComponentError(
                "strides", f"expected patch_sizes, {self.patch_sizes}, got {self.strides}: patches don't overlap"
            )
        if self.strides != [4] + [2] * (self.num_encoder_blocks - 1):
            raise ComponentError("strides", "expected 4, then 2 at every stage, to fit transformers' position tables")
        if self.sequence_reduction_ratios[-1] != 1:
            raise ComponentError("sequence_reduction_ratios", "expected 1 in the last stage, which has the class token")
        multiple = 2 ** (self.num_encoder_blocks + 1)
        if self.image_size % multiple:
            raise ComponentError(
                "image_size", f"expected a multiple of {multiple}, so that patches tile it, got {self.image_size}"
            )
        self._check_reduced()
        for heads, width in zip(self.num_attention_heads, self.hidden_sizes, strict=True):
            check_heads("num_attention_heads", heads, "hidden_sizes", width)

    def _check_reduced(self) -> None:
        for number, ratio in enumerate(self.sequence_reduction_ratios):
            side = self.image_size // 2 ** (number + 2)
            if side % ratio:
                raise ComponentError("sequence_reduction_ratios", f"{ratio} does not divide the grid's side {side}")

    def draft(self, architecture: str) -> Draft:
        patch = {"kind": "patch", "size": self.patch_sizes[0], "norm": "layer_norm"}
        keys = {
            "input": image(self.image_size, self.num_channels),
            "embed": [patch, {"kind": "position"}],
            "stages": [self._stage(number) for number in range(self.num_encoder_blocks)],
            "head": {"kind": "classifier", "pool": "class_token", "norm": "layer_norm", "classes": self.num_labels},
        }
        return Draft(keys, [])

    def _stage(self, number: int) -> dict[str, Any]:
        width, size, ratio = self.hidden_sizes[number], self.patch_sizes[number], self.sequence_reduction_ratios[number]
        last = number == self.num_encoder_blocks - 1
        entry: list[dict[str, Any]] = [{"kind": "conv", "size": size, "stride": size, "norm": "layer_norm"}]
        entry += [{"kind": "class_token"}] if last else []
        reduction = {} if ratio == 1 else {"reduction": ratio}
        block = [
            {"kind": "spatial_reduction", "heads": self.num_attention_heads[number]} | reduction,
            {"kind": "mlp", "hidden": int(width * self.mlp_ratios[number])} | act(self.hidden_act),
        ]
        enter = {"enter": [*entry, {"kind": "position"}]} if number else {}
        return enter | {"dim": width, "depth": self.depths[number], "block": block}
