"""Which module of a model is running."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn


@contextmanager
def running_modules(
    model: nn.Module,
    running: list[str],
    in_threads: Counter[str] | None = None,
    others: dict[int, list[str]] | None = None,
    called: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """While it lasts, `running` ends with the path of the innermost running module; the model itself is "".

    Args:
        model: the model.
        running: of this thread.
        in_threads: counts the modules that other threads run.
        others: such lists of other threads, by their numbers; their modules are not counted in `in_threads`.
        called: gets the path of every module that is called.
    """
    elsewhere, stacks = Counter[str]() if in_threads is None else in_threads, {} if others is None else others
    stacks[threading.get_ident()] = running

    def entering(name: str) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, inputs: Any) -> None:
            if called is not None:
                called(name)
            stack = stacks.get(threading.get_ident())
            if stack is None:
                elsewhere[f"{name} in another thread"] += 1
            else:
                stack.append(name)

        return enter

    def leaving(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if stack := stacks.get(threading.get_ident()):
            stack.pop()

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(entering(name), prepend=True).remove)
            hooks.callback(module.register_forward_hook(leaving, always_call=True).remove)
        yield
