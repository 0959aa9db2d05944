"""Models of images: ViT, DeiT, PVT, PoolFormer, ConvNeXt, ResNet, Swin."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from xfcost.formulas.component import ActKind, Heads, Ratio, Rows, Side, Width
from xfcost.importing.family import Activation, Aliases, Draft, Family, Values, act, check_heads, classes, mlp
from xfcost.importing.text import stage
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat, Size, height_and_width

STAGES: Final = msgspec.Meta(min_length=1, max_length=12)


def square(size: int | list[int]) -> int:
    """The side of a square patch."""
    return height_and_width(size)[0]


def image(size: int | list[int], channels: int) -> dict[str, Any]:
    """The input of a spec."""
    height, width = height_and_width(size)
    return {"kind": "image", "size": height if height == width else [height, width], "channels": channels}


def check_lengths(config: msgspec.Struct, stages_field: str, *fields: str) -> None:
    """Raise ComponentError if a list has not one item per stage; `stages_field` has their number, or one for each."""
    given = getattr(config, stages_field)
    stages = given if isinstance(given, int) else len(given)
    for field in fields:
        items = len(getattr(config, field))
        if items != stages:
            raise ComponentError(field, f"expected {stages} items, one per stage ({stages_field}), got {items}")


def check_patches(size: int | list[int], patch: int | list[int]) -> None:
    """Raise ComponentError if patches are not square or don't tile the image."""
    height, width = height_and_width(patch)
    if height != width:
        raise ComponentError("patch_size", f"expected square patches, got {height}×{width}")
    if any(side % height for side in height_and_width(size)):
        shown = "×".join(str(side) for side in height_and_width(size))
        raise ComponentError("patch_size", f"{height} does not divide the image {shown} (image_size)")


class Vit(Family, frozen=True, kw_only=True):
    """ViTConfig of transformers."""

    paper = "Dosovitskiy et al. 2021, arXiv:2010.11929"
    architectures = classes("ViT", "ImageClassification Model")
    heads_and_width = ("num_attention_heads", "hidden_size")
    cost_free = frozenset({"encoder_stride"})

    hidden_size: Width = 768
    num_hidden_layers: Repeat = 12
    num_attention_heads: Heads = 12
    intermediate_size: Width = 3072
    hidden_act: Activation = "gelu"
    image_size: Size = 224
    patch_size: Size = 16
    num_channels: Side = 3
    qkv_bias: bool = True
    pooler_output_size: Width | None = None
    pooler_act: Literal["tanh", "gelu", "relu", "silu"] = "tanh"

    def check(self) -> None:
        super().check()
        check_patches(self.image_size, self.patch_size)

    def tokens(self) -> list[dict[str, str]]:
        """Special tokens."""
        return [{"kind": "class_token"}]

    def head(self, architecture: str) -> dict[str, Any]:
        """The head of an architecture."""
        if architecture.endswith("Model"):
            width = {} if self.pooler_output_size in (None, self.hidden_size) else {"width": self.pooler_output_size}
            activation: dict[str, ActKind] = {} if self.pooler_act == "tanh" else {"act": self.pooler_act}
            return {"kind": "pooler", "norm": "layer_norm"} | width | activation
        has_teacher = architecture.endswith("WithTeacher")
        pool = ["class_token", "distillation_token"] if has_teacher else "class_token"
        return {"kind": "classifier", "pool": pool, "norm": "layer_norm", "classes": self.num_labels}

    def draft(self, architecture: str) -> Draft:
        biases = {} if self.qkv_bias else {"projection_bias": False, "output_bias": True}
        block = [
            {"kind": "full", "heads": self.num_attention_heads} | biases,
            mlp(self.intermediate_size, self.hidden_act),
        ]
        patch = {"kind": "patch", "size": square(self.patch_size)}
        keys = {
            "input": image(self.image_size, self.num_channels),
            "embed": [patch, *self.tokens(), {"kind": "position", "form": "learned"}],
            "stages": [stage(self.hidden_size, [(self.num_hidden_layers, block)])],
            "head": self.head(architecture),
        }
        return Draft(keys, [])


