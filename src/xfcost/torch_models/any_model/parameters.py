"""Where parameters live: at the first operation of their own module that takes them, or in a row of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import nn

from xfcost.torch_models.any_model.work import Work

PARAMETERS = "parameters"


class Homes(NamedTuple):
    """The parameters of a module: in rows of operations, and those that no operation of the module takes."""

    numbers: dict[int, int]
    """`id` of an operation -> the parameters that live in its row."""
    loose: dict[str, int]
    """Path of a module -> its parameters that need a row of their own."""
    unused: tuple[str, ...]
    """Parameters that nothing took."""


def sizes(model: nn.Module) -> dict[str, int]:
    """Name of a parameter -> its elements; a shared one under its first name."""
    return {name: parameter.numel() for name, parameter in model.named_parameters()}


def homes_of(elements: Mapping[str, int], works: Iterable[Work]) -> Homes:
    """Every parameter once, where it lives."""
    home: dict[str, Work] = {}
    taken = set()
    for work in works:
        for name in work.weights:
            taken.add(name)
            if name.rpartition(".")[0] == work.path:
                home.setdefault(name, work)
    numbers: dict[int, int] = {}
    loose: dict[str, int] = {}
    for name, number in elements.items():
        if name in home:
            numbers[id(home[name])] = numbers.get(id(home[name]), 0) + number
        else:
            path = name.rpartition(".")[0]
            loose[path] = loose.get(path, 0) + number
    return Homes(numbers, loose, tuple(name for name in elements if name not in taken))
