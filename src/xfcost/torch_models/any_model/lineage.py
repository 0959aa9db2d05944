"""What a tensor comes from: the model's input, parameters, a product of two activations that may be attention scores.

A note is kept on every tensor of a run; nothing is kept of the user's own tensors, since a run works on copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.shared.private_torch import aten_operations, base_of

_NOTE: Final = "_xfcost_lineage"
aten: Final = torch.ops.aten
# A contraction whose first operand is an added term.
_ADDED_FIRST: Final = frozenset((aten.addmm, aten.baddbmm, aten.addbmm, aten.addmv))
SOFTMAXES: Final = frozenset(aten_operations("_softmax _safe_softmax"))


class Lineage(NamedTuple):
    """What a tensor comes from."""

    varies: bool = False
    """Does it depend on the model's input?"""
    weights: frozenset[str] = frozenset()
    """The parameters that it is a view of, or computed from alone."""
    scores: Any = None
    """The operation that made it, if that is a product of two activations; views and element-wise work keep it."""
    mapped: bool = False
    """Did a learned map of the same size follow, such as one that mixes heads?"""


NOTHING: Final = Lineage()


def lineage(tensor: Any) -> Lineage:
    """What `tensor` comes from."""
    found: Lineage | None = getattr(tensor, _NOTE, None)
    if found is None and isinstance(tensor, Tensor):
        found = getattr(base_of(tensor), _NOTE, None)  # autograd makes new views, without the note
    return NOTHING if found is None else found


def note(tensor: Tensor, lineage_: Lineage) -> None:
    """Remember what `tensor` comes from."""
    setattr(tensor, _NOTE, lineage_)


def inherited(given: Sequence[Tensor], results: Sequence[Tensor]) -> Lineage:
    """The lineage of the results of an operation on `given`. Views and element-wise work keep scores."""
    notes = [lineage(tensor) for tensor in given]
    varies = any(one.varies for one in notes)
    weights = frozenset() if varies else frozenset[str]().union(*(one.weights for one in notes))
    size = results[0].numel() if results else 0
    kept = [one for one, tensor in zip(notes, given, strict=True) if one.scores and tensor.numel() <= size]
    if not varies or not kept:
        return Lineage(varies, weights)
    return kept[0]._replace(varies=True, weights=weights)


def after_contraction(found: Lineage, given: Sequence[Tensor], result: Tensor, product: Any) -> Lineage:
    """The lineage of a contraction's result: `product`, if it multiplies activations.

    A learned map of the same size keeps the scores that it is given.
    """
    if product is not None:
        return found._replace(scores=product, mapped=False)
    same_size = any(lineage(one).scores is found.scores and one.numel() == result.numel() for one in given)
    return found._replace(scores=found.scores if same_size else None, mapped=True)


def multiplies_activations(packet: Any, args: tuple[Any, ...]) -> bool:
    """Do both operands of a matrix product depend on the model's input?"""
    first = 1 if packet in _ADDED_FIRST else 0
    operands = args[first : first + 2]
    return len(operands) == 2 and all(lineage(one).varies for one in operands)  # noqa: PLR2004
