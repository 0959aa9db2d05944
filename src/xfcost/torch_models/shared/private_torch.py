"""Every private name of torch that this project uses; no other file touches one.

torch may rename a private name in any release. `NAMES` says which versions were seen to have each one, and what is
missing without it: a `VersionError` says so where the name is used. Names of ATen operations (`aten._softmax`) are
looked up in `aten_operation`: of one that a version lacks, nothing is counted, because nothing runs.

Read, and not listed in `NAMES` because Python gives no error where they are missing:
`__dynamo_disable` (`compiler_wrapper`), the names of two inner functions (`HIGHER_ORDER_WRAPPERS`) and the packages of
the compiler (`is_compiler_error`).
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from types import FunctionType
from typing import Any, Final
from unittest.mock import patch

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from xfcost.ledger.errors import VersionError
from xfcost.ledger.tested import TESTED, LibraryName, names_of

OLDEST, NEWEST = TESTED["torch"]

try:
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
except ImportError as error:
    raise VersionError(
        f"torch {torch.__version__} lacks what every run of a model needs ({error}); install torch {OLDEST} to {NEWEST}"
    ) from None

__all__ = ["disable_current_modes", "pytree"]

_name = names_of("torch")
_RUN: Final = "a model can't be run"
_TRACE: Final = "a model can't be traced"
_CONVOLUTION: Final = "a model with convolutions can't be traced"
_OWNERS: Final = "the operations of a backward pass can't be attributed to modules"
_IDENTITY: Final = "memory that tensors share can't be told apart"
_SPARSE: Final = "sparse tensors can't be counted"
_STAND_IN: Final = "a model can't be run on copies of its parameters"
_CHECKPOINTS: Final = "what a model's own checkpoints hold while they run again can't be counted"
_SLOWER: Final = "nothing: a run on `meta` imports torch's compiler, which takes about a second"
_COMPILED: Final = "a compiled model can't be run as it was written"
NAMES: Final[dict[str, LibraryName]] = {
    "torch.utils._pytree": _name(_RUN),
    "torch.utils._python_dispatch.TorchDispatchMode": _name(_RUN),
    "torch.utils._python_dispatch._disable_current_modes": _name(_RUN),
    "torch._ops.OpOverload._can_decompose": _name(_RUN),
    "torch._ops.OpOverload._schema": _name(_RUN),
    "torch._subclasses.fake_tensor.FakeTensorMode": _name("a model can't be run without its numbers"),
    "torch._C._get_tracing_state": _name(_TRACE),
    "torch._C._get_value_trace": _name(_TRACE),
    "torch._convolution": _name(_CONVOLUTION),
    "torch._meta_registrations.meta_conv": _name(_CONVOLUTION),
    "torch.library.Library._destroy": _name("a kernel of `meta` can't be replaced for a while"),
    "torch._C._current_autograd_node": _name(_OWNERS),
    "torch._C._autograd._get_sequence_nr": _name(_OWNERS),
    "torch.autograd.graph.Node._sequence_nr": _name(_OWNERS),
    "torch.autograd.graph._engine_run_backward": _name("a backward pass can't be recorded"),
    "torch.utils.checkpoint._checkpoint_without_reentrant_generator": _name(_CHECKPOINTS),
    "torch._disable_dynamo": _name(_SLOWER),
    "torch.utils._python_dispatch.TorchDispatchMode._should_skip_dynamo": _name(_SLOWER),
    "torch.UntypedStorage._cdata": _name(_IDENTITY),
    "torch.Tensor._base": _name("what a view is a view of can't be found"),
    "torch.Tensor._is_view": _name("what a view is a view of can't be found"),
    "torch.Tensor._version": _name("that a run leaves a model's parameters as they were can't be checked"),
    "torch.Tensor._indices": _name(_SPARSE),
    "torch.Tensor._values": _name(_SPARSE),
    "torch.Tensor._nnz": _name(_SPARSE),
    "torch.nn.Module._modules": _name(_STAND_IN),
    "torch.nn.Module._compiled_call_impl": _name(_COMPILED),
    "torch._dynamo.eval_frame.OptimizedModule._orig_mod": _name(_COMPILED),
}


def _missing(path: str) -> VersionError:
    return VersionError(
        f"torch {torch.__version__} has no {path}, which torch {NAMES[path].since} to {NAMES[path].until} have: "
        f"{NAMES[path].without}; install one of these versions"
    )


@cache
def _private(path: str) -> Any:
    """The function or class at `path`."""
    value: Any = torch
    for name in path.split(".")[1:]:
        value = getattr(value, name, None)
        if value is None:
            raise _missing(path)
    return value


def _attribute(value: Any, path: str) -> Any:
    """The attribute of an instance that `path` ends with."""
    try:
        return getattr(value, path.rpartition(".")[2])
    except AttributeError:
        raise _missing(path) from None


# --- the dispatcher and its operations


class DispatchMode(TorchDispatchMode):
    """A dispatch mode that torch calls without its compiler, which it would import: that takes a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Absent:
    """An operation that this version of torch lacks: in a table it stands for nothing that runs."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"aten.{self._name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse the call.

        Raises:
            VersionError: always.
        """
        raise VersionError(f"torch {torch.__version__} has no operation aten::{self._name}")


