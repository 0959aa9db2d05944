"""Budgets: the most that a model may cost, as in `--max-macs 25G`, `--max-params 30M`, `--max-memory 2GiB`.

A further budget is a line of `BUDGETS`: its quantity, its option and the reader of its unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.quantities import PREFIXES_TEXT, whole

# Larger limits are typing errors.
_MOST: Final = 10**30
_BYTES: Final = re.compile(r"(?P<number>.*?)\s*(?P<prefix>[KMGTPE]i?)?B", re.IGNORECASE | re.ASCII)


class Budget(NamedTuple):
    """The most of one quantity."""

    quantity: str
    """A name in `BUDGETS`: `macs`, `params`, `memory`."""
    limit: int
    """In base units: a count, or bytes."""

    @property
    def option(self) -> str:
        """`--max-macs`."""
        return BUDGETS[self.quantity].option

    def allows(self, value: int) -> bool:
        """Is `value` within the limit?"""
        return value <= self.limit

    def excess(self, value: int) -> float:
        """How far `value` is over the limit, as a share of it; negative below it."""
        return (value - self.limit) / self.limit

    def text(self) -> str:
        """`--max-macs 25 G`."""
        return f"{self.option} {BUDGETS[self.quantity].shown(self.limit)}"


class BudgetOption(NamedTuple):
    """How the budget of one quantity is written."""

    option: str
    noun: str
    """What is limited, in words."""
    read: Callable[[str, Any], int]
    """(option, given value) -> the limit; raises a UsageError."""
    shown: Callable[[int], str]
    example: str


def count_limit(unit: str, noun: str, example: str) -> Callable[[str, Any], int]:
    """A reader of a count: 25G, 25e9, 30M, or with its own `unit`, as in 25 GMACs; `noun` is for the message."""
    own = re.compile(rf"(.*?)\s*{unit}s?", re.IGNORECASE)

    def read(option: str, given: Any) -> int:
        match = own.fullmatch(given.strip()) if isinstance(given, str) else None
        number = whole(match[1] if match else given, floats=True)
        if number is None or not 1 <= number <= _MOST:
            raise UsageError(
                f"{option} {shown(given)}: expected a number of {noun} from 1, as in {option} {example} "
                f"({PREFIXES_TEXT})"
            )
        return number

    return read


def byte_limit(option: str, given: Any) -> int:
    """2GiB, 500 MB or 1024B -> bytes; a number in Python is bytes.

    Raises:
        UsageError: it is none of these; a text has no unit.
    """
    if isinstance(given, str):
        match = _BYTES.fullmatch(given.strip())
        if match is None and whole(given) is not None:
            raise UsageError(
                f"{option} {shown(given)}: has no unit; expected bytes, as in {option} 2GiB (2 × 1024³) or {option} "
                "2GB (2 × 1000³)"
            )
        number = whole(match["number"] + (match["prefix"] or "")) if match else None
    else:
        number = whole(given, floats=True)
    if number is None or not 1 <= number <= _MOST:
        raise UsageError(
            f"{option} {shown(given)}: expected bytes with their unit, as in {option} 2GiB or {option} 500MB"
        )
    return number


def _short(limit: int) -> str:
    """25 G, not 25.00 G."""
    number, _, prefix = units.count(limit, 6).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {prefix}".rstrip()


def _bytes(limit: int) -> str:
    """2 GiB, and 80 GB for what is a round number of those."""
    text = units.size(limit)
    return f"{_short(limit)}B" if "." in text and limit % 1000 == 0 else text


BUDGETS: Final[Mapping[str, BudgetOption]] = {
    "macs": BudgetOption("--max-macs", "MACs", count_limit("MAC", "MACs", "25G"), _short, "25G"),
    "params": BudgetOption("--max-params", "parameters", count_limit("param", "parameters", "30M"), _short, "30M"),
    "memory": BudgetOption("--max-memory", "bytes of memory", byte_limit, _bytes, "2GiB"),
    "flops": BudgetOption("--max-flops", "FLOPs", count_limit("FLOP", "FLOPs", "50G"), _short, "50G"),
    "kv_cache": BudgetOption("--max-kv-cache", "bytes of KV cache", byte_limit, _bytes, "4GiB"),
}


def read_budgets(given: Mapping[str, Any]) -> tuple[Budget, ...]:
    """The budgets that are `given` by their quantity: {"macs": "25G", "memory": "2GiB"}; None is no budget.

    Raises:
        UsageError: a limit can't be read: no unit where bytes are asked, the wrong unit, no number.
    """
    return tuple(
        Budget(name, BUDGETS[name].read(BUDGETS[name].option, limit))
        for name, limit in given.items()
        if limit is not None
    )


class InferenceMemory(NamedTuple):
    """What inference holds at once, in closed form: bytes of the whole batch. A lower bound of the peak.

    Not in it: activations that are no attention matrices (the residual stream, the hidden layer of an MLP), buffers,
    and the workspace of kernels.
    """

    weights: int
    """All parameters, in the model's dtype."""
    attention: int
    """The most attention matrices that are alive at once: scores and their softmax, for example."""
    cache: int
    """The KV cache and recurrent state of the modes `prefill` and `decode`; 0 in others."""

    @property
    def total(self) -> int:
        """All three."""
        return self.weights + self.attention + self.cache


def inference_memory(ledger: Ledger) -> InferenceMemory:
    """The memory of one pass without a backward pass."""
    return InferenceMemory(
        weights=(ledger.total("params") or 0) * ledger.bytes_per_element,
        attention=ledger.attention_memory()["peak"],
        cache=ledger.cache.bytes if ledger.cache is not None else 0,
    )
