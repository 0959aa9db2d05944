"""Walks through a graph at given sizes: the shape of every value, operator by operator.

`onnx.shape_inference` says what an operator makes of its inputs; small whole numbers (shapes, axes, positions) are
worked out as they come, so that what they decide has a size too. Loops run their turns, as long as these differ.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.importing.onnx_graphs.contracts import disagreement
from xfcost.importing.onnx_graphs.file import MOST_KNOWN, OnnxFile, length_of, names_in
from xfcost.importing.onnx_graphs.shapes_of_contrib import shapes_of_contrib
from xfcost.ledger.errors import UsageError, printable

if TYPE_CHECKING:
    import numpy as np
    import onnx

# Operators of whole numbers that are worked out where all inputs are known.
_WORKED_OUT: Final = frozenset((
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand", "Flatten",
    "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Max", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMin", "ReduceProd",
    "ReduceSum", "Reshape", "Round", "ScatterElements", "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub",
    "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
))  # fmt: skip
# Operators that make the shape of their first input, where the schema has no rule.
_SAME_SHAPE: Final = frozenset((
    "GroupNormalization", "HardSwish", "MeanVarianceNormalization", "Mish", "RMSNormalization", "RotaryEmbedding",
    "Shrink", "Softsign", "Swish", "ThresholdedRelu",
))  # fmt: skip
_RESHAPES: Final = ("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
# What passes weights on as they are.
PASSING: Final = frozenset(("Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
# Operators of ONNX Runtime under ONNX's own name.
_OF_RUNTIME: Final = frozenset(("SimplifiedLayerNormalization",))
# Turns of loops that run one by one, and operators of a walk.
_MOST_TURNS: Final = 64
_MOST_RUN: Final = 1_000_000
_MOST_DEPTH: Final = 20


class Value(NamedTuple):
    """A tensor, as far as it is known."""

    shape: tuple[int, ...] | None
    element: int
    """The number of its element type; 0 of what is no tensor."""
    data: np.ndarray[Any, Any] | None = None
    """Its elements, of a small constant."""
    weights: tuple[str, ...] = ()
    """The weights that it is, or is made of alone."""


class Ran(NamedTuple):
    """An operator that ran, with its inputs and outputs; those that are left out are None."""

    node: onnx.NodeProto
    number: int
    """Its place in the file; of an operator in a loop the same in all turns."""
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    path: str
    """Of the control flow that it is in: `Loop_3`; empty outside."""
    times: int = 1
    """Turns that are alike."""
    missing: str | None = None
    """Why it is not counted: a branch or a number of turns that is not known."""
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Those of inputs and outputs, unique in all turns."""


