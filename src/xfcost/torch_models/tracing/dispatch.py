"""The dispatched account: each ATen operation that a torch model runs, seen by torch's dispatcher.

A graph contains only what its result needs, and shows a loop as one node. The dispatcher sees all operations, also
those with unused results, and each step of a loop. Nothing is allocated on `meta`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from xfcost.ledger.accounts import RUN
from xfcost.ledger.operation import Operation
from xfcost.torch_models.shared.private_torch import TorchDispatchMode, disable_current_modes
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.shared.running_modules import running_modules
from xfcost.torch_models.tracing.dispatch_costs import costs_of
from xfcost.torch_models.tracing.dispatch_functions import WHOLE
from xfcost.torch_models.tracing.elementwise_costs import Costs
from xfcost.torch_models.tracing.meta import quick_layer_norm
from xfcost.torch_models.tracing.outside import handed_to_numpy
from xfcost.torch_models.tracing.rows import rows_by_path

# Longer loops run only a few steps. Each further step is assumed to cost as much as the last one run.
MOST_STEPS: Final = 64
_FEW: Final = 3
_TOKENS_RANK: Final = 3


class Dispatched(NamedTuple):
    """The costs of a model, as seen by the dispatcher."""

    modules: dict[str, Costs]
    """Dotted module path -> the costs of what ran in it, and not in its children; the model itself is ""."""
    unknown: Counter[str]
    """Operations that no table knows, with how often they ran. Nothing of theirs is counted."""


def dispatch(model: nn.Module, inputs: tuple[Any, ...]) -> Dispatched:
    """One forward of `model(*inputs)`; each operation counts for the module that runs it."""
    watch = Watch()
    with ExitStack() as stack:
        if any(isinstance(tensor, Tensor) and tensor.is_meta for tensor in inputs):
            stack.enter_context(quick_layer_norm())
        numpy = handed_to_numpy(watch.unknown)
        for context in (
            running_modules(model, watch.running),
            numpy,
            _Conventions(watch),
            in_few_steps(watch.loop),
            watch,
        ):
            stack.enter_context(context)
        stack.enter_context(torch.no_grad())
        model(*inputs)
    return Dispatched(watch.costs, watch.unknown)


def dispatched_rows(
    model: nn.Module, inputs: tuple[Any, ...], rows: Mapping[str, str]
) -> tuple[list[Operation], list[str]]:
    """The dispatched account of a model built from a spec: rows by path, and work outside all rows.

    `rows` maps the path of a component's module to the path of its row.
    """
    found = dispatch(model, inputs)
    leaves = [name for name, module in model.named_modules() if next(module.children(), None) is None]
    ran = {name: found.modules.get(name, Counter()) for name in dict.fromkeys((*leaves, *found.modules))}
    costs = {name: {quantity: each[quantity] for quantity in RUN} for name, each in ran.items()}
    rows_found, outside = rows_by_path(costs, leaves, rows)
    unknown = [
        f"the dispatcher saw {name} {times} time(s), and no formula knows it" for name, times in found.unknown.items()
    ]
    return rows_found, [*unknown, *outside]


class Watch(TorchDispatchMode):
    """Adds up the costs of all operations, by running module."""

    def __init__(self) -> None:
        super().__init__()
        self.costs: dict[str, Costs] = {}
        self.unknown: Counter[str] = Counter()
        self.running: list[str] = [""]
        self.contractions_alone = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        found = costs_of(func.overloadpacket, args, kwargs or {}, result)
        if found is None:
            self.unknown[str(func.overloadpacket)] += 1
        elif found:
            self.add(_contractions(found) if self.contractions_alone else found)
        return result

    def add(self, costs: Costs) -> None:
        """Add `costs` to the running module."""
        self.costs.setdefault(self.running[-1], Counter()).update(costs)

    def loop(self, loop: Callable[..., Any], shapes: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Count a loop over tokens: all its steps, or a few steps extrapolated to very many."""
        if runs_whole(args):
            return loop(*args)
        steps = args[0].shape[1]
        fewer, more = (self._first_steps(loop, args, number) for number in (_FEW, _FEW + 1))
        self.add(Counter({name: fewer[name] + (more[name] - fewer[name]) * (steps - _FEW) for name in more}))
        return shapes(*args)

    def _first_steps(self, loop: Callable[..., Any], args: tuple[Any, ...], steps: int) -> Costs:
        """The costs of a loop's first `steps` steps."""
        inner = Watch()
        with disable_current_modes(), _Conventions(inner), inner:
            loop(*(first_tokens(arg, steps) for arg in args))
        self.unknown += inner.unknown
        return inner.costs.get("", Counter())


def _contractions(found: Costs) -> Costs:
    return Counter(macs=found["macs"], flops=2 * found["macs"])


def runs_whole(args: tuple[Any, ...]) -> bool:
    """Are a loop's tokens few, or not told, so that all its steps run?"""
    return args[0].ndim != _TOKENS_RANK or args[0].shape[1] <= MOST_STEPS


def first_tokens(arg: Any, steps: int) -> Any:
    """The first tokens of (B, N, …). Tensors without tokens (weights, states) are returned unchanged."""
    return arg[:, :steps] if isinstance(arg, Tensor) and arg.ndim == _TOKENS_RANK else arg


class _Conventions(TorchFunctionMode):
    """Inside a function that counts as one operation by convention, counts only contractions."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        work = WHOLE.get(func)
        if work is None or self.watch.contractions_alone:
            return func(*args, **given)
        self.watch.contractions_alone = True
        try:
            result = func(*args, **given)
        finally:
            self.watch.contractions_alone = False
        self.watch.add(work(args, given, result))
        return result
