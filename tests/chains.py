"""How many steps of a running module can only run one after the other."""

from __future__ import annotations

import copy
from collections import Counter
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Chain(NamedTuple):
    """The longest chain of ATen operations each of which waits for the one before."""

    length: int
    operations: Counter[str]
    """How often each of them stands in it."""


def longest_chain(module: nn.Module, inputs: tuple[Tensor, ...]) -> Chain:
    """The longest chain of dependent operations that `module(*inputs)` runs. A view is no operation.

    What one operation does inside (a softmax, a cumulative sum) runs at once for all tokens, and is one link.

    Raises:
        ValueError: the module stands on `meta`.
    """
    module = copy.deepcopy(module).cpu().double().eval().requires_grad_(requires_grad=False)
    with torch.no_grad(), _Depth() as seen:
        module(*(tensor.double() for tensor in inputs))
    return seen.longest


def steps_between(small: Chain, large: Chain) -> int:
    """By how many steps the larger chain is longer: each operation of a step stands in it once or more per step.

    Raises:
        ValueError: the chains don't grow alike: the second isn't the first with more steps.
    """
    more = {name: large.operations[name] - small.operations[name] for name in small.operations | large.operations}
    if any(grown < 0 for grown in more.values()):
        raise ValueError(f"the longer chain lacks operations of the shorter one: {more}")
    return gcd(*more.values())


class _Depth(TorchDispatchMode):
    """Every tensor's longest chain, by its storage: views share it, and so does what is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = Chain(0, Counter())
        self._chains: dict[int, Chain] = {}
        self._alive: list[Any] = []  # an address isn't given away again while we look

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        entering = [
            self._chains.get(_storage(value)) for value in tree_iter((args, kwargs)) if isinstance(value, Tensor)
        ]
        before = max(
            (chain for chain in entering if chain), key=lambda chain: chain.length, default=Chain(0, Counter())
        )
        for value in tree_iter(result):
            if not isinstance(value, Tensor):
                continue
            self._alive.append(value)
            if func.is_view:
                continue
            chain = Chain(before.length + 1, before.operations + Counter((str(func),)))
            kept = self._chains.get(_storage(value))
            if kept is None or chain.length > kept.length:
                self._chains[_storage(value)] = chain
            self.longest = max(self.longest, chain, key=lambda chain: chain.length)
        return result


def _storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()
