"""Tensors that a model's classes keep for the whole process: in caches of functools, in tables, and under names."""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

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

    A cache of functools that holds tensors is empty inside, and as it was afterwards; one that the run filled with
    tensors is cleared. Names and tables that were given tensors get back what they had. Others stay: they may stand
    for what happens once in a process.
    """
    owners = _owners(model)
    caches = [*_caches([*owners, *model.modules()])]
    renewed = {id(one.cache): _empty(one.cache) for one in caches if _holds_tensors(_cached(one.cache))}
    tables = [table for owner in owners for table in _entries(owner).values() if type(table) in _TABLES]
    before = [(owner, dict(_entries(owner))) for owner in (*owners, *tables)]
    for cache, put in caches:
        if id(cache) in renewed:
            put(renewed[id(cache)])
    try:
        yield
    finally:
        for cache, put in caches:
            if id(cache) in renewed:
                put(cache)
            elif _holds_tensors(_cached(cache)):
                cache.cache_clear()
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


class _Cache(NamedTuple):
    cache: Any
    put: Callable[[Any], None]
    """Puts another in its place."""


def _caches(owners: Iterable[Any]) -> Iterator[_Cache]:
    """The caches of functools among names, methods, attributes, and inside of decorated functions."""
    for owner in owners:
        for name, value in list(vars(owner).items()):
            inner: Any = value
            if type(value) in (staticmethod, classmethod, property):
                inner = value.fget if type(value) is property else value.__func__
            if type(inner) is _CACHE:
                yield _Cache(inner, partial(_put_as, owner, name, value))
            yield from _enclosed(inner)


def _put_as(owner: Any, name: str, value: Any, cache: Any) -> None:
    """Put a cache in the place of `value`: a method of its kind, if it was one."""
    if type(value) is property:
        cache = value.getter(cache)
    _put(owner, name, type(value)(cache) if type(value) in (staticmethod, classmethod) else cache)


def _enclosed(function: Any, depth: int = 3) -> Iterator[_Cache]:
    """Those that a decorated function encloses."""
    cells = (function.__closure__ or ()) if type(function) is FunctionType else ()
    for cell in cells:
        try:
            value = cell.cell_contents
        except ValueError:  # it is empty
            continue
        if type(value) is _CACHE:
            yield _Cache(value, partial(setattr, cell, "cell_contents"))
        elif depth:
            yield from _enclosed(value, depth - 1)


def _empty(cache: Any) -> Any:
    return lru_cache(**cache.cache_parameters())(cache.__wrapped__)


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
