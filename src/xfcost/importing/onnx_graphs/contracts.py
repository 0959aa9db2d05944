"""Shapes that an operator does not take, where `onnx.shape_inference` does not compare them.

A rule says what an operator has, and what it should have: a difference is refused, as ONNX Runtime 1.32 refuses it when
the operator runs. Where a shape is not known, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.importing.onnx_graphs.shapes_of_contrib import Shape, options_of

if TYPE_CHECKING:
    import onnx

    from xfcost.importing.onnx_graphs.shapes import Value

Pairs = Iterator[tuple[str, object, object]]
_MASKS_ARE_PADDED: Final = 24  # the opset from which a mask of fewer keys is lengthened


class _Call(NamedTuple):
    inputs: Sequence[Value | None]
    shapes: Sequence[Any]
    """Those of the inputs."""
    made: Any
    """The shape of the first output."""
    options: dict[str, Any]
    opset: int

    def given(self, place: int) -> Any:
        return self.shapes[place] if place < len(self.shapes) else None


def disagreement(
    node: onnx.NodeProto, inputs: Sequence[Value | None], outputs: Sequence[Value | None], opset: int
) -> str | None:
    """The first difference, as `channels of the input: expected 3, got 4`; None where there is none."""
    rule = _RULES.get((node.domain, node.op_type))
    if rule is None:
        return None
    first = outputs[0] if outputs else None
    shapes = [None if one is None else one.shape for one in inputs]
    call = _Call(inputs, shapes, None if first is None else first.shape, options_of(node), opset)
    try:
        return next((f"{what}: expected {good}, got {got}" for what, got, good in rule(call) if got != good), None)
    except (TypeError, IndexError, KeyError, ValueError, ZeroDivisionError):  # a shape is not known, or an option lacks
        return None


def _text(shape: Shape) -> str:
    return "×".join(map(str, shape)) or "()"


def _multiple(number: int, of: int) -> int | str:
    """What is expected of a number: itself, if it is a multiple."""
    return f"a multiple of {of}" if number % of else number


def _broadcast(what: str, shape: Shape | None, whole: Shape) -> Pairs:
    """A shape that is broadcast to a whole one: aligned at the last axis, each length the same or 1."""
    if shape is not None:
        own = whole[len(whole) - len(shape) :] if len(shape) <= len(whole) else whole
        fits = len(shape) <= len(whole) and all(one in (1, other) for one, other in zip(shape, own, strict=True))
        yield f"the shape of {what}", _text(shape), _text(shape if fits else own)


# ── convolutions and norms ──


def _convolution(*, weights: int = 1, bias: int = 2, transposed: bool = False) -> Callable[[_Call], Pairs]:
    """Weights (out, in/groups, *kernel); transposed, (in, out/groups, *kernel)."""

    def rule(call: _Call) -> Pairs:
        x, w, groups = call.shapes[0], call.shapes[weights], call.options.get("group", 1)
        kernel = call.options.get("kernel_shape", w[2:])
        yield "channels of the input", x[1], w[0] if transposed else w[1] * groups
        yield "kernel_shape", _text(kernel), _text(w[2:])
        made = w[1] * groups if transposed else w[0]
        yield "output channels", made, _multiple(made, groups)
        if call.given(bias) is not None:
            yield "the shape of the bias", _text(call.shapes[bias]), _text((made,))
        if call.made is not None and min(call.made[2:]) <= 0 < min(x[2:]):
            yield "sides of the input", _text(x[2:]), "at least those of a window"

    return rule


def _channels(call: _Call) -> Pairs:
    """One number for each channel of (B, C, …)."""
    channels = call.shapes[0][1]
    yield "channels", channels, _multiple(channels, call.options.get("num_groups", 1))
    for place in (1, 2):
        yield "the shape of the weights", _text(call.shapes[place]), _text((channels,))


def _norm(call: _Call) -> Pairs:
    """Weights of the axes from `axis`."""
    x = call.shapes[0]
    axes = x[call.options.get("axis", -1) :]
    yield from _broadcast("the weights", call.shapes[1], axes)
    yield from _broadcast("the bias", call.given(2), axes)


def _slope(call: _Call) -> Pairs:
    yield from _broadcast("the slope", call.shapes[1], call.shapes[0])


def _skip_norm(call: _Call) -> Pairs:
    x, skip = call.shapes[:2]
    yield "the shape of the residual", _text(skip[-2:]), _text(x[-2:])
    yield "the width of the weights", call.shapes[2][-1], x[-1]


# ── products ──


def _gemm(call: _Call) -> Pairs:
    yield from _broadcast("the bias", call.given(2), call.made)


def _fused_product(call: _Call) -> Pairs:
    (left, right), options = call.shapes[:2], call.options
    rows, columns = right[-1 if options.get("transB") else -2], left[-2 if options.get("transA") else -1]
    yield "rows of the second matrix", rows, columns


def _few_bits(call: _Call) -> Pairs:
    yield "the width of the input", call.shapes[0][-1], call.options["K"]


def _einsum(call: _Call) -> Pairs:
    """Each letter has one length; 1 is broadcast."""
    lengths: dict[str, int] = {}
    terms = call.options["equation"].decode().replace(" ", "").partition("->")[0].split(",")
    for term, shape in zip(terms, call.shapes, strict=True):
        before, dots, after = term.partition("...")
        if not dots:
            yield f"axes of {term}", len(shape), len(term)
        for letter, length in (*zip(before, shape, strict=False), *zip(after[::-1], shape[::-1], strict=False)):
            known = lengths.setdefault(letter, length)
            if 1 not in (known, length):
                yield f"the length of {letter}", length, known
            lengths[letter] = max(known, length)


def _attention(call: _Call) -> Pairs:
    """Queries (B, h, N, d), keys (B, g, M, d) and values (B, g, M, e), or (B, N, h·d); h is a multiple of g."""
    heads, groups = call.options.get("q_num_heads", 0), call.options.get("kv_num_heads", 0)
    query, key, value = (
        _of_heads(call.shapes[place], number) for place, number in ((0, heads), (1, groups), (2, groups))
    )
    yield "the width of keys", key[3], query[3]
    yield "batch, heads and length of values", _text(value[:3]), _text(key[:3])
    yield "the batch of keys", key[0], query[0]
    yield "heads of queries", query[1], _multiple(query[1], key[1])
    mask, past = call.given(3), call.given(4)
    keys = key[2] + (0 if past is None else past[2])
    if mask is not None and call.opset >= _MASKS_ARE_PADDED and mask[-1] < keys:
        mask = (*mask[:-1], keys)
    yield from _broadcast("the mask", mask, (query[0], query[1], query[2], keys))


def _of_heads(shape: Shape, heads: int) -> Shape:
    return shape if len(shape) == 4 else (shape[0], heads, shape[1], shape[2] // heads)  # noqa: PLR2004


def _recurrence(gates: int) -> Callable[[_Call], Pairs]:
    """X (T, B, in), W (directions, gates·h, in), R (directions, gates·h, h), B (directions, 2·gates·h)."""

    def rule(call: _Call) -> Pairs:
        x, maps, states = call.shapes[:3]
        rows = gates * call.options["hidden_size"]
        directions = 2 if call.options.get("direction") == b"bidirectional" else 1
        yield "the shape of W", _text(maps), _text((directions, rows, x[2]))
        yield "the shape of R", _text(states), _text((directions, rows, rows // gates))
        if call.given(3) is not None:
            yield "the shape of B", _text(call.shapes[3]), _text((directions, 2 * rows))

    return rule


# ── data that moves ──


def _reshape(call: _Call) -> Pairs:
    yield "elements of the new shape", prod(call.made), prod(call.shapes[0])


def _gather(call: _Call) -> Pairs:
    """Known indices lie within the axis."""
    indices, length = call.inputs[1], call.shapes[0][call.options.get("axis", 0)]
    if indices is not None and indices.data is not None and indices.data.size:
        for one in (int(indices.data.min()), int(indices.data.max())):
            yield "indices", one, one if -length <= one < length else f"{-length} to {length - 1}"


def _scatter_elements(call: _Call) -> Pairs:
    yield "the shape of the updates", _text(call.shapes[2]), _text(call.shapes[1])


def _scatter_nd(call: _Call) -> Pairs:
    x, indices, updates = call.shapes
    yield "the shape of the updates", _text(updates), _text((*indices[:-1], *x[indices[-1] :]))


def _depth_to_space(call: _Call) -> Pairs:
    channels, side = call.shapes[0][1], call.options["blocksize"]
    yield "channels", channels, _multiple(channels, side**2)


_OF_RUNTIME: Final = "com.microsoft"
_RULES: Final[dict[tuple[str, str], Callable[[_Call], Pairs]]] = {
    ("", "Conv"): _convolution(),
    ("", "ConvTranspose"): _convolution(transposed=True),
    ("", "ConvInteger"): _convolution(bias=99),
    ("", "QLinearConv"): _convolution(weights=3, bias=8),
    ("", "DeformConv"): _convolution(bias=3),
    ("", "InstanceNormalization"): _channels,
    ("", "GroupNormalization"): _channels,
    ("", "LayerNormalization"): _norm,
    ("", "RMSNormalization"): _norm,
    ("", "SimplifiedLayerNormalization"): _norm,
    ("", "PRelu"): _slope,
    (_OF_RUNTIME, "SkipLayerNormalization"): _skip_norm,
    (_OF_RUNTIME, "SkipSimplifiedLayerNormalization"): _skip_norm,
    ("", "Gemm"): _gemm,
    (_OF_RUNTIME, "FusedMatMul"): _fused_product,
    (_OF_RUNTIME, "MatMulNBits"): _few_bits,
    ("", "Einsum"): _einsum,
    ("", "Attention"): _attention,
    ("", "LSTM"): _recurrence(4),
    ("", "GRU"): _recurrence(3),
    ("", "RNN"): _recurrence(1),
    ("", "Reshape"): _reshape,
    ("", "Gather"): _gather,
    ("", "ScatterElements"): _scatter_elements,
    ("", "ScatterND"): _scatter_nd,
    ("", "DepthToSpace"): _depth_to_space,
}
