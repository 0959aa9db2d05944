"""Attention over a neighbourhood or along a written pattern, under the contract."""

import itertools
import math
from math import prod
from typing import Any

from hypothesis import strategies as st

from cases.base import (
    GRIDS,
    GRIDS_WITH_EXTRA,
    SEQUENCES,
    VOLUME,
    Letters,
    MechanismCase,
    Rows,
    any_of,
    ceil_div,
    doubled,
    kernel_of_grid,
    local_relation,
    whole,
)
from xfcost.formulas.component import Place
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.blockwise import BlockSparse, Blockwise
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation, Unfolded
from xfcost.mechanisms.non_local import NonLocal, Sagan
from xfcost.mechanisms.pooling import Pooling, WindowPooling
from xfcost.mechanisms.sliding import GlobalLocal, Sliding
from xfcost.mechanisms.sparse import Sparse
from xfcost.mechanisms.spatial_reduction import SpatialReduction
from xfcost.mechanisms.window import Axial, Window


def _window(component: Any, place: Place) -> Letters:
    sides = [min(component.size, side) for side in place.grid.sides]
    biased = component.projection_bias if component.output_bias is None else component.output_bias
    windows = prod(ceil_div(side, window) for side, window in zip(place.grid.sides, sides, strict=True))
    return {
        "d_k": place.dim // component.heads,
        "P": windows,
        "T": prod(sides),
        "β_o": int(biased),
        "R": prod(2 * side - 1 for side in sides),
        "r": len(sides),
    }


def _blockwise(component: Any, place: Place) -> Letters:
    if isinstance(component.block, int):
        groups = ceil_div(place.grid.total, component.block)
        return {"b": component.block, "m": component.before + component.after, "G": groups}
    rows, columns = component.block
    keys = (rows + component.above + component.below) * (columns + 2 * component.beside)
    groups = prod(map(ceil_div, place.grid.sides, component.block))
    return {"b": rows * columns, "m": keys - rows * columns, "G": groups}


def _sparse(component: Any, place: Place) -> Letters:
    stride, cells = component.stride, component.summary
    blocks = ceil_div(place.grid.total, stride)
    near = 1 if component.pattern == "fixed" else 2 if component.causal else 3
    return {
        "P": blocks * stride,
        "m": near * stride,
        "n": blocks * (cells or 1),
        "H": component.heads // (2 if component.integration == "heads" else 1),
        "d_q": component.key_dim or component.head_dim or place.dim // component.heads,
    }


