"""The traced account: fvcore over a torch model, usually on `meta`.

`trace` takes any nn.Module with example inputs. It reads shapes from the traced graph, never from a spec; only
`traced_rows` maps modules to rows.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.formulas.contractions import Costs, Formula, SizesAlone
from xfcost.formulas.operation_costs import COSTS, FREE
from xfcost.ledger.accounts import MEASURED
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.operation import Operation
from xfcost.torch_models.running.by_row import ALL, leaf_rows, rows_by_path
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.running.surroundings import grouped_mm, handed_to_numpy, layer_norm
from xfcost.torch_models.running.unchanged import unchanged
from xfcost.torch_models.shared.cache import Cache
from xfcost.torch_models.shared.environment import collector_paused
from xfcost.torch_models.shared.from_fvcore import TRACING, JitModelAnalysis
from xfcost.torch_models.shared.private_torch import (
    can_decompose,
    convolution_shape,
    no_compiler,
    plain_convolution,
    pytree,
    replaced_kernels,
    schema_of,
    trace_graph,
    traced_value,
)
from xfcost.torch_models.shared.recurrence import shapes_alone


def check_inputs(inputs: tuple[Any, ...]) -> None:
    """Refuse inputs that are no tensors."""
    for number, given in enumerate(inputs):
        if not isinstance(given, Tensor):
            several = isinstance(given, tuple | list) and given and all(isinstance(item, Tensor) for item in given)
            mend = "pass tensors one by one, as in trace(model, q, k, v), or " if several else ""
            raise UsageError(
                f"trace: input {number} is {type(given).__name__}, expected a tensor; {mend}wrap the model in a module "
                "whose forward takes only tensors"
            )


@contextmanager
def tracer_may_refuse(model: nn.Module, inputs: tuple[Tensor, ...]) -> Iterator[None]:
    """Turn an error of the tracer on a model that runs into a UsageError; errors of `model` itself pass through."""
    try:
        yield
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        if not any(frame.f_code is TRACING.__code__ for frame, _ in frames) or not _runs(model, inputs):
            raise
        first = printable(str(error).partition("\n")[0], 200) or type(error).__name__
        raise UsageError(
            f"trace: this module can't be traced: {first}; "
            "trace the parts of it that can be, or a module that does the same with operations that torch can trace"
        ) from error


def _runs(model: nn.Module, inputs: tuple[Tensor, ...]) -> bool:
    with suppress(Exception), unchanged(model):
        model(*(tensor.detach().clone() for tensor in inputs))
        return True
    return False


@contextmanager
def traceable_meta() -> Iterator[None]:
    """Let torch.jit trace models with convolutions and recurrences on `meta`, with fast layer norms.

    torch 2.13 cannot trace convolutions on `meta`. The tracer records only `aten::_convolution`, which `meta` never
    calls; and in a trace sizes are tensors, which torch's shape formula rejects. So `convolution` calls `_convolution`,
    whose shape is computed in a separate thread, outside the trace.

    A recurrence would run its N steps just for a shape.
    """
    with shapes_alone(), ThreadPoolExecutor(max_workers=1) as pool:

        def shaped(*args: Any) -> Tensor:
            return pool.submit(convolution_shape, *args[:9]).result()

        def grouped(*args: Any, **kwargs: Any) -> Tensor:
            return pool.submit(grouped_mm, *args, **kwargs).result()

        kernels: dict[str, Callable[..., Any]] = {"convolution": plain_convolution, "_convolution": shaped}
        kernels |= {"native_layer_norm": layer_norm, "_grouped_mm": grouped}
        with replaced_kernels("Meta", kernels):
            yield


# A value of the traced graph: torch._C.Value, which has no public type.
Value = Any
RUNTIME: Final = object()
"""Stands for an argument that is no tensor and has no value before the model runs."""


class ShapeMissingError(ValueError):
    """The trace has no shape for a tensor: nested, sparse, or from scripted code."""


class TracedTensor(SizesAlone):
    """A tensor of a traced graph, which has sizes and a type, and what of a tensor follows from them."""

    def __init__(self, value: Value) -> None:
        self._value = value

    @property
    def shape(self) -> torch.Size:
        """The sizes.

        Raises:
            ShapeMissingError: the trace didn't record them.
        """
        sizes = self._value.type().sizes()
        if sizes is None:
            raise ShapeMissingError(f"the traced graph holds no shape for {self._value.debugName()}")
        return torch.Size(sizes)

    @property
    def dtype(self) -> torch.dtype | None:
        dtype: torch.dtype | None = self._value.type().dtype()
        return dtype

    def is_floating_point(self) -> bool:
        """Are its elements floats? Traced shape arithmetic is integer and costs nothing."""
        return self.dtype is not None and self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype is not None and self.dtype.is_complex


def argument(value: Value) -> Any:
    """An argument of a traced operation as a call has it: a tensor, a constant, or a list of them."""
    kind = value.type().kind()
    if kind == "TensorType":
        return TracedTensor(value)
    if kind == "NoneType":
        return None
    if value.node().kind() == "prim::ListConstruct":
        return [argument(one) for one in value.node().inputs()]
    constant = value.toIValue()
    return RUNTIME if constant is None else constant


def is_shape_arithmetic(node: Any) -> bool:
    """Does a traced operation compute sizes only? In a trace, sizes are tensors of one integer.

    Integers count as sizes, floats only if computed from sizes.
    """
    tensors = [value for value in (*node.inputs(), *node.outputs()) if value.type().kind() == "TensorType"]
    if not tensors or any(value.type().sizes() != [] for value in tensors):
        return False
    if all(value.type().scalarType() == "Long" for value in tensors):
        return True
    return all(_is_of_sizes(value) for value in node.inputs())


def _is_of_sizes(value: Value) -> bool:
    node = value.node()
    if value.type().kind() == "TensorType" and value.type().sizes() != []:
        return False
    if node.kind() in {"prim::Constant", "aten::size", "prim::NumToTensor"}:
        return True
    return node.kind() != "prim::Param" and all(_is_of_sizes(given) for given in node.inputs())


_GLUE: Final = frozenset(
    f"prim::{name}" for name in ["Constant", "NumToTensor", "ListUnpack", "TupleUnpack", "TupleIndex", "data"]
)


def is_glue(node: Any) -> bool:
    """Does the node only pack or unpack values?

    Other nodes in torch's own namespace are work if they return a tensor or have a body (a call, a loop, a branch of
    scripted code, an autograd function).
    """
    kind = node.kind()
    if not kind.startswith("prim::") or next(node.blocks(), None) is not None:
        return False
    return kind in _GLUE or all(value.type().kind() != "TensorType" for value in node.outputs())


Handle = Callable[[list[Value], list[Value]], Costs]


class ModuleCosts(NamedTuple):
    """The costs of one module, without its children."""

    params: int
    macs: int
    flops: int
    comparisons: int
    moved: int
    cached: int
    leaf: bool


class Traced(NamedTuple):
    """The costs of a traced model. Its text says first whether the totals are complete."""

    modules: dict[str, ModuleCosts]
    """Dotted module path -> own costs; the model itself is ""."""
    unsupported: dict[str, int]
    """Operations without a handle, with how often they ran. Nothing of theirs is counted."""
    uncalled: tuple[str, ...] = ()
    """Modules with parameters that were never called, and none of whose parameters any operation used."""

    @property
    def complete(self) -> bool:
        """Is all work counted? If not, totals are lower bounds."""
        return not self.unsupported

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole model."""
        return sum(module.macs for module in self.modules.values())

    @property
    def flops(self) -> int:
        """FLOPs of the whole model by the written convention."""
        return sum(module.flops for module in self.modules.values())

    @property
    def params(self) -> int:
        """Parameters of the whole model, shared ones once."""
        return sum(module.params for module in self.modules.values())

    def __str__(self) -> str:
        bound = "" if self.complete else "at least "
        lines = [f"{bound}{self.macs:,} MACs, {bound}{self.flops:,} FLOPs; {self.params:,} parameters"]
        if self.unsupported:
            names = (f"{name} ({times:,}×)" for name, times in self.unsupported.items())
            lines.append(f"not counted, because no handle is known: {', '.join(names)}")
        if self.uncalled:
            lines.append(f"never called: {', '.join(self.uncalled)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def trace(model: nn.Module, inputs: tuple[Tensor, ...]) -> Traced:
    """One trace of `model(*inputs)`, counted by module. The model is left unchanged.

    Raises:
        UsageError: an input is no tensor, or torch's tracer fails on the module.
    """
    check_inputs(inputs)
    unsupported, used = Counter[str](), set[str]()
    with ExitStack() as stack:
        stack.enter_context(collector_paused())
        stack.enter_context(no_compiler())
        stack.enter_context(tracer_may_refuse(model, inputs))
        stack.enter_context(unchanged(model))
        stack.enter_context(handed_to_numpy(unsupported))
        stack.enter_context(_every_result_read(model, used))
        if any(tensor.is_meta for tensor in inputs):
            stack.enter_context(traceable_meta())
        stack.enter_context(torch.no_grad())
        analysis = _Analysis(model, tuple(tensor.detach().clone() for tensor in inputs))
        counts, named = analysis.by_module_and_operator(), dict(model.named_modules())
        params = Counter[str]()
        for name, parameter in model.named_parameters():  # one of several modules counts for the first
            params[name.rpartition(".")[0]] += parameter.numel()
    for name in {analysis.canonical_module_name(name) for name in named}:
        unsupported += analysis.unsupported_ops(name)
        unsupported += Counter({key: times for key, times in counts[name].items() if key not in MEASURED})
    modules = {}
    for name, module in named.items():
        work = {quantity: counts[name][quantity] for quantity in MEASURED if quantity not in {"params", "cached"}}
        cached = sum(buffer.numel() for buffer in module.buffers(recurse=False)) if isinstance(module, Cache) else 0
        modules[name] = ModuleCosts(params[name], **work, cached=cached, leaf=next(module.children(), None) is None)
    uncalled = analysis.uncalled_modules() - used
    unused = tuple(name for name, costs in modules.items() if costs.params and name in uncalled)
    return Traced(modules, dict(sorted(unsupported.items())), unused)


def _handle(kind: str, formula: Formula) -> Handle:
    """What fvcore calls for a node: its costs, or its name if it can't be counted; nothing for shape arithmetic."""

    def count(inputs: list[Value], outputs: list[Value]) -> Costs:
        if is_shape_arithmetic(outputs[0].node()):
            return Counter()
        args, result = tuple(map(argument, inputs)), tuple(map(argument, outputs))
        try:
            costs = formula(args, result if len(result) > 1 else result[0])
        except ShapeMissingError:
            return Counter({f"{kind} without a shape": 1})
        is_complex = any(isinstance(one, TracedTensor) and one.is_complex() for one in (*args, *result))
        return Counter({f"{kind} of complex numbers" if is_complex else kind: 1}) if costs is None else costs

    return count


@cache
def _parts(kind: str) -> Handle | None:
    """A handle of a composite operation without a formula: its parts are counted, as they run on `meta`."""
    packet = None if kind in FREE else getattr(torch.ops.aten, kind.removeprefix("aten::"), None)
    overloads = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
    composite = [func for func in overloads if can_decompose(func)]

    def count(args: tuple[Any, ...], result: Any) -> Costs | None:
        func = next((func for func in composite if len(schema_of(func).arguments) == len(args)), None)
        if func is None or RUNTIME in args:
            return None
        declared, recorder = schema_of(func).arguments, Recorder()
        try:
            given = pytree.tree_map_only(
                TracedTensor, lambda one: torch.empty(one.shape, dtype=one.dtype, device="meta"), args
            )
            keywords = {one.name: arg for one, arg in zip(declared, given, strict=True) if one.kwarg_only}
            with recorder:
                func(*given[: len(given) - len(keywords)], **keywords)
        except (RuntimeError, NotImplementedError, ShapeMissingError):  # its parts depend on numbers
            return None
        costs = [call.costs for call in recorder.run.calls]
        return None if None in costs else sum((one for one in costs if one), Counter())

    return _handle(kind, count) if composite else None


class _Handles(dict[str, Handle]):
    """By operation; those of composite ones are made when they are met."""

    def __contains__(self, kind: object) -> bool:
        return super().__contains__(kind) or _parts(str(kind)) is not None

    def __missing__(self, kind: str) -> Handle:
        found = _parts(kind)
        if found is None:
            raise KeyError(kind)
        return found


# A graph doesn't show the packed weights of quantised operations.
_HANDLES: Final = _Handles({kind: _handle(kind, formula) for kind, formula in COSTS.items()})


class _Analysis(JitModelAnalysis):  # type: ignore[misc]
    """fvcore's analysis with our handles; an operation belongs only to the module that runs it."""

    def __init__(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        super().__init__(model, inputs)
        self._op_handles = _HANDLES
        self.unsupported_ops_warnings(enabled=False)
        self.uncalled_modules_warnings(enabled=False)
        self.tracer_warnings("none")

    def _should_ignore_node(self, node: Any) -> bool:
        """Replaces fvcore's rule, which silently skips arithmetic, calls, loops and branches."""
        return node.kind() in FREE or is_glue(node) or is_shape_arithmetic(node)

    def _get_all_ancestors(self, module_name: str) -> set[str]:
        return {self.canonical_module_name(module_name)}


@contextmanager
def _every_result_read(model: nn.Module, used: set[str]) -> Iterator[None]:
    """Return unused results from each call too, because the tracer drops what no output needs.

    Writes to caches are unused results, and so is any wasted work. `used` collects the names of modules whose
    parameters an operation took.
    """

    def read(_: nn.Module, inputs: Any, __: Any) -> Any:
        for name, module in model.named_modules():
            if any(traced_value(parameter).uses() for parameter in module.parameters(recurse=False)):
                used.add(name)
        graph = trace_graph()
        for node in [node for node in _all_nodes(graph) if not node.hasUses()]:
            for value in node.outputs():
                if value.type().kind() == "TensorType":
                    graph.registerOutput(value)
        return inputs  # instead of an output that the tracer may not accept: everything is read already

    hook = model.register_forward_hook(read)
    try:
        yield
    finally:
        hook.remove()


def _all_nodes(block: Any) -> Iterator[Any]:
    """The nodes of a block and of its inner blocks: while a trace runs, each called module has one."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _all_nodes(inner)


def traced_rows(
    model: nn.Module, inputs: tuple[Tensor, ...], rows: dict[str, str], stands_for: Mapping[str, int] = ALL
) -> tuple[list[Operation], list[str]]:
    """The traced account of a model built from a spec: rows by path, and texts about other findings.

    `rows` maps the path of a component's module to the path of its row. Findings are differences between repeated
    blocks, work outside a leaf, and unsupported operations.
    """
    traced = trace(model, inputs)
    loose = [
        f"{operation} ran {times} time(s), and no handle is known" for operation, times in traced.unsupported.items()
    ]
    costs = {
        name: {quantity: getattr(each, quantity) for quantity in MEASURED} for name, each in traced.modules.items()
    }
    found, outside = rows_by_path(costs, leaf_rows(model, rows), stands_for)
    return found, [*loose, *outside]
