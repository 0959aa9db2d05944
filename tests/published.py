"""Published figures that aren't ours rounded to their last digit, and how each is judged."""

from typing import NamedTuple

MILLION, TENTH_OF_A_MILLION, TENTH_OF_A_BILLION = 1e6, 1e5, 1e8


class Without(NamedTuple):
    """The exact count of public code, of which the spec leaves a part out."""

    parameters: int


class RoundedDown(NamedTuple):
    """Printed as so many whole units and no more: 5.7M parameters as 5M."""

    unit: float


class Off(NamedTuple):
    """The exact count can't give the figure as printed, to the unit that its paper rounds to, and here is why."""

    unit: float
    reason: str
    within: float = 0.07
    """How near it is all the same, as a part of the printed one."""


class PartOf(NamedTuple):
    """Printed of a larger model, of which the spec is a part: the rest has so many parameters, at least and at most."""

    least: int
    most: int


# (preset, quantity, the printed figure) -> the unit its paper rounds to (so that ours must be within half of it) where
# that isn't the place of its last digit, or, where the exact count can't give the printed one, the reason, or the
# parameters that are left out of an exact one. A figure that no table names is rounded to the place of its last digit.
Judgement = float | str | Without | RoundedDown | Off | PartOf
Judged = dict[tuple[str, str, float], Judgement]

ONE, HUNDREDTH_OF_A_BILLION, TEN_MILLION, BILLION = 1.0, 1e7, 1e7, 1e9

# Reasons.
BESIDE = "up to 1 % beside the exact figure, above it or below; the printing method is unknown"
UNKNOWN = "the printing method is unknown"
ELEMENTWISE = "which element-wise work the paper counts is not said"
WIDTHS = "rebuilt at LR-Net-50's inner widths, which the paper set anew for every depth"
TABLE = "the table stands about 5 % above MACs: ResNet-50 is 4.3 in it"
CONVENTION = Off(1e7, "fvcore's convention, norms included and the classifier left out")
HEADLESS = "printed without the classifier head"
HALVED = "half of the paper's own figure, rounded up"
# The public code's own flops() leaves the position bias networks out (test_vision_transformers.py counts as it does).
NETWORKS = "model.flops() leaves out the networks that answer for position biases"
VOCABULARY = "the table's sizes need vocabularies of 40k to 42k; the text says about 37k"
WITHOUT = "the README leaves out the products of attention"
UNSAID = "what the paper counts is not printed"


def rest_of_conformer(dim: int, encoder: int, words: int = 1024) -> PartOf:
    """At least the LSTM of `dim`; at most its embeddings and a joint network as wide too, over `words` word pieces."""
    lstm = 4 * (2 * dim * dim + 2 * dim)
    joint = encoder * dim + dim * dim + 2 * dim + dim * words + words
    return PartOf(lstm, lstm + words * dim + joint)


D, HIDDEN, HEADS, POINTS, QUERIES = 256, 1024, 8, 4, 300
# The convolutions of ResNet-50, whose norms are frozen.
BACKBONE = 23_454_912


def rest_of_detector(levels: int) -> PartOf:
    """Backbone, projections of its maps with group norms, decoder, embeddings of queries and maps; rounded to 1M."""
    maps = [2048] if levels == 1 else [512, 1024, 2048]
    projected = sum(width * D + 3 * D for width in maps) + (0 if levels == 1 else 9 * 2048 * D + 3 * D)
    linear = D * D + D
    deformable = 2 * linear + 3 * (D + 1) * HEADS * levels * POINTS
    layer = 4 * linear + deformable + 3 * 2 * D + (D * HIDDEN + HIDDEN) + (HIDDEN * D + D)
    embeddings = QUERIES * 2 * D + levels * D + 2 * (D + 1)  # and a map of a query to its reference point
    known = BACKBONE + projected + 6 * layer + embeddings
    return PartOf(known - 500_000, known + 500_000)


