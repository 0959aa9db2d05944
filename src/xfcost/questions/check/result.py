"""A run held against its budgets: the result of `xfcost check`, and the object of `check --format json`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.api.options import flag_of
from xfcost.comparing.differences import Change, change_object, not_predicted_alike
from xfcost.comparing.saved_report import Report
from xfcost.ledger import notebook
from xfcost.ledger.budgets import BUDGETS, INCREASE, Budget, InferenceMemory
from xfcost.ledger.errors import UsageError
from xfcost.ledger.json_objects import json_text
from xfcost.ledger.least_work import row_bound
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.ledger.units import number_of
from xfcost.parts.serving.result import output_word
from xfcost.parts.training.result import MESH_FIELDS, DeviceMemory, Mesh

_LOGITS: Final = "logits of the loss"


class BudgetFigure(NamedTuple):
    """What a run costs of one quantity."""

    value: int | float
    words: str
    """What it is: `MACs`, `MACs of a training step`, `weights + attention matrices`."""
    parts: Mapping[str, int] | None = None
    """Of a sum: its parts."""
    at_least: bool = False
    """Is it a lower bound, because an operation of the module has no formula?"""
    of_a_device: bool = False
    """Is it of one of several devices, which share what the operations need?"""
    interval: tuple[float, float] | None = None
    """Of predicted seconds."""
    outputs: tuple[int, str] | None = None
    """Of a lower bound: how many tokens or samples its seconds give, and which of the two."""

    @property
    def largest(self) -> str | None:
        """The largest of the parts that operations add up to; the loss's logits are of none."""
        of_operations = {name: value for name, value in (self.parts or {}).items() if name != _LOGITS}
        return max(of_operations, key=lambda name: of_operations[name], default=None)


class Weight(NamedTuple):
    """What one operation adds, in all its blocks."""

    block: str
    title: str
    path: str
    times: int
    value: int | float
    share: float
    """Of the whole."""


def figure_of(report: Report, quantity: str, option: str) -> BudgetFigure:
    """The figure of a run that `option` limits.

    Raises:
        UsageError: this run has no such figure.
    """
    if quantity == "params":
        return BudgetFigure(report.totals.params or 0, "parameters")
    if quantity == "memory":
        return _memory(report, option)
    if quantity == "seconds":
        return _seconds(report, option)
    if quantity != "kv_cache":
        return _work(report, quantity, option)
    if report.cache is None:
        raise UsageError(f"{option}: --mode {report.mode} keeps no cache; add --mode prefill, decode or generate")
    return BudgetFigure(report.cache.bytes or 0, "KV cache and state")


def _work(report: Report, quantity: str, option: str) -> BudgetFigure:
    """MACs or FLOPs of what the mode runs: a pass, a decode step, a whole generation, a training step."""
    noun, incomplete = BUDGETS[quantity].noun, not report.module.complete
    if report.training is not None and (step := report.training.step) is not None:
        value = step.model_flops if quantity == "flops" else _sum(step.forward_macs, step.backward_macs)
        return BudgetFigure(value or 0, f"{noun} of a training step", None, incomplete)
    if report.generation is not None:
        whole = report.generation.with_cache
        if whole is None:
            raise UsageError(f"{option}: there are no decode steps: {report.generation.refused}")
        return BudgetFigure(getattr(whole, quantity), f"{noun} of a generation", None, incomplete)
    words = f"{noun} of a decode step" if report.mode == "decode" else noun
    return BudgetFigure(getattr(report.totals, quantity) or 0, words, None, incomplete)


def _memory(report: Report, option: str) -> BudgetFigure:
    """Bytes of a pass, or of a training step; on devices of the one that needs most."""
    parts: dict[str, int | None]
    if report.training is None or (step := report.training.step) is None:
        totals, cache = report.totals, report.cache
        if totals.held_bytes is None:
            raise UsageError(f"{option}: a saved report lacks the bytes of the weights; save it again")
        memory = InferenceMemory(
            totals.held_bytes, totals.attention_peak_bytes or 0, cache.bytes or 0 if cache is not None else 0
        )
        parts = {"weights": memory.weights, "attention matrices": memory.attention, "KV cache and state": memory.cache}
        return BudgetFigure(memory.total, "memory", _some(parts))
    plan = report.training.plan
    held: DeviceMemory | None = None if plan is None else plan.memory
    parts = {
        "parameters, gradients and optimizer": step.fixed_bytes if held is None else held.states,
        "saved activations": step.kept_bytes if held is None else held.activations,
        "recomputed activations": step.recomputed_bytes if held is None else held.recomputed,
        _LOGITS: step.loss_logits_bytes if held is None else held.logits,
    }
    total = _sum(*parts.values())
    if total is None:
        raise UsageError(
            f"{option} of --mode train: the optimizer's states or the saved activations are not known in closed form; "
            "add --trace"
        )
    of_a_device = held is not None
    words = "memory of a device" if of_a_device else "memory of a training step"
    return BudgetFigure(total, words, _some(parts), of_a_device=of_a_device)


