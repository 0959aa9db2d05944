"""A run held against its budgets: the result of `xfcost check`, and the object of `check --format json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.counting.differences import Change, change_object
from xfcost.ledger import notebook
from xfcost.ledger.budgets import BUDGETS, Budget, inference_memory
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import json_text
from xfcost.ledger.operation import Operation
from xfcost.ledger.training import MESH_FIELDS, DeviceMemory, Mesh
from xfcost.ledger.units import number_of

_LOGITS: Final = "logits of the loss"


class BudgetFigure(NamedTuple):
    """What a run costs of one quantity."""

    value: int
    words: str
    """What it is: `MACs`, `MACs of a training step`, `weights + attention matrices`."""
    parts: Mapping[str, int] | None = None
    """Of a sum: its parts."""
    at_least: bool = False
    """Is it a lower bound, because no formula knows an operation of the module?"""
    of_a_device: bool = False
    """Is it of one of several devices, which share what the operations need?"""

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
    value: int
    share: float
    """Of the whole."""


def figure_of(ledger: Ledger, budget: Budget) -> BudgetFigure:
    """The figure that a budget limits.

    Raises:
        UsageError: this run has no such figure.
    """
    if budget.quantity == "params":
        return BudgetFigure(ledger.total("params") or 0, "parameters")
    if budget.quantity == "memory":
        return _memory(ledger, budget)
    if budget.quantity != "kv_cache":
        return _work(ledger, budget)
    if ledger.cache is None:
        raise UsageError(
            f"{budget.option}: --mode {ledger.metadata.mode} keeps no cache; add --mode prefill, decode or generate"
        )
    return BudgetFigure(ledger.cache.bytes, "KV cache and state")


def _work(ledger: Ledger, budget: Budget) -> BudgetFigure:
    """MACs or FLOPs of what the mode runs: a pass, a decode step, a whole generation, a training step."""
    noun, quantity = BUDGETS[budget.quantity].noun, budget.quantity
    incomplete = ledger.module is not None and not ledger.module.complete
    if ledger.training is not None:
        step = ledger.training.step
        value = step.model_flops if quantity == "flops" else step.forward_macs + step.backward_macs
        return BudgetFigure(value, f"{noun} of a training step", None, incomplete)
    if ledger.generation is not None:
        whole = ledger.generation.with_cache
        if whole is None:
            raise UsageError(f"{budget.option}: there are no decode steps: {ledger.generation.refused}")
        return BudgetFigure(getattr(whole, quantity), f"{noun} of a generation", None, incomplete)
    words = f"{noun} of a decode step" if ledger.metadata.mode == "decode" else noun
    return BudgetFigure(ledger.total(quantity) or 0, words, None, incomplete)


def _memory(ledger: Ledger, budget: Budget) -> BudgetFigure:
    """Bytes of a pass, or of a training step."""
    if ledger.training is not None:
        step, plan = ledger.training.step, ledger.training.plan
        if step.total_with_loss_bytes is None or (plan is not None and not plan.memory.complete):
            raise UsageError(
                f"{budget.option} of --mode train: the optimizer's states or the saved activations are not known in "
                "closed form; add --trace"
            )
        if plan is not None:
            return _device_memory(plan.memory)
        parts = {
            "parameters, gradients and optimizer": step.fixed_bytes or 0,
            "saved activations": step.kept_bytes,
            _LOGITS: step.loss_logits_bytes,
        }
        return BudgetFigure(step.total_with_loss_bytes, "memory of a training step", _some(parts))
    memory = inference_memory(ledger)
    parts = {"weights": memory.weights, "attention matrices": memory.attention, "KV cache and state": memory.cache}
    return BudgetFigure(memory.total, "memory", _some(parts))


def _device_memory(memory: DeviceMemory) -> BudgetFigure:
    parts = {
        "parameters, gradients and optimizer": memory.states,
        "saved activations": memory.activations,
        "recomputed activations": memory.recomputed,
        _LOGITS: memory.logits,
    }
    return BudgetFigure(memory.known, "memory of a device", _some(parts), of_a_device=True)


def devices_words(ledger: Ledger) -> list[str]:
    """`on h100-sxm x8, --zero 3 --checkpoint full`; nothing without devices."""
    plan = None if ledger.training is None else ledger.training.plan
    if plan is None:
        return []
    plain = Mesh(on=plan.mesh.on)
    named = {option: getattr(plan.mesh, field) for option, field in MESH_FIELDS.items()}
    shared = [
        f"--{option.replace('_', '-')}" + ("" if value is True else f" {value}")
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
}


def growing(figure: BudgetFigure, budget: Budget) -> str:
    """The quantity of operations that a budget is of; of memory that of its largest part."""
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


def _values(ledger: Ledger, quantity: str, param: int, *, held: bool) -> Iterator[tuple[Operation, int]]:
    """Every row and its value in all blocks, of parameters `param` each, or the bytes that inference holds of them.

    MACs of a training step are of both passes.
    """
    element, stored = ledger.bytes_per_element, ledger.storage
    for row in ledger.rows:
        if quantity == "attention_bytes":
            value = 0 if row.matrix is None else row.matrix.alive_bytes(element)  # the largest alone is alive
        elif quantity == "cache_bytes":
            value = ledger.cached_bytes_of(row)
        elif held and quantity == "params":
            value = stored.held_bytes(row) * row.times
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
    held: tuple[BudgetResult, ...]
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

    _repr_html_ = notebook.html

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


def heaviest(weights: Sequence[Weight], most: int) -> tuple[Weight, ...]:
    """The operations that weigh most, the heaviest first."""
    return tuple(sorted((one for one in weights if one.value), key=lambda one: -one.value)[:most])
