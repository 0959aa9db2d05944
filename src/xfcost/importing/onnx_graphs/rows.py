"""The ledger of an ONNX graph at given sizes: a row per operator, repeated blocks as one, as of a module.

Nothing runs, so how operators mix tokens is not known. Weights are the initializers of floats with an axis, and the
quantised ones that operators read as weights; scales and zero points are none.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost import __version__
from xfcost.formulas.operation_names import named_rows
from xfcost.importing.onnx_graphs.file import OnnxFile, graphs_of
from xfcost.importing.onnx_graphs.operations import Attention, Operands, attention_of, costs_of
from xfcost.importing.onnx_graphs.shapes import PASSING, Ran, Value, Walk, is_float, named, shape_text
from xfcost.ledger.accounts import RUN, WeightsRead
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.metadata import Metadata, RunAgreement
from xfcost.ledger.module_rows import ModuleRow, collapsed, parts_of, with_parameters
from xfcost.ledger.operation import Operation
from xfcost.ledger.ran import ModuleRun, RanOperation
from xfcost.ledger.units import BYTES_PER_ELEMENT, DASH

if TYPE_CHECKING:
    import onnx

NOTE: Final = "mixing kinds are not known: an ONNX graph is counted by its shapes, and has not run"
_DTYPES: Final = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
# (domain, operator) -> the places of its weights' scales, zero points and lengths.
_NO_WEIGHTS: Final[dict[str, tuple[int, ...]]] = {
    "DequantizeLinear": (1, 2), "QuantizeLinear": (1, 2), "QLinearMatMul": (1, 2, 4, 5, 6, 7), "MatMulInteger": (2, 3),
    "QLinearConv": (1, 2, 4, 5, 6, 7), "ConvInteger": (2, 3), "MatMulNBits": (2, 3, 4), "Reshape": (1,), "Gather": (1,),
    "MatMulIntegerToFloat": (2, 3, 4, 5), "DynamicQuantizeMatMul": (2, 3), "QAttention": (3, 4, 6, 7), "Resize": (1, 2),
    "Clip": (1, 2),
}  # fmt: skip
# Operators that pass attention scores on, element by element.
_KEEP_SCORES: Final = frozenset((
    "Add", "Cast", "Clip", "Div", "Identity", "Mul", "Reshape", "Squeeze", "Sub", "Tanh", "Unsqueeze", "Where",
))  # fmt: skip
_QUANTISED_AT: Final = {
    "DequantizeLinear": 0, "MatMulInteger": 1, "QLinearMatMul": 3, "QLinearConv": 3, "ConvInteger": 1, "MatMulNBits": 1,
    "MatMulIntegerToFloat": 1, "DynamicQuantizeMatMul": 1, "QAttention": 1, "Gather": 0,
}  # fmt: skip
_LOOK_UPS: Final = ("Gather", "GatherElements", "GatherND", "EmbedLayerNormalization")
_STATISTIC_BYTES: Final = 4


class _Row(NamedTuple):
    """An operator of the file, in all its turns."""

    first: Ran
    costs: Counter[str]
    weights: dict[str, None]
    uncounted: Counter[str]


class Sized(NamedTuple):
    """The sizes of a run of a graph."""

    sizes: Mapping[str, int]
    """Open length -> its number."""
    shapes: Mapping[str, tuple[int, ...]]
    """Those of the inputs."""
    tokens: int | None = None
    image: tuple[int, int] | None = None


def graph_ledger(file: OnnxFile, path: str, sized: Sized) -> Ledger:
    """The ledger of one pass; a UsageError where the graph takes no such sizes."""
    walk = Walk(file, sized.sizes, sized.shapes)
    rows, order = dict[int, _Row](), list[int]()
    weights = _Weights(file, walk.ran)
    scores = _Scores()
    for ran in walk.ran:
        row = rows.get(ran.number)
        if row is None:
            row = rows[ran.number] = _Row(ran, Counter(), {}, Counter())
            order.append(ran.number)
        call = Operands(ran, file.opsets.get("", 1))
        costs = None if ran.missing else costs_of(call)
        if costs is None:
            row.uncounted[f"{ran.node.op_type}: {ran.missing}" if ran.missing else ran.node.op_type] += ran.times
        else:
            row.costs.update({name: int(number) * ran.times for name, number in costs.items()})
        row.weights.update(dict.fromkeys(weights.read_by(ran)))
        scores.follow(ran, call, costs)
    found = _rows([rows[number] for number in order], weights, scores)
    missing: Counter[str] = sum((row.uncounted for row in rows.values()), Counter())
    element = Counter(one.element for one in weights.elements.values() if one.element in _DTYPES)
    inputs = [one.element for one in file.inputs.values() if one.element in _DTYPES]
    dtype = _DTYPES[element.most_common(1)[0][0] if element else inputs[0] if inputs else 1]
    texts = tuple(
        f"{name}: {'×'.join(map(str, sized.shapes[name])) or '()'} {_type_name(one.element)}"
        for name, one in file.inputs.items()
    )
    title = os.path.basename(path)
    opsets = ", ".join(f"{domain or 'opset'} {version}" for domain, version in file.opsets.items())
    names = tuple(f"{operator} ({times:,}×)" for operator, times in missing.items())
    rows_of = named_rows(collapsed(found), title)
    kinds, stored = scores.kinds(), {_type_name(one.element) for one in weights.elements.values()}
    unused = _note_of_unused(file.graph, list(rows.values()))
    warning = f"weights are stored as {' and '.join(sorted(stored))}; bytes count all of them as {dtype}"
    return Ledger(
        metadata=Metadata(
            name=title, tokens=DASH, grid_tokens=sized.tokens or 0, inputs=", ".join(texts) or "none", dtype=dtype,
            attention=" and ".join(sorted(kinds)) or "no", source=path, image=sized.image, notes=(NOTE, *unused),
            warnings=(warning,) if stored - {dtype} else (),
            versions={"xfcost": __version__},
        ),
        rows=rows_of,
        agreement=RunAgreement(exact=not names, uncounted=names),
        module=ModuleRun(
            module=f"ONNX, {opsets}", inputs=texts, tensors="none", uncounted=dict(sorted(missing.items())),
            eager_bytes=scores.entries * BYTES_PER_ELEMENT[dtype],
            fused_bytes=scores.statistics * max(_STATISTIC_BYTES, BYTES_PER_ELEMENT[dtype]),
        ),
    ).run_with("onnx")  # fmt: skip


def _note_of_unused(graph: onnx.GraphProto, rows: Sequence[_Row]) -> tuple[str, ...]:
    """What operators cost on which no output depends: ONNX Runtime (1.32, every level of optimisation) runs them."""
    needed = {one.name for one in graph.output}
    unused = set[int]()
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output):
            unused.add(id(node))
        else:
            needed.update(_names_read(node))
    found = [row for row in rows if id(row.first.node) in unused and any(row.costs.values())]
    if not found:
        return ()
    names = ", ".join(named(row.first.node) for row in found[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    macs = sum(row.costs["macs"] for row in found)
    return (f"no output depends on {names}{more} ({macs:,} MACs), which ONNX Runtime computes too: counted",)


def _names_read(node: onnx.NodeProto) -> set[str]:
    """What a node and the graphs in it read."""
    inner = (graph for attribute in node.attribute for graph in graphs_of(attribute))
    below = (name for graph in inner for name in (*_read_in(graph), *(one.name for one in graph.output)))
    return {*node.input, *below}


def _read_in(graph: onnx.GraphProto) -> set[str]:
    return {name for node in graph.node for name in _names_read(node)}


_MOST_NAMED: Final = 3


def _type_name(element: int) -> str:
    from onnx import TensorProto

    try:
        return _DTYPES.get(element) or str(TensorProto.DataType.Name(element)).lower()
    except ValueError:
        raise UsageError(f"the file names the unknown element type {element}") from None


# ── weights ──


class _Weights:
    """The parameters of a graph, with who reads them."""

    def __init__(self, file: OnnxFile, ran: Sequence[Ran]) -> None:
        self.elements: dict[str, Value] = {}
        """Every weight that an operator reads."""
        self._reads: dict[int, list[str]] = defaultdict(list)
        for number, one in enumerate(ran):
            skipped = _NO_WEIGHTS.get(one.node.op_type, ())
            for place, value in enumerate(one.inputs):
                if value is None or not value.weights or place in skipped:
                    continue
                is_weight = is_float(value.element) or _QUANTISED_AT.get(one.node.op_type) == place
                if is_weight and value.shape is not None:
                    for name in value.weights:
                        self.elements.setdefault(name, value)
                    self._reads[number] += value.weights
        self._places = {id(one): number for number, one in enumerate(ran)}
        self.loose = {
            tensor.name: prod(tensor.dims)
            for tensor in file.graph.initializer
            if tensor.name not in self.elements and tensor.dims and is_float(tensor.data_type)
            and not any(tensor.name in one.node.input for one in ran)
        }  # fmt: skip

    def read_by(self, ran: Ran) -> list[str]:
        """Those that an operator reads, or what is made of them alone."""
        return self._reads[self._places[id(ran)]]

    def number(self, name: str, node: onnx.NodeProto) -> int:
        """The elements of a weight; of a matrix of packed bits those of the matrix."""
        if node.op_type == "MatMulNBits":
            options = {one.name: int(one.i) for one in node.attribute}
            return options["K"] * options["N"]
        return prod(self.elements[name].shape or ())


# ── attention scores: a product of two activations, up to a softmax over its last axis ──


class _Scores:
    """The attention matrices of a graph, by the operators that make them."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[int, tuple[int, ...]]] = {}
        self.matrix: dict[int, Matrix] = {}
        self.heads: dict[int, int] = {}
        self.attention: dict[int, Attention] = {}
        self.entries = self.statistics = 0

    def kinds(self) -> set[str]:
        """`eager` of matrices that are written, `fused` of cores in one operator."""
        eager = any(one.entries for one in self.matrix.values())
        return {*(["eager"] if eager else []), *(["fused"] if self.attention else [])}

    def follow(self, ran: Ran, call: Operands, costs: Mapping[str, int] | None) -> None:
        """Note what an operator does with scores."""
        node, number = ran.node, ran.number
        output = next((one for one in ran.outputs if one is not None), None)
        if output is None or output.shape is None or not node.output:
            return
        name = node.output[0]
        if (found := attention_of(call)) is not None:
            rows = int(found.core.times * found.core.queries)
            self.attention[number] = found
            self.heads[number] = found.heads
            self._add(number, Matrix(0, 0, 0, rows * ran.times))
            self.statistics += rows * ran.times
            self.entries += rows * int(found.core.keys) * ran.times
        elif node.op_type in ("MatMul", "Einsum", "FusedMatMul") and costs and costs["macs"]:
            activations = [one for one in ran.inputs if one is not None and not one.weights and one.data is None]
            if len(activations) == 2:  # noqa: PLR2004 - a product of two
                self._made[name] = (number, output.shape)
        elif node.op_type in _KEEP_SCORES:
            kept = next((self._made[one] for one in node.input if one in self._made), None)
            if kept is not None and prod(kept[1]) == prod(output.shape):
                self._made[name] = kept
        elif node.op_type == "Softmax" and node.input[0] in self._made and _over_last(call):
            self._softmax(ran, self._made[node.input[0]][0], output.shape)

    def _softmax(self, ran: Ran, product: int, shape: tuple[int, ...]) -> None:
        entries = prod(shape) * ran.times
        for number, alive, saved in ((product, entries, 0), (ran.number, 2 * entries, entries)):
            self.heads[number] = prod(shape[:-2])
            self._add(number, Matrix(entries, alive, saved))
        self.entries += entries
        self.statistics += entries // shape[-1] if shape[-1] else 0

    def _add(self, number: int, more: Matrix) -> None:
        before = self.matrix.get(number)
        self.matrix[number] = more if before is None else before.joined(more)


