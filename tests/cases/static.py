"""What mixes tokens by learned weights alone, under the contract: convolutions, blocks of them, MLPs over tokens."""

from math import prod
from typing import Any

from hypothesis import strategies as st

from cases.base import (
    DIM,
    GRIDS,
    GRIDS_WITH_EXTRA,
    ON_SEQUENCES,
    VOLUME,
    Letters,
    MechanismCase,
    Rows,
    any_of,
    ceil_div,
    doubled,
    hidden_units,
    kernel_of_grid,
    of_hidden,
    strided,
)
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.conv import AveragePool, ByteNet, Conv, ConvMlp, ConvModule, DepthwiseConv
from xfcost.mechanisms.fourier_mixing import FourierMixing
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation
from xfcost.mechanisms.residual_blocks import Basic, Bottleneck, ConvNext, InvertedResidual, Vgg
from xfcost.mechanisms.spatial_reduction import ConvAttention
from xfcost.mechanisms.token_mixing import Gmlp, TokenLinear, TokenMlp


def _bottleneck(component: Any, place: Place) -> Letters:
    width = component.width or place.out_dim // (component.expansion or 4)
    left = strided(component, place)
    return {
        "r": len(place.grid.sides),
        "N'": left,
        "n": left if component.stride_on == "1x1" else place.grid.total,
        "w": width,
        "w'": round(place.dim * (component.squeeze or 0)),
        "g": width // component.group_width if component.group_width else component.groups or 1,
    }


# Longer than the farthest tap.
PAST_TAPS = ON_SEQUENCES | {"growth": lambda component: doubled(2 * component.size * component.dilation)}

CONV = MechanismCase(
    letters=lambda component, place: (
        kernel_of_grid(component, place) | {"o": place.out_dim * (2 if component.act == "glu" else 1)}
    ),
    flags={
        "size": "conv depthwise pad",
        "causal": "pad",
        "form bias": "conv depthwise pointwise",
        "act": "act conv glu pointwise",
    },
    cached=((Conv(size=4, dilation=2, causal=True), 0, 3 * 2 * 6),),
    examples=(
        Conv(act="relu"),
        Conv(size=5, dilation=2, bias=False),
        Conv(form="depthwise"),
        Conv(form="separable", act="glu"),
        Conv(size=1, act="glu"),
        Conv(size=4, dilation=2, causal=True),
        Conv(size=2, causal=True, form="separable", bias=False),
    ),
    **PAST_TAPS,  # other grids: tests/test_convolutional.py
    per_token=False,
    channels_first=lambda leaf: leaf in {"conv", "depthwise", "pad"},
)


# So many channels that no token has a rectified one alone.
CONV_BLOCK_WIDE = 24
# One token, one row, grids smaller than a kernel, odd ones under a stride, a volume.
AWKWARD = tuple(Grid(sides) for sides in [(1,), (2,), (5,), (1, 1), (1, 4), (7, 9), (8, 6), (2, 3, 4)])
ON_AWKWARD: dict[str, Any] = {
    "grids": AWKWARD, "growth": lambda component: doubled(12, 2), "fused": False, "image": True,
}  # fmt: skip


def widened(component: Bottleneck) -> int:
    """A stage of another width for most examples: the shortcut is a convolution there, even without a stride."""
    return CONV_BLOCK_WIDE if component.width == 20 else 2 * CONV_BLOCK_WIDE


