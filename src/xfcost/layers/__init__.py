"""The layers around the mixers; the written lists say in which file each is, and where a kind may stand."""

from xfcost.formulas.kinds import Kinds
from xfcost.formulas.layer import Embed, Enter, Head, PerToken

# kind: file:class in layers/, file:class of its torch module in torch_models/layers/
EMBEDS: Kinds[Embed] = Kinds(
    __name__,
    {
        "patch": ("patch:Patch", "patch:PatchEmbedding"),
        "token": ("token:Token", "token:TokenEmbedding"),
        "class_token": ("class_token:ClassToken", "class_token:ClassTokenEmbedding"),
        "distillation_token": ("distillation_token:DistillationToken", "distillation_token:DistillationTokenEmbedding"),
        "memory_tokens": ("memory_tokens:MemoryTokens", "memory_tokens:MemoryTokenEmbedding"),
        "position": ("position:Position", "position:PositionEmbedding"),
        "token_type": ("token_type:TokenType", "token_type:TokenTypeEmbedding"),
        "norm": ("norm:Norm", "norm:NormLayer"),
        "fold": ("fold:Fold", "fold:FoldLayer"),
        "fold_axis": ("fold_axis:FoldAxis", "fold_axis:FoldAxisLayer"),
        "pixels": ("pixels:Pixels", "pixels:PixelEmbedding"),
        "fourier": ("fourier:Fourier", "fourier:FourierEmbedding"),
        "projection": ("projection:Projection", "projection:ProjectionLayer"),
        "axis_position": ("axis_position:AxisPosition", "axis_position:AxisPositionEmbedding"),
        "shift": ("shift:Shift", "shift:ShiftLayer"),
        "conv": ("conv:Conv", "conv:ConvolutionStem"),
        "pool": ("pool:Pool", "pool:PoolingStem"),
        "local_relation": ("local_relation:LocalRelationEmbed", "local_relation:LocalRelationStem"),
    },
)
# Stage transitions; some embedding layers may stand at a stage's entry too.
ENTERS: Kinds[Embed | Enter] = Kinds(
    __name__,
    {
        "patch_merging": ("patch_merging:PatchMerging", "patch_merging:PatchMergingLayer"),
        "pooling_attention": ("pooling_attention:PoolingAttention", "pooling_attention:PoolingByAttention"),
        "upsample": ("upsample:Upsample", "upsample:UpsampleLayer"),
        **EMBEDS.some("conv", "pool", "norm", "class_token", "position"),
        "concatenate": ("concatenate:Concatenate", "concatenate:ConcatenateLayer"),
    },
)
SUBLAYERS: Kinds[PerToken] = Kinds(
    __name__,
    {
        "mlp": ("mlp:Mlp", "mlp:FeedForward"),
        "swiglu": ("swiglu:Swiglu", "swiglu:SwigluFeedForward"),
        "geglu": ("geglu:Geglu", "geglu:GegluFeedForward"),
        "moe": ("moe:Moe", "moe:MixtureOfExperts"),
        "dense": ("dense:Dense", "dense:DenseLayer"),
        "context": ("context:Context", "context:ContextLayer"),
        "norm": ("norm:NormSubLayer", "norm:NormLayer"),
    },
)
HEADS: Kinds[Head] = Kinds(
    __name__,
    {
        "classifier": ("classifier:Classifier", "classifier:ClassifierHead"),
        "flatten_classifier": ("flatten_classifier:FlattenClassifier", "flatten_classifier:FlattenClassifierHead"),
        "language_model": ("language_model:LanguageModel", "language_model:LanguageModelHead"),
        "masked_language_model": (
            "masked_language_model:MaskedLanguageModel",
            "masked_language_model:MaskedLanguageModelHead",
        ),
        "pooler": ("pooler:Pooler", "pooler:PoolerHead"),
    },
)
