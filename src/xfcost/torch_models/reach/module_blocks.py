"""The blocks of a module that nothing is declared of: the numbered children of its lists, else its children."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

_LISTS = (nn.Sequential, nn.ModuleList)


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """Path -> block, in the order of the module's definition.

    A block is a numbered child of a list, at any depth but not inside another block, that is no list itself and has
    modules inside. Where there is none: the module's children.
    """
    found = dict(_numbered(model, ""))
    return found or {name: child for name, child in model.named_children() if not isinstance(child, nn.ModuleList)}


def _numbered(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        is_list = type(child) in _LISTS
        has_parts = any(True for _ in child.children())
        if name.isdecimal() and type(module) in _LISTS and not is_list and has_parts:
            yield inner, child
        else:
            yield from _numbered(child, inner)