class Walk:
    """The operators of a file's graph, at the sizes that its open lengths have.

    Raises:
        UsageError: an operator reads what nothing makes, or takes no such inputs; there are too many.
    """

    def __init__(self, file: OnnxFile, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> None:
        import onnx

        self._file, self._sizes = file, sizes
        self._imports = [onnx.helper.make_opsetid(domain, version) for domain, version in file.opsets.items()]
        self.ran: list[Ran] = []
        self._count = 0
        self._numbers: dict[int, tuple[int, onnx.NodeProto]] = {}  # held, so that no other gets its id
        values: ChainMap[str, Value] = ChainMap()
        for name, one in file.inputs.items():
            values[name] = Value(shapes[name], one.element)
        self._walk(file.graph, values, "", 1)

    # ── graphs ──

    def _walk(self, graph: onnx.GraphProto, values: ChainMap[str, Value], path: str, times: int) -> list[Value | None]:
        """Run a graph; what it returns."""
        if path.count("/") > _MOST_DEPTH:
            raise UsageError(f"{self._file.name}: graphs in graphs, more than {_MOST_DEPTH} deep")
        for tensor in graph.initializer:
            values[tensor.name] = self._constant(tensor, weight=True)
        for sparse in graph.sparse_initializer:
            one = self._constant(sparse.values, weight=True)
            values[sparse.values.name] = one._replace(shape=tuple(sparse.dims), data=None)
        stated = {one.name: one.type for one in (*graph.value_info, *graph.output)}
        made = {name for node in graph.node for name in node.output if name}
        for node in graph.node:
            self._check(node, values, made)
            self._run(node, values, path, times, stated)
        return [values.get(one.name) for one in graph.output]

    def _check(self, node: onnx.NodeProto, values: Mapping[str, Value], made: set[str]) -> None:
        for name in node.input:
            if name and name not in values:
                why = "which only a later one makes: the graph has a circle, or is not in order" if name in made else (
                    "which nothing makes"
                )  # fmt: skip
                raise UsageError(f"{self._file.name}: {named(node)} reads {printable(name, 80)!r}, {why}")
        for name in node.output:
            if name and name in values:
                raise UsageError(
                    f"{self._file.name}: {named(node)} makes {printable(name, 80)!r}, which is there already"
                )

    def _run(
        self, node: onnx.NodeProto, values: ChainMap[str, Value], path: str, times: int, stated: Mapping[str, Any]
    ) -> None:
        self._count += 1
        if self._count > _MOST_RUN:
            raise UsageError(f"{self._file.name}: runs more than {_MOST_RUN:,} operators")
        if node.domain == "ai.onnx":  # the long name of ONNX's own
            node.domain = ""
        inputs = tuple(values[name] if name else None for name in node.input)
        number, _ = self._numbers.setdefault(id(node), (len(self._numbers), node))
        ran = Ran(node, number, inputs, (), path, times, None, (tuple(node.input), tuple(node.output)))
        if node.op_type in _CONTROL and _own_domain(node):
            try:
                outputs, missing = _CONTROL[node.op_type](self, ran, values)
            except (KeyError, IndexError, ValueError) as error:
                raise UsageError(
                    f"{self._file.name}: {named(node)} lacks a graph or an input ({type(error).__name__})"
                ) from error
            ran = ran._replace(missing=missing)
        else:
            outputs = self._inferred(node, inputs)
        outputs = [
            self._stated(name, stated, one) for name, one in zip(node.output, outputs, strict=False)
        ]  # fmt: skip
        outputs += [self._stated(name, stated, None) for name in node.output[len(outputs) :]]
        for name, one in zip(node.output, outputs, strict=True):
            if name and one is not None:
                values[name] = one
        self.ran.append(ran._replace(outputs=tuple(outputs)))

    def _stated(self, name: str, stated: Mapping[str, Any], found: Value | None) -> Value | None:
        """A value whose shape the file says where it was not found."""
        if not name or (found is not None and found.shape is not None):
            return found if name else None
        kind = stated.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return found or Value(None, 0)
        sides = [
            length_of(side.dim_value if side.HasField("dim_value") else side.dim_param, self._sizes)
            for side in kind.tensor_type.shape.dim
        ]
        known = [side for side in sides if side is not None and side >= 0]
        return Value(tuple(known) if len(known) == len(sides) else None, kind.tensor_type.elem_type)

    # ── operators ──

    def _constant(self, tensor: onnx.TensorProto, *, weight: bool) -> Value:
        shape = tuple(tensor.dims)
        names = (tensor.name,) if weight and shape else ()
        return Value(shape, tensor.data_type, self._numbers_of(tensor), names)

    def _numbers_of(self, tensor: onnx.TensorProto) -> np.ndarray[Any, Any] | None:
        """The elements of a small tensor that the file itself holds."""
        from onnx import TensorProto, numpy_helper

        if math.prod(tensor.dims) > MOST_KNOWN or tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            return numpy_helper.to_array(tensor)
        except Exception:  # noqa: BLE001 - without numbers, or of another number of them
            return None

    def _inferred(self, node: onnx.NodeProto, inputs: Sequence[Value | None]) -> list[Value | None]:
        """What an operator makes, as far as that is known."""
        if node.op_type == "Constant" and _own_domain(node):
            return [self._of_constant(node)]
        if (
            node.op_type in ("Shape", "Size")
            and _own_domain(node)
            and (known := self._shape_of(node, inputs)) is not None
        ):
            return [known]
        outputs = self._by_schema(node, inputs)
        first, made = inputs[0] if inputs else None, outputs[0] if outputs else None
        if node.op_type in _SAME_SHAPE and first is not None and (made is None or made.shape is None):
            outputs = [Value(first.shape, first.element), *outputs[1:]]
        outputs = self._worked_out(node, inputs, outputs)
        given = [one for one in inputs if one is not None]
        alone = bool(given) and all(one.weights or one.data is not None for one in given)
        passes = alone and node.op_type in {*PASSING, "DequantizeLinear"}
        if passes and outputs and outputs[0] is not None:
            outputs[0] = outputs[0]._replace(weights=given[0].weights)
        if (why := disagreement(node, inputs, outputs, self._file.opsets.get("", 1))) is not None:
            raise self._refused(node, inputs, why)
        return outputs

    def _refused(self, node: onnx.NodeProto, inputs: Sequence[Value | None], why: str) -> UsageError:
        shapes = ", ".join(map(shape_text, inputs))
        return UsageError(f"{self._file.name}: {named(node)} does not take {shapes}: {why}")

    def _of_constant(self, node: onnx.NodeProto) -> Value:
        import numpy as np

        attribute = node.attribute[0] if node.attribute else None
        if attribute is not None and attribute.HasField("t"):
            found = self._constant(attribute.t, weight=False)
            is_weight = found.shape and math.prod(found.shape) > 1 and is_float(found.element)
            return found._replace(weights=(node.output[0],)) if is_weight else found
        name = "" if attribute is None else attribute.name
        plain: dict[str, tuple[Any, int]] = {} if attribute is None else {
            "value_float": (attribute.f, 1), "value_floats": (list(attribute.floats), 1),
            "value_int": (attribute.i, 7), "value_ints": (list(attribute.ints), 7),
        }  # fmt: skip
        if name not in plain:
            return Value(None, 0)
        number, element = plain[name]
        array = np.array(number, dtype=np.int64 if element == 7 else np.float32)  # noqa: PLR2004 - INT64
        return Value(array.shape, element, array)

    def _shape_of(self, node: onnx.NodeProto, inputs: Sequence[Value | None]) -> Value:
        import numpy as np

        shape = None if not inputs or inputs[0] is None else inputs[0].shape
        if shape is None:
            return Value(None, 7)
        if node.op_type == "Size":
            return Value((), 7, np.array(math.prod(shape), dtype=np.int64))
        options = {one.name: one.i for one in node.attribute}
        part = shape[slice(options.get("start", 0), options.get("end"))]
        return Value((len(part),), 7, np.array(part, dtype=np.int64))

    def _by_schema(self, node: onnx.NodeProto, inputs: Sequence[Value | None]) -> list[Value | None]:
        """By the schema of the operator; a UsageError where it takes no such inputs."""
        import onnx

        if not _own_domain(node) or node.op_type in _OF_RUNTIME:
            return shapes_of_contrib(node, inputs)
        version = self._file.opsets.get("", 1)
        try:
            schema = onnx.defs.get_schema(node.op_type, version, "")
        except onnx.defs.SchemaError:
            raise UsageError(
                f"{self._file.name}: {named(node)}: ONNX has no operator {printable(node.op_type)} in opset {version}"
            ) from None
        if any(one is not None and not one.element for one in inputs):
            return []  # what an unknown operator made, or no tensor
        types, data = {}, {}
        for name, one in zip(node.input, inputs, strict=True):
            if one is not None:
                types[name] = onnx.helper.make_tensor_type_proto(one.element, one.shape)
                if one.data is not None:
                    data[name] = onnx.numpy_helper.from_array(one.data, name)
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data or None, None, self._imports, self._file.ir_version
            )
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            why = printable(str(error).strip().partition("\n")[0].removeprefix("[ShapeInferenceError] "), 160)
            raise self._refused(node, inputs, why) from None
        except (RuntimeError, ValueError, TypeError):  # the rule fails; the file may say the shape
            return []
        return [_value_of(found.get(name)) if name else None for name in node.output]

    def _worked_out(
        self, node: onnx.NodeProto, inputs: Sequence[Value | None], outputs: list[Value | None]
    ) -> list[Value | None]:
        """With the elements of small results of known numbers."""
        from onnx.reference import ReferenceEvaluator

        known = all(one is None or one.data is not None for one in inputs)
        if node.op_type not in _WORKED_OUT or not known or not _own_domain(node) or not outputs:
            return outputs
        first = outputs[0]
        is_small = first is not None and first.shape is not None and math.prod(first.shape) <= MOST_KNOWN
        if not is_small and node.op_type != "NonZero":
            return outputs
        if node.op_type in _RESHAPES and first is not None and inputs[0] is not None and inputs[0].data is not None:
            return [first._replace(data=inputs[0].data.reshape(first.shape))]
        given = {name: one.data for name, one in zip(node.input, inputs, strict=True) if one is not None and name}
        try:
            evaluator = ReferenceEvaluator(node, opsets={"": self._file.opsets.get("", 1)})
            results = evaluator.run(None, given)
        except Exception:  # noqa: BLE001 - numbers that can't be worked out stay unknown
            return outputs
        found: list[Value | None] = []
        for one, result in zip(outputs, results, strict=False):
            fits = one is not None and hasattr(result, "shape") and math.prod(result.shape) <= MOST_KNOWN
            found.append(one._replace(shape=tuple(result.shape), data=result) if fits and one is not None else one)
        return found

    # ── control flow ──

    def branch(self, ran: Ran, values: ChainMap[str, Value]) -> tuple[list[Value | None], str | None]:
        """If: the branch that is taken, if that is known."""
        condition = ran.inputs[0]
        ways = {one.name: one.g for one in ran.node.attribute}
        here = self._inner(ran)
        if condition is not None and condition.data is not None:
            way = "then_branch" if bool(condition.data.reshape(-1)[0]) else "else_branch"
            return self._walk(ways[way], values.new_child(), here, ran.times), None
        before = len(self.ran)
        found = [self._walk(ways[way], values.new_child(), here, ran.times) for way in ("then_branch", "else_branch")]
        del self.ran[before:]
        same = [one if one == other else None for one, other in zip(*map(_shapes_alone, found), strict=False)]
        return list(same), "which branch it takes is not known"

    def loop(self, ran: Ran, values: ChainMap[str, Value]) -> tuple[list[Value | None], str | None]:
        """Loop: its turns, if their number is known."""
        import numpy as np

        body = ran.node.attribute[0].g if ran.node.attribute else None
        if body is None:
            raise UsageError(f"{self._file.name}: {named(ran.node)} has no body")
        most, condition = (ran.inputs[place] if place < len(ran.inputs) else None for place in (0, 1))
        turns = None if most is None or most.data is None else int(most.data.reshape(-1)[0])
        states: list[Value | None] = list(ran.inputs[2:])
        outputs: list[Value | None] = []
        before, turn = len(self.ran), 0
        while turns is not None and turn < turns:
            if condition is not None and condition.data is not None and not bool(condition.data.reshape(-1)[0]):
                turns = turn
                break
            inner, first = values.new_child(), len(self.ran)
            number = Value((), 7, np.array(turn, dtype=np.int64) if turns <= _MOST_TURNS else None)
            given = [number, condition or Value((), 9, np.array(True)), *states]
            for one, value in zip(body.input, given, strict=False):
                inner[one.name] = value or Value(None, 0)
            outputs = self._walk(body, inner, self._inner(ran), ran.times)
            after = outputs[1 : 1 + len(states)]
            if outputs[0] is None or outputs[0].data is None:
                turns = None
                break
            condition = outputs[0]
            alike = _shapes_alone(after) == _shapes_alone(states)
            if turns > _MOST_TURNS:
                if not alike:
                    turns = None
                    break
                self.ran[first:] = [one._replace(times=one.times * turns) for one in self.ran[first:]]
                states, turn = _shapes_alone(after), turns
                break
            states, turn = after, turn + 1
        if turns is None:
            del self.ran[before:]
            return [], "how many turns it takes is not known"
        scanned = [
            one if one is None or one.shape is None else Value((turns, *one.shape), one.element)
            for one in outputs[1 + len(states) :]
        ]
        return [*states, *scanned], None

    def scan(self, ran: Ran, values: ChainMap[str, Value]) -> tuple[list[Value | None], str | None]:
        """Scan: as many turns as its first scanned input is long, all alike."""
        options = {one.name: one for one in ran.node.attribute}
        body, scanned = options["body"].g, options["num_scan_inputs"].i
        states, given = list(ran.inputs[:-scanned]), ran.inputs[len(ran.inputs) - scanned :]
        axes = list(options["scan_input_axes"].ints) if "scan_input_axes" in options else [0] * scanned
        parts: list[Value] = []
        turns: int | None = None
        for one, axis in zip(given, axes, strict=False):
            if one is None or one.shape is None or not -len(one.shape) <= axis < len(one.shape):
                return [], "how many turns it takes is not known"
            place = axis % len(one.shape)
            turns = one.shape[place]
            parts.append(Value((*one.shape[:place], *one.shape[place + 1 :]), one.element))
        inner = values.new_child()
        for one, value in zip(body.input, [*states, *parts], strict=False):
            inner[one.name] = Value(None, 0) if value is None else value._replace(data=None)
        before = len(self.ran)
        outputs = self._walk(body, inner, self._inner(ran), ran.times * (turns or 0))
        if _shapes_alone(outputs[: len(states)]) != _shapes_alone(states):
            del self.ran[before:]
            return [], "its states change their shapes"
        stacked = [
            one if one is None or one.shape is None or turns is None else Value((turns, *one.shape), one.element)
            for one in outputs[len(states) :]
        ]
        return [*_shapes_alone(states), *stacked], None

    @staticmethod
    def _inner(ran: Ran) -> str:
        own = ran.node.name.strip("/").replace("/", ".") or f"{ran.node.op_type}_{ran.number}"
        return f"{ran.path}/{own}" if ran.path else own


