"""What a target names, told by its text: a spec, a torch module in Python code, or a config of transformers."""

from __future__ import annotations

import os
import re
from typing import Final, Literal

import msgspec

from xfcost.ledger.errors import UsageError, printable

_PYTHON_FILE: Final = re.compile(r"(?P<place>.+\.py)(:|\Z)", re.DOTALL)
_IN_FILE: Final = re.compile(r"(?P<place>.+\.py):(?P<name>[^\W\d][\w.]*)\Z", re.DOTALL)
_IN_PACKAGE: Final = re.compile(r"(?P<place>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d][\w.]*)\Z")


class ModuleTarget(msgspec.Struct, frozen=True):
    """A torch module that has no spec."""

    kind: Literal["file", "package", "config"]
    place: str
    """The Python file, the dotted name of the package's module, or the config.json."""
    name: str
    """The name in it; empty of a config."""
    text: str
    """As it was given."""

    @property
    def absolute(self) -> str:
        """The text with the whole path of its file."""
        place = self.place if self.kind == "package" else os.path.abspath(self.place)
        return f"{place}:{self.name}" if self.name else place


def module_target(text: str) -> ModuleTarget | None:
    """The module that `text` names: `model.py:Net`, `package.module:Net` or `config.json`; None of a spec.

    Raises:
        UsageError: a Python file without a name in it.
    """
    if found := _IN_FILE.match(text):
        return ModuleTarget("file", found["place"], found["name"], text)
    if found := _IN_PACKAGE.match(text):
        return ModuleTarget("package", found["place"], found["name"], text)
    if found := _PYTHON_FILE.match(text):
        file = os.path.basename(found["place"])
        raise UsageError(
            f"{printable(text, 200)}: expected a name in the file, as in {printable(file, 80)}:Net "
            "(a module, or a class or function that makes one)"
        )
    return ModuleTarget("config", text, "", text) if text.endswith(".json") else None
