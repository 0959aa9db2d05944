"""On `meta`, an operation on the same shapes gives the same shapes again: its first answer is remembered.

torch works out many of them in Python: 80 µs for a sum of two tensors, 600 µs for a layer norm. Tests run the same
few a million times.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._decomp import global_decomposition_table
from torch._ops import OpOverload

# Where torch's slow kernels stand: each calls other operations.
_SLOW: Final = ("torch._refs", "torch._decomp")
# Operations for which torch uses none of them.
_LEFT_TO_TORCH: Final = frozenset(
    f"aten::{name}" for name in ("empty_strided", "clone", "_to_copy", "constant_pad_nd", "rot90", "as_strided_scatter")
)
_TENSORS: Final = (Tensor, nn.Parameter)
_PLAIN: Final = (bool, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


class _UnknownError(Exception):
    """An argument that may give another answer next time."""


@contextmanager
def answers_remembered() -> Iterator[None]:
    """Until the end, operations on `meta` tensors of known shapes, strides and types are answered from memory."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the overridden kernels
        for operation, kernel in _kernels():
            library.impl(operation, _remembering(kernel))
    try:
        yield
    finally:
        library._destroy()


def _kernels() -> Iterator[tuple[OpOverload, Callable[..., Any]]]:
    """The operations that torch answers slowly on `meta`, and that return new tensors alone."""
    tables = [global_decomposition_table[kind] for kind in ("pre_autograd", "post_autograd", "meta")]
    for operation, kernel in {key: kernel for table in tables for key, kernel in table.items()}.items():
        if (
            isinstance(operation, OpOverload)
            and operation.namespace == "aten"
            and kernel.__module__.startswith(_SLOW)
            and operation.name() not in _LEFT_TO_TORCH
            and not torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), "CompositeImplicitAutograd")
            and all(str(each.type) == "Tensor" and each.alias_info is None for each in operation._schema.returns)
            and not operation._schema.is_mutable
        ):
            yield operation, kernel


def _remembering(kernel: Callable[..., Any]) -> Callable[..., Any]:
    answers: dict[Hashable, Any] = {}

    @functools.wraps(kernel)
    def answer(*args: Any, **kwargs: Any) -> Any:
        try:
            key = (tuple(map(_key, args)), tuple((name, _key(value)) for name, value in kwargs.items()))
        except _UnknownError:
            return kernel(*args, **kwargs)
        if key in answers:
            return _made(answers[key])
        found = kernel(*args, **kwargs)
        shapes = _shapes(found)
        if shapes is not None and _fresh(found, args):
            answers[key] = shapes
        return found

    # in a traceback it is torch's: what runs a user's model tells the last line that isn't
    answer.__code__ = answer.__code__.replace(co_filename=torch.__file__)
    return answer


def _key(value: Any) -> Hashable:
    """What an answer can depend on in one argument.

    Raises:
        _UnknownError: it is neither a plain tensor on `meta` nor a plain value.
    """
    kind = type(value)
    if kind in _TENSORS:
        if not value.is_meta or value.is_complex() or value.layout is not torch.strided:
            raise _UnknownError
        sizes = tuple(value.shape)
        if any(type(size) is not int for size in sizes):
            raise _UnknownError
        return sizes, value.stride(), value.dtype, value.requires_grad
    if kind is int or kind in _PLAIN:
        return kind, value
    if kind in (list, tuple):
        return kind, tuple(map(_key, value))
    raise _UnknownError


def _shapes(found: Any) -> Any:
    """The shapes, strides and types of one or more plain tensors; None for anything else."""
    if type(found) is tuple:
        shapes = tuple(map(_shapes, found))
        return None if None in shapes else shapes
    if type(found) is not Tensor or not found.is_meta or found.requires_grad or found.storage_offset():
        return None
    return [found.shape, found.stride(), found.dtype]


def _fresh(found: Any, args: tuple[Any, ...]) -> bool:
    """Do the answers own their memory, none of it an argument's and none beyond their elements?"""
    tensors = found if type(found) is tuple else (found,)
    given = {arg.untyped_storage()._cdata for arg in args if type(arg) in _TENSORS}
    return all(
        each.untyped_storage()._cdata not in given
        and each.untyped_storage().nbytes() == each.numel() * each.element_size()
        for each in tensors
    )


def _made(shapes: Any) -> Any:
    if type(shapes) is tuple:
        return tuple(map(_made, shapes))
    shape, stride, dtype = shapes
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
