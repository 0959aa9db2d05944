"""The table `[tool.xfcost]` of a pyproject.toml."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from xfcost.ledger.errors import UsageError, printable, shown
from xfcost.ledger.files import Expected
from xfcost.spec.reader import read_file

FILE: Final = "pyproject.toml"
TABLE: Final = "tool.xfcost"
_EXPECTED: Final = Expected(
    what="a TOML file", missing=f"expected a {FILE}", large="a pyproject.toml is a few pages", most_bytes=10_000_000
)


def nearest_project(start: Path) -> Path | None:
    """The nearest pyproject.toml that has the table, from `start` upwards; None where none has.

    Raises:
        XfcostError: one is no file or no TOML, or has something else in the table's place.
    """
    files = (folder / FILE for folder in (start, *start.parents))
    return next((one for one in files if os.path.lexists(one) and project_table(one) is not None), None)


def project_table(file: Path) -> dict[str, Any] | None:
    """The table of a file; None where it has none.

    Raises:
        XfcostError: it can't be read, is no TOML, or has something else in the table's place.
    """
    name = shown(os.path.relpath(file), 200)
    tool = _toml(read_file(file, name, _EXPECTED), name).get("tool", {})
    if not isinstance(tool, dict):
        raise UsageError(f"{name}: tool: expected tables, [{TABLE}] and others, got {shown(tool)}")
    table = tool.get("xfcost")
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{name}: {TABLE}: expected a table, [{TABLE}], got {shown(table)}")
    return table


def _toml(text: str, name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{name}: is nested too deeply to be a pyproject.toml") from None
    except ValueError as error:  # TOMLDecodeError, and what int() and datetime refuse
        raise UsageError(f"{name}: is not valid TOML: {printable(str(error), 200)}") from None
