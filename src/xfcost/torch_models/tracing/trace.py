"""The traced account: fvcore over a torch model, usually on `meta`.

`trace` takes any nn.Module with example inputs. It reads shapes from the traced graph, never from a spec; only
`traced_rows` maps modules to rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.accounts import MEASURED
from xfcost.ledger.operation import Operation
from xfcost.torch_models.running.contractions import Costs
from xfcost.torch_models.running.operation_costs import COSTS, FREE
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.running.rows import rows_by_path
from xfcost.torch_models.running.surroundings import handed_to_numpy, unchanged, without_fast_path
from xfcost.torch_models.shared.cache import Cache
from xfcost.torch_models.shared.collector import collector_paused
from xfcost.torch_models.shared.from_fvcore import JitModelAnalysis
from xfcost.torch_models.shared.no_compiler import no_compiler
from xfcost.torch_models.shared.private_torch import can_decompose, pytree, schema_of, trace_graph, traced_value
from xfcost.torch_models.tracing.graph import (
    RUNTIME,
    ShapeMissingError,
    TracedTensor,
    Value,
    argument,
    is_glue,
    is_shape_arithmetic,
)
from xfcost.torch_models.tracing.traceable import check_traceable, traceable_meta, tracer_may_refuse

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
    """Operations that no handle knows, with how often they ran. Nothing of theirs is counted."""
    uncalled: tuple[str, ...] = ()
    """Modules with parameters that were never called, and none of whose parameters any operation used."""

    @property
    def complete(self) -> bool:
        """Is all work counted? If not, totals are lower bounds."""
        return not self.unsupported

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole model, a lower bound unless `complete`."""
        return sum(module.macs for module in self.modules.values())

    @property
    def flops(self) -> int:
        """FLOPs of the whole model by the written convention, a lower bound unless `complete`."""
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
            lines.append(f"not counted, for no handle knows them: {', '.join(names)}")
        if self.uncalled:
            lines.append(f"never called: {', '.join(self.uncalled)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def trace(model: nn.Module, inputs: tuple[Tensor, ...]) -> Traced:
    """One trace of `model(*inputs)`, counted by module. The model is left unchanged.

    Raises:
        UsageError: `model` is no module, an input is no tensor, or a module is one that can't be traced.
    """
    check_traceable(model, inputs)
    unsupported, used = Counter[str](), set[str]()
    analysis = _Analysis(model, tuple(tensor.detach().clone() for tensor in inputs))
    with ExitStack() as stack:
        stack.enter_context(collector_paused())
        stack.enter_context(no_compiler())
        stack.enter_context(tracer_may_refuse(model, inputs))
        stack.enter_context(unchanged(model))
        stack.enter_context(handed_to_numpy(unsupported))
        stack.enter_context(_every_result_read(model, used))
        stack.enter_context(without_fast_path())
        if any(tensor.is_meta for tensor in inputs):
            stack.enter_context(traceable_meta())
        stack.enter_context(torch.no_grad())
        counts = analysis.by_module_and_operator()
    for name in {analysis.canonical_module_name(name) for name, _ in model.named_modules()}:
        unsupported += analysis.unsupported_ops(name)
        unsupported += Counter({key: times for key, times in counts[name].items() if key not in MEASURED})
    params = Counter[str]()
    for name, parameter in model.named_parameters():  # one of several modules counts for the first
        params[name.rpartition(".")[0]] += parameter.numel()
    modules = {}
    for name, module in model.named_modules():
        own = counts[name]
        work = {quantity: own[quantity] for quantity in MEASURED if quantity not in {"params", "cached"}}
        cached = sum(buffer.numel() for buffer in module.buffers(recurse=False)) if isinstance(module, Cache) else 0
        modules[name] = ModuleCosts(params[name], **work, cached=cached, leaf=next(module.children(), None) is None)
    uncalled = analysis.uncalled_modules() - used
    unused = tuple(name for name, costs in modules.items() if costs.params and name in uncalled)
    return Traced(modules, dict(sorted(unsupported.items())), unused)


Count = Callable[[tuple[Any, ...], Any], Costs | None]


def _handle(kind: str, formula: Count) -> Handle:
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
            given = pytree.tree_map(lambda one: one.on_meta() if isinstance(one, TracedTensor) else one, args)
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
_HANDLES: Final = _Handles(
    {kind: _handle(kind, formula) for kind, formula in COSTS.items() if not kind.startswith("quantized")}
)


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
        used.update(name for name, module in model.named_modules() if _parameters_used(module))
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


def _parameters_used(module: nn.Module) -> bool:
    """Did an operation of the running trace take a parameter of the module itself?"""
    parameters = module.parameters(recurse=False)
    return any(traced_value(parameter).uses() for parameter in parameters)


def _all_nodes(block: Any) -> Iterator[Any]:
    """The nodes of a block and of its inner blocks: while a trace runs, each called module has one."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _all_nodes(inner)


def traced_rows(
    model: nn.Module, inputs: tuple[Tensor, ...], rows: dict[str, str]
) -> tuple[list[Operation], list[str]]:
    """The traced account of a model built from a spec: rows by path, and texts about other findings.

    `rows` maps the path of a component's module to the path of its row. Findings are differences between repeated
    blocks, work outside a leaf, and unsupported operations.
    """
    traced = trace(model, inputs)
    loose = [
        f"{operation} ran {times} time(s) and no handle knows it" for operation, times in traced.unsupported.items()
    ]
    leaves = {name for name, costs in traced.modules.items() if costs.leaf}
    costs = {
        name: {quantity: getattr(each, quantity) for quantity in MEASURED} for name, each in traced.modules.items()
    }
    found, outside = rows_by_path(costs, leaves, rows)
    return found, [*loose, *outside]
