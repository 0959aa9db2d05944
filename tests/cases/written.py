"""What the letters of docstrings' tables stand for, kind by kind: by plain arithmetic out of fields and places."""

from collections.abc import Callable, Mapping
from math import isqrt, prod
from typing import Any

import msgspec

from xfcost.formulas.component import Component, Place
from xfcost.layers.feed_forward import Dense, Geglu, Mlp, Swiglu
from xfcost.layers.heads import Classifier, FlattenClassifier, LanguageModel, MaskedLanguageModel, Pooler
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.layers.moe import Moe
from xfcost.layers.stage_entries import PatchMerging, PoolingAttention
from xfcost.layers.stems import ConvEmbed, Patch, Projection
from xfcost.layers.tokens import AxisPosition, MemoryTokens, Position, Token, TokenType
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.blockwise import BlockSparse, Blockwise
from xfcost.mechanisms.conv import AveragePool, ByteNet, Conv, ConvMlp, ConvModule, DepthwiseConv
from xfcost.mechanisms.deformable import Deformable
from xfcost.mechanisms.full import ClassAttention, Cross, Full, Mla
from xfcost.mechanisms.funnel import Funnel
from xfcost.mechanisms.hyena import Hyena
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.local_attention import LocalAttention, LocalRelation, Unfolded
from xfcost.mechanisms.low_rank import Inducing, LowRank, Nystrom
from xfcost.mechanisms.mamba import Mamba, Mamba2
from xfcost.mechanisms.non_local import NonLocal, Sagan
from xfcost.mechanisms.pooling import Pooling, WindowPooling, decomposed_bias
from xfcost.mechanisms.recurrent import Additive, Gru, Lstm, Maxout, Rnn, Sum, first_state
from xfcost.mechanisms.relative import Compressive, Relative
from xfcost.mechanisms.residual_blocks import Basic, Bottleneck, ConvNext, InvertedResidual, Vgg, squeezed
from xfcost.mechanisms.retention import Retention, RwkvChannel
from xfcost.mechanisms.routing import Routing
from xfcost.mechanisms.sliding import GlobalLocal, Sliding
from xfcost.mechanisms.sorting import Lsh, Sinkhorn
from xfcost.mechanisms.sparse import Sparse
from xfcost.mechanisms.spatial_reduction import Compressed, ConvAttention, SpatialReduction
from xfcost.mechanisms.synthesizer import Synthesizer
from xfcost.mechanisms.token_mixing import Gmlp, TokenMlp
from xfcost.mechanisms.window import Axial, Window, log_cpb, scaled_cosine

Letters = dict[str, Any]


