"""The torch module of every config of `xfcost.layers`."""

from torch import nn

from xfcost.formulas.component import Component
from xfcost.layers.axis_position import AxisPosition
from xfcost.layers.class_token import ClassToken
from xfcost.layers.classifier import Classifier
from xfcost.layers.concatenate import Concatenate
from xfcost.layers.context import Context
from xfcost.layers.conv import Conv
from xfcost.layers.dense import Dense
from xfcost.layers.distillation_token import DistillationToken
from xfcost.layers.fold import Fold
from xfcost.layers.fold_axis import FoldAxis
from xfcost.layers.fourier import Fourier
from xfcost.layers.geglu import Geglu
from xfcost.layers.language_model import LanguageModel
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.layers.masked_language_model import MaskedLanguageModel
from xfcost.layers.memory_tokens import MemoryTokens
from xfcost.layers.mlp import Mlp
from xfcost.layers.moe import Moe
from xfcost.layers.norm import Norm, NormSubLayer
from xfcost.layers.patch import Patch
from xfcost.layers.patch_merging import PatchMerging
from xfcost.layers.pixels import Pixels
from xfcost.layers.pool import Pool
from xfcost.layers.pooler import Pooler
from xfcost.layers.pooling_attention import PoolingAttention
from xfcost.layers.position import Position
from xfcost.layers.projection import Projection
from xfcost.layers.shift import Shift
from xfcost.layers.swiglu import Swiglu
from xfcost.layers.token import Token
from xfcost.layers.token_type import TokenType
from xfcost.layers.upsample import Upsample
from xfcost.torch_models.layers.axis_position import AxisPositionEmbedding
from xfcost.torch_models.layers.class_token import ClassTokenEmbedding
from xfcost.torch_models.layers.classifier import ClassifierHead
from xfcost.torch_models.layers.concatenate import ConcatenateLayer
from xfcost.torch_models.layers.context import ContextLayer
from xfcost.torch_models.layers.conv import ConvolutionStem
from xfcost.torch_models.layers.dense import DenseLayer
from xfcost.torch_models.layers.distillation_token import DistillationTokenEmbedding
from xfcost.torch_models.layers.fold import FoldLayer
from xfcost.torch_models.layers.fold_axis import FoldAxisLayer
from xfcost.torch_models.layers.fourier import FourierEmbedding
from xfcost.torch_models.layers.geglu import GegluFeedForward
from xfcost.torch_models.layers.language_model import LanguageModelHead
from xfcost.torch_models.layers.local_relation import LocalRelationStem
from xfcost.torch_models.layers.masked_language_model import MaskedLanguageModelHead
from xfcost.torch_models.layers.memory_tokens import MemoryTokenEmbedding
from xfcost.torch_models.layers.mlp import FeedForward
from xfcost.torch_models.layers.moe import MixtureOfExperts
from xfcost.torch_models.layers.norm import NormLayer
from xfcost.torch_models.layers.patch import PatchEmbedding
from xfcost.torch_models.layers.patch_merging import PatchMergingLayer
from xfcost.torch_models.layers.pixels import PixelEmbedding
from xfcost.torch_models.layers.pool import PoolingStem
from xfcost.torch_models.layers.pooler import PoolerHead
from xfcost.torch_models.layers.pooling_attention import PoolingByAttention
from xfcost.torch_models.layers.position import PositionEmbedding
from xfcost.torch_models.layers.projection import ProjectionLayer
from xfcost.torch_models.layers.shift import ShiftLayer
from xfcost.torch_models.layers.swiglu import SwigluFeedForward
from xfcost.torch_models.layers.token import TokenEmbedding
from xfcost.torch_models.layers.token_type import TokenTypeEmbedding
from xfcost.torch_models.layers.upsample import UpsampleLayer

MODULES: dict[type[Component], type[nn.Module]] = {
    Patch: PatchEmbedding,
    Token: TokenEmbedding,
    ClassToken: ClassTokenEmbedding,
    DistillationToken: DistillationTokenEmbedding,
    MemoryTokens: MemoryTokenEmbedding,
    Position: PositionEmbedding,
    TokenType: TokenTypeEmbedding,
    Norm: NormLayer,
    NormSubLayer: NormLayer,
    Fold: FoldLayer,
    FoldAxis: FoldAxisLayer,
    Pixels: PixelEmbedding,
    Fourier: FourierEmbedding,
    Projection: ProjectionLayer,
    AxisPosition: AxisPositionEmbedding,
    Shift: ShiftLayer,
    Conv: ConvolutionStem,
    Pool: PoolingStem,
    LocalRelationEmbed: LocalRelationStem,
    PatchMerging: PatchMergingLayer,
    PoolingAttention: PoolingByAttention,
    Upsample: UpsampleLayer,
    Concatenate: ConcatenateLayer,
    Mlp: FeedForward,
    Swiglu: SwigluFeedForward,
    Geglu: GegluFeedForward,
    Moe: MixtureOfExperts,
    Dense: DenseLayer,
    Context: ContextLayer,
    Classifier: ClassifierHead,
    LanguageModel: LanguageModelHead,
    MaskedLanguageModel: MaskedLanguageModelHead,
    Pooler: PoolerHead,
}