def _pooled_keys(component: Any, place: Place) -> Letters:
    rank = len(place.grid.sides)
    return {"M": prod(side // component.pool for side in place.grid.sides), "k": component.pool**rank}


def _pooling(component: Any, place: Place) -> Letters:
    sides, width, window = place.grid.sides, component.out_width or place.dim, getattr(component, "window", None)
    queries = [ceil_div(side, component.q_stride) for side in sides]
    keys = [ceil_div(side, component.kv_stride) for side in sides]
    groups, q, k = 1, queries, keys
    if window:
        q, k = [window // component.q_stride] * len(sides), [window // component.kv_stride] * len(sides)
        groups = prod(map(ceil_div, queries, q))
    return {
        "d'": width,
        "d_k": component.head_dim or width // component.heads,
        "e": place.grid.special,
        "P": prod(queries),
        "M": prod(keys),
        "k_q": component.q_size ** len(sides),
        "k": component.kv_size ** len(sides),
        "G": groups,
        "T": prod(q),
        "S": prod(k),
        "Q": prod(q),
        "K": sum(k),
        "R": sum(2 * max(each) - 1 for each in zip(q, k, strict=True)),
    }


def kept(grid: Grid, padded: Grid) -> list[int]:
    """Where the tokens of `grid` stand on `padded`."""
    places = itertools.product(*(range(side) for side in padded.sides))
    return [number for number, place in enumerate(places) if all(a < b for a, b in zip(place, grid.sides, strict=True))]


WINDOW = MechanismCase(
    letters=lambda component, place: _window(component, place) | {"W": component.size},
    flags={
        "heads": "bias fc2 lookup normalize scores sigmoid softmax temperature",
        "size": "all but mask temperature",
        "shift": "mask merge partition",
        "score": "normalize scale temperature",
        "bias": "act bias fc1 fc2 lookup sigmoid",
        "projection_bias": "out qkv",
        "key_bias": "k qkv qv",
    },
    examples=(
        Window(heads=2, size=3),
        Window(heads=3, size=4, shift=1, bias="none"),
        Window(heads=2, size=7, shift=3),
        Window(heads=1, size=2, shift=1, projection_bias=False),
        Window(heads=2, size=3, projection_bias=False, output_bias=True),
        Window(heads=3, size=4, shift=2, score="cosine", bias="log_cpb", key_bias=False),
        Window(heads=2, size=3, score="cosine", bias="none"),
    ),
    growth=lambda component: doubled(2 * component.size, component.size),
    grids=(*GRIDS, VOLUME),
    image=True,
)


# One token, odd sides through strides, more in one direction than in the other.
GRIDS_FEW = tuple(Grid(sides) for sides in [(5,), (1, 1), (1, 4), (7, 9), (13, 13)])
# No side shorter than a mean's kernel, which torch refuses in three axes.
SMALL_VOLUME = Grid((3, 4, 3))
# So wide that every token is the largest of a kernel's nine in some channel.
POOLING_WIDE = 48


_SIZES, _STRIDES = st.sampled_from([1, 3, 5]), st.sampled_from([1, 2, 4])
# What both kinds of pooling attention have.
POOLS: dict[str, Any] = {
    "q_size": _SIZES, "kv_size": _SIZES, "q_stride": _STRIDES, "kv_stride": _STRIDES,
    "out_width": st.sampled_from([None, 12, 24]), "on": Grid((8, 8)),
}  # fmt: skip


POOLING = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((8, 8)), Grid((8, 16)))),
    letters=lambda component, place: (
        _pooling(component, place) | {"W": max(component.q_size, component.kv_size), "l": component.kv_stride}
    ),
    flags={
        "heads": "^scores bias k q softmax spread tables v",
        "head_dim out_width": "all but bias softmax spread",
        "projection_bias": "out qkv",
        "q_size": "q",
        "q_stride": "all but k qkv v",
        "kv_size": "k v",
        "function": "k q v",
        "kv_stride": "all but out q qkv queries scale",
        "bias": "bias position_scores spread tables",
        "residual_pooling": "queries",
    },
    examples=(
        Pooling(heads=2, q_size=1, kv_stride=2),
        Pooling(heads=2, q_stride=2, kv_stride=4, bias="decomposed", residual_pooling="all", out_width=12),
        Pooling(heads=3, head_dim=5, kv_size=1, bias="decomposed", residual_pooling="grid", projection_bias=False),
        Pooling(heads=2, q_size=1, q_stride=4, kv_size=1),
        Pooling(heads=2, q_stride=2, kv_stride=2, function="max"),
        Pooling(heads=2, q_size=3, kv_stride=2, function="mean", bias="decomposed"),
    ),
    components=any_of(Pooling, **POOLS),
    growth=lambda component: doubled(8, 4),
    grids=(*GRIDS_FEW, *GRIDS_WITH_EXTRA, SMALL_VOLUME),
    image=True,
    dim=POOLING_WIDE,
)


