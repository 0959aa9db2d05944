"""How far information travels in a torch module without a spec: found by changing one token at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from math import isqrt, prod
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from xfcost.counting.reach.reached import Bits, DependenceSets
from xfcost.counting.reach.result import BlockReach, InputGrid, Reach, ReachStep, reach_of
from xfcost.ledger.errors import UsageError
from xfcost.ledger.grid import Grid, sides_text
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.mixing import check_parameters
from xfcost.torch_models.any_model.run import RecordedModule, run, run_on
from xfcost.torch_models.any_model.small_sizes import small_sizes
from xfcost.torch_models.any_model.token_axes import Axes, axes_of, inputs_of
from xfcost.torch_models.any_model.user_errors import original
from xfcost.torch_models.mixing.perturb import InputUnits, ShapeChanged, Smooth, influences, random_like, with_weights
from xfcost.torch_models.shared.private_torch import pytree

# Weights and inputs that are tried.
SEEDS: Final = 3
# Part of the largest number that is rounding, in a model with a Fourier transform over all tokens.
_FFT_ROUNDING: Final = 1e-13


def reach_of_module(
    model: nn.Module, given: Given, name: str, token: Sequence[int] | None, *, longer: Given | None = None
) -> Reach:
    """The reach of a module on these inputs, or on smaller ones where those take too much work, which a note says.

    Args:
        model: with numbers, on the CPU; it is left as it is.
        given: its inputs.
        name: what it is called.
        token: the place whose maps are taken; the middle by default.
        longer: its inputs at another N, where they are a function of N: tokens lie along the axes that differ.

    Raises:
        UsageError: none of its inputs has tokens; it does not run, or none of its blocks does; it has no such token.
    """
    model = original(model)
    check_parameters(model, name)
    full = run(model, given.args, given.kwargs)
    axes = axes_of(given, model, full.works, longer)
    if not any(axes.values()):
        raise UsageError(f"reach: no input of {name} has an axis of tokens, as in --input 1xNx768 or 1x3xHxW")
    size = affordable(model, given, axes, full)
    if not any(call.name for call in size.calls):
        raise UsageError(
            f"reach: {name} runs none of its blocks; expected layers, or numbered children of its lists, that the "
            "forward pass calls and that return floats"
        )
    seen = _influences(model, size, _FFT_ROUNDING if any("fft" in work.name for work in full.works) else 0.0)
    return _composed(name, size, seen, token)


# ── the blocks of a module that nothing is declared of: the numbered children of its lists, else its layers ──


_LISTS = (nn.Sequential, nn.ModuleList)


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """Path -> block, in the order of the module's definition.

    A block is a numbered child of a list, at any depth but not inside another block, that is no list itself and has
    modules inside. Where there is none: the module's children, and instead of lists what is in them, as far as it has
    parameters or pools.
    """
    return dict(_numbered(model, "")) or dict(_layers(model, ""))


def _watched(model: nn.Module) -> dict[str, nn.Module]:
    """The blocks; and, called nothing, the module itself: what it computes after its last block."""
    return blocks_of(model) | {"": model}


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


class Output(NamedTuple):
    """What a watched module gave in one call."""

    name: str
    value: Tensor


class Stop(Exception):  # noqa: N818 - no error: nothing after it is looked at
    """The last watched output is there."""


def outputs_of(model: nn.Module, given: Given, watched: Mapping[str, nn.Module], calls: int = 0) -> list[Output]:
    """The first float tensor of each watched module's output, call by call; after so many the run is cut short."""
    found: list[Output] = []

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            tensors = (leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor) and leaf.numel())
            first = next((leaf for leaf in tensors if leaf.is_floating_point() and leaf.dim()), None)
            if first is not None:
                found.append(Output(name, first.detach()))
            if calls and len(found) == calls:
                raise Stop

        return hook

    hooks = [module.register_forward_hook(note(name)) for name, module in watched.items()]
    try:
        with torch.no_grad():
            model(*given.args, **given.kwargs)
    except Stop:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return found


# ── the size of its inputs at which every token of a module can be changed with the work there may be ──


# FLOPs of all changes: half a minute on a core.
MOST_FLOPS: Final = 5 * 10**11
# FLOPs that take as long as calling an operation.
_CALL: Final = 250_000


