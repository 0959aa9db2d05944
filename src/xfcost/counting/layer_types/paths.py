"""Maximum path length: how many layers of a stack it takes until every token has met every other.

What a stack reads is composed from what each of its layers reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from xfcost.counting.layer_types.types import LayerType, Sizes
from xfcost.counting.reach.sets import Intervals, ReadSets, Sets, read_sets
from xfcost.formulas.component import Grid, Mixer

# A number of tokens, and a kernel or a neighbourhood, at which a path's growth is seen: powers of the widths.
_WIDTHS: Final = (3, 9)
_POWERS: Final = (2, 4, 6)
_LINEAR: Final = 1.9


def layers_until_met(layer_type: LayerType, sizes: Sizes) -> int:
    """Layers after which every token has met every other; of a causal layer, every token all before it."""
    if layer_type.dilated:
        return _of_growing_layers(layer_type, sizes)
    return _of_equal_layers(layer_type.layer(sizes), sizes.n)


def _of_growing_layers(layer_type: LayerType, sizes: Sizes) -> int:
    met: Sets = Intervals.identity(sizes.n)
    for number in range(1, sizes.n + 1):
        met = met.union(_taps(layer_type.stacked(sizes, number - 1), sizes.n))
        if _is_whole(met, layer_type.layer(sizes)):
            return number
    raise ArithmeticError(f"{layer_type.title}: {sizes.n} layers don't join all tokens")


def _of_equal_layers(mixer: Mixer, n: int) -> int:
    """By doubling: what 2m layers read is what m layers read of what m layers read."""
    grid = Grid((n,))
    relation = read_sets(_neighbours(mixer.reads(grid, token)) for token in range(n))
    powers: list[Sets] = [Intervals.identity(n).union(relation)]
    while not _is_whole(powers[-1], mixer):
        if len(powers) > n:
            raise ArithmeticError(f"{mixer.label()}: its layers don't join all tokens")
        powers.append(powers[-1].union(_as_relation(powers[-1])))
    met: Sets = Intervals.identity(n)
    layers = 0
    for power in reversed(range(len(powers) - 1)):  # the most layers that are not enough
        more = met.union(_as_relation(powers[power]))
        if not _is_whole(more, mixer):
            met, layers = more, layers + 2**power
    return layers + 1


def _neighbours(read: Sequence[int]) -> Sequence[int]:
    """Tokens that follow one another, as a range."""
    return range(read[0], read[-1] + 1) if read[-1] - read[0] + 1 == len(read) else read


def _is_whole(met: Sets, mixer: Mixer) -> bool:
    counts = met.counts()
    n = len(counts)
    return bool((counts == (n if mixer.causality == "none" else np.arange(1, n + 1))).all())


def _as_relation(met: Sets) -> ReadSets:
    """What several layers read, as the pattern of one."""
    if not isinstance(met, Intervals):
        raise TypeError("the layers of the table read neighbours; their stacks read intervals")
    own = np.arange(met.rows)
    return ReadSets(own, met.rows, own, met.low, met.counts())


def _taps(mixer: Mixer, n: int) -> ReadSets:
    """What a dilated layer reads, each tap by itself."""
    reads: list[Sequence[int]] = [mixer.reads(Grid((n,)), token) for token in range(n)]
    own, ones = np.arange(n), np.ones(sum(map(len, reads)), np.int64)
    owner = np.repeat(own, [len(read) for read in reads])
    return ReadSets(own, n, owner, np.concatenate([np.asarray(read) for read in reads]), ones)


def path_order(layer_type: LayerType, length: Callable[[Sizes], int]) -> str:
    """O(…) of a path: constant, or as n, n/k or logₖ(n) where a kernel's or neighbourhood's width shortens it."""
    narrow, wide = ([length(_at(width, 3**power)) for power in _POWERS] for width in _WIDTHS)
    if len({*narrow, *wide}) == 1:
        return "O(1)"
    letter = layer_type.window
    if narrow[-1] - narrow[-2] == narrow[-2] - narrow[-3]:  # as much more for every factor of n
        return "O(logₖ(n))"
    if narrow[-1] < _LINEAR * narrow[-2]:
        raise ArithmeticError(
            f"{layer_type.title}: paths of {narrow} layers grow neither with n nor with its logarithm"
        )
    return f"O(n/{letter})" if narrow[-1] > _LINEAR * wide[-1] else "O(n)"


def _at(width: int, n: int) -> Sizes:
    return Sizes(n, 2, width, width)
