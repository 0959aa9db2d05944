"""The cost of one ATen operation, from its arguments and its result as the dispatcher sees them.

torch's own formulas (`torch.utils.flop_counter`) count multiply-accumulates; they share nothing with the handles of the
traced account. The written convention (`conventions.py`) counts element-wise work. Each formula takes the call's
arguments and its result, and returns {"macs", "flops", "comparisons", "moved"}. The account names operations without a
formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.shared.private_torch import aten_operation
from xfcost.torch_models.tracing.contraction_costs import (
    CONTRACTIONS,
    SPARSE_PRODUCTS,
    complex_corrected,
    is_sparse,
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


def attention_on_cpu_flops(q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> int:
    """FLOPs of QKᵀ and AV: q (…, N, K), k (…, M, K), v (…, M, V)."""
    return FLOPS_PER_MAC * q.shape[:-1].numel() * k.shape[-2] * (k.shape[-1] + v.shape[-1])


# Contractions missing from torch's table: their FLOPs, without what is added.
FLOPS: Final[dict[Any, Callable[..., int]]] = {
    aten.mv: matrix_vector_flops,
    aten.dot: matrix_vector_flops,
    aten.vdot: matrix_vector_flops,
    aten.addmv: added_matrix_vector_flops,
    aten_operation("_scaled_dot_product_flash_attention_for_cpu"): attention_on_cpu_flops,
}
# They add their first argument to the product, element-wise; a convolution adds its third.
_WITH_ADDED: Final = frozenset((aten.addmm, aten.baddbmm, aten.addmv))


def costs_of(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Costs | None:
    """The cost of the operation `packet` with these arguments, or None without a formula."""
    if packet in SPARSE_PRODUCTS and any(is_sparse(arg) for arg in args):
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
