"""MACs of an operation of a backward pass; None of a contraction that no formula knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.any_model.costs import operation_costs, operation_name
from xfcost.torch_models.shared.private_torch import aten_operation
from xfcost.torch_models.tracing.backward import CORRECTED
from xfcost.torch_models.tracing.contraction_costs import is_sparse
from xfcost.torch_models.tracing.dispatch_costs import FLOPS_PER_MAC

aten: Final = torch.ops.aten


def _attention(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    """The scores once more, and the gradients of V, the weights, Q and K: q (…, N, K), k (…, M, K), v (…, M, V)."""
    return q.shape[:-1].numel() * k.shape[-2] * (3 * k.shape[-1] + 2 * v.shape[-1])


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


def backward_macs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int | None:
    """The MACs of one call; element-wise kernels have none."""
    packet, name = getattr(func, "overloadpacket", None), operation_name(func)
    if packet in _MACS:
        return _MACS[packet](*args, **kwargs)
    if packet in CORRECTED and not any(is_sparse(arg) for arg in args):
        return CORRECTED[packet](*args, **kwargs) // FLOPS_PER_MAC
    costs = operation_costs(func, args, kwargs, result)
    if costs is not None:
        return costs["macs"]
    return 0 if name.startswith("aten::") and "backward" in name and name not in _UNKNOWN else None