def _over_last(call: Operands) -> bool:
    """Is a softmax over the last axis?"""
    axis, rank = call.options.get("axis", -1), call.y.ndim
    return axis in (-1, rank - 1)


# ── rows ──

_SCOPE: Final = re.compile(r"[^\w.]+")
_METADATA: Final = ("pkg.torch.onnx.name_scopes", "namespace")


def _path_of(ran: Ran) -> str:
    """The module of an operator: by the exporter's metadata, or by a name with slashes (`/layers.0/attn/MatMul`)."""
    node = ran.node
    known = {one.key: one.value for one in getattr(node, "metadata_props", ())}
    scopes = re.findall(r"'([^']*)'", known.get(_METADATA[0], ""))
    if scopes:
        named = [one for one in scopes if one and not one.startswith(("aten.", "prims."))]
        path = named[-1] if len(scopes) > 1 and named else ""
        # the innermost scope is the operator's own
        path = next((one for one in reversed(scopes[:-1]) if one), "") if scopes[-1] == path else path
    else:
        path = ".".join(part for part in node.name.split("/")[:-1] if part)
    whole = ".".join(filter(None, [ran.path.replace("/", "."), path]))
    return ".".join(filter(None, (_SCOPE.sub("_", part).strip("_") for part in whole.split("."))))


