"""Which positions of a running module's outputs change with which units of its inputs, one unit changed at a time.

Changed and unchanged inputs stand at the same positions of two batches, where equal numbers are computed equally, so
that outputs are compared bit by bit, in float64. A change can vanish (in a ReLU, in rounding): several inputs and
weights are tried, and what changes with any of them counts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isqrt, prod
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from xfcost.ledger.errors import UsageError
from xfcost.ledger.grid import Grid, sides_text
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.any_model.token_axes import inputs_of
from xfcost.torch_models.shared.private_torch import pytree

# ── functions under which no change hides, in place of those that hide some: a rectifier where it is 0, a maximum ──


_RECTIFIERS: Final = frozenset(("relu", "relu6", "hardtanh", "hardswish", "threshold"))
_MEANS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "max_pool1d": F.avg_pool1d,
    "max_pool2d": F.avg_pool2d,
    "max_pool3d": F.avg_pool3d,
}


class Smooth(TorchFunctionMode):
    """Inside it rectifiers are smooth and rise everywhere, and maxima over windows are means.

    What can influence an output stays the same: a rectifier lets through what is above 0, and any number of a window
    can be its maximum.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name, given = getattr(func, "__name__", ""), dict(kwargs or {})
        if name.rstrip("_") in _RECTIFIERS and args and isinstance(args[0], Tensor):
            smooth = args[0] + torch.tanh(args[0])
            return args[0].copy_(smooth) if name.endswith("_") or given.get("inplace") else smooth
        if name in _MEANS and _plain(args, given):
            return _mean(_MEANS[name], args, given)
        return func(*args, **given)


def _mean(pool: Callable[..., Tensor], args: tuple[Any, ...], given: Mapping[str, Any]) -> Tensor:
    order = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    named = {**dict(zip(order, args, strict=False)), **given}
    names = ("input", "kernel_size", "stride", "padding", "ceil_mode")
    return pool(**{name: named[name] for name in names if name in named})


def _plain(args: tuple[Any, ...], given: Mapping[str, Any]) -> bool:
    """Is it a window without gaps, whose places are not asked for?"""
    dilations = (*args[4:5], *([given["dilation"]] if "dilation" in given else []))
    gaps = any(one != 1 for each in dilations for one in (each if isinstance(each, tuple | list) else (each,)))
    return not gaps and not given.get("return_indices")


# ── weights under which nothing hides: a module's own, and its own with noise ──


def with_weights(model: nn.Module, seeds: int) -> Iterator[tuple[int, nn.Module]]:
    """A copy of the module in float64 and evaluation mode, with its own weights, then with noise added to them.

    A weight that is zero at the start (of a gate, of a last layer) lets nothing through, whatever the model is.
    """
    made = copy.deepcopy(model).cpu().double().eval().requires_grad_(requires_grad=False)
    own = [parameter.clone() for parameter in made.parameters()]
    for seed in range(seeds):
        noise = torch.Generator().manual_seed(seed)
        for parameter, value in zip(made.parameters(), own, strict=True):
            if seed and parameter.is_floating_point():
                gain = prod(parameter.shape[1:]) ** -0.5
                more = torch.randn(parameter.shape, generator=noise, dtype=torch.float64) * gain
                parameter.copy_(value + more)
        yield seed, made


# ── which positions of a running module's outputs change with which units of its inputs, one unit changed at a time ──


# Numbers of the watched outputs of one batch.
_MOST_NUMBERS: Final = 2**24
_MOST_SAMPLES: Final = 64
# So many times a usual number a changed one is.
_LARGE: Final = 4.0


