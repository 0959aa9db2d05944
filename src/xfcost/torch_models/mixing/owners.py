"""The owner of each number of a tensor, as one integer per number.

A number has a home, the place whose vector it is part of, and a content, the place that it is about. In a vector both
are the same; in an attention matrix the home is the query and the content the key. Places are tokens, or groups of
tokens that were merged. Both are packed into one integer, so that moving numbers moves one companion tensor.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import accumulate
from operator import mul
from typing import Final

import torch
from torch import Tensor

# Of numbers without a place: constants, paddings.
CONSTANT: Final = -1
# Of numbers out of parameters only.
LEARNED: Final = -2

_BITS: Final = 24
_PLACE: Final = (1 << _BITS) - 1
_MASKED: Final = 1 << (2 * _BITS)
_CHOSEN: Final = _MASKED << 1
_WEIGHS: Final = _CHOSEN << 1
_FLAGS: Final = _MASKED | _CHOSEN | _WEIGHS
# Greater than every place.
_NO_PLACE: Final = _PLACE


def everywhere(value: int, shape: Sequence[int]) -> Tensor:
    """The same owner for all numbers of a tensor."""
    return torch.full((), value).expand(shape)


def narrow(owners: Tensor) -> Tensor:
    """`owners` without axes along which one number is spread: most are the same for all channels of a vector."""
    return owners[tuple(slice(None) if step else slice(1) for step in owners.stride())]


def narrowed(*tensors: Tensor) -> list[Tensor]:
    """Tensors of one shape without the axes along which each of them is spread."""
    cut = tuple(
        slice(None) if any(steps) else slice(1) for steps in zip(*(one.stride() for one in tensors), strict=True)
    )
    return [one[cut] for one in tensors]


def compact(owners: Tensor) -> Tensor:
    """`owners`, spread along every axis along which they are the same: what moved numbers is laid out whole."""
    one = narrow(owners)
    for axis in range(one.dim()):
        if one.shape[axis] > 1 and bool((one == one.narrow(axis, 0, 1)).all()):
            one = one.narrow(axis, 0, 1)
    return one.expand(owners.shape)


def reshaped(owners: Tensor, shape: Sequence[int]) -> Tensor:
    """`owners` in another shape, still spread along axes that were spread and are joined with no other."""
    if not owners.numel():
        return owners.reshape(shape)
    ends, new_ends = (list(accumulate(sizes, mul)) for sizes in (owners.shape, shape))
    common = sorted({*ends} & {*new_ends} | {owners.numel()})
    old, new = ([common[bisect_left(common, end)] for end in some] for some in (ends, new_ends))
    laid = {part for part, size, step in zip(old, owners.shape, owners.stride(), strict=True) if step and size > 1}
    few = owners[tuple(slice(None) if part in laid else slice(1) for part in old)]
    return few.reshape([size if part in laid else 1 for part, size in zip(new, shape, strict=True)]).expand(shape)


def repetitions(*tensors: Tensor) -> tuple[Tensor, Tensor] | None:
    """The entries of tensors (b, …) that differ from the one before, and for each entry which of them it is.

    None where more than half differ: it pays where entries repeat, as those of heads do.
    """
    new = torch.zeros(tensors[0].shape[0], dtype=torch.bool)
    new[:1] = True
    for one in map(narrow, tensors):
        if one.shape[0] > 1:
            new[1:] |= (one[1:] != one[:-1]).flatten(1).any(1)
    first = new.nonzero().flatten()
    return (first, new.cumsum(0) - 1) if 2 * len(first) <= len(new) else None


def at(tensor: Tensor, entries: Tensor) -> Tensor:
    """Some entries of a tensor (b, …), spread as it is."""
    one = narrow(tensor)
    return (one[entries] if one.shape[0] > 1 else one).expand(len(entries), *tensor.shape[1:])


def _of_each(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of every number, which is called once for numbers that are spread."""

    @wraps(function)
    def spread(owners: Tensor) -> Tensor:
        return function(narrow(owners)).expand(owners.shape)

    return spread


def packed(home: Tensor, content: Tensor) -> Tensor:
    """Owners out of homes and contents; CONSTANT where there is no home."""
    return torch.where(home >= 0, (home.long() << _BITS) | content.long().clamp(min=0), CONSTANT)


@_of_each
def vectors(places: Tensor) -> Tensor:
    """Owners of vectors: home and content are the same; negative values stay."""
    places = places.long()
    return torch.where(places >= 0, (places << _BITS) | places, places)


@_of_each
def home(owners: Tensor) -> Tensor:
    """The home of each number; CONSTANT or LEARNED without one."""
    return torch.where(owners >= 0, (owners >> _BITS) & _PLACE, owners)


