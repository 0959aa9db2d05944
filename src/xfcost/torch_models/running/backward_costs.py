"""MACs of an operation of a backward pass; None of a contraction that no formula knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.running.costs import operation_costs, operation_name
from xfcost.torch_models.running.on_meta import attention_backward_macs
from xfcost.torch_models.shared.private_torch import aten_operation
from xfcost.torch_models.tracing.contraction_costs import is_sparse
from xfcost.torch_models.tracing.dispatch_costs import FLOPS, FLOPS_PER_MAC
from xfcost.torch_models.tracing.elementwise_costs import Costs

aten: Final = torch.ops.aten


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
