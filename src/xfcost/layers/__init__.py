"""The layers around the mixers; the written lists say in which file each is, and where a kind may stand."""

from xfcost.formulas.component import Embed, Enter, Head, Kinds, PerToken

# kind: file:class in layers/
EMBEDS: Kinds[Embed] = Kinds(
    __name__,
    {
        "patch": "stems:Patch",
        "token": "tokens:Token",
        "class_token": "tokens:ClassToken",
        "distillation_token": "tokens:DistillationToken",
        "memory_tokens": "tokens:MemoryTokens",
        "position": "tokens:Position",
        "token_type": "tokens:TokenType",
        "norm": "feed_forward:Norm",
        "fold": "stems:Fold",
        "fold_axis": "stems:FoldAxis",
        "pixels": "stems:Pixels",
        "fourier": "tokens:Fourier",
        "projection": "stems:Projection",
        "axis_position": "tokens:AxisPosition",
        "shift": "shift:Shift",
        "conv": "stems:ConvEmbed",
        "pool": "stems:Pool",
        "local_relation": "local_relation:LocalRelationEmbed",
    },
)
# Stage transitions; some embedding layers may be at a stage's entry too.
ENTERS: Kinds[Embed | Enter] = Kinds(
    __name__,
    {
        "patch_merging": "stage_entries:PatchMerging",
        "pooling_attention": "stage_entries:PoolingAttention",
        "upsample": "stage_entries:Upsample",
        **EMBEDS.some("conv", "pool", "norm", "class_token", "position"),
        "concatenate": "stage_entries:Concatenate",
    },
)
SUBLAYERS: Kinds[PerToken] = Kinds(
    __name__,
    {
        "mlp": "feed_forward:Mlp",
        "swiglu": "feed_forward:Swiglu",
        "geglu": "feed_forward:Geglu",
        "moe": "moe:Moe",
        "dense": "feed_forward:Dense",
        "context": "shift:Context",
        "norm": "feed_forward:NormSubLayer",
    },
)
HEADS: Kinds[Head] = Kinds(
    __name__,
    {
        "classifier": "heads:Classifier",
        "flatten_classifier": "heads:FlattenClassifier",
        "language_model": "heads:LanguageModel",
        "masked_language_model": "heads:MaskedLanguageModel",
        "pooler": "heads:Pooler",
    },
)
