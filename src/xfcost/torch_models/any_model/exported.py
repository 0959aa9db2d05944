"""A program of `torch.export` as a module: its graph runs node by node, each in the module that it was exported from.

So operations have the paths that they have in the original, and costs and mixing kinds are found as in any module. What
a program checks about its inputs is left out; their lengths are checked before it runs.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from types import FunctionType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from xfcost.torch_models.any_model.exported_inputs import ExportedInputs
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.running.costs import COMPLETE, OUTER
from xfcost.torch_models.running.surroundings import branch, loop
from xfcost.torch_models.shared.private_torch import pytree, storage_identity

# What a program checks about itself: lengths are checked before it runs, and it may run on another device.
_CHECKS: Final = frozenset((
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size",
))  # fmt: skip
# A module that is called again: `layers.0@1`.
_AGAIN: Final = re.compile(r"@\d+")


def _with_gradients(enabled: bool, body: Callable[..., Any], *args: Any) -> Any:
    return body(*args)


def _with_autocast(device: str, dtype: Any, enabled: bool, cached: Any, body: Callable[..., Any], *args: Any) -> Any:
    with torch.autocast(device, dtype, enabled=enabled, cache_enabled=cached):
        return body(*args)


def _is_in_torch(function: Any) -> bool:
    return getattr(torch, function.__name__, None) is function


# Name of an operation in a graph -> the function that counts as one operation, or that runs what it is given.
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{one.__name__: one for one in (*OUTER, *COMPLETE) if _is_in_torch(one)},
    "fft_rfft": torch.fft.rfft,
    "fft_irfft": torch.fft.irfft,
    "scaled_dot_product_attention": nn.functional.scaled_dot_product_attention,
    "cond": branch,
    "while_loop": loop,
    "wrap_with_set_grad_enabled": _with_gradients,
    "wrap_with_autocast": _with_autocast,
}


class _Part(nn.Module):
    """A module of the original, with its parameters; its operations run in a call of it."""

    def forward(self, run: Callable[[], None]) -> None:
        run()


class ExportedModule(nn.Module):
    """The module that a program was exported from: its parts, its parameters, its graph.

    `exported_module` makes it: its class has the name of the original's, and its forward the program's parameters.
    """

    xfcost_inputs: ExportedInputs
    """Its own example inputs, at any lengths that it was exported for."""

    def __init__(self, program: _Program) -> None:
        super().__init__()
        self._program, flat = program, program.flat
        same: dict[Any, nn.Parameter] = {}
        for name, parameter in flat.named_parameters(remove_duplicate=False):
            # tied ones of a file are two, of the same memory
            memory = (storage_identity(parameter.untyped_storage()), parameter.storage_offset(), parameter.shape)
            tensor = same.setdefault((*memory, parameter.stride()), parameter)
            self._module(name.rpartition(".")[0]).register_parameter(name.rpartition(".")[2], tensor)
        for name, buffer in flat.named_buffers(remove_duplicate=False):
            self._module(name.rpartition(".")[0]).register_buffer(name.rpartition(".")[2], buffer)
        for node in flat.graph.nodes:
            if node.op == "get_attr":
                self._take(flat, str(node.target))
        for path in program.graph.paths():
            self._module(path)
        self.xfcost_inputs = program.inputs

    def _module(self, path: str) -> nn.Module:
        """The part at this path, made where there is none."""
        module: nn.Module = self
        for name in path.split(".") if path else ():
            if not hasattr(module, name):
                module.add_module(name, _Part())
            module = getattr(module, name)
        return module

    def _take(self, flat: nn.Module, name: str) -> None:
        """Take over what the graph reads beside parameters and buffers: constants, and the graphs of branches."""
        path, _, last = name.rpartition(".")
        part, value = self._module(path), _attribute(flat, name)
        if hasattr(part, last):
            return
        if isinstance(value, Tensor):
            part.register_buffer(last, value, persistent=False)
        else:
            setattr(part, last, value)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the program returns for these inputs.

        Raises:
            OwnError: it takes others, or was not exported for their lengths.
        """
        program = self._program
        leaves = program.inputs.leaves(args, kwargs)
        device = next((one.device for one in (*leaves, *self.parameters()) if isinstance(one, Tensor)), None)
        return pytree.tree_unflatten(
            pytree.tree_leaves(self._run(program.graph, self, device, *leaves)), program.returned
        )

    def _run(self, graph: _Graph, owner: nn.Module, device: torch.device | None, *inputs: Any) -> Any:
        """What a graph returns, the program's or a branch's; `owner` has its constants."""
        values: dict[fx.Node, Any] = dict(zip(graph.placeholders, inputs, strict=True))
        for path, steps in graph.segments:

            def run(steps: Sequence[_Step] = steps) -> None:
                for step in steps:
                    values[step.node] = self._result(step, graph, owner, device, values)
                    for dead in step.dead:
                        values.pop(dead, None)

            part = self.get_submodule(path)
            part(run) if isinstance(part, _Part) else run()
        return _filled(graph.output.args[0], values)

    def _result(
        self, step: _Step, graph: _Graph, owner: nn.Module, device: torch.device | None, values: dict[fx.Node, Any]
    ) -> Any:
        node, name = step.node, str(step.node.target)
        if node.op == "get_attr":
            value = _attribute(owner, name)
            return partial(self._run, graph.bodies[name], value, device) if name in graph.bodies else value
        args, kwargs = _filled(node.args, values), _filled(node.kwargs, values)
        if device is not None and step.names_device:  # it may run on another than it was exported on
            args, kwargs = pytree.tree_map_only(torch.device, lambda _: device, (args, kwargs))
        return step.call(step.function, args, kwargs)


