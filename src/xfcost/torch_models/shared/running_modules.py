"""Which module of a model is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn


@contextmanager
def running_modules(model: nn.Module, running: list[str]) -> Iterator[None]:
    """While it lasts, `running` ends with the path of the innermost running module; the model itself is ""."""

    def entering(name: str) -> Callable[[nn.Module, Any], None]:
        return lambda module, inputs: running.append(name)

    def leaving(module: nn.Module, inputs: Any, outputs: Any) -> None:
        running.pop()

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.callback(module.register_forward_pre_hook(entering(name), prepend=True).remove)
            hooks.callback(module.register_forward_hook(leaving, always_call=True).remove)
        yield
