"""The attention windows that modules declare in their attributes, as `sliding_window` and `window_size`."""

from __future__ import annotations

from typing import Any

from torch import nn


def widest_window(model: nn.Module) -> int:
    """The widest window that any module declares; 0 where there is none."""
    return max((_declared(module) or 0 for module in model.modules()), default=0)


def window_at(model: nn.Module, path: str) -> int:
    """The window of the innermost module on `path` that declares one; 0 of none."""
    parts = path.split(".") if path else []
    for length in range(len(parts), -1, -1):
        found = _declared(model.get_submodule(".".join(parts[:length])))
        if found is not None:
            return found
    return 0


def _declared(module: nn.Module) -> int | None:
    """A module's own window, 0 where it says that it has none; else that of its configuration; None if it is silent."""
    own = [value for name, value in vars(module).items() if "window" in name and not name.startswith("_")]
    if own:
        return max(map(_width, own))
    config = getattr(module, "config", None)
    return None if config is None else _width(getattr(config, "sliding_window", None))


def _width(value: Any) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, int):
        return max(0, value)
    if isinstance(value, tuple | list) and value and all(isinstance(one, int) for one in value):
        return max(0, *value)
    return 0
