"""Written lists of kinds; the file of a kind is imported when the kind is looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from xfcost.formulas.component import Component

ComponentT = TypeVar("ComponentT", bound=Component)
# The class of a kind and its torch module, each as "file:class".
Names = tuple[str, str]


class Kinds(Mapping[str, type[ComponentT]]):
    """Kind -> class, in the order of the list. The files are in `package`."""

    def __init__(self, package: str, names: Mapping[str, Names]) -> None:
        self.package, self.names = package, dict(names)
        self._loaded: dict[str, type[ComponentT]] = {}

    def __getitem__(self, kind: str) -> type[ComponentT]:
        if kind not in self._loaded:
            file, _, name = self.names[kind][0].partition(":")
            self._loaded[kind] = getattr(import_module(f"{self.package}.{file}"), name)
        return self._loaded[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def some(self, *kinds: str) -> dict[str, Names]:
        """The lines of `kinds`, for another list."""
        return {kind: self.names[kind] for kind in kinds}
