"""The names of a module's operations in reports: the module, the tensor or words that say what it does.

ATen's own name stays in a row's path and in `ran.aten`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Final

import msgspec

from xfcost.ledger.module_rows import PARAMETERS, ModuleRow, labelled
from xfcost.ledger.operation import Operation

_SCORES: Final = "attention scores"
_VALUES: Final = "weighted sum"
_BIAS: Final = "bias"
_RESIDUAL: Final = "residual add"
_SOFTMAX: Final = "softmax"
_MULTIPLY: Final = "matrix multiply"
# The same of a module with the weights.
_LINEAR: Final = "linear"
# Words -> the names of ATen's operators, of functions that count as one, and of ONNX's operators.
_WORDS: Final[dict[str, str]] = {
    _MULTIPLY: """
    linear mkldnn_linear matmul MatMul mm bmm mv _int_mm _weight_int8pack_mm _weight_int4pack_mm addmm _addmm_activation
    baddbmm addmv _scaled_mm addbmm Gemm FusedMatMul TransposeMatMul MatMulInteger QLinearMatMul MatMulNBits MatMulBnb4
    MatMulIntegerToFloat DynamicQuantizeMatMul""",
    "dot product": "dot vdot",
    "grouped matrix multiply": "_grouped_mm _scaled_grouped_mm grouped_linear",
    "convolution": "_convolution_mode Conv ConvInteger QLinearConv",
    "transposed convolution": "ConvTranspose",
    "deformable convolution": "DeformConv",
    "fused attention": """
    scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math_for_mps
    _scaled_dot_product_fused_attention_overrideable flash_attention flex_attention Attention QAttention
    MultiHeadAttention GroupQueryAttention""",
    "layer norm": "LayerNormalization SkipLayerNormalization EmbedLayerNormalization",
    "RMS norm": """
    rms_norm _fused_rms_norm RMSNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization""",
    "group norm": "GroupNormalization",
    "instance norm": "InstanceNormalization",
    "batch norm": """
    BatchNormalization _batch_norm_with_update _native_batch_norm_legit_no_training _batch_norm_no_update
    cudnn_batch_norm _native_batch_norm_legit""",
    "norm": "linalg_vector_norm frobenius_norm norm_except_dim",
    "weight norm": "_weight_norm_interface",
    _SOFTMAX: "_safe_softmax",
    "GELU": "gelu BiasGelu FastGelu QuickGelu",
    "ReLU": "relu", "ReLU6": "relu6", "SiLU": "silu", "ELU": "elu", "SELU": "selu", "CELU": "celu", "GLU": "glu",
    "thresholded ReLU": "ThresholdedRelu", "PReLU": "prelu _prelu_kernel", "leaky ReLU": "leaky_relu",
    "randomized ReLU": "rrelu rrelu_with_noise",
    "subtract": "sub rsub", "multiply": "mul", "divide": "div true_divide", "power": "pow", "negate": "neg",
    "maximum": "max amax ReduceMax", "minimum": "min amin ReduceMin", "top k": "topk TopK", "sum": "nansum ReduceSum",
    "mean": "nanmean ReduceMean", "product": "prod ReduceProd", "variance": "var var_mean",
    "standard deviation": "std std_mean", "cumulative sum": "cumsum CumSum", "cumulative product": "cumprod CumProd",
    "concatenate": "cat concat", "pad": "constant_pad_nd",
    "gather": "index _unsafe_index _unsafe_masked_index index_select take take_along_dim GatherElements GatherND",
    "scatter": "index_copy index_put _index_put_impl_ slice_scatter select_scatter ScatterElements ScatterND",
    "scatter add": "index_add col2im", "unfold": "im2col", "embedding bag": "_embedding_bag_forward_only",
    "Fourier transform": "_fft_c2c _fft_r2c fft_rfft DFT", "inverse Fourier transform": "_fft_c2r fft_irfft",
    "LSTM": "lstm", "GRU": "gru gru_reset_after gru_reset_before", "RNN": "rnn_tanh rnn_relu RNN", "WKV": "wkv",
    "pairwise distance": "_cdist_forward _euclidean_dist",
    "negative log-likelihood": "nll_loss_forward nll_loss2d_forward",
    "cross-entropy": "binary_cross_entropy binary_cross_entropy_with_logits",
}  # fmt: skip
_LIBRARIES: Final = ("", "aten", "onnx", "xfcost")
_WORD_OF: Final = {name: words for words, names in _WORDS.items() for name in names.split()}


@cache
def word_of(aten: str) -> str:
    """What an operator does, in words: `aten::native_layer_norm` -> `layer norm`, `onnx::MatMul` -> `matrix multiply`.

    One that has no words of its own is written as its name, without what marks it as native, in place, private or of a
    number of axes; those of other libraries keep the library's name.
    """
    library, _, name = aten.rpartition("::")
    if library not in _LIBRARIES:
        return aten
    if library == "onnx":  # `ReduceL2` -> `reduce_l2`
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    else:
        plain = name.strip("_").removeprefix("native_").removesuffix("_forward").removesuffix("_with_indices")
    plain = re.sub(r"_?[123]d(?=_|$)", "", plain).replace("avg_", "average_")
    return _WORD_OF.get(name) or _WORD_OF.get(name.removesuffix("_")) or _WORD_OF.get(plain) or plain.replace("_", " ")


def named_rows(rows: Sequence[ModuleRow], name: str) -> tuple[Operation, ...]:
    """The rows of a module that is called `name`, repeated blocks as one, with their paths and titles."""
    of_ledger = [labelled(one, name) for one in rows]
    return named(of_ledger, {row.path: one.weights for row, one in zip(of_ledger, rows, strict=True)})


def named(rows: Sequence[Operation], tensors: Mapping[str, Sequence[str]] = {}) -> tuple[Operation, ...]:
    """The rows of a module with titles that tell them apart in their block, and with what they do in words as symbols.

    A module that runs one operation with parameters, its bias left out, and has no others inside, gives its name
    (`attn.qkv`), and what it does where that is a number (`mlp.0 linear`). Of several, a product has the name of its
    matrix (`attn.in_proj`); others have their words, and the tensor that they take.

    Args:
        rows: as a ledger has them, with their paths, modules and blocks.
        tensors: path of a row -> the names, in its module, of the parameters that it takes; of others empty texts.
    """
    own = {row.path: [name for name in dict.fromkeys(tensors.get(row.path, ())) if name] for row in rows}
    biases = {row.path for row in rows if not row.macs and _only_name(own[row.path]).endswith(_BIAS)}
    shown = [row for row in rows if row.ran is not None and not row.only_moves and row.path not in biases]
    alone = {name for name, times in Counter(row.component for row in shown).items() if times == 1}
    parents = {row.component.rpartition(".")[0] for row in rows}
    weights: Operation | None = None
    found: list[Operation] = []
    for row in rows:
        words = _words(row, weights)
        if words == _SOFTMAX and row.matrix is not None:
            weights = row
        elif words == _VALUES:
            weights = None
        alone_there = row.component in alone and row.component not in parents and not row.only_moves
        is_module = alone_there and bool(row.params or row.shared)
        numbered = is_module and row.component.rpartition(".")[2].isdecimal()  # in an nn.Sequential
        words = _LINEAR if numbered and words == _MULTIPLY else words
        if row.path in biases:
            title, words = _of_bias(row, own[row.path][0]), _BIAS
        elif is_module and (name := inside_block(row)):
            title = f"{name} {words}" if numbered else name
        else:
            title = _title(row, words, own[row.path])
        found.append(msgspec.structs.replace(row, title=title, symbol=words))
    return tuple(_told_apart(found))


def _only_name(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ""


def _words(row: Operation, weights: Operation | None) -> str:
    """What a row does; `weights` are the last attention weights that have not met their values."""
    if row.ran is None:
        return PARAMETERS
    if row.role == "add":
        return _RESIDUAL
    if row.macs and not row.fused and not row.params:
        if row.attention_entries:
            return _SCORES
        if weights is not None and _inside(weights, row.component) and _takes(row, weights):
            return _VALUES
    return word_of(row.ran.aten)


def _inside(row: Operation, module: str) -> bool:
    return not module or f"{row.component}.".startswith(f"{module}.")


def _takes(product: Operation, weights: Operation) -> bool:
    """Is an operand of a product as large as the attention weights?"""
    operands = str(product.figure("input_shapes")).split(", ")
    return _size(str(weights.figure("output_shapes")).split(", ")[0]) in map(_size, operands)


def _size(shape: str) -> int:
    return prod(map(int, re.findall(r"\d+", shape)))


def inside_block(row: Operation) -> str:
    """The path of a row's module in its block; empty where that is the block itself."""
    start = f"{row.block.replace(' · ', '.')}."  # of a generation, behind its phase
    return row.component.removeprefix(start) if row.component.startswith(start) else ""


