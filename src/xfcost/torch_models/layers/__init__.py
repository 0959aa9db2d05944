"""The torch module of every config of `xfcost.layers`."""

from torch import nn

from xfcost.formulas.component import Component
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
from xfcost.torch_models.layers.axis_position import AxisPositionDoor
from xfcost.torch_models.layers.class_token import ClassTokenDoor, DistillationTokenDoor, MemoryTokensDoor
from xfcost.torch_models.layers.concatenate import ConcatenateDoor
from xfcost.torch_models.layers.conv import ConvDoor, PoolDoor
from xfcost.torch_models.layers.dense import DenseLayer
from xfcost.torch_models.layers.doors import (
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
from xfcost.torch_models.layers.fold_axis import FoldAxisDoor
from xfcost.torch_models.layers.glu import GatedFeedForward
from xfcost.torch_models.layers.heads import ClassifierHead, LanguageModelHead, MaskedLanguageModelHead, PoolerHead
from xfcost.torch_models.layers.local_relation import LocalRelationStem
from xfcost.torch_models.layers.mlp import FeedForward
from xfcost.torch_models.layers.moe import MixtureOfExperts
from xfcost.torch_models.layers.pooling_attention import PoolingAttentionDoor
from xfcost.torch_models.layers.shift import ContextLayer, ShiftDoor
from xfcost.torch_models.layers.upsample import UpsampleDoor

MODULES: dict[type[Component], type[nn.Module]] = {
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
