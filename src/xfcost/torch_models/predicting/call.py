"""An ATen call by what decides how long it takes."""

from __future__ import annotations

from typing import Any, NamedTuple


class Layout(NamedTuple):
    """A tensor without its values."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Call(NamedTuple):
    """An ATen call: equal calls take equally long."""

    operation: str
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    options: tuple[Any, ...] = ()