def ceil_div(number: int, divisor: int) -> int:
    """⌈number/divisor⌉."""
    return -(-number // divisor)


def whole(number: int, part: int) -> int:
    """The least multiple of `part` that is no less than `number`."""
    return ceil_div(number, part) * part


def _hidden(component: Any, width: int) -> int:
    """H: as given, or `ratio`·d, or 8d/3 of gated units."""
    return component.hidden or (round(component.ratio * width) if hasattr(component, "ratio") else 8 * width // 3)


def _of_hidden(component: Any, place: Place) -> Letters:
    return {"H": _hidden(component, place.dim), "β": int(getattr(component, "bias", True))}


def _moe(component: Any, place: Place) -> Letters:
    tokens, active, experts = place.grid.total, component.active, component.experts
    hidden = _hidden(component.expert, place.dim)
    letters = _of_hidden(component.expert, place) | {"E": experts, "A": active, "T": tokens * active}
    if component.capacity:
        letters["T"] = experts * ceil_div(round(100 * component.capacity) * active * tokens, 100 * experts)
    if component.shared:
        letters["H_s"] = component.shared.count * (component.shared.hidden or hidden)
    return letters | ({"G": component.groups.count} if component.groups else {})


def _value_width(component: Any, place: Place) -> Letters:
    return {"d_v": component.value_dim or component.head_dim or place.dim // component.heads}


def _window(component: Any, place: Place) -> Letters:
    sides = [min(component.size, side) for side in place.grid.sides]
    biased = component.projection_bias if component.output_bias is None else component.output_bias
    windows = prod(ceil_div(side, window) for side, window in zip(place.grid.sides, sides, strict=True))
    return {
        "d_k": place.dim // component.heads, "P": windows, "T": prod(sides), "β_o": int(biased),
        "R": prod(2 * side - 1 for side in sides), "r": len(sides),
    }  # fmt: skip


def _blockwise(component: Any, place: Place) -> Letters:
    if isinstance(component.block, int):
        groups = ceil_div(place.grid.total, component.block)
        return {"b": component.block, "m": component.before + component.after, "G": groups}
    rows, columns = component.block
    keys = (rows + component.above + component.below) * (columns + 2 * component.beside)
    groups = prod(map(ceil_div, place.grid.sides, component.block))
    return {"b": rows * columns, "m": keys - rows * columns, "G": groups}


def _relative(component: Any, place: Place) -> Letters:
    n, m = place.grid.total, component.memory + getattr(component, "compressed_memory", 0)
    return {"n": n, "m": m, "T": n + m if component.causal else 2 * n + m - 1}


def _lsh(component: Any, place: Place) -> Letters:
    n, chunk = place.grid.total, component.bucket
    padded = n if n <= chunk else whole(n, chunk)
    buckets = component.buckets or 2 * padded // chunk
    return {"R": component.rounds, "c": chunk, "P": padded, "b": sum(buckets) if isinstance(buckets, list) else buckets}


def _kernel(component: Any, place: Place) -> Letters:
    n = place.grid.total
    chunk = min(component.chunk or 64, n)
    chunked = component.causal and component.form in (None, "chunked")
    m = getattr(component.features, "count", None) or (component.head_dim or place.dim // component.heads)
    return {"m": m, "c": chunk, "P": whole(n, chunk) if chunked else n}


def _routing(component: Any, place: Place) -> Letters:
    n, local, causal = place.grid.total, component.local_heads, bool(component.causal)
    clusters, window = component.clusters, component.window and min(component.window, n)
    clusters = clusters or (ceil_div(n, window) if window else isqrt(n))
    block = component.local_window or component.window or 1
    return {
        "H": component.heads - local, "H_l": local, "k": clusters, "w": window or ceil_div(n, clusters),
        "m": max(component.memory_keys, int(causal and not component.shared_qk)),
        "b": block, "G": ceil_div(n, block), "t": 2 if causal else 3,
    }  # fmt: skip


def _funnel(component: Any, place: Place) -> Letters:
    n, shortest = place.grid.total, 2 if component.separate_cls else 1
    pooled = component.stride > 1 and n > shortest
    copied = int(component.separate_cls and not component.truncate_seq)
    p = n if component.stride == 1 else max(ceil_div(n + copied, 2), min(n, shortest))
    m = n if component.pool_q_only else p
    return {"P": p, "M": m, "T": m + (2 if pooled and component.pool_q_only else 1) * p}


def _synthesizer(component: Any, place: Place) -> Letters:
    n = place.grid.total
    a = component.factor or max(each for each in range(1, isqrt(n) + 1) if n % each == 0)
    return {"a": a, "c": n // a, "k": component.rank or 8}


def _sparse(component: Any, place: Place) -> Letters:
    stride, cells = component.stride, component.summary
    blocks = ceil_div(place.grid.total, stride)
    near = 1 if component.pattern == "fixed" else 2 if component.causal else 3
    return {
        "P": blocks * stride, "m": near * stride, "n": blocks * (cells or 1),
        "H": component.heads // (2 if component.integration == "heads" else 1),
        "d_q": component.key_dim or component.head_dim or place.dim // component.heads,
    }  # fmt: skip


def _pooled_keys(component: Any, place: Place) -> Letters:
    rank = len(place.grid.sides)
    return {"M": prod(side // component.pool for side in place.grid.sides), "k": component.pool**rank}


def _kernel_of_grid(component: Any, place: Place) -> Letters:
    letters = {"W": component.size, "r": len(place.grid.sides)}
    if isinstance(heads := getattr(component, "heads", None), int):
        letters["d_k"] = getattr(component, "head_dim", None) or place.dim // heads
    return letters


def strided(component: Any, place: Place) -> int:
    """How many tokens leave."""
    return prod(ceil_div(side, component.stride) for side in place.grid.sides)


def _bottleneck(component: Any, place: Place) -> Letters:
    width = component.width or place.out_dim // (component.expansion or 4)
    left = strided(component, place)
    return {
        "r": len(place.grid.sides), "N'": left, "n": left if component.stride_on == "1x1" else place.grid.total,
        "w": width, "w'": round(place.dim * (component.squeeze or 0)),
        "g": width // component.group_width if component.group_width else component.groups or 1,
    }  # fmt: skip


def _local_relation(component: Any, place: Place) -> Letters:
    groups = ceil_div(place.dim, component.share)
    return {
        "r": len(place.grid.sides), "W": component.size, "N'": strided(component, place),
        "g": groups, "m": component.share, "u": max(1, groups // 2),
        "P": prod(side + component.size - 1 for side in place.grid.sides),
    }  # fmt: skip


def _recurrent(gates: int, states: int = 1) -> Callable[[Any, Place], Letters]:
    def letters(component: Any, place: Place) -> Letters:
        units = component.hidden or place.out_dim // (2 if component.bidirectional else 1)
        attend = (
            {"k": component.attend.hidden, "E": place.memory_dim, "β'": int(component.attend.bias)}
            if component.attend
            else {}
        )
        readout = getattr(component.readout, "hidden", 0)
        return {"g": gates, "h": units, "s": states * units, "l": readout} | attend

    return letters


def _retention(component: Any, place: Place) -> Letters:
    n = place.grid.total
    chunk = min(component.chunk or 64, n)
    return {"v": component.value_dim or 2 * place.dim, "c": chunk, "P'": whole(n, chunk)}


def _pooling(component: Any, place: Place) -> Letters:
    sides, width, window = place.grid.sides, component.out_width or place.dim, getattr(component, "window", None)
    queries = [ceil_div(side, component.q_stride) for side in sides]
    keys = [ceil_div(side, component.kv_stride) for side in sides]
    groups, q, k = 1, queries, keys
    if window:
        q, k = [window // component.q_stride] * len(sides), [window // component.kv_stride] * len(sides)
        groups = prod(map(ceil_div, queries, q))
    return {
        "d'": width, "d_k": component.head_dim or width // component.heads, "e": place.grid.special,
        "P": prod(queries), "M": prod(keys), "k_q": component.q_size ** len(sides),
        "k": component.kv_size ** len(sides), "G": groups, "T": prod(q), "S": prod(k), "Q": prod(q), "K": sum(k),
        "R": sum(2 * max(each) - 1 for each in zip(q, k, strict=True)),
    }  # fmt: skip


def _conv_embed(component: Any, place: Place) -> Letters:
    sides, size, stride = place.grid.sides, component.size, component.stride
    padding = size // 2 if component.padding is None and stride < size else component.padding or 0
    return {
        "N'": prod((side + 2 * padding - size) // stride + 1 for side in sides), "k": size ** len(sides),
        "g": component.groups, "d'": component.channels or place.out_dim,
    }  # fmt: skip


LETTERS: dict[type[Component], Callable[[Any, Place], Letters]] = {
    Full: lambda component, place: _value_width(component, place) | {
        "h_kv": component.kv_heads or component.heads,
        "k": component.bias.count if component.bias else 0,
        "β_o": int(component.projection_bias if component.output_bias is None else component.output_bias),
    },
    Cross: lambda component, place: _value_width(component, place) | {"d'": place.memory_dim},
    Mla: lambda component, place: _value_width(component, place) | {
        "d_h": component.head_dim or place.dim // component.heads, "d_r": component.rope_dim,
        "c": component.kv_rank, "c_q": component.q_rank or 0,
    },
    ClassAttention: lambda component, place: {"E": place.grid.special},
    Mlp: lambda component, place: _of_hidden(component, place) | {
        "N": place.grid.special if component.tokens == "class_token" else place.grid.total,
        "d'": component.out_width or place.dim,
    },
    Swiglu: _of_hidden,
    Geglu: _of_hidden,
    Moe: _moe,
    Window: _window,
    Axial: lambda component, place: {
        **dict(zip("WHZ", reversed(place.grid.sides), strict=False)),
        "L": place.grid.sides[-1 - ["row", "column", "depth", "all"].index(component.axis) % len(place.grid.sides)],
    },
    Sliding: lambda component, place: {
        "h_kv": component.kv_heads or component.heads, "s": component.window // 2, "δ": component.dilation,
        "g": component.global_tokens, "P": whole(place.grid.total, component.window * component.dilation),
    },
    GlobalLocal: lambda component, place: {
        "g": place.grid.special, "n": place.grid.tokens, "b": component.radius + 1,
        "P": whole(place.grid.tokens, component.radius + 1),
    },
    BlockSparse: lambda component, place: {
        "b": component.block, "r": component.random_blocks, "u": ceil_div(place.grid.total, component.block),
        "P": place.grid.total if place.grid.total <= (5 + 2 * component.random_blocks) * component.block
        else whole(place.grid.total, component.block),
    },
    Blockwise: _blockwise,
    Relative: _relative,
    Compressive: lambda component, place: _relative(component, place) | {"c": component.compression},
    Deformable: lambda component, place: {"k": component.points, "L": len(place.grid.levels or [0])},
    Lsh: _lsh,
    Sinkhorn: lambda component, place: {
        "b": component.block, "I": component.iterations, "u": (u := ceil_div(place.grid.total, component.block)),
        "P": u * component.block, "v": u + bool(component.causal), "t": min(component.sortcut or u, u),
    },
    Kernel: _kernel,
    LowRank: lambda component, place: {"k": component.rank},
    Nystrom: lambda component, place: {
        "m": component.landmarks, "I": component.iterations, "w": component.conv or 0,
        "P": whole(place.grid.total, component.landmarks) if place.grid.total > component.landmarks
        else place.grid.total,
    },
    Inducing: lambda component, place: {"k": component.points},
    Routing: _routing,
    Compressed: lambda component, place: {
        "M": ceil_div(place.grid.total, component.compression), "κ": component.kernel or component.compression,
        "g": component.groups, "t": int(component.null_key),
    },
    Funnel: _funnel,
    Synthesizer: _synthesizer,
    Sparse: _sparse,
    NonLocal: lambda component, place: _pooled_keys(component, place) | {"d'": component.width or place.dim // 2},
    Sagan: lambda component, place: _pooled_keys(component, place) | {
        "r": component.reduction, "s": component.value_reduction,
    },
    TokenMlp: lambda component, place: {"k": component.hidden},
    Gmlp: _of_hidden,
    AveragePool: _kernel_of_grid,
    DepthwiseConv: _kernel_of_grid,
    ConvModule: _kernel_of_grid,
    ByteNet: _kernel_of_grid,
    ConvMlp: lambda component, place: _kernel_of_grid(component, place) | _of_hidden(component, place),
    ConvNext: lambda component, place: _kernel_of_grid(component, place) | _of_hidden(component, place),
    Conv: lambda component, place: _kernel_of_grid(component, place) | {
        "o": place.out_dim * (2 if component.act == "glu" else 1),
    },
    SpatialReduction: lambda component, place: {
        "r": len(place.grid.sides), "R": component.reduction,
        "M": component.pooled ** len(place.grid.sides) if component.pooled
        else prod(side // component.reduction for side in place.grid.sides),
    },
    ConvAttention: lambda component, place: _kernel_of_grid(component, place) | {
        "N": place.grid.tokens, "e": place.grid.special,
        "M": prod(ceil_div(side, component.kv_stride) for side in place.grid.sides),
    },
    Bottleneck: _bottleneck,
    Basic: lambda component, place: {"r": len(place.grid.sides), "N'": strided(component, place)},
    InvertedResidual: lambda component, place: _kernel_of_grid(component, place) | {
        "N'": strided(component, place), "H": (h := _hidden(component, place.dim)), "w": h,
        "w'": round(place.dim * (component.squeeze or 0)),
    },
    Vgg: lambda component, place: {
        "r": len(place.grid.sides), "N'": prod(side // 2 for side in place.grid.sides),
    },
    LocalAttention: lambda component, place: _kernel_of_grid(component, place) | {
        "P": prod(side + component.size - 1 for side in place.grid.sides),
    },
    LocalRelation: _local_relation,
    LocalRelationEmbed: _local_relation,
    Unfolded: lambda component, place: {"r": len(place.grid.sides), "P": component.patch},
    Rnn: _recurrent(1),
    Lstm: _recurrent(4, 2),
    Gru: _recurrent(3),
    Mamba: lambda component, place: {
        "E": component.expand, "S": component.state, "W": component.conv,
        "R": component.rank or ceil_div(place.dim, 16),
    },
    Mamba2: lambda component, place: {
        "E": component.expand, "S": component.state, "W": component.conv, "G": component.groups,
        "h": component.expand * place.dim // component.head_dim, "Q": component.chunk,
        "C": ceil_div(place.grid.total, component.chunk), "P'": whole(place.grid.total, component.chunk),
    },
    RwkvChannel: lambda component, place: {"H": component.hidden or 4 * place.dim},
    Retention: _retention,
    Hyena: lambda component, place: {
        "o": component.order, "W": component.conv, "K": component.features, "F": component.filter_hidden,
        "L": component.filter_layers,
    },
    Pooling: _pooling,
    WindowPooling: _pooling,
    Patch: lambda component, place: {
        "P": component.size, "C": place.dim, "d": place.out_dim,
        "N": prod(side // component.size for side in place.grid.sides),
    },
    Projection: lambda component, place: {"C": place.dim, "d": place.out_dim},
    ConvEmbed: _conv_embed,
    PatchMerging: lambda component, place: {"N'": prod(ceil_div(side, 2) for side in place.grid.sides)},
    PoolingAttention: lambda component, place: {
        "k": component.count, "d_k": component.head_dim or place.out_dim // component.heads,
    },
    MemoryTokens: lambda component, place: {"m": component.count},
    TokenType: lambda component, place: {"t": component.types},
    AxisPosition: lambda component, place: dict(zip("HW", place.grid.sides, strict=True)),
    Position: lambda component, place: {
        "R": component.length or place.grid.total, "T": place.grid.sides[0], "S": prod(place.grid.sides[1:]),
        "e": place.grid.special,
        **{f"s{'₀₁₂'[axis]}": side for axis, side in enumerate(component.shape or ())},
        **{f"w{'₀₁₂'[axis]}": width for axis, width in enumerate(component.widths or ())},
    },
    Classifier: lambda component, place: {"K": component.classes},
    FlattenClassifier: lambda component, place: {
        "P": component.pooled, "r": len(place.grid.sides), "K": component.classes, "H": component.hidden[-1],
        **{f"H{'₁₂'[layer]}": units for layer, units in enumerate(component.hidden)},
    },
    Pooler: lambda component, place: {"d'": component.width or place.dim, "K": component.classes or 0},
}  # fmt: skip

_GRID = Place(grid=Grid((4, 6)), dim=6, out_dim=6, vocabulary=11)
# Options that no case has; no module of them runs, and so no other component holds the shared tables.
MORE_EXAMPLES: tuple[tuple[Any, Place], ...] = (
    (Relative(heads=2, share="biases"), _GRID),
    (ConvNext(norm="rms_norm"), _GRID),
    (Mlp(hidden=9, tokens="class_token"), msgspec.structs.replace(_GRID, grid=Grid((4, 6), 2))),
    (Mlp(hidden=9, out_width=4), _GRID),
    (Dense(norm="rms_norm"), _GRID),
    (Patch(size=2, norm="rms_norm"), _GRID),
    (LocalRelationEmbed(norm="rms_norm"), _GRID),
    (Token(share="words"), _GRID),
    (AxisPosition(share="places"), _GRID),
    (Pooler(norm="rms_norm"), _GRID),
    (MaskedLanguageModel(norm="rms_norm", share="words", next_sentence=True), _GRID),
    (LanguageModel(norm="rms_norm", bias=True, share="words"), msgspec.structs.replace(_GRID, logits="last")),
)

# Docstrings whose tables are those of a kind too, of functions and classes that give some of its rows.
FURTHER: dict[type[Component], tuple[object, ...]] = {
    Window: (scaled_cosine, log_cpb),
    Pooling: (decomposed_bias,),
    LocalRelationEmbed: (LocalRelation,),
    Bottleneck: (squeezed,),
    InvertedResidual: (squeezed,),
    Rnn: (Additive,),
    Lstm: (Additive, first_state, Sum),
    Gru: (Additive, first_state, Maxout),
}

# Rows that no line of their kind names, by a pattern, each with the reason.
UNNAMED: dict[type[Component], Mapping[str, str]] = {
    Bottleneck: {"spatial_.*": "rows of another mechanism, which are held against its own docstring"},
}


def documents(component: type[Component]) -> tuple[object, ...]:
    """What has a docstring with its tables: its class, its bases, and what gives further rows."""
    bases = [each for each in component.__mro__ if each.__module__.startswith("xfcost")]
    return (*bases, *(further for base in bases for further in FURTHER.get(base, ())))


def letters_of(component: Any, place: Place) -> Letters:
    """The letters of a component at a place."""
    letters = {"N": place.grid.total, "d": place.dim, "d'": place.out_dim}
    letters["β"] = int(getattr(component, "projection_bias", getattr(component, "bias", True)) is True)
    if heads := getattr(component, "heads", None):
        letters |= {"h": heads, "d_k": getattr(component, "head_dim", None) or place.dim // heads}
    if place.memory:
        letters |= {"M": place.memory.total}
    if place.vocabulary:
        letters |= {"V": place.vocabulary}
    special = LETTERS.get(type(component))
    return letters | (special(component, place) if special else {})
