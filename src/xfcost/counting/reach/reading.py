"""What a part of an architecture reads of the tokens before it: its own stream's, and those of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from xfcost.formulas.component import Grid, Mixer, Place, SubLayer
from xfcost.formulas.conv_kernel import Kernel
from xfcost.formulas.grid_axes import Axis, axis_index
from xfcost.formulas.raster import numbers, position
from xfcost.formulas.recurrent import Recurrent
from xfcost.layers.concatenate import Concatenate
from xfcost.layers.context import Context
from xfcost.layers.conv import Conv
from xfcost.layers.fold_axis import FoldAxis
from xfcost.layers.local_relation import LocalRelationEmbed
from xfcost.layers.patch import Patch
from xfcost.layers.patch_merging import PatchMerging
from xfcost.layers.pool import Pool
from xfcost.layers.pooling_attention import PoolingAttention
from xfcost.layers.shift import Shift
from xfcost.layers.upsample import Upsample
from xfcost.mechanisms.pooling import Pooling
from xfcost.spec.architecture import Part

# Products -> axes -> outputs along the axis -> the places that each reads.
Products = Sequence[Sequence[Sequence[Sequence[int]]]]
# Number of an output token -> the numbers of the tokens that it reads.
Reads = Callable[[int], Sequence[int]]


class Reading(NamedTuple):
    """What the outputs of one part depend on."""

    grid: Grid
    """The tokens that come in."""
    out: Grid
    """The tokens that leave."""
    own: Reads | None = None
    """Of its stream; None: each token itself."""
    kernel: Kernel | None = None
    """In place of `own`: a kernel along every axis."""
    pairs: int | None = None
    """Σ len(own) over all outputs, where it is known without listing them."""
    products: Products = ()
    """The same of the tokens of a grid, as products whose union it is: of each the places that the outputs along each
    axis read. All special tokens are read beside them."""
    other: Reads | None = None
    """Of the encoder's output, or of an earlier stage's; None: nothing."""

    @property
    def groups(self) -> bool:
        """Are its outputs disjoint groups of the tokens that come in, or these themselves?"""
        kernel = self.kernel
        if kernel is not None:
            return not kernel.overlaps and not any(kernel.padding)
        return self.own is None


def reading_of(part: Part) -> Reading:
    """What a part reads."""
    component: Any = part.component
    if isinstance(component, SubLayer):
        return _sublayer(part)
    grid, out = part.place.grid, component.out(part.place)[0]
    plain = Reading(grid, out)
    if getattr(component, "norm", None) == "group_norm":  # its mean and variance are over all positions
        return plain._replace(own=lambda token: range(grid.total))
    for kind, reads in _LAYERS.items():
        if isinstance(component, kind):
            return plain._replace(**reads(component, part.place))
    if grid.tokens != out.tokens:
        raise TypeError(f"what {type(component).__name__} reads is not known")
    return plain


def _groups(size: int, grid: Grid) -> Kernel:
    rank = len(grid.sides)
    return Kernel((size,) * rank, (size,) * rank, (0,) * rank)


def _itself(token: int) -> Sequence[int]:
    return (token,)


def _line(grid: Grid) -> Reads:
    """The places of a line along the last axis."""
    side = grid.sides[-1]
    return lambda token: range(token * side, (token + 1) * side)


def _before(axis: Axis, grid: Grid) -> Reads:
    """The token before, on the line along `axis`; the first of a line has none."""
    number = axis_index(axis, grid)
    step = prod(grid.sides[number + 1 :])
    return lambda token: (token - step,) if position(token, grid.sides)[number] else ()


def _repeated(component: Upsample, grid: Grid) -> Reads:
    """The pooled token that is repeated in a token's place; none where the pooling dropped it."""
    first = 1 if component.separate_cls else 0

    def reads(token: int) -> Sequence[int]:
        pooled = token if token < first else first + (token - first) // component.factor
        return (pooled,) if pooled < grid.total else ()

    return reads


