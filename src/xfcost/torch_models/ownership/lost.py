"""Tensors whose owners are lost: what an operation of unknown kind gives, and what is computed from that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from xfcost.torch_models.ownership.call import Call, Outcome, unknown
from xfcost.torch_models.ownership.owners import CONSTANT, any_owned, everywhere
from xfcost.torch_models.ownership.rules import is_movement, is_new, is_pointwise

_BEHIND: Final = "it works on what an operation of unknown kind gives"


def lost(call: Call, reason: str) -> Outcome:
    """The outcome of an operation of unknown kind."""
    return Outcome([everywhere(CONSTANT, result.shape) for result in call.results], unknown(reason))


class Lost:
    """The tensors of a run whose owners are lost."""

    def __init__(self) -> None:
        self._tensors: Any = WeakTensorKeyDictionary()

    def follow(self, call: Call, given: Sequence[Tensor], outcome: Outcome) -> Outcome:
        """The outcome, unknown where lost owners decide it; of data movement and element-wise work they do not."""
        behind = not is_new(call) and any(value in self._tensors for value in given)
        if behind and not (is_movement(call) or (is_pointwise(call) and self._is_of_one(call, given))):
            outcome = lost(call, _BEHIND)
        if behind or (outcome.finding is not None and outcome.finding.mixes is None):
            self._tensors.update(dict.fromkeys(call.results, True))
        return outcome

    def _is_of_one(self, call: Call, given: Sequence[Tensor]) -> bool:
        """Does one operand alone come from the input?"""
        return sum(value in self._tensors or any_owned(call.owners(value)) for value in given) == 1
