"""`xfcost survey`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from xfcost.api.options import BatchOptions
from xfcost.commands import options as shared
from xfcost.report.messages import say

From = Annotated[
    Path | None,
    shared.option(
        "--from", "FILE", "Add times relative to full attention, from rows saved by `xfcost measure --save`."
    ),
]


@shared.options(BatchOptions, "dtype", "attention", "settings", "verbose", *shared.REPORT, **shared.OF_A_FORWARD)
def run(from_: From = None, **given: Any) -> None:
    """Derive the table of a survey of efficient attention.

    For each efficient-attention system, in the same encoder: class and complexity from Tay et al. 2022 (Table 1), the
    order from its formulas, whether it decodes, how it mixes tokens, attention memory at 4k and 64k tokens, and how
    many parameters it adds to full attention.

    Example: xfcost survey --verbose
    """
    from xfcost.api.runs import make_run, run_options
    from xfcost.questions.tables.answer import survey_of
    from xfcost.questions.tables.survey_text import document

    target, verbose = shared.target_of(given), given["verbose"]
    found = survey_of(make_run(**run_options(given)), given["settings"] or (), from_, say)
    target.document(document(found, verbose=verbose))
