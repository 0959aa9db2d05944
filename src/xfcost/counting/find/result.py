"""What a search found: the models that fit, the front among them, and why the others don't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from xfcost.ledger import notebook
from xfcost.ledger.budgets import Budget
from xfcost.ledger.units import number_of
from xfcost.spec.run import Run

if TYPE_CHECKING:
    import pandas as pd


class Question(NamedTuple):
    """What is asked of every model."""

    budgets: tuple[Budget, ...] = ()
    sort: str = "params"
    descending: bool = True
    top: int = 20
    """Models that are listed, of those that fit."""
    front: tuple[str, str] = ("params", "macs")
    """No model of the front has another beside it with as much of the first for less of the second."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was counted."""

    name: str
    """A preset; or the values of the varied keys, as `--set` takes them."""
    figures: dict[str, Any]
    """Every quantity: whole numbers; with devices also seconds."""
    values: tuple[Any, ...] = ()
    """Of the varied keys."""
    family: str | None = None
    """Of a preset."""
    front: bool = False
    """Is it on the front?"""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why models don't fit."""

    reason: str
    """The budget; or the error of the first of them."""
    count: int
    """How many have it. A model may be over several budgets."""
    alone: int = 0
    """How many are over this budget alone."""
    nearest: Row | None = None
    """Of those over it alone, the nearest."""
    excess: float | None = None
    """How far that one is over the budget, as a share of it."""
    budget: bool = False


class NotFitting(msgspec.Struct, frozen=True, kw_only=True):
    """A preset that doesn't fit, and why."""

    name: str
    family: str
    reason: str
    figures: dict[str, Any] | None = None
    """None where it can't be run so."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `xfcost find`."""

    question: Question
    run: Run
    searched: int
    """Models that were looked at."""
    fits: int
    rows: tuple[Row, ...]
    """Those that fit, in order: of the gallery all, of ranges the first `question.top`."""
    front: tuple[Row, ...]
    """The front of all that fit, from the least to the most."""
    left_out: tuple[LeftOut, ...]
    cloud: tuple[tuple[Any, Any], ...] = ()
    """Some of those that fit, for a plot: both quantities of the front."""
    spec: str | None = None
    """The spec whose keys are varied; None of the gallery."""
    keys: tuple[str, ...] = ()
    """The varied keys."""
    space: int | None = None
    """All configurations of these keys."""
    not_fitting: tuple[NotFitting, ...] = ()
    """Of the gallery: every preset that doesn't fit."""

    @property
    def refused(self) -> int:
        """Models that can't be, or not with these run options."""
        return sum(one.count for one in self.left_out if not one.budget)

    def to_frame(self) -> pd.DataFrame:
        """One line per listed model, raw figures; of the gallery also those that don't fit. Imports pandas."""
        import pandas as pd

        return pd.DataFrame.from_records(records(self))

    def __repr__(self) -> str:
        return notebook.line(self, f"{number_of(self.searched, 'model')} searched, {self.fits:,} fit")

    def _repr_html_(self) -> str | None:
        """The table that a notebook shows."""
        return notebook.html(self)


def records(found: Found) -> list[dict[str, Any]]:
    """One plain dict per listed model, then per model of the front that is not listed, then per preset left out."""
    listed = {row.name for row in found.rows}
    rows = [*found.rows, *(row for row in found.front if row.name not in listed)]
    lines = [_record(row, found.keys) for row in rows]
    lines += [
        {"preset": one.name, "family": one.family, "fits": False, "front": False}
        | dict.fromkeys(_figure_names(rows))
        | (one.figures or {})
        | {"reason": one.reason}
        for one in found.not_fitting
    ]
    return lines


def _figure_names(rows: list[Row]) -> list[str]:
    return list(rows[0].figures) if rows else []


def _record(row: Row, keys: tuple[str, ...]) -> dict[str, Any]:
    named = dict(zip(keys, row.values, strict=True)) if keys else {"preset": row.name, "family": row.family}
    return named | {"fits": True, "front": row.front} | row.figures | ({} if keys else {"reason": None})
