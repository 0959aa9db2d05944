"""Swin and Swin V2: alternating plain and shifted windows, patch merging between stages."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from xfcost.formulas.component import Heads, Ratio, Side, Width
from xfcost.importing.activations import Activation, act
from xfcost.importing.family import Aliases, Draft, Family, check_heads, classes
from xfcost.importing.images import STAGES, Size, check_patches, image, sides, square
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat


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
        for stage, heads in enumerate(self.num_heads):
            check_heads("num_heads", heads, f"embed_dim·2^{stage}", self.width(stage))
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
        height, width = (side // square(self.patch_size) for side in sides(self.image_size))
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
        last["blocks"] = [*_block_groups(block), [{"kind": "norm", "norm": "layer_norm"}]]
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
        return enter | size | {"pattern": [[plain, feed_forward], [_shifted(plain, shift), feed_forward]]}


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
        """Any window: a network computes the biases, and the window is clipped to the grid."""

    def window(self, heads: int) -> dict[str, Any]:
        biases = {"key_bias": False} if self.qkv_bias else {"projection_bias": False, "output_bias": True}
        return {
            "kind": "window", "size": self.window_size, "heads": heads, "score": "cosine", "bias": "log_cpb"
        } | biases  # fmt: skip


def _shifted(window: dict[str, Any], shift: int) -> dict[str, Any]:
    """The window with `shift` after `heads`, in the presets' order."""
    keys = {key: window[key] for key in ("kind", "size", "heads")}
    return keys | {"shift": shift} | window


def _block_groups(stage: dict[str, Any]) -> list[Any]:
    """A stage's depth and pattern as groups for `blocks`."""
    depth, pattern = stage["depth"], stage.get("pattern") or [stage["block"]]
    repeats, rest = divmod(depth, len(pattern))
    groups: list[Any] = [{"repeat": repeats, "blocks": pattern}] if repeats else []
    return [*groups, *pattern[:rest]]
