"""What is replaced while a model runs, and put back: kernels of `meta`, branches, threads, numpy, random states."""

from __future__ import annotations

import random
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from xfcost.ledger.units import stored_in
from xfcost.torch_models.shared.private_torch import (
    HIGHER_ORDER_WRAPPERS,
    disable_current_modes,
    pytree,
    replaced_kernels,
)

# ── kernels of `meta` ──

_IGNORED: Final = "meta tensors ignore autocast"


@contextmanager
def shapes_on_meta() -> Iterator[None]:
    """On `meta`, layer norms and grouped products return empty tensors of the right shapes.

    torch runs the decomposition of a layer norm in Python, a third of a run's time, with its input's memory format;
    kernels make a contiguous result. Of grouped products torch computes shapes only in bfloat16.
    """
    with replaced_kernels("Meta", {"native_layer_norm": layer_norm, "_grouped_mm": grouped_mm}):
        yield


def torch_dtype(name: str) -> torch.dtype:
    """That of a run's tensors."""
    found: torch.dtype = getattr(torch, stored_in(name))
    return found


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Parameters that are made inside have this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class WithoutPadding(TorchFunctionMode):
    """On `meta`, models that ask whether a mask is full, or padding is among token ids, hear that no token is padding.

    So all elements of any mask are true, none of them is false, and no number is among the ids.
    """

    asked = False
    """Was there a question?"""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if not (args and isinstance(args[0], Tensor) and args[0].is_meta):
            return func(*args, **given)
        if func is Tensor.__contains__:
            self.asked = True
            return False
        if func in (Tensor.__bool__, Tensor.item) and (answer := getattr(args[0], _ANSWER, None)) is not None:
            self.asked = True
            return answer
        result = func(*args, **given)
        if not isinstance(result, Tensor) or result.dim():
            return result
        if (name := getattr(func, "__name__", "").lstrip("_")) in _QUESTIONS:
            setattr(result, _ANSWER, name != "any")
        elif func is Tensor.sum and args[0].dtype is torch.bool:
            setattr(result, _COUNTS, True)
        elif func is Tensor.__eq__ and hasattr(args[0], _COUNTS):  # as many as it has elements
            setattr(result, _ANSWER, True)
        return result


_ANSWER: Final = "_xfcost_answer"
_COUNTS: Final = "_xfcost_counts"
_QUESTIONS: Final = ("all", "is_all_true", "any")


_NUMBERS: Final = "_xfcost_numbers"
_READS: Final = (
    Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__bool__, Tensor.__int__, Tensor.__index__,
)  # fmt: skip
_MADE_OF_NUMBERS: Final = (torch.arange, torch.full, torch.linspace, torch.ones, torch.tensor, torch.zeros)
_TAKE_SIZES: Final = (Tensor.split, Tensor.view, Tensor.reshape, torch.split, torch.reshape)
_MOST_BYTES: Final = 2**23


def with_numbers(numbers: Tensor, device: str) -> Tensor:
    """`numbers` on a device; on `meta` a tensor that keeps them, for `KnownNumbers`."""
    tensor = numbers.to(device)
    if device == "meta":
        setattr(tensor, _NUMBERS, numbers)
    return tensor


def known_numbers(tensors: Iterable[Any], *, made: bool = False) -> AbstractContextManager[Any]:
    """`KnownNumbers` where one of the `tensors` keeps its own, or for those that are `made` inside."""
    return KnownNumbers() if made or any(hasattr(one, _NUMBERS) for one in tensors) else nullcontext()


