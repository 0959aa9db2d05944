"""The costs of a call, as torch's dispatcher sees it, forward and backward.

torch's own formulas (`torch.utils.flop_counter`) count the multiply-accumulates of an operation that they know: a
second opinion next to the traced account. All else is counted by the table that both read. Each formula takes
the call's arguments and its result, and returns {"macs", "flops", "comparisons", "moved"}. A user's count comes first;
None stands where no table knows the operation, and the account names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import repeat
from math import prod
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry

from xfcost.formulas.contractions import Costs, Formula, contraction
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.operation_costs import COSTS, FREE, is_float
from xfcost.ledger.units import FLOPS_PER_MAC
from xfcost.torch_models.running.on_meta import attention_backward_macs
from xfcost.torch_models.running.registry import registered_costs
from xfcost.torch_models.running.sparse_costs import (
    QUANTISED,
    SPARSE_PRODUCTS,
    is_sparse,
    sparse_costs,
    stored_unknown,
)
from xfcost.torch_models.shared.private_torch import aten_operation, can_decompose, disable_current_modes, schema_of

aten: Final = torch.ops.aten
_COSTS: Final = COSTS | QUANTISED

# torch's formulas leave out what is added: the place of the argument.
_ADDED: Final = {
    "aten::addmm": 0, "aten::baddbmm": 0, "aten::convolution": 2, "aten::convolution_overrideable": 2,
    "aten::_scaled_mm": 4,
}  # fmt: skip
# Namespaces whose operations without a float result cost nothing by convention; another's are named.
_OF_TORCH: Final = frozenset(("aten", "prim", "prims", "profiler", "c10d_functional", "_c10d_functional"))


def operation_costs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs | None:
    """The costs of one call; None where no table knows the operation."""
    name, packet = operation_name(func), getattr(func, "overloadpacket", None)
    own = registered_costs(name, args, kwargs, result)
    if own is None and any(map(is_nested, args)):
        own = _by_row(lambda own, row: operation_costs(func, own, kwargs, row), args, result)
    if own is not None:
        return own
    if packet is None:  # a higher-order operator: flex attention, a loop, a branch
        return contraction(None, _by_torch(func, args, kwargs, result)) if func in flop_registry else None
    if any(map(is_sparse, args)) and (name in SPARSE_PRODUCTS or (name not in FREE and any(map(stored_unknown, args)))):
        with disable_current_modes():  # numbers of stored elements are operations too
            return sparse_costs(name, args, result)
    if packet in flop_registry:
        place = _ADDED.get(name, len(args))
        added = result.numel() * FLOPS_PER_ELEMENT["add"] if place < len(args) and args[place] is not None else 0
        return contraction(result, _by_torch(packet, args, kwargs, result), added)
    if name in _COSTS:
        options = (value for value in kwargs.values() if not isinstance(value, Tensor))
        return _COSTS[name]((*args, *options), result)
    is_free = name in FREE or (func.namespace in _OF_TORCH and (_is_view(packet) or not _makes_floats(result)))
    return Counter() if is_free else None


def is_nested(value: Any) -> bool:
    """Is it a tensor whose rows have shapes of their own?"""
    return isinstance(value, Tensor) and value.is_nested


def _by_row(formula: Formula, args: tuple[Any, ...], result: Any) -> Costs | None:
    """The sum over the rows of nested tensors, each as a batch of one."""
    total: Costs = Counter()
    made = result[0] if isinstance(result, tuple) else result
    with disable_current_modes():
        parts = ([row[None] for row in one.unbind()] if is_nested(one) else repeat(one) for one in (*args, made))
        for *own, row in zip(*parts, strict=False):
            costs = formula(tuple(own), row)
            if costs is None:
                return None
            total.update(costs)
    return total


def _by_torch(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """MACs."""
    return int(flop_registry[packet](*args, **kwargs, out_val=result)) // FLOPS_PER_MAC


@cache
def _is_view(packet: Any) -> bool:
    return bool(getattr(packet, packet.overloads()[0]).is_view)


def _makes_floats(result: Any) -> bool:
    return any(map(is_float, result if isinstance(result, tuple | list) else (result,)))


@cache
def operation_name(func: Any) -> str:
    """`aten::addmm`, `mylib::scan`; a higher-order operator's own name."""
    packet = getattr(func, "overloadpacket", None)
    return str(func) if packet is None else str(func.name()).partition(".")[0]


_VIEWS: Final = frozenset(("aten::_unsafe_view", "aten::lift_fresh", "prim::device"))
_EMPTY: Final = frozenset((
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
))  # fmt: skip


@cache
def is_free(func: Any) -> bool:
    """Does an ATen operation only make another view? A result shares an argument's memory, unwritten."""
    shares = any(one.alias_info is not None and not one.alias_info.is_write for one in schema_of(func).returns)
    return shares or operation_name(func) in _VIEWS


def does_work(func: Any) -> bool:
    """Does the kernel of an ATen operation do more than make a view or take memory?"""
    is_operation = getattr(func, "overloadpacket", None) is not None
    return not is_operation or not (is_free(func) or operation_name(func) in _EMPTY)


# Torch also has a decomposition of these, for compilers; on every device they are one kernel.
_KERNELS: Final = frozenset(
    f"aten.{name}{axes}d.default" for name in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)
)


