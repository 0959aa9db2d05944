"""Budgets: the most that a model may cost, as in `--max-macs 25G`, `--max-params 30M`, `--max-memory 2GiB`.

A further budget is a line of `BUDGETS`: its quantity, its option and the reader of its unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from xfcost.ledger import units
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.read_numbers import PREFIXES_TEXT, read_number, whole

# Larger limits are typing errors.
_MOST: Final = 10**30
# Powers of 1000 below a second.
_TIMES: Final = {"s": 0, "ms": 1, "us": 2, "µs": 2, "ns": 3}
_TIME: Final = re.compile(r"(.*?)\s*(ms|us|µs|ns|s)?")
_LEAST_SECONDS, _MOST_SECONDS = 1e-12, 1e12
_BYTES: Final = re.compile(r"(?P<number>.*?)\s*(?P<prefix>[KMGTPE]i?)?B", re.IGNORECASE | re.ASCII)


class Budget(NamedTuple):
    """The most of one quantity."""

    quantity: str
    """A name in `BUDGETS` (`macs`, `params`, `memory`), or `device_memory`."""
    limit: Any
    """In base units: a count, bytes or seconds."""
    device: str = ""
    """The devices whose memory it is."""
    before: int | float | None = None
    """The figure of an earlier run, which `--max-increase` allows to grow as far as the limit."""

    @property
    def option(self) -> str:
        """`--max-macs`."""
        return _EVERY[self.quantity].option if self.before is None else INCREASE

    def allows(self, value: Any) -> Any:
        """Is `value` within the limit?"""
        return value <= self.limit

    def excess(self, value: float) -> float:
        """How far `value` is over the limit, as a share of it; negative below it."""
        if not self.limit:  # nothing may grow
            return math.inf if value else 0.0
        share: float = (value - self.limit) / self.limit
        return share

    def text(self) -> str:
        """`--max-macs 25 G`; of devices `the 79.26 GiB of a100-sxm-80`."""
        limit = _EVERY[self.quantity].shown(self.limit)
        return f"the {limit} of {self.device}" if self.device else f"{self.option} {limit}"


class BudgetOption(NamedTuple):
    """How the budget of one quantity is written."""

    option: str
    noun: str
    """What is limited, in words."""
    read: Callable[[str, Any], Any]
    """(option, given value) -> the limit; raises a UsageError."""
    shown: Callable[[Any], str]
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


def time_limit(option: str, given: Any) -> float:
    """10ms, 250 µs, 1.5s or 1.5 -> seconds.

    Raises:
        UsageError: it is none of these.
    """
    match = _TIME.fullmatch(shown(given).strip())
    number, unit = match.groups() if match else ("", None)
    try:
        seconds = float(read_number(number) / 1000 ** _TIMES[unit or "s"])
    except (ValueError, OverflowError):
        seconds = 0.0
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS:
        raise UsageError(
            f"{option} {shown(given)}: expected seconds, or a time in s, ms, µs or ns, as in {option} 10ms"
        )
    return seconds


def _short(limit: int) -> str:
    return units.trimmed(units.count(limit, 6))


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
    "seconds": BudgetOption(
        "--max-seconds", "seconds", time_limit, lambda limit: units.trimmed(units.seconds(limit)), "10ms"
    ),
}
INCREASE: Final = "--max-increase"
# In a search, of the devices of `--on`.
_DEVICE_MEMORY: Final = BudgetOption("--on", "bytes of the devices' memory", byte_limit, units.size, "h100-sxm")
_EVERY: Final = {**BUDGETS, "device_memory": _DEVICE_MEMORY}


def read_budgets(given: Mapping[str, Any]) -> tuple[Budget, ...]:
    """The budgets that are `given` by their quantity: {"macs": "25G", "memory": "2GiB"}; None is no budget.

    Raises:
        UsageError: a limit can't be read: no unit where bytes are asked, the wrong unit, no number.
    """
    return tuple(
        Budget(name, _EVERY[name].read(_EVERY[name].option, limit))
        for name, limit in given.items()
        if limit is not None
    )


class InferenceMemory(NamedTuple):
    """What inference holds at once, in closed form: bytes of the whole batch. A lower bound of the peak.

    Not in it: activations that are no attention matrices (the residual stream, the hidden layer of an MLP), buffers,
    and the workspace of kernels.
    """

    weights: int
    """All parameters, in the model's dtype or a quantised format."""
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
        weights=ledger.held_bytes,
        attention=ledger.attention_memory()["peak"],
        cache=ledger.cache.bytes if ledger.cache is not None else 0,
    )
