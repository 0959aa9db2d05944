"""One operation called again with its own inputs changed: which of its outputs change, and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

# Numbers of changed inputs and their outputs that are held at once.
MOST_NUMBERS: Final = 2**22
# A maximum changes only where a number passes all others: several changes, each of other numbers, see to that.
CHANGES: Final = 3
# Of the responses to one change at two samples: above it they differ, below it they round differently.
TOLERANCE: Final = 1e-7
# How large the change is: small beside the numbers, so that an iteration that converges still does.
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
        """Which of the arguments are tensors of floats."""
        return [at for at, value in enumerate(self.values) if isinstance(value, Tensor) and value.is_floating_point()]

    def run(self, replaced: dict[int, Tensor]) -> list[Tensor]:
        """The outputs with some of the arguments replaced."""
        values = [replaced.get(at, value) for at, value in enumerate(self.values)]
        values = [value.clone() if isinstance(value, Tensor) else value for value in values]  # some write in place
        args, kwargs = tree_unflatten(values, self.spec)
        return tensors(self.leaf(*args, **kwargs))


def tensors(answer: Any) -> list[Tensor]:
    """All tensors in an answer, nested ones too."""
    return [value for value in tree_flatten(answer)[0] if isinstance(value, Tensor)]


def changes(call: Call, which: int, groups: Tensor, noise: torch.Generator, rounding: float) -> list[Tensor]:
    """(groups, output numbers) for every output: does it differ where that group of numbers of an argument changes?

    `groups` (G, numbers of the argument) says which numbers change together. Every number is multiplied by noise, so
    that zeros and infinities (paddings, masks) stay what they are. Changed and unchanged inputs stand at the same
    places of two batches, where equal numbers take equal paths: they are compared bit by bit.
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
            for at, (one, other) in enumerate(zip(after, before, strict=True)):
                seen[at] |= _differs(one, other, rounding).flatten(1)
        found.append(seen)
    return [torch.cat(parts) for parts in zip(*found, strict=True)]


def _batched(call: Call, which: int, stacked: Tensor) -> list[Tensor]:
    """The outputs for every entry of `stacked` in place of one argument: at once where the operation lets that be."""
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
    """Is the response to a change of the arguments `which` another one where another sample stood there?

    An affine map answers equally at both: its weights are fixed. A product of two arguments, a softmax or a maximum
    doesn't.
    """
    kept = {at: (call.values[at] != 0) & (other.values[at] != 0) & call.values[at].isfinite() for at in which}
    kept = {at: here & other.values[at].isfinite() for at, here in kept.items()}
    change = {
        at: torch.where(here, STEP * torch.randn(here.shape, generator=noise, dtype=torch.float64), 0)
        for at, here in kept.items()
    }
    responses = [list(_responses(call, one, change)) for one in (call, other)]
    for first, second in zip(*responses, strict=True):
        both = first.isfinite() & second.isfinite()
        largest = max(first[both].abs().max().item(), second[both].abs().max().item()) if both.any() else 0.0
        if largest and ((first - second)[both].abs() > TOLERANCE * largest).any():
            return True
    return False


def _responses(call: Call, sample: Call, change: dict[int, Tensor]) -> Iterator[Tensor]:
    """By how much the floats of the output change with `change` where `sample`'s arguments stand."""
    before = call.run({at: sample.values[at] for at in change})
    after = call.run({at: sample.values[at] + more for at, more in change.items()})
    for one, other in zip(after, before, strict=True):
        if one.is_floating_point():
            yield one - other


def follows(call: Call, other: Call, which: list[int]) -> bool:
    """Does the output change where another sample's arguments `which` are given?"""
    given = call.run({at: other.values[at] for at in which})
    return any(not torch.equal(one, before) for one, before in zip(given, call.run({}), strict=True))
