"""The costs of a call, as torch's dispatcher sees it: one table per ATen operation, forward and backward.

torch's own formulas (`torch.utils.flop_counter`) count multiply-accumulates; they share nothing with the handles of the
traced account. The written convention (`conventions.py`) counts element-wise work. Each formula takes the call's
arguments and its result, and returns {"macs", "flops", "comparisons", "moved"}. A user's count comes first; None stands
where no table knows the operation, and the account names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import flop_registry

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.running.on_meta import attention_backward_macs
from xfcost.torch_models.running.registry import registered_costs
from xfcost.torch_models.shared.private_torch import aten_operation, can_decompose, disable_current_modes
from xfcost.torch_models.tracing.contraction_costs import (
    CONTRACTIONS,
    SPARSE_PRODUCTS,
    complex_corrected,
    is_sparse,
    recurrent,
    sparse_costs,
)
from xfcost.torch_models.tracing.elementwise_costs import ELEMENTWISE, Costs, is_float

aten: Final = torch.ops.aten
FLOPS_PER_MAC: Final = 2


def matrix_vector_flops(matrix: Tensor, *_: Any, **__: Any) -> int:
    """FLOPs of (n, k) · (k,), and of (k,) · (k,): one MAC per element of the first."""
    return FLOPS_PER_MAC * matrix.numel()


def added_matrix_vector_flops(added: Tensor, matrix: Tensor, *_: Any, **__: Any) -> int:
    """FLOPs of added + (n, k) · (k,), without the sum."""
    return FLOPS_PER_MAC * matrix.numel()


# Contractions missing from torch's table: their FLOPs, without what is added.
FLOPS: Final[dict[Any, Callable[..., int]]] = {
    aten.mv: matrix_vector_flops,
    aten.dot: matrix_vector_flops,
    aten.vdot: matrix_vector_flops,
    aten.addmv: added_matrix_vector_flops,
}
# They add their first argument to the product, element-wise; a convolution adds its third.
_WITH_ADDED: Final = frozenset((aten.addmm, aten.baddbmm, aten.addmv))


def costs_of(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs | None:
    """The cost of the operation `packet` with these arguments, or None without a formula."""
    if packet in SPARSE_PRODUCTS and any(is_sparse(arg) for arg in args):
        with disable_current_modes():  # numbers of stored elements are operations too
            return sparse_costs(packet, args, result)
    if packet in CONTRACTIONS:
        return CONTRACTIONS[packet](args, result)
    if packet in FLOPS:
        return _contraction(packet, args, FLOPS[packet](*args, **kwargs), result)
    if packet in flop_registry:
        return _contraction(packet, args, flop_registry[packet](*args, **kwargs, out_val=result), result)
    if packet in ELEMENTWISE:
        return ELEMENTWISE[packet](_positional(packet, args, kwargs), result)
    return Counter() if _is_view(packet) or not _makes_floats(result) else None


def _contraction(packet: Any, args: tuple[Any, ...], flops: int, result: Any) -> Costs:
    biased = packet in _WITH_ADDED or (packet is aten.convolution and args[2] is not None)
    added = result.numel() * FLOPS_PER_ELEMENT["add"] if biased else 0
    return complex_corrected(Counter(macs=flops // FLOPS_PER_MAC, flops=flops + added), result)


def _positional(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The form of GELU is a keyword argument."""
    return (*args, *kwargs.values()) if packet in {aten.gelu, aten.gelu_} else args


@cache
def _is_view(packet: Any) -> bool:
    overload = getattr(packet, packet.overloads()[0])
    return bool(overload.is_view)


def _makes_floats(result: Any) -> bool:
    parts = result if isinstance(result, tuple | list) else (result,)
    return any(is_float(part) for part in parts)


# Namespaces whose operations without a float result cost nothing by convention; another's are named.
_OF_TORCH: Final = frozenset(("aten", "prim", "prims", "profiler", "c10d_functional", "_c10d_functional"))


@cache
def operation_name(func: Any) -> str:
    """`aten::addmm`, `mylib::scan`; a higher-order operator's own name."""
    packet = getattr(func, "overloadpacket", None)
    return str(func) if packet is None else str(func.name()).partition(".")[0]


# Neither views nor work, though torch does not call them views.
_NO_WORK: Final = frozenset((
    "aten::_unsafe_view", "aten::_reshape_alias", "aten::empty", "aten::empty_like", "aten::empty_strided",
    "aten::lift_fresh", "aten::new_empty", "aten::new_empty_strided", "prim::device",
))  # fmt: skip


