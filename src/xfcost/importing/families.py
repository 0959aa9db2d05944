"""The list of families by `model_type`. A family's file is imported when a config needs it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from xfcost.importing.family import Family

# model_type -> (file of this folder, struct in it)
FAMILIES: Final[dict[str, tuple[str, str]]] = {
    "bert": ("bert", "Bert"),
    "roberta": ("bert", "Roberta"),
    "xlm-roberta": ("bert", "XlmRoberta"),
    "distilbert": ("bert", "DistilBert"),
    "openai-gpt": ("gpt", "Gpt1"),
    "gpt2": ("gpt", "Gpt2"),
    "bloom": ("gpt", "Bloom"),
    "t5": ("t5", "T5"),
    "mt5": ("t5", "Mt5"),
    "llama": ("llama", "Llama"),
    "mistral": ("llama", "Mistral"),
    "qwen2": ("llama", "Qwen2"),
    "mixtral": ("moe", "Mixtral"),
    "deepseek_v2": ("moe", "DeepseekV2"),
    "deepseek_v3": ("moe", "DeepseekV3"),
    "mamba": ("recurrent", "Mamba"),
    "mamba2": ("recurrent", "Mamba2"),
    "rwkv": ("recurrent", "Rwkv"),
    "vit": ("vit", "Vit"),
    "deit": ("vit", "Deit"),
    "pvt": ("pvt", "Pvt"),
    "poolformer": ("poolformer", "PoolFormer"),
    "convnext": ("convnext", "ConvNext"),
    "resnet": ("resnet", "ResNet"),
    "swin": ("swin", "Swin"),
    "swinv2": ("swin", "Swinv2"),
}


def family_of(model_type: str) -> type[Family]:
    """The family of a `model_type` in the list."""
    module, name = FAMILIES[model_type]
    family: type[Family] = getattr(import_module(f"xfcost.importing.{module}"), name)
    return family
