"""The survey's table, with measured times where a file has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xfcost.api.arguments import arguments_checked
from xfcost.api.measured import rows_of_file
from xfcost.api.notebooks import show_as
from xfcost.api.specs import settings_texts
from xfcost.counting.run_options import make_run
from xfcost.counting.survey import table
from xfcost.counting.survey.table import Survey
from xfcost.counting.survey.times import times_over_full
from xfcost.ledger.errors import UsageError, shown
from xfcost.spec.run import Run

if TYPE_CHECKING:
    from rich.console import RenderableType


@arguments_checked
def survey(*, runs: str | os.PathLike[str] | None = None, settings: Sequence[str] = (), **options: Any) -> Survey:
    """The table of Tay et al. 2022, Efficient Transformers: A Survey (Table 1), derived beside the print.

    Args:
        runs: a file of `xfcost measure`, whose times over full attention's are added.
        settings: overrides of every system, `key.path=value` each.
        **options: `batch`, `dtype` and `attention`, as for `analyze`.

    Raises:
        XfcostError: a setting fits not every system; the file can't be read, or has no row of full attention.
    """
    if not isinstance(runs, str | os.PathLike | None):
        raise UsageError(f"runs: expected a file of `xfcost measure`, got {shown(runs)}")
    texts = settings_texts(settings)
    return survey_of(make_run(**options), texts, None if runs is None else Path(runs), lambda text: None)


def survey_of(run: Run, settings: Sequence[str], file: Path | None, say: Callable[[str], None]) -> Survey:
    """All systems that a spec has a line for; `file` holds rows of `xfcost measure`.

    Raises:
        XfcostError: a setting fits not every system; the file can't be read, or has no row of full attention.
    """
    if file is None:
        return Survey(table.survey(run, settings), run)
    ratio, timed = times_over_full(rows_of_file(file, say), shown(file, 200))
    return Survey(table.survey(run, settings, ratio), run, timed)


def _render(found: Survey, width: int) -> RenderableType:
    from xfcost.report.survey import document

    return document(found).terminal(width)


show_as("Survey", _render)
