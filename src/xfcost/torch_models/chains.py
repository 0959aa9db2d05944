"""The longest chain of ATen operations of which each needs the result of the one before, from the record of a run.

Operations that no chain joins could run at the same time: the length of the longest one is the number of sequential
operations. Views cost none. Tensors that share memory count as one, as one may write what another reads.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from xfcost.counting.layer_types import CriticalPath
from xfcost.formulas.component import Grid, Mixer, Place
from xfcost.torch_models.modules import MODULES
from xfcost.torch_models.running.record import RunRecord
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.private_torch import pytree

# Sizes at which a layer is run: its chain must grow alike between them.
_TOKENS: Final = (8, 16, 24)
_WIDTH: Final = 4


def longest_chain(module: nn.Module, *inputs: Tensor) -> int:
    """The longest chain of one forward pass that ends in its result."""
    recorder = Recorder(module, whole_loops=True)
    with torch.no_grad(), recorder.of(module):
        result = module(*inputs)
        ends = [recorder.storage(leaf) for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    lengths = chains(recorder.run)
    return max((lengths.get(end, 0) for end in ends), default=0)


def chains(run: RunRecord) -> dict[int | None, int]:
    """For each piece of memory, the length of the longest chain that ends in it."""
    lengths: dict[int | None, int] = {}
    for call in run.aten_calls():
        if call.func.is_view:
            continue
        before = max((lengths.get(tensor.storage, 0) for tensor in call.inputs), default=0)
        for tensor in call.outputs:
            lengths[tensor.storage] = before + bool(call.inputs)
    return lengths


def chain_of(layer: Mixer) -> CriticalPath:
    """How the longest chain of a mechanism's module grows with the tokens."""
    lengths = []
    for n in _TOKENS:
        module = MODULES[type(layer)](layer, Place(grid=Grid((n,)), dim=_WIDTH, out_dim=_WIDTH)).eval()
        lengths.append(longest_chain(module, torch.randn(1, n, _WIDTH)))
    short, middle, long = lengths
    per_token = (middle - short) // (_TOKENS[1] - _TOKENS[0])
    chain = CriticalPath(per_token=per_token, always=short - per_token * _TOKENS[0])
    if [chain.at(n) for n in _TOKENS] != [short, middle, long]:
        raise ArithmeticError(f"{type(layer).__name__}: chains of {short}, {middle} and {long} operations are no line")
    return chain
