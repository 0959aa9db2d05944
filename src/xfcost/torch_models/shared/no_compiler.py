"""Operations on `meta` without torch's compiler.

torch keeps its compiler out of shape formulas, dispatch modes and optimizers, and imports it for that at the first
call: over a second, a third of a traced answer.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Final

from xfcost.torch_models.shared.private_torch import compiler_wrapper

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


@functools.cache
def _wrapped() -> frozenset[Any]:
    """The functions that torch has wrapped so far; the search through all objects takes tens of milliseconds."""
    if _WRAPPER is None:
        return frozenset()
    place = _WRAPPER.co_freevars.index("fn")
    wrappers = [each for each in gc.get_referrers(_WRAPPER) if isinstance(each, FunctionType)]
    return frozenset(wrapper.__closure__[place].cell_contents for wrapper in wrappers if wrapper.__closure__)
