"""An ONNX file -> its graph, checked, with local functions inlined; numbers of weights are dropped, or never read."""

from __future__ import annotations

import ast
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.files import check_regular

if TYPE_CHECKING:
    import onnx

_MOST_BYTES: Final = 2**31 - 1
# Elements of a tensor whose numbers are kept: shapes, axes and masks, and no weights.
MOST_KNOWN: Final = 10_000
_MOST_SIDE: Final = 2**40
_MOST_ELEMENTS: Final = 2**50
_BITS_OF_BYTE: Final = 8


class OnnxInput(NamedTuple):
    """An input of a graph that is no weight."""

    sides: tuple[int | str, ...] | None
    """Its lengths; an open one is its name or an expression in names. None where the file does not say its rank."""
    element: int
    """The number of its element type."""


class OnnxFile(NamedTuple):
    """What of a file is counted."""

    name: str
    graph: onnx.GraphProto
    opsets: Mapping[str, int]
    """Domain of operators -> version; "" is ONNX's own."""
    ir_version: int
    inputs: Mapping[str, OnnxInput]


def read_onnx(path: str) -> OnnxFile:
    """The graph of a file; external data is not opened.

    Raises:
        UsageError: the package `onnx` is missing; the file is none, or holds what no graph can be.
    """
    name = printable(path, 200)
    check_regular(Path(path), name, "an ONNX file")
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise UsageError(
            f"{name}: reading ONNX needs the package onnx ({error}); pip install 'xfcost[onnx]' installs it"
        ) from None
    if os.path.getsize(path) > _MOST_BYTES:
        raise UsageError(f"{name}: is larger than 2 GiB, which no ONNX file can be; larger weights are external data")
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, RuntimeError, OSError) as error:
        first = printable(str(error).partition("\n")[0], 120)
        raise UsageError(f"{name}: is no ONNX file ({type(error).__name__}: {first})") from None
    try:
        return _checked(model, name)
    except UnicodeDecodeError:
        raise UsageError(f"{name}: holds names that are no UTF-8 text") from None


def _checked(model: onnx.ModelProto, name: str) -> OnnxFile:
    import onnx
    from onnx import inliner

    if not model.HasField("graph") or not model.graph.node:
        raise UsageError(f"{name}: holds no graph")
    _check_texts(model.graph, name, [one.domain for one in model.opset_import])
    for function in model.functions:
        words = [function.name, function.domain, *function.input, *function.output]
        _check_texts(function, name, words + [one.domain for one in function.opset_import])
    for tensor in tensors_of(model.graph):
        _drop_numbers(tensor, name)
    for function in model.functions:
        for node in function.node:
            for tensor in _tensors_of_node(node):
                _drop_numbers(tensor, name)
    _check_calls(model, name)
    opsets = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opsets.get("", 1) <= newest:
        raise UsageError(f"{name}: is of opset {opsets['']}; onnx {onnx.__version__} knows 1 to {newest}")
    graph = model.graph
    if model.functions:
        try:
            graph = inliner.inline_local_functions(model).graph
        except Exception as error:  # noqa: BLE001 - of its C++ code
            raise UsageError(f"{name}: its functions can't be inlined: {_first(error)}") from None
    own = {one.name for one in graph.initializer} | {one.values.name for one in graph.sparse_initializer}
    inputs = {one.name: _input(one, name) for one in graph.input if one.name not in own}
    return OnnxFile(name, graph, opsets, model.ir_version, inputs)


def _first(error: BaseException) -> str:
    return f"{type(error).__name__}: {printable(str(error).strip().partition(chr(10))[0], 200)}"


def _input(value: onnx.ValueInfoProto, name: str) -> OnnxInput:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return OnnxInput(None, tensor.elem_type)
    sides: list[int | str] = []
    for axis, side in enumerate(tensor.shape.dim):
        if side.HasField("dim_value") and side.dim_value >= 0:
            if side.dim_value > _MOST_SIDE:
                raise UsageError(f"{name}: input {printable(value.name)} has a length of {side.dim_value:,}")
            sides.append(side.dim_value)
        else:  # without a name, or with one; some exporters write -1
            sides.append(side.dim_param or f"{value.name}_{axis}")
    return OnnxInput(tuple(sides), tensor.elem_type)


def _check_texts(graph: onnx.GraphProto | onnx.FunctionProto, name: str, texts: Sequence[object] = ()) -> None:
    """Refuse names that are no text, which come as bytes."""
    texts = list(texts)
    values = [*graph.input, *graph.output, *graph.value_info] if hasattr(graph, "initializer") else []
    for value in values:
        texts += [value.name, *(side.dim_param for side in value.type.tensor_type.shape.dim)]
    texts += [one.name for one in getattr(graph, "initializer", ())]
    for node in graph.node:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        texts += [text for one in node.metadata_props for text in (one.key, one.value)]
        for attribute in node.attribute:
            texts.append(attribute.name)
            for inner in graphs_of(attribute):
                _check_texts(inner, name)
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{name}: holds names that are no UTF-8 text")