BOTTLENECK = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((10, 10)), Grid((10, 22)))),
    letters=lambda component, place: _bottleneck(component, place) | {"W": 3, "l": component.stride},
    letters_of_reads=lambda component, place: {"N": strided(component, place)},
    flags={
        "stride": "all but act fc1 fc2 gate k mask spatial_positions squeeze_conv1 squeeze_conv2",
        "width": "all but act3 add conv mask norm norm3 squeeze_act",
        "groups group_width": "^conv2",
        "expansion": "act1 act2 conv1 conv2 conv3 gate norm1 norm2 scale squeeze_pool",
        "stride_on": "^conv1 act1 add_positions k keys norm1 qkv scores softmax spatial_pool sum values",
        "squeeze": "gate scale squeeze_act squeeze_conv1 squeeze_conv2 squeeze_pool",
        "spatial": (
            "^conv2 fc1 fc2 k keys mask out positions prior prior_act q qkv scores softmax spatial_pool sum values"
        ),
    },
    examples=(
        Bottleneck(width=20),
        Bottleneck(expansion=3, stride=2),
        Bottleneck(expansion=2, stride=2, stride_on="1x1", groups=3),
        Bottleneck(expansion=1, stride=2, group_width=6, squeeze=0.25),
        Bottleneck(width=20, stride=3, squeeze=0.5),
        Bottleneck(width=12, stride=2, spatial=LocalAttention(heads=2, size=3)),
        Bottleneck(width=12, stride=2, stride_on="1x1", spatial=LocalAttention(heads=2, size=3)),
        Bottleneck(width=12, stride=2, spatial=LocalRelation(size=3, share=5)),
    ),
    components=any_of(
        Bottleneck,
        on=Grid((5, 5)),
        width=st.sampled_from([None, 6, 12]),
        expansion=st.sampled_from([None, 1, 2]),
        groups=st.sampled_from([None, 3]),
        group_width=st.sampled_from([None, 2]),
        spatial=st.none(),
    ),
    **ON_AWKWARD,
    dim=CONV_BLOCK_WIDE,
    out_dim=widened,
    channels_first=lambda leaf: not leaf.startswith("spatial"),
)


BASIC = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12, 12)), Grid((12, 24)))),
    letters=lambda component, place: {"r": len(place.grid.sides), "N'": strided(component, place), "W": 3},
    examples=(Basic(), Basic(stride=2), Basic(stride=3)),
    **ON_AWKWARD,
    dim=CONV_BLOCK_WIDE,
    out_dim=lambda component: CONV_BLOCK_WIDE + 2 * (component.stride - 1),
    channels_first=lambda leaf: True,
)


VGG = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((6, 6)), Grid((6, 12))), own_parts=frozenset(("pool",))),
    letters=lambda component, place: (
        {"r": len(place.grid.sides), "N'": prod(side // 2 for side in place.grid.sides), "W": 3}
    ),
    flags={"convs": "all but act1 conv1 norm1 pool", "norm": "norm1 norm2 norm3"},
    examples=(Vgg(), Vgg(convs=1), Vgg(convs=3, norm="batch_norm")),
    # Two tokens, odd sides, whose last position goes into no maximum, oblong ones, a volume.
    **ON_AWKWARD | {"grids": tuple(map(Grid, [(2,), (5,), (2, 2), (2, 5), (7, 9), (8, 6), (2, 3, 4)]))},
    sides=st.lists(st.integers(2, 12), min_size=1, max_size=3).map(tuple),
    per_token=False,
    dim=CONV_BLOCK_WIDE,
    # as wide as it came in, or wider
    out_dim=lambda component: CONV_BLOCK_WIDE if component.norm == "none" else 2 * CONV_BLOCK_WIDE,
    channels_first=lambda leaf: True,
)


INVERTED_RESIDUAL = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((8, 8)), Grid((8, 16)))),
    letters=lambda component, place: (
        kernel_of_grid(component, place)
        | {
            "N'": strided(component, place),
            "H": (h := hidden_units(component, place.dim)),
            "w": h,
            "w'": round(place.dim * (component.squeeze or 0)),
        }
    ),
    letters_of_reads=lambda component, place: {"N": strided(component, place)},
    flags={
        "ratio hidden": "all but add project_norm squeeze_act",
        "size": "^conv",
        "stride": "^act ^conv ^norm add pool project_conv project_norm scale",
        "squeeze": "conv1 conv2 gate pool scale squeeze_act",
    },
    examples=(
        InvertedResidual(),
        InvertedResidual(ratio=2, stride=2),
        InvertedResidual(ratio=1),
        InvertedResidual(hidden=9),
        InvertedResidual(ratio=6, act="relu6"),
        InvertedResidual(size=5, stride=2, squeeze=0.5),
        InvertedResidual(ratio=1, squeeze=0.25),
    ),
    components=any_of(InvertedResidual, squeeze=st.sampled_from([None, 0.25, 0.5])),
    **ON_AWKWARD,
    # as wide as it came in, with a stride and without, or wider and so not added
    out_dim=lambda component: DIM + 2 * (component.hidden == 9),
    channels_first=lambda leaf: True,
)


ODD = st.integers(0, 6).map(lambda half: 2 * half + 1)
OF_A_KERNEL: dict[str, Any] = {
    "growth": lambda component: doubled(component.size, component.size),
    "grids": (*GRIDS, VOLUME), "fused": False, "image": True,
}  # fmt: skip