def on_devices(ledger: Ledger, report: Report) -> tuple[Budget, BudgetFigure] | None:
    """The memory of the devices, and what the run takes of it; None without devices, or where a side is not known."""
    plan = None if ledger.training is None else ledger.training.plan
    if ledger.on is not None:
        memory = ledger.on.memory
        parts = {"weights": memory.weights, "KV cache and state": memory.held_cache, "activations": memory.alive}
        figure = BudgetFigure(memory.reserved, "memory", _some(parts), of_a_device=memory.of_each)
        limit = memory.available
    elif plan is not None and plan.memory.complete:
        limit, figure = plan.device_bytes, _memory(report, "--on")
    else:
        return None
    return None if limit is None else (Budget("memory", limit, device=_devices(report) or ""), figure)


def _seconds(report: Report, option: str) -> BudgetFigure:
    """Seconds of what the mode runs: predicted, or the lower bound on devices."""
    if (prediction := report.prediction) is not None:
        interval = (prediction.low, prediction.high)
        return BudgetFigure(prediction.seconds, f"predicted on {prediction.device}", interval=interval)
    plan = None if report.training is None else report.training.plan
    shortage = report.on.no_time if report.on is not None else plan and plan.shortage
    if shortage is not None:
        others = ", or ".join(report.on.memory.remedies) if report.on else " ".join(plan.remedies if plan else ())
        mended = f"; it would fit with {others}" if others else ""
        raise UsageError(f"{option}: a run on {_devices(report)} {shortage}{mended}")
    if report.on is not None and (least := report.on.least_seconds) is not None:
        number = report.on.outputs
        return BudgetFigure(least, _LOWER_BOUND, outputs=None if number is None else (number, output_word(report.mode)))
    if plan is not None:
        return BudgetFigure(plan.bound_step_seconds, f"{_LOWER_BOUND} of a training step")
    raise UsageError(
        f"{option}: needs a device: --on h100-sxm for its lower bound, or --predict for a prediction from this "
        "machine's calibration (`xfcost calibrate`)"
    )


_LOWER_BOUND: Final = "lower bound"


def _sum(*parts: int | None) -> int | None:
    """The sum; None where a part is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def increase_budgets(before: Report, after: Report, most: Fraction) -> Iterator[tuple[Budget, BudgetFigure]]:
    """MACs, parameters, memory and, where both runs have them, seconds: each with its most, a share above that before.

    Raises:
        UsageError: a figure is not known, or the seconds are of other devices.
    """
    timed = after.prediction is not None or _devices(after) is not None
    for quantity in ("macs", "params", "memory", *(("seconds",) if timed else ())):
        if quantity == "seconds":
            _check_same_device(before, after)
        first, second = (figure_of(report, quantity, INCREASE) for report in (before, after))
        limit = first.value * (1 + most)
        exact = float(limit) if quantity == "seconds" else math.floor(limit)
        yield Budget(quantity, exact, before=first.value), second


def _check_same_device(before: Report, after: Report) -> None:
    if after.prediction is not None:
        other = "not predicted before" if before.prediction is None else not_predicted_alike(before, after)
    else:
        devices = _devices(before)
        other = None if devices == _devices(after) else f"before on {devices or 'no device'}, now on {_devices(after)}"
    if other:
        raise UsageError(f"{INCREASE}: seconds are not comparable: {other}; give both runs the same device")


def _devices(report: Report) -> str | None:
    """The devices of which a run has a lower bound: `h100-sxm x8`."""
    if report.on is not None:
        name, number = report.on.device, report.on.count
    elif report.training is not None and (plan := report.training.plan) is not None:
        name, number = plan.device, plan.devices
    else:
        return None
    return name if number == 1 else f"{name} x{number}"


def devices_words(ledger: Ledger) -> list[str]:
    """`on h100-sxm x8, --zero 3 --recompute full`; nothing without devices."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is None:
        return [] if ledger.on is None else [f"on {ledger.on.on.name}"]
    plain = Mesh(on=plan.mesh.on)
    named = {option: getattr(plan.mesh, field) for option, field in MESH_FIELDS.items()}
    shared = [
        flag_of(option) + ("" if value is True else f" {value}")
        for option, value in named.items()
        if value != getattr(plain, MESH_FIELDS[option])
    ]
    return [f"on {plan.mesh.on.name}{',' if shared else ''}", *shared]


def _some(parts: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in parts.items() if value}


# The quantity of a diff that shows what grew.
GROWING_OF_BUDGETS: Final = {
    "macs": "macs",
    "flops": "flops",
    "params": "params",
    "memory": "params",  # or that of its largest part
    "kv_cache": "cache_bytes",
    "seconds": "predicted_seconds",  # or the lower bound
}


def growing(figure: BudgetFigure, budget: Budget) -> str:
    """The quantity of operations that a budget is of; of memory that of its largest part."""
    if budget.quantity == "seconds" and figure.words.startswith(_LOWER_BOUND):
        return "least_seconds"
    if budget.quantity != "memory" or figure.largest is None:
        return GROWING_OF_BUDGETS[budget.quantity]
    return _OF_PARTS.get(figure.largest, "params")


