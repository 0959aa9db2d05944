"""What models are sorted, limited and drawn by. A further quantity is a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from xfcost.counting.find.costs import Totals
from xfcost.ledger import units
from xfcost.ledger.budgets import Budget
from xfcost.ledger.errors import UsageError, nearest, shown


class Quantity(NamedTuple):
    """A figure of a model."""

    title: str
    """Its column."""
    of: Callable[[Totals], Any]
    """Its value, or an array of values."""
    text: Callable[[Any], str]
    descending: bool = False
    """Is more of it better at the same price? Then the most comes first."""


QUANTITIES: Final[dict[str, Quantity]] = {
    "params": Quantity("parameters", lambda totals: totals.params, units.count, descending=True),
    "macs": Quantity("MACs", lambda totals: totals.macs, units.count),
    "flops": Quantity("FLOPs", lambda totals: totals.flops, units.count),
    "memory": Quantity("memory", lambda totals: totals.memory, units.size),
    "weight_bytes": Quantity("weights", lambda totals: totals.inference.weights, units.size),
    "attention_bytes": Quantity("attention", lambda totals: totals.inference.attention, units.size),
    "cache_bytes": Quantity("cache", lambda totals: totals.inference.cache, units.size),
    "seconds": Quantity("time bound", lambda totals: totals.seconds, units.seconds),
    "tf32_seconds": Quantity("with TF32", lambda totals: totals.tf32_seconds, units.seconds),
}


# The budget -> the quantity that it limits, where these have different names.
_LIMITED: Final = {"kv_cache": "cache_bytes", "device_memory": "memory"}


def figures_of(totals: Totals) -> dict[str, Any]:
    """Every quantity; seconds only on devices."""
    found = {name: quantity.of(totals) for name, quantity in QUANTITIES.items()}
    return {name: value for name, value in found.items() if value is not None}


def limited(budget: Budget) -> str:
    """The quantity that a budget limits."""
    return _LIMITED.get(budget.quantity, budget.quantity)


def quantity_name(option: str, given: str) -> str:
    """The quantity of `--sort`.

    Raises:
        UsageError: there is no such quantity.
    """
    name = given.strip().replace("-", "_")
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
