"""For each number of an operation's output: the places that it reads, and the place that it belongs to."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xfcost.torch_models.probing.labels import NO_PLACE

# Of a number that reads the vectors of several places and belongs to none of them: a mean, a state, a landmark.
NOWHERE = -2
# What only moves tokens and leaves no more than this part of them along an axis takes every second one, or fewer: these
# are new tokens. What leaves more cuts off paddings.
CROPPED = 2 / 3


class Operand(NamedTuple):
    """An argument with labelled numbers, and the outputs that change with each of its places."""

    labels: np.ndarray
    """In the argument's shape."""
    homes: np.ndarray
    contents: np.ndarray
    own: bool
    """Did the operation itself make it in an earlier call: is it a recurrent state?"""
    by_home: Changed
    by_content: Changed

    @property
    def holds_weights(self) -> bool:
        """Are its numbers weights of keys, not vectors?"""
        return bool(((self.homes != self.contents) & (self.contents != NO_PLACE)).any())

    @property
    def holds_vectors(self) -> bool:
        """Does any number have content from a place?"""
        return bool((self.contents != NO_PLACE).any())


class Changed(NamedTuple):
    """The output numbers that change with all numbers of one place."""

    places: list[int]
    outputs: list[np.ndarray]
    """Of every output, (places, numbers)."""


class Seen(NamedTuple):
    """Numbers of an output that belong to one place and have the same reading."""

    home: int
    sets: tuple[frozenset[int], ...]
    """Of every operand, the places that they read."""
    where: int
    """The summary that they are part of, where an axis of tokens has become one of summaries."""
    list: int
    """The list of keys (a head's, a cluster's) that they read, where these are counted apart."""


def distinct(shape: tuple[int, ...], at: int, operands: list[Operand], apart: int) -> tuple[list[Seen], np.ndarray]:
    """The readings of the output `at`: each distinct reading once, and the index of each number's reading.

    The first `apart` axes after the batch index lists of keys.
    """
    homes, where = _homes(shape, at, operands), _where(shape, at, operands)
    homes = np.where((where != NO_PLACE) & (homes != NO_PLACE), NOWHERE, homes)
    where = np.where(homes == NOWHERE, where, NO_PLACE)
    lists = np.zeros_like(homes)
    apart = min(apart, len(shape) - 3)
    if apart > 0:
        lists = np.ravel_multi_index(list(np.indices(shape)[1 : apart + 1]), shape[1 : apart + 1]).ravel()
    bits = [np.packbits(operand.by_content.outputs[at], axis=0).T for operand in operands]
    # one row of bytes per number
    table = np.concatenate([*(one[:, None].view(np.uint8) for one in (homes, where, lists)), *bits], axis=1)
    rows = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1]))).ravel()
    _, first, which = np.unique(rows, return_index=True, return_inverse=True)
    seen = [Seen(int(homes[one]), _sets(one, at, operands), int(where[one]), int(lists[one])) for one in first]
    return seen, which.ravel()


def _sets(number: int, at: int, operands: list[Operand]) -> tuple[frozenset[int], ...]:
    return tuple(
        frozenset(np.array(changed.places)[changed.outputs[at][:, number]].tolist()) - {NO_PLACE}
        for changed in (operand.by_content for operand in operands)
    )


def _homes(shape: tuple[int, ...], at: int, operands: list[Operand]) -> np.ndarray:
    """For each output number, the single home in the first operand that it reads.

    With several homes, and if the output has the operand's token axes, its tokens are the same. This also holds if a
    query reads nothing because it has a single key.
    """
    homes = np.full(int(np.prod(shape)), NO_PLACE)
    for number, operand in enumerate(operands):
        seen, free = operand.by_home.outputs[at], homes == NO_PLACE
        several = seen.sum(0)
        one = np.array(operand.by_home.places)[seen.argmax(0)]
        aligned = _aligned(shape, operand.homes, may_grow=len(operands) == 1)
        fits = (aligned != NOWHERE).any()
        if fits and (several > 1).any():
            one = aligned
        homes = np.where(free & (several == 1), one, homes)
        homes = np.where(free & (several > 1), aligned, homes)
        if fits and number == 0 and len(operands) > 1 and (several == 1).any() and (one == aligned)[several == 1].all():
            homes = np.where(several == 0, aligned, homes)
    return homes


def token_axes(homes: np.ndarray) -> list[int]:
    """The axes along which the homes differ, without padding."""
    axes = []
    padding = np.iinfo(homes.dtype).max
    for axis in range(homes.ndim):
        last, first = homes.max(axis), np.where(homes == NO_PLACE, padding, homes).min(axis)
        if ((first != last) & (first != padding)).any():
            axes.append(axis)
    return axes


def _aligned(shape: tuple[int, ...], homes: np.ndarray, *, may_grow: bool) -> np.ndarray:
    axes = token_axes(homes)
    may_grow &= not _summed(shape, homes, axes)
    if (
        not axes
        or len(shape) != homes.ndim
        or any(shape[axis] < homes.shape[axis] or (shape[axis] > homes.shape[axis] and not may_grow) for axis in axes)
    ):
        return np.full(int(np.prod(shape)), NOWHERE)
    others = tuple(axis for axis in range(homes.ndim) if axis not in axes)
    longer = [(0, shape[axis] - homes.shape[axis] if axis in axes else 0) for axis in range(len(shape))]
    padded = np.pad(homes.max(axis=others, keepdims=True), longer, constant_values=NOWHERE)
    return np.broadcast_to(padded, shape).ravel()


def _summed(shape: tuple[int, ...], homes: np.ndarray, axes: list[int]) -> bool:
    """Is an axis that is not of tokens summed to size 1? Other axes may then have moved."""
    if len(shape) != homes.ndim:
        return False
    return any(shape[axis] == 1 < homes.shape[axis] for axis in range(len(shape)) if axis not in axes)


def _where(shape: tuple[int, ...], at: int, operands: list[Operand]) -> np.ndarray:
    """For each number, its index on the axes whose tokens were reduced to fewer summaries."""
    nothing = np.full(int(np.prod(shape)), NO_PLACE)
    if len(operands) != 1 or operands[0].homes.ndim != len(shape):
        return nothing
    before = operands[0].homes
    axes = token_axes(before)
    combines = (operands[0].by_home.outputs[at].sum(0) > 1).any()
    if any(shape[axis] > before.shape[axis] for axis in range(len(shape)) if not combines):
        return nothing
    fewer = [shape[axis] / before.shape[axis] for axis in axes if shape[axis] < before.shape[axis]]
    if _summed(shape, before, axes) or not fewer or not (combines or min(fewer) <= CROPPED):
        return nothing
    along = np.indices(shape)
    return np.ravel_multi_index([along[axis] for axis in axes], [shape[axis] for axis in axes]).ravel()


def learned_places(shape: tuple[int, ...]) -> int:
    """The number of vectors without a token, such as learned queries: the last axis but one."""
    return shape[-2] if len(shape) > 1 else 0
