"""The torch twin of every page of `xfcost.layers`."""

from torch import nn

from xfcost.layers import (
    AxisPosition,
    Classifier,
    ClassToken,
    Concatenate,
    Context,
    Conv,
    Dense,
    DistillationToken,
    Fold,
    FoldAxis,
    Fourier,
    Geglu,
    LanguageModel,
    LocalRelationDoor,
    MaskedLanguageModel,
    MemoryTokens,
    Mlp,
    Moe,
    Norm,
    NormLayer,
    Patch,
    PatchMerging,
    Pixels,
    Pool,
    Pooler,
    PoolingAttention,
    Position,
    Projection,
    Shift,
    Swiglu,
    Token,
    TokenType,
    Upsample,
)
from xfcost.live.layers.axis_position import AxisPositionDoor
from xfcost.live.layers.class_token import ClassTokenDoor, DistillationTokenDoor, MemoryTokensDoor
from xfcost.live.layers.concatenate import ConcatenateDoor
from xfcost.live.layers.conv import ConvDoor, PoolDoor
from xfcost.live.layers.dense import DenseLayer
from xfcost.live.layers.doors import (
    FoldDoor,
    FourierDoor,
    NormDoor,
    PatchEmbedding,
    PatchMergingDoor,
    PixelsDoor,
    PositionDoor,
    ProjectionDoor,
    TokenEmbedding,
    TokenTypeDoor,
)
from xfcost.live.layers.fold_axis import FoldAxisDoor
from xfcost.live.layers.glu import GatedFeedForward
from xfcost.live.layers.heads import ClassifierHead, LanguageModelHead, MaskedLanguageModelHead, PoolerHead
from xfcost.live.layers.local_relation import LocalRelationStem
from xfcost.live.layers.mlp import FeedForward
from xfcost.live.layers.moe import MixtureOfExperts
from xfcost.live.layers.pooling_attention import PoolingAttentionDoor
from xfcost.live.layers.shift import ContextLayer, ShiftDoor
from xfcost.live.layers.upsample import UpsampleDoor
from xfcost.mechanisms.base import Page

TWINS: dict[type[Page], type[nn.Module]] = {
    Patch: PatchEmbedding,
    Token: TokenEmbedding,
    ClassToken: ClassTokenDoor,
    DistillationToken: DistillationTokenDoor,
    MemoryTokens: MemoryTokensDoor,
    Position: PositionDoor,
    TokenType: TokenTypeDoor,
    Norm: NormDoor,
    NormLayer: NormDoor,
    Fold: FoldDoor,
    FoldAxis: FoldAxisDoor,
    Pixels: PixelsDoor,
    Fourier: FourierDoor,
    Projection: ProjectionDoor,
    AxisPosition: AxisPositionDoor,
    Shift: ShiftDoor,
    Conv: ConvDoor,
    Pool: PoolDoor,
    LocalRelationDoor: LocalRelationStem,
    PatchMerging: PatchMergingDoor,
    PoolingAttention: PoolingAttentionDoor,
    Upsample: UpsampleDoor,
    Concatenate: ConcatenateDoor,
    Mlp: FeedForward,
    Swiglu: GatedFeedForward,
    Geglu: GatedFeedForward,
    Moe: MixtureOfExperts,
    Dense: DenseLayer,
    Context: ContextLayer,
    Classifier: ClassifierHead,
    LanguageModel: LanguageModelHead,
    MaskedLanguageModel: MaskedLanguageModelHead,
    Pooler: PoolerHead,
}
