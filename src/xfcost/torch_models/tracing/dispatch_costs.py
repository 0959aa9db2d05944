"""The cost of one ATen operation, from its arguments and its result as the dispatcher sees them.

torch's own formulas (`torch.utils.flop_counter`) count multiply-accumulates; they share nothing with the handles of the
traced account. The written convention (`conventions.py`) counts element-wise work. Each formula takes the call's
arguments and its result, and returns {"macs", "flops", "comparisons", "moved"}. The account names operations without a
formula.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.shared.private_torch import aten_operation, aten_operations

Costs = Counter[str]
# (positional arguments, result) -> costs
Formula = Callable[[tuple[Any, ...], Any], Costs]

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


# Contractions missing from torch's table.
CONTRACTIONS: Final[dict[Any, Callable[..., int]]] = {
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
    formula = CONTRACTIONS.get(packet)
    if formula is not None:
        return _contraction(packet, args, formula(*args, **kwargs), result)
    if packet in flop_registry:
        return _contraction(packet, args, flop_registry[packet](*args, **kwargs, out_val=result), result)
    if packet in FORMULAS:
        return FORMULAS[packet](_positional(packet, args, kwargs), result)
    return Counter() if packet in FREE or _is_view(packet) or not _makes_floats(result) else None


def _contraction(packet: Any, args: tuple[Any, ...], flops: int, result: Any) -> Costs:
    biased = packet in _WITH_ADDED or (packet is aten.convolution and args[2] is not None)
    added = result.numel() * FLOPS_PER_ELEMENT["add"] if biased else 0
    return Counter(macs=flops // FLOPS_PER_MAC, flops=flops + added)


def _positional(packet: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The form of GELU is a keyword argument."""
    return (*args, *kwargs.values()) if packet is aten.gelu else args


def _is_view(packet: Any) -> bool:
    overload = getattr(packet, packet.overloads()[0])
    return bool(overload.is_view)


def _makes_floats(result: Any) -> bool:
    parts = result if isinstance(result, tuple | list) else (result,)
    return any(is_float(part) for part in parts)


def is_float(value: Any) -> bool:
    """Is it a tensor of floats or complex numbers?"""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def first(result: Any) -> Tensor:
    """The result, or the first of several."""
    return result[0] if isinstance(result, tuple | list) else result


def floats(value: Tensor) -> int:
    """The number of its elements; 0 of whole numbers."""
    return value.numel() if is_float(value) else 0


def per_output(*works: str) -> Formula:
    """Works of the convention, per element of the (first) output."""
    each = sum(FLOPS_PER_ELEMENT[work] for work in works)
    return lambda args, result: Counter(flops=floats(first(result)) * each)


def per_input(*works: str) -> Formula:
    """Works of the convention, per element of the first input."""
    each = sum(FLOPS_PER_ELEMENT[work] for work in works)
    return lambda args, result: Counter(flops=floats(args[0]) * each)


def _multiplied(args: tuple[Any, ...], result: Any) -> Costs:
    work = "complex_multiply" if result.is_complex() else "multiply"
    return per_output(work)(args, result)


def _gelu(args: tuple[Any, ...], result: Any) -> Costs:
    return per_output("gelu_tanh" if "tanh" in args[1:] else "gelu")(args, result)


def chosen(args: tuple[Any, ...], result: Any) -> Costs:
    """One comparison per input element."""
    return Counter(comparisons=args[0].numel())


