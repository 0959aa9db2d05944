"""What the letters of `reads` stand for, kind by kind: what those of docstrings' tables do, but for these."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from cases.written import Letters, letters_of, strided
from written import value
from xfcost.formulas.component import Component, Place, tag_of

# A letter that is a field, or 0 where that is None.
FIELDS: dict[str, dict[str, str]] = {
    "window": {"W": "size"}, "sliding": {"w": "window"}, "global_local": {"r": "radius"},
    "lsh": {"b": "bucket", "r": "rounds"}, "sinkhorn": {"k": "sortcut"}, "sparse": {"l": "stride", "c": "summary"},
    "kernel": {"b": "chunk"}, "retention": {"b": "chunk"}, "mamba2": {"b": "chunk"}, "nystrom": {"k": "landmarks"},
    "compressed": {"c": "compression"}, "non_local": {"W": "pool"}, "sagan": {"W": "pool"},
    "spatial_reduction": {"k": "pooled"}, "local_attention": {"l": "stride"}, "conv_attention": {"R": "kv_stride"},
}  # fmt: skip


def _blockwise(component: Any, place: Place) -> Letters:
    if isinstance(component.block, int):
        return {}
    rows, columns = component.block
    area = (rows + (component.above or 0) + (component.below or 0)) * (columns + 2 * (component.beside or 0))
    return {"W²": area}


def _pooled(component: Any, letter: str) -> Letters:
    """The windows of the pools of queries and of keys have one letter: they are of one side in every example."""
    return {letter: max(component.q_size, component.kv_size), "l": component.kv_stride}


OTHERS: dict[str, Callable[[Any, Place], Letters]] = {
    "blockwise": _blockwise,
    # squeezed are the tokens that leave
    "bottleneck": lambda component, place: {"W": 3, "l": component.stride, "N": strided(component, place)},
    "inverted_residual": lambda component, place: {"N": strided(component, place)},
    "basic": lambda component, place: {"W": 3},
    "vgg": lambda component, place: {"W": 3, "l": 2},
    "pooling": lambda component, place: _pooled(component, "W"),
    "window_pooling": lambda component, place: _pooled(component, "K") | {"W": component.window},
}


def evaluated(reads: str, component: Component, place: Place) -> Fraction:
    """What `reads` comes to at a place; an oblong window's `W²` is a letter, for its area is no square."""
    kind, n = tag_of(type(component)), place.grid.total
    letters = {"√N": place.grid.sides[-1], "∛N": round(n ** (1 / 3))} | letters_of(component, place)
    letters |= {letter: getattr(component, field) or 0 for letter, field in FIELDS.get(kind, {}).items()}
    letters |= OTHERS[kind](component, place) if kind in OTHERS else {}
    found = {letter: Fraction(number) for letter, number in letters.items()}
    return found[reads] if reads in found else value(reads, found)
