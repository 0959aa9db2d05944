"""The torch twin of every page of `xfcost.layers`."""

from torch import nn

from xfcost.layers import (
    Classifier,
    ClassToken,
    LanguageModel,
    MemoryTokens,
    Mlp,
    Patch,
    PatchMerging,
    Position,
    Token,
)
from xfcost.live.layers.doors import (
    ClassTokenDoor,
    MemoryTokensDoor,
    PatchEmbedding,
    PatchMergingDoor,
    PositionDoor,
    TokenEmbedding,
)
from xfcost.live.layers.heads import ClassifierHead, LanguageModelHead
from xfcost.live.layers.mlp import FeedForward
from xfcost.mechanisms.base import Page

TWINS: dict[type[Page], type[nn.Module]] = {
    Patch: PatchEmbedding,
    Token: TokenEmbedding,
    ClassToken: ClassTokenDoor,
    MemoryTokens: MemoryTokensDoor,
    Position: PositionDoor,
    PatchMerging: PatchMergingDoor,
    Mlp: FeedForward,
    Classifier: ClassifierHead,
    LanguageModel: LanguageModelHead,
}