class Units(NamedTuple):
    """The units of one input: cells along its token axes."""

    key: str | int
    """The input's name, or its place."""
    axes: tuple[int, ...]
    sides: tuple[int, ...]
    """Units along each of these axes."""
    cell: tuple[int, ...]
    """Positions of a unit along each of them."""

    @property
    def total(self) -> int:
        """Number of units."""
        return prod(self.sides)

    def mask(self, tensor: Tensor, number: int) -> Tensor:
        """Which elements of a sample (or, without a batch, of the whole) are of the unit?"""
        found = torch.zeros(tensor.shape[1:] if 0 not in self.axes else tensor.shape, dtype=torch.bool)
        places = np.unravel_index(number, self.sides)
        index: list[Any] = [slice(None)] * found.dim()
        for axis, place, cell in zip(self.axes, places, self.cell, strict=True):
            at = axis if 0 in self.axes else axis - 1
            index[at] = slice(int(place) * cell, (int(place) + 1) * cell)
        found[tuple(index)] = True
        return found


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
            tensors = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
            floats = [leaf for leaf in tensors if leaf.is_floating_point() and leaf.numel()]
            if floats:
                found.append(Output(name, floats[0].detach()))
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


class Influences:
    """Runs a module with changed inputs.

    Args:
        model: in float64 and evaluation mode; it is changed by noise and put back.
        given: its inputs.
        watched: name -> a module whose outputs are looked at.
        axes: of every watched call the axes of its output along which positions lie, the batch's not among them.
        rounding: part of the largest number up to which a difference is rounding (an FFT's over all tokens).
    """

    def __init__(
        self, model: nn.Module, given: Given, watched: Mapping[str, nn.Module], axes: Sequence[tuple[int, ...]],
        rounding: float = 0.0,
    ) -> None:  # fmt: skip
        self.model, self.given, self.watched, self.axes, self.rounding = model, given, watched, axes, rounding

    def of(self, units: Units, seeds: Sequence[int]) -> list[np.ndarray]:
        """Of each watched call, (positions, units): does the unit influence the position?"""
        found: list[np.ndarray] = []
        for seed in seeds:
            noise = torch.Generator().manual_seed(seed)
            seen = self._of(units, noise)
            found = [one | other for one, other in zip(found, seen, strict=True)] if found else seen
        return found

    def _of(self, units: Units, noise: torch.Generator) -> list[np.ndarray]:
        given = random_inputs(self.given, units, noise)
        alone = outputs_of(self.model, given, self.watched, len(self.axes))
        numbers = sum(one.value.numel() for one in alone)
        samples = 1 if 0 in units.axes else min(max(_MOST_NUMBERS // numbers, 1), _MOST_SAMPLES, units.total)
        parts = [range(at, min(at + samples, units.total)) for at in range(0, units.total, samples)]
        columns = [self._changed(given, units, part, noise) for part in parts]
        return [np.concatenate(calls, axis=1) for calls in zip(*columns, strict=True)]

    def _changed(self, given: Given, units: Units, part: range, noise: torch.Generator) -> list[np.ndarray]:
        """Of each call, (positions, these units)."""
        plain = repeated(given, units, len(part))
        tensor = dict(inputs_of(plain))[units.key]
        masks = torch.stack([units.mask(tensor, number) for number in part])
        masks = masks if 0 not in units.axes else masks[0]
        changed = replaced(plain, units.key, torch.where(masks, other_than(tensor, noise), tensor))
        before = outputs_of(self.model, plain, self.watched, len(self.axes))
        after = outputs_of(self.model, changed, self.watched, len(self.axes))
        for one, other in zip(after, before, strict=True):
            if one.value.shape != other.value.shape:
                raise UsageError(
                    f"reach: {one.name} gives {sides_text(one.value.shape)} numbers, and "
                    f"{sides_text(other.value.shape)} where one token is another: it is given tokens by their content, "
                    "so that its positions can't be followed; `analyze --mixing` says what each operation reads"
                )
        return [
            self._positions(one.value, other.value, axes, batched=0 not in units.axes)
            for one, other, axes in zip(after, before, self.axes, strict=True)
        ]

    def _positions(self, one: Tensor, other: Tensor, axes: tuple[int, ...], *, batched: bool) -> np.ndarray:
        differs = (one != other) & ~(one.isnan() & other.isnan())
        if self.rounding:
            differs &= ~((one - other).abs() <= self.rounding * other.abs().nan_to_num(posinf=0).max())
        kept = (0, *axes) if batched else axes
        rest = [axis for axis in range(differs.dim()) if axis not in kept]
        found = differs.permute(*kept, *rest).flatten(len(kept)).any(-1) if rest else differs.permute(*kept)
        rows = found.reshape(len(found), -1) if batched else found.reshape(1, -1)
        return rows.T.numpy()


def random_inputs(given: Given, units: Units, noise: torch.Generator) -> Given:
    """The inputs in float64, the input of the units with other numbers."""
    whole = in_doubles(given)
    tensor = dict(inputs_of(whole))[units.key]
    return replaced(whole, units.key, _random_like(tensor, noise, 1.0))


def in_doubles(given: Given) -> Given:
    """The inputs with floats in float64."""
    args, kwargs = pytree.tree_map_only(
        Tensor, lambda one: one.double() if one.is_floating_point() else one, (given.args, given.kwargs)
    )
    return Given(args, kwargs)


def _random_like(tensor: Tensor, noise: torch.Generator, scale: float) -> Tensor:
    if tensor.is_floating_point():
        return torch.randn(tensor.shape, generator=noise, dtype=tensor.dtype) * scale
    return torch.randint(0, _words(tensor), tensor.shape, generator=noise, dtype=tensor.dtype)


def _words(tensor: Tensor) -> int:
    """Words that may stand in a text: those up to its largest, two at least."""
    return max(int(tensor.max()) + 1, 2)


def other_than(tensor: Tensor, noise: torch.Generator) -> Tensor:
    """Other numbers, large ones; other words."""
    if tensor.is_floating_point():
        return _random_like(tensor, noise, _LARGE)
    words = _words(tensor)
    step = 1 + torch.randint(0, words - 1, tensor.shape, generator=noise, dtype=tensor.dtype)
    return (tensor + step) % words


def repeated(given: Given, units: Units, samples: int) -> Given:
    """The first sample so many times; what has no batch stays as it is."""
    if 0 in units.axes:
        return given
    batch = dict(inputs_of(given))[units.key].shape[0]

    def several(tensor: Tensor) -> Tensor:
        has_batch = tensor.dim() > 0 and tensor.shape[0] == batch
        return tensor[:1].expand(samples, *tensor.shape[1:]).contiguous() if has_batch else tensor

    args, kwargs = pytree.tree_map_only(Tensor, several, (given.args, given.kwargs))
    return Given(args, kwargs)


def replaced(given: Given, key: str | int, value: Tensor) -> Given:
    """The inputs with another tensor as one of them."""
    if isinstance(key, str):
        return Given(given.args, given.kwargs | {key: value})
    return Given(tuple(value if place == key else one for place, one in enumerate(given.args)), given.kwargs)


# ── along which axes of a module's output the positions lie, and the grid that they are ──


# Special tokens before those of a square grid, at most.
_MOST_SPECIAL: Final = 4
_SEQUENCE, _PLANE = 3, 4


def position_axes(
    outputs: Sequence[Output], others: Sequence[Output], *, batched: bool = True
) -> list[tuple[int, ...]]:
    """Of each output its axes that are of another length at another size of the input.

    Where nothing is (`others` may be empty): those of (B, N, D), (B, C, H, W) or (B, H, W, C); of (N, D) without batch.
    """
    shapes = [tuple(one.value.shape) for one in outputs]
    other_shapes = [tuple(one.value.shape) for one in others]
    if [one.name for one in outputs] != [one.name for one in others]:
        return [_usual(shape, batched=batched) for shape in shapes]
    return [
        tuple(axis for axis in range(int(batched), len(shape)) if axis < len(other) and shape[axis] != other[axis])
        or _usual(shape, batched=batched)
        for shape, other in zip(shapes, other_shapes, strict=True)
    ]


def _usual(shape: tuple[int, ...], *, batched: bool) -> tuple[int, ...]:
    if not batched and len(shape) == _SEQUENCE - 1:
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