def normed(unit: float, macs: float) -> Off:
    """The print counts five per element of a layer norm too, as fvcore does."""
    return Off(unit, f"{macs} G with layer norms, which the print counts", within=0.01)


def judged(judgement: Judgement, **figures: dict[str, float]) -> Judged:
    """Figures of each quantity by preset, all of one judgement."""
    return {(name, quantity, figure): judgement for quantity, each in figures.items() for name, figure in each.items()}


PUBLISHED: Judged = {
    **judged(TENTH_OF_A_MILLION, params={
        "cait-xxs24": 12.0e6, "cait-m48": 356.0e6, "sasa-50": 18.0e6, "mvit-b-16": 37.0e6, "pvt-v2-b1": 14.0e6,
        "pvt-v2-b5": 82.0e6, "resnet-26-lrnet": 16.0e6, "resnext-152-32x4d": 60.0e6, "regnety-32gf": 145.0e6,
    }),
    **judged(Off(TENTH_OF_A_BILLION, BESIDE), macs={
        "cait-xxs24-384": 9.5e9, "cait-xxs36-384": 14.2e9, "cait-xs24-384": 19.3e9, "cait-xs36": 8.1e9,
        "cait-xs36-384": 28.8e9, "cait-s24": 9.4e9, "cait-s24-384": 32.2e9, "cait-s36-384": 48.0e9,
        "cait-s48-384": 63.8e9, "cait-m24": 36.0e9, "cait-m24-384": 116.1e9, "cait-m36": 53.7e9,
        "cait-m36-384": 173.3e9, "cait-m36-448": 247.8e9, "cait-m48-448": 329.6e9,
    }),
    **judged(TENTH_OF_A_BILLION, macs={
        "efficientnet-b2": 1.0e9, "mvitv2-s": 7.0e9, "pvt-v2-b2": 4.0e9, "resnext-101-32x4d": 8.0e9,
        "regnetx-4.0gf": 4.0e9, "regnetx-8.0gf": 8.0e9, "regnety-4.0gf": 4.0e9, "regnety-8.0gf": 8.0e9,
        "resmlp-s12": 3.0e9, "resmlp-s24": 6.0e9, "resmlp-b24-16": 23.0e9, "poolformer-s36": 5.0e9,
        "convnext-l-384": 101.0e9, "convnext-xl-384": 179.0e9,
    }),
    **judged(TENTH_OF_A_BILLION, params={"llama-13b": 13.0e9, "swinv2-g-w12-192": 3.0e9}),
    **judged(HUNDREDTH_OF_A_BILLION, macs={
        "mobilenetv2-1.0": 300e6, "resnet-101": 7.80e9, "wide-resnet-50-2": 11.40e9,
    }),
    **judged(MILLION, params={
        "cvt-13": 20e6, "cvt-13-384": 20e6, "gpt3-large": 760e6, "bert-base-pretraining": 110e6, "mixer-b32": 60e6,
        "resmlp-s24": 30e6, "gmlp-s": 19.5e6, "gmlp-b": 73.4e6, "convnext-s": 50e6, "convnext-s-384": 50e6,
        "convnext-xl": 350e6, "convnext-xl-384": 350e6, "swinv2-s-w8-256": 50e6, "swinv2-s-w16-256": 50e6,
        "swin-s": 50e6,
    }),
    **judged(RoundedDown(MILLION), params={"hyena-153m": 153e6, "igpt-s": 76e6, "deit-ti": 5e6, "deit-b": 86e6}),
    **judged("the paper's table; no count of the released model gives it", params={
        "gpt2": 117e6, "gpt2-medium": 345e6, "gpt2-large": 762e6, "gpt2-xl": 1542e6,
    }),
    **judged(RoundedDown(TENTH_OF_A_BILLION), params={
        "gated-deltanet-1.3b": 1.3e9, "llama-65b": 65.2e9, "t5-3b": 2.8e9,
    }),
    **judged(RoundedDown(TENTH_OF_A_BILLION), macs={"deit3-b": 17.5e9}),
    **judged(RoundedDown(TENTH_OF_A_MILLION), params={
        "sasa-38": 14.1e6, "mvit-b-24-wide-320": 72.9e6, "deit3-s": 22.0e6,
    }),
    **judged(CONVENTION, macs={"mobilevit-xxs": 0.42e9, "mobilevit-xs": 1.05e9, "mobilevit-s": 2.03e9}),
    **judged(HEADLESS, params={
        "mixer-s16": 18e6, "mixer-b16": 59e6, "mixer-l32": 206e6, "mixer-l16": 207e6, "mixer-h14": 431e6,
    }),
    **judged(NETWORKS, macs={
        "swinv2-t-w16-256": 6.6e9, "swinv2-s-w16-256": 12.6e9, "swinv2-b-w16-256": 21.8e9, "swinv2-b-w24-384": 54.7e9,
        "swinv2-l-w16-256": 47.5e9, "swinv2-l-w24-384": 115.4e9,
    }),
    **judged(VOCABULARY, params={
        "transformer-base-dk16": 58e6, "transformer-base-dk32": 60e6, "transformer-base-n2": 36e6,
        "transformer-base-n4": 50e6, "transformer-base-n8": 80e6, "transformer-base-d256": 28e6,
        "transformer-base-d1024": 168e6, "transformer-base-ff1024": 53e6, "transformer-base-ff4096": 90e6,
    }),
    **judged(WITHOUT, macs={
        "twins-pcpvt-s": 3.7e9, "twins-pcpvt-b": 6.4e9, "twins-pcpvt-l": 9.5e9, "twins-svt-s": 2.8e9,
        "twins-svt-b": 8.3e9, "twins-svt-l": 14.8e9,
    }),
    **judged("printed once for ViT-Large; 307M is L/32", params={
        "vit-l16-512": 307e6, "vit-l16": 307e6, "vit-l16-384": 307e6,
    }),
    # Conformer: Table 1 gives the whole RNN-T, the presets are its encoder
    ("conformer-s", "params", 10.3e6): rest_of_conformer(320, encoder=144),
    ("conformer-m", "params", 30.7e6): rest_of_conformer(640, encoder=256),
    ("conformer-l", "params", 118.8e6): rest_of_conformer(640, encoder=512),
    # EfficientNet, MobileNetV2 and VGG
    ("efficientnet-b1", "macs", 0.70e9): Off(HUNDREDTH_OF_A_BILLION, UNSAID),
    ("efficientnet-b2", "params", 9.2e6): Off(TENTH_OF_A_MILLION, "9.11M in the public code too"),
    ("efficientnet-b4", "macs", 4.2e9): Off(TENTH_OF_A_BILLION, UNSAID),
    ("efficientnet-b5", "macs", 9.9e9): Off(TENTH_OF_A_BILLION, UNSAID),
    ("efficientnet-b7", "macs", 37e9): Off(1e9, UNSAID),
    ("mobilenetv2-1.0", "params", 3.4e6): Off(TENTH_OF_A_MILLION, "3.47M without batch norms, cut off"),
    ("vgg-16", "macs", 15.3e9): Off(TENTH_OF_A_BILLION, "without the linear layers"),
    # CvT
    ("cvt-13", "macs", 4.5e9): "1.4 % below the exact count; its cause is unknown",
    ("cvt-21", "macs", 7.1e9): "1.1 % below the exact count; its cause is unknown",
    ("cvt-21-384", "macs", 24.9e9): "24.85e9, and 24.89e9 with the biases that it counts",
    ("cvt-w24-384", "macs", 193.2e9): "0.5 % below the exact count; its cause is unknown",
    # Deformable DETR: Table 1 gives the whole detector, the presets are its encoder
    ("deformable-detr-encoder", "params", 40e6): rest_of_detector(4),
    ("deformable-detr-encoder-single-scale", "params", 34e6): rest_of_detector(1),
    # Mixtures of experts: Mixtral, Switch Transformers, GShard, GLaM, DeepSeek
    ("switch-xxl-64", "params", 395e9): Off(BILLION, "half as many experts as make the printed figure", within=0.5),
    ("gshard-600b", "params", 600e9): Off(BILLION, "the experts alone are 618B; printed sizes are round"),
    ("deepseek-v2-lite", "active_params", 2.4e9): Off(
        TENTH_OF_A_BILLION, "2.45B without the embedding, which is 0.21B", within=0.12
    ),
    ("deepseek-v3", "active_params", 37e9): Off(BILLION, "36.63B without the embedding, which is 0.93B"),
    # GPT-1, GPT-3 and BERT
    ("gpt3-13b-5140", "params", 12850e6): Off(TEN_MILLION, "the printed width is not the one that the print counts"),
    # Language models and efficient attention
    ("transformer-base", "params", 65e6): "wants a vocabulary of about 40k; the text says about 37k",
    ("transformer-big", "params", 213e6): "wants a vocabulary of about 36k; the text says about 37k",
    ("routing-lm", "params", 38_621_216): Without(6 * 768),
    ("routing-lm", "macs", 60_481_863_680): 1.0,
    ("etc-base", "params", 166e6): "relative position labels, about 0.6M, are left out",
    ("etc-large", "params", 558e6): "relative position labels are left out",
    ("sinkhorn-lm", "params", 39_479_840): Without((16 + 128) * 512 + 6 * 512),
    ("sinkhorn-lm", "macs", 63_049_564_160): 1.0,
    # LLaMA 1, 2 and 3, and Mistral
    ("llama2-70b", "params", 70e9): Off(BILLION, "the name; the released model has 68.98B"),
    ("llama3-70b", "params", 70e9): Off(BILLION, "the name; the released model has 70.55B"),
    ("llama3.1-70b", "params", 70e9): Off(BILLION, "the name; the released model has 70.55B"),
    ("llama3.1-405b", "params", 405e9): Off(BILLION, "the name; the released model has 405.85B"),
    ("llama3.2-1b", "params", 1.23e9): RoundedDown(TEN_MILLION),
    ("mistral-7b", "params", 7.3e9): Off(
        TENTH_OF_A_BILLION, "the announcement's; no count of the released model is it"
    ),
    # Local attention and local relation in place of convolutions
    ("sasa-50", "flops", 7.0e9): Off(TENTH_OF_A_BILLION, ELEMENTWISE, within=0.01),
    ("sasa-50-k3", "flops", 6.6e9): Off(TENTH_OF_A_BILLION, ELEMENTWISE, within=0.01),
    ("lr-net-26", "params", 14.7e6): Off(TENTH_OF_A_MILLION, WIDTHS, within=0.01),
    ("lr-net-26", "macs", 2.6e9): Off(TENTH_OF_A_BILLION, f"{WIDTHS}; {TABLE}", within=0.1),
    ("lr-net-50", "params", 23.3e6): Off(TENTH_OF_A_MILLION, "without batch norms' numbers 23.31M", within=0.01),
    ("lr-net-50", "macs", 4.3e9): Off(TENTH_OF_A_BILLION, TABLE),
    ("lr-net-101", "params", 42.0e6): Off(TENTH_OF_A_MILLION, WIDTHS),
    ("lr-net-101", "macs", 8.0e9): Off(TENTH_OF_A_BILLION, f"{WIDTHS}; {TABLE}"),
    # MViT and MViTv2
    ("mvit-b-16-max", "params", 37.0e6): Off(TENTH_OF_A_MILLION, "printed once for both ways to pool", within=0.01),
    ("mvit-b-16x4", "macs", 70.5e9): Off(TENTH_OF_A_BILLION, "70.6 of MACs alone", within=0.01),
    ("mvit-b-16x4", "params", 36610672): 1,
    ("mvit-b-32x3", "macs", 170e9): BILLION,
    ("mvit-b-24-32x3", "params", 52.9e6): Off(TENTH_OF_A_MILLION, "unknown", within=0.01),
    ("mvitv2-b", "params", 52e6): Off(MILLION, "51.47M, rounded up", within=0.02),
    ("mvitv2-b", "macs", 10.2e9): normed(TENTH_OF_A_BILLION, 10.16),
    ("mvitv2-l", "macs", 42.1e9): "of mvitv2-l-cls, which widens in attention",
    ("mvitv2-l-cls", "params", 218e6): "of mvitv2-l, which widens in its MLPs",
    ("mvitv2-l-cls", "macs", 42.1e9): normed(TENTH_OF_A_BILLION, 42.15),
    ("mvitv2-h", "macs", 120.6e9): normed(TENTH_OF_A_BILLION, 120.64),
    ("mvitv2-s-16x4", "params", 34537744): 1,
    ("mvitv2-b-32x3", "macs", 225e9): normed(BILLION, 225.17),
    ("mvitv2-l-40x3-312", "params", 217.6e6): "widening in attention, as the public configuration says, gives 213.4M",
    ("mvitv2-l-40x3-312", "macs", 2828e9): normed(BILLION, 2828.1),
    # PVT and PVT v2
    ("pvt-v2-b5", "macs", 11.8e9): "0.7 % above the exact 11.72e9; its cause is unknown",
    # Residual networks: ResNet, ResNeXt, RegNetX and RegNetY
    ("resnet-101", "params", 44.54916e6): ONE,
    ("resnet-50-v1", "macs", 3.8e9): "3.858e9, cut off and not rounded",
    ("resnet-34", "macs", 3.6e9): "3.66e9, cut off and not rounded",
    # MLP-Mixer, ResMLP, gMLP, PoolFormer, ConvNeXt
    ("mixer-b16", "macs", 12.7e9): "0.8 % above the exact 12.60e9; the printing table's method is unknown",
    ("mixer-l16", "macs", 44.8e9): "0.6 % above the exact 44.55e9; the printing tables' method is unknown",
    ("gmlp-ti", "macs", 1.4e9): HALVED,
    ("gmlp-s", "macs", 4.5e9): HALVED,
    ("gmlp-b", "macs", 15.8e9): "half of 31.6, which counts element-wise work too",
    ("poolformer-m48", "macs", 11.6e9): "0.6 % above the exact 11.53e9, by a counter that adds some norms",
    ("convnext-t", "params", 28e6): "28.59M, cut and not rounded",
    ("convnext-b-384", "macs", 45.0e9): "0.3 % below the exact 45.12e9; the README's other table prints 47.0",
    # T5
    ("t5-large", "params", 770e6): Off(TEN_MILLION, "the released model has 737.7M"),
    # Twins
    ("twins-pcpvt-l", "params", 60.9e6): 2 * TENTH_OF_A_MILLION,
    ("twins-svt-l", "params", 99.2e6): 2 * TENTH_OF_A_MILLION,
    # ViT at other resolutions, DeiT and DeiT III
    ("vit-b32-384", "params", 86e6): "printed once for ViT-Base; a larger projection, and the 1000-class head",
    ("vit-h14-518", "params", 632e6): "printed once for ViT-Huge; the position table of 518×518 adds 1.4M",
    ("deit3-s-384", "params", 22.0e6): Off(TENTH_OF_A_MILLION, "printed as at 224"),
    ("deit3-l-384", "macs", 191.2e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("deit3-h", "macs", 167.4e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    # ViT and Swin
    ("vit-b16", "params", 86e6): "86M leaves out the 1000-class head (0.77M): 85.80M",
    ("vit-b16-384", "params", 86e6): "printed once for ViT-Base, whatever its patch, resolution and head",
    ("vit-b32", "params", 86e6): (
        "printed once for ViT-Base; patches of 32 make a projection of 2.36M in place of 0.59M"
    ),
    ("vit-l16-384", "macs", 190.7e9): "0.2 % below the exact 191.07e9; the printing paper's method is unknown",
}  # fmt: skip
