"""A model runs as it was written, and afterwards is as it was before: tensors, attributes, hooks, what is compiled."""

from __future__ import annotations

import random
import warnings
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from operator import is_
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from xfcost.torch_models.running.process_caches import FOREIGN, process_caches_kept
from xfcost.torch_models.running.record import Lineage, mark
from xfcost.torch_models.running.surroundings import random_states_kept, torch_warnings_hidden, without_fast_path
from xfcost.torch_models.shared.private_torch import (
    as_written,
    children_of,
    compiler_is_loaded,
    is_compiled,
    original,
    times_written,
)

Copy = Callable[[Tensor], Tensor]


def cloned(tensor: Tensor) -> Tensor:
    """A copy; on `meta` there is nothing to copy."""
    return tensor if tensor.is_meta else tensor.detach().clone()


def learning(made: Copy) -> Copy:
    """Copies that require a gradient as what they are copied from does."""

    def copied(tensor: Tensor) -> Tensor:
        own = made(tensor)
        own = own.detach() if own is tensor else own
        return own.requires_grad_(tensor.requires_grad)

    return copied


@contextmanager
def unchanged(model: nn.Module, made: Copy = cloned, shares: Callable[[Tensor], bool] | None = None) -> Iterator[None]:
    """Let `model` run as it was written, then restore its tensors, attributes, hooks and the random states.

    The run works on copies of its tensors, those in its attributes too; each parameter's copy knows its name. A copy
    shares a parameter's memory if `shares` says so, as parameters may fill the memory; without it they stay. No module
    of torch writes to them, but for embedding tables with a maximum norm, which are copied always.

    Warns:
        UserWarning: the model wrote to another parameter. On `meta` there is nothing to write to.
    """
    versions = _versions(model)
    held = list(_holders(model))
    try:
        devices = sorted({one.device.index for one in model.parameters() if one.is_cuda})
        with ExitStack() as stack:
            kept = (random_states_kept(devices), process_caches_kept(model))
            for context in (_uncompiled(model), without_fast_path(), *kept, torch_warnings_hidden()):
                stack.enter_context(context)
            _stand_in(model, held, made, shares)
            yield
    finally:
        for holder, content in held:
            if not _same(holder.contents(), content):
                holder.restore(content)
        written = [name for name, version in _versions(model).items() if version != versions.get(name)]
        if written:
            warnings.warn(
                f"the model changes its own parameters when it runs, and the trace ran it: {written}", stacklevel=2
            )