def aten_operation(name: str) -> Any:
    """`torch.ops.aten.NAME`, or what no call equals where this version of torch lacks it."""
    return getattr(torch.ops.aten, name, None) or _Absent(name)


def aten_operations(names: str) -> list[Any]:
    """Operations by their names, separated by spaces."""
    return [aten_operation(name) for name in names.split()]


def torch_files() -> tuple[str, ...]:
    """torch's own source files between a model's call and the dispatcher."""
    operation = type(torch.ops.aten.mm.default)
    return inspect.getfile(TorchDispatchMode), inspect.getfile(operation), inspect.getfile(Tensor.backward)


def schema_of(func: Any) -> Any:
    """The arguments and results that an operation declares."""
    return _attribute(func, "torch._ops.OpOverload._schema")


def can_decompose(func: Any) -> bool:
    """Has torch a decomposition of this operation? Higher-order operators have none."""
    if not isinstance(func, type(torch.ops.aten.mm.default)):
        return False
    try:
        return bool(_attribute(func, "torch._ops.OpOverload._can_decompose")())
    except RuntimeError:  # the dispatcher lacks the interpreter's own operations: prim's, and aten::dim in torch 2.11
        return False


def fake_tensor_mode() -> Any:
    """A mode in which tensors have shapes and devices, and no numbers; real tensors may be among them."""
    return _private("torch._subclasses.fake_tensor.FakeTensorMode")(allow_non_fake_inputs=True)


# What torch logs while a fake run fails.
FAKE_TENSOR_LOGGER: Final = "torch._subclasses.fake_tensor"


