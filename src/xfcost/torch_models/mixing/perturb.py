"""Which positions of outputs change with which units of an input, one unit changed at a time.

Changed and unchanged inputs are at the same positions of two batches, where equal numbers are computed equally, so
that outputs are compared bit by bit, in float64. A change can vanish (in a ReLU, in a maximum, in rounding): callers
try several changes, inputs or weights, and what changes with any of them counts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from xfcost.torch_models.mixing.owners import content, home

# Numbers of the watched outputs of one batch, and samples of it.
_MOST_NUMBERS: Final = 2**24
_MOST_SAMPLES: Final = 64
# So many times a usual number a changed one is.
_LARGE: Final = 4.0


class InputUnits(NamedTuple):
    """The units of an input: cells along its token axes."""

    axes: tuple[int, ...]
    """Without a batch, axis 0 is one of them."""
    sides: tuple[int, ...]
    """InputUnits along each of these axes."""
    cell: tuple[int, ...]
    """Positions of a unit along each of them."""

    @property
    def total(self) -> int:
        return prod(self.sides)

    @property
    def batched(self) -> bool:
        """Is axis 0 the batch's?"""
        return 0 not in self.axes

    def coarser(self) -> InputUnits:
        """Twice as many positions to a unit along every axis."""
        sides = tuple(-(-side // 2) for side in self.sides)
        return self._replace(cell=tuple(2 * cell for cell in self.cell), sides=sides)

    def mask(self, shape: Sequence[int], number: int) -> Tensor:
        """Which elements of one sample of this shape are of the unit?"""
        found = torch.zeros(*shape, dtype=torch.bool)
        index: list[Any] = [slice(None)] * found.dim()
        for axis, place, cell in zip(self.axes, np.unravel_index(number, self.sides), self.cell, strict=True):
            index[axis] = slice(int(place) * cell, (int(place) + 1) * cell)
        found[tuple(index)] = True
        return found


class OwnedUnits(NamedTuple):
    """The numbers of each place in one sample (1, numbers)."""

    places: list[int]
    owners: Tensor
    batched: bool = True

    @property
    def total(self) -> int:
        return len(self.places)

    def mask(self, shape: Sequence[int], number: int) -> Tensor:
        """Which elements are of the place, or about it?"""
        place = self.places[number]
        return ((home(self.owners) == place) | (content(self.owners) == place)).reshape(shape)


class ShapeChanged(Exception):  # noqa: N818 - the caller says what it means
    """An output has another shape where one unit is another: its number, and both shapes."""

    def __init__(self, number: int, before: torch.Size, after: torch.Size) -> None:
        super().__init__(number, before, after)
        self.number, self.before, self.after = number, before, after


def influences(  # noqa: PLR0913 - a run, what is changed in it, and what is looked at
    run: Callable[[Tensor], Sequence[Tensor]], x: Tensor, units: InputUnits | OwnedUnits,
    axes: Sequence[Sequence[int]], noise: torch.Generator, rounding: float = 0.0,
    numbers: Sequence[int] | None = None, changes: int = 1,
) -> list[np.ndarray]:  # fmt: skip
    """Of each output, (positions, units): does the unit influence the position?

    Args:
        run: from an input, as many samples as it is given, to its outputs.
        x: one sample of the input, or an input without a batch.
        units: those of the input.
        axes: of each output the axes along which its positions lie.
        noise: other numbers are drawn from it.
        rounding: part of the largest number up to which a difference is rounding (an FFT's over all tokens).
        numbers: the units that are changed; all by default.
        changes: so many of each, one after the other: a maximum changes only where a number passes all others.

    Raises:
        ShapeChanged: an output's shape depends on the content.
    """
    numbers = range(units.total) if numbers is None else numbers
    alone = run(x)
    size = max(1, sum(one.numel() for one in alone))
    samples = min(max(_MOST_NUMBERS // size, 1), _MOST_SAMPLES, len(numbers)) if units.batched else 1
    unchanged, columns = {1: alone}, []
    if samples > 1:
        unchanged[samples] = run(x.expand(samples, *x.shape[1:]).contiguous())
        if any(len(many) != samples * len(one) for many, one in zip(unchanged[samples], alone, strict=True)):
            samples = 1  # an output's first axis is not that of samples
    for at in range(0, len(numbers), samples):
        part = numbers[at : at + samples]
        masks = torch.cat([units.mask((1, *x.shape[1:]) if units.batched else x.shape, one) for one in part])
        plain = x.expand(len(part), *x.shape[1:]).contiguous() if units.batched else x
        if len(part) not in unchanged:
            unchanged[len(part)] = run(plain)
        before = unchanged[len(part)]
        changed = [torch.zeros((), dtype=torch.bool)] * len(before)
        for _ in range(changes):
            after = run(torch.where(masks, other_than(plain, noise), plain))
            for number, (one, other) in enumerate(zip(before, after, strict=True)):
                if one.shape != other.shape:
                    raise ShapeChanged(number, one.shape, other.shape)
            changed = [
                found | differs(one, other, rounding) for found, one, other in zip(changed, before, after, strict=True)
            ]
        columns.append(
            [
                _positions(one, tuple(dict.fromkeys((0, *kept) if units.batched else kept)), len(part))
                for one, kept in zip(changed, axes, strict=True)
            ]
        )
    return [np.concatenate(calls, axis=1) for calls in zip(*columns, strict=True)]


def differs(before: Tensor, after: Tensor, rounding: float) -> Tensor:
    """Which numbers are others, by more than this part of the largest of them?"""
    found = (after != before) & ~(after.isnan() & before.isnan())
    if rounding:
        found &= ~((after - before).abs() <= rounding * before.abs().nan_to_num(posinf=0).max())
    return found


def _positions(differs: Tensor, kept: tuple[int, ...], samples: int) -> np.ndarray:
    """(positions, samples): do any numbers at the position differ?"""
    rest = [axis for axis in range(differs.dim()) if axis not in kept]
    found = differs.permute(*kept, *rest).reshape(samples, prod(differs.shape[axis] for axis in kept) // samples, -1)
    return found.any(-1).T.numpy()


def random_like(tensor: Tensor, noise: torch.Generator, size: float = 1.0) -> Tensor:
    """Numbers from a normal distribution; words up to the largest that is there."""
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.randn(tensor.shape, generator=noise, dtype=tensor.dtype) * size
    return torch.randint(0, _words(tensor), tensor.shape, generator=noise, dtype=tensor.dtype)


def other_than(tensor: Tensor, noise: torch.Generator) -> Tensor:
    """Other numbers, large ones; other words."""
    if tensor.is_floating_point() or tensor.is_complex():
        return random_like(tensor, noise, _LARGE * (float(tensor.abs().square().mean().sqrt()) or 1.0))
    words = _words(tensor)
    step = 1 + torch.randint(0, words - 1, tensor.shape, generator=noise, dtype=tensor.dtype)
    return (tensor + step) % words


def _words(tensor: Tensor) -> int:
    return max(int(tensor.max()) + 1, 2)


# ── weights and functions under which no change hides ──


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
                parameter.copy_(value + random_like(parameter, noise, gain))
        yield seed, made


_RECTIFIERS: Final = frozenset(("relu", "relu6", "hardtanh", "hardswish", "threshold"))
_MEANS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "max_pool1d": F.avg_pool1d,
    "max_pool2d": F.avg_pool2d,
    "max_pool3d": F.avg_pool3d,
}
_OF_A_MAXIMUM: Final = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_OF_A_MEAN: Final = ("input", "kernel_size", "stride", "padding", "ceil_mode")


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
        if name in _MEANS:
            named = {**dict(zip(_OF_A_MAXIMUM, args, strict=False)), **given}
            if set(np.ravel(named.get("dilation", 1))) == {1} and not named.get("return_indices"):
                return _MEANS[name](**{name: named[name] for name in _OF_A_MEAN if name in named})
        return func(*args, **given)