class Deit(Vit, frozen=True, kw_only=True):
    """DeiTConfig of transformers. All its models have a distillation token, whether or not a head reads it."""

    paper = "Touvron et al. 2021, arXiv:2012.12877"
    architectures = classes("DeiT", "ImageClassification ImageClassificationWithTeacher Model")

    def tokens(self) -> list[dict[str, str]]:
        return [{"kind": "class_token"}, {"kind": "distillation_token"}]


class Pvt(Family, frozen=True, kw_only=True):
    """PvtConfig of transformers."""

    paper = "Wang et al. 2021, arXiv:2102.12122"
    architectures = ("PvtForImageClassification",)
    supported_values: ClassVar[Values] = {"qkv_bias": ((True,), "this mixer cannot have a bias only for the output")}

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
        for number, ratio in enumerate(self.sequence_reduction_ratios):
            side = self.image_size // 2 ** (number + 2)
            if side % ratio:
                raise ComponentError("sequence_reduction_ratios", f"{ratio} does not divide the grid's side {side}")
        for heads, width in zip(self.num_attention_heads, self.hidden_sizes, strict=True):
            check_heads("num_attention_heads", heads, "hidden_sizes", width)

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
            "input": image(224, self.num_channels),
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


class ConvNextFamily(Family, frozen=True, kw_only=True):
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
            "input": image(224, self.num_channels),
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


