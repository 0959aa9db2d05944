"""`xfcost diff`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.commands import options as shared
from xfcost.report.messages import say

Before = Annotated[
    str,
    shared.spec_argument(
        "What was: a preset, a path to a YAML file, model.py:NAME, config.json; any of these files at a git revision, "
        "HEAD~1:spec.yaml; a report of `analyze -o report.json`, or a file of `measure --save runs.jsonl`."
    ),
]
After = Annotated[str, shared.spec_argument("What is: the same.")]
Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="QUANTITY",
        help="Sort changes by macs, flops, params, attention_bytes, cache_bytes, seconds or predicted_seconds.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="All changes, and all notes.")]


@shared.run_options()
def run(  # noqa: PLR0913 - options
    before: Before,
    after: After,
    settings: shared.Settings = None,
    inputs: shared.Inputs = None,
    build: shared.Build = None,
    predict: shared.Predict = False,
    sort: Sort = "macs",
    format_: shared.FormatOption = None,
    columns: shared.Columns = None,
    verbose: Verbose = False,
    output: shared.Output = None,
    force: shared.Force = False,
    **options: Any,
) -> None:
    """What changed between two models, runs or revisions.

    Totals first, then the operations that were added, removed or changed, sorted by what they cost. Blocks are matched
    by what is inside them, so that an inserted block is one change. A revision of code runs in a folder of its own; the
    working tree is not touched.
    """
    from xfcost.api.difference import diff
    from xfcost.report.differences import document
    from xfcost.report.output import check_target

    form = shared.chosen_format(format_, output)
    check_target(output, force=force)
    found = diff(
        before,
        after,
        inputs=inputs or (),
        build=build or (),
        settings=settings,
        predict=predict,
        sort=sort,  # type: ignore[arg-type]
        progress=say,
        **options,
    )
    report = document(found, verbose=verbose)
    shared.deliver_report(report.terminal, lambda: report.text(form), form, output, force=force)
