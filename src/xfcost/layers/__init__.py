"""One page per layer that mixes no tokens: doors, heads, feed-forward networks."""

from xfcost.layers.base import Embed, Enter, Head, PerToken
from xfcost.layers.class_token import ClassToken
from xfcost.layers.heads import Classifier, LanguageModel
from xfcost.layers.memory_tokens import MemoryTokens
from xfcost.layers.mlp import Mlp
from xfcost.layers.patch import Patch
from xfcost.layers.patch_merging import PatchMerging
from xfcost.layers.position import Position
from xfcost.layers.token import Token

# The written lists, by where a layer may stand.
EMBEDS: tuple[type[Embed], ...] = (Patch, Token, ClassToken, MemoryTokens, Position)
ENTERS: tuple[type[Enter], ...] = (PatchMerging,)
SUBLAYERS: tuple[type[PerToken], ...] = (Mlp,)
HEADS: tuple[type[Head], ...] = (Classifier, LanguageModel)

AnyEmbed = Patch | Token | ClassToken | MemoryTokens | Position
AnyEnter = PatchMerging
AnySubLayer = Mlp
AnyHead = Classifier | LanguageModel

__all__ = [
    "EMBEDS",
    "ENTERS",
    "HEADS",
    "SUBLAYERS",
    "AnyEmbed",
    "AnyEnter",
    "AnyHead",
    "AnySubLayer",
    "ClassToken",
    "Classifier",
    "LanguageModel",
    "MemoryTokens",
    "Mlp",
    "Patch",
    "PatchMerging",
    "Position",
    "Token",
]
