"""The layers around the mixers; the written lists say in which file each is, and where a kind may stand."""

from xfcost.formulas.component import Embed, Enter, Head, Kinds, PerToken

# kind: file:class in layers/, file:class of its torch module in torch_models/layers/
EMBEDS: Kinds[Embed] = Kinds(
    __name__,
    {
        "patch": ("stems:Patch", None),
        "token": ("tokens:Token", None),
        "class_token": ("tokens:ClassToken", None),
        "distillation_token": ("tokens:DistillationToken", None),
        "memory_tokens": ("tokens:MemoryTokens", None),
        "position": ("tokens:Position", None),
        "token_type": ("tokens:TokenType", None),
        "norm": ("feed_forward:Norm", None),
        "fold": ("stems:Fold", None),
        "fold_axis": ("stems:FoldAxis", None),
        "pixels": ("stems:Pixels", None),
        "fourier": ("tokens:Fourier", None),
        "projection": ("stems:Projection", None),
        "axis_position": ("tokens:AxisPosition", None),
        "shift": ("shift:Shift", None),
        "conv": ("stems:ConvEmbed", None),
        "pool": ("stems:Pool", None),
        "local_relation": ("local_relation:LocalRelationEmbed", None),
    },
)
# Stage transitions; some embedding layers may be at a stage's entry too.
ENTERS: Kinds[Embed | Enter] = Kinds(
    __name__,
    {
        "patch_merging": ("stage_entries:PatchMerging", None),
        "pooling_attention": ("stage_entries:PoolingAttention", None),
        "upsample": ("stage_entries:Upsample", None),
        **EMBEDS.some("conv", "pool", "norm", "class_token", "position"),
        "concatenate": ("stage_entries:Concatenate", None),
    },
)
SUBLAYERS: Kinds[PerToken] = Kinds(
    __name__,
    {
        "mlp": ("feed_forward:Mlp", None),
        "swiglu": ("feed_forward:Swiglu", None),
        "geglu": ("feed_forward:Geglu", None),
        "moe": ("moe:Moe", None),
        "dense": ("feed_forward:Dense", None),
        "context": ("shift:Context", None),
        "norm": ("feed_forward:NormSubLayer", None),
    },
)
HEADS: Kinds[Head] = Kinds(
    __name__,
    {
        "classifier": ("heads:Classifier", None),
        "flatten_classifier": ("heads:FlattenClassifier", None),
        "language_model": ("heads:LanguageModel", None),
        "masked_language_model": ("heads:MaskedLanguageModel", None),
        "pooler": ("heads:Pooler", None),
    },
)
