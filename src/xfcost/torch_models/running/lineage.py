"""What a tensor comes from: the model's input, parameters, a product of two activations that may be attention scores.

What is known before a run is marked on the tensors themselves. The rest follows from the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from xfcost.torch_models.running.record import Call, Lineage, TensorRecord
from xfcost.torch_models.shared.private_torch import aten_operations

_NOTHING: Final = Lineage()
aten: Final = torch.ops.aten
# A contraction whose first operand is an added term.
_ADDED_FIRST: Final = frozenset((aten.addmm, aten.baddbmm, aten.addbmm, aten.addmv))
SOFTMAXES: Final = frozenset(aten_operations("_softmax _safe_softmax"))


class Lineages:
    """The lineage of every tensor of a run, call by call."""

    def __init__(self) -> None:
        self._known: dict[int, Lineage] = {}

    def __getitem__(self, tensor: TensorRecord) -> Lineage:
        return self._known.get(tensor.tensor) or tensor.source or _NOTHING

    def __setitem__(self, tensor: TensorRecord, lineage: Lineage) -> None:
        self._known[tensor.tensor] = lineage

    def inherited(self, call: Call) -> Lineage:
        """The lineage of a call's results. Views and element-wise work keep scores."""
        known = [self[tensor] for tensor in call.inputs]
        varies = any(one.varies for one in known)
        weights = frozenset() if varies else frozenset[str]().union(*(one.weights for one in known))
        size = call.outputs[0].numel if call.outputs else 0
        kept = [one for one, tensor in zip(known, call.inputs, strict=True) if one.scores and tensor.numel <= size]
        if not varies or not kept:
            return Lineage(varies, weights)
        return kept[0]._replace(varies=True, weights=weights)

    def after_contraction(self, found: Lineage, call: Call, operation: Any) -> Lineage:
        """The lineage of a contraction's result: `operation`, if it multiplies activations.

        A learned map of the same size keeps the scores that it is given.
        """
        if self._multiplies_activations(call):
            return found._replace(scores=operation, mapped=False)
        size = call.outputs[0].numel
        same_size = any(self[one].scores is found.scores and one.numel == size for one in call.inputs)
        return found._replace(scores=found.scores if same_size else None, mapped=True)

    def _multiplies_activations(self, call: Call) -> bool:
        """Do both operands of a matrix product depend on the model's input?"""
        first = 1 if getattr(call.func, "overloadpacket", None) in _ADDED_FIRST else 0
        operands: Sequence[Any] = call.args[first : first + 2]
        return len(operands) == 2 and all(isinstance(one, TensorRecord) and self[one].varies for one in operands)  # noqa: PLR2004