def _rows(found: Sequence[_Row], weights: _Weights, scores: _Scores) -> list[ModuleRow]:
    """A row of every operator that costs something, holds weights or is not counted."""
    home: dict[str, int] = {}
    for row in sorted(found, key=lambda one: one.first.node.op_type in PASSING):  # whoever computes with it comes first
        for name in row.weights:
            home.setdefault(name, row.first.number)
    rows, seen = list[ModuleRow](), Counter[tuple[str, str]]()
    for row in found:
        ran, path = row.first, _path_of(row.first)
        word = ran.node.op_type
        seen[path, word] += 1
        title = word if seen[path, word] == 1 else f"{word}_{seen[path, word]}"
        reads = any(home[name] == ran.number or word not in PASSING for name in row.weights)
        if any(row.costs.values()) or row.uncounted or reads:
            rows.append(_row(row, path, title, home, weights, scores))
    return with_parameters(rows, {"": sum(weights.loose.values())} if weights.loose else {})


def _row(
    row: _Row, path: str, title: str, home: Mapping[str, int], weights: _Weights, scores: _Scores
) -> ModuleRow:  # fmt: skip
    ran, node = row.first, row.first.node
    own = [name for name in row.weights if home[name] == ran.number]
    foreign = [name for name in row.weights if home[name] != ran.number]
    params = sum(weights.number(name, node) for name in own)
    whole = sum(weights.number(name, node) for name in row.weights)
    looked_up = node.op_type in ("Gather", "GatherElements", "GatherND", "EmbedLayerNormalization") and bool(
        row.weights
    )
    read = min(row.costs["moved"], whole) if looked_up else whole
    attention = scores.attention.get(ran.number)
    matrix = scores.matrix.get(ran.number)
    made = 0 if matrix is None else int(matrix.statistics if attention is not None else matrix.entries)
    costs: dict[str, Any] = {name: row.costs[name] for name in RUN}
    operation = Operation(
        path=title,
        title=title,
        mixing="unknown",
        params=params,
        weights_read=None if read == params else WeightsRead(read, whole),
        attention_entries=0 if node.op_type == "Softmax" else made,
        matrix=matrix,
        core=None if attention is None else attention.core,
        heads=scores.heads.get(ran.number),
        fused=attention is not None,
        shared=foreign[0] if foreign and not params else None,
        ran=RanOperation(
            aten=f"onnx::{node.op_type}",
            input_shapes=_shapes_text(ran.inputs),
            output_shapes=_shapes_text(ran.outputs),
            uncounted=sum(row.uncounted.values()),
            masked=attention is not None and attention.masked,
        ),
        **costs,
    )
    return ModuleRow(parts_of(path), operation, tuple(_last(name, path) for name in row.weights))


def _last(name: str, path: str) -> str:
    """The name of a weight in its module; nothing of one elsewhere, or of one that the exporter has numbered."""
    return name.removeprefix(f"{path}.") if path and name.startswith(f"{path}.") else ""


def _shapes_text(values: Sequence[Value | None]) -> str:
    known = [one for one in values if one is not None and one.element][:_MOST_SHAPES]
    return ", ".join(map(shape_text, known))


_MOST_SHAPES: Final = 4
