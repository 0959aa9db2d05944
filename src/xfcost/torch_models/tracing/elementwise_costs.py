"""Costs of element-wise work, reductions, pooling and movement of data, as the dispatcher sees them.

The written convention (`conventions.py`) says how much each counts. A formula takes the call's positional arguments and
its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.shared.private_torch import aten_operations
from xfcost.torch_models.tracing.operation_names import (
    ADDED_WRITES,
    CHOICES,
    FREE,
    MOVES,
    NEIGHBOURS,
    PER_INPUT,
    PER_OUTPUT,
    WRITES,
)

Costs = Counter[str]
# (positional arguments, result) -> costs
Formula = Callable[[tuple[Any, ...], Any], Costs]

aten: Final = torch.ops.aten


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


def _chosen(args: tuple[Any, ...], result: Any) -> Costs:
    """One comparison per input element; of two tensors, per output element."""
    two_tensors = len(args) > 1 and isinstance(args[1], Tensor)
    return Counter(comparisons=(result if two_tensors else args[0]).numel())


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


def _max_pool(rank: int) -> Formula:
    """A comparison per element of every window."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        return Counter(comparisons=first(result).numel() * _window(args, rank))

    return formula


def _average_pool(rank: int) -> Formula:
    """A mean over every window."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        return Counter(flops=result.numel() * _window(args, rank) * FLOPS_PER_ELEMENT["mean"])

    return formula


def _adaptive_elements(given: Tensor, output: Tensor, rank: int) -> int:
    """The elements of all windows: window i of p over n covers ⌊i·n/p⌋ to ⌈(i+1)·n/p⌉."""
    elements = prod(output.shape[:-rank])
    for n, p in zip(given.shape[-rank:], output.shape[-rank:], strict=True):
        elements *= sum(-((i + 1) * n // -p) - i * n // p for i in range(p))
    return elements


def _adaptive_average_pool(rank: int) -> Formula:
    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        return Counter(flops=_adaptive_elements(args[0], result, rank) * FLOPS_PER_ELEMENT["mean"])

    return formula


def _moved(args: tuple[Any, ...], result: Any) -> Costs:
    """The number of floating-point elements written."""
    return Counter(moved=floats(first(result)))


def _scattered(args: tuple[Any, ...], result: Any) -> Costs:
    """Writing into a tensor moves the elements of the source."""
    floats = [arg for arg in args if is_float(arg)]
    return Counter(moved=floats[-1].numel() if floats else 0)


def _scatter_added(args: tuple[Any, ...], result: Any) -> Costs:
    """The same, and an addition per element."""
    counts = _scattered(args, result)
    return counts + Counter(flops=counts["moved"] * FLOPS_PER_ELEMENT["add"])


def _interpolated(neighbours: int) -> Formula:
    """A weighted sum of a fixed number of input elements per output element."""
    return lambda args, result: Counter(flops=result.numel() * neighbours * FLOPS_PER_ELEMENT["interpolate"])


def _sampled(rank: int) -> Formula:
    """(x (B, C, …), points (B, …, rank), mode, …): bilinear 0 reads two neighbours per axis, bicubic 2 reads four.

    A neighbour's weight is worked out once per point, for all channels. Nearest 1 moves one element, without a weight.
    """

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        mode = args[2] if len(args) > 2 else 0  # noqa: PLR2004 - cuDNN's kernel is bilinear
        if mode == 1:
            return _moved(args, result)
        neighbours = (2 if mode == 0 else 4) ** rank
        weights = args[1].numel() // rank * neighbours * FLOPS_PER_ELEMENT["sampling_weight"]
        return _interpolated(neighbours)(args, result) + Counter(flops=weights)

    return formula


def _index_put(args: tuple[Any, ...], result: Any) -> Costs:
    accumulates = len(args) > 3 and args[3]  # noqa: PLR2004 - x, indices, values, accumulate
    return (_scatter_added if accumulates else _scattered)((args[2],), result)


def _unpooled(args: tuple[Any, ...], result: Any) -> Costs:
    return Counter(moved=args[0].numel())


def _clamped(args: tuple[Any, ...], result: Any) -> Costs:
    """One comparison per given bound."""
    bounds = sum(bound is not None for bound in args[1:3])
    return Counter(flops=floats(result) * bounds * FLOPS_PER_ELEMENT["clamp"])


def _batch_norm(training: int) -> Formula:
    """Two FLOPs per element; a batch's own statistics cost as much as a group norm's."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        return per_output("group_norm" if args[training] is True else "batch_norm")(args, result)

    return formula


def _legit_batch_norm(args: tuple[Any, ...], result: Any) -> Costs:
    """(x, weight, bias, running mean, running variance, training, …), or without the two: a batch's own statistics."""
    own = isinstance(args[3], bool) or args[5] is True
    return per_output("group_norm" if own else "batch_norm")(args, result)


def _adaptive_max_pool(rank: int) -> Formula:
    return lambda args, result: Counter(comparisons=_adaptive_elements(args[0], first(result), rank))


def _transformed(args: tuple[Any, ...], result: Any) -> Costs:
    """(x, axes, …): a complex Fourier transform along each axis, 5·⌈log₂ n⌉ FLOPs per number."""
    return Counter(flops=args[0].numel() * _fourier(args[0], args[1]))


