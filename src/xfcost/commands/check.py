"""`xfcost check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xfcost.commands import options as shared
from xfcost.report.messages import say

Targets = Annotated[
    list[str] | None,
    shared.spec_argument(
        "Presets, YAML files, torch modules (model.py:NAME, whose code is executed) or config.json of transformers; "
        "without any, the targets in pyproject.toml."
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="BYTES",
        help="The most memory, with its unit (2GiB): weights, attention matrices and KV cache; with --mode train that "
        "of a step, and with --on that of one device.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="REV|FILE",
        help="Over a budget, list the operations that grew since a git revision, or a report of `analyze -o FILE`.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The pyproject.toml; the nearest one upwards if left out."),
]


@shared.run_options()
def run(  # noqa: PLR0913 - options
    context: typer.Context,
    targets: Targets = None,
    max_macs: shared.MaxMacs = None,
    max_params: shared.MaxParams = None,
    max_memory: MaxMemory = None,
    max_flops: shared.MaxFlops = None,
    max_kv_cache: shared.MaxKvCache = None,
    against: Against = None,
    config: Config = None,
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    trace: shared.Trace = False,
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """Are models within their budgets? Exit code 1 where not.

    For continuous integration. Budgets and options also stand in a pyproject.toml, one [[tool.xfcost.check]] table for
    each target. What is over its budget is reported with the operations that weigh most, or with --against those
    that grew.
    """
    from xfcost.api.checking.plan import check_all, planned
    from xfcost.ledger.budgets import read_budgets
    from xfcost.report.budgets import document
    from xfcost.report.output import check_target

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    limits = {"macs": max_macs, "params": max_params, "memory": max_memory, "flops": max_flops}
    budgets = read_budgets(limits | {"kv_cache": max_kv_cache})
    every = options | {"settings": settings, "inputs": inputs, "build": build, "trace": trace}
    given = {name: value for name, value in every.items() if shared.is_given(context, name)}
    project = _project(config)
    found = check_all(planned(targets or (), budgets, given, project), against, say)
    report = document(found)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
    if not found.within:
        raise typer.Exit(1)


def _project(config: Path | None) -> Any:
    """The tables of the file that is named, or of the nearest one.

    Raises:
        UsageError: it has none, or says what can't be.
    """
    from xfcost.api.checking.project import TABLE, find_project, read_project
    from xfcost.ledger.errors import UsageError, shown

    if config is None:
        return find_project(Path.cwd())
    found = read_project(config)
    if found is None:
        raise UsageError(f"--config {shown(config, 200)}: has no table [{TABLE}]")
    return found
