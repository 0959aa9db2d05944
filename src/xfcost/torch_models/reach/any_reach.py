"""How far information travels in a torch module without a spec: found by changing one token at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from time import process_time
from typing import Final, NamedTuple

import numpy as np
from torch import nn

from xfcost.counting.reach.result import BlockReach, InputGrid, Map, Reach, checked_token, met_of, token_at
from xfcost.ledger.errors import UsageError
from xfcost.ledger.grid import Grid, sides_text
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import check_parameters
from xfcost.torch_models.any_model.run import Run, run
from xfcost.torch_models.any_model.small_sizes import small_sizes
from xfcost.torch_models.any_model.token_axes import Axes, axes_of, inputs_of
from xfcost.torch_models.any_model.user_errors import original
from xfcost.torch_models.reach.influence import (
    Influences,
    Output,
    Smooth,
    Units,
    grid_of,
    in_doubles,
    outputs_of,
    position_axes,
    repeated,
    with_weights,
)

# ── the blocks of a module that nothing is declared of: the numbered children of its lists, else its layers ──


_LISTS = (nn.Sequential, nn.ModuleList)


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """Path -> block, in the order of the module's definition.

    A block is a numbered child of a list, at any depth but not inside another block, that is no list itself and has
    modules inside. Where there is none: the module's children, and in place of lists what is in them, as far as it has
    parameters or pools.
    """
    return dict(_numbered(model, "")) or dict(_layers(model, ""))


def _layers(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if type(child) in _LISTS:
            yield from _layers(child, inner)
        elif any(True for _ in child.parameters()) or "Pool" in type(child).__name__:
            yield inner, child


def _numbered(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        is_list = type(child) in _LISTS
        has_parts = any(True for _ in child.children())
        if name.isdecimal() and type(module) in _LISTS and not is_list and has_parts:
            yield inner, child
        else:
            yield from _numbered(child, inner)


# ── the size of its inputs at which every token of a module can be changed in the time there is ──


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


# ── how far information travels in a torch module without a spec: found by changing one token at a time ──


# Weights and inputs that are tried.
SEEDS: Final = 3
# Part of the largest number that is rounding, in a model with a Fourier transform over all tokens.
_FFT_ROUNDING: Final = 1e-13


class _Step(NamedTuple):
    """One call of a block: of each input, (positions, units): does the unit influence the position?"""

    name: str
    kind: str
    grid: Grid
    influences: dict[str, np.ndarray]


def reach_of_module(
    model: nn.Module, given: Given, name: str, token: Sequence[int] | None, clock: Callable[[], float] = process_time
) -> Reach:
    """The reach of a module on these inputs, or on smaller ones where those take too long, which a note says.

    Args:
        model: with numbers, on the CPU; it is left as it is.
        given: its inputs.
        name: what it is called.
        token: the place whose maps are taken; the middle by default.
        clock: gives seconds of work.

    Raises:
        UsageError: none of its inputs has tokens; it does not run, or none of its blocks does; it has no such token.
    """
    model = original(model)
    check_parameters(model, name)
    full = run(model, given.args, given.kwargs)
    axes = axes_of(given, given.places(model), full.works)
    if not any(axes.values()):
        raise UsageError(f"reach: no input of {name} has an axis of tokens, as in --input 1xNx768 or 1x3xHxW")
    watched = blocks_of(model)
    size = affordable(model, given, _named(given, axes, model), full, watched, SEEDS, clock)
    if not size.calls:
        raise UsageError(
            f"reach: {name} runs none of its blocks: expected layers, or numbered children of its lists, that the "
            "forward pass calls and that return floats"
        )
    steps = list(_steps(model, size, watched, full))
    return _composed(name, size, steps, token)


def _named(given: Given, axes: Axes, model: nn.Module) -> dict[str, tuple[str | int, tuple[int, ...]]]:
    """Of each input that has tokens, by the name of the parameter that takes it: its key and token axes.

    The only one is called `input`.
    """
    places = given.places(model)
    keys = [key for key, _ in inputs_of(given) if axes.get(key)]
    names = [key if isinstance(key, str) else places[key] for key in keys]
    names = names if len(names) > 1 else ["input"]
    return {name: (key, axes[key]) for name, key in zip(names, keys, strict=True)}


def _steps(model: nn.Module, size: Size, watched: dict[str, nn.Module], full: Run) -> list[_Step]:
    rounding = _FFT_ROUNDING if any("fft" in work.name for work in full.works) else 0.0
    found: dict[str, list[np.ndarray]] = {}
    for seed, copy in with_weights(model, SEEDS):
        inside = blocks_of(copy)
        runs = Influences(copy, size.given, inside, [call.axes for call in size.calls], rounding)
        for name, units in size.units.items():
            with Smooth() if seed == SEEDS - 1 else nullcontext():
                seen = runs.of(units, [seed])
            before = found.get(name)
            found[name] = seen if before is None else [one | other for one, other in zip(before, seen, strict=True)]
    times: Counter[str] = Counter()
    steps = []
    first = next(iter(size.units.values()))
    have_positions = any(call.axes for call in size.calls)
    for number, call in enumerate(size.calls):
        if have_positions and not call.axes:  # a pooled vector
            continue
        times[call.name] += 1
        again = f" (call {times[call.name]})" if times[call.name] > 1 else ""
        kind = type(watched[call.name]).__name__
        influences = {name: each[number] for name, each in found.items()}
        steps.append(_Step(call.name + again, kind, grid_of(call.sides, first.sides), influences))
    return steps


def _composed(name: str, size: Size, steps: Sequence[_Step], token: Sequence[int] | None) -> Reach:
    streams = [_stream(step) for step in steps]
    causal = {
        name for name in size.units if _is_causal([s for s, of in zip(steps, streams, strict=True) if of == name])
    }
    inputs = {name: _input(name, units, steps) for name, units in size.units.items()}
    numbers: Counter[str] = Counter()
    blocks = []
    for step, stream in zip(steps, streams, strict=True):
        numbers[stream] += 1
        blocks.append(_block(step, stream, inputs, numbers[stream], causal=stream in causal))
    grids = tuple(inputs.values())
    return Reach(
        name=name,
        inputs=grids,
        maps=tuple(_maps(grids, steps, streams, token)),
        steps=tuple(blocks),
        causal_streams=tuple(causal),
        notes=(*size.notes, _how(grids[0].unit)),
    )


def _input(name: str, units: Units, steps: Sequence[_Step]) -> InputGrid:
    seen = next((step.influences[name] for step in steps if step.influences[name].any()), None)
    read = units.total if seen is None else int(seen.any(axis=0).sum())
    return InputGrid(name=name, sides=units.sides, unit="pixel" if len(units.sides) > 1 else "token", read=read)


def _how(unit: str) -> str:
    return (
        f"found by changing one {unit} at a time, with {SEEDS} random inputs and weights; what content "
        "selects may be another with others"
    )


def _stream(step: _Step) -> str:
    """The last of the inputs that influence a step: of a decoder its own, of an encoder the encoder's."""
    return (
        [name for name, seen in step.influences.items() if seen.any()][-1:][0]
        if _any(step)
        else next(iter(step.influences))
    )


