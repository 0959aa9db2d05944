"""`xfcost.check`: runs held against their budgets, of one target or of all those of a pyproject.toml.

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
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from xfcost.api.analysis import analyze
from xfcost.api.options import (
    EVERY,
    OPTIONS,
    AnalyzeOptions,
    BudgetOptions,
    IncreaseOption,
    Progress,
    read_option,
    takes,
)
from xfcost.api.refusals import refuse
from xfcost.api.revisions import commit_of
from xfcost.api.runs import taken_budgets
from xfcost.api.systems import module_texts, spec_name
from xfcost.comparing.differences import Change, changes, grown, other_runs
from xfcost.comparing.saved_report import Report, read_report, report_of
from xfcost.ledger.budgets import BUDGETS, INCREASE, Budget
from xfcost.ledger.errors import AbsentError, UsageError, XfcostError, nearest, printable, shown
from xfcost.ledger.ledger import Ledger
from xfcost.parts.prediction.options import PredictOption
from xfcost.questions.check.result import (
    GROWING_OF_BUDGETS,
    BudgetFigure,
    BudgetResult,
    Checked,
    CheckResult,
    devices_words,
    figure_of,
    growing,
    heaviest,
    increase_budgets,
    on_devices,
    weights,
)
from xfcost.questions.diff.answer import opened
from xfcost.spec.hub import hub_name
from xfcost.spec.load import is_path
from xfcost.spec.project import FILE, TABLE, nearest_project, project_table
from xfcost.spec.targets import is_yaml, module_target

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack


# Operations that are named of each figure that is over its budget.
_MOST: Final = 5


class CheckOptions(BudgetOptions, IncreaseOption, AnalyzeOptions, total=False):
    """The keywords of `check`."""


@takes(CheckOptions)
def check(
    target: str | os.PathLike[str] | torch.nn.Module | Ledger,
    *,
    against: str | os.PathLike[str] | Ledger | None = None,
    **options: Unpack[CheckOptions],
) -> CheckResult:
    """Is a system valid, and within its budgets? What is over is reported with its largest operations, or what grew.

    Args:
        target: a preset, a path to a YAML file, a named torch module, a module with `example_inputs`; or its ledger.
        against: a git revision of the target, a report that `analyze` saved as JSON, or a ledger.
        **options: budgets, and those of `analyze`. With mode="train" the memory is that of a training step, with `on`
            too that of the device that needs most. Seconds are the lower bound of `on`, or those of `predict`.

    Returns:
        CheckResult: `within`, and each figure with its limit.

    Raises:
        XfcostError: bad input: a limit that can't be read, a target that can't be counted.
    """
    given: dict[str, Any] = dict(options)
    budgets, increase = taken_budgets(given), read_option("max_increase", given.pop("max_increase", None))
    progress = given.pop("progress", None)
    return CheckResult(checked=(checked(target, Asked(budgets, against, given, progress, increase)),))


class Asked(NamedTuple):
    """What a target is held against, and how it is run."""

    budgets: Sequence[Budget]
    against: str | os.PathLike[str] | Ledger | None = None
    options: Mapping[str, Any] = {}
    """Of `analyze`."""
    progress: Progress | None = None
    increase: Fraction | None = None
    """The share by which MACs, parameters, memory and seconds may grow."""


def checked(target: Any, asked: Asked) -> Checked:
    """One target held against its budgets.

    Raises:
        XfcostError: it can't be counted, or there is nothing to compare it with.
    """
    if asked.increase is not None and asked.against is None:
        raise UsageError(
            f"{INCREASE}: needs a git revision or a saved report to compare with, as in --against main or --against "
            "report.json"
        )
    limited = {budget.quantity for budget in asked.budgets}
    of_seconds = "seconds" in limited or asked.increase is not None
    fits = not asked.budgets and asked.against is None  # devices alone ask if it fits
    refuse(
        "check",
        asked.options,
        against=asked.against is not None,
        of_memory="memory" in limited or asked.increase is not None,
        of_seconds=of_seconds,
        fits=fits,
    )
    asked = _with_saved_inputs(target, asked)
    ledger = target if isinstance(target, Ledger) else _counted(target, asked)
    label = spec_name(target) if isinstance(target, str | os.PathLike) else ledger.metadata.name
    report = report_of(ledger)
    found = [(budget, figure_of(report, budget.quantity, budget.option)) for budget in asked.budgets]
    if fits and (memory := on_devices(ledger, report)) is not None:
        found = [memory]
    needed = asked.increase is not None or any(not budget.allows(figure.value) for budget, figure in found)
    before, notes = _before(label, report, asked, needed=needed) if asked.against is not None else (None, ())
    if asked.increase is not None and before is not None:
        found += increase_budgets(before, report, asked.increase)
    changed = changes(before, report)[0] if needed and before is not None else None
    return Checked(
        target=label,
        name=ledger.metadata.name,
        run=_run_text(ledger),
        held=tuple(_held(ledger, budget, figure, changed) for budget, figure in found),
        against=None if before is None else _against_text(asked.against),
        compares=asked.against is not None,
        agrees=ledger.agrees,
        notes=(*notes, *ledger.metadata.warnings, *_doubts(ledger)),
    )


def _held(ledger: Ledger, budget: Budget, figure: BudgetFigure, changed: Sequence[Change] | None) -> BudgetResult:
    """A figure held against its budget; over it with the largest operations, and among `changed` those that grew."""
    if budget.allows(figure.value):
        return BudgetResult(budget=budget, figure=figure)
    quantity = growing(figure, budget)
    # rows of the earlier run have no bound of their own
    more = None if changed is None or quantity == "least_seconds" else grown(changed, quantity)
    return BudgetResult(
        budget=budget,
        figure=figure,
        heaviest=heaviest(weights(ledger, figure, budget), _MOST),
        grown=None if more is None else tuple(more[:_MOST]),
    )


def _counted(target: Any, asked: Asked) -> Ledger:
    """The ledger of a target, without a trace unless that is asked for."""
    return analyze(target, progress=asked.progress, **({"trace": False, "mixing": False} | dict(asked.options)))


def _run_text(ledger: Ledger) -> str:
    from xfcost.report.input_description import circumstances

    return " ".join([*circumstances(ledger.metadata).split(), *devices_words(ledger)])


def _doubts(ledger: Ledger) -> list[str]:
    """What speaks against the figures: accounts that disagree, or operations that make them lower bounds."""
    if not ledger.agrees:
        traced = ledger.agreement is None or ledger.agreement.exact
        disagree = "the kinds declared and those of the running model" if traced else "counted and traced"
        return [f"{disagree} disagree; `xfcost analyze` shows where"]
    if ledger.ran.complete:
        return []
    names = ", ".join(ledger.ran.uncounted)
    doubt = f"no formula is known for {names}: MACs and FLOPs are lower bounds, so the budget cannot be checked"
    return [f"{doubt}; count it with @xfcost.register in the module's code"]


def _against_text(against: Any) -> str:
    return against.metadata.name if isinstance(against, Ledger) else os.fspath(against)


def _before(label: str, after: Report, asked: Asked, *, needed: bool) -> tuple[Report | None, tuple[str, ...]]:
    """The run to compare with, and notes; none where the target is new.

    Where it isn't needed, a revision needs only to be one.

    Raises:
        UsageError: there is no such revision or file, or its run is another.
    """
    against = asked.against
    if isinstance(against, Ledger):
        before, saved = report_of(against), True
    else:
        name = spec_name(against) if against is not None else ""
        saved = name.endswith(".json") or os.path.exists(name)
        revision, names_file, _ = name.partition(":")
        text = name if saved or names_file else f"{name}:{_from_here(label)}"
        if not saved and not needed:
            commit_of(revision)
            return None, ()
        try:
            with ExitStack() as stack:
                # counted as the run after it
                side = opened(text, 1, (text,), {**asked.options, "progress": asked.progress}, stack)
        except AbsentError:
            if names_file:
                raise
            return None, (f"{label} is new: {name} has no such file",)
        if side.report is None:
            raise UsageError(f"--against {name}: has measurements; expected a revision, or a report of `analyze`")
        before = side.report
    differing = other_runs(before, after)
    if differing and saved:
        raise UsageError(
            f"--against {_against_text(against)}: not the same run: {'; '.join(differing)}; save it again with these "
            "options, or give its own"
        )
    return before, tuple(f"not the same run as before: {text}" for text in differing)


def _from_here(label: str) -> str:
    """The target of a revision, its path from the current folder.

    Raises:
        UsageError: it is a preset or a given module, which have no revisions.
    """
    target = module_target(label)
    if target is None and (not is_path(label) or hub_name(label) is not None):
        raise UsageError(
            f"--against: {printable(label, 80)} is a preset of xfcost, or a model on the Hub, and no file in this "
            "folder; give a saved report"
        )
    if target is not None and target.kind == "package":
        return label
    place = target.place if target is not None else label
    name = f":{target.name}" if target is not None and target.name else ""
    return f"./{os.path.relpath(place)}{name}"


_BUDGETS: Final = {BUDGETS[quantity].option.removeprefix("--"): quantity for quantity in GROWING_OF_BUDGETS}
# Of all keys the name of the option.
_OPTIONS: Final = {
    name.replace("_", "-"): name
    for name in (*OPTIONS, *IncreaseOption.__annotations__, *PredictOption.__annotations__, "threads")
}
_FLAGS: Final = {key: name for key, name in _OPTIONS.items() if EVERY[name].default is False}
# Keys that take one text or several.
_LISTS: Final = {"input": "inputs", "build": "build", "set": "settings"}


class CheckEntry(NamedTuple):
    """A target with its budgets and options, or what all targets have by default."""

    target: str
    budgets: Mapping[str, Budget]
    options: Mapping[str, Any]
    """Of `analyze`, and `max_increase`."""
    where: str = ""
    """Its file and table, for messages; empty of a target of no file."""

    @property
    def limits_something(self) -> bool:
        """Has it a budget, or the most that figures may grow?"""
        return bool(self.budgets) or "max_increase" in self.options

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


def _located(target: str, folder: Path) -> str:
    """A target with the real path of its file; a preset and a package are their names."""
    found = module_target(target)
    if found is not None and found.kind != "package":
        return f"{os.path.realpath(folder / found.place)}:{found.name}"
    if found is None and is_yaml(target):
        return os.path.realpath(folder / target)
    return target


def find_project(start: Path) -> CheckProject | None:
    """The tables of the nearest pyproject.toml that has some, from `start` upwards; None where none has.

    Raises:
        XfcostError: one is no file or no TOML, or says what can't be.
    """
    file = nearest_project(start)
    return None if file is None else read_project(file)


def read_project(file: Path) -> CheckProject | None:
    """The tables of a file; None where it has none.

    Raises:
        UsageError: it is no TOML, or says what can't be.
    """
    table, name = project_table(file), shown(os.path.relpath(file), 200)
    if table is None:
        return None
    rest = dict(table)
    given = rest.pop("check", [])
    default = _entry(rest, f"{name}: [{TABLE}]", also=("check",))
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise UsageError(f"{name}: {TABLE}.check: expected tables, [[{TABLE}.check]] each, got {shown(given)}")
    entries = [_target_entry(one, f"{name}: [[{TABLE}.check]] {number}") for number, one in enumerate(given, 1)]
    for number, entry in enumerate(entries, 1):
        if not entry.over(default).limits_something:
            raise UsageError(
                f'{name}: [[{TABLE}.check]] {number}: {entry.target} has no budget; give one, as in max-macs = "5G"'
            )
    return CheckProject(file.parent, name, default, tuple(entry.over(default) for entry in entries))


def _target_entry(table: Mapping[str, Any], where: str) -> CheckEntry:
    """One table of `check`."""
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
    """The name of a budget or of an option, and its value, read as on the command line."""
    if key in _BUDGETS:
        text = str(value) if isinstance(value, int | float) else value  # a number has no unit here either
        return _BUDGETS[key], Budget(_BUDGETS[key], BUDGETS[_BUDGETS[key]].read(key, text))
    if key in _LISTS:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise UsageError(f"{key}: expected a text or a list of texts, got {shown(value)}")
        return _LISTS[key], texts
    if key in ("trace", "fetch") or key in _FLAGS:
        if not isinstance(value, bool):
            raise UsageError(f"{key}: expected true or false, got {shown(value)}")
        return _FLAGS.get(key, key), value
    if key not in _OPTIONS:
        known = [*also, *_BUDGETS, *_LISTS, "trace", "fetch", *_OPTIONS]
        if key in ("model", "spec", "targets"):
            raise UsageError(f'unknown key {key!r}; name it in [[{TABLE}.check]], as in target = "model.py:build"')
        raise UsageError(f"unknown key {printable(key)!r}; {nearest(key, known)}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{key}: expected a number or a text, got {shown(value)}")
    read_option(_OPTIONS[key], value)
    return _OPTIONS[key], value


class PlannedCheck(NamedTuple):
    """An entry, and the folder from which its target is named."""

    folder: Path
    entry: CheckEntry


def planned(
    targets: Sequence[str],
    budgets: Sequence[Budget],
    options: Mapping[str, Any],
    project: CheckProject | None,
    against: str | None = None,
) -> list[PlannedCheck]:
    """Every check: of the `targets`, or where none is given of all entries of the project, or of the saved report's.

    A target without a budget is counted, and so found valid.

    What is written on the command line, `budgets` and `options`, goes before what the project's file has.

    Raises:
        UsageError: there is nothing to check.
    """
    entries = _entries(targets, project) or _entries(_saved_target(against), project)
    if not entries:
        raise UsageError(
            "nothing to check: give a target and a budget, as in `xfcost check spec.yaml --max-macs 5G`, or write "
            f'[[{TABLE}.check]] tables with target = "spec.yaml" in {FILE if project is None else project.file}'
        )
    own = CheckEntry("", {budget.quantity: budget for budget in budgets}, options)
    texts = module_texts([one.entry.target for one in entries], options)
    plan = []
    for (folder, entry), words in zip(entries, texts, strict=True):
        whole = own.over(entry)
        plan.append(PlannedCheck(folder, whole._replace(target=entry.target, options={**whole.options, **words})))
    return plan


def in_folders(targets: Sequence[str]) -> list[str]:
    """The targets; of a folder of specs all of them, by name."""
    found: list[str] = []
    for target in targets:
        folder = Path(target)
        is_folder = os.path.isdir(target) and module_target(target) is None
        files = sorted(one for ending in ("yaml", "yml") for one in folder.rglob(f"*.{ending}")) if is_folder else []
        found += map(str, files) if files else [target]
    return found


def _saved_target(against: str | None) -> list[str]:
    """The system of the report that is compared with; none of a git revision, nor of a module, whose file may be any.

    Raises:
        UsageError: it is no report; or of a module.
    """
    if (report := _saved_report(against)) is None:
        return []
    if report.module.inputs:
        raise UsageError(
            f"--against {printable(str(against), 200)}: is of a torch module; give its target, as in `xfcost check "
            f"model.py:{report.name} --against {printable(str(against), 200)}`"
        )
    return [report.spec] if report.spec else []


def _saved_report(against: Any) -> Report | None:
    """The report in the file that is compared with; None of a git revision, a ledger or nothing.

    Raises:
        UsageError: it is no report.
    """
    if not isinstance(against, str | os.PathLike) or not os.path.isfile(against):
        return None
    return read_report(Path(against).read_text(encoding="utf-8"), printable(os.fspath(against), 200))


def _with_saved_inputs(target: Any, asked: Asked) -> Asked:
    """The inputs of the report that a module without inputs is compared with."""
    named = isinstance(target, str) and (module := module_target(target)) is not None and module.kind != "config"
    report = _saved_report(asked.against) if named and not asked.options.get("inputs") else None
    if report is None:
        return asked
    shapes = [_SAVED_INPUT.fullmatch(text) for text in report.module.inputs]
    found = [f"{shape[1].replace('×', 'x')}:{shape[2]}" for shape in shapes if shape is not None]
    return asked._replace(options={**asked.options, "inputs": found}) if len(found) == len(shapes) > 0 else asked


# `x: 1×1×28×28 float32`.
_SAVED_INPUT: Final = re.compile(r"\w+: ([\d×]+) (\w+)")


def _entries(targets: Sequence[str], project: CheckProject | None) -> list[PlannedCheck]:
    if not targets:
        return [] if project is None else [PlannedCheck(project.folder, entry) for entry in project.entries]
    here, found = Path.cwd(), list[PlannedCheck]()
    for target in targets:
        entries, default = () if project is None else project.entries, CheckEntry(target, {}, {})
        if project is not None:
            wanted, default = _located(target, here), project.default
            entries = tuple(one for one in entries if _located(one.target, project.folder) == wanted)
        found += [PlannedCheck(here, one._replace(target=target)) for one in entries or (default,)]
    return found


def check_all(plan: Sequence[PlannedCheck], against: str | None, progress: Progress) -> CheckResult:
    """The checks of a plan, each from the folder of its target.

    Raises:
        XfcostError: one of them can't be run; it says of the others, too, which can.
    """
    place = os.path.abspath(against) if against is not None and os.path.exists(against) else against
    found, errors = [], list[XfcostError]()
    for folder, entry in plan:
        options = dict(entry.options)
        increase = read_option("max_increase", options.pop("max_increase", None))
        asked = Asked(tuple(entry.budgets.values()), place, options, progress, increase)
        try:
            with _inside(folder):
                one = checked(entry.target, asked)
            found.append(one if one.against is None else msgspec.structs.replace(one, against=against))
        except XfcostError as error:
            if entry.where:
                error.args = (f"{entry.where} ({printable(entry.target, 80)}): {error}",)
            errors.append(error)
    if errors:
        raise _joined(errors, [one.target for one in found]) if len(plan) > 1 else errors[0]
    return CheckResult(checked=tuple(found))


def _joined(errors: Sequence[XfcostError], valid: Sequence[str]) -> XfcostError:
    """The gravest of the errors, saying what all say, and which targets are valid."""
    gravest = max(errors, key=lambda one: one.exit_code)
    names = f" ({', '.join(printable(one, 80) for one in valid)})" if valid else ""
    texts = (str(one).removeprefix(f"{len(getattr(one, 'parts', ()))} errors:\n  ") for one in errors)
    gravest.args = ("\n  ".join([f"{len(valid)} valid{names}, {len(errors)} not:", *dict.fromkeys(texts)]),)
    return gravest


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Let paths and packages be found from `folder`."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