_CONTROL: Final = {"If": Walk.branch, "Loop": Walk.loop, "Scan": Walk.scan}


def _shapes_alone(values: Sequence[Value | None]) -> list[Value | None]:
    return [None if one is None else Value(one.shape, one.element) for one in values]


def shape_text(value: Value | None) -> str:
    """`1×197×768`; `?` of an unknown shape, `()` of a number."""
    return "?" if value is None or value.shape is None else "×".join(map(str, value.shape)) or "()"


def _own_domain(node: onnx.NodeProto) -> bool:
    return node.domain == ""


def named(node: onnx.NodeProto) -> str:
    """`/layers.0/MatMul (MatMul)`."""
    name = printable(node.name, 80)
    return f"{name} ({printable(node.op_type)})" if name else printable(node.op_type)


def _value_of(kind: Any) -> Value | None:
    """A value of an inferred type."""
    if kind is None or not kind.HasField("tensor_type"):
        return Value(None, 0)
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or not all(side.HasField("dim_value") for side in tensor.shape.dim):
        return Value(None, tensor.elem_type)
    return Value(tuple(side.dim_value for side in tensor.shape.dim), tensor.elem_type)


# FLOAT, FLOAT16, DOUBLE, BFLOAT16, and the small ones of 8 and 4 bits.
_FLOATS: Final = frozenset((1, 10, 11, 16, 17, 18, 19, 20, 23, 24))
_COMPLEX: Final = frozenset((14, 15))


def is_float(element: int) -> bool:
    """Is an element type one of floats?"""
    return element in _FLOATS


def is_complex(element: int) -> bool:
    """Is an element type one of complex numbers?"""
    return element in _COMPLEX


def bound(file: OnnxFile, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs at these sizes.

    Raises:
        UsageError: a length has no number, or an input no shape.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, one in file.inputs.items():
        if one.sides is None:
            raise UsageError(
                f"{file.name}: input {printable(name)} has no shape in the file; --input {printable(name)}=1x128 is one"
            )
        sides = [length_of(side, sizes) for side in one.sides]
        for side, number in zip(one.sides, sides, strict=True):
            if number is None:
                names = ", ".join(printable(each) for each in names_in(str(side)) if each not in sizes)
                texts = "x".join("…" if number is None else str(number) for number in sides)
                raise UsageError(
                    f"{file.name}: {names or printable(str(side))}, a length of input {printable(name)}, has no "
                    f"number; give one, as in --input {printable(name)}={texts.replace('…', '16')}"
                )
        found[name] = tuple(side for side in sides if side is not None)
    return found
