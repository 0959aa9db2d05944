"""The torch twin of every page of `xfcost.layers`."""

from torch import nn

from xfcost.layers import (
    Classifier,
    ClassToken,
    Dense,
    Fold,
    LanguageModel,
    MemoryTokens,
    Mlp,
    Norm,
    Patch,
    PatchMerging,
    Pooler,
    Position,
    Token,
    TokenType,
)
from xfcost.live.layers.dense import DenseLayer
from xfcost.live.layers.doors import (
    ClassTokenDoor,
    FoldDoor,
    MemoryTokensDoor,
    NormDoor,
    PatchEmbedding,
    PatchMergingDoor,
    PositionDoor,
    TokenEmbedding,
    TokenTypeDoor,
)
from xfcost.live.layers.heads import ClassifierHead, LanguageModelHead, PoolerHead
from xfcost.live.layers.mlp import FeedForward
from xfcost.mechanisms.base import Page

TWINS: dict[type[Page], type[nn.Module]] = {
    Patch: PatchEmbedding,
    Token: TokenEmbedding,
    ClassToken: ClassTokenDoor,
    MemoryTokens: MemoryTokensDoor,
    Position: PositionDoor,
    TokenType: TokenTypeDoor,
    Norm: NormDoor,
    Fold: FoldDoor,
    PatchMerging: PatchMergingDoor,
    Mlp: FeedForward,
    Dense: DenseLayer,
    Classifier: ClassifierHead,
    LanguageModel: LanguageModelHead,
    Pooler: PoolerHead,
}