@_of_each
def content(owners: Tensor) -> Tensor:
    """The content of each number; CONSTANT or LEARNED without one."""
    return torch.where(owners >= 0, owners & _PLACE, owners)


@_of_each
def masked(owners: Tensor) -> Tensor:
    """Is each number masked out of an attention matrix?"""
    return (owners >= 0) & (owners & _MASKED != 0)


def with_masked(owners: Tensor, where: Tensor) -> Tensor:
    """`owners` with those `where` masked out."""
    return torch.where(where & (owners >= 0), owners | _MASKED, owners)


@_of_each
def with_chosen(owners: Tensor) -> Tensor:
    """`owners` of an attention matrix whose mask depends on the input."""
    return torch.where(owners >= 0, owners | _CHOSEN, owners)


def any_chosen(owners: Tensor) -> bool:
    """Does a mask of any number depend on the input?"""
    one = narrow(owners)
    return bool(((one >= 0) & (one & _CHOSEN != 0)).any())


@_of_each
def with_weights(owners: Tensor) -> Tensor:
    """`owners` of numbers that are weights of their tokens: a softmax over these made them."""
    return torch.where(owners >= 0, owners | _WEIGHS, owners)


def any_weights(owners: Tensor) -> bool:
    """Is any number a weight of its token?"""
    one = narrow(owners)
    return bool(((one >= 0) & (one & _WEIGHS != 0)).any())


@_of_each
def swapped(owners: Tensor) -> Tensor:
    """`owners` with homes and contents exchanged."""
    return torch.where(owners >= 0, packed(content(owners), home(owners)) | (owners & _FLAGS), owners)


def any_owned(owners: Tensor) -> bool:
    """Has any number a place?"""
    return bool((narrow(owners) >= 0).any())


def any_learned(owners: Tensor) -> bool:
    """Is any number out of parameters only?"""
    return bool((narrow(owners) == LEARNED).any())


def are_pairs(owners: Tensor) -> bool:
    """Has any number a content other than its home?"""
    one = narrow(owners)
    return bool((((one >> _BITS ^ one) & _PLACE != 0) & (one >= 0)).any())


def varies(places: Tensor, axis: int) -> bool:
    """Does any line along `axis` hold several places?"""
    if places.numel() == 0 or not places.stride(axis):
        return False
    places = narrow(places)
    largest = places.amax(axis)
    smallest = torch.where(places >= 0, places, _NO_PLACE).amin(axis)
    return bool(((largest != smallest) & (largest >= 0)).any())


def along(owners: Tensor, axis: int) -> Tensor:
    """One owner for each line along `axis`, where all that are owned are the same; LEARNED before CONSTANT."""
    if owners.shape[axis] == 0:
        return everywhere(CONSTANT, _without(owners, axis))
    one = narrow(owners)
    largest, smallest = one.amax(axis), one.amin(axis)
    return torch.where(largest >= 0, largest, smallest).expand(_without(owners, axis))


def _without(owners: Tensor, axis: int) -> list[int]:
    shape = list(owners.shape)
    del shape[axis]
    return shape


def present(places: Tensor) -> Tensor:
    """The distinct places of a tensor, in order."""
    one = narrow(places)
    seen = torch.zeros(int(one.max()) + 3 if one.numel() else 0, dtype=torch.bool)
    seen[one + 2] = True  # CONSTANT and LEARNED are below 0
    return seen[2:].nonzero().flatten()


def distinct(places: Tensor, axis: int) -> Tensor:
    """The number of distinct places in each line along `axis`."""
    if places.shape[axis] == 0:
        return places.new_zeros(_without(places, axis))
    ordered = narrow(places)
    if not bool((ordered.diff(dim=axis) > 0).all()):
        ordered = ordered.sort(axis).values
    first = ordered.narrow(axis, 0, 1) >= 0
    steps = (ordered.diff(dim=axis) != 0) & (ordered.narrow(axis, 1, ordered.shape[axis] - 1) >= 0)
    return (first.sum(axis) + steps.sum(axis)).expand(_without(places, axis))


def varying(owners: Tensor) -> list[int]:
    """The axes along which homes differ."""
    homes = home(owners)
    return [
        axis
        for axis in range(homes.dim())
        if homes.shape[axis] > 1
        and homes.stride(axis)
        and bool((homes.narrow(axis, 1, homes.shape[axis] - 1) != homes.narrow(axis, 0, 1)).any())
    ]


def distinct_pairs(places: Tensor, others: Tensor) -> Tensor:
    """The different pairs of a place and the place next to it: (2, pairs)."""
    found = torch.unique((places << _BITS) | others)
    return torch.stack([found >> _BITS, found & _PLACE])