@cache
def is_composite(func: Any) -> bool:
    """Is it made only of other operations? Under `torch.inference_mode` the dispatcher sees it, and not its parts."""
    return str(func) not in _KERNELS and can_decompose(func)


# ── functions that reach the dispatcher as several operations ──

Whole = Callable[[tuple[Any, ...], dict[str, Any], Any], Costs]


def _whole(operation: str, *names: str) -> Whole:
    """By the table's formula, from arguments of these names."""

    def costs(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs:
        given = (*args, *(kwargs.get(name) for name in names[len(args) :]))
        formula = COSTS[f"aten::{operation}"]
        return (_by_row(formula, given, result) if any(map(is_nested, given)) else formula(given, result)) or Counter()

    return costs


attention_costs: Final = _whole(
    "scaled_dot_product_attention", "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"
)
# Functions that count as one operation, without contractions; parts that no table knows are named.
OUTER: Final[dict[Any, Whole]] = {
    F.rms_norm: _whole("rms_norm"),
    torch.rms_norm: _whole("rms_norm"),
    torch.fft.rfft: _whole("fft_rfft", "input", "n", "dim"),
    torch.fft.irfft: _whole("fft_irfft", "input", "n", "dim"),
    torch.repeat_interleave: _whole("repeat_interleave"),
    Tensor.repeat_interleave: _whole("repeat_interleave"),
}
# Functions that count as one operation, contractions included; their parts may be unknown.
COMPLETE: Final[dict[Any, Whole]] = {
    **{getattr(torch, name): _whole(name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **dict.fromkeys((F.selu, torch.selu, torch.selu_), _whole("selu")),
    **dict.fromkeys((torch.cosine_similarity, F.cosine_similarity), _whole("cosine_similarity", "x1", "x2")),
    **dict.fromkeys((torch.pairwise_distance, F.pairwise_distance), _whole("pairwise_distance", "x1", "x2")),
    # dropout costs nothing by convention, in training too
    **dict.fromkeys(
        (torch.dropout, torch.dropout_, torch.feature_dropout, torch.feature_dropout_, F.dropout, F.dropout1d,
         F.dropout2d, F.dropout3d), lambda args, kwargs, result: Counter(),
    ),
    **dict.fromkeys(
        (torch.alpha_dropout, torch.alpha_dropout_, torch.feature_alpha_dropout),
        _whole("alpha_dropout", "input", "p", "train"),
    ),
    **dict.fromkeys((F.alpha_dropout, F.feature_alpha_dropout), _whole("alpha_dropout", "input", "p", "training")),
}  # fmt: skip


# ── backward passes ──


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *others: Any, **_: Any) -> int:
    """The forward's MACs for each gradient that is needed. torch's own formula ignores groups."""
    transposed, needed = others[4], others[7]
    positions = x if transposed else gradient
    return positions.shape[0] * prod(positions.shape[2:]) * prod(weight.shape) * sum(needed[:2])


def _recurrent(x: Tensor, *weights: Any, **_: Any) -> int:
    """A layer of oneDNN: each token meets the maps of the input and of the state, for each gradient of the two."""
    return 2 * x.shape[:-1].numel() * sum(one.numel() for one in weights[:2])


# Formulas that torch's table lacks or has wrong.
_MACS: Final[dict[Any, Callable[..., int]]] = {
    aten.convolution_backward: _convolution_backward,
    aten_operation("_scaled_dot_product_flash_attention_for_cpu_backward"): (
        lambda gradient, q, k, v, *_, **__: attention_backward_macs(q, k, v)
    ),
    aten.mkldnn_rnn_layer_backward: _recurrent,
    # the gradients of x and of the weight, as far as they are needed
    aten.linear_backward: lambda x, gradient, weight, needed: gradient.numel() * weight.shape[-1] * sum(needed[:2]),
    aten_operation("_cdist_backward"): lambda *_: 0,  # distances are differentiated element by element
}
# Backward kernels with contractions inside, without a formula. Other backward kernels are element-wise.
_UNKNOWN: Final = frozenset((
    "aten::_convolution_double_backward", "aten::_cudnn_rnn_backward", "aten::_slow_conv2d_backward",
    "aten::_sparse_mm_reduce_impl_backward", "aten::conv_tbc_backward", "aten::lstm_mps_backward",
    "aten::matmul_backward", "aten::miopen_rnn_backward", "aten::mkldnn_linear_backward",
    "aten::mkldnn_linear_backward_input", "aten::mkldnn_linear_backward_weights", "aten::mps_convolution_backward",
    "aten::mps_convolution_transpose_backward", "aten::_scaled_dot_product_fused_attention_overrideable_backward",
))  # fmt: skip


def backward_costs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs | None:
    """The MACs of one call; element-wise kernels have none."""
    packet, name = getattr(func, "overloadpacket", None), operation_name(func)
    if packet in _MACS:
        return Counter(macs=_MACS[packet](*args, **kwargs))
    costs = operation_costs(func, args, kwargs, result)
    if costs is not None:
        return Counter(macs=costs["macs"])
    of_complex = name in _COSTS and name not in SPARSE_PRODUCTS
    is_elementwise = name.startswith("aten::") and "backward" in name and name not in _UNKNOWN
    return Counter() if of_complex or is_elementwise else None