CONV_MLP = MechanismCase(
    letters=lambda component, place: kernel_of_grid(component, place) | of_hidden(component, place),
    flags={"ratio hidden": "all", "act": "^act", "hidden_act": "hidden_act"},
    examples=(ConvMlp(), ConvMlp(size=5, hidden=11, act="silu"), ConvMlp(hidden_act="relu"), ConvMlp(size=1)),
    components=any_of(ConvMlp, size=ODD),
    **OF_A_KERNEL,
)


DEPTHWISE_CONV = MechanismCase(
    letters=kernel_of_grid,
    examples=(DepthwiseConv(), DepthwiseConv(size=1), DepthwiseConv(size=5)),
    **OF_A_KERNEL,
    per_token=False,
)


CONVNEXT = MechanismCase(
    letters=lambda component, place: kernel_of_grid(component, place) | of_hidden(component, place),
    examples=(ConvNext(), ConvNext(size=3, norm="none", act="silu"), ConvNext(size=1, hidden=5), ConvNext(size=5)),
    components=any_of(ConvNext, size=ODD),
    **OF_A_KERNEL,
)


CONV_MODULE = MechanismCase(
    letters=kernel_of_grid,
    flags={"size": "depthwise"},
    examples=(ConvModule(), ConvModule(size=4), ConvModule(size=3), ConvModule(size=1), ConvModule(size=2)),
    **ON_SEQUENCES,
    # Large enough for a whole kernel inside.
    growth=lambda component: doubled(2 * component.size),
)


CONV_ATTENTION = MechanismCase(
    letters=lambda component, place: (
        kernel_of_grid(component, place)
        | {
            "N": place.grid.tokens,
            "e": place.grid.special,
            "M": prod(ceil_div(side, component.kv_stride) for side in place.grid.sides),
            "R": component.kv_stride,
        }
    ),
    flags={
        "head_dim": "linear out scale scores sum",
        "projection_bias": "linear out",
        "kv_stride": "all but out q_conv q_join q_linear q_norm scale",
    },
    examples=(
        ConvAttention(heads=2),
        ConvAttention(heads=1, head_dim=5, kv_stride=1, projection_bias=False),
        ConvAttention(heads=3, size=5, kv_stride=3),
    ),
    # Whole strides of both, 2 and 3.
    grids=(*(grid for grid in GRIDS if grid.tokens < 100), *GRIDS_WITH_EXTRA, VOLUME),
    image=True,
)


BYTENET = MechanismCase(
    letters=kernel_of_grid,
    flags={"size": "conv pad", "causal": "pad"},
    cached=((ByteNet(size=3, dilation=4, causal=True), 0, 2 * 4 * 12),),
    examples=(ByteNet(), ByteNet(size=3, dilation=4, causal=True), ByteNet(size=5, dilation=2), ByteNet(size=1)),
    **PAST_TAPS,
    # a ReLU first: few channels may all be off
    dim=24,
    per_token=True,
    channels_first=lambda leaf: leaf in {"conv", "pad"},
)


AVERAGE_POOL = MechanismCase(
    letters=kernel_of_grid,
    flags={"size": "pool"},
    examples=(AveragePool(), AveragePool(size=5)),
    # Large enough for a whole kernel inside.
    **OF_A_KERNEL | {"grids": (*GRIDS, Grid((5, 5, 6)))},
    per_token=False,
    contracts=False,
)


TOKEN_MLP = MechanismCase(
    letters=lambda component, place: {"k": component.hidden},
    examples=(TokenMlp(hidden=4), TokenMlp(hidden=1, act="silu"), TokenMlp(hidden=7, bias=False)),
    fused=False,
    per_token=False,
)


GMLP = MechanismCase(
    letters=of_hidden,
    flags={"ratio hidden": "all"},
    examples=(Gmlp(), Gmlp(ratio=1, norm="none"), Gmlp(hidden=4), Gmlp(hidden=10, act="silu")),
    fused=False,
)


TOKEN_LINEAR = MechanismCase(
    examples=(TokenLinear(), TokenLinear(bias=False)),
    fused=False,
    per_token=False,
)


FOURIER_MIXING = MechanismCase(
    examples=(FourierMixing(),),
    fused=False,
    per_token=False,
)