class KnownNumbers(TorchFunctionMode):
    """On `meta`, whatever follows from numbers only has its numbers too, such as the places of an image's patches.

    Functions of such tensors run on the CPU as well, where no recorder sees them, and are read there.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        tensors = [one for one in pytree.tree_leaves(given) if isinstance(one, Tensor)]
        known = all(_numbers_of(one) is not None for one in tensors) if tensors else func in _MADE_OF_NUMBERS
        if known and func in _READS:
            return self._on_cpu(func, given)
        try:
            args, named = given if known else _with_places(func, given)
            result = func(*args, **named)
        except (NotImplementedError, RuntimeError):
            if not known:
                raise
            return pytree.tree_map_only(Tensor, lambda one: with_numbers(one, "meta"), self._on_cpu(func, given))
        made = [one for one in pytree.tree_leaves(result) if isinstance(one, Tensor) and one.is_meta]
        writes = func is Tensor.__setitem__ or any(one is tensors[0] for one in made if tensors)
        small = all(one.untyped_storage().nbytes() <= _MOST_BYTES for one in made)
        if known and small and (made or writes):
            own = [one for one in pytree.tree_leaves(self._on_cpu(func, given)) if isinstance(one, Tensor)]
            for tensor, numbers in zip(made, own, strict=True):
                setattr(tensor, _NUMBERS, numbers)
        elif writes and hasattr(tensors[0], _NUMBERS):
            delattr(tensors[0], _NUMBERS)
        return result

    @staticmethod
    def _on_cpu(func: Any, given: Any) -> Any:
        def own(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return _numbers_of(leaf)
            return torch.device("cpu") if isinstance(leaf, torch.device) or leaf == "meta" else leaf

        with disable_current_modes():
            args, kwargs = pytree.tree_map(own, given)
            return func(*args, **kwargs)


def _numbers_of(value: Any) -> Tensor | None:
    """None of a tensor on `meta` that keeps none, and of what is no tensor."""
    if not isinstance(value, Tensor):
        return None
    return getattr(value, _NUMBERS, None) if value.is_meta else value


def _with_places(func: Any, given: Any) -> Any:
    """The arguments of a call that looks at numbers on `meta`: bounds as numbers, masks as places that are true."""
    args, kwargs = given
    if func in (torch.repeat_interleave, Tensor.repeat_interleave):
        times = _numbers_of(args[1])
        return args, kwargs if times is None else kwargs | {"output_size": int(times.sum())}
    if func in _TAKE_SIZES:
        return (args[0], *pytree.tree_map(_bound, args[1:])), kwargs
    if func not in (Tensor.__getitem__, Tensor.__setitem__):
        return given
    index: list[Any] = []
    for one in args[1] if isinstance(args[1], tuple) else (args[1],):
        numbers = _numbers_of(one)
        if numbers is not None and numbers.dtype is torch.bool:
            index += [place.to("meta") for place in numbers.nonzero(as_tuple=True)]
        elif isinstance(one, slice):
            index.append(slice(*map(_bound, (one.start, one.stop, one.step))))
        else:
            index.append(one)
    return (args[0], tuple(index), *args[2:]), kwargs


def _bound(value: Any) -> Any:
    numbers = _numbers_of(value)
    return value if numbers is None else int(numbers)


def layer_norm(x: Tensor, normalized_shape: Any, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and the mean and 1/σ of each normalised group, in float32 or wider: shapes only."""
    sizes = (*x.shape[: x.ndim - len(normalized_shape)], *[1] * len(normalized_shape))
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(x.shape), x.new_empty(sizes, dtype=dtype), x.new_empty(sizes, dtype=dtype)


def grouped_mm(left: Tensor, right: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """(G, n, k) · (G, k, m), or with rows, columns or the summed axis cut into groups: shapes only."""
    groups = 0 if offs is None else offs.shape[0]
    sizes = [left.shape[-2], right.shape[-1]]
    if left.ndim == right.ndim:
        sizes = [groups if left.ndim == 2 else left.shape[0], *sizes]  # noqa: PLR2004
    return left.new_empty(sizes, dtype=out_dtype or left.dtype)


@contextmanager
def torch_warnings_hidden() -> Iterator[None]:
    """Hide what torch warns of on a line of xfcost, or of its own dispatch, and not on one of the user.

    So sparse tensors warn that their support is new, and that nothing checks them. A module's own warnings are shown.
    """
    with warnings.catch_warnings():
        for module in (r"xfcost\.", r"torch\.utils\._device"):
            warnings.filterwarnings("ignore", category=UserWarning, module=module)
        yield


@contextmanager
def without_fast_path() -> Iterator[None]:
    """torch runs an encoder in evaluation mode as one operation on nested tensors. An account needs its parts."""
    was_on = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_on)


