"""The result of `xfcost check`, and the object of `check --format json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from xfcost.counting.checking.figures import Figure, Weight
from xfcost.counting.differences.changes import Change
from xfcost.counting.differences.result import change_object
from xfcost.ledger import notebook
from xfcost.ledger.budgets import BUDGETS, Budget
from xfcost.ledger.objects import json_text
from xfcost.ledger.units import number_of

Verdict = Literal["within", "over", "not known"]


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a run held against its budget."""

    budget: Budget
    figure: Figure
    heaviest: tuple[Weight, ...] = ()
    """Over the budget: the operations that weigh most."""
    grown: tuple[Change, ...] | None = None
    """Over the budget, and compared with another run: the operations that grew; None where it wasn't."""

    @property
    def verdict(self) -> Verdict:
        """Is it within the budget? `not known` of a lower bound that is within."""
        if not self.budget.allows(self.figure.value):
            return "over"
        return "not known" if self.figure.at_least else "within"

    @property
    def difference(self) -> int:
        """Ours less the limit: how far it is over, or negative, under."""
        difference: int = self.figure.value - self.budget.limit
        return difference


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one system held against all its budgets."""

    target: str
    """As it was given."""
    name: str
    run: str
    """The input and the run, in words."""
    held: tuple[Held, ...]
    against: str | None = None
    """The run that it was compared with."""
    agrees: bool = True
    """Do the accounts agree, where a trace checked them? Else no figure is to be trusted."""
    notes: tuple[str, ...] = ()

    @property
    def within(self) -> bool:
        """Is every figure within its budget?"""
        return self.agrees and all(one.verdict == "within" for one in self.held)


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Every checked run."""

    checked: tuple[Checked, ...]

    @property
    def within(self) -> bool:
        """Is everything within its budget?"""
        return all(one.within for one in self.checked)

    def __repr__(self) -> str:
        within = sum(one.within for one in self.checked)
        return notebook.line(self, f"{within:,} of {number_of(len(self.checked), 'target')} within budget")

    def _repr_html_(self) -> str | None:
        """The table that a notebook shows."""
        return notebook.html(self)

    def to_json(self) -> str:
        """The JSON object of `xfcost check --format json`."""
        return json_text({"within": self.within, "targets": [_checked_object(one) for one in self.checked]})


def _checked_object(checked: Checked) -> dict[str, Any]:
    return {
        "target": checked.target,
        "name": checked.name,
        "run": checked.run,
        "within": checked.within,
        "against": checked.against,
        "agrees": checked.agrees,
        "budgets": [held_object(one) | _why(one) for one in checked.held],
        "notes": list(checked.notes),
    }


def held_object(held: Held) -> dict[str, Any]:
    """One budget as plain data; `difference` is ours less the limit."""
    return {
        "quantity": held.budget.quantity,
        "option": held.budget.option,
        "what": BUDGETS[held.budget.quantity].noun,
        "ours": held.figure.value,
        "at_least": held.figure.at_least,
        "limit": held.budget.limit,
        "difference": held.difference,
        "excess": held.budget.excess(held.figure.value),
        "verdict": held.verdict,
    }


def _why(held: Held) -> dict[str, Any]:
    grown = None if held.grown is None else [change_object(change) for change in held.grown]
    parts = None if held.figure.parts is None else dict(held.figure.parts)
    return {"parts": parts, "heaviest": [weight.as_object() for weight in held.heaviest], "grown": grown}


def heaviest(weights: Sequence[Weight], most: int) -> tuple[Weight, ...]:
    """The operations that weigh most, the heaviest first."""
    return tuple(sorted((one for one in weights if one.value), key=lambda one: -one.value)[:most])