class BlockCall(NamedTuple):
    """One call of a block."""

    name: str
    kind: str
    """Its class."""
    axes: tuple[int, ...]
    """The axes of its output along which positions lie."""
    sides: tuple[int, ...]
    """Their lengths."""


class Input(NamedTuple):
    """An input with tokens."""

    key: str | int
    """Its name, or its place."""
    units: InputUnits


class Size(NamedTuple):
    """The inputs; by name those that have tokens; and the calls of blocks."""

    given: Given
    inputs: dict[str, Input]
    calls: list[BlockCall]
    notes: tuple[str, ...] = ()


def affordable(model: nn.Module, given: Given, axes: Axes, full: RecordedModule) -> Size:
    """The given size where the changes take no more than `MOST_FLOPS`, else the largest smaller one that does.

    Where the smallest does not, neighbouring places are changed together.
    """
    _, copy = next(with_weights(model, 1))
    inside = _watched(copy)
    smaller = [one for one in small_sizes(model, given, axes, full).inputs if one is not given]
    sizes = [_one_sample(one, axes) for one in (given, *reversed(smaller))]
    outputs = [outputs_of(copy, one, inside) for one in sizes]
    for number, one in enumerate(sizes):
        inputs = _inputs(model, one, axes)
        along = position_axes(outputs[number], outputs[number - 1], batched=_batched(inputs))
        calls = [
            BlockCall(name, type(inside[name]).__name__, own, tuple(value.shape[axis] for axis in own))
            for (name, value), own in zip(outputs[number], along, strict=True)
            if name or len(value) == 1 or not _batched(inputs)
        ]
        size = Size(one, inputs, calls)
        if number:
            sides = [(one.units.sides, "pixels" if len(one.units.sides) > 1 else "tokens") for one in inputs.values()]
            found_at = " and ".join(f"{sides_text(own)} {unit}" for own, unit in sides)
            size = size._replace(notes=(f"reduced: the given size takes too long to change each; found at {found_at}",))
        of_change = _flops(copy, one, full)
        if of_change * _changes(size) <= MOST_FLOPS:
            return size
    reduced = size.notes
    while of_change * _changes(size) > MOST_FLOPS and any(one.units.total > 1 for one in size.inputs.values()):
        coarser = {name: tokens._replace(units=tokens.units.coarser()) for name, tokens in size.inputs.items()}
        cell = next(iter(coarser.values())).units.cell
        notes = (*reduced, f"a unit is {sides_text(cell)} places, changed together")
        size = size._replace(inputs=coarser, notes=notes)
    return size


def _inputs(model: nn.Module, given: Given, axes: Axes) -> dict[str, Input]:
    """The inputs that have tokens, by the name of the parameter that takes each; the only one is called `input`."""
    places, found = given.places(model), {}
    for key, value in inputs_of(given):
        if own := axes.get(key):
            units = InputUnits(own, tuple(value.shape[axis] for axis in own), (1,) * len(own))
            found[key if isinstance(key, str) else places[key]] = Input(key, units)
    return found if len(found) > 1 else dict(zip(["input"], found.values(), strict=True))


def _batched(inputs: Mapping[str, Input]) -> bool:
    return all(one.units.batched for one in inputs.values())


def _flops(model: nn.Module, given: Given, full: RecordedModule) -> int:
    """Those of a run, and of calling its operations."""
    ran = run_on(full.how, model, *given, numbers=full.numbers)
    return sum(work.costs["flops"] for work in ran.works) + _CALL * ran.ran


def _changes(size: Size) -> int:
    return SEEDS * sum(one.units.total for one in size.inputs.values())


def _one_sample(given: Given, axes: Axes) -> Given:
    """The first of the batch, in float64."""
    samples = {len(value) for key, value in inputs_of(given) if axes.get(key)}
    batched = not any(0 in own for own in axes.values())

    def first(tensor: Tensor) -> Tensor:
        tensor = tensor.double() if tensor.is_floating_point() else tensor
        return tensor[:1] if batched and tensor.dim() and len(tensor) in samples else tensor

    args, kwargs = pytree.tree_map_only(Tensor, first, given)
    return Given(args, kwargs)


