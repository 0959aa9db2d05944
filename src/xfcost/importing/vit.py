"""ViT and DeiT: patches, a class token and a distillation token, learned positions, full attention."""

from __future__ import annotations

from typing import Any, Literal

from xfcost.formulas.component import ActKind, Heads, Side, Width
from xfcost.importing.activations import Activation, mlp
from xfcost.importing.family import Draft, Family, classes
from xfcost.importing.images import Size, check_patches, image, square
from xfcost.importing.text import stage
from xfcost.spec.grammar import Repeat


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
