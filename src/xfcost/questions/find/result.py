"""What a search found: the models that fit, the front among them, why the others don't; what they are sorted by."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger import notebook, units
from xfcost.ledger.budgets import Budget
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.errors import UsageError, nearest, shown
from xfcost.ledger.quantization import WeightFormat
from xfcost.ledger.units import number_of
from xfcost.spec.run import Run


class Quantity(NamedTuple):
    """A figure of a model."""

    title: str
    """Its column."""
    text: Callable[[Any], str]
    descending: bool = False
    """Is more of it better at the same price? Then the most comes first."""


QUANTITIES: Final[dict[str, Quantity]] = {
    "params": Quantity("parameters", units.count, descending=True),
    "macs": Quantity("MACs", units.count),
    "flops": Quantity("FLOPs", units.count),
    "memory": Quantity("memory", units.size),
    "weight_bytes": Quantity("weights", units.size),
    "attention_bytes": Quantity("attention", units.size),
    "cache_bytes": Quantity("cache", units.size),
    "seconds": Quantity("time bound", units.seconds),
}


# The budget -> the quantity that it limits, where these have different names.
_LIMITED: Final = {"kv_cache": "cache_bytes", "device_memory": "memory"}


def limited(budget: Budget) -> str:
    """The quantity that a budget limits."""
    return _LIMITED.get(budget.quantity, budget.quantity)


def without_time(figures: dict[str, Any], over: Iterable[Budget]) -> dict[str, Any]:
    """The figures of a model over these budgets: where it does not fit in the memory of devices, it takes no time."""
    fits = all(budget.quantity != "device_memory" for budget in over)
    return figures if fits else figures | ({"seconds": None} if "seconds" in figures else {})


def quantity_name(option: str, given: str) -> str:
    """The quantity of `--sort`.

    Raises:
        UsageError: there is no such quantity.
    """
    name = str(given).strip().replace("-", "_")
    if name not in QUANTITIES:
        raise UsageError(f"{option} {shown(given)}: {nearest(name, QUANTITIES)}")
    return name


def front_names(given: str) -> tuple[str, str]:
    """`params,macs` -> the quantity that a front has the most of, and the one that it has the least of.

    Raises:
        UsageError: these are not two quantities.
    """
    names = given.split(",")
    if len(names) != 2 or len({name.strip() for name in names}) != 2:  # noqa: PLR2004 - the axes of a plot
        raise UsageError(
            f"--front {shown(given)}: expected two quantities, the most of one for the least of the other, as in "
            "--front params,macs"
        )
    return quantity_name("--front", names[0]), quantity_name("--front", names[1])


class Question(NamedTuple):
    """What is asked of every model."""

    budgets: tuple[Budget, ...] = ()
    sort: str = "params"
    descending: bool = True
    top: int = 20
    """Models that are listed, of those that fit."""
    front: tuple[str, str] = ("params", "macs")
    """For no model of the front is there another with as much of the first quantity and less of the second."""


class FoundModel(msgspec.Struct, frozen=True, kw_only=True):
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
    """How many are over only this budget."""
    nearest: FoundModel | None = None
    """The nearest of those over only this budget."""
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


class FindResult(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `xfcost find`."""

    question: Question
    run: Run
    searched: int
    """Models that were looked at."""
    fits: int
    rows: tuple[FoundModel, ...]
    """Those that fit, in order: of the gallery all, of ranges the first `question.top`."""
    front: tuple[FoundModel, ...]
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
    weights: dict[str, WeightFormat] = {}
    """Model -> the format of its weights, of those that have one."""
    more_work: tuple[str, ...] = ()
    """Models whose class, which is counted, does more than a server does."""

    @property
    def refused(self) -> int:
        """Models that can't be, or not with these run options."""
        return sum(one.count for one in self.left_out if not one.budget)

    def __repr__(self) -> str:
        return notebook.line(self, f"{number_of(self.searched, 'model')} searched, {self.fits:,} fit")


def records(found: FindResult) -> list[dict[str, Any]]:
    """One plain dict per listed model, then per model of the front that is not listed, then per preset left out."""
    listed = {row.name for row in found.rows}
    rows = [*found.rows, *(row for row in found.front if row.name not in listed)]
    lines = []
    for row in rows:
        names, reason = {"preset": row.name, "family": row.family}, {"reason": None}
        if found.keys:
            names, reason = dict(zip(found.keys, row.values, strict=True)), {}
        lines.append(names | {"fits": True, "front": row.front} | row.figures | reason)
    lines += [
        {"preset": one.name, "family": one.family, "fits": False, "front": False}
        | dict.fromkeys(rows[0].figures if rows else ())
        | (one.figures or {})
        | {"reason": one.reason}
        for one in found.not_fitting
    ]
    return lines


def checked_on(on: DeviceGroup | None, dtype: str, question: Question) -> Question:
    """`question`, with the memory of the devices as a budget, where it is known.

    Raises:
        UsageError: seconds are asked for without devices, or these have no peak of the dtype.
    """
    if on is None:
        asked = [budget.option for budget in question.budgets if budget.quantity == "seconds"]
        asked += [f"--sort {question.sort}"] if question.sort == "seconds" else []
        asked += [f"--front {','.join(question.front)}"] if "seconds" in question.front else []
        if asked:
            raise UsageError(f"{asked[0]}: needs a device, as in --on h100-sxm (`xfcost devices`)")
        return question
    on.peak(dtype)
    if on.memory_bytes is None:
        return question
    return question._replace(budgets=(*question.budgets, Budget("device_memory", on.memory_bytes, on.name)))