@cache
def does_work(func: Any) -> bool:
    """Does the kernel of an ATen operation do more than make a view or take memory?"""
    return not (getattr(func, "is_view", False) or operation_name(func) in _NO_WORK)


@cache
def is_composite(func: Any) -> bool:
    """Is it made of other operations alone? Under `torch.inference_mode` the dispatcher sees it, and not its parts."""
    return can_decompose(func)


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


# ── functions that reach the dispatcher as several operations ──

Whole = Callable[[tuple[Any, ...], dict[str, Any], Any], Costs]


def _rms_norm_work(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    return Counter(flops=result.numel() * FLOPS_PER_ELEMENT["rms_norm"])


def _to_spectrum_work(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    """(x, n, axis): n real numbers along an axis to their spectrum, zero-padding of x to n included."""
    x, (n, axis) = args[0], _length_and_axis(args, kwargs)
    n = x.shape[axis] if n is None else n
    return Counter(flops=x.numel() // x.shape[axis] * _fourier_flops(n))


def _from_spectrum_work(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    """(spectrum, n, axis): the spectrum back to n real numbers."""
    axis = _length_and_axis(args, kwargs)[1]
    return Counter(flops=result.numel() // result.shape[axis] * _fourier_flops(result.shape[axis]))


def _length_and_axis(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int]:
    given = dict(zip(("n", "dim"), args[1:3], strict=False)) | kwargs
    return given.get("n"), given.get("dim", -1)


def _fourier_flops(n: int) -> int:
    """n real numbers cost as much as n/2 complex ones: 5·n/2·⌈log₂ n⌉ FLOPs."""
    return FLOPS_PER_ELEMENT["fft"] * n * ceil_log2(n) // 2


def _repeated(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Costs:
    return Counter(moved=result.numel() if result.is_floating_point() else 0)


# Functions that count as one operation, without contractions; parts that no table knows are named.
OUTER: Final[dict[Any, Whole]] = {
    F.rms_norm: _rms_norm_work,
    torch.rms_norm: _rms_norm_work,
    torch.fft.rfft: _to_spectrum_work,
    torch.fft.irfft: _from_spectrum_work,
    torch.repeat_interleave: _repeated,
    Tensor.repeat_interleave: _repeated,
}


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


# Functions that count as one operation, contractions included; their parts may be unknown.
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


# ── backward passes ──


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *others: Any, **_: Any) -> int:
    """The forward's FLOPs for each gradient that is needed. torch's own formula ignores groups."""
    transposed, needed = others[4], others[7]
    positions = x if transposed else gradient
    return FLOPS_PER_MAC * positions.shape[0] * prod(positions.shape[2:]) * prod(weight.shape) * sum(needed[:2])


# Formulas that torch's table lacks or has wrong.
_CORRECTED: Final[dict[Any, Callable[..., int]]] = FLOPS | {torch.ops.aten.convolution_backward: _convolution_backward}


def _attention(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    return attention_backward_macs(q, k, v)


def _recurrent(x: Tensor, *weights: Any, **_: Any) -> int:
    """A layer of oneDNN: each token meets the maps of the input and of the state, for each gradient of the two."""
    return 2 * x.shape[:-1].numel() * sum(one.numel() for one in weights[:2])


def _linear(x: Tensor, gradient: Tensor, weight: Tensor, needed: Any) -> int:
    """The gradients of x and of the weight, as far as they are needed."""
    return gradient.numel() * weight.shape[-1] * sum(needed[:2])


def _pairs(gradient: Tensor, left: Tensor, right: Tensor, *_: Any) -> int:
    """No contraction: distances are differentiated element by element."""
    return 0


_MACS: Final[dict[Any, Callable[..., int]]] = {
    aten_operation("_scaled_dot_product_flash_attention_for_cpu_backward"): _attention,
    aten.mkldnn_rnn_layer_backward: _recurrent,
    aten.linear_backward: _linear,
    aten_operation("_cdist_backward"): _pairs,
}
# Backward kernels with contractions inside that no formula knows. Other backward kernels are element-wise.
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
    if packet in _CORRECTED and not any(is_sparse(arg) for arg in args):
        return Counter(macs=_CORRECTED[packet](*args, **kwargs) // FLOPS_PER_MAC)
    costs = operation_costs(func, args, kwargs, result)
    if costs is not None:
        return Counter(macs=costs["macs"])
    is_elementwise = name.startswith("aten::") and "backward" in name and name not in _UNKNOWN
    return Counter() if is_elementwise else None