_OF_PARTS: Final = {
    "attention matrices": "attention_bytes",
    "KV cache and state": "cache_bytes",
    "saved activations": "kept_bytes",
    "recomputed activations": "kept_bytes",
}


def weights(ledger: Ledger, figure: BudgetFigure, budget: Budget) -> list[Weight]:
    """What every operation adds to a figure; of memory to its largest part, of all devices."""
    fixed = None if ledger.training is None else ledger.training.step.fixed_bytes
    of_memory = budget.quantity == "memory"
    # of memory in training the bytes of a parameter, its gradient and its states
    param = 1 if fixed is None or not of_memory else fixed // (ledger.total("params") or 1)
    found = list(_values(ledger, growing(figure, budget), param, held=of_memory and fixed is None))
    summed = budget.quantity != "memory" or figure.of_a_device
    whole = sum(value for _, value in found) or 1 if summed else figure.value
    return [Weight(row.block, row.title, row.path, row.times, value, value / whole) for row, value in found]


def _values(ledger: Ledger, quantity: str, param: int, *, held: bool) -> Iterator[tuple[Operation, int | float]]:
    """Every row and its value in all blocks, of parameters `param` each, or the bytes that inference holds of them.

    MACs of a training step are of both passes.
    """
    element, stored = ledger.bytes_per_element, ledger.storage
    value: int | float
    for row in ledger.rows:
        if quantity == "attention_bytes":
            value = 0 if row.matrix is None else row.matrix.alive_bytes(element)  # only the largest is alive
        elif quantity == "cache_bytes":
            value = ledger.cached_bytes_of(row)
        elif quantity == "least_seconds":
            bound = row_bound(row, ledger)
            value = 0 if bound is None else bound.least_seconds * row.times
        elif held and quantity == "params":
            value = stored.held_in_all(row)
        else:
            value = (row.times_over(quantity) or 0) * (param if quantity == "params" else 1)
            value += (row.times_over("backward_macs") or 0) if quantity == "macs" and ledger.training else 0
        yield row, value


Verdict = Literal["within", "over", "not known"]


class BudgetResult(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a run held against its budget."""

    budget: Budget
    figure: BudgetFigure
    heaviest: tuple[Weight, ...] = ()
    """Over the budget: the largest operations."""
    grown: tuple[Change, ...] | None = None
    """Over the budget, and compared with another run: the operations that grew; None where it wasn't."""

    @property
    def verdict(self) -> Verdict:
        """Is it within the budget? `not known` of a lower bound that is within."""
        if not self.budget.allows(self.figure.value):
            return "over"
        return "not known" if self.figure.at_least else "within"

    @property
    def difference(self) -> int | float:
        """Ours less the limit: how far it is over, or negative, under."""
        difference: int | float = self.figure.value - self.budget.limit
        return difference


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one system held against all its budgets."""

    target: str
    """As it was given."""
    name: str
    run: str
    """The input and the run, in words."""
    held: tuple[BudgetResult, ...]
    against: str | None = None
    """The run that it was compared with."""
    compares: bool = False
    """Was it to be compared with another run?"""
    agrees: bool = True
    """Do the accounts agree, where a trace checked them? Else no figure is to be trusted."""
    notes: tuple[str, ...] = ()

    @property
    def within(self) -> bool:
        """Is every figure within its budget?"""
        return self.agrees and all(one.verdict == "within" for one in self.held)


class CheckResult(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """Every checked run."""

    checked: tuple[Checked, ...]

    @property
    def within(self) -> bool:
        """Is everything within its budget?"""
        return all(one.within for one in self.checked)

    def __bool__(self) -> bool:
        """`within`."""
        return self.within

    def __repr__(self) -> str:
        within = sum(one.within for one in self.checked)
        return notebook.line(self, f"{within:,} of {number_of(len(self.checked), 'target')} within budget")

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
        "budgets": [
            held_object(one)
            | {
                "parts": None if one.figure.parts is None else dict(one.figure.parts),
                "heaviest": [weight._asdict() for weight in one.heaviest],
                "grown": None if one.grown is None else [change_object(change) for change in one.grown],
            }
            for one in checked.held
        ],
        "notes": list(checked.notes),
    }


def held_object(held: BudgetResult) -> dict[str, Any]:
    """One budget as plain data; `difference` is ours less the limit, `before` the figure that an increase is of.

    `excess`, a share of the limit, is None of a limit of 0.
    """
    return {
        "quantity": held.budget.quantity,
        "option": held.budget.option,
        "what": BUDGETS[held.budget.quantity].noun,
        "before": held.budget.before,
        "ours": held.figure.value,
        "at_least": held.figure.at_least,
        "limit": held.budget.limit,
        "difference": held.difference,
        "excess": held.budget.excess(held.figure.value) if held.budget.limit else None,
        "verdict": held.verdict,
    }


def heaviest(weights: Sequence[Weight], most: int) -> tuple[Weight, ...]:
    """The largest operations, in order."""
    return tuple(sorted((one for one in weights if one.value), key=lambda one: -one.value)[:most])
