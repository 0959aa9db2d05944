"""The survey's table, with measured times where a file has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from xfcost.api.measured import rows_of_file
from xfcost.counting.survey.table import Survey, survey
from xfcost.counting.survey.times import times_over_full
from xfcost.ledger.errors import shown
from xfcost.spec.run import Run


def survey_of(run: Run, settings: Sequence[str], file: Path | None, say: Callable[[str], None]) -> Survey:
    """All systems that a spec has a line for; `file` holds rows of `xfcost measure`.

    Raises:
        XfcostError: a setting fits not every system; the file can't be read, or has no row of full attention.
    """
    if file is None:
        return Survey(survey(run, settings), run)
    ratio, timed = times_over_full(rows_of_file(file, say), shown(file, 200))
    return Survey(survey(run, settings, ratio), run, timed)