# Layers whose outputs are not the tokens that come in, one by one -> the fields of what they read.
_LAYERS: Final[dict[type, Callable[[Any, Place], dict[str, Any]]]] = {
    Patch: lambda layer, place: {"kernel": _groups(layer.size, place.grid)},
    PatchMerging: lambda layer, place: {"kernel": _groups(2, place.grid)},
    Conv: lambda layer, place: {"kernel": layer.kernel(place)},
    Pool: lambda layer, place: {"kernel": layer.kernel(place)},
    PoolingAttention: lambda layer, place: {"own": lambda token: layer.reads(place.grid, token)},
    LocalRelationEmbed: lambda layer, place: {"own": lambda token: layer.layer.reads(place.grid, token)},
    Shift: lambda layer, place: {"own": _before(layer.axis, place.grid)},
    FoldAxis: lambda layer, place: {"own": _line(place.grid)},
    Concatenate: lambda layer, place: {"other": _itself},
    Upsample: lambda layer, place: {"own": _repeated(layer, place.grid), "other": _itself},
}


def _sublayer(part: Part) -> Reading:
    component, place = part.component, part.place
    grid, out = place.grid, component.out(place)[0]
    plain = Reading(grid, out)
    norms = {getattr(component, "norm", ""), part.residual != "none" and part.residual.norm}
    if "group_norm" in norms:
        plain = plain._replace(own=lambda token: range(grid.total))  # its mean and variance are over all tokens
    if isinstance(component, Context):
        return plain._replace(other=_before(component.shift, grid) if component.shift else _itself)
    if not isinstance(component, Mixer):
        return plain
    memory = place.memory
    if memory is not None and component.reads_memory:
        plain = plain._replace(other=lambda token: _memory_reads(component, grid, token, memory))
        if not isinstance(component, Recurrent):
            return plain
    if plain.own:
        return plain
    if isinstance(component, Pooling):
        return plain._replace(**_pooling(part, component))
    return plain._replace(own=_mixing(part, component), pairs=component.pairs(grid, memory))


def _memory_reads(component: Mixer, grid: Grid, token: int, memory: Grid) -> Sequence[int]:
    """A recurrence that starts from the encoder's last state has all its tokens in it."""
    return range(memory.total) if isinstance(component, Recurrent) else component.reads(grid, token, memory)


def _mixing(part: Part, component: Mixer) -> Reads:
    """What a mixer reads, and the token itself: by the residual, or as the query of what is read."""
    grid, out = part.place.grid, component.out(part.place)[0]

    def reads(token: int) -> Sequence[int]:
        if component.special_tokens_only and token >= grid.special:
            return (token,)
        # what a recurrence reads of its own stream, it reads through its state
        read = Mixer.reads(component, grid, token) if isinstance(component, Recurrent) else component.reads(grid, token)
        if out != grid or token in read or (part.residual == "none" and not len(read)):
            return read
        return (*read, token)

    return reads


def _pooling(part: Part, component: Pooling) -> dict[str, Any]:
    """Queries read the tokens of their keys, those that they are pooled of, and those that the residual pools."""
    grid, out = part.place.grid, component.out(part.place)[0]
    products = component.pooled_reads(grid).products()
    if part.residual != "none":
        kernel = component.skip(grid) or _groups(1, grid)
        sides = enumerate(zip(grid.sides, out.sides, strict=True))
        products.append([list(lines(kernel, axis, *both)) for axis, both in sides])
    return {"own": lambda token: component.reads(grid, token), "products": products}


def lines(kernel: Kernel, axis: int, side: int, outputs: int) -> Sequence[range]:
    """What each place along an axis reads through a kernel."""
    step, pad, size = kernel.stride[axis], kernel.padding[axis], kernel.sides[axis]
    return [range(max(0, at * step - pad), min(side, at * step - pad + size)) for at in range(outputs)]


def own_reads(reading: Reading) -> Reads:
    """What each output reads of its own stream."""
    kernel, grid, out = reading.kernel, reading.grid, reading.out
    if kernel is None:
        return reading.own or _itself
    along = [lines(kernel, axis, *sides) for axis, sides in enumerate(zip(grid.sides, out.sides, strict=True))]
    return lambda token: numbers(
        [line[place] for line, place in zip(along, position(token, out.sides), strict=True)], grid.sides
    )
