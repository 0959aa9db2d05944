"""The layers around the mixers: stems, embeddings, heads, feed-forward networks."""

from xfcost.formulas.layer import Embed, Enter, Head, PerToken
from xfcost.layers.axis_position import AxisPosition
from xfcost.layers.class_token import ClassToken, DistillationToken
from xfcost.layers.concatenate import Concatenate
from xfcost.layers.conv import Conv, Pool
from xfcost.layers.dense import Dense
from xfcost.layers.fold import Fold
from xfcost.layers.fold_axis import FoldAxis
from xfcost.layers.fourier import Fourier, Pixels
from xfcost.layers.glu import Geglu, Swiglu
from xfcost.layers.heads import Classifier, LanguageModel, Pooler
from xfcost.layers.local_relation import LocalRelationDoor
from xfcost.layers.masked_language_model import MaskedLanguageModel
from xfcost.layers.memory_tokens import MemoryTokens
from xfcost.layers.mlp import Mlp
from xfcost.layers.moe import Moe
from xfcost.layers.norm import Norm, NormLayer
from xfcost.layers.patch import Patch
from xfcost.layers.patch_merging import PatchMerging
from xfcost.layers.pooling_attention import PoolingAttention
from xfcost.layers.position import Position
from xfcost.layers.projection import Projection
from xfcost.layers.shift import Context, Shift
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
    LocalRelationDoor,
)
# A stage's door takes what stands behind the first step of the model's door too.
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
SUBLAYERS: tuple[type[PerToken], ...] = (Mlp, Swiglu, Geglu, Moe, Dense, Context, NormLayer)
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
    | LocalRelationDoor
)
AnyEnter = PatchMerging | PoolingAttention | Upsample | Conv | Pool | Norm | ClassToken | Position | Concatenate
AnySubLayer = Mlp | Swiglu | Geglu | Moe | Dense | Context | NormLayer
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
    "LocalRelationDoor",
    "MaskedLanguageModel",
    "MemoryTokens",
    "Mlp",
    "Moe",
    "Norm",
    "NormLayer",
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
