"""`torch.cond` and `while_loop` as plain Python: the branch that is taken, and every turn, run under the recorder.

torch compiles them otherwise. On `meta` a predicate has no value, and the run is repeated with real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from xfcost.torch_models.shared.private_torch import HIGHER_ORDER_WRAPPERS, pytree


@contextmanager
def plain_branches() -> Iterator[None]:
    """Run them so inside. Both call `torch.compile`, and what it returns."""
    compiled = torch.compile
    plain = dict(zip(HIGHER_ORDER_WRAPPERS, (_branch, _loop), strict=True))

    def compile_others(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        return plain.get(getattr(model, "__name__", "")) or compiled(model, *args, **kwargs)

    with patch.object(torch, "compile", compile_others):
        yield


def _branch(predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], operands: Any) -> Any:
    return (if_true if bool(predicate) else if_false)(*operands)


def _loop(condition: Callable[..., Any], body: Callable[..., Any], carried: tuple[Any, ...], more: Any) -> Any:
    result: Any = carried
    while bool(condition(*carried, *more)):
        result = body(*carried, *more)
        carried = tuple(pytree.tree_leaves(result))
    return result
