"""The layers around the mixers; the written lists say in which file each is, and where a kind may stand."""

from xfcost.formulas.kinds import Kinds
from xfcost.formulas.layer import Embed, Enter, Head, PerToken

# kind: file:class in layers/, file:class of its torch module in torch_models/layers/
EMBEDS: Kinds[Embed] = Kinds(
    __name__,
    {
        "patch": ("patch:Patch", "stems:PatchEmbedding"),
        "token": ("token:Token", "tokens:TokenEmbedding"),
        "class_token": ("class_token:ClassToken", "tokens:ClassTokenEmbedding"),
        "distillation_token": ("distillation_token:DistillationToken", "tokens:DistillationTokenEmbedding"),
        "memory_tokens": ("memory_tokens:MemoryTokens", "tokens:MemoryTokenEmbedding"),
        "position": ("position:Position", "positions:PositionEmbedding"),
        "token_type": ("token_type:TokenType", "tokens:TokenTypeEmbedding"),
        "norm": ("norm:Norm", "feed_forward:NormLayer"),
        "fold": ("fold:Fold", "stems:FoldLayer"),
        "fold_axis": ("fold_axis:FoldAxis", "stems:FoldAxisLayer"),
        "pixels": ("pixels:Pixels", "stems:PixelEmbedding"),
        "fourier": ("fourier:Fourier", "positions:FourierEmbedding"),
        "projection": ("projection:Projection", "stems:ProjectionLayer"),
        "axis_position": ("axis_position:AxisPosition", "positions:AxisPositionEmbedding"),
        "shift": ("shift:Shift", "shift:ShiftLayer"),
        "conv": ("conv:Conv", "stems:ConvolutionStem"),
        "pool": ("pool:Pool", "stems:PoolingStem"),
        "local_relation": ("local_relation:LocalRelationEmbed", "stems:LocalRelationStem"),
    },
)
# Stage transitions; some embedding layers may stand at a stage's entry too.
ENTERS: Kinds[Embed | Enter] = Kinds(
    __name__,
    {
        "patch_merging": ("patch_merging:PatchMerging", "stage_entries:PatchMergingLayer"),
        "pooling_attention": ("pooling_attention:PoolingAttention", "stage_entries:PoolingByAttention"),
        "upsample": ("upsample:Upsample", "stage_entries:UpsampleLayer"),
        **EMBEDS.some("conv", "pool", "norm", "class_token", "position"),
        "concatenate": ("concatenate:Concatenate", "stage_entries:ConcatenateLayer"),
    },
)
SUBLAYERS: Kinds[PerToken] = Kinds(
    __name__,
    {
        "mlp": ("mlp:Mlp", "feed_forward:FeedForward"),
        "swiglu": ("swiglu:Swiglu", "feed_forward:GatedFeedForward"),
        "geglu": ("geglu:Geglu", "feed_forward:GatedFeedForward"),
        "moe": ("moe:Moe", "feed_forward:MixtureOfExperts"),
        "dense": ("dense:Dense", "feed_forward:DenseLayer"),
        "context": ("context:Context", "shift:ContextLayer"),
        "norm": ("norm:NormSubLayer", "feed_forward:NormLayer"),
    },
)
HEADS: Kinds[Head] = Kinds(
    __name__,
    {
        "classifier": ("classifier:Classifier", "heads:ClassifierHead"),
        "flatten_classifier": ("flatten_classifier:FlattenClassifier", "heads:FlattenClassifierHead"),
        "language_model": ("language_model:LanguageModel", "heads:LanguageModelHead"),
        "masked_language_model": (
            "masked_language_model:MaskedLanguageModel",
            "heads:MaskedLanguageModelHead",
        ),
        "pooler": ("pooler:Pooler", "heads:PoolerHead"),
    },
)
