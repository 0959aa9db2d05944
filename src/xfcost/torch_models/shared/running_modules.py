"""Which module of a model is running."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn


@contextmanager
def running_modules(model: nn.Module, running: list[str], in_threads: Counter[str] | None = None) -> Iterator[None]:
    """While it lasts, `running` ends with the path of the innermost running module; the model itself is "".

    `in_threads` counts the modules that other threads run.
    """
    thread, elsewhere = threading.get_ident(), Counter[str]() if in_threads is None else in_threads

    def entering(name: str) -> Callable[[nn.Module, Any], None]:
        def enter(module: nn.Module, inputs: Any) -> None:
            if threading.get_ident() == thread:
                running.append(name)
            else:
                elsewhere[f"{name} in another thread"] += 1

        return enter

    def leaving(module: nn.Module, inputs: Any, outputs: Any) -> None:
        if threading.get_ident() == thread:
            running.pop()

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(entering(name), prepend=True).remove)
            hooks.callback(module.register_forward_hook(leaving, always_call=True).remove)
        yield