def _run_of(model: nn.Module, size: Size, one: Input) -> Callable[[Tensor], list[Tensor]]:
    """From other numbers of an input, as many samples as there are, to the outputs of the blocks."""
    watched = _watched(model)

    def run(x: Tensor) -> list[Tensor]:
        def several(tensor: Tensor) -> Tensor:
            has_batch = one.units.batched and tensor.dim() > 0 and len(tensor) == 1
            return tensor.expand(len(x), *tensor.shape[1:]).contiguous() if has_batch else tensor

        args, kwargs = pytree.tree_map_only(Tensor, several, size.given)
        if isinstance(one.key, str):
            kwargs = kwargs | {one.key: x}
        else:
            args = (*args[: one.key], x, *args[one.key + 1 :])
        return [output.value for output in outputs_of(model, Given(args, kwargs), watched, len(size.calls))]

    return run


def _influences(model: nn.Module, size: Size, rounding: float) -> dict[str, list[np.ndarray]]:
    """Name of an input -> of each call, (positions, units): does the unit influence the position?"""
    found: dict[str, list[np.ndarray]] = {}
    for seed, copy in with_weights(model, SEEDS):
        for name, one in size.inputs.items():
            noise = torch.Generator().manual_seed(seed)
            x = random_like(dict(inputs_of(size.given))[one.key], noise)
            try:
                with Smooth() if seed == SEEDS - 1 else nullcontext():
                    axes = [call.axes for call in size.calls]
                    seen = influences(_run_of(copy, size, one), x, one.units, axes, noise, rounding)
            except ShapeChanged as error:
                if not size.calls[error.number].name:  # as many boxes as there are objects
                    return _influences(model, size._replace(calls=size.calls[:-1]), rounding)
                raise UsageError(
                    f"reach: {size.calls[error.number].name} gives {sides_text(error.after)} numbers, and "
                    f"{sides_text(error.before)} where one token is another: it is given tokens by their content, "
                    "so that its positions can't be followed; `analyze --mixing` says what each operation reads"
                ) from None
            found[name] = [one | other for one, other in zip(found.get(name, seen), seen, strict=True)]
    return found


# ── along which axes of a module's output the positions lie, and the grid that they are ──


# Special tokens before those of a square grid, at most.
_MOST_SPECIAL: Final = 4
_SEQUENCE, _PLANE = 3, 4


def position_axes(
    outputs: Sequence[Output], others: Sequence[Output], *, batched: bool = True
) -> list[tuple[int, ...]]:
    """Of each output its axes that are of another length at another size of the input.

    Where nothing is (`others` may be empty): those of (B, N, D), (B, C, H, W) or (B, H, W, C); of (N, D) and (N, B, D).
    """
    if [one.name for one in outputs] != [one.name for one in others]:
        others = outputs
    found = []
    for shape, other in ((one.value.shape, another.value.shape) for one, another in zip(outputs, others, strict=True)):
        axes = range(min(len(shape), len(other)))
        found.append(tuple(axis for axis in axes if shape[axis] != other[axis]) or _usual(shape, batched=batched))
    return found


def _usual(shape: Sequence[int], *, batched: bool) -> tuple[int, ...]:
    if not batched and 1 < len(shape) <= _SEQUENCE and shape[0] > 1:
        return (0,)
    if len(shape) < _SEQUENCE:
        return ()
    if len(shape) == _SEQUENCE:
        return (1,)
    channels_last = len(shape) == _PLANE and shape[1] == shape[2] != shape[3]
    return (1, 2) if channels_last else tuple(range(2, len(shape)))


def grid_of(sides: tuple[int, ...], units: tuple[int, ...]) -> Grid:
    """The grid of an output's positions: a sequence that comes of a square is one, behind its special tokens."""
    if len(sides) == 1 < len(units) and len(set(units)) == 1:
        tokens = sides[0]
        for special in range(min(_MOST_SPECIAL, tokens)):
            side = isqrt(tokens - special)
            if side**2 == tokens - special and prod(units) % side == 0:
                return Grid((side, side), special)
    return Grid(sides or (1,))


# ── the result ──


