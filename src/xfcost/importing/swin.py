"""Swin and Swin V2: windows, plain and shifted in turn, on grids that are merged from stage to stage."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from xfcost.formulas.component import Heads, Side, Width
from xfcost.formulas.hidden_width import Ratio
from xfcost.importing.activations import Activation, act
from xfcost.importing.draft import Draft, check_heads
from xfcost.importing.family import Family
from xfcost.importing.pictures import STAGES, Size, check_patches, image, sides, square
from xfcost.ledger.errors import ComponentError
from xfcost.spec.grammar import Repeat


class Swin(Family, frozen=True, kw_only=True):
    """SwinConfig of transformers."""

    paper: ClassVar = "Liu et al. 2021, arXiv:2103.14030"
    architectures: ClassVar[tuple[str, ...]] = ("SwinForImageClassification", "SwinModel")
    uncounted: ClassVar = frozenset({"encoder_stride", "out_features", "out_indices", "stage_names", "path_norm"})
    aliases: ClassVar = {"num_attention_heads": "num_heads"}
    # transformers works these out
    mirrors: ClassVar = {"hidden_size": "last_width", "num_layers": "stages", "num_hidden_layers": "stages"}

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
        """Stages."""
        return len(self.depths)

    @property
    def last_width(self) -> int:
        """The width of the last stage."""
        return self.width(self.stages - 1)

    def width(self, stage: int) -> int:
        """The width of a stage, which doubles from one to the next."""
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
        """A window larger than a grid: transformers has a table of biases for all of it, and can't run."""
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
        """The mixer of a block, not shifted."""
        biases = {} if self.qkv_bias else {"projection_bias": False, "output_bias": True}
        return {"kind": "window", "size": self.window_size, "heads": heads} | biases

    def merging(self) -> dict[str, Any]:
        """What stands between two stages."""
        return {"kind": "patch_merging"}

    def draft(self, architecture: str) -> Draft:
        positions = [{"kind": "position", "form": "learned"}] if self.use_absolute_embeddings else []
        patch = {"kind": "patch", "size": square(self.patch_size), "norm": "layer_norm"}
        keys: dict[str, Any] = {
            "input": image(self.image_size, self.num_channels),
            **self.joining(),
            "embed": [patch, *positions],
            "stages": [self._stage(number) for number in range(self.stages)],
        }
        if not architecture.endswith("Model"):
            head = {"kind": "classifier", "pool": "mean", "norm": "layer_norm", "classes": self.num_labels}
            return Draft(keys | {"head": head}, [])
        last = keys["stages"][-1]
        block = {key: last.pop(key) for key in ("depth", "block", "pattern") if key in last}
        last["blocks"] = [*_written_out(block), [{"kind": "norm", "norm": "layer_norm"}]]
        return Draft(
            keys, [f"{architecture}: the mean of all tokens behind the last norm is left out; it costs a sum."]
        )

    def joining(self) -> dict[str, Any]:
        """How sub-layers join the stream, where it isn't the default."""
        return {}

    def _stage(self, number: int) -> dict[str, Any]:
        width, depth = self.width(number), self.depths[number]
        hidden = int(self.mlp_ratio * width)
        ratio = int(self.mlp_ratio) if float(self.mlp_ratio).is_integer() else None
        feed = {"kind": "mlp"} | ({"hidden": hidden} if ratio is None else {"ratio": ratio}) | act(self.hidden_act)
        plain = self.window(self.num_heads[number])
        shift = self.window_size // 2
        enter = {"enter": [self.merging()]} if number else {}
        size = {"dim": width, "depth": depth}
        if depth == 1 or not shift:
            return enter | size | {"block": [plain, feed]}
        return enter | size | {"pattern": [[plain, feed], [_shifted(plain, shift), feed]]}


class Swinv2(Swin, frozen=True, kw_only=True):
    """Swinv2Config of transformers."""

    paper: ClassVar = "Liu et al. 2022, arXiv:2111.09883"
    architectures: ClassVar[tuple[str, ...]] = ("Swinv2ForImageClassification", "Swinv2Model")
    only: ClassVar = {
        "use_absolute_embeddings": (
            (False,),
            "transformers keeps a position more than there are tokens, and can't run it",
        ),
    }
    # The windows of pre-training change what the network of biases is asked, and nothing that is counted.
    uncounted: ClassVar = Swin.uncounted | {"pretrained_window_sizes"}

    def check(self) -> None:
        super().check()
        if self.use_absolute_embeddings:
            raise ComponentError(
                "use_absolute_embeddings", "expected false: transformers keeps a position too many here"
            )

    def check_window(self) -> None:
        """A network answers for any window: it is clipped to the grid."""

    def window(self, heads: int) -> dict[str, Any]:
        keyed = {"key_bias": False} if self.qkv_bias else {"projection_bias": False, "output_bias": True}
        return {
            "kind": "window", "size": self.window_size, "heads": heads, "score": "cosine", "bias": "log_cpb"
        } | keyed  # fmt: skip

    def merging(self) -> dict[str, Any]:
        return {"kind": "patch_merging", "norm": "post"}

    def joining(self) -> dict[str, Any]:
        return {"residual": {"norm": "layer_norm", "place": "res_post"}}


def _shifted(window: dict[str, Any], shift: int) -> dict[str, Any]:
    """The window with its shift behind its heads, as the presets write it."""
    keys = {key: window[key] for key in ("kind", "size", "heads")}
    return keys | {"shift": shift} | window


def _written_out(stage: dict[str, Any]) -> list[Any]:
    """The blocks of a stage in nested groups, as `blocks` has them."""
    depth, pattern = stage["depth"], stage.get("pattern") or [stage["block"]]
    whole, rest = divmod(depth, len(pattern))
    groups: list[Any] = [{"repeat": whole, "blocks": pattern}] if whole else []
    return [*groups, *pattern[:rest]]
