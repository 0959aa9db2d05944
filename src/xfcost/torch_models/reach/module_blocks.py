"""The blocks of a module that nothing is declared of: the numbered children of its lists, else its layers."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

_LISTS = (nn.Sequential, nn.ModuleList)


def blocks_of(model: nn.Module) -> dict[str, nn.Module]:
    """Path -> block, in the order of the module's definition.

    A block is a numbered child of a list, at any depth but not inside another block, that is no list itself and has
    modules inside. Where there is none: the module's children, and in place of lists what is in them, as far as it has
    parameters or pools.
    """
    return dict(_numbered(model, "")) or dict(_layers(model, ""))


def _layers(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if type(child) in _LISTS:
            yield from _layers(child, inner)
        elif any(True for _ in child.parameters()) or "Pool" in type(child).__name__:
            yield inner, child


def _numbered(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        is_list = type(child) in _LISTS
        has_parts = any(True for _ in child.children())
        if name.isdecimal() and type(module) in _LISTS and not is_list and has_parts:
            yield inner, child
        else:
            yield from _numbered(child, inner)
