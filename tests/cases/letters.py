"""What the letters of `reads` stand for, mechanism by mechanism: by hand, out of its fields."""

from collections.abc import Callable
from math import ceil, isqrt, prod
from typing import Any

from xfcost.formulas.component import Place

Letters = dict[str, float]


def along_axes(letter: str, side: int) -> Letters:
    """A window's or a cell's side along one axis, two or three."""
    return {letter: side, f"{letter}²": side**2, f"{letter}³": side**3}


def _window(field: str = "size", letter: str = "W") -> Callable[[Any, Place], Letters]:
    return lambda component, place: along_axes(letter, getattr(component, field))


def _pooled(component: Any, place: Place) -> Letters:
    """The windows of the pools of queries and of keys have one letter: they are of one side in every example."""
    return along_axes("W", max(component.q_size, component.kv_size)) | along_axes("l", component.kv_stride)


def _routing(component: Any, place: Place) -> Letters:
    # √N clusters where their number isn't given, and of each as many tokens
    count = component.clusters or isqrt(place.grid.total)
    each = ceil(place.grid.total / count)
    return {"k": count, "w": component.window or 0, "√N": each, "b": component.local_window or component.window or 1}


def _blockwise(component: Any, place: Place) -> Letters:
    if isinstance(component.block, int):
        return {"b": component.block, "m": (component.before or 0) + (component.after or 0)}
    rows, columns = component.block
    return {"W²": (rows + (component.above or 0) + (component.below or 0)) * (columns + 2 * (component.beside or 0))}


LETTERS: dict[str, Callable[[Any, Place], Letters]] = {
    "window": _window(),
    "sliding": lambda component, place: {"w": component.window, "g": component.global_tokens},
    "global_local": lambda component, place: {"r": component.radius, "g": place.grid.special},
    "block_sparse": lambda component, place: {"b": component.block, "r": component.random_blocks},
    "deformable": lambda component, place: {"k": component.points},
    "inducing": lambda component, place: {"k": component.points},
    "blockwise": _blockwise,
    "relative": lambda component, place: {"m": component.memory},
    "compressive": lambda component, place: {
        "m": component.memory + component.compressed_memory,
        "c": component.compression,
    },
    "lsh": lambda component, place: {"b": component.bucket, "r": component.rounds},
    "kernel": lambda component, place: {"b": component.chunk or 0},
    "retention": lambda component, place: {"b": component.chunk or 0},
    "mamba2": lambda component, place: {"b": component.chunk, "W": component.conv},
    "mamba": lambda component, place: {"W": component.conv},
    "hyena": lambda component, place: {"W": component.conv},
    "low_rank": lambda component, place: {"k": component.rank},
    "routing": _routing,
    "nystrom": lambda component, place: {"k": component.landmarks, "w": component.conv or 0},
    "compressed": lambda component, place: {"c": component.compression, "κ": component.kernel or component.compression},
    "sparse": lambda component, place: {"l": component.stride, "c": component.summary or 0},
    "sinkhorn": lambda component, place: {"b": component.block, "k": component.sortcut or 0},
    "non_local": _window("pool"),
    "sagan": _window("pool"),
    "token_mlp": lambda component, place: {"k": component.hidden},
    "average_pool": _window(),
    "convnext": _window(),
    "spatial_reduction": lambda component, place: (
        {"R": component.reduction, "k": component.pooled or 1} | along_axes("R", component.reduction)
    ),
    # squeezed are the tokens that leave
    "bottleneck": lambda component, place: (
        along_axes("W", 3)
        | along_axes("l", component.stride)
        | {"N": prod(ceil(side / component.stride) for side in place.grid.sides)}
    ),
    "basic": lambda component, place: along_axes("W", 3),
    "local_attention": lambda component, place: along_axes("W", component.size) | along_axes("l", component.stride),
    "local_relation": _window(),
    "conv_mlp": _window(),
    "depthwise_conv": _window(),
    "conv_module": _window(),
    "conv_attention": lambda component, place: along_axes("W", component.size) | along_axes("R", component.kv_stride),
    # squeezed are the tokens that leave
    "inverted_residual": lambda component, place: (
        _window()(component, place) | {"N": prod(ceil(side / component.stride) for side in place.grid.sides)}
    ),
    "vgg": lambda component, place: along_axes("W", 3) | along_axes("l", 2),
    "unfolded": _window("patch", "P"),
    "conv": _window(),
    "bytenet": _window(),
    "pooling": _pooled,
    "window_pooling": lambda component, place: (
        along_axes("K", max(component.q_size, component.kv_size))
        | along_axes("l", component.kv_stride)
        | along_axes("W", component.window)
    ),
}
