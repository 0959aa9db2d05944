"""What the letters of docstrings' tables stand for, kind by kind: by plain arithmetic, out of fields and places alone."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from xfcost.formulas.component import Component, Place
from xfcost.layers.feed_forward import Geglu, Mlp, Swiglu
from xfcost.layers.moe import Moe
from xfcost.mechanisms.blockwise import BlockSparse, Blockwise
from xfcost.mechanisms.deformable import Deformable
from xfcost.mechanisms.full import ClassAttention, Cross, Full, Mla
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.low_rank import Inducing, LowRank, Nystrom
from xfcost.mechanisms.relative import Compressive, Relative
from xfcost.mechanisms.sliding import GlobalLocal, Sliding
from xfcost.mechanisms.sorting import Lsh, Sinkhorn
from xfcost.mechanisms.window import Axial, Window, log_cpb_rows, scaled_cosine

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
    return {"H": _hidden(component, place.dim), "b": int(getattr(component, "bias", True))}


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
        "d_k": place.dim // component.heads, "P": windows, "T": prod(sides), "b_o": int(biased),
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


LETTERS: dict[type[Component], Callable[[Any, Place], Letters]] = {
    Full: lambda component, place: _value_width(component, place) | {
        "h_kv": component.kv_heads or component.heads,
        "k": component.bias.count if component.bias else 0,
        "b_o": int(component.projection_bias if component.output_bias is None else component.output_bias),
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
    # more
}  # fmt: skip

# Docstrings whose tables are those of a kind too, of functions and classes that give some of its rows.
FURTHER: dict[type[Component], tuple[object, ...]] = {
    Window: (scaled_cosine, log_cpb_rows),
}

# Rows that no line of their kind names, by a pattern, each with the reason.
UNNAMED: dict[type[Component], Mapping[str, str]] = {}


def documents(component: type[Component]) -> tuple[object, ...]:
    """What has a docstring with its tables: its class, its bases, and what gives further rows."""
    bases = [each for each in component.__mro__ if each.__module__.startswith("xfcost")]
    return (*bases, *(further for base in bases for further in FURTHER.get(base, ())))


def letters_of(component: Any, place: Place) -> Letters:
    """The letters of a component at a place."""
    letters = {"N": place.grid.total, "d": place.dim, "d'": place.out_dim}
    letters["b"] = int(getattr(component, "projection_bias", getattr(component, "bias", True)) is True)
    if heads := getattr(component, "heads", None):
        letters |= {"h": heads, "d_k": getattr(component, "head_dim", None) or place.dim // heads}
    if place.memory:
        letters |= {"M": place.memory.total}
    if place.vocabulary:
        letters |= {"V": place.vocabulary}
    special = LETTERS.get(type(component))
    return letters | (special(component, place) if special else {})
