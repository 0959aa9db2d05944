"""How far information travels in a torch module without a spec: found by changing one token at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from time import process_time
from typing import Final, NamedTuple

import numpy as np
from torch import nn

from xfcost.counting.reach.result import BlockReach, InputGrid, Map, Reach, checked_token, met_of, token_at
from xfcost.ledger.errors import UsageError
from xfcost.ledger.grid import Grid
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import check_parameters
from xfcost.torch_models.any_model.run import Run, run
from xfcost.torch_models.any_model.token_axes import Axes, axes_of, inputs_of
from xfcost.torch_models.any_model.user_errors import original
from xfcost.torch_models.reach.affordable import Size, affordable
from xfcost.torch_models.reach.influence import Influences, Units
from xfcost.torch_models.reach.module_blocks import blocks_of
from xfcost.torch_models.reach.positions import grid_of
from xfcost.torch_models.reach.smooth import Smooth
from xfcost.torch_models.reach.weights import with_weights

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
