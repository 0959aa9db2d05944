"""The layers around the mixers; the written lists say in which file each is, and where a kind may stand."""

from xfcost.formulas.component import Embed, Enter, Head, Kinds, PerToken

# kind: file:class in layers/, file:class of its torch module in torch_models/layers/
EMBEDS: Kinds[Embed] = Kinds(
    __name__,
    {
        "patch": ("stems:Patch", "patch:PatchEmbedding"),
        "token": ("tokens:Token", "token:TokenEmbedding"),
        "class_token": ("tokens:ClassToken", "class_token:ClassTokenEmbedding"),
        "distillation_token": ("tokens:DistillationToken", "distillation_token:DistillationTokenEmbedding"),
        "memory_tokens": ("tokens:MemoryTokens", "memory_tokens:MemoryTokenEmbedding"),
        "position": ("positions:Position", "position:PositionEmbedding"),
        "token_type": ("tokens:TokenType", "token_type:TokenTypeEmbedding"),
        "norm": ("mlps:Norm", "norm:NormLayer"),
        "fold": ("layouts:Fold", "fold:FoldLayer"),
        "fold_axis": ("layouts:FoldAxis", "fold_axis:FoldAxisLayer"),
        "pixels": ("tokens:Pixels", "pixels:PixelEmbedding"),
        "fourier": ("positions:Fourier", "fourier:FourierEmbedding"),
        "projection": ("mlps:Projection", "projection:ProjectionLayer"),
        "axis_position": ("positions:AxisPosition", "axis_position:AxisPositionEmbedding"),
        "shift": ("layouts:Shift", "shift:ShiftLayer"),
        "conv": ("stems:ConvEmbed", "conv:ConvolutionStem"),
        "pool": ("stems:Pool", "pool:PoolingStem"),
        "local_relation": ("local_relation:LocalRelationEmbed", "local_relation:LocalRelationStem"),
    },
)
# Stage transitions; some embedding layers may stand at a stage's entry too.
ENTERS: Kinds[Embed | Enter] = Kinds(
    __name__,
    {
        "patch_merging": ("stems:PatchMerging", "patch_merging:PatchMergingLayer"),
        "pooling_attention": ("pooling_attention:PoolingAttention", "pooling_attention:PoolingByAttention"),
        "upsample": ("stems:Upsample", "upsample:UpsampleLayer"),
        **EMBEDS.some("conv", "pool", "norm", "class_token", "position"),
        "concatenate": ("stems:Concatenate", "concatenate:ConcatenateLayer"),
    },
)
SUBLAYERS: Kinds[PerToken] = Kinds(
    __name__,
    {
        "mlp": ("mlps:Mlp", "mlp:FeedForward"),
        "swiglu": ("mlps:Swiglu", "swiglu:SwigluFeedForward"),
        "geglu": ("mlps:Geglu", "geglu:GegluFeedForward"),
        "moe": ("moe:Moe", "moe:MixtureOfExperts"),
        "dense": ("mlps:Dense", "dense:DenseLayer"),
        "context": ("layouts:Context", "context:ContextLayer"),
        "norm": ("mlps:NormSubLayer", "norm:NormLayer"),
    },
)
HEADS: Kinds[Head] = Kinds(
    __name__,
    {
        "classifier": ("heads:Classifier", "classifier:ClassifierHead"),
        "flatten_classifier": ("heads:FlattenClassifier", "flatten_classifier:FlattenClassifierHead"),
        "language_model": ("heads:LanguageModel", "language_model:LanguageModelHead"),
        "masked_language_model": (
            "heads:MaskedLanguageModel",
            "masked_language_model:MaskedLanguageModelHead",
        ),
        "pooler": ("heads:Pooler", "pooler:PoolerHead"),
    },
)