WINDOW_POOLING = MechanismCase(
    letters=lambda component, place: _pooling(component, place) | {"W": component.window, "l": component.kv_stride},
    letters_of_reads=lambda component, place: {"K": max(component.q_size, component.kv_size)},
    flags={
        "heads": "^scores bias norm_k norm_q norm_v pool_k pool_q pool_v softmax spread tables",
        "head_dim out_width": "all but bias merge softmax spread",
        "q_size": "norm_q pool_q",
        "q_stride": "all but k merge qkv v",
        "kv_size": "pool_k pool_v",
        "kv_stride": "bias k scores softmax spread sum tables v",
        "function": "norm_k norm_q norm_v pool_k pool_q pool_v",
        "window": "bias partition_k partition_q partition_v scale scores softmax spread sum tables",
    },
    examples=(
        WindowPooling(heads=2, window=4, kv_stride=2, bias="decomposed", residual_pooling="all"),
        WindowPooling(heads=1, window=4, q_stride=2, kv_stride=4, kv_size=1, out_width=12),
        WindowPooling(heads=2, window=3, q_size=1, function="mean"),
    ),
    components=any_of(WindowPooling, **POOLS, window=st.sampled_from([4, 8, 12])),
    growth=lambda component: doubled(3 * component.window, component.window),
    grids=(*GRIDS_FEW, SMALL_VOLUME),
    image=True,
    dim=24,
)


# Smaller than the windows, of one position, one row, odd sides through strides.
ON_SMALL: dict[str, Any] = {
    "grids": tuple(Grid(sides) for sides in [(1,), (5,), (1, 1), (2, 2), (1, 7), (3, 5), (4, 5), (2, 1, 3)]),
    "growth": lambda component: doubled(10, 6), "image": True,
}  # fmt: skip


LOCAL_ATTENTION = MechanismCase(
    letters=lambda component, place: (
        kernel_of_grid(component, place)
        | {"P": prod(side + component.size - 1 for side in place.grid.sides), "l": component.stride}
    ),
    flags={"size": "all but pool qkv", "position": "positions", "stride": "pool"},
    examples=(
        LocalAttention(heads=2, size=3),
        LocalAttention(heads=3, size=5, position="none"),
        LocalAttention(heads=1, size=3, stride=2),
    ),
    **ON_SMALL,
    dim=12,
)


LOCAL_RELATION = MechanismCase(
    letters=local_relation,
    flags={"size": "all but k mask out q", "share": "all but mask out", "stride": "all but act fc1 fc2 k mask"},
    examples=(
        LocalRelation(size=3, share=2),
        LocalRelation(size=5, share=4),  # 6 channels are filled up to 8
        LocalRelation(size=5, share=3, stride=3),
        LocalRelation(size=3, share=8, stride=2),
        LocalRelation(size=3, share=1),
    ),
    **ON_SMALL,
    fused=False,
)


WINDOWS = st.integers(1, 20).map(lambda side: 2 * side)


SLIDING = MechanismCase(
    letters=lambda component, place: {
        "h_kv": component.kv_heads or component.heads,
        "s": component.window // 2,
        "δ": component.dilation,
        "g": component.global_tokens,
        "P": whole(place.grid.total, component.window * component.dilation),
        "w": component.window,
    },
    flags={
        "heads": "^weighted_sum join qkv scores softmax",
        "head_dim": "all but join mask pad softmax",
        "causal": "^scores",
        "kv_heads": "^scores ^weighted_sum qkv rotary",
        "window dilation": "all but global_scale mask q",
        "global_tokens": "all but ^mask ^scale ^scores ^weighted_sum out pad qkv rotary",
        "global_projections": "kv q",
    },
    cached=((Sliding(heads=3, kv_heads=1, window=2, dilation=2, causal=True), 0, 2 * 2 * (2 + 2)),),
    examples=(
        Sliding(heads=2, window=4),
        Sliding(heads=2, window=4, causal=True),
        Sliding(heads=1, window=2, global_projections=True, head_dim=5, projection_bias=False),
        Sliding(heads=3, window=6, global_tokens=1),
        Sliding(heads=2, window=2, dilation=3, global_tokens=2, global_projections=False),
        Sliding(heads=1, window=4, dilation=2, causal=True),
        Sliding(heads=6, kv_heads=2, head_dim=2, window=6, causal=True, position="rope", projection_bias=False),
        Sliding(heads=3, kv_heads=1, window=2, dilation=2, causal=True),
        Sliding(heads=3, window=4, position="rope"),
    ),
    components=any_of(Sliding, window=WINDOWS, global_tokens=st.integers(0, 3))
    | any_of(Sliding, window=WINDOWS, global_tokens=st.just(0), causal=st.just(value=True)),
    growth=lambda component: doubled(2 * component.window * component.dilation),
    grids=(*SEQUENCES[1:], Grid((3, 5)), Grid((16,), 1)),
    # three global tokens need as many
    sides=st.lists(st.integers(2, 12), min_size=2, max_size=3).map(tuple),
    fused=False,
)


