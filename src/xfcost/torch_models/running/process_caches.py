"""Tensors that a model's classes keep for the whole process: in caches of functools, in tables, and under names."""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, Final

from torch import Tensor, nn

# Objects of these packages may belong to the whole process: threads, loggers, streams, optimizers.
FOREIGN: Final = sys.stdlib_module_names - {"__main__", "argparse", "collections", "types"} | {"numpy", "torch"}
_TABLES: Final = (dict, OrderedDict, defaultdict)
_CACHE: Final[type] = type(lru_cache(int))
_ABSENT: Final = object()
_NO_VALUES: Final = (nn.Module, FunctionType, ModuleType, type)
# Entries of one cache are alike, and may be many.
_MOST_ITEMS: Final = 64


@contextmanager
def process_caches_kept(model: nn.Module) -> Iterator[None]:
    """Let `model` run as the first of its process does; at the end no tensor of the run is left in it.

    Caches of functools that hold tensors are cleared, before the run and after it. Names and tables that were given
    tensors get back what they had. Others stay: they may stand for what happens once in a process.
    """
    owners = _owners(model)
    caches = [*_caches([*owners, *model.modules()])]
    tables = [table for owner in owners for table in _entries(owner).values() if type(table) in _TABLES]
    before = [(owner, dict(_entries(owner))) for owner in (*owners, *tables)]
    _clear(caches)
    try:
        yield
    finally:
        _clear(caches)
        for owner, entries in before:
            new = {key: one for key, one in _entries(owner).items() if one is not entries.get(key, _ABSENT)}
            for key in new if _holds_tensors(new.values()) else ():
                _put(owner, key, entries.get(key, _ABSENT))


def _owners(model: nn.Module) -> list[Any]:
    """The classes of a model's modules, the Python modules that define them, and those whose functions these use."""
    kinds = {kind for module in model.modules() for kind in type(module).__mro__ if not _is_foreign(kind)}
    names = {kind.__module__ for kind in kinds}
    modules = [sys.modules[name] for name in names if name in sys.modules]
    used = (one for module in modules for one in vars(module).values() if type(one) is FunctionType)
    names |= {one.__module__ for one in used if not _is_foreign(one)}
    modules = [sys.modules[name] for name in names if name in sys.modules]
    within = (one for module in modules for one in vars(module).values() if issubclass(type(one), type))
    return [*modules, *(kinds | {one for one in within if one.__module__ in names})]


def _is_foreign(one: Any) -> bool:
    return f"{one.__module__}".partition(".")[0] in {*FOREIGN, "xfcost"}


def _entries(owner: Any) -> Any:
    return owner if type(owner) in _TABLES else vars(owner)


def _put(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, type):
        type.__delattr__(owner, key) if value is _ABSENT else type.__setattr__(owner, key, value)
    elif value is _ABSENT:
        del _entries(owner)[key]
    else:
        _entries(owner)[key] = value


def _caches(owners: Iterable[Any]) -> Iterator[Any]:
    """The caches of functools among names, methods, attributes, and inside of decorated functions."""
    for owner in owners:
        for value in list(vars(owner).values()):
            wrapped: Any = value.fget if type(value) is property else value
            yield from _within(wrapped.__func__ if type(wrapped) in (staticmethod, classmethod) else wrapped)


def _within(value: Any, depth: int = 3) -> Iterator[Any]:
    """A cache, or those that a decorated function encloses."""
    if type(value) is _CACHE:
        yield value
    for cell in (value.__closure__ or ()) if depth and type(value) is FunctionType else ():
        with suppress(ValueError):  # it is empty
            yield from _within(cell.cell_contents, depth - 1)


def _clear(caches: Iterable[Any]) -> None:
    for cache in caches:
        if _holds_tensors(_cached(cache)):
            cache.cache_clear()


def _cached(cache: Any) -> list[Any]:
    """What a cache of functools holds, without its keys. Python shows it to the garbage collector alone."""
    if not cache.cache_info().currsize:
        return []
    referred = [one for one in gc.get_referents(cache) if one is not vars(cache)]
    keys = {id(key) for table in referred if type(table) is dict for key in table}
    return [one for one in referred if id(one) not in keys]


def _holds_tensors(values: Iterable[Any], depth: int = 3) -> bool:
    """Is a tensor among the first of them, of their items and attributes?"""
    for one in islice(values, _MOST_ITEMS):
        if issubclass(type(one), Tensor):
            return True
        if depth and not issubclass(type(one), _NO_VALUES) and _holds_tensors(_inside(one), depth - 1):
            return True
    return False


def _inside(value: Any) -> Iterable[Any]:
    if type(value) in _TABLES:
        return value.values()
    if issubclass(type(value), tuple | list):
        return (tuple if issubclass(type(value), tuple) else list).__iter__(value)
    try:
        return object.__getattribute__(value, "__dict__").values()
    except AttributeError:
        return ()
