"""The costs of whatever the dispatcher sees: a user's count, then the tables; None where none of them knows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.any_model.registry import registered_costs
from xfcost.torch_models.shared.private_torch import can_decompose
from xfcost.torch_models.tracing.contraction_costs import CONTRACTIONS, recurrent
from xfcost.torch_models.tracing.dispatch_costs import costs_of
from xfcost.torch_models.tracing.dispatch_functions import WHOLE
from xfcost.torch_models.tracing.elementwise_costs import Costs

# Namespaces whose operations without a float result cost nothing by convention; another's are named.
_OF_TORCH: Final = frozenset(("aten", "prim", "prims", "profiler", "c10d_functional", "_c10d_functional"))


def operation_name(func: Any) -> str:
    """`aten::addmm`, `mylib::scan`; a higher-order operator's own name."""
    packet = getattr(func, "overloadpacket", None)
    return str(func) if packet is None else str(func.name()).partition(".")[0]


# Neither views nor work, though torch does not call them views.
_NO_WORK: Final = frozenset((
    "aten::_unsafe_view", "aten::_reshape_alias", "aten::empty", "aten::empty_like", "aten::empty_strided",
    "aten::lift_fresh", "aten::new_empty", "aten::new_empty_strided", "prim::device",
))  # fmt: skip


def does_work(func: Any) -> bool:
    """Does the kernel of an ATen operation do more than make a view or take memory?"""
    return not (getattr(func, "is_view", False) or operation_name(func) in _NO_WORK)


_COMPOSITE: dict[Any, bool] = {}


def is_composite(func: Any) -> bool:
    """Is it made of other operations alone? Under `torch.inference_mode` the dispatcher sees it, and not its parts."""
    if func not in _COMPOSITE:
        _COMPOSITE[func] = can_decompose(func)
    return _COMPOSITE[func]


def operation_costs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs | None:
    """The costs of one call; None where no table knows the operation."""
    name = operation_name(func)
    own = registered_costs(name, args, kwargs, result)
    if own is not None:
        return own
    packet = getattr(func, "overloadpacket", None)
    if packet is None:  # a higher-order operator: flex attention, a loop, a branch
        return _of_higher_order(func, args, kwargs, result)
    if func.namespace not in _OF_TORCH and packet not in CONTRACTIONS:
        return None
    return costs_of(packet, args, kwargs, result)


def _of_higher_order(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs | None:
    if func not in flop_registry:
        return None
    flops = int(flop_registry[func](*args, **kwargs, out_val=result))
    return Counter(macs=flops // 2, flops=flops)


Whole = Callable[[tuple[Any, ...], dict[str, Any], Any], Costs]


def _nothing(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs:
    """Dropout costs nothing by convention, in training too."""
    return Counter()


def _scaled_and_shifted(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs:
    """In training, alpha dropout scales and shifts what remains."""
    training = args[2] if len(args) > 2 else kwargs.get("train", kwargs.get("training", False))  # noqa: PLR2004
    return Counter(flops=result.numel() * FLOPS_PER_ELEMENT["affine"] if training else 0)


def _each(work: str) -> Whole:
    """`work` per element of the output."""
    return lambda args, kwargs, result: Counter(flops=result.numel() * FLOPS_PER_ELEMENT[work])


def _each_pair(work: str) -> Whole:
    """`work` per pair of elements of two tensors, broadcast."""

    def costs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs:
        left, right = (*args, *kwargs.values())[:2]
        return Counter(flops=torch.broadcast_shapes(left.shape, right.shape).numel() * FLOPS_PER_ELEMENT[work])

    return costs


# Functions that count as one operation; their contractions are counted as they run.
OUTER: Final[dict[Any, Whole]] = dict(WHOLE)
# Functions that count as one operation, contractions included: nothing inside counts.
COMPLETE: Final[dict[Any, Whole]] = {
    torch.lstm: recurrent(4, FLOPS_PER_ELEMENT["lstm"]),
    torch.gru: recurrent(3, FLOPS_PER_ELEMENT["gru"]),
    torch.rnn_tanh: recurrent(1, FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT["tanh"]),
    torch.rnn_relu: recurrent(1, FLOPS_PER_ELEMENT["add"] + FLOPS_PER_ELEMENT["relu"]),
    **dict.fromkeys((F.selu, torch.selu, torch.selu_), _each("selu")),
    **dict.fromkeys((torch.cosine_similarity, F.cosine_similarity), _each_pair("cosine_similarity")),
    **dict.fromkeys((torch.pairwise_distance, F.pairwise_distance), _each_pair("distance")),
    **dict.fromkeys((torch.dropout, torch.dropout_, torch.feature_dropout, torch.feature_dropout_), _nothing),
    **dict.fromkeys((F.dropout, F.dropout1d, F.dropout2d, F.dropout3d), _nothing),
    **dict.fromkeys((torch.alpha_dropout, torch.alpha_dropout_, torch.feature_alpha_dropout), _scaled_and_shifted),
    **dict.fromkeys((F.alpha_dropout, F.feature_alpha_dropout), _scaled_and_shifted),
}


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors among arguments, also in lists of them."""
    found = []
    for one in value:
        if isinstance(one, Tensor):
            found.append(one)
        elif isinstance(one, tuple | list):
            found += tensors_in(one)
    return found
