"""The layers around the mixers, one file per kind and named after it; the written lists say where a kind may stand."""

from xfcost.formulas.kinds import Kinds
from xfcost.formulas.layer import Embed, Enter, Head, PerToken

# kind: its class in layers/KIND.py, its torch module in torch_models/layers/KIND.py
EMBEDS: Kinds[Embed] = Kinds(
    __name__,
    {
        "patch": ("Patch", "PatchEmbedding"),
        "token": ("Token", "TokenEmbedding"),
        "class_token": ("ClassToken", "ClassTokenEmbedding"),
        "distillation_token": ("DistillationToken", "DistillationTokenEmbedding"),
        "memory_tokens": ("MemoryTokens", "MemoryTokenEmbedding"),
        "position": ("Position", "PositionEmbedding"),
        "token_type": ("TokenType", "TokenTypeEmbedding"),
        "norm": ("Norm", "NormLayer"),
        "fold": ("Fold", "FoldLayer"),
        "fold_axis": ("FoldAxis", "FoldAxisLayer"),
        "pixels": ("Pixels", "PixelEmbedding"),
        "fourier": ("Fourier", "FourierEmbedding"),
        "projection": ("Projection", "ProjectionLayer"),
        "axis_position": ("AxisPosition", "AxisPositionEmbedding"),
        "shift": ("Shift", "ShiftLayer"),
        "conv": ("Conv", "ConvolutionStem"),
        "pool": ("Pool", "PoolingStem"),
        "local_relation": ("LocalRelationEmbed", "LocalRelationStem"),
    },
)
# Stage transitions; some embedding layers may stand at a stage's entry too.
ENTERS: Kinds[Embed | Enter] = Kinds(
    __name__,
    {
        "patch_merging": ("PatchMerging", "PatchMergingLayer"),
        "pooling_attention": ("PoolingAttention", "PoolingByAttention"),
        "upsample": ("Upsample", "UpsampleLayer"),
        **EMBEDS.some("conv", "pool", "norm", "class_token", "position"),
        "concatenate": ("Concatenate", "ConcatenateLayer"),
    },
)
SUBLAYERS: Kinds[PerToken] = Kinds(
    __name__,
    {
        "mlp": ("Mlp", "FeedForward"),
        "swiglu": ("Swiglu", "SwigluFeedForward"),
        "geglu": ("Geglu", "GegluFeedForward"),
        "moe": ("Moe", "MixtureOfExperts"),
        "dense": ("Dense", "DenseLayer"),
        "context": ("Context", "ContextLayer"),
        "norm": ("NormSubLayer", "NormLayer"),
    },
)
HEADS: Kinds[Head] = Kinds(
    __name__,
    {
        "classifier": ("Classifier", "ClassifierHead"),
        "flatten_classifier": ("FlattenClassifier", "FlattenClassifierHead"),
        "language_model": ("LanguageModel", "LanguageModelHead"),
        "masked_language_model": ("MaskedLanguageModel", "MaskedLanguageModelHead"),
        "pooler": ("Pooler", "PoolerHead"),
    },
)
