"""What every ONNX operator costs: by the formulas of the ATen operation that does the same, so that both count alike.

Of an operator that is neither in `COSTS` nor in `FREE` nothing is counted, and the ledger names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from xfcost.formulas.arithmetic import ceil_log2
from xfcost.formulas.contractions import ADD, MULTIPLY, Cost, Costs, SizesAlone, contraction
from xfcost.formulas.conventions import FLOPS_PER_ELEMENT
from xfcost.formulas.operation_costs import COSTS as OF_ATEN
from xfcost.importing.onnx_graphs.shapes import Ran, Value, is_complex, is_float
from xfcost.importing.onnx_graphs.shapes_of_contrib import options_of
from xfcost.ledger.matrices import AttentionCore


class Sizes(SizesAlone):
    """The sizes and the type of a value."""

    __slots__ = ("element", "sizes")

    def __init__(self, sizes: Sequence[int], element: int) -> None:
        self.sizes, self.element = tuple(sizes), element

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sizes

    def numel(self) -> int:
        return prod(self.sizes)

    def is_floating_point(self) -> bool:
        return is_float(self.element)

    def is_complex(self) -> bool:
        return is_complex(self.element)


class UnknownSizesError(Exception):
    """A size that decides the costs is not known."""


class Operands(NamedTuple):
    """An operator with what it reads and makes."""

    ran: Ran
    opset: int

    @property
    def options(self) -> dict[str, Any]:
        """Its attributes."""
        return options_of(self.ran.node)

    def has(self, place: int) -> bool:
        """Is the input given?"""
        return place < len(self.ran.inputs) and self.ran.inputs[place] is not None

    def x(self, place: int = 0) -> Sizes:
        """An input.

        Raises:
            UnknownSizesError: it is not given, or its shape is not known.
        """
        return _sizes(self.ran.inputs[place] if self.has(place) else None)

    def given(self, place: int) -> Sizes | None:
        """The same; None where it is not given."""
        return self.x(place) if self.has(place) else None

    def numbers(self, place: int) -> list[int] | None:
        """The elements of an input, where they are known."""
        one = self.ran.inputs[place] if self.has(place) else None
        return None if one is None or one.data is None else [int(number) for number in one.data.reshape(-1)]

    @property
    def y(self) -> Sizes:
        """The first output."""
        return _sizes(next((one for one in self.ran.outputs if one is not None), None))


def _sizes(value: Value | None) -> Sizes:
    if value is None or value.shape is None:
        raise UnknownSizesError
    return Sizes(value.shape, value.element)


class Attention(NamedTuple):
    """A whole attention core in one operator."""

    core: AttentionCore
    heads: int
    """Of all samples."""
    causal: bool = False
    masked: bool = False


Formula = Callable[[Operands], Costs]
_RANK_OF_SEQUENCE: Final = 3


def _as_aten(name: str, *places: int, more: tuple[Any, ...] = ()) -> Formula:
    """As the ATen operation, from these inputs; from all where there are none."""
    formula = OF_ATEN[f"aten::{name}"]

    def costs(call: Operands) -> Costs:
        args = tuple(map(call.given, places or range(len(call.ran.inputs))))
        return formula((*args, *more), call.y) or Cost()

    return costs


def _work(*works: str) -> Formula:
    """Works per element of the output, if that is of floats."""
    each = sum(FLOPS_PER_ELEMENT[work] for work in works)
    return lambda call: Cost(flops=call.y.numel() * each if call.y.is_floating_point() else 0)


def _work_of_input(*works: str) -> Formula:
    """Works per element of the first input, if that is of floats."""
    each = sum(FLOPS_PER_ELEMENT[work] for work in works)
    return lambda call: Cost(flops=call.x().numel() * each if call.x().is_floating_point() else 0)


def _among_several(work: str | None) -> Formula:
    """A sum, a mean or a choice of several tensors, element by element."""

    def costs(call: Operands) -> Costs:
        steps = call.y.numel() * (len(call.ran.inputs) - 1)
        if work is None:
            return Cost(comparisons=steps)
        mean = call.y.numel() * MULTIPLY if work == "mean" else 0
        return Cost(flops=steps * ADD + mean if call.y.is_floating_point() else 0)

    return costs


def _clip(call: Operands) -> Costs:
    """One comparison per bound: attributes before opset 11, inputs after."""
    bounds = sum(call.has(place) for place in (1, 2)) or len({"min", "max"} & call.options.keys())
    return Cost(flops=call.y.numel() * bounds * FLOPS_PER_ELEMENT["clamp"] if call.y.is_floating_point() else 0)


def _gelu(call: Operands) -> Costs:
    approximate = call.options.get("approximate", b"none")
    return _work("gelu_tanh" if approximate == b"tanh" else "gelu")(call)


def _batch_norm(call: Operands) -> Costs:
    return _work("group_norm" if call.options.get("training_mode") else "batch_norm")(call)


def _pool(*, mean: bool) -> Formula:
    """Every element of a window: a sum, or a comparison."""

    def costs(call: Operands) -> Costs:
        entering = call.y.numel() * prod(call.options["kernel_shape"])
        return Cost(flops=entering * FLOPS_PER_ELEMENT["mean"]) if mean else Cost(comparisons=entering)

    return costs


def _chosen(call: Operands) -> Costs:
    return Cost(comparisons=call.x().numel())


def _top(call: Operands) -> Costs:
    axis = call.options.get("axis", -1)
    return Cost(comparisons=call.x().numel() * ceil_log2(call.x().shape[axis]))


def _moved(call: Operands) -> Costs:
    return Cost(moved=call.y.numel() if call.y.is_floating_point() else 0)


def _scattered(updates: int) -> Formula:
    def costs(call: Operands) -> Costs:
        written = call.x(updates)
        number = written.numel() if written.is_floating_point() else 0
        adds = call.options.get("reduction", b"none") != b"none"
        return Cost(moved=number, flops=number * ADD if adds else 0)

    return costs


def _resized(call: Operands) -> Costs:
    mode, rank = call.options.get("mode", b"nearest"), call.y.ndim - 2
    if mode == b"nearest":
        return _moved(call)
    neighbours = (4 if mode == b"cubic" else 2) ** rank
    return Cost(flops=call.y.numel() * neighbours * FLOPS_PER_ELEMENT["interpolate"])


def _sampled(call: Operands) -> Costs:
    modes = {b"linear": 0, b"bilinear": 0, b"nearest": 1, b"cubic": 2, b"bicubic": 2}
    mode = modes.get(call.options.get("mode", b"linear"), 0)
    return OF_ATEN["aten::grid_sampler"]((call.x(), call.x(1), mode), call.y) or Cost()


def _fourier(call: Operands) -> Costs:
    """5·⌈log₂ n⌉ per complex number, of n real numbers as of n/2 complex ones."""
    axis = call.numbers(2) or [call.options.get("axis", 1 if call.opset < 20 else -2)]  # noqa: PLR2004
    x, real = call.x(), call.x().shape[-1] == 1
    numbers, length = prod(x.shape[:-1]), x.shape[axis[0]]
    return Cost(flops=numbers * FLOPS_PER_ELEMENT["fft"] * ceil_log2(length) // (2 if real else 1))


def _quantised(call: Operands) -> Costs:
    """Divide and round."""
    return Cost(flops=call.y.numel() * (MULTIPLY + FLOPS_PER_ELEMENT["abs"]))


def _quantised_by_range(call: Operands) -> Costs:
    return Cost(comparisons=2 * call.x().numel(), flops=call.x().numel() * (MULTIPLY + FLOPS_PER_ELEMENT["abs"]))


# ── contractions ──


def _product(left: int = 0, *, bias: int | None = None, requantises: bool = False) -> Formula:
    """Every element of the result is a dot product over the last axis of the left operand."""

    def costs(call: Operands) -> Costs:
        turned = bool(call.options.get("transA"))
        width = call.x(left).shape[-2 if turned else -1]
        added = call.y.numel() * ADD if bias is not None and call.has(bias) else 0
        again = call.y.numel() * (MULTIPLY + FLOPS_PER_ELEMENT["abs"]) if requantises else 0
        return contraction(call.y, call.y.numel() * width, added, again)

    return costs


def _few_bits(call: Operands) -> Costs:
    """(…, K) by a packed matrix of N rows."""
    options, rows = call.options, prod(call.x().shape[:-1])
    added = call.y.numel() * ADD if call.has(5) else 0
    return contraction(call.y, rows * options["K"] * options["N"], added)


def _convolution(
    x: int = 0, weight: int = 1, bias: int = 2, *, transposed: bool = False, again: bool = False
) -> Formula:
    """Weights (out, in/groups, *kernel); transposed, (in, out/groups, *kernel)."""

    def costs(call: Operands) -> Costs:
        args = (call.x(), call.x(weight), call.given(bias), None, None, None, transposed)
        found = OF_ATEN["aten::convolution"](args, call.y) or Cost()
        if again:
            found.update(flops=call.y.numel() * (MULTIPLY + FLOPS_PER_ELEMENT["abs"]))
        return found

    return costs


def _deformable(call: Operands) -> Costs:
    """A convolution of samples between four pixels each; (x, weight, offsets, bias, mask)."""
    found = _convolution(bias=3)(call)
    offsets = call.x(2)
    points = offsets.numel() // 2
    groups = call.options.get("offset_group", 1)
    samples = points // groups * call.x().shape[1]
    work = samples * 4 * FLOPS_PER_ELEMENT["interpolate"] + points * 4 * FLOPS_PER_ELEMENT["sampling_weight"]
    found.update(flops=work + (samples * MULTIPLY if call.has(4) else 0))
    return found


def _einsum(call: Operands) -> Costs:
    """Operands one after the other, from the left; a letter that only one has, and not the result, is summed first."""
    equation = call.options["equation"].decode().replace(" ", "")
    terms, arrow, result = equation.partition("->")
    operands = [_lettered(term, call.x(place).shape) for place, term in enumerate(terms.split(","))]
    letters = [one for term in operands for one in term]
    if arrow:
        rest = [one for term in operands for one in term if not one.isalpha()]
        kept = {*result.replace("...", ""), *(rest if "..." in result else ())}
    else:
        kept = {one for one in letters if letters.count(one) == 1 or not one.isalpha()}
    total = Cost()
    first, *others = operands
    for place, other in enumerate(others):
        later = kept.union(*others[place + 1 :])
        own, alone = _summed(first, other.keys() | later), _summed(other, first.keys() | later)
        sizes = _joined(own[0], alone[0])
        if sizes.keys() <= later:  # nothing is summed: an element-wise product
            total.update(flops=prod(sizes.values()) * MULTIPLY + own[1] + alone[1])
        else:
            total.update(contraction(call.y, prod(sizes.values()), own[1] + alone[1]))
        first = {one: size for one, size in sizes.items() if one in later}
    if not others:
        total.update(flops=_summed(first, kept)[1])
    return total


def _lettered(term: str, shape: tuple[int, ...]) -> dict[str, int]:
    """Letter -> its size; of `...` the axes are numbered from the last."""
    before, dots, after = term.partition("...")
    if not dots:
        return dict(zip(before, shape, strict=True))
    inner = shape[len(before) : len(shape) - len(after)]
    numbered = {str(place): size for place, size in enumerate(reversed(inner))}
    return dict(zip(before, shape, strict=False)) | numbered | dict(zip(reversed(after), reversed(shape), strict=False))


def _joined(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {one: max(left.get(one, 1), right.get(one, 1)) for one in (*left, *right)}


def _summed(term: dict[str, int], kept: Any) -> tuple[dict[str, int], int]:
    """The operand without the letters that nothing else has, and the FLOPs of summing over them."""
    rest = {one: size for one, size in term.items() if one in kept}
    return rest, prod(term.values()) * FLOPS_PER_ELEMENT["sum"] if len(rest) < len(term) else 0


def _recurrence(gates: int, work: int) -> Formula:
    """X (T, B, in), W (directions, gates·h, in), R (directions, gates·h, h), B (directions, 2·gates·h)."""

    def costs(call: Operands) -> Costs:
        (steps, samples, _), maps, states = call.x().shape, call.x(1), call.x(2)
        hidden, biases = states.shape[-1], call.given(3)
        tokens = steps * samples
        elementwise = maps.shape[0] * hidden * work + (biases.numel() * ADD if biases is not None else 0)
        moved = tokens * maps.shape[0] * hidden
        return contraction(call.y, tokens * (maps.numel() + states.numel()), others=tokens * elementwise, moved=moved)

    return costs


# ── attention in one operator ──


def attention_of(call: Operands) -> Attention | None:
    """Its core; None of other operators, and where sizes are not known."""
    rule = _ATTENTION.get((call.ran.node.domain, call.ran.node.op_type))
    try:
        return None if rule is None else rule(call)
    except (UnknownSizesError, KeyError, IndexError, ValueError, ZeroDivisionError):
        return None


def _split(x: Sizes, heads: int) -> tuple[int, int, int, int]:
    """(B, heads, N, d) of (B, N, heads·d), or of (B, heads, N, d)."""
    if x.ndim == _RANK_OF_SEQUENCE:
        batch, tokens, width = x.shape
        return batch, heads, tokens, width // heads
    return x.shape[0], x.shape[1], x.shape[2], x.shape[3]


def _onnx_attention(call: Operands) -> Attention:
    """(Q, K, V, mask, past keys, past values)."""
    options, past = call.options, call.given(4)
    batch, heads, queries, width = _split(call.x(), options.get("q_num_heads", 0))
    _, groups, keys, _ = _split(call.x(1), options.get("kv_num_heads", 0))
    value_width = _split(call.x(2), options.get("kv_num_heads", 0))[3]
    keys += 0 if past is None else past.shape[2]
    core = AttentionCore(batch * groups, queries * (heads // groups), keys, width, value_width)
    return Attention(core, batch * heads, bool(options.get("is_causal")), call.has(3))


def _packed_attention(call: Operands) -> Attention:
    """(x (B, N, in), the map (in, 3·h·d), bias, …), past (2, B, h, P, d)."""
    options = call.options
    is_quantised = call.ran.node.op_type == "QAttention"
    past = call.given(8 if is_quantised else 4)
    parts = options.get("qkv_hidden_sizes") or [call.x(1).shape[1] // 3] * 3
    batch, tokens, _ = call.x().shape
    heads = options["num_heads"]
    keys = tokens + (0 if past is None else past.shape[3])
    core = AttentionCore(batch * heads, tokens, keys, parts[0] // heads, parts[2] // heads)
    return Attention(core, batch * heads, bool(options.get("unidirectional")), call.has(5 if is_quantised else 3))


def _multi_head(call: Operands) -> Attention:
    """(queries, keys, values, bias, key mask, attention bias, past keys, past values); or packed in the first."""
    heads, query = call.options["num_heads"], call.x()
    past = call.given(6)
    if query.ndim > 4:  # noqa: PLR2004 - (B, N, h, 3, d)
        batch, queries, _, _, width = query.shape
        core = AttentionCore(batch * heads, queries, queries, width, width)
        return Attention(core, batch * heads, bool(call.options.get("unidirectional")))
    batch, _, queries, width = _split(query, heads)
    key, value = call.x(1), call.given(2)
    if value is None:  # keys and values packed: (B, M, h, 2, d)
        keys, value_width = key.shape[1], key.shape[-1]
    else:
        keys, value_width = _split(key, heads)[2], _split(value, heads)[3]
    keys += 0 if past is None else past.shape[2]
    core = AttentionCore(batch * heads, queries, keys, width, value_width)
    return Attention(core, batch * heads, bool(call.options.get("unidirectional")), call.has(4) or call.has(5))


def _grouped(call: Operands) -> Attention:
    """(queries, keys, values, past keys (B, g, P, d), past values, lengths, total length, …), causal."""
    options, past = call.options, call.given(3)
    heads, groups = options["num_heads"], options["kv_num_heads"]
    batch, tokens, total = call.x().shape
    width = total // heads if call.has(1) else total // (heads + 2 * groups)
    keys = tokens + (0 if past is None else past.shape[2])
    core = AttentionCore(batch * groups, tokens * (heads // groups), keys, width, width)
    return Attention(core, batch * heads, causal=True)


_ATTENTION: Final[dict[tuple[str, str], Callable[[Operands], Attention]]] = {
    ("", "Attention"): _onnx_attention,
    ("com.microsoft", "Attention"): _packed_attention,
    ("com.microsoft", "QAttention"): _packed_attention,
    ("com.microsoft", "MultiHeadAttention"): _multi_head,
    ("com.microsoft", "GroupQueryAttention"): _grouped,
}


def _attention(call: Operands) -> Costs:
    """softmax(QKᵀ·scale)V, dense; the map to queries, keys and values where it is in the operator."""
    found, options = attention_of(call), call.options
    if found is None:
        raise UnknownSizesError
    core, per_entry = found.core, FLOPS_PER_ELEMENT["softmax"]
    queries, entries = core.times * core.queries, core.times * core.queries * core.keys
    own = call.ran.node.domain == ""
    bias = call.given({"MultiHeadAttention": 5}.get(call.ran.node.op_type, 3 if own else 99))
    per_entry += ADD if bias is not None and bias.is_floating_point() else 0
    per_entry += FLOPS_PER_ELEMENT["tanh"] + 2 * MULTIPLY if options.get("softcap") else 0
    scaling = 0 if options.get("scale") == 1 else queries * core.width * MULTIPLY
    cost = contraction(call.y, entries * core.key_value_width, others=scaling + entries * per_entry)
    if call.ran.node.op_type in ("Attention", "QAttention") and not own:
        tokens = prod(call.x().shape[:-1])
        cost.update(contraction(call.y, tokens * call.x(1).numel(), tokens * call.x(1).shape[1] * ADD))
    if options.get("do_rotary"):
        keys = core.times * (call.x().shape[1] if call.ran.node.op_type == "GroupQueryAttention" else core.keys)
        cost.update(flops=(queries + keys) * core.width * FLOPS_PER_ELEMENT["rotary"])
    return cost


def _norm_of_sum(norm: str) -> Formula:
    """(x, residual, weights, …): a sum, a norm; with a bias another sum."""

    def costs(call: Operands) -> Costs:
        bias = call.has(4 if norm == "layer_norm" else 3)
        works = ADD * (2 if bias else 1) + FLOPS_PER_ELEMENT[norm]
        return Cost(flops=call.x().numel() * works)

    return costs


def _embedded(call: Operands) -> Costs:
    """Rows of two or three tables, their sum, its norm."""
    tables = 2 + call.has(1)
    work = (tables - 1) * ADD + FLOPS_PER_ELEMENT["layer_norm"]
    return Cost(moved=tables * call.y.numel(), flops=call.y.numel() * work)


def _with_bias(work: str, place: int = 1) -> Formula:
    return lambda call: Cost(flops=call.x().numel() * (FLOPS_PER_ELEMENT[work] + (ADD if call.has(place) else 0)))


# ── the tables: operators of ONNX, then those of ONNX Runtime ──

_BY_ATEN: Final[dict[str, str]] = {
    "add": "Add Sub", "mul": "Mul Div Mod Pow", "neg": "Neg", "reciprocal": "Reciprocal", "abs": "Abs", "sign": "Sign",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "relu": "Relu ThresholdedRelu", "leaky_relu": "LeakyRelu",
    "prelu": "PRelu", "elu": "Elu", "celu": "Celu", "selu": "Selu", "softplus": "Softplus", "mish": "Mish",
    "hardsigmoid": "HardSigmoid", "hardswish": "HardSwish", "sigmoid": "Sigmoid", "tanh": "Tanh",
    "softshrink": "Shrink", "silu": "Swish", "softmax": "Softmax", "log_softmax": "LogSoftmax",
    "cumsum": "CumSum CumProd",
    "exp": "Exp Log Sqrt Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Erf",
    "layer_norm": "LayerNormalization MeanVarianceNormalization", "rms_norm": "RMSNormalization",
    "group_norm": "GroupNormalization InstanceNormalization", "mean": "ReduceMean GlobalAveragePool",
    "sum": "ReduceSum", "prod": "ReduceProd", "logsumexp": "ReduceLogSumExp", "norm": "ReduceL2 ReduceSumSquare",
}  # fmt: skip
_OWN: Final[dict[Formula, str]] = {
    _work("abs", "add", "multiply"): "Softsign",
    _work("rotary"): "RotaryEmbedding",
    _work_of_input("abs", "sum"): "ReduceL1",
    _work_of_input("sum"): "ReduceLogSum",
    _work_of_input("norm", "multiply"): "LpNormalization GlobalLpPool",
    _among_several("add"): "Sum",
    _among_several("mean"): "Mean",
    _among_several(None): "Max Min",
    _clip: "Clip",
    _gelu: "Gelu",
    _batch_norm: "BatchNormalization",
    _pool(mean=True): "AveragePool",
    _pool(mean=False): "MaxPool",
    _chosen: "ArgMax ArgMin ReduceMax ReduceMin GlobalMaxPool Hardmax",
    _top: "TopK",
    _moved: """Gather GatherElements GatherND Concat Pad Tile DepthToSpace SpaceToDepth OneHot ReverseSequence Compress
    CenterCropPad MaxUnpool""",
    _scattered(2): "ScatterElements ScatterND Scatter",
    _scattered(1): "TensorScatter",
    _resized: "Resize Upsample",
    _sampled: "GridSample",
    _fourier: "DFT",
    _quantised: "QuantizeLinear",
    _quantised_by_range: "DynamicQuantizeLinear",
    _work("add", "multiply"): "DequantizeLinear",
    _product(): "MatMul MatMulInteger",
    _product(bias=2): "Gemm",
    _product(requantises=True): "QLinearMatMul",
    _convolution(): "Conv",
    _convolution(transposed=True): "ConvTranspose",
    _convolution(bias=99): "ConvInteger",
    _convolution(weight=3, bias=8, again=True): "QLinearConv",
    _deformable: "DeformConv",
    _einsum: "Einsum",
    _attention: "Attention",
    _recurrence(4, FLOPS_PER_ELEMENT["lstm"]): "LSTM",
    _recurrence(3, FLOPS_PER_ELEMENT["gru"]): "GRU",
    _recurrence(1, ADD + FLOPS_PER_ELEMENT["tanh"]): "RNN",
}  # fmt: skip
_OF_RUNTIME: Final[dict[Formula, str]] = {
    _few_bits: "MatMulNBits MatMulBnb4",
    _product(): "FusedMatMul TransposeMatMul",
    _product(bias=6): "MatMulIntegerToFloat",
    _product(bias=4): "DynamicQuantizeMatMul",
    _attention: "Attention QAttention MultiHeadAttention GroupQueryAttention",
    _norm_of_sum("layer_norm"): "SkipLayerNormalization",
    _norm_of_sum("rms_norm"): "SkipSimplifiedLayerNormalization",
    _as_aten("rms_norm"): "SimplifiedLayerNormalization",
    _as_aten("layer_norm"): "LayerNormalization",
    _with_bias("gelu"): "BiasGelu Gelu",
    _with_bias("gelu_tanh"): "FastGelu",
    _with_bias("gelu_quick"): "QuickGelu",
    _work("rotary"): "RotaryEmbedding",
    _embedded: "EmbedLayerNormalization",
}
_FREE: Final = """
And BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Bernoulli Cast CastLike ConcatFromSequence Constant
ConstantOfShape Dropout Equal Expand EyeLike Flatten Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual
Multinomial NonZero Not Optional OptionalGetElement OptionalHasElement Or RandomNormal RandomNormalLike RandomUniform
RandomUniformLike Range Reshape SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
Shape Size Slice Split SplitToSequence Squeeze Transpose Trilu Unsqueeze Where Xor
If Loop Scan
"""
COSTS: Final[dict[tuple[str, str], Formula]] = {
    **{("", name): _as_aten(one) for one, names in _BY_ATEN.items() for name in names.split()},
    **{("", name): formula for formula, names in _OWN.items() for name in names.split()},
    **{("com.microsoft", name): formula for formula, names in _OF_RUNTIME.items() for name in names.split()},
    ("", "SimplifiedLayerNormalization"): _as_aten("rms_norm"),  # ONNX Runtime's, under ONNX's own name
}
FREE: Final = frozenset(_FREE.split())


def costs_of(call: Operands) -> Costs | None:
    """What an operator costs; None where that is not known."""
    node = call.ran.node
    if node.domain == "" and node.op_type in FREE:
        return Cost()
    formula = COSTS.get((node.domain, node.op_type))
    try:
        return None if formula is None else formula(call)
    except (UnknownSizesError, KeyError, IndexError, ValueError, ZeroDivisionError, AttributeError, TypeError):
        return None