def blockwise_growth(component: Blockwise) -> tuple[Grid, Grid]:
    """Whole blocks, three along each side at least, so that the one in the middle has all its memory."""
    rows, columns = component.block if isinstance(component.block, list) else (1, component.block)
    return doubled(4 * rows, 4 * columns)


BLOCKWISE = MechanismCase(
    letters=_blockwise,
    letters_of_reads=lambda component, place: {"W²": component.blocks(place.grid).keys},
    flags={
        "causal": "nothing (pairs)",
        "block": "blocks scale scores softmax sum",
        "before after above below beside": "memory_blocks scores softmax sum",
    },
    examples=(
        Blockwise(heads=2, block=4),
        Blockwise(heads=1, block=3, before=3, after=2, projection_bias=False),
        Blockwise(heads=3, block=4, before=6, causal=True),
        Blockwise(heads=2, block=[2, 3], above=2, beside=2, causal=True),
        Blockwise(heads=1, head_dim=5, block=[3, 2], above=1, below=2, beside=1),
    ),
    components=any_of(Blockwise, block=st.integers(1, 9))
    | any_of(Blockwise, on=Grid((3, 5)), block=st.lists(st.integers(1, 5), min_size=2, max_size=2)),
    growth=blockwise_growth,
    grids=tuple(Grid(sides) for sides in [(1, 1), (1, 4), (3, 5), (4, 6), (7, 9)]),
    sides=st.lists(st.integers(1, 14), min_size=2, max_size=2).map(tuple),
    image=True,
)


AXIAL = MechanismCase(
    letters=lambda component, place: {
        **dict(zip("WHZ", reversed(place.grid.sides), strict=False)),
        "L": place.grid.sides[-1 - ["row", "column", "depth", "all"].index(component.axis) % len(place.grid.sides)],
    },
    flags={"head_dim": "out qkv scale scores weighted_sum", "axis": "all"},
    examples=(
        Axial(axis="row", heads=2),
        Axial(axis="column", heads=3, causal=True),
        Axial(axis="row", heads=1, head_dim=5, causal=True, projection_bias=False),
        Axial(axis="all", heads=2),
        Axial(axis="all", heads=1, causal=True),
    ),
    components=any_of(Axial, on=VOLUME),
    growth=lambda component: (Grid((3, 3)), Grid((6, 6))),
    # One token, one row, one column, oblong both ways, an odd prime square, three axes.
    grids=(*(Grid(sides) for sides in [(1, 1), (1, 5), (5, 1), (3, 5), (7, 7)]), VOLUME),
    sides=st.lists(st.integers(1, 8), min_size=3, max_size=3).map(tuple),
    image=True,
)


def drawn(component: BlockSparse, place: Place) -> dict[str, Any]:
    """The random blocks of every block that is not global."""
    blocks = math.ceil(place.grid.total / component.block)
    return {
        "drawn": {}
        if component.is_full(place.grid)
        else {at: component.drawn(blocks, at) for at in range(1, blocks - 1)}
    }


