"""Repeats one operation with changed inputs: which outputs change, and by how much."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from xfcost.torch_models.shared.private_torch import pytree

# ── prepares a module for a probe: a copy in float64, with weights that hide nothing ──


def prepared(module: nn.Module, noise: torch.Generator | None) -> nn.Module:
    """A copy in float64 and evaluation mode; with `noise`, random weights of about unit gain."""
    if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise ValueError("a module on `meta` has no numbers to probe; build it on the CPU")
    module = copy.deepcopy(module).cpu().double().eval().requires_grad_(requires_grad=False)
    for parameter in module.parameters() if noise else ():
        gain = prod(parameter.shape[1:]) ** -0.5
        parameter.copy_(torch.randn(parameter.shape, generator=noise, dtype=torch.float64) * gain)
    return module


# ── repeats one operation with changed inputs: which outputs change, and by how much ──


# The most numbers of changed inputs and outputs in memory at a time.
MOST_NUMBERS: Final = 2**22
# A maximum changes only where a number passes all others: several changes, each of other numbers, see to that.
CHANGES: Final = 3
# Of the responses to one change at two samples: above it they differ, below it they round differently.
TOLERANCE: Final = 1e-7
# The size of the change, small enough that a convergent iteration still converges.
STEP: Final = 1e-3


class Call(NamedTuple):
    """One call of an operation."""

    leaf: nn.Module
    values: list[Any]
    """Its arguments, nested ones in a row."""
    spec: Any
    """How they were nested."""
    outputs: list[Tensor]

    @property
    def floats(self) -> list[int]:
        """The indices of the arguments that are tensors of floats."""
        return [
            index for index, value in enumerate(self.values) if isinstance(value, Tensor) and value.is_floating_point()
        ]

    def run(self, replaced: dict[int, Tensor]) -> list[Tensor]:
        """The outputs with some arguments replaced."""
        values = [replaced.get(index, value) for index, value in enumerate(self.values)]
        values = [value.clone() if isinstance(value, Tensor) else value for value in values]  # some write in place
        args, kwargs = pytree.tree_unflatten(values, self.spec)
        return tensors(self.leaf(*args, **kwargs))


def tensors(answer: Any) -> list[Tensor]:
    """All tensors in a nested output."""
    return [value for value in pytree.tree_flatten(answer)[0] if isinstance(value, Tensor)]


def changes(call: Call, which: int, groups: Tensor, noise: torch.Generator, rounding: float) -> list[Tensor]:
    """For each output, (groups, output elements): does the element change if that group of input elements changes?

    `groups` (G, input elements) says which elements change together. Each is multiplied by noise, so that zeros and
    infinities (padding, masks) stay. Changed and unchanged inputs are at the same positions of two batches, where equal
    numbers are computed equally, so they are compared bit by bit.
    """
    x = call.values[which]
    size = max(1, MOST_NUMBERS // max(x.numel() + sum(out.numel() for out in call.outputs), 1))
    found = []
    for chunk in torch.split(groups, size):
        seen = [torch.zeros(len(chunk), out.numel(), dtype=torch.bool) for out in call.outputs]
        plain = x.expand(len(chunk), *x.shape).contiguous()  # as the changed ones lie
        before = _batched(call, which, plain)
        for _ in range(CHANGES):
            factors = torch.randn(x.shape, generator=noise, dtype=x.dtype) * 4
            after = _batched(call, which, torch.where(chunk.reshape(plain.shape), x * factors, x))
            for index, (one, other) in enumerate(zip(after, before, strict=True)):
                seen[index] |= _differs(one, other, rounding).flatten(1)
        found.append(seen)
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def _batched(call: Call, which: int, stacked: Tensor) -> list[Tensor]:
    """The outputs for each entry of `stacked` as one argument, in one batch if the operation can."""
    try:
        with sdpa_kernel(SDPBackend.MATH):  # the one that can be run for a batch of batches
            return list(torch.func.vmap(lambda x: tuple(call.run({which: x})))(stacked))
    except RuntimeError:  # it looks at its numbers: then one after the other
        answers = [call.run({which: x}) for x in stacked]
        return [torch.stack(parts) for parts in zip(*answers, strict=True)]


def _differs(one: Tensor, other: Tensor, rounding: float) -> Tensor:
    differs = (one != other) & ~(one.isnan() & other.isnan()) if one.is_floating_point() else one != other
    if rounding and one.is_floating_point():
        differs &= ~((one - other).abs() <= rounding * other.abs().nan_to_num(posinf=0).max())
    return differs


def weights_change(call: Call, other: Call, which: list[int], noise: torch.Generator) -> bool:
    """Does the response to a change of the arguments `which` depend on the sample?

    The response of an affine map is the same for both samples: its weights are fixed. That of a product of two
    arguments, a softmax or a maximum is not.
    """
    changeable = {
        index: (call.values[index] != 0) & (other.values[index] != 0) & call.values[index].isfinite() for index in which
    }
    changeable = {index: mask & other.values[index].isfinite() for index, mask in changeable.items()}
    change = {
        index: torch.where(mask, STEP * torch.randn(mask.shape, generator=noise, dtype=torch.float64), 0)
        for index, mask in changeable.items()
    }
    responses = [list(_responses(call, one, change)) for one in (call, other)]
    for first, second in zip(*responses, strict=True):
        finite = first.isfinite() & second.isfinite()
        largest = max(first[finite].abs().max().item(), second[finite].abs().max().item()) if finite.any() else 0.0
        if largest and ((first - second)[finite].abs() > TOLERANCE * largest).any():
            return True
    return False


def _responses(call: Call, sample: Call, change: dict[int, Tensor]) -> Iterator[Tensor]:
    """The change of the float outputs for `change` at the arguments of `sample`."""
    before = call.run({index: sample.values[index] for index in change})
    after = call.run({index: sample.values[index] + more for index, more in change.items()})
    for one, other in zip(after, before, strict=True):
        if one.is_floating_point():
            yield one - other


def follows(call: Call, other: Call, which: list[int]) -> bool:
    """Does the output change with another sample's arguments `which`?"""
    given = call.run({index: other.values[index] for index in which})
    return any(not torch.equal(one, before) for one, before in zip(given, call.run({}), strict=True))
