"""What the letters of `reads` stand for, mechanism by mechanism: by hand, out of its fields."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isqrt, prod
from typing import Any

from xfcost.formulas.component import Place

Letters = dict[str, float]


def along_axes(letter: str, side: int) -> Letters:
    """A window's or a cell's side along one axis, two or three."""
    return {letter: side, f"{letter}²": side**2, f"{letter}³": side**3}


def _window(field: str = "size", letter: str = "W") -> Callable[[Any, Place], Letters]:
    return lambda page, place: along_axes(letter, getattr(page, field))


def _pooled(page: Any, place: Place) -> Letters:
    """The windows of the pools of queries and of keys have one letter: they are of one side in every example."""
    return along_axes("W", max(page.q_size, page.kv_size)) | along_axes("l", page.kv_stride)


def _routing(page: Any, place: Place) -> Letters:
    # √N clusters where their number isn't given, and of each as many tokens
    count = page.clusters or isqrt(place.grid.total)
    each = ceil(place.grid.total / count)
    return {"k": count, "w": page.window or 0, "√N": each, "b": page.local_window or page.window or 1}


def _blockwise(page: Any, place: Place) -> Letters:
    if isinstance(page.block, int):
        return {"b": page.block, "m": (page.before or 0) + (page.after or 0)}
    rows, columns = page.block
    return {"W²": (rows + (page.above or 0) + (page.below or 0)) * (columns + 2 * (page.beside or 0))}


LETTERS: dict[str, Callable[[Any, Place], Letters]] = {
    "window": _window(),
    "sliding": lambda page, place: {"w": page.window, "g": page.global_tokens},
    "global_local": lambda page, place: {"r": page.radius, "g": place.grid.extra},
    "block_sparse": lambda page, place: {"b": page.block, "r": page.random_blocks},
    "inducing": lambda page, place: {"k": page.points},
    "blockwise": _blockwise,
    "relative": lambda page, place: {"m": page.memory},
    "compressive": lambda page, place: {"m": page.memory + page.compressed_memory, "c": page.compression},
    "lsh": lambda page, place: {"b": page.bucket, "r": page.rounds},
    "kernel": lambda page, place: {"b": page.chunk or 0},
    "retention": lambda page, place: {"b": page.chunk or 0},
    "mamba2": lambda page, place: {"b": page.chunk, "W": page.conv},
    "mamba": lambda page, place: {"W": page.conv},
    "hyena": lambda page, place: {"W": page.conv},
    "low_rank": lambda page, place: {"k": page.rank},
    "routing": _routing,
    "nystrom": lambda page, place: {"k": page.landmarks, "w": page.conv or 0},
    "compressed": lambda page, place: {"c": page.compression, "κ": page.kernel or page.compression},
    "sparse": lambda page, place: {"l": page.stride, "c": page.summary or 0},
    "sinkhorn": lambda page, place: {"b": page.block, "k": page.sortcut or 0},
    "non_local": _window("pool"),
    "sagan": _window("pool"),
    "token_mlp": lambda page, place: {"k": page.hidden},
    "average_pool": _window(),
    "convnext": _window(),
    "spatial_reduction": lambda page, place: (
        {"R": page.reduction, "k": page.pooled or 1} | along_axes("R", page.reduction)
    ),
    # squeezed are the tokens that leave
    "bottleneck": lambda page, place: (
        along_axes("W", 3)
        | along_axes("l", page.stride)
        | {"N": prod(ceil(side / page.stride) for side in place.grid.sides)}
    ),
    "basic": lambda page, place: along_axes("W", 3),
    "local_attention": lambda page, place: along_axes("W", page.size) | along_axes("l", page.stride),
    "local_relation": _window(),
    "conv_mlp": _window(),
    "depthwise_conv": _window(),
    "conv_module": _window(),
    "conv_attention": lambda page, place: along_axes("W", page.size) | along_axes("R", page.kv_stride),
    "inverted_residual": lambda page, place: along_axes("W", 3),
    "unfolded": _window("patch", "P"),
    "conv": _window(),
    "bytenet": _window(),
    "pooling": _pooled,
    "window_pooling": lambda page, place: (
        along_axes("K", max(page.q_size, page.kv_size)) | along_axes("l", page.kv_stride) | along_axes("W", page.window)
    ),
}