BLOCK_SPARSE = MechanismCase(
    letters=lambda component, place: {
        "b": component.block,
        "r": component.random_blocks,
        "u": ceil_div(place.grid.total, component.block),
        "P": place.grid.total
        if place.grid.total <= (5 + 2 * component.random_blocks) * component.block
        else whole(place.grid.total, component.block),
    },
    flags={
        "block random_blocks": "all",
        "window global_blocks": "nothing (only 3 and 2 are taken)",
        "seed": "nothing (the draw)",
    },
    examples=(
        BlockSparse(heads=2, block=2, random_blocks=1),
        BlockSparse(heads=1, block=3, random_blocks=0, head_dim=5, projection_bias=False),
        BlockSparse(heads=3, block=1, random_blocks=3, seed=7),
    ),
    # twice as many whole blocks as full attention takes, and four times
    growth=lambda component: doubled(2 * (6 + 2 * component.random_blocks) * component.block),
    drawn=drawn,
    # full attention up to 14, 15 and 11 tokens; 17 and 25 leave blocks of 2 and 3 unfilled
    grids=(*(Grid((n,)) for n in (1, 5, 14, 15, 16, 17, 25)), Grid((3, 6), 1), Grid((5, 6))),
)


def whole_blocks(component: GlobalLocal) -> tuple[Grid, Grid]:
    tokens = 3 * (component.radius + 1)
    return Grid((tokens,), 2), Grid((2 * tokens,), 2)


GLOBAL_LOCAL = MechanismCase(
    letters=lambda component, place: {
        "g": place.grid.special,
        "n": place.grid.tokens,
        "b": component.radius + 1,
        "P": whole(place.grid.tokens, component.radius + 1),
        "r": component.radius,
    },
    flags={
        "heads": "join scores softmax",
        "head_dim": "all but join mask softmax",
        "projection_bias": "g2l_kv l2g_kv out qkv",
        "share_projections": "kv qkv",
        "share_output": "concat out",
        "radius": "^scale ^scores ^softmax ^weighted_sum add join key_scores key_weighted_sum pad",
    },
    examples=(
        GlobalLocal(heads=2, radius=1),
        GlobalLocal(heads=3, radius=2, share_projections=False, share_output=False),
        GlobalLocal(heads=1, radius=4, share_output=False, head_dim=5, projection_bias=False),
    ),
    growth=whole_blocks,
    grids=(Grid((1,)), Grid((9,)), Grid((1,), 1), Grid((2,), 3), Grid((7,), 1), Grid((13,), 2), Grid((3, 5), 4)),
    fused=False,
)


SPARSE = MechanismCase(
    letters=lambda component, place: _sparse(component, place) | {"l": component.stride, "c": component.summary or 0},
    flags={
        "heads": "join scores softmax",
        "head_dim": "all but join mask silence softmax",
        "causal": "^softmax blocks join local_scores local_softmax local_weighted_sum",
        "stride": "all but mask out qkv silence",
        "pattern": "nothing (only `summary` with it is taken)",
        "integration": "all but out pad qkv",
        "summary": "^softmax join long_scores long_softmax long_weighted_sum",
        "key_dim": "blocks pad qkv scale scores",
    },
    examples=(
        Sparse(heads=2, pattern="fixed", stride=3, summary=2, causal=True),
        Sparse(heads=3, pattern="strided", stride=3, causal=True),
        Sparse(heads=1, head_dim=5, pattern="strided", stride=2, key_dim=3, projection_bias=False),
        Sparse(heads=2, key_dim=2, pattern="fixed", stride=3, summary=1, integration="heads", causal=True),
        Sparse(heads=2, pattern="strided", stride=4, integration="local"),
        Sparse(heads=2, pattern="strided", stride=3, integration="long", causal=True),
        Sparse(heads=2, pattern="fixed", stride=3, summary=2, integration="long"),
    ),
    growth=lambda component: doubled(6 * component.stride),
    grids=tuple(Grid((n,)) for n in (1, 4, 5, 12, 23)),
    sides=st.lists(st.integers(1, 40), min_size=1, max_size=1).map(tuple),
    length=8,
)


