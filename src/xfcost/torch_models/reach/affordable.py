"""The size of its inputs at which every token of a module can be changed in the time there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from torch import nn

from xfcost.ledger.grid import sides_text
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.run import Run
from xfcost.torch_models.any_model.small_sizes import small_sizes
from xfcost.torch_models.any_model.token_axes import inputs_of
from xfcost.torch_models.reach.influence import Output, Units, in_doubles, outputs_of, repeated
from xfcost.torch_models.reach.positions import position_axes
from xfcost.torch_models.reach.weights import with_weights

# Seconds of work that all changes may take.
MOST_SECONDS: Final = 30.0
# Samples of a run that is timed.
_SAMPLES: Final = 8


class Call(NamedTuple):
    """One call of a watched module."""

    name: str
    axes: tuple[int, ...]
    """The axes of its output along which positions lie."""
    sides: tuple[int, ...]
    """Their lengths."""


class Size(NamedTuple):
    """The inputs, and their units."""

    given: Given
    units: dict[str, Units]
    """Name of an input -> its units."""
    calls: list[Call]
    notes: tuple[str, ...] = ()


# Name of an input -> its key among the inputs, and its token axes.
Named = Mapping[str, tuple[str | int, tuple[int, ...]]]


def affordable(  # noqa: PLR0913 - what a size is chosen by
    model: nn.Module, given: Given, named: Named, full: Run, watched: Mapping[str, nn.Module], seeds: int,
    clock: Callable[[], float],
) -> Size:  # fmt: skip
    """The given size where the changes take no longer than `MOST_SECONDS`, else the largest smaller one that does.

    Where the smallest does not, neighbouring places are changed together.
    """
    _, copy = next(with_weights(model, 1))
    inside = {name: copy.get_submodule(name) for name in watched}
    axes = dict(named.values())
    smaller = [one for one in small_sizes(model, given, axes, full).inputs if one is not given]
    sizes = [given, *reversed(smaller)]
    outputs = [outputs_of(copy, in_doubles(one), inside) for one in sizes]
    calls = _calls(outputs, batched=all(0 not in own for own in axes.values()))
    for number, one in enumerate(sizes):
        units = {name: _units(one, *of) for name, of in named.items()}
        notes = (f"reduced: the given size takes too long to change each; found at {_text(units)}",) if number else ()
        size = Size(one, units, calls[number], notes)
        if _seconds(copy, size, inside, seeds, clock) <= MOST_SECONDS:
            return size
    while _seconds(copy, size, inside, seeds, clock) > MOST_SECONDS and _several(size):
        size = _coarser(size)
    return size


def _calls(outputs: list[list[Output]], *, batched: bool) -> list[list[Call]]:
    """Of each size its calls; axes are compared with the size beside it."""
    found = []
    for number, own in enumerate(outputs):
        others = outputs[number - 1] if number else outputs[-1] if len(outputs) > 1 else []
        axes = position_axes(own, others, batched=batched)
        found.append(
            [
                Call(one.name, along, tuple(one.value.shape[axis] for axis in along))
                for one, along in zip(own, axes, strict=True)
            ]
        )
    return found


def _units(given: Given, key: str | int, axes: tuple[int, ...]) -> Units:
    tensor = dict(inputs_of(given))[key]
    return Units(key, axes, tuple(tensor.shape[axis] for axis in axes), (1,) * len(axes))


def _text(units: Mapping[str, Units]) -> str:
    texts = (f"{sides_text(one.sides)} {'pixels' if len(one.sides) > 1 else 'tokens'}" for one in units.values())
    return " and ".join(texts)


def _several(size: Size) -> bool:
    return any(side > 1 for units in size.units.values() for side in units.sides)


def _coarser(size: Size) -> Size:
    """Twice as many places to a unit along every axis."""
    units = {
        name: one._replace(cell=tuple(2 * cell for cell in one.cell), sides=tuple(-(-side // 2) for side in one.sides))
        for name, one in size.units.items()
    }
    cell = next(iter(units.values())).cell
    notes = [note for note in size.notes if not note.startswith("a unit")]
    return size._replace(units=units, notes=(*notes, f"a unit is {sides_text(cell)} places, changed together"))


def _seconds(
    model: nn.Module, size: Size, watched: Mapping[str, nn.Module], seeds: int, clock: Callable[[], float]
) -> float:
    """What all changes will take, from a run of a few samples."""
    total = 0.0
    for units in size.units.values():
        samples = 1 if 0 in units.axes else min(_SAMPLES, units.total)
        few = repeated(in_doubles(size.given), units, samples)
        began = clock()
        outputs_of(model, few, watched, len(size.calls))
        total += (clock() - began) / samples * units.total * 2 * seeds
    return total