@contextmanager
def without_autocast() -> Iterator[None]:
    """Refuse the autocast of the CPU by a TypeError, as `meta` ignores it: fake tensors have its dtypes."""
    entered = torch.autocast.__enter__

    def enter(self: torch.autocast) -> Any:
        result = entered(self)
        if torch.is_autocast_enabled("cpu"):
            self.__exit__(None, None, None)
            raise TypeError(_IGNORED)
        return result

    if torch.is_autocast_enabled("cpu"):
        raise TypeError(_IGNORED)
    with patch.object(torch.autocast, "__enter__", enter):
        yield


# ── branches and threads ──


@contextmanager
def plain_branches() -> Iterator[None]:
    """`torch.cond` and `while_loop` as plain Python: the branch that is taken, and every turn, run under the recorder.

    Both call `torch.compile`, and what it returns. On `meta` a predicate has no value: such a run is repeated off it.
    """
    compiled = torch.compile
    plain = dict(zip(HIGHER_ORDER_WRAPPERS, (branch, loop), strict=True))

    def compile_others(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        return plain.get(getattr(model, "__name__", "")) or compiled(model, *args, **kwargs)

    with patch.object(torch, "compile", compile_others):
        yield


def branch(predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], operands: Any) -> Any:
    """`torch.cond` as the branch that is taken."""
    return (if_true if bool(predicate) else if_false)(*operands)


def loop(condition: Callable[..., Any], body: Callable[..., Any], carried: tuple[Any, ...], more: Any) -> Any:
    """`while_loop` as its turns."""
    result: Any = carried
    while bool(condition(*carried, *more)):
        result = body(*carried, *more)
        carried = tuple(pytree.tree_leaves(result))
    return result


# Gives a context in which another thread is recorded; called in the thread that hands the work over.
Recorded = Callable[[], AbstractContextManager[Any]]


@contextmanager
def threads_recorded(recorded: Recorded) -> Iterator[None]:
    """Record what threads do that start inside, or get work inside, for the module that hands it over.

    torch shows the operations of a thread to the modes of that thread alone. Threads that start during a run, and calls
    that go to a `concurrent.futures` pool, get a recorder of their own, which adds to the same operations.
    """
    own, start, submit = threading.get_ident(), threading.Thread.start, ThreadPoolExecutor.submit
    inside: set[int] = set()

    def handed(function: Callable[..., Any]) -> Callable[..., Any]:
        context = recorded()

        def run(*args: Any, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            if thread == own or thread in inside:  # of a pool whose thread has started inside
                return function(*args, **kwargs)
            inside.add(thread)
            try:
                with context:
                    return function(*args, **kwargs)
            finally:
                inside.discard(thread)

        return run

    def started(thread: threading.Thread) -> None:
        vars(thread)["run"] = handed(thread.run)
        start(thread)

    def submitted(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(pool, handed(function), *args, **kwargs)

    with patch.object(threading.Thread, "start", started), patch.object(ThreadPoolExecutor, "submit", submitted):
        yield


# ── numpy ──

TO_NUMPY: Final = "Tensor.numpy (work outside torch is not seen)"


@contextmanager
def handed_to_numpy(found: Counter[str]) -> Iterator[None]:
    """Count conversions of float tensors to numpy in `found`. Integers are indices and sizes and cost nothing.

    `numpy.asarray` calls Tensor.numpy, so it counts too.
    """
    to_numpy, inside = Tensor.numpy, False

    def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:  # a TorchFunctionMode repeats the call
            return to_numpy(tensor, *args, **kwargs)
        if tensor.is_floating_point() or tensor.is_complex():
            found[TO_NUMPY] += 1
        inside = True
        try:
            return to_numpy(tensor, *args, **kwargs)
        finally:
            inside = False

    with patch.object(Tensor, "numpy", counted):  # torch's method is defined in the base class
        yield


# ── random states ──


@contextmanager
def random_states_kept(devices: list[int]) -> Iterator[None]:
    """Restore the random states of torch on the CPU and on `devices`, of Python and of numpy."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - it is the global one that is kept
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