def own_name(row: Operation) -> str:
    """The title of a module's row below the name of its module: `in_proj`, `softmax`."""
    return row.title.removeprefix(inside_block(row)).lstrip(". ") or row.symbol or row.title


def _title(row: Operation, words: str, own: Sequence[str]) -> str:
    """`attn.in_proj` of a product with `in_proj_weight`, `attn softmax`, `add pos_embed`; `own` are its parameters."""
    module = inside_block(row)
    matrices = [name for name in own if not name.endswith(_BIAS)]
    is_product = bool(row.macs) and not row.fused and not row.attention_entries
    stem = re.sub(r"[._]?weight$", "", _only_name(matrices))
    if stem and is_product:
        return ".".join(filter(None, (module, stem)))
    if stem and not row.macs and row.role is None and len(own) == 1:
        return " ".join(filter(None, (module, words, stem.rpartition(".")[2])))
    return f"{module} {words}".strip()


def _of_bias(row: Operation, name: str) -> str:
    """`attn.in_proj bias` of `in_proj_bias`."""
    stem = re.sub(rf"[._]?{_BIAS}$", "", name)
    return f"{'.'.join(filter(None, (inside_block(row), stem)))} {_BIAS}".strip()


def _told_apart(rows: Sequence[Operation]) -> Iterator[Operation]:
    """Residual adds of a block by the module whose result they add, other rows of one title by a number: `add 2`."""
    titles = Counter((row.block, row.title) for row in rows)
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        title = row.title
        if titles[row.block, title] > 1 and row.ran is not None and row.ran.adds:
            title = f"{title} ({row.ran.adds})"
        seen[row.block, title] += 1
        number = seen[row.block, title]
        title = title if number == 1 else f"{title} {number}"
        yield row if title == row.title else msgspec.structs.replace(row, title=title)
