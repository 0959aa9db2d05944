"""The table `[tool.xfcost]` of a pyproject.toml, or a YAML file with the same keys."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from xfcost.ledger.errors import SpecError, UsageError, printable, shown
from xfcost.ledger.files import Expected
from xfcost.spec.reader import read, read_file
from xfcost.spec.targets import is_yaml

FILE: Final = "pyproject.toml"
TABLE: Final = "tool.xfcost"
_EXPECTED: Final = Expected(
    what="a TOML file", missing=f"expected a {FILE}", large="a pyproject.toml is a few pages", most_bytes=10_000_000
)


_YAML: Final = Expected(what="a YAML file of budgets", missing=_EXPECTED.missing, large="budgets are a few lines")
# Lists of targets, a target, and its budgets, as people call them.
_CHECKS: Final = ("checks", "models", "targets", "specs", "budgets")
_TARGETS: Final = ("spec", "model", "file", "path", "preset", "module")
_LIMITS: Final = ("limits", "limit", "budget", "budgets", "max", "maximum")


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
    if is_yaml(name):
        data = read(read_file(file, name, _YAML), name)[0]
        return {"check": [_target(data)]} if {*_TARGETS, "target"} & data.keys() else _tables(data)
    tool = _toml(read_file(file, name, _EXPECTED), name).get("tool", {})
    if not isinstance(tool, dict):
        raise UsageError(f"{name}: tool: expected tables, [{TABLE}] and others, got {shown(tool)}")
    table = tool.get("xfcost")
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{name}: {TABLE}: expected a table, [{TABLE}], got {shown(table)}")
    return table


def has_budgets(file: Path) -> bool:
    """Is it a YAML file of budgets, and no spec?"""
    if not is_yaml(str(file)) or not os.path.isfile(file):
        return False
    try:
        data = read(read_file(file, file.name), file.name)[0]
    except SpecError:  # the command that reads it as a spec says what is wrong
        return False
    limited = any(str(key).replace("_", "-").startswith("max-") for key in data)
    of_spec = bool({"stages", "encoder", "input"} & data.keys())
    return (limited and not of_spec) or any(key in data for key in ("checks", "models", "budgets"))


def _tables(data: dict[str, Any]) -> dict[str, Any]:
    """A YAML file as the table of a pyproject.toml: `max_params` is `max-params`, `models` are tables of `check`."""
    table: dict[str, Any] = {}
    for key, value in data.items():
        name = str(key).replace("_", "-")
        if name in _LIMITS and isinstance(value, dict):
            table |= {f"max-{_key(limit)}": _limit(one) for limit, one in value.items()}
        elif name == "defaults" and isinstance(value, dict):
            table |= _tables(value)
        elif name in ("check", *_CHECKS) and isinstance(value, list):
            table["check"] = [_target(one) for one in value]
        elif name in ("check", *_CHECKS) and isinstance(value, dict):
            table["check"] = [
                _target({"target": one, **limits}) for one, limits in value.items() if isinstance(limits, dict)
            ]
        elif name != "version":
            table[_key(key)] = _limit(value) if name.startswith("max-") else value
    return table


def _target(value: Any) -> Any:
    """A target with its budgets."""
    if not isinstance(value, dict):
        return {"target": value} if isinstance(value, str) else value
    table = _tables(value)
    name = table.pop("name", None)
    own = next((key for key in _TARGETS if key in table), None)
    if "target" not in table and (own or name):
        table["target"] = table.pop(own) if own else name
    return table


def _key(key: Any) -> str:
    """A key as the table has it."""
    name = str(key).replace("_", "-")
    return {"seq-len": "N", "batch-size": "batch", "parameters": "params"}.get(name, name)


def _limit(value: Any) -> Any:
    """`<= 300M` is 300M."""
    return re.sub(r"^\s*<=?\s*", "", value) if isinstance(value, str) else value


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