# ── tensors ──


def tensors_of(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a graph and of the graphs in it: weights and constants."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _tensors_of_node(node)


def _tensors_of_node(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for inner in graphs_of(attribute):
            yield from tensors_of(inner)


def graphs_of(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in an attribute: branches, bodies of loops."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def elements_of(tensor: onnx.TensorProto) -> int:
    """How many elements its shape has."""
    return math.prod(tensor.dims)


def _drop_numbers(tensor: onnx.TensorProto, name: str) -> None:
    """Let a large tensor keep its shape alone.

    Raises:
        UsageError: it holds another number of bytes than its shape has, or no tensor has that shape.
    """
    from onnx import helper

    text = f"{name}: tensor {printable(tensor.name) or 'of a constant'}"
    if any(side < 0 for side in tensor.dims) or elements_of(tensor) > _MOST_ELEMENTS:
        raise UsageError(f"{text} has the shape {'×'.join(map(str, tensor.dims))}, which no tensor has")
    elements = elements_of(tensor)
    if tensor.raw_data:
        try:
            bits = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * _BITS_OF_BYTE
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{text} has the unknown element type {tensor.data_type}") from None
        packed = _PACKED.get(tensor.data_type)
        expected = -(-elements * (packed or bits) // _BITS_OF_BYTE)
        if len(tensor.raw_data) != expected:
            raise UsageError(f"{text} has {expected:,} bytes by its shape, and holds {len(tensor.raw_data):,}")
    if elements > MOST_KNOWN:
        for kind in ("raw", "float", "int32", "int64", "double", "uint64", "string"):
            tensor.ClearField(f"{kind}_data")


# Element types of which several share a byte (UINT4, INT4, FLOAT4E2M1, UINT2, INT2) -> their bits.
_PACKED: Final = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}


def _check_calls(model: onnx.ModelProto, name: str) -> None:
    """Refuse local functions that call themselves: they have no end."""
    calls = {
        (one.domain, one.name): {(node.domain, node.op_type) for node in one.node} for one in model.functions
    }  # fmt: skip
    done: set[tuple[str, str]] = set()
    for start, own in calls.items():
        pending = [(start, iter(own))]
        above = [start]
        while pending:
            current, inner = pending[-1]
            following = next((one for one in inner if one in calls and one not in done), None)
            if following is None:
                done.add(current)
                pending.pop()
                above.pop()
            elif following in above:
                raise UsageError(f"{name}: its function {printable(following[1])} calls itself")
            else:
                pending.append((following, iter(calls[following])))
                above.append(following)


# ── lengths with names ──

_LONGEST: Final = 200
_OPERATORS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_CALLED: Final[dict[str, Callable[..., Any]]] = {"max": max, "Max": max, "min": min, "Min": min, "floor": int}


def names_in(side: str) -> tuple[str, ...]:
    """The names in the text of a length; a text that is no expression is a name."""
    tree = _parsed(side)
    if tree is None:
        return (side,)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)
    return tuple(dict.fromkeys(names))


def length_of(side: int | str, sizes: Mapping[str, int]) -> int | None:
    """The number of a length; None where one of its names has none."""
    if isinstance(side, int) or side in sizes:
        return side if isinstance(side, int) else sizes[side]
    tree = _parsed(side)
    try:
        found = None if tree is None else _value(tree, sizes)
    except (ZeroDivisionError, KeyError, TypeError, ValueError):
        return None
    return found if found is not None and 0 <= found <= _MOST_SIDE else None


def _parsed(side: str) -> ast.expr | None:
    """None of a text that is no expression of names, numbers, signs and the known functions."""
    try:
        tree = ast.parse(side, mode="eval").body if len(side) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if tree is not None and _is_length(tree) else None


def _is_length(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return type(node.value) is int
        case ast.Name():
            return True
        case ast.BinOp():
            return type(node.op) in _OPERATORS and _is_length(node.left) and _is_length(node.right)
        case ast.Call():
            known = isinstance(node.func, ast.Name) and node.func.id in _CALLED and not node.keywords
            return known and bool(node.args) and all(map(_is_length, node.args))
    return False


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Name():
            return sizes[node.id]
        case ast.BinOp():
            return int(_OPERATORS[type(node.op)](_value(node.left, sizes), _value(node.right, sizes)))
        case ast.Call(func=ast.Name(id=name)):
            return int(_CALLED[name](*(_value(one, sizes) for one in node.args)))
        case ast.Constant(value=int(number)):
            return number
    raise TypeError(type(node).__name__)
