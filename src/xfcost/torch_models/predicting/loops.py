"""The calls of a loop over many tokens, from those of a few of its equal steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.predicting.call import Call, Layout
from xfcost.torch_models.shared.private_torch import pytree

# Loops over tokens run so many steps on `meta`: primes, which are no size of anything else.
FEW: Final = 17
MORE: Final = 19


class Work(NamedTuple):
    """Calls, and how often each ran."""

    calls: Counter[Call]
    views: int


def laid_out(tensors: Any, like: Any) -> Any:
    """Tensors on `meta` whose axes lie in memory in the order of those of others."""

    def one(tensor: Any, other: Any) -> Any:
        if not isinstance(tensor, Tensor) or not isinstance(other, Tensor):
            return tensor
        strides = other.stride()
        order = sorted(range(other.ndim), key=lambda axis: -strides[axis])
        return torch.empty_permuted(tensor.shape, order, dtype=tensor.dtype, device="meta")

    return pytree.tree_map(one, tensors, like)


def in_all_steps(fewer: Work, more: Work, steps: int) -> Work:
    """The calls of a loop over `steps` tokens, from those over `FEW` and over `MORE`."""
    calls: Counter[Call] = Counter()
    alike = fewer.calls.keys() & more.calls.keys()
    for call in alike:
        calls[call] += _in_all(fewer.calls[call], more.calls[call], steps)
    # the others have other sizes or strides: they are on all tokens at once, or on parts of them
    first, second = (_over_all(work, few, steps, alike) for work, few in ((fewer, FEW), (more, MORE)))
    for call, times in second.items():
        calls[call] += _in_all(first.get(call, times), times, steps)
    return Work(calls, _in_all(fewer.views, more.views, steps))


def _in_all(fewer: int, more: int, steps: int) -> int:
    return fewer + (more - fewer) * (steps - FEW) // (MORE - FEW)


def _over_all(work: Work, few: int, steps: int, alike: AbstractSet[Call]) -> Counter[Call]:
    """The calls on the tokens of a few steps, as they are on those of all `steps`."""
    calls: Counter[Call] = Counter()
    for call, times in work.calls.items():
        if call not in alike:
            calls[_longer(call, few, steps)] += times
    return calls


def _longer(call: Call, few: int, steps: int) -> Call:
    def longer(one: Layout) -> Layout:
        sizes = tuple(steps if size == few else size for size in one.sizes)
        strides = tuple(stride if stride % few else stride // few * steps for stride in one.strides)
        return Layout(sizes, strides, one.dtype)

    inputs, outputs = (each[:1] * steps if len(each) == few else each for each in (call.inputs, call.outputs))
    return call._replace(inputs=tuple(map(longer, inputs)), outputs=tuple(map(longer, outputs)))
