"""What every ATen operation costs, in one table: read by the handles of a trace and for each call of a dispatcher.

The written convention (`conventions.py`) says how much each counts. A formula takes the positional arguments of a call
and its result, and returns {"macs", "flops", "comparisons", "moved"}. Operations that are neither in `COSTS` nor in
`FREE` are not counted, and every account names them. A composite operation has a name in a graph (`softmax`) and
another where the dispatcher sees it (`_softmax`); both names stand here, in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from math import prod
from typing import Any, Final

from xfcost.formulas.arithmetic import ceil_log2, common_divisor
from xfcost.formulas.contractions import COMPLEX_MULTIPLY, CONTRACTIONS, LOOPS, Cost, Costs, Formula, first, is_tensor
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.ledger.units import Number

# Works of the convention, per element of the (first) output -> names.
PER_OUTPUT: Final[dict[tuple[str, ...], str]] = {
    ("layer_norm",): "layer_norm native_layer_norm",
    ("rms_norm",): "rms_norm _fused_rms_norm",
    ("group_norm",): "group_norm native_group_norm _batch_norm_with_update",
    ("batch_norm",): "_native_batch_norm_legit_no_training _batch_norm_no_update",
    ("softmax",): "softmax _softmax _safe_softmax",
    ("log_softmax",): "log_softmax _log_softmax",
    ("relu",): "relu relu_ threshold threshold_ hardshrink",
    ("leaky_relu",): "leaky_relu leaky_relu_ prelu _prelu_kernel rrelu rrelu_ rrelu_with_noise rrelu_with_noise_",
    ("hardtanh",): "hardtanh hardtanh_ relu6 relu6_",
    ("hardsigmoid",): "hardsigmoid hardsigmoid_",
    ("hardswish",): "hardswish hardswish_",
    ("shrink",): "softshrink",
    ("silu",): "silu silu_",
    ("elu",): "elu elu_",
    ("selu",): "selu selu_",
    ("celu",): "celu celu_",
    ("mish",): "mish mish_",
    ("glu",): "glu",
    ("softplus",): "softplus log_sigmoid log_sigmoid_forward",
    ("sigmoid",): "sigmoid sigmoid_",
    ("tanh",): "tanh tanh_",
    ("add",): "add add_ sub sub_ rsub",
    ("multiply",): """mul mul_ div div_ multiply divide true_divide pow pow_ square square_ neg neg_ reciprocal
    reciprocal_ remainder fmod floor_divide""",
    ("exp",): """exp exp_ exp2 expm1 log log_ log2 log10 log1p sqrt sqrt_ rsqrt rsqrt_ cos cos_ sin sin_ tan erf erfc
    erfinv acos asin atan atan2 acosh asinh atanh cosh sinh lgamma digamma""",
    ("abs",): "abs abs_ sign sign_ sgn floor floor_ ceil ceil_ round round_ trunc trunc_ frac",
    ("clamp",): "clamp_min clamp_max clamp_min_ clamp_max_",
    ("cumsum",): "cumsum cumsum_ cumprod cumprod_",
    ("add", "multiply"): "addcmul addcmul_ addcdiv addcdiv_ addr addr_ dequantize",
    ("add", "multiply", "add"): "lerp lerp_",
    ("multiply", "abs"): "quantize_per_tensor quantize_per_channel",
    ("exp", "multiply"): "xlogy",
    ("norm", "multiply"): "_weight_norm _weight_norm_interface",
}
# The same per element of the (first) input.
PER_INPUT: Final[dict[tuple[str, ...], str]] = {
    ("mean",): "mean nanmean",
    ("sum",): "sum nansum trace",
    ("multiply",): "prod",
    ("variance",): "var std var_mean std_mean",
    ("norm",): "linalg_vector_norm norm frobenius_norm norm_except_dim",
    ("logsumexp",): "logsumexp",
    ("add", "multiply", "mean"): "mse_loss",
    ("add", "multiply", "softplus", "add", "mean"): "binary_cross_entropy_with_logits",
    ("exp", "exp", "multiply", "multiply", "add", "add", "mean"): "binary_cross_entropy",
    ("add", "abs", "multiply", "multiply", "add", "mean"): "smooth_l1_loss huber_loss",
}
# A comparison per element of the input, or of two tensors' output.
CHOICES: Final = """
argmax argmin amax amin aminmax max min maximum minimum fmax fmin cummax _cummax_helper cummin median nanmedian mode
histc
"""
# Views, copies, shapes, masks, constants and dropout cost nothing by convention. fvcore's own list is not used, because
# it includes arithmetic (max, clamp).
_FREE: Final = """
adjoint alias all __and__ any arange as_strided_ bernoulli bernoulli_ bitwise_and bitwise_not bitwise_or bitwise_xor
Bool broadcast_tensors broadcast_to cauchy_ chunk clone _coalesce _coalesced_ complex _conj conj conj_physical
contiguous copy_ detach detach_ diag diagonal diagonal_copy dropout dropout_ _efficientzerotensor empty
_empty_affine_quantized empty_like empty_permuted empty_strided eq expand expand_as exponential_ eye feature_dropout
feature_dropout_ fill_ flatten Float FloatImplicit full full_like _fw_primal ge geometric_ gt imag index_fill
index_fill_ Int int_repr IntImplicit is_nonzero isfinite isinf isnan item le lift_fresh lift_fresh_copy linspace
log_normal_ logical_and logical_not logical_or logical_xor logspace lt masked_fill masked_fill_ matrix_H meshgrid mH
moveaxis movedim mT nan_to_num nan_to_num_ narrow native_dropout ne _nested_from_padded new_empty new_empty_strided
new_full new_ones new_zeros normal_ numel numpy_T ones ones_like __or__ permute _pin_memory pin_memory polar
q_per_channel_scales q_scale q_zero_point rand rand_like randint randn randn_like random_ randperm ravel real reshape
reshape_as _reshape_copy resize_ resolve_conj resolve_neg scalar_tensor ScalarImplicit select set_ size slice
_sparse_compressed_tensor_unsafe sparse_coo_tensor _sparse_coo_tensor_with_dims_and_tensors split split_copy
split_with_sizes split_with_sizes_copy squeeze squeeze_ swapaxes swapdims t t_ tensor tensor_split to _to_copy _to_dense
to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr transpose transpose_ tril tril_
tril_indices triu triu_ triu_indices type_as unbind unflatten unfold uniform_ unsafe_chunk unsafe_split
unsafe_split_with_sizes _unsafe_view unsqueeze unsqueeze_ view view_as view_as_complex view_as_real view_as_real_copy
where __xor__ zero_ zeros zeros_like
"""
FREE: Final = frozenset(f"aten::{name}" for name in _FREE.split())


def is_float(value: Any) -> bool:
    """Is it a tensor of floats or complex numbers?"""
    return is_tensor(value) and (value.is_floating_point() or value.is_complex())


# Complex numbers: a sum adds two parts, a product is six operations; the convention has no other complex work.
_OF_COMPLEX: Final = {work: 2 * FLOPS_PER_ELEMENT[work] for work in ("add", "sum", "mean", "cumsum")}
_OF_COMPLEX["multiply"] = COMPLEX_MULTIPLY


def _by_element(works: tuple[str, ...], counted: Callable[[tuple[Any, ...], Any], Any]) -> Formula:
    """Works per element of what is `counted`; none for whole numbers, None for unknown works of complex ones."""
    each = sum(FLOPS_PER_ELEMENT[work] for work in works)
    of_complex = sum(_OF_COMPLEX[work] for work in works) if _OF_COMPLEX.keys() >= {*works} else None

    def formula(args: tuple[Any, ...], result: Any) -> Costs | None:
        whole = counted(args, result)
        for one in (*args, first(result)):
            if is_tensor(one) and one.is_complex():
                return None if of_complex is None else Cost(flops=whole.numel() * of_complex)
        return Cost(flops=whole.numel() * each if is_tensor(whole) and whole.is_floating_point() else 0)

    return formula


def _per_output(*works: str) -> Formula:
    return _by_element(works, lambda args, result: first(result))


def _per_input(*works: str) -> Formula:
    return _by_element(works, lambda args, result: args[0])


def _per_pair(work: str) -> Formula:
    """`work` per pair of elements of two tensors, broadcast."""

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        sizes = zip_longest(reversed(args[0].shape), reversed(args[1].shape), fillvalue=1)
        pairs = prod(b if a == 1 else a for a, b in sizes)
        return Cost(flops=pairs * FLOPS_PER_ELEMENT[work])

    return formula


def _batch_norm(args: tuple[Any, ...], result: Any) -> Costs | None:
    """(x, weight, bias, running mean, running variance, training, …), or without the two: a batch's own statistics.

    With running statistics two FLOPs per element; a batch's own mean and variance cost as much as a group norm's.
    """
    own = isinstance(args[3], bool) or args[5] is True
    return _per_output("group_norm" if own else "batch_norm")(args, result)


# ── choices, pools, samples ──


def _chosen(args: tuple[Any, ...], result: Any) -> Costs:
    """One comparison per input element; of two tensors, per output element."""
    two_tensors = len(args) > 1 and is_tensor(args[1])
    return Cost(comparisons=(result if two_tensors else args[0]).numel())


def _sorted(args: tuple[Any, ...], result: Any) -> Costs:
    """⌈log₂ n⌉ comparisons per element of lists of n, along the first integer of (x, stable, axis, …)."""
    axes = [arg for arg in args[1:] if isinstance(arg, int) and not isinstance(arg, bool)]
    return _lists(args[0], axes[0] if axes else -1)


def _lists(x: Any, axis: int) -> Costs:
    return Cost(comparisons=x.numel() * ceil_log2(x.shape[axis]) if x.ndim else 0)


def _pool(rank: int, *, adaptive: bool, mean: bool) -> Formula:
    """A mean per element of every window, padding included; or a comparison.

    Adaptive, from n to p: window i covers ⌊i·n/p⌋ to ⌈(i+1)·n/p⌉. Windows overlap where p doesn't divide i·n, and all
    together cover n + p - gcd(n, p).
    """

    def formula(args: tuple[Any, ...], result: Any) -> Costs:
        output = first(result)
        if adaptive:
            entering = prod(output.shape[:-rank])
            for n, p in zip(args[0].shape[-rank:], output.shape[-rank:], strict=True):
                entering *= n + p - common_divisor(n, p)
        else:
            entering = output.numel() * (prod(args[1]) if len(args[1]) == rank else args[1][0] ** rank)
        return Cost(flops=entering * FLOPS_PER_ELEMENT["mean"]) if mean else Cost(comparisons=entering)

    return formula


def _interpolated(neighbours: int) -> Formula:
    """A weighted sum of so many elements of the input per element of the output."""
    return lambda args, result: Cost(flops=result.numel() * neighbours * FLOPS_PER_ELEMENT["interpolate"])


_NEAREST, _BICUBIC = 1, 2


def _sampled(args: tuple[Any, ...], result: Any) -> Costs:
    """(x (B, C, …), points (B, …, rank), mode, …): bilinear 0 reads two neighbours per axis, bicubic 2 reads four.

    A neighbour's weight is worked out once per point, for all channels. Nearest 1 moves one element, without a weight.
    """
    points, mode = args[1], args[2] if len(args) > 2 else 0  # noqa: PLR2004 - cuDNN's kernel is bilinear
    if mode == _NEAREST:
        return _moved(args, result)
    neighbours = (4 if mode == _BICUBIC else 2) ** points.shape[-1]
    weights = prod(points.shape[:-1]) * FLOPS_PER_ELEMENT["sampling_weight"]
    return Cost(flops=neighbours * (result.numel() * FLOPS_PER_ELEMENT["interpolate"] + weights))


# ── movement of data ──


def _moved(args: tuple[Any, ...], result: Any) -> Costs:
    """The number of floating-point elements written."""
    return Cost(moved=first(result).numel() if is_float(first(result)) else 0)


def _scattered(args: tuple[Any, ...], result: Any) -> Costs:
    """Writing into a tensor moves the elements of the source."""
    floats = [arg for arg in args if is_float(arg)]
    return Cost(moved=floats[-1].numel() if floats else 0)


def _scatter_added(args: tuple[Any, ...], result: Any) -> Costs:
    """The same, and an addition per element."""
    moved = _scattered(args, result)["moved"]
    return Cost(moved=moved, flops=moved * FLOPS_PER_ELEMENT["add"])


def _index_put(args: tuple[Any, ...], result: Any) -> Costs:
    """(x, indices, values, accumulate)."""
    accumulates = len(args) > 3 and args[3] is True  # noqa: PLR2004
    return (_scatter_added if accumulates else _scattered)((args[2],), result)


_MEAN, _MAX = 1, 2


def _embedding_bag(args: tuple[Any, ...], result: Any) -> Costs:
    """(table (V, d), indices, offsets, _, mode, _, weights, …): per bag a (weighted) sum 0, a mean 1 or a maximum 2."""
    elements = args[1].numel() * args[0].shape[-1]
    mode = args[4] if len(args) > 4 else 0  # noqa: PLR2004
    if mode == _MAX:
        return Cost(moved=elements, comparisons=elements)
    weighted = len(args) > 6 and args[6] is not None  # noqa: PLR2004
    work = FLOPS_PER_ELEMENT["mean" if mode == _MEAN else "sum"] + (FLOPS_PER_ELEMENT["multiply"] if weighted else 0)
    return Cost(moved=elements, flops=elements * work)


# ── Fourier transforms: of complex numbers 5·⌈log₂ n⌉ FLOPs each, of n real ones as much as of n/2 complex ──


def _to_spectrum(args: tuple[Any, ...], result: Any) -> Costs:
    """(x, axes, …): real along the last axis, complex along the others."""
    x, (*others, last) = args[0], args[1]
    return Cost(flops=x.numel() * _fourier(x, [last]) // 2 + result.numel() * _fourier(result, others))


def _from_spectrum(args: tuple[Any, ...], result: Any) -> Costs:
    x, (*others, last) = args[0], args[1]
    return Cost(flops=result.numel() * _fourier(result, [last]) // 2 + x.numel() * _fourier(x, others))


def _fourier(x: Any, axes: Sequence[int]) -> Number:
    return FLOPS_PER_ELEMENT["fft"] * sum(ceil_log2(x.shape[axis]) for axis in axes)


def _real_fourier(args: tuple[Any, ...], result: Any, *, inverse: bool = False) -> Costs:
    """(x, n, axis): n real numbers, x cut or zero-padded to n, to their spectrum; or a spectrum back to n.

    If n is a runtime value, it is inferred from the spectrum of n/2 + 1; an odd n then counts as n - 1.
    """
    n, axis = (*args[1:3], None, None)[:2]
    axis, real = -1 if axis is None else axis, result if inverse else args[0]
    if inverse or n is None:
        n = real.shape[axis]
    elif not isinstance(n, int):
        n = 2 * (result.shape[axis] - 1)
    return Cost(flops=real.numel() // real.shape[axis] * (FLOPS_PER_ELEMENT["fft"] * n * ceil_log2(n) // 2))


# ── the table ──

_OTHERS: Final[dict[Formula, str]] = {
    _chosen: CHOICES,
    _moved: """
    cat concat concatenate hstack vstack dstack column_stack stack constant_pad_nd pad reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d embedding flip fliplr flipud rot90 gather
    index _unsafe_index _unsafe_masked_index index_select masked_select take take_along_dim repeat repeat_interleave
    roll tile im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle diag_embed block_diag
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d _pack_padded_sequence _pad_packed_sequence""",
    _scattered: """index_copy index_copy_ scatter scatter_ slice_scatter select_scatter diagonal_scatter masked_scatter
    masked_scatter_""",
    _scatter_added: """scatter_add scatter_add_ index_add index_add_ col2im scatter_reduce scatter_reduce_ index_reduce
    index_reduce_""",
    _index_put: "index_put index_put_ _index_put_impl_",
    # each input element is written at its index
    lambda args, result: Cost(moved=args[0].numel()): "max_unpool2d max_unpool3d",
    lambda args, result: _per_output("gelu_tanh" if "tanh" in args[1:] else "gelu")(args, result): "gelu gelu_",
    # one comparison per given bound
    lambda args, result: _per_output(*["clamp"] * sum(bound is not None for bound in args[1:3]))(args, result): (
        "clamp clamp_"
    ),
    _batch_norm: "batch_norm instance_norm native_batch_norm cudnn_batch_norm _native_batch_norm_legit",
    # (x, p, training): in training it scales and shifts what remains, to keep its mean and variance
    lambda args, result: _per_output("affine")(args, result) if args[2] else Cost(): (
        "alpha_dropout alpha_dropout_ feature_alpha_dropout"
    ),
    _per_pair("cosine_similarity"): "cosine_similarity",
    _per_pair("distance"): "pairwise_distance",
    _sorted: "sort argsort",
    lambda args, result: _lists(args[0], args[2] if len(args) > 2 else -1): "topk",  # noqa: PLR2004 - x, k, axis
    **{_pool(n, adaptive=False, mean=True): f"avg_pool{n}d" for n in (1, 2, 3)},
    **{_pool(n, adaptive=False, mean=False): f"max_pool{n}d max_pool{n}d_with_indices" for n in (1, 2, 3)},
    **{_pool(n, adaptive=True, mean=True): f"adaptive_avg_pool{n}d" for n in (1, 2, 3)},
    **{_pool(n, adaptive=True, mean=True): f"_adaptive_avg_pool{n}d" for n in (2, 3)},
    **{_pool(n, adaptive=True, mean=False): f"adaptive_max_pool{n}d" for n in (1, 2, 3)},
    _interpolated(2): "upsample_linear1d",
    _interpolated(4): "upsample_bilinear2d",
    _interpolated(8): "upsample_trilinear3d",
    _interpolated(16): "upsample_bicubic2d",
    _sampled: "grid_sampler grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback cudnn_grid_sampler",
    _embedding_bag: "embedding_bag _embedding_bag _embedding_bag_forward_only",
    # (table (V, d), indices, …): the length of every row that is looked up
    lambda args, result: Cost(flops=args[1].numel() * args[0].shape[-1] * FLOPS_PER_ELEMENT["norm"]): (
        "embedding_renorm_"
    ),
    # (log probabilities, targets, …): one number per target, and their mean
    lambda args, result: Cost(moved=args[1].numel(), flops=args[1].numel() * FLOPS_PER_ELEMENT["mean"]): (
        "nll_loss_forward nll_loss2d_forward"
    ),
    # (x, axes, …): a complex transform along each axis
    lambda args, result: Cost(flops=args[0].numel() * _fourier(args[0], args[1])): "_fft_c2c",
    _to_spectrum: "_fft_r2c",
    _from_spectrum: "_fft_c2r",
    _real_fourier: "fft_rfft",
    partial(_real_fourier, inverse=True): "fft_irfft",
}


_BY_ELEMENT: Final[dict[Formula, str]] = {_per_output(*works): names for works, names in PER_OUTPUT.items()} | {
    _per_input(*works): names for works, names in PER_INPUT.items()
}
COSTS: Final[dict[str, Formula]] = {
    f"{namespace}::{name}": formula
    for namespace, rows in (("aten", _BY_ELEMENT | _OTHERS | CONTRACTIONS), ("xfcost", LOOPS))
    for formula, names in rows.items()
    for name in names.split()
}