def _any(step: _Step) -> bool:
    return any(seen.any() for seen in step.influences.values())


def _is_causal(steps: Sequence[_Step]) -> bool:
    """Is no position influenced by a later one, wherever there are as many as units?"""
    own = [step.influences[_stream(step)] for step in steps]
    square = [seen for seen in own if seen.shape[0] == seen.shape[1] > 1]
    mixes = any(seen.sum() > len(seen) for seen in square)
    return mixes and len(square) == len(own) and not any(np.triu(seen, 1).any() for seen in square)


def _block(step: _Step, stream: str, inputs: Mapping[str, InputGrid], number: int, *, causal: bool) -> BlockReach:
    group, _, last = step.name.rpartition(".")
    part = f"block {int(last) + 1}" if last.isdecimal() else last
    names = [stream, *(name for name, seen in step.influences.items() if name != stream and seen.any())]
    met = []
    for name in names:
        seen = step.influences[name]
        own = int(np.trace(seen)) if seen.shape[0] == seen.shape[1] else 0
        met.append(met_of(inputs[name], seen.sum(axis=1), own, causal=causal and name == stream))
    return BlockReach(
        path=step.name,
        group=group,
        part=part,
        kinds=(step.kind,),
        stream=stream,
        number=number,
        tokens=prod(step.grid.sides) + step.grid.special,
        sequential=1,
        met=tuple(met),
    )


def _maps(
    inputs: Sequence[InputGrid], steps: Sequence[_Step], streams: Sequence[str], token: Sequence[int] | None
) -> list[Map]:
    """As `counting.reach.composed` collects them."""
    grids = {one.name: one for one in inputs}
    tokens = {name: tuple(side // 2 for side in one.sides) for name, one in grids.items()}
    if token is not None:
        tokens[streams[-1]] = checked_token(token, grids[streams[-1]])
    first: dict[tuple[str, str], np.ndarray] = {}
    for number, (step, stream) in enumerate(zip(steps, streams, strict=True), 1):
        here = token_at(tokens[stream], grids[stream].sides, step.grid)
        for name, seen in step.influences.items():
            if name != stream and not seen.any():
                continue
            found = first.setdefault((stream, name), np.full(grids[name].units, -1))
            if name == stream and (found < 0).all():
                found[np.ravel_multi_index(tokens[stream], grids[stream].sides)] = 0
            found[(found < 0) & seen[here]] = number
    return [
        Map(stream=stream, input=name, token=tokens[stream], first=found) for (stream, name), found in first.items()
    ]
