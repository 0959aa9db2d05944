"""`xfcost diff`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.api.options import InputOptions, PredictOption, RunOptions, SettingsOption
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


@shared.options(RunOptions, SettingsOption, PredictOption, InputOptions, "verbose", *shared.REPORT)
def run(before: Before, after: After, sort: Sort = "macs", **given: Any) -> None:
    """What changed between two models, runs or revisions.

    Totals first, then the operations that were added, removed or changed, sorted by what they cost. Blocks are matched
    by what is inside them, so that an inserted block is one change. A revision of code runs in a folder of its own; the
    working tree is not touched.

    Example: xfcost diff HEAD~1:specs/mine.yaml specs/mine.yaml
    """
    from xfcost.api.difference import diff
    from xfcost.report.differences import document

    target, verbose = shared.target_of(given), given.pop("verbose")
    found = diff(before, after, sort=sort, progress=say, **given)  # type: ignore[arg-type]
    target.document(document(found, verbose=verbose))
