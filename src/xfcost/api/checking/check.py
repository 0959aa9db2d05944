"""`xfcost.check`: a run held against its budgets."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xfcost.api import analyze
from xfcost.api.arguments import arguments_checked
from xfcost.api.difference import How, opened
from xfcost.api.notebooks import show_as
from xfcost.api.revisions.git import commit_of
from xfcost.api.specs import Progress, spec_name
from xfcost.api.without_effect import refuse_in_check
from xfcost.counting.checking.figures import Figure, devices_words, figure_of, growing, weights
from xfcost.counting.checking.result import Checked, CheckResult, Held, heaviest
from xfcost.counting.differences.changes import Change, changes, grown
from xfcost.counting.differences.comparable import other_runs
from xfcost.ledger.budgets import Budget, read_budgets
from xfcost.ledger.errors import AbsentError, UsageError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.saved_report import Report, report_of
from xfcost.spec.load import is_path
from xfcost.spec.targets import module_target

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType

# Operations that are named of each figure that is over its budget.
_MOST: Final = 5


@arguments_checked
def check(  # noqa: PLR0913 - a keyword per budget
    target: str | os.PathLike[str] | torch.nn.Module | Ledger,
    *,
    max_macs: float | str | None = None,
    max_params: float | str | None = None,
    max_memory: int | str | None = None,
    max_flops: float | str | None = None,
    max_kv_cache: int | str | None = None,
    against: str | os.PathLike[str] | Ledger | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> CheckResult:
    """Is a system within its budgets? What is over them is reported with the operations that weigh most, or that grew.

    Args:
        target: a preset, a path to a YAML file, a named torch module, a module with `example_inputs`; or its ledger.
        max_macs: multiply-accumulates of the run, `5G`.
        max_params: parameters, `30M`.
        max_memory: bytes, with a unit in a text: weights, attention matrices and KV cache of a pass, or all of a
            training step, `2GiB`; with `on` and mode="train" those of the device that needs most.
        max_flops: FLOPs of the run.
        max_kv_cache: bytes of the KV cache, in the modes prefill, decode and generate.
        against: a git revision of the target, a report that `analyze` saved as JSON, or a ledger.
        progress: called with a line of text before each long step.
        **options: those of `analyze`.

    Returns:
        CheckResult: `within`, and each figure with its limit.

    Raises:
        XfcostError: bad input: no budget, a limit that can't be read, a target that can't be counted.
    """
    given = {
        "macs": max_macs, "params": max_params, "memory": max_memory, "flops": max_flops, "kv_cache": max_kv_cache,
    }  # fmt: skip
    budgets = read_budgets(given)
    if not budgets:
        raise UsageError("check: there is no budget; give one, as in max_macs='5G'")
    return CheckResult(checked=(checked(target, Asked(budgets, against, options, progress)),))


class Asked(NamedTuple):
    """What a target is held against, and how it is run."""

    budgets: Sequence[Budget]
    against: str | os.PathLike[str] | Ledger | None = None
    options: Mapping[str, Any] = {}
    """Of `analyze`."""
    progress: Progress | None = None


def checked(target: Any, asked: Asked) -> Checked:
    """One target held against its budgets.

    Raises:
        XfcostError: it can't be counted, or there is nothing to compare it with.
    """
    refuse_in_check(asked.options, asked.budgets, against=asked.against is not None)
    ledger = target if isinstance(target, Ledger) else _counted(target, asked)
    label = spec_name(target) if isinstance(target, str | os.PathLike) else ledger.metadata.name
    found = [(budget, figure_of(ledger, budget)) for budget in asked.budgets]
    over = any(not budget.allows(figure.value) for budget, figure in found)
    before, notes = _before(label, ledger, asked, over=over) if asked.against is not None else (None, ())
    changed = changes(before, report_of(ledger))[0] if over and before is not None else None
    return Checked(
        target=label,
        name=ledger.metadata.name,
        run=_run_text(ledger),
        held=tuple(_held(ledger, budget, figure, changed) for budget, figure in found),
        against=None if before is None else _against_text(asked.against),
        agrees=_agrees(ledger),
        notes=(*notes, *_doubts(ledger)),
    )


def _held(ledger: Ledger, budget: Budget, figure: Figure, changed: Sequence[Change] | None) -> Held:
    """A figure held against its budget; over it with the operations that weigh most, and among `changed` that grew."""
    if budget.allows(figure.value):
        return Held(budget=budget, figure=figure)
    more = None if changed is None else grown(changed, growing(figure, budget))
    return Held(
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


def _agrees(ledger: Ledger) -> bool:
    """Do counted and traced agree, where there is a closed form and it was traced?"""
    return ledger.module is not None or ledger.agreement is None or ledger.agreement.exact


def _doubts(ledger: Ledger) -> list[str]:
    """What speaks against the figures: accounts that disagree, or operations that make them lower bounds."""
    if not _agrees(ledger):
        return ["counted and traced disagree; `xfcost analyze` shows where"]
    if ledger.module is None or ledger.module.complete:
        return []
    names = ", ".join(ledger.module.uncounted)
    doubt = f"no formula knows {names}: MACs and FLOPs are lower bounds, which are no proof that a budget is kept"
    return [f"{doubt}; count it with @xfcost.register in the module's code"]


def _against_text(against: Any) -> str:
    return against.metadata.name if isinstance(against, Ledger) else os.fspath(against)


def _before(label: str, ledger: Ledger, asked: Asked, *, over: bool) -> tuple[Report | None, tuple[str, ...]]:
    """The run to compare with, and notes; none where the target is new.

    Where nothing is over a budget, a revision needs only to be one.

    Raises:
        UsageError: there is no such revision or file, or its run is another.
    """
    against = asked.against
    if isinstance(against, Ledger):
        before, saved = report_of(against), True
    else:
        name = spec_name(against) if against is not None else ""
        saved = name.endswith(".json") or os.path.exists(name)
        text = name if saved else f"{name}:{_from_here(label)}"
        if not saved and not over:
            commit_of(name)
            return None, ()
        try:
            with ExitStack() as stack:
                side = opened(text, 1, (text,), _how(asked), stack)
        except AbsentError:
            return None, (f"{label} is new: {name} has no such file",)
        if side.report is None:
            raise UsageError(f"--against {name}: holds measurements; expected a revision, or a report of `analyze`")
        before = side.report
    differing = other_runs(before, report_of(ledger))
    if differing and saved:
        raise UsageError(
            f"--against {_against_text(against)}: not the same run: {'; '.join(differing)}; save it again with these "
            "options, or give its own"
        )
    return before, tuple(f"not the same run as before: {text}" for text in differing)


def _how(asked: Asked) -> How:
    """How the run before is counted: as the one after."""
    options = dict(asked.options)
    texts = {name: options.pop(name, ()) for name in ("inputs", "build", "settings")}
    options.pop("trace", None)
    return How(**texts, progress=asked.progress, options=options)


def _from_here(label: str) -> str:
    """The target of a revision, its path from the current folder.

    Raises:
        UsageError: it is a preset or a given module, which have no revisions.
    """
    target = module_target(label)
    if target is None and not is_path(label):
        raise UsageError(
            f"--against: {printable(label, 80)} is a preset of xfcost, and no file here; give a saved report"
        )
    if target is not None and target.kind == "package":
        return label
    place = target.place if target is not None else label
    name = f":{target.name}" if target is not None and target.name else ""
    return f"./{os.path.relpath(place)}{name}"


def _render(found: CheckResult, width: int) -> RenderableType:
    from xfcost.report.budgets import document

    return document(found).terminal(width)


show_as("CheckResult", _render)