def _to_spectrum(args: tuple[Any, ...], result: Any) -> Costs:
    """(x, axes, …): real along the last axis, where n numbers are n/2 complex ones; complex along the others."""
    x, (*others, last) = args[0], args[1]
    return Counter(flops=x.numel() * _fourier(x, [last]) // 2 + result.numel() * _fourier(result, others))


def _from_spectrum(args: tuple[Any, ...], result: Any) -> Costs:
    x, (*others, last) = args[0], args[1]
    return Counter(flops=result.numel() * _fourier(result, [last]) // 2 + x.numel() * _fourier(x, others))


def _fourier(x: Tensor, axes: list[int]) -> int:
    return FLOPS_PER_ELEMENT["fft"] * sum(ceil_log2(x.shape[axis]) for axis in axes)


def _distances(args: tuple[Any, ...], result: Any) -> Costs:
    """`cdist` of (…, P, d) and (…, R, d), element-wise."""
    return Counter(flops=result.numel() * args[0].shape[-1] * FLOPS_PER_ELEMENT["distance"])


def _embedding_bag(args: tuple[Any, ...], result: Any) -> Costs:
    """(table (V, d), indices, offsets, _, mode, _, weights, …): a sum 0, a mean 1 or a maximum 2 per bag."""
    elements = args[1].numel() * args[0].shape[-1]
    mode = args[4] if len(args) > 4 else 0  # noqa: PLR2004
    if mode == 2:  # noqa: PLR2004
        return Counter(moved=elements, comparisons=elements)
    weighted = len(args) > 6 and args[6] is not None  # noqa: PLR2004
    work = FLOPS_PER_ELEMENT["mean" if mode else "sum"] + (FLOPS_PER_ELEMENT["multiply"] if weighted else 0)
    return Counter(moved=elements, flops=elements * work)


def _renormed(args: tuple[Any, ...], result: Any) -> Costs:
    """(table (V, d), indices, …): the length of every row that is looked up."""
    return Counter(flops=args[1].numel() * args[0].shape[-1] * FLOPS_PER_ELEMENT["norm"])


def _picked(args: tuple[Any, ...], result: Any) -> Costs:
    """(log probabilities, targets, …): one number per target, and their mean."""
    return Counter(moved=args[1].numel(), flops=args[1].numel() * FLOPS_PER_ELEMENT["mean"])


def _free(args: tuple[Any, ...], result: Any) -> Costs:
    return Counter()


def _table(works: dict[tuple[str, ...], str], formula: Callable[..., Formula]) -> dict[Any, Formula]:
    return {packet: formula(*work) for work, names in works.items() for packet in aten_operations(names)}


ELEMENTWISE: Final[dict[Any, Formula]] = {
    **dict.fromkeys(aten_operations(FREE), _free),
    **_table(PER_OUTPUT, per_output),
    **_table(PER_INPUT, per_input),
    **dict.fromkeys(aten_operations(CHOICES), _chosen),
    **dict.fromkeys(aten_operations(MOVES), _moved),
    **dict.fromkeys(aten_operations(WRITES), _scattered),
    **dict.fromkeys(aten_operations(ADDED_WRITES), _scatter_added),
    **dict.fromkeys(aten_operations("index_put index_put_ _index_put_impl_"), _index_put),
    **dict.fromkeys(aten_operations("max_unpool2d max_unpool3d"), _unpooled),
    **dict.fromkeys(aten_operations("mul mul_ multiply"), _multiplied),
    **dict.fromkeys(aten_operations("gelu gelu_"), _gelu),
    **dict.fromkeys(aten_operations("clamp clamp_"), _clamped),
    **dict.fromkeys(aten_operations("native_batch_norm cudnn_batch_norm"), _batch_norm(5)),
    **dict.fromkeys(aten_operations("_native_batch_norm_legit"), _legit_batch_norm),
    **dict.fromkeys(aten_operations("sort"), _sorted),
    **dict.fromkeys(aten_operations("topk"), _top),
    **{
        packet: _max_pool(n) for n in (1, 2, 3) for packet in aten_operations(f"max_pool{n}d max_pool{n}d_with_indices")
    },
    **{packet: _average_pool(n) for n in (1, 2, 3) for packet in aten_operations(f"avg_pool{n}d")},
    **{packet: _adaptive_average_pool(n) for n in (2, 3) for packet in aten_operations(f"_adaptive_avg_pool{n}d")},
    **{packet: _adaptive_max_pool(n) for n in (2, 3) for packet in aten_operations(f"adaptive_max_pool{n}d")},
    **{packet: _interpolated(n) for n, name in NEIGHBOURS.items() for packet in aten_operations(f"upsample_{name}")},
    **dict.fromkeys(aten_operations("grid_sampler_2d _grid_sampler_2d_cpu_fallback cudnn_grid_sampler"), _sampled(2)),
    **dict.fromkeys(aten_operations("grid_sampler_3d"), _sampled(3)),
    **dict.fromkeys(aten_operations("_embedding_bag _embedding_bag_forward_only"), _embedding_bag),
    **dict.fromkeys(aten_operations("embedding_renorm_"), _renormed),
    **dict.fromkeys(aten_operations("nll_loss_forward nll_loss2d_forward"), _picked),
    **dict.fromkeys(aten_operations("_fft_c2c"), _transformed),
    **dict.fromkeys(aten_operations("_fft_r2c"), _to_spectrum),
    **dict.fromkeys(aten_operations("_fft_c2r"), _from_spectrum),
    **dict.fromkeys(aten_operations("_cdist_forward"), _distances),
}