def _composed(name: str, size: Size, seen: Mapping[str, list[np.ndarray]], token: Sequence[int] | None) -> Reach:
    first, *_ = seen
    blocks = [number for number, call in enumerate(size.calls) if call.name]
    have_positions = any(size.calls[number].axes for number in blocks)
    numbers = [number for number in blocks if size.calls[number].axes or not have_positions]  # no pooled vector
    streams = _streams(seen, numbers)
    causal = [one for one in seen if _is_causal([seen[one][number] for number in numbers if streams[number] == one])]
    inputs = {}
    for one, (_, units) in size.inputs.items():
        met = next((own for number in numbers if (own := seen[one][number]).any()), np.ones((1, units.total), bool))
        unit: Literal["pixel", "token"] = "pixel" if len(units.sides) > 1 else "token"
        inputs[one] = InputGrid(name=one, sides=units.sides, unit=unit, read=int(met.any(axis=0).sum()))
    times: Counter[str] = Counter()
    count: Counter[str] = Counter()
    steps = []
    for number in numbers:
        call, stream = size.calls[number], streams[number]
        times[call.name] += 1
        count[stream] += 1
        path = call.name + (f" (call {times[call.name]})" if times[call.name] > 1 else "")
        group, _, last = path.rpartition(".")
        grid = grid_of(call.sides, inputs[first].sides)
        block = BlockReach(
            path=path,
            group=group,
            part=f"block {int(last) + 1}" if last.isdecimal() else last,
            kinds=(call.kind,),
            stream=stream,
            number=count[stream],
            tokens=grid.total,
            sequential=1,
        )
        names = [one for one in seen if one == stream or seen[one][number].any()]
        steps.append(ReachStep(block, grid, {one: _reached(seen[one][number], inputs[one].sides) for one in names}))
    found = reach_of(name, inputs, steps, causal, streams[numbers[-1]], token)
    how = (
        f"found by changing one {inputs[first].unit} at a time, with {SEEDS} random inputs and weights; where "
        "content selects what is read, other inputs may give other sets"
    )
    return msgspec.structs.replace(found, notes=(*size.notes, *_after_the_last(size, seen, inputs, numbers[-1]), how))


def _streams(seen: Mapping[str, list[np.ndarray]], numbers: Sequence[int]) -> dict[int, str]:
    """Of each block the input whose tokens its positions are: of a decoder its own, of an encoder the encoder's.

    Of those that influence it, it is one with as many tokens as positions, not all alike; else the last.
    """
    decided: dict[tuple[tuple[str, ...], int], str] = {}
    found = {}
    for number in numbers:
        known = tuple(one for one in seen if seen[one][number].any()) or (next(iter(seen)),)
        as_many = [one for one in known if len(seen[one][number]) == seen[one][number].shape[1]]
        partly = [one for one in as_many if not seen[one][number].all()]
        key = (known, len(seen[known[0]][number]))
        found[number] = decided.setdefault(key, (partly or as_many or known)[-1])
    return found


def _after_the_last(
    size: Size, seen: Mapping[str, list[np.ndarray]], inputs: Mapping[str, InputGrid], last: int
) -> Iterator[str]:
    """Notes on what the module itself mixes, in no block: a last pooling over all tokens."""
    for name, grid in inputs.items():
        output, block = seen[name][-1], seen[name][last]
        if not size.calls[-1].name and int(output.sum(axis=1).max()) > int(block.sum(axis=1).max()):
            counts = output.sum(axis=1)
            met = f"{counts.min():,}" + (f" to {counts.max():,}" if counts.min() < counts.max() else "")
            yield (
                f"after its last block the module mixes tokens: its output depends on {met} of {grid.units:,} "
                f"{grid.unit}s" + (f" of {name}" if len(inputs) > 1 else "")
            )


def _reached(sets: np.ndarray, units: tuple[int, ...]) -> DependenceSets:
    packed = np.packbits(sets, axis=1, bitorder="little")
    return DependenceSets((Bits([int.from_bytes(row.tobytes(), "little") for row in packed], prod(units)),), units)


def _is_causal(seen: Sequence[np.ndarray]) -> bool:
    """Is no position influenced by a later one, wherever there are as many as units?"""
    square = [one for one in seen if one.shape[0] == one.shape[1] > 1]
    mixes = any(one.sum() > len(one) for one in square)
    return mixes and len(square) == len(seen) and not any(np.triu(one, 1).any() for one in square)
