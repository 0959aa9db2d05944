"""What the letters of docstrings' tables stand for, kind by kind: by plain arithmetic, out of fields and places alone."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from xfcost.formulas.component import Component, Place
from xfcost.layers.feed_forward import Geglu, Mlp, Swiglu
from xfcost.layers.moe import Moe
from xfcost.mechanisms.full import ClassAttention, Cross, Full, Mla

Letters = dict[str, Any]


def ceil_div(number: int, divisor: int) -> int:
    """⌈number/divisor⌉."""
    return -(-number // divisor)


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
}  # fmt: skip

# Docstrings whose tables are those of a kind too, of functions and classes that give some of its rows.
FURTHER: dict[type[Component], tuple[object, ...]] = {}

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
