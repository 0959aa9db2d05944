"""Costs of ATen operations that the models of specs don't run: element-wise work, reductions, pooling, movement.

The written convention (`conventions.py`) says how much each counts; the traced account's handles read the same table.
A formula takes the call's positional arguments and its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.torch_models.shared.private_torch import aten_operation, aten_operations
from xfcost.torch_models.tracing.dispatch_costs import (
    Costs,
    Formula,
    adaptive_elements,
    average_pool,
    chosen,
    first,
    floats,
    interpolated,
    max_pool,
    moved,
    per_input,
    per_output,
    scatter_added,
    scattered,
)

aten: Final = torch.ops.aten


def _index_put(args: tuple[Any, ...], result: Any) -> Costs:
    accumulates = len(args) > 3 and args[3]  # noqa: PLR2004 - x, indices, values, accumulate
    return (scatter_added if accumulates else scattered)((args[2],), result)


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
    return lambda args, result: Counter(comparisons=adaptive_elements(args[0], first(result), rank))


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


_BY_OUTPUT: Final[dict[tuple[str, ...], str]] = {
    ("leaky_relu",): "leaky_relu leaky_relu_ _prelu_kernel rrelu_with_noise",
    ("hardtanh",): "hardtanh hardtanh_",
    ("hardsigmoid",): "hardsigmoid hardsigmoid_",
    ("hardswish",): "hardswish hardswish_",
    ("relu",): "threshold threshold_ hardshrink",
    ("shrink",): "softshrink",
    ("elu",): "elu_",
    ("selu",): "selu selu_",
    ("celu",): "celu celu_",
    ("mish",): "mish mish_",
    ("glu",): "glu",
    ("softplus",): "log_sigmoid_forward",
    ("gelu",): "gelu_",
    ("multiply",): "square square_ reciprocal_ remainder fmod floor_divide",
    ("exp",): """exp2 expm1 log2 log10 log1p rsqrt_ cos_ sin_ tan erf erfc erfinv acos asin atan atan2 acosh asinh atanh
    cosh sinh lgamma digamma""",
    ("abs",): "abs abs_ sign sign_ sgn floor floor_ ceil ceil_ round round_ trunc trunc_ frac",
    ("cumsum",): "cumsum_ cumprod",
    ("add", "multiply"): "addcmul addcmul_ addcdiv addcdiv_ dequantize addr",
    ("add", "multiply", "add"): "lerp lerp_",
    ("multiply", "abs"): "quantize_per_tensor quantize_per_channel",
    ("exp", "multiply"): "xlogy",
    ("norm", "multiply"): "_weight_norm_interface",
    ("rms_norm",): "_fused_rms_norm",
    ("group_norm",): "_batch_norm_with_update",
    ("batch_norm",): "_batch_norm_no_update",
}
_BY_INPUT: Final[dict[tuple[str, ...], str]] = {
    ("multiply",): "prod",
    ("sum",): "nansum trace",
    ("mean",): "nanmean",
    ("variance",): "var std var_mean std_mean",
    ("norm",): "norm",
    ("add", "multiply", "mean"): "mse_loss",
    ("add", "multiply", "softplus", "add", "mean"): "binary_cross_entropy_with_logits",
    ("exp", "exp", "multiply", "multiply", "add", "add", "mean"): "binary_cross_entropy",
    ("add", "abs", "multiply", "multiply", "add", "mean"): "smooth_l1_loss huber_loss",
}
_MOVES: Final = """
reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d masked_select
take im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle diag_embed upsample_nearest1d
upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
_pack_padded_sequence _unsafe_index _unsafe_masked_index rot90
"""
_WRITES: Final = "masked_scatter masked_scatter_ select_scatter diagonal_scatter"
_SUMS: Final = "index_add index_add_ col2im scatter_reduce scatter_reduce_ index_reduce index_reduce_"
_NEIGHBOURS: Final = {2: "linear1d", 4: "bilinear2d", 8: "trilinear3d", 16: "bicubic2d"}
_FREE: Final = """
native_dropout bernoulli random_ exponential_ polar complex conj_physical nan_to_num nan_to_num_ randn_like rand_like
randperm logspace tril_ triu_ tril_indices resize_ set_ to_dense _to_dense _to_sparse _to_sparse_csr _to_sparse_csc
_to_sparse_bsr _to_sparse_bsc _sparse_coo_tensor_with_dims_and_tensors sparse_coo_tensor
_sparse_compressed_tensor_unsafe _coalesce _coalesced_ diagonal_copy diag index_fill index_fill_ log_normal_
geometric_ cauchy_ new_empty_strided isfinite _nested_from_padded where_ _reshape_copy detach_ detach alias
_efficientzerotensor empty_permuted int_repr q_scale q_zero_point q_per_channel_scales _empty_affine_quantized
quantize_per_tensor_dynamic_ squeeze_ unsqueeze_ unsafe_split unsafe_split_with_sizes unsafe_chunk split_copy
transpose_ t_ as_strided_ _pin_memory pin_memory split_with_sizes_copy view_as_real_copy _fw_primal _nested_view
"""


def _free(args: tuple[Any, ...], result: Any) -> Costs:
    return Counter()


def _table(works: dict[tuple[str, ...], str], formula: Callable[..., Formula]) -> dict[Any, Formula]:
    return {packet: formula(*work) for work, names in works.items() for packet in aten_operations(names)}


ELEMENTWISE: Final[dict[Any, Formula]] = {
    **_table(_BY_OUTPUT, per_output),
    **_table(_BY_INPUT, per_input),
    **dict.fromkeys(aten_operations(_MOVES), moved),
    **dict.fromkeys(aten_operations(_WRITES), scattered),
    **dict.fromkeys(aten_operations(_SUMS), scatter_added),
    **dict.fromkeys(aten_operations("index_put index_put_ _index_put_impl_"), _index_put),
    **dict.fromkeys(aten_operations("max_unpool2d max_unpool3d"), _unpooled),
    **dict.fromkeys(
        aten_operations("aminmax fmax fmin cummax cummin median nanmedian mode histc _cummax_helper"), chosen
    ),
    **dict.fromkeys(aten_operations("clamp clamp_"), _clamped),
    **dict.fromkeys(aten_operations("_embedding_bag _embedding_bag_forward_only"), _embedding_bag),
    **dict.fromkeys(aten_operations("nll_loss_forward nll_loss2d_forward"), _picked),
    **{packet: interpolated(n) for n, name in _NEIGHBOURS.items() for packet in aten_operations(f"upsample_{name}")},
    **{packet: max_pool(rank) for rank in (1, 2, 3) for packet in aten_operations(f"max_pool{rank}d")},
    aten.adaptive_max_pool2d: _adaptive_max_pool(2),
    aten.adaptive_max_pool3d: _adaptive_max_pool(3),
    aten.avg_pool1d: average_pool(1),
    aten.embedding_renorm_: _renormed,
    aten.native_batch_norm: _batch_norm(5),
    aten.cudnn_batch_norm: _batch_norm(5),
    aten_operation("_native_batch_norm_legit"): _legit_batch_norm,
    aten_operation("_fft_c2c"): _transformed,
    aten_operation("_fft_r2c"): _to_spectrum,
    aten_operation("_fft_c2r"): _from_spectrum,
    aten_operation("_cdist_forward"): _distances,
    **dict.fromkeys(aten_operations(_FREE), _free),
}