class _Mapping(NamedTuple):
    """A dictionary, read and written by the methods of its built-in type: those of a subclass may do anything."""

    value: Any
    kind: Any

    def contents(self) -> list[Any]:
        return [*self.kind.keys(self.value), *self.kind.values(self.value)]

    def restore(self, contents: Sequence[Any]) -> None:
        self.kind.clear(self.value)
        for key, value in zip(contents[: len(contents) // 2], contents[len(contents) // 2 :], strict=True):
            self.kind.__setitem__(self.value, key, value)


class _Collection(NamedTuple):
    """A list, set or deque, likewise."""

    value: Any
    kind: Any

    def contents(self) -> list[Any]:
        return list(self.kind.__iter__(self.value))

    def restore(self, contents: Sequence[Any]) -> None:
        self.kind.clear(self.value)
        (set.update if self.kind is set else self.kind.extend)(self.value, contents)


class _Slots(NamedTuple):
    """The attributes of an object that its classes declare in `__slots__`."""

    value: Any
    slots: Sequence[MemberDescriptorType]

    def contents(self) -> list[Any]:
        found: list[Any] = []
        for slot in self.slots:
            try:
                found.append(slot.__get__(self.value))
            except AttributeError:
                found.append(_EMPTY)
        return found

    def restore(self, contents: Sequence[Any]) -> None:
        for slot, before, now in zip(self.slots, contents, self.contents(), strict=True):
            if before is not _EMPTY:
                slot.__set__(self.value, before)
            elif now is not _EMPTY:
                slot.__delete__(self.value)


class _State(NamedTuple):
    """A state that no Python object holds, of a random generator or a buffer: put back after each run."""

    put_back: Callable[[], Any]

    def contents(self) -> list[Any]:
        return [object()]  # never the same

    def restore(self, contents: Sequence[Any]) -> None:
        del contents
        self.put_back()


def _buffer(value: Any) -> Callable[[], Any]:
    return partial(value.__setitem__, slice(None), value[:])


def _elements(value: Any) -> Callable[[], Any]:
    return partial(np.copyto, value, value.copy()) if value.flags.writeable else tuple


_EMPTY: Final = object()
_Holder = _Mapping | _Collection | _Slots | _State
# Exactly these types, as subclasses may do anything, or read a file.
_STATES: Final[dict[type, Callable[[Any], Callable[[], Any]]]] = {
    bytearray: _buffer,
    array: _buffer,
    np.ndarray: _elements,
    random.Random: lambda one: partial(one.setstate, one.getstate()),
    np.random.RandomState: lambda one: partial(one.set_state, one.get_state()),
    np.random.Generator: lambda one: partial(setattr, one.bit_generator, "state", one.bit_generator.state),
    torch.Generator: lambda one: partial(one.set_state, one.get_state()),
}
_KINDS: Final = {OrderedDict: _Mapping, dict: _Mapping, list: _Collection, set: _Collection, deque: _Collection}
_LEAVES: Final = (Tensor, type, ModuleType, FunctionType, MethodType)


def _holders(model: nn.Module) -> Iterator[tuple[_Holder, list[Any]]]:
    """What holds the state of a model: its attributes, containers in them, attributes of other objects in them.

    Each comes with its contents.

    Nothing of an object's own code runs.
    """
    layouts: dict[type, tuple[Any, Sequence[MemberDescriptorType]]] = {}
    seen, waiting = dict[int, Any](), deque[Any]([model])
    while waiting:
        one = waiting.popleft()
        kind = type(one)
        if kind in _PLAIN or id(one) in seen or issubclass(kind, _LEAVES):
            continue
        seen[id(one)] = one
        found: list[Any] = [holder(one, base) for base, holder in _KINDS.items() if issubclass(kind, base)][:1]
        if issubclass(kind, tuple | frozenset):
            waiting.extend((tuple if issubclass(kind, tuple) else frozenset).__iter__(one))
        if kind not in layouts:
            layouts[kind] = _layout(kind)
        attributes, slots = layouts[kind]
        if attributes is not None:
            waiting.append(attributes.__get__(one))
        if slots:
            found.append(_Slots(one, slots))
        if kind in _STATES:
            found.append(_State(_STATES[kind](one)))
        for holder in found:
            contents = holder.contents()
            waiting.extend(contents)
            yield holder, contents


_PLAIN: Final = frozenset((bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size))


def _layout(kind: type) -> tuple[Any, Sequence[MemberDescriptorType]]:
    """The descriptors of a class's `__dict__` and slots; none of a class whose objects are no part of a model."""
    if f"{kind.__module__}".partition(".")[0] in FOREIGN and not issubclass(kind, nn.Module):
        return None, ()
    own = [vars(base) for base in kind.__mro__]
    dictionaries = (one.get("__dict__") for one in own)
    declared = (one for names in own if "__slots__" in names for one in names.values())
    slots = [one for one in declared if type(one) is MemberDescriptorType]
    written = (GetSetDescriptorType, MemberDescriptorType)  # the latter of types.SimpleNamespace
    return next((one for one in dictionaries if type(one) in written), None), slots


def _same(values: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(values) == len(others) and all(map(is_, values, others))


def _stand_in(
    model: nn.Module, held: Iterable[tuple[_Holder, list[Any]]], made: Copy, shares: Callable[[Tensor], bool] | None
) -> None:
    tables = (one for one in model.modules() if isinstance(one, nn.Embedding | nn.EmbeddingBag))
    written = {id(table.weight) for table in tables if table.max_norm is not None}
    copies: dict[int, Any] = {}
    for name, parameter in model.named_parameters():
        copies[id(parameter)] = parameter
        if shares is not None or id(parameter) in written:
            shared = id(parameter) not in written and shares is not None and shares(parameter)
            copy = nn.Parameter(parameter.detach() if shared else made(parameter), parameter.requires_grad)
            vars(copy).update(vars(parameter))
            mark(copy, Lineage(weights=frozenset((name,))))
            copies[id(parameter)] = copy
    for buffer in model.buffers():
        copies.setdefault(id(buffer), made(buffer))

    def copied(value: Any) -> Any:
        if issubclass(type(value), tuple):
            entries = list(tuple.__iter__(value))
            own = list(map(copied, entries))
            is_struct = hasattr(type(value), "n_fields")  # such as torch.return_types.max
            return value if _same(own, entries) else type(value)(own) if is_struct else tuple.__new__(type(value), own)
        if not isinstance(value, Tensor):
            return value
        if id(value) not in copies:
            copy = learning(made)(value) if value.is_leaf else made(value)
            copies[id(value)] = nn.Parameter(copy, value.requires_grad) if isinstance(value, nn.Parameter) else copy
        return copies[id(value)]

    with_tensors = (one for one, before in held if any(issubclass(kind, tuple | Tensor) for kind in map(type, before)))
    for holder in with_tensors:
        contents = holder.contents()
        own = list(map(copied, contents))
        if not _same(own, contents):
            holder.restore(own)


@contextmanager
def _uncompiled(model: nn.Module) -> Iterator[None]:
    """Run what is compiled as it was written: modules, modules compiled in place, and functions."""
    for module in model.modules():
        children = children_of(module)
        for name, child in children.items():  # `unchanged` puts the child back
            if child is not None and is_compiled(child):
                children[name] = original(child)
        as_written(module)
    with torch.compiler.set_stance("force_eager") if compiler_is_loaded() else nullcontext():
        yield


def _versions(model: nn.Module) -> dict[str, int]:
    """How often each parameter that has elements was written."""
    with_elements = ((name, one) for name, one in model.named_parameters() if not one.is_meta)
    return {name: times_written(one) for name, one in with_elements}
