"""The traced account: fvcore over a real torch model, on `meta` if it stands there.

`trace` takes any nn.Module with example inputs. It reads shapes from the traced graph, never from a spec; only
`traced_rows` knows that a module stands for a row.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from fvcore.nn.jit_analysis import JitModelAnalysis
from torch import Tensor, nn

from xfcost.ledger import MEASURED, Operation
from xfcost.live.decoding.kept import Kept
from xfcost.live.graph import is_shape_arithmetic
from xfcost.live.handles import COUNTED, FREE
from xfcost.live.meta import traceable_meta
from xfcost.live.rows import rows_by_path


class ModuleCosts(NamedTuple):
    """What one module did itself, without its children."""

    params: int
    macs: int
    flops: int
    comparisons: int
    moved: int
    cached: int
    leaf: bool


class Traced(NamedTuple):
    """A model as its trace tells it."""

    modules: dict[str, ModuleCosts]
    """Dotted module path -> own costs; the model itself is ""."""
    unsupported: dict[str, int]
    """Operations that no handle knows, with how often they ran. Nothing of theirs is counted."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole model."""
        return sum(module.macs for module in self.modules.values())

    @property
    def flops(self) -> int:
        """FLOPs of the whole model, by the written convention."""
        return sum(module.flops for module in self.modules.values())

    @property
    def params(self) -> int:
        """Parameters of the whole model, shared ones once."""
        return sum(module.params for module in self.modules.values())


def trace(model: nn.Module, inputs: tuple[Tensor, ...]) -> Traced:
    """One trace of `model(*inputs)`, counted module by module.

    Raises:
        ValueError: the graph lacks a shape.
    """
    analysis = _Analysis(model, inputs)
    with ExitStack() as stack:
        stack.enter_context(_collector_paused())
        stack.enter_context(_past_given(model))
        if any(tensor.is_meta for tensor in inputs):
            stack.enter_context(traceable_meta())
        stack.enter_context(torch.no_grad())
        counts = analysis.by_module_and_operator()
    unsupported = Counter[str]()
    for name in {analysis.canonical_module_name(name) for name, _ in model.named_modules()}:
        unsupported += analysis.unsupported_ops(name)
        unsupported += Counter({key: times for key, times in counts[name].items() if key not in MEASURED})
    modules = {}
    for name, module in model.named_modules():
        own = counts[name]
        params = sum(parameter.numel() for parameter in module.parameters(recurse=False))
        work = {quantity: own[quantity] for quantity in MEASURED if quantity not in {"params", "cached"}}
        cached = sum(kept.numel() for kept in module.buffers(recurse=False)) if isinstance(module, Kept) else 0
        modules[name] = ModuleCosts(params, **work, cached=cached, leaf=next(module.children(), None) is None)
    return Traced(_shared_params_once(model, modules), dict(unsupported))


class _Analysis(JitModelAnalysis):  # type: ignore[misc]
    """fvcore's analysis with our handles; an operation belongs to the module that ran it, and to that one alone."""

    def __init__(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        super().__init__(model, inputs)
        self._ignored_ops = set(FREE)
        self.set_op_handle(**COUNTED)
        self.unsupported_ops_warnings(enabled=False)
        self.uncalled_modules_warnings(enabled=False)
        self.tracer_warnings("none")

    def _should_ignore_node(self, node: Any) -> bool:
        return super()._should_ignore_node(node) or is_shape_arithmetic(node)

    def _get_all_ancestors(self, module_name: str) -> set[str]:
        return {self.canonical_module_name(module_name)}


def _shared_params_once(model: nn.Module, modules: dict[str, ModuleCosts]) -> dict[str, ModuleCosts]:
    """A parameter that two modules own is counted at the first."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        twice = 0
        for parameter in module.parameters(recurse=False):
            twice += parameter.numel() if id(parameter) in seen else 0
            seen.add(id(parameter))
        if twice:
            modules[name] = modules[name]._replace(params=modules[name].params - twice)
    return modules


@contextmanager
def _past_given(model: nn.Module) -> Iterator[None]:
    """What is kept for tokens to come leaves the call too: nothing else in it need ask for what it writes there."""
    kept = [module for module in model.modules() if isinstance(module, Kept)]

    def given(_: nn.Module, __: Any, answer: Any) -> Any:
        return answer, [buffer for module in kept for buffer in module.buffers(recurse=False)]

    hook = model.register_forward_hook(given) if kept else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A trace only makes objects that it keeps; looking for garbage among them costs a few percent."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def traced_rows(
    model: nn.Module, inputs: tuple[Tensor, ...], rows: dict[str, str]
) -> tuple[list[Operation], list[str]]:
    """The traced account of a built spec: rows by path, and what no row owns.

    `rows` maps the path of a mechanism's module to the path of its row. What differs between repeated blocks, stands
    outside a leaf or is unsupported comes as text.
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
