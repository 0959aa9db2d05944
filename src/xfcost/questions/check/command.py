"""`xfcost check`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from xfcost.api.options import BudgetOptions, IncreaseOption, InputOptions, RunOptions, SettingsOption, TraceOption
from xfcost.commands import options as shared
from xfcost.parts.prediction.options import PredictOption
from xfcost.report.messages import say

if TYPE_CHECKING:
    from xfcost.questions.check.result import CheckResult

# github: workflow commands, which mark the files of a pull request.
FORMATS: Final = (*shared.FORMATS, "github", "junit")
Targets = Annotated[
    list[str] | None,
    shared.spec_argument(
        "Presets, YAML files, torch modules (model.py:NAME, whose code is executed) or config.json of transformers "
        "(default: the targets in pyproject.toml)."
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="REV|FILE",
        help="Compare with a git revision, or with a report saved by `analyze -o FILE`; --max-increase limits the "
        "growth.",
    ),
]
Config = Annotated[
    Path | None,
    shared.option(
        "--config", "FILE", "A pyproject.toml, or a YAML file with its keys (default: the nearest pyproject.toml)."
    ),
]


@shared.options(
    RunOptions,
    SettingsOption,
    TraceOption,
    BudgetOptions,
    IncreaseOption,
    PredictOption,
    "threads",
    InputOptions,
    *shared.REPORT,
    format_=("How the report is written (default: table).", FORMATS),
    max_memory="Maximum memory (as in 2GiB): weights, attention matrices and KV cache; with --mode train of a step, "
    "with --on of one device.",
    max_seconds="Maximum time (as in 10ms): of the lower bound with --on, of the prediction with --predict.",
)
def run(
    context: typer.Context, targets: Targets = None, against: Against = None, config: Config = None, **given: Any
) -> None:
    """Check that models are within their budgets; exit code 1 if not.

    For continuous integration. A pyproject.toml can set budgets and options, in one [[tool.xfcost.check]] table per
    target. For a figure over its budget, the report lists the operations that cost most or, with --against, those that
    grew. `--against main --max-increase 2%` needs no budget: it fails if a figure grew by more than 2 % since that
    revision.

    Example: xfcost check gpt2 --max-params 130M --max-memory 2GiB
    """
    from xfcost.api.runs import taken_budgets
    from xfcost.questions.check.answer import check_all, in_folders, planned
    from xfcost.questions.check.text import document, junit, workflow_commands
    from xfcost.spec.project import has_budgets

    forms: dict[str, Callable[[CheckResult], str]] = {"github": workflow_commands, "junit": junit}
    lines = forms.get(given["format_"])
    if lines is not None:
        given["format_"] = "json"
    [alone] = targets if targets is not None and len(targets) == 1 else [""]
    if config is None and has_budgets(Path(alone)):
        targets, config = None, Path(alone)
    target = shared.target_of(given, FORMATS)
    budgets = taken_budgets(given)
    written = {name: value for name, value in given.items() if shared.is_given(context, name)}
    found = check_all(planned(in_folders(targets or ()), budgets, written, _project(config), against), against, say)
    if lines is None:
        target.document(document(found))
    elif target.output is None:  # these lines are commands to GitHub, of which the texts are escaped
        sys.stdout.write(lines(found))
    else:
        shared.deliver(lines(found), target.output, force=target.force)
    if not found.within:
        raise typer.Exit(1)


def _project(config: Path | None) -> Any:
    """The tables of the file that is named, or of the nearest one.

    Raises:
        UsageError: it has none, or says what can't be.
    """
    from xfcost.ledger.errors import UsageError, shown
    from xfcost.questions.check.answer import find_project, read_project
    from xfcost.spec.project import TABLE

    if config is None:
        return find_project(Path.cwd())
    found = read_project(config)
    if found is None:
        raise UsageError(f"--config {shown(config, 200)}: has no table [{TABLE}]")
    return found