class Swin(Family, frozen=True, kw_only=True):
    """SwinConfig of transformers."""

    paper = "Liu et al. 2021, arXiv:2103.14030"
    architectures = classes("Swin", "ImageClassification Model")
    cost_free = frozenset({"encoder_stride", "out_features", "out_indices", "stage_names", "path_norm"})
    aliases: ClassVar[Aliases] = {"num_attention_heads": "num_heads"}
    # transformers computes these
    mirrors: ClassVar[Aliases] = {"hidden_size": "final_width", "num_layers": "stages", "num_hidden_layers": "stages"}

    patch_merging: ClassVar[dict[str, str]] = {"kind": "patch_merging"}
    """The layer between two stages."""
    residual: ClassVar[dict[str, Any]] = {}
    """The `residual` key, if it isn't the default."""

    image_size: Size = 224
    patch_size: Size = 4
    num_channels: Side = 3
    embed_dim: Width = 96
    depths: Annotated[list[Repeat], STAGES] = msgspec.field(default_factory=lambda: [2, 2, 6, 2])
    num_heads: Annotated[list[Heads], STAGES] = msgspec.field(default_factory=lambda: [3, 6, 12, 24])
    window_size: Side = 7
    mlp_ratio: Ratio = 4.0
    qkv_bias: bool = True
    hidden_act: Activation = "gelu"
    use_absolute_embeddings: bool = False

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.depths)

    @property
    def final_width(self) -> int:
        """The width of the last stage."""
        return self.width(self.stages - 1)

    def width(self, stage: int) -> int:
        """The width of a stage; each stage doubles it."""
        return int(self.embed_dim * 2**stage)

    def check(self) -> None:
        check_patches(self.image_size, self.patch_size)
        if len(self.num_heads) != self.stages:
            raise ComponentError(
                "num_heads", f"expected {self.stages} numbers, as depths has, got {len(self.num_heads)}"
            )
        for number, heads in enumerate(self.num_heads):
            check_heads("num_heads", heads, f"embed_dim·2^{number}", self.width(number))
        self.check_window()

    def check_window(self) -> None:
        """Refuse a window larger than a grid: transformers builds its bias table for the whole window and can't run."""
        last = min(self.grid(self.stages - 1))
        if self.window_size > last:
            raise ComponentError(
                "window_size",
                f"expected at most {last}, the side of the last stage's grid, got {self.window_size}: transformers "
                "can't run it either; give a larger image_size",
            )

    def grid(self, stage: int) -> tuple[int, int]:
        """Height and width of a stage's grid."""
        height, width = (side // square(self.patch_size) for side in height_and_width(self.image_size))
        return -(-height // 2**stage), -(-width // 2**stage)

    def window(self, heads: int) -> dict[str, Any]:
        """The mixer of a block without shift."""
        biases = {} if self.qkv_bias else {"projection_bias": False, "output_bias": True}
        return {"kind": "window", "size": self.window_size, "heads": heads} | biases

    def draft(self, architecture: str) -> Draft:
        positions = [{"kind": "position", "form": "learned"}] if self.use_absolute_embeddings else []
        patch = {"kind": "patch", "size": square(self.patch_size), "norm": "layer_norm"}
        keys: dict[str, Any] = {
            "input": image(self.image_size, self.num_channels),
            **self.residual,
            "embed": [patch, *positions],
            "stages": [self._stage(number) for number in range(self.stages)],
        }
        if not architecture.endswith("Model"):
            head = {"kind": "classifier", "pool": "mean", "norm": "layer_norm", "classes": self.num_labels}
            return Draft(keys | {"head": head}, [])
        last = keys["stages"][-1]
        block = {key: last.pop(key) for key in ("depth", "block", "pattern") if key in last}
        pattern = block.get("pattern") or [block["block"]]
        repeats, rest = divmod(block["depth"], len(pattern))
        groups: list[Any] = [{"repeat": repeats, "blocks": pattern}] if repeats else []
        last["blocks"] = [*groups, *pattern[:rest], [{"kind": "norm", "norm": "layer_norm"}]]
        return Draft(keys, [f"{architecture}: the mean over tokens after the last norm is left out; it costs one sum."])

    def _stage(self, number: int) -> dict[str, Any]:
        width, depth = self.width(number), self.depths[number]
        hidden = int(self.mlp_ratio * width)
        ratio = int(self.mlp_ratio) if float(self.mlp_ratio).is_integer() else None
        feed_forward = (
            {"kind": "mlp"} | ({"hidden": hidden} if ratio is None else {"ratio": ratio}) | act(self.hidden_act)
        )
        plain = self.window(self.num_heads[number])
        shift = self.window_size // 2
        enter = {"enter": [self.patch_merging]} if number else {}
        size = {"dim": width, "depth": depth}
        if depth == 1 or not shift:
            return enter | size | {"block": [plain, feed_forward]}
        # `shift` after `heads`, in the presets' order
        shifted = {key: plain[key] for key in ("kind", "size", "heads")} | {"shift": shift} | plain
        return enter | size | {"pattern": [[plain, feed_forward], [shifted, feed_forward]]}


class Swinv2(Swin, frozen=True, kw_only=True):
    """Swinv2Config of transformers."""

    paper = "Liu et al. 2022, arXiv:2111.09883"
    architectures = classes("Swinv2", "ImageClassification Model")
    # the windows of pre-training change the inputs of the bias network, and no count
    cost_free = Swin.cost_free | {"pretrained_window_sizes"}
    patch_merging: ClassVar[dict[str, Any]] = {"kind": "patch_merging", "norm": "post"}
    residual: ClassVar[dict[str, Any]] = {"residual": {"norm": "layer_norm", "place": "res_post"}}

    def check(self) -> None:
        super().check()
        if self.use_absolute_embeddings:
            raise ComponentError("use_absolute_embeddings", "expected false: transformers has one position too many")

    def check_window(self) -> None:
        """Any window that is not clipped to an odd grid: transformers clips to half of that rounded down, and pads."""
        for number in range(1, self.stages):
            for tokens, side in zip(self.grid(0), self.grid(number), strict=True):
                half = tokens // 2**number
                if half < min(side, self.window_size + 1):
                    raise ComponentError(
                        "window_size",
                        f"expected less than {half}, for stage {number} has {side} tokens along an axis, an odd number "
                        f"of them halved, got {self.window_size}: transformers clips and pads windows there",
                    )

    def window(self, heads: int) -> dict[str, Any]:
        biases = {"key_bias": False} if self.qkv_bias else {"projection_bias": False, "output_bias": True}
        return {
            "kind": "window", "size": self.window_size, "heads": heads, "score": "cosine", "bias": "log_cpb"
        } | biases  # fmt: skip
