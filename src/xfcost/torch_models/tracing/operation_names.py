"""Names of ATen operations by what the written convention (`conventions.py`) counts of each.

The handles of a graph and the formulas of the dispatcher read these lists. A composite operation has a name in a graph
(`softmax`) and another where the dispatcher sees it (`_softmax`); both names stand here, in one line.
"""

from __future__ import annotations

from typing import Final

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
# The elements of the output are moved.
MOVES: Final = """
cat concat concatenate hstack vstack dstack column_stack stack constant_pad_nd pad reflection_pad1d reflection_pad2d
reflection_pad3d replication_pad1d replication_pad2d replication_pad3d embedding flip fliplr flipud rot90 gather index
_unsafe_index _unsafe_masked_index index_select masked_select take take_along_dim repeat repeat_interleave roll tile
im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle diag_embed block_diag upsample_nearest1d
upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
_pack_padded_sequence _pad_packed_sequence
"""
# The elements of the source are moved.
WRITES: Final = """
index_copy index_copy_ scatter scatter_ slice_scatter select_scatter diagonal_scatter masked_scatter masked_scatter_
"""
# They are moved and added.
ADDED_WRITES: Final = """
scatter_add scatter_add_ index_add index_add_ col2im scatter_reduce scatter_reduce_ index_reduce index_reduce_
"""
# A weighted sum of so many elements of the input per element of the output: upsample_NAME.
NEIGHBOURS: Final = {2: "linear1d", 4: "bilinear2d", 8: "trilinear3d", 16: "bicubic2d"}
# Views, copies, shapes, masks, constants and dropout cost nothing by convention. fvcore's own list is not used, because
# it includes arithmetic (max, clamp).
FREE: Final = """
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
