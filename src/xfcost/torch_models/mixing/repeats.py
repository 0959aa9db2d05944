"""Operations that repeat: of equal blocks only the first is looked at, and the others take over its outcomes.

An outcome is taken over where everything is equal that a rule may depend on: the operation, its arguments and shapes,
the owners of its operands, and what is used of their values, which are indices and where masks hide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import Call, Outcome
from xfcost.torch_models.mixing.owners import narrow
from xfcost.torch_models.mixing.pointwise import NEGLIGIBLE
from xfcost.torch_models.shared.private_torch import aten_operations, pytree

# Their rules depend on owners alone, as those of views do.
_OF_OWNERS: Final = frozenset(
    aten_operations(
        "mm bmm addmm baddbmm convolution native_layer_norm native_group_norm _fused_rms_norm "
        "_native_batch_norm_legit_no_training mean sum amax amin cat stack clone _to_copy "
        "roll flip repeat constant_pad_nd unfold _unsafe_view pixel_shuffle pixel_unshuffle"
    )
)
# Their rules also depend on indices, and on the values of masks.
_OF_MASKS: Final = frozenset(
    aten_operations(
        "add sub mul div exp where masked_fill tril triu _softmax _safe_softmax index index_select gather "
        "_scaled_dot_product_flash_attention_for_cpu"
    )
)
# Operations that differ only in owners: of windows and shifted windows, of queries and keys.
_MOST_ALIKE: Final = 8


class Effect(NamedTuple):
    """What a rule reported about an operand."""

    report: Callable[..., None]
    operand: int
    details: dict[str, Any]


class _Known(NamedTuple):
    owners: Sequence[Tensor]
    masks: Sequence[Tensor]
    outcome: Outcome
    effects: Sequence[Effect]


class Repeats:
    """The outcomes of one run."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[_Known]] = defaultdict(list)

    def alike(self, call: Call, given: Sequence[Tensor]) -> Alike | None:
        """The operations like this call; None where its outcome may depend on more than is compared."""
        looks = call.packet in _OF_MASKS
        if not (looks or call.packet in _OF_OWNERS or getattr(call.func, "is_view", False)):
            return None
        leaves, form = pytree.tree_flatten((call.args, call.kwargs))
        numbers = {id(value): at for at, value in reversed([*enumerate(given)])}
        depths = [call.run.depth(value) for value in given]
        key = (
            call.packet,
            str(form),
            tuple(("tensor", numbers[id(leaf)]) if isinstance(leaf, Tensor) else leaf for leaf in leaves),
            tuple((one.shape, one.stride(), one.dtype) for one in (*given, *call.results)),
            tuple((depths[0] < depth, depths[0] > depth) for depth in depths),
            tuple(map(call.run.is_given, given)),
            call.run.meanings(),
        )
        owners = [call.owners(value) for value in given]
        return Alike(self._known[key], owners, [_mask(one) for one in (*given, *call.results)] if looks else [])


class Alike(NamedTuple):
    """The operations like a call but for owners and masks, and its own ones."""

    known: list[_Known]
    owners: Sequence[Tensor]
    masks: Sequence[Tensor]

    def outcome(self, given: Sequence[Tensor]) -> Outcome | None:
        """That of an equal operation, which reports the same of the operands `given`; None of a new one."""
        for one in self.known:
            if all(map(_same, one.owners, self.owners)) and all(map(torch.equal, one.masks, self.masks)):
                for effect in one.effects:
                    effect.report(given[effect.operand], **effect.details)
                return one.outcome
        return None

    def note(self, outcome: Outcome, effects: Sequence[Effect]) -> None:
        """Keep the outcome of a new one, and what its rule reported."""
        del self.known[: max(0, len(self.known) - _MOST_ALIKE + 1)]
        self.known.append(_Known(self.owners, self.masks, outcome, effects))


def _mask(value: Tensor) -> Tensor:
    """What a rule may use of the values: of floats, which are 0 and which so low that they hide; nothing if none is."""
    if not value.is_floating_point():
        return value.clone()
    value = narrow(value)
    if int(value.count_nonzero()) == value.numel() and (not value.numel() or bool(value.amin() > NEGLIGIBLE)):
        return torch.empty(0, dtype=torch.int8)
    return (value == 0).view(torch.int8).add_((value <= NEGLIGIBLE).view(torch.int8), alpha=2)


def _same(one: Tensor, other: Tensor) -> bool:
    if one is other:
        return True
    spread = [[bool(step) for step in owners.stride()] for owners in (one, other)]
    return torch.equal(narrow(one), narrow(other)) if spread[0] == spread[1] else torch.equal(one, other)
