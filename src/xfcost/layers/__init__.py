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
        "norm": ("feed_forward:Norm", "norm:NormLayer"),
        "fold": ("stems:Fold", "fold:FoldLayer"),
        "fold_axis": ("stems:FoldAxis", "fold_axis:FoldAxisLayer"),
        "pixels": ("stems:Pixels", "pixels:PixelEmbedding"),
        "fourier": ("positions:Fourier", "fourier:FourierEmbedding"),
        "projection": ("stems:Projection", "projection:ProjectionLayer"),
        "axis_position": ("positions:AxisPosition", "axis_position:AxisPositionEmbedding"),
        "shift": ("shift:Shift", "shift:ShiftLayer"),
        "conv": ("stems:ConvEmbed", "conv:ConvolutionStem"),
        "pool": ("stems:Pool", "pool:PoolingStem"),
        "local_relation": ("local_relation:LocalRelationEmbed", "local_relation:LocalRelationStem"),
    },
)
# Stage transitions; some embedding layers may stand at a stage's entry too.
ENTERS: Kinds[Embed | Enter] = Kinds(
    __name__,
    {
        "patch_merging": ("stage_entries:PatchMerging", "patch_merging:PatchMergingLayer"),
        "pooling_attention": ("stage_entries:PoolingAttention", "pooling_attention:PoolingByAttention"),
        "upsample": ("stage_entries:Upsample", "upsample:UpsampleLayer"),
        **EMBEDS.some("conv", "pool", "norm", "class_token", "position"),
        "concatenate": ("stage_entries:Concatenate", "concatenate:ConcatenateLayer"),
    },
)
SUBLAYERS: Kinds[PerToken] = Kinds(
    __name__,
    {
        "mlp": ("feed_forward:Mlp", "mlp:FeedForward"),
        "swiglu": ("feed_forward:Swiglu", "swiglu:SwigluFeedForward"),
        "geglu": ("feed_forward:Geglu", "geglu:GegluFeedForward"),
        "moe": ("moe:Moe", "moe:MixtureOfExperts"),
        "dense": ("feed_forward:Dense", "dense:DenseLayer"),
        "context": ("shift:Context", "context:ContextLayer"),
        "norm": ("feed_forward:NormSubLayer", "norm:NormLayer"),
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