def _sorted(args: tuple[Any, ...], result: Any) -> Costs:
    """⌈log₂ n⌉ comparisons per element of lists of n."""
    x, axes = args[0], [arg for arg in args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
    return _lists(x, axes[0] if axes else -1)


def _top(args: tuple[Any, ...], result: Any) -> Costs:
    return _lists(args[0], args[2] if len(args) > 2 else -1)  # noqa: PLR2004 - x, k, axis


def _lists(x: Tensor, axis: int) -> Costs:
    return Counter(comparisons=x.numel() * ceil_log2(x.shape[axis]) if x.ndim else 0)


def _window(args: tuple[Any, ...], rank: int) -> int:
    sides = args[1]
    return prod(sides) if len(sides) == rank else sides[0] ** rank


def max_pool(rank: int) -> Formula:
    """A comparison per element of every window."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        return Counter(comparisons=first(result).numel() * _window(args, rank))

    return formula


def average_pool(rank: int) -> Formula:
    """A mean over every window."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        return Counter(flops=result.numel() * _window(args, rank) * FLOPS_PER_ELEMENT["mean"])

    return formula


def adaptive_elements(given: Tensor, output: Tensor, rank: int) -> int:
    """The elements of all windows: window i of p over n covers ⌊i·n/p⌋ to ⌈(i+1)·n/p⌉."""
    elements = prod(output.shape[:-rank])
    for n, p in zip(given.shape[-rank:], output.shape[-rank:], strict=True):
        elements *= sum(-((i + 1) * n // -p) - i * n // p for i in range(p))
    return elements


def _adaptive_average_pool(rank: int) -> Formula:
    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        return Counter(flops=adaptive_elements(args[0], result, rank) * FLOPS_PER_ELEMENT["mean"])

    return formula


def moved(args: tuple[Any, ...], result: Any) -> Costs:
    """The number of floating-point elements written."""
    return Counter(moved=floats(first(result)))


def scattered(args: tuple[Any, ...], result: Any) -> Costs:
    """Writing into a tensor moves the elements of the source."""
    floats = [arg for arg in args if is_float(arg)]
    return Counter(moved=floats[-1].numel() if floats else 0)


def scatter_added(args: tuple[Any, ...], result: Any) -> Costs:
    """The same, and an addition per element."""
    counts = scattered(args, result)
    return counts + Counter(flops=counts["moved"] * FLOPS_PER_ELEMENT["add"])


def interpolated(neighbours: int) -> Formula:
    """A weighted sum of a fixed number of input elements per output element."""
    return lambda args, result: Counter(flops=result.numel() * neighbours * FLOPS_PER_ELEMENT["interpolate"])


def _sampled(rank: int) -> Formula:
    """(x (B, C, …), points (B, …, rank), mode, …): bilinear 0 reads two neighbours per axis, bicubic 2 reads four.

    A neighbour's weight is worked out once per point, for all channels. Nearest 1 moves one element, without a weight.
    """

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        mode = args[2] if len(args) > 2 else 0  # noqa: PLR2004 - cuDNN's kernel is bilinear
        if mode == 1:
            return moved(args, result)
        neighbours = (2 if mode == 0 else 4) ** rank
        weights = args[1].numel() // rank * neighbours * FLOPS_PER_ELEMENT["sampling_weight"]
        return interpolated(neighbours)(args, result) + Counter(flops=weights)

    return formula


_BY_WORK: Final = {
    "layer_norm": "native_layer_norm",
    "group_norm": "native_group_norm",
    "batch_norm": "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training",
    "softmax": "_softmax _safe_softmax _log_softmax",
    "relu": "relu relu_",
    "hardtanh": "hardtanh hardtanh_",
    "silu": "silu silu_",
    "elu": "elu",
    "softplus": "softplus",
    "sigmoid": "sigmoid sigmoid_",
    "tanh": "tanh tanh_",
    "add": "add add_ sub sub_ rsub",
    "multiply": "div div_ pow pow_ neg neg_ reciprocal mul_",
    "exp": "exp exp_ log log_ sqrt sqrt_ rsqrt cos sin",
    "clamp": "clamp clamp_min clamp_max clamp_ clamp_min_ clamp_max_",
    "cumsum": "cumsum",
}
_REDUCED: Final = {"mean": "mean", "sum": "sum", "norm": "linalg_vector_norm", "logsumexp": "logsumexp"}
FORMULAS: Final[dict[Any, Formula]] = {
    **{packet: per_output(work) for work, names in _BY_WORK.items() for packet in aten_operations(names)},
    **{packet: per_input(work) for work, names in _REDUCED.items() for packet in aten_operations(names)},
    **dict.fromkeys(aten_operations("argmax argmin amax amin max min maximum minimum"), chosen),
    **dict.fromkeys(
        aten_operations("cat stack constant_pad_nd embedding flip gather index index_select repeat roll "), moved
    ),
    **dict.fromkeys(
        aten_operations("index_copy index_copy_ index_put index_put_ scatter scatter_ slice_scatter"), scattered
    ),
    **dict.fromkeys(aten_operations("scatter_add scatter_add_"), scatter_added),
    **dict.fromkeys(aten_operations("grid_sampler_2d _grid_sampler_2d_cpu_fallback cudnn_grid_sampler"), _sampled(2)),
    aten.grid_sampler_3d: _sampled(3),
    aten.mul: _multiplied,
    aten.gelu: _gelu,
    aten.sort: _sorted,
    aten.topk: _top,
    aten.max_pool2d_with_indices: max_pool(2),
    aten.max_pool3d_with_indices: max_pool(3),
    aten.avg_pool2d: average_pool(2),
    aten.avg_pool3d: average_pool(3),
    aten_operation("_adaptive_avg_pool2d"): _adaptive_average_pool(2),
    aten_operation("_adaptive_avg_pool3d"): _adaptive_average_pool(3),
}
# Constants, copies and masks cost nothing by convention. Views and whole numbers are free and not listed.
FREE: Final = frozenset(
    aten_operations(
        "_to_copy _unsafe_view clone copy_ fill_ zero_ empty empty_strided empty_like new_empty new_zeros new_full "
        "new_ones zeros zeros_like ones ones_like full full_like scalar_tensor eye arange linspace rand randn "
        "masked_fill masked_fill_ where tril triu lift_fresh lift_fresh_copy normal_ uniform_ bernoulli_ "
        "view_as_complex _conj"
    )
)
