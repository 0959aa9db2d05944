"""`torch.cond` and `while_loop` as plain Python: the branch that is taken, and every turn, run under the recorder.

torch compiles them otherwise. On `meta` a predicate has no value, and the run is repeated with real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch._higher_order_ops import utils
from torch.utils import _pytree as pytree


@contextmanager
def plain_branches() -> Iterator[None]:
    """Run them so inside."""
    compiled = utils._hop_compile_and_call  # noqa: SLF001 - what both call

    def run(wrapper: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if wrapper.__name__ == "_cond_op_wrapper":
            return _branch(*args)
        return _loop(*args) if wrapper.__name__ == "_while_loop_op_wrapper" else compiled(wrapper, args)

    with patch.object(utils, "_hop_compile_and_call", run):
        yield


def _branch(predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], operands: Any) -> Any:
    return (if_true if bool(predicate) else if_false)(*operands)


def _loop(condition: Callable[..., Any], body: Callable[..., Any], carried: tuple[Any, ...], more: Any) -> Any:
    result: Any = carried
    while bool(condition(*carried, *more)):
        result = body(*carried, *more)
        carried = tuple(pytree.tree_leaves(result))
    return result
