"""What `xfcost check` checks: the targets of the command line and those of a pyproject.toml, each with its budgets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from xfcost.api.checking.check import Asked, checked
from xfcost.api.checking.project import FILE, TABLE, Entry, Project
from xfcost.api.options import Progress
from xfcost.counting.checking import CheckResult
from xfcost.ledger.budgets import Budget
from xfcost.ledger.errors import UsageError, XfcostError, printable
from xfcost.spec.input_shapes import ModuleTexts, texts_by_place
from xfcost.spec.targets import module_target


class Planned(NamedTuple):
    """An entry, and the folder from which its target is named."""

    folder: Path
    entry: Entry


def planned(
    targets: Sequence[str], budgets: Sequence[Budget], options: Mapping[str, Any], project: Project | None
) -> list[Planned]:
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
    own = Entry("", {budget.quantity: budget for budget in budgets}, options)
    texts = _module_texts([one.entry.target for one in entries], options)
    plan = []
    for (folder, entry), words in zip(entries, texts, strict=True):
        whole = own.over(entry)
        if not whole.budgets:
            raise UsageError(
                f"{entry.target}: has no budget; give one, as in --max-macs 5G, or write it in {FILE} under "
                f"[[{TABLE}.check]]"
            )
        plan.append(Planned(folder, whole._replace(target=entry.target, options={**whole.options, **words})))
    return plan


def _entries(targets: Sequence[str], project: Project | None) -> list[Planned]:
    if not targets:
        return [] if project is None else [Planned(project.folder, entry) for entry in project.entries]
    found: list[Planned] = []
    for target in targets:
        known = [] if project is None else project.entries_of(target)
        default = Entry(target, {}, {}) if project is None else project.default._replace(target=target)
        here = Path.cwd()
        found += [Planned(here, entry._replace(target=target)) for entry in known] or [Planned(here, default)]
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


def check_all(plan: Sequence[Planned], against: str | None, progress: Progress) -> CheckResult:
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
def _named_where(entry: Entry) -> Iterator[None]:
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
