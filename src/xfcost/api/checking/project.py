"""The table `[tool.xfcost]` of a pyproject.toml: targets, their budgets and their options.

    [tool.xfcost]
    max-params = "30M"                 # of every target that has no own limit

    [[tool.xfcost.check]]
    target = "specs/tiny.yaml"
    max-macs = "5G"
    N = 784

Keys are the options of `xfcost check` without their dashes; `input`, `build` and `set` take a text or a list.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from xfcost.api.checking.check import Asked, checked
from xfcost.api.options import OPTIONS, Progress
from xfcost.counting.checking import GROWING_OF_BUDGETS, CheckResult
from xfcost.ledger.budgets import BUDGETS, Budget
from xfcost.ledger.errors import UsageError, XfcostError, nearest, printable, shown
from xfcost.spec.files import Expected, read_file
from xfcost.spec.targets import ModuleTexts, module_target, texts_by_place

FILE: Final = "pyproject.toml"
TABLE: Final = "tool.xfcost"
_BUDGETS: Final = {BUDGETS[quantity].option.removeprefix("--"): quantity for quantity in GROWING_OF_BUDGETS}
_FLAGS: Final = {name.replace("_", "-"): name for name, option in OPTIONS.items() if option.default is False}
_OPTIONS: Final = {name.replace("_", "-"): name for name, option in OPTIONS.items() if not option.hidden}
# Keys that take one text or several.
_LISTS: Final = {"input": "inputs", "build": "build", "set": "settings"}
_EXPECTED: Final = Expected(
    what="a TOML file", missing=f"expected a {FILE}", large="no project has so much to say", most_bytes=10_000_000
)


class CheckEntry(NamedTuple):
    """A target with its budgets and options, or what all targets have by default."""

    target: str
    budgets: Mapping[str, Budget]
    options: Mapping[str, Any]
    """Of `analyze`."""
    where: str = ""
    """Its file and table, for messages; empty of a target that stands in no file."""

    def over(self, default: CheckEntry) -> CheckEntry:
        """This entry, and what it leaves to `default`."""
        options = dict(default.options)
        if "N" in self.options or "size" in self.options:  # they say the same in two ways
            options = {name: value for name, value in options.items() if name not in ("N", "size")}
        budgets = {**default.budgets, **self.budgets}
        return CheckEntry(self.target, budgets, options | dict(self.options), self.where or default.where)


class CheckProject(NamedTuple):
    """The tables of one file."""

    folder: Path
    file: str
    """Its name in messages."""
    default: CheckEntry
    entries: tuple[CheckEntry, ...]

    def entries_of(self, target: str) -> list[CheckEntry]:
        """The entries of a target that is named from the current folder."""
        wanted = _located(target, Path.cwd())
        return [entry for entry in self.entries if _located(entry.target, self.folder) == wanted]


def _located(target: str, folder: Path) -> str:
    """A target with the real path of its file; a preset and a package are their names."""
    found = module_target(target)
    if found is not None and found.kind != "package":
        return f"{os.path.realpath(folder / found.place)}:{found.name}"
    if found is None and target.endswith((".yaml", ".yml")):
        return os.path.realpath(folder / target)
    return target


def find_project(start: Path) -> CheckProject | None:
    """The tables of the nearest pyproject.toml that has some, from `start` upwards; None where none has.

    Raises:
        XfcostError: one is no file or no TOML, or says what can't be.
    """
    for folder in (start, *start.parents):
        file = folder / FILE
        if os.path.lexists(file) and (found := read_project(file)) is not None:
            return found
    return None


def read_project(file: Path) -> CheckProject | None:
    """The tables of a file; None where it has none.

    Raises:
        UsageError: it is no TOML, or says what can't be.
    """
    name = shown(os.path.relpath(file), 200)
    content = _toml(read_file(file, name, _EXPECTED), name)
    tool = content.get("tool", {})
    if not isinstance(tool, dict):
        raise UsageError(f"{name}: tool: expected tables, [{TABLE}] and others, got {shown(tool)}")
    if "xfcost" not in tool:
        return None
    table = tool["xfcost"]
    if not isinstance(table, dict):
        raise UsageError(f"{name}: {TABLE}: expected a table, [{TABLE}], got {shown(table)}")
    rest = dict(table)
    given = rest.pop("check", [])
    default = _entry(rest, f"{name}: [{TABLE}]", also=("check",))
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise UsageError(f"{name}: {TABLE}.check: expected tables, [[{TABLE}.check]] each, got {shown(given)}")
    entries = [_target_entry(one, f"{name}: [[{TABLE}.check]] {number}") for number, one in enumerate(given, 1)]
    for number, entry in enumerate(entries, 1):
        if not {**default.budgets, **entry.budgets}:
            raise UsageError(
                f'{name}: [[{TABLE}.check]] {number}: {entry.target} has no budget; give one, as in max-macs = "5G"'
            )
    return CheckProject(file.parent, name, default, tuple(entry.over(default) for entry in entries))


def _toml(text: str, name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name}: is no TOML: {printable(str(error), 200)}") from None


def _target_entry(table: Mapping[str, Any], where: str) -> CheckEntry:
    """One table of `check`.

    Raises:
        UsageError: it has no target, or says what can't be.
    """
    rest = dict(table)
    target = rest.pop("target", None)
    if not isinstance(target, str) or not target:
        wrong = "has no target" if target is None else f"target: expected a text, got {shown(target)}"
        raise UsageError(f'{where}: {wrong}; as in target = "specs/tiny.yaml" or "model.py:build"')
    return _entry(rest, where, also=("target",))._replace(target=target, where=where)


def _entry(table: Mapping[str, Any], where: str, also: tuple[str, ...]) -> CheckEntry:
    budgets: dict[str, Budget] = {}
    options: dict[str, Any] = {}
    for key, given in table.items():
        try:
            name, value = _read(key, given, also)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        (budgets if isinstance(value, Budget) else options)[name] = value
    return CheckEntry("", budgets, options)


def _read(key: str, value: Any, also: tuple[str, ...]) -> tuple[str, Any]:
    """The name of a budget or of an option, and its value, read as on the command line.

    Raises:
        UsageError: it can't be, or there is no such key.
    """
    if key in _BUDGETS:
        text = str(value) if isinstance(value, int | float) else value  # a number has no unit here either
        return _BUDGETS[key], Budget(_BUDGETS[key], BUDGETS[_BUDGETS[key]].read(key, text))
    if key in _LISTS:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise UsageError(f"{key}: expected a text or a list of texts, got {shown(value)}")
        return _LISTS[key], texts
    if key == "trace" or key in _FLAGS:
        if not isinstance(value, bool):
            raise UsageError(f"{key}: expected true or false, got {shown(value)}")
        return _FLAGS.get(key, key), value
    if key not in _OPTIONS:
        known = [*also, *_BUDGETS, *_LISTS, "trace", *_OPTIONS]
        raise UsageError(f"unknown key {printable(key)!r}; {nearest(key, known)}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{key}: expected a number or a text, got {shown(value)}")
    OPTIONS[_OPTIONS[key]].read(value)
    return _OPTIONS[key], value


class PlannedCheck(NamedTuple):
    """An entry, and the folder from which its target is named."""

    folder: Path
    entry: CheckEntry


def planned(
    targets: Sequence[str], budgets: Sequence[Budget], options: Mapping[str, Any], project: CheckProject | None
) -> list[PlannedCheck]:
    """Every check: of the `targets`, or where none is given of all entries of the project.

    What is written on the command line, `budgets` and `options`, goes before what stands in the project.

    Raises:
        UsageError: there is nothing to check, or a target without a budget.
    """
    entries = _entries(targets, project)
    if not entries:
        raise UsageError(
            "nothing to check: give a target and a budget, as in `xfcost check spec.yaml --max-macs 5G`, or write "
            f"[[{TABLE}.check]] tables in {FILE if project is None else project.file}"
        )
    own = CheckEntry("", {budget.quantity: budget for budget in budgets}, options)
    texts = _module_texts([one.entry.target for one in entries], options)
    plan = []
    for (folder, entry), words in zip(entries, texts, strict=True):
        whole = own.over(entry)
        if not whole.budgets:
            raise UsageError(
                f"{entry.target}: has no budget; give one, as in --max-macs 5G, or write it in {FILE} under "
                f"[[{TABLE}.check]]"
            )
        plan.append(PlannedCheck(folder, whole._replace(target=entry.target, options={**whole.options, **words})))
    return plan


def _entries(targets: Sequence[str], project: CheckProject | None) -> list[PlannedCheck]:
    if not targets:
        return [] if project is None else [PlannedCheck(project.folder, entry) for entry in project.entries]
    found: list[PlannedCheck] = []
    for target in targets:
        known = [] if project is None else project.entries_of(target)
        default = CheckEntry(target, {}, {}) if project is None else project.default._replace(target=target)
        here = Path.cwd()
        found += [PlannedCheck(here, entry._replace(target=target)) for entry in known] or [PlannedCheck(here, default)]
    return found


def _module_texts(targets: Sequence[str], options: Mapping[str, Any]) -> list[dict[str, list[str]]]:
    """`--input` and `--build` of the command line, for those targets that are modules."""
    given = ModuleTexts(tuple(options.get("inputs") or ()), tuple(options.get("build") or ()))
    if not given.inputs and not given.build:
        return [{} for _ in targets]
    modules = {place: target for place, target in enumerate(targets, 1) if module_target(target) is not None}
    texts = texts_by_place(given, modules, len(targets))
    none = ModuleTexts()
    words = [texts.get(place, none) for place in range(1, len(targets) + 1)]
    return [{"inputs": list(one.inputs), "build": list(one.build)} for one in words]


def check_all(plan: Sequence[PlannedCheck], against: str | None, progress: Progress) -> CheckResult:
    """The checks of a plan, each from the folder of its target.

    Raises:
        XfcostError: one of them can't be run.
    """
    if against is not None and os.path.exists(against):
        against = os.path.abspath(against)
    found = []
    for folder, entry in plan:
        with _inside(folder), _named_where(entry):
            asked = Asked(tuple(entry.budgets.values()), against, entry.options, progress)
            found.append(checked(entry.target, asked))
    return CheckResult(checked=tuple(found))


@contextmanager
def _named_where(entry: CheckEntry) -> Iterator[None]:
    """Name file and table of an entry in the message of what goes wrong with it."""
    try:
        yield
    except XfcostError as error:
        if entry.where:
            error.args = (f"{entry.where} ({printable(entry.target, 80)}): {error}",)
        raise


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Let paths and packages be found from `folder`."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
