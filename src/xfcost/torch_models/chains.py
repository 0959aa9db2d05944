"""The longest chain of ATen operations of which each needs the result of the one before, seen by torch's dispatcher.

Operations that no chain joins could run at the same time: the length of the longest one is the number of sequential
operations. Views cost none. Tensors that share memory count as one, as one may write what another reads.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.counting.layer_types.table import Chain
from xfcost.formulas.component import Grid, Mixer, Place
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.shared.private_torch import TorchDispatchMode, pytree, storage_identity

# Sizes at which a layer is run: its chain must grow alike between them.
_TOKENS: Final = (8, 16, 24)
_WIDTH: Final = 4


class _Chains(TorchDispatchMode):
    """For each piece of memory, the length of the longest chain that ends in it."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: dict[int, int] = {}
        self.held: list[Any] = []  # so that no address is used twice

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self.longest((args, kwargs))
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        reads = any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves((args, kwargs)))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                self.held.append(storage)
                self.lengths[storage_identity(storage)] = before + reads
        return result

    def longest(self, tensors: Any) -> int:
        """The longest chain that ends in any of these tensors."""
        leaves = (leaf for leaf in pytree.tree_leaves(tensors) if isinstance(leaf, Tensor))
        return max((self.lengths.get(storage_identity(leaf.untyped_storage()), 0) for leaf in leaves), default=0)


def longest_chain(module: nn.Module, *inputs: Tensor) -> int:
    """The longest chain of one forward pass that ends in its result."""
    with torch.no_grad(), _Chains() as chains:
        return chains.longest(module(*inputs))


def chain_of(layer: Mixer) -> Chain:
    """How the longest chain of a mechanism's module grows with the tokens.

    Raises:
        ArithmeticError: it is no line.
    """
    short, middle, long = (longest_chain(_module(layer, n), torch.randn(1, n, _WIDTH)) for n in _TOKENS)
    per_token = (middle - short) // (_TOKENS[1] - _TOKENS[0])
    chain = Chain(per_token=per_token, always=short - per_token * _TOKENS[0])
    if [chain.at(n) for n in _TOKENS] != [short, middle, long]:
        raise ArithmeticError(f"{type(layer).__name__}: chains of {short}, {middle} and {long} operations are no line")
    return chain


def _module(layer: Mixer, n: int) -> nn.Module:
    place = Place(grid=Grid((n,)), dim=_WIDTH, out_dim=_WIDTH)
    return MODULES[type(layer)](layer, place).eval()