# Of a width, or of a side.
_PARTS = st.sampled_from([1, 2, 3, 6])
# Pools of two must fit; odd sides leave a border that no key reads.
POOLED_GRIDS: tuple[Grid, ...] = (
    *(Grid(sides) for sides in [(2,), (5,), (13,), (2, 2), (3, 5), (7, 9), (4, 13)]),
    VOLUME,
)
ON_POOLS: dict[str, Any] = {
    "grids": POOLED_GRIDS, "growth": lambda component: doubled(6, 4), "image": True, "dim": 96,
    "sides": st.lists(st.integers(3, 12), min_size=1, max_size=3).map(tuple),
}  # fmt: skip


NON_LOCAL = MechanismCase(
    letters=lambda component, place: (
        _pooled_keys(component, place) | {"d'": component.width or place.dim // 2, "W": component.pool}
    ),
    flags={
        "width": "all but norm pool softmax",
        "pool": "g phi pool scores softmax sum",
        "projection_bias": "g phi theta z",
    },
    examples=(NonLocal(), NonLocal(width=5, projection_bias=False, norm="none"), NonLocal(width=2, pool=2)),
    components=any_of(NonLocal, pool=st.integers(1, 3)),
    **ON_POOLS,
)


SAGAN = MechanismCase(
    letters=lambda component, place: (
        _pooled_keys(component, place) | {"r": component.reduction, "s": component.value_reduction, "W": component.pool}
    ),
    flags={
        "reduction": "f g scores",
        "value_reduction": "h sum v",
        "output_projection": "v",
        "pool": "keys scores softmax sum values",
    },
    examples=(
        Sagan(reduction=2, value_reduction=3),
        Sagan(reduction=3, value_reduction=1, output_projection=False),
        Sagan(reduction=6, value_reduction=2, pool=2),
    ),
    components=any_of(Sagan, reduction=_PARTS, value_reduction=_PARTS, pool=st.integers(1, 3)),
    **ON_POOLS,
)


UNFOLDED = MechanismCase(
    letters=lambda component, place: {"r": len(place.grid.sides), "P": component.patch},
    examples=(Unfolded(heads=2), Unfolded(heads=3, patch=1), Unfolded(heads=1, head_dim=4, projection_bias=False)),
    components=any_of(Unfolded, on=Grid((6, 6)), patch=_PARTS),
    growth=lambda component: doubled(4, 2),
    # One patch, a row and a column of them, oblong both ways, a sequence, a volume: patches must tile the grid.
    grids=tuple(Grid(sides) for sides in [(2,), (10,), (2, 2), (2, 8), (6, 2), (6, 10), (2, 4, 6)]),
    sides=st.lists(st.integers(1, 3).map(lambda patches: 6 * patches), min_size=1, max_size=3).map(tuple),
    image=True,
)


SPATIAL_REDUCTION = MechanismCase(
    letters=lambda component, place: {
        "r": len(place.grid.sides),
        "R": component.reduction,
        "M": component.pooled ** len(place.grid.sides)
        if component.pooled
        else prod(side // component.reduction for side in place.grid.sides),
        "k": component.pooled or 0,
    },
    flags={
        "head_dim": "kv out q scale scores sum",
        "reduction": "kv norm reduce scores softmax sum",
        "pooled": "all but out q scale",
    },
    examples=(
        SpatialReduction(heads=2, reduction=2),
        SpatialReduction(heads=1, head_dim=5, reduction=3, projection_bias=False),
        SpatialReduction(heads=3),
        SpatialReduction(heads=2, pooled=2),
        SpatialReduction(heads=2, pooled=7),
    ),
    # whole patches, or windows of one length
    growth=lambda component: doubled(2 * component.reduction * (component.pooled or 1)),
    # One patch, patches of 2 and of 3 that leave a rest along one side or both, fewer tokens than pooled ones.
    grids=tuple(Grid(sides) for sides in [(3,), (8,), (3, 3), (3, 5), (6, 4), (7, 9), (13, 13), (3, 4, 3)]),
    sides=st.lists(st.integers(4, 12), min_size=1, max_size=2).map(tuple),
    image=True,
)