def exported_module(program: ExportedProgram) -> ExportedModule:
    """The module of a program."""
    found = _Program(program)
    own = type(_title(found.flat.graph), (ExportedModule,), {
        "__module__": "torch.export", "forward": _forward_of(found.flat),
    })  # fmt: skip
    return own(found)


class _Step(NamedTuple):
    """A node of the graph, and how it runs."""

    node: fx.Node
    call: Callable[..., Any]
    """Calls the function from a place of its own: the place of a call tells operations apart."""
    function: Any
    dead: tuple[fx.Node, ...]
    """The values that nothing reads after it."""
    names_device: bool
    """Is a device among its arguments?"""


class _Program:
    """A program: its module without a tree, its graph, its inputs, the structure of what it returns."""

    def __init__(self, program: ExportedProgram) -> None:
        self.flat = program.module(check_guards=False)
        self.graph = _Graph(self.flat, Counter())
        args, kwargs = program.example_inputs or ((), {})
        names = list(inspect.signature(self.flat.forward).parameters)
        made = [node.meta.get("val") for node in self.graph.placeholders]
        self.inputs = ExportedInputs(Given(tuple(args), dict(kwargs)), names, made, dict(program.range_constraints))
        self.returned = program.call_spec.out_spec

    def __deepcopy__(self, memo: Any) -> _Program:
        """Itself: copies of the module have parameters of their own, and share the graph."""
        return self


class _Graph:
    """A graph, in segments of nodes of one module; and the graphs of its branches."""

    def __init__(self, module: fx.GraphModule, numbers: Counter[str]) -> None:
        nodes = list(module.graph.nodes)
        self.placeholders = [node for node in nodes if node.op == "placeholder"]
        self.output: fx.Node = next(node for node in nodes if node.op == "output")
        run = [node for node in nodes if node.op in ("get_attr", "call_function") and _name(node) not in _CHECKS]
        last = {read: node for node in (*run, self.output) for read in node.all_input_nodes}
        dead: dict[fx.Node, list[fx.Node]] = {}
        for read, node in last.items():
            dead.setdefault(node, []).append(read)
        self.segments = [
            (path, [self._step(node, numbers, dead.get(node, ())) for node in several])
            for path, several in groupby(run, _path)
        ]
        self.bodies = {
            str(node.target): _Graph(body, numbers)
            for node in run if node.op == "get_attr" and all(_name(user) in _FUNCTIONS for user in node.users)
            if isinstance(body := _attribute(module, str(node.target)), fx.GraphModule)
        }  # fmt: skip

    def paths(self) -> Iterator[str]:
        """Those of the modules in which its nodes run."""
        yield from (path for path, _ in self.segments)
        for body in self.bodies.values():
            yield from body.paths()

    @staticmethod
    def _step(node: fx.Node, numbers: Counter[str], dead: Sequence[fx.Node]) -> _Step:
        path = _path(node)
        numbers[path] += 1
        # the first operations of two layers have one place, as if one line of their class had called both
        call = _call_from(_kind(node), numbers[path])
        names_device = any(isinstance(one, torch.device) for one in pytree.tree_leaves((node.args, node.kwargs)))
        return _Step(node, call, _FUNCTIONS.get(_name(node), node.target), tuple(dead), names_device)


def _filled(given: Any, values: dict[fx.Node, Any]) -> Any:
    return fx.node.map_arg(given, values.__getitem__)


def _attribute(module: nn.Module, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _name(node: fx.Node) -> str:
    """`linear` of `aten.linear.default`; of another library with its name, `mylib::linear`."""
    name = getattr(getattr(node.target, "overloadpacket", node.target), "__name__", str(node.target))
    namespace = getattr(node.target, "namespace", "aten")
    return name if namespace in ("aten", "higher_order") else f"{namespace}::{name}"


def _stack(node: fx.Node) -> list[tuple[str, Any]]:
    """The running modules, outermost first: their paths and classes."""
    return list(node.meta.get("nn_module_stack", {}).values())


def _path(node: fx.Node) -> str:
    stack = _stack(node)
    path = _AGAIN.sub("", stack[-1][0]) if stack else ""
    return path if all(part.isidentifier() or part.isdecimal() for part in path.split(".")) else ""


def _kind(node: fx.Node) -> str:
    stack = _stack(node)
    kind = stack[-1][1] if stack else ""
    return kind if isinstance(kind, str) else kind.__qualname__


def _title(graph: fx.Graph) -> str:
    """The class of the original, which every other module is in."""
    first = next((kind for node in graph.nodes for path, kind in _stack(node)[:1] if not path), "")
    name = (first if isinstance(first, str) else first.__qualname__).rpartition(".")[2]
    return name if name.isidentifier() else "Program"


def _forward_of(flat: nn.Module) -> Callable[..., Any]:
    """A forward with the parameters of the program's."""

    def forward(self: ExportedModule, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(forward)["__signature__"] = inspect.Signature([own, *inspect.signature(flat.forward).parameters.values()])
    return forward


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


@cache
def _call_from(kind: str, number: int) -> Callable[..., Any]:
    """A function that calls another, with a code of its own for each number in a class of modules."""
    code = _call.__code__.replace(co_filename="<exported program>", co_name=kind, co_firstlineno=number)
    return FunctionType(code, {})