@contextmanager
def replaced_kernels(key: str, kernels: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Replace kernels of ATen operations under a dispatch key.

    Python kernels of torch itself may be replaced since 2.13 without a word; in 2.11 and 2.12 `allow_override` says so.
    """
    of_torch: dict[str, Callable[..., Any]] = {}
    for name in kernels:
        operation = getattr(torch.ops.aten, name, None)
        own = {each.name: kernel for each, kernel in operation.default.py_kernels.items()} if operation else {}
        of_torch |= {name: own[key]} if key in own else {}
    replaced = _registered(key, kernels)
    try:
        yield
    finally:
        replaced()
        # under a dispatch mode torch calls the Python kernel that was registered last, although it was taken back
        _registered(key, of_torch)()


def _registered(key: str, kernels: dict[str, Callable[..., Any]]) -> Callable[[], None]:
    """Register the kernels; what is returned takes them back."""
    library = torch.library.Library("aten", "IMPL", key)
    said = {"allow_override": True} if "allow_override" in inspect.signature(library.impl).parameters else {}
    restore: Callable[[], None] = _attribute(library, "torch.library.Library._destroy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the overridden kernel
        for name, kernel in kernels.items():
            library.impl(name, kernel, **said)
    return restore


# --- traces


def trace_graph() -> Any:
    """The graph of the running trace, before anything is dropped of it."""
    return _private("torch._C._get_tracing_state")().graph()


def traced_value(tensor: Tensor) -> Any:
    """What stands for `tensor` in the graph of the running trace."""
    return _private("torch._C._get_value_trace")(tensor)


def plain_convolution(*args: Any) -> Tensor:
    """A convolution as the one operation that a trace records."""
    return _private("torch._convolution")(*args, False, False, False, False)


def convolution_shape(*args: Any) -> Tensor:
    """A convolution's result on `meta`."""
    return _private("torch._meta_registrations.meta_conv")(*args)


# --- backward passes


def running_node() -> int | None:
    """The number of the autograd node that runs now, if one does."""
    node = _private("torch._C._current_autograd_node")()
    return None if node is None else node_number(node)


def learning_parameter() -> Any:
    """The parameter whose gradient the autograd node that runs now adds up, if it does that."""
    return getattr(_private("torch._C._current_autograd_node")(), "variable", None)


def node_number(node: Any) -> int:
    """The number of an autograd node: they are numbered as they are made."""
    return int(_attribute(node, "torch.autograd.graph.Node._sequence_nr")())


def next_node() -> int:
    """The number that the next autograd node gets."""
    return int(_private("torch._C._autograd._get_sequence_nr")())


def run_backward(outputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> None:
    """The backward pass. `torch.autograd.backward` would turn every TorchFunctionMode off while it runs."""
    run = _private("torch.autograd.graph._engine_run_backward")
    run(outputs, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True)


# --- the compiler

# The functions that torch compiles for `torch.cond` and `while_loop`, and that call the operator itself.
# Under other names the operators are compiled, and a module that uses them can't be counted.
HIGHER_ORDER_WRAPPERS: Final = ("_cond_op_wrapper", "_while_loop_op_wrapper")


def compiler_wrapper() -> Any:
    """The code of torch's wrapper of a function that the compiler skips; None without it.

    It imports the compiler unless the attribute `__dynamo_disable` of the function holds what to call.
    """
    wrap = getattr(torch, "_disable_dynamo", None)
    return None if wrap is None else wrap(lambda: None).__code__


def compiler_is_loaded() -> bool:
    """Was torch's compiler imported? It is not imported for this: that takes seconds."""
    return "torch._dynamo" in sys.modules


def is_compiler_error(error: BaseException) -> bool:
    """Did torch's compiler fail?"""
    return type(error).__module__.startswith(("torch._dynamo.", "torch._inductor."))


def is_compiled(module: nn.Module) -> bool:
    """Is it the result of torch.compile?"""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    return compiler is not None and isinstance(module, compiler.OptimizedModule)


def original(compiled: nn.Module) -> nn.Module:
    """What `torch.compile` was given."""
    return _attribute(compiled, "torch._dynamo.eval_frame.OptimizedModule._orig_mod")


def is_compiled_in_place(module: nn.Module) -> bool:
    """Was its `.compile()` called?"""
    return _attribute(module, "torch.nn.Module._compiled_call_impl") is not None


def as_written(module: nn.Module) -> None:
    """Undo its `.compile()`."""
    if is_compiled_in_place(module):
        vars(module)["_compiled_call_impl"] = None


# --- tensors and modules


def leaves_with_paths(value: Any) -> list[tuple[str, Any]]:
    """Every leaf of a structure with the way to it: `['keys'][0]`.

    Outputs of transformers are read as dictionaries: releases before 5 registered them without their keys.
    """
    found = []
    for path, leaf in pytree.tree_flatten_with_path(value, is_leaf=_is_output)[0]:
        inner = leaves_with_paths(dict(leaf.items())) if _is_output(leaf) else [("", leaf)]
        found += [(pytree.keystr(path) + name, one) for name, one in inner]
    return found


def _is_output(value: Any) -> bool:
    return isinstance(value, dict) and any(one.__name__ == "ModelOutput" for one in type(value).__mro__)


def storage_identity(storage: torch.UntypedStorage) -> int:
    """Equal for two storages of the same memory, on `meta` too."""
    return _attribute(storage, "torch.UntypedStorage._cdata")


def base_of(tensor: Tensor) -> Tensor | None:
    """The tensor that `tensor` is a view of, if it is one."""
    is_view = _attribute(tensor, "torch.Tensor._is_view")()
    return _attribute(tensor, "torch.Tensor._base") if is_view else None


def times_written(tensor: Tensor) -> int:
    """How often a tensor was written in place."""
    return _attribute(tensor, "torch.Tensor._version")


def sparse_parts(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The indices and values of a COO tensor; the public methods refuse what is not coalesced."""
    return _attribute(tensor, "torch.Tensor._indices")(), _attribute(tensor, "torch.Tensor._values")()


def elements_stored(tensor: Tensor) -> int:
    """How many elements, or dense blocks of them, a sparse tensor stores."""
    return _attribute(tensor, "torch.Tensor._nnz")()


def children_of(module: nn.Module) -> dict[str, nn.Module | None]:
    """A module's own modules, to be replaced."""
    return _attribute(module, "torch.nn.Module._modules")


_WRAPPER: Final = compiler_wrapper()
# Of a function that is wrapped so: what to call.
_TO_CALL: Final = "__dynamo_disable"


@contextmanager
def no_compiler() -> Iterator[None]:
    """Let torch's wrappers call their functions without the compiler."""
    functions = [function for function in _wrapped() if not hasattr(function, _TO_CALL)]
    for function in functions:
        setattr(function, _TO_CALL, function)
    try:
        yield
    finally:
        for function in functions:
            delattr(function, _TO_CALL)


@contextmanager
def without_checkpoints(region: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """While it lasts `torch.utils.checkpoint` saves all that its function saves, and calls it inside a `region`."""
    _private("torch.utils.checkpoint._checkpoint_without_reentrant_generator")

    def around(*given: Any, **more: Any) -> Iterator[None]:
        with region():
            yield

    class Function:
        @staticmethod
        def apply(function: Callable[..., Any], preserves_state: bool, *args: Any) -> Any:
            with region():
                return function(*args)

    replaced: dict[str, Any] = {"_checkpoint_without_reentrant_generator": around, "CheckpointFunction": Function}
    with patch.multiple(torch.utils.checkpoint, **replaced):
        yield


@functools.cache
def _wrapped() -> frozenset[Any]:
    """The functions that torch has wrapped so far; the search through all objects takes tens of milliseconds."""
    if _WRAPPER is None:
        return frozenset()
    place = _WRAPPER.co_freevars.index("fn")
    wrappers = [each for each in gc.get_referrers(_WRAPPER) if isinstance(each, FunctionType)]
    return frozenset(wrapper.__closure__[place].cell_contents for wrapper in wrappers if wrapper.__closure__)


# Whether objects are hidden from the collector; to count millions, as in a session of tests, takes 0.1 s every time.
_HIDDEN: Final = set[str]()


@contextmanager
def collector_passes_over() -> Iterator[None]:
    """Let the garbage collector pass over all that is there already: with torch, a look at it takes 0.3 s.

    Not where a caller has hidden objects from it: afterwards they could not be told apart from those of here.
    """
    _wrapped()  # it does not find what is passed over
    if not _HIDDEN and gc.get_freeze_count():
        _HIDDEN.add("by a caller")
    if _HIDDEN:
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
