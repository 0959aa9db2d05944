"""`xfcost diff`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from xfcost.api.options import InputOptions, RunOptions, SettingsOption
from xfcost.commands import options as shared
from xfcost.parts.prediction.options import PredictOption
from xfcost.report.messages import say

Before = Annotated[
    str,
    shared.spec_argument(
        "The earlier model: a preset, a YAML file, model.py:NAME or config.json; a file at a git revision, as in "
        "HEAD~1:spec.yaml; a report saved by `analyze -o report.json`; or rows saved by `measure --save runs.jsonl`."
    ),
]
After = Annotated[str, shared.spec_argument("The later model, in one of the same forms.")]
Model = Annotated[
    str | None,
    typer.Argument(help="Of two git revisions: the file, or model.py:NAME, as in `diff HEAD~1 HEAD mine.yaml`."),
]
Sort = Annotated[
    str,
    shared.option(
        "--sort",
        "QUANTITY",
        "Sort changes by macs, flops, params, attention_bytes, cache_bytes, seconds or predicted_seconds.",
    ),
]


@shared.options(RunOptions, SettingsOption, PredictOption, InputOptions, "verbose", *shared.REPORT)
def run(before: Before, after: After, model: Model = None, sort: Sort = "macs", **given: Any) -> None:
    """Show what changed between two models, runs or revisions.

    The report has the totals, then the operations that were added, removed or changed, sorted by cost. Blocks are
    matched by their operations, so an inserted block is one change. A git revision of code runs in a temporary folder;
    the working tree is not touched.

    Example: xfcost diff HEAD~1:specs/mine.yaml specs/mine.yaml
    """
    from xfcost.questions.diff.answer import diff
    from xfcost.questions.diff.text import document

    if model is not None:
        before, after = f"{before}:{model}", f"{after}:{model}"
    target, verbose = shared.target_of(given), given.pop("verbose")
    found = diff(before, after, sort=sort, progress=say, **given)  # type: ignore[arg-type]
    target.document(document(found, verbose=verbose))
