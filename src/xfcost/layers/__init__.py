"""The layers around the mixers: stems, embeddings, heads, feed-forward networks."""

from xfcost.formulas.layer import Embed, Enter, Head, PerToken
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

# The written lists, by where a layer may stand.
EMBEDS: tuple[type[Embed], ...] = (
    Patch,
    Token,
    ClassToken,
    DistillationToken,
    MemoryTokens,
    Position,
    TokenType,
    Norm,
    Fold,
    FoldAxis,
    Pixels,
    Fourier,
    Projection,
    AxisPosition,
    Shift,
    Conv,
    Pool,
    LocalRelationEmbed,
)
# A stage's entry takes some embedding layers too.
ENTERS: tuple[type[Embed | Enter], ...] = (
    PatchMerging,
    PoolingAttention,
    Upsample,
    Conv,
    Pool,
    Norm,
    ClassToken,
    Position,
    Concatenate,
)
SUBLAYERS: tuple[type[PerToken], ...] = (Mlp, Swiglu, Geglu, Moe, Dense, Context, NormSubLayer)
HEADS: tuple[type[Head], ...] = (Classifier, LanguageModel, MaskedLanguageModel, Pooler)

AnyEmbed = (
    Patch
    | Token
    | ClassToken
    | DistillationToken
    | MemoryTokens
    | Position
    | TokenType
    | Norm
    | Fold
    | FoldAxis
    | Pixels
    | Fourier
    | Projection
    | AxisPosition
    | Shift
    | Conv
    | Pool
    | LocalRelationEmbed
)
AnyEnter = PatchMerging | PoolingAttention | Upsample | Conv | Pool | Norm | ClassToken | Position | Concatenate
AnySubLayer = Mlp | Swiglu | Geglu | Moe | Dense | Context | NormSubLayer
AnyHead = Classifier | LanguageModel | MaskedLanguageModel | Pooler

__all__ = [
    "EMBEDS",
    "ENTERS",
    "HEADS",
    "SUBLAYERS",
    "AnyEmbed",
    "AnyEnter",
    "AnyHead",
    "AnySubLayer",
    "AxisPosition",
    "ClassToken",
    "Classifier",
    "Concatenate",
    "Context",
    "Conv",
    "Dense",
    "DistillationToken",
    "Fold",
    "FoldAxis",
    "Fourier",
    "Geglu",
    "LanguageModel",
    "LocalRelationEmbed",
    "MaskedLanguageModel",
    "MemoryTokens",
    "Mlp",
    "Moe",
    "Norm",
    "NormSubLayer",
    "Patch",
    "PatchMerging",
    "Pixels",
    "Pool",
    "Pooler",
    "PoolingAttention",
    "Position",
    "Projection",
    "Shift",
    "Swiglu",
    "Token",
    "TokenType",
    "Upsample",
]
