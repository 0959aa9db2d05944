"""Seconds of CPU that tests take, and the cases of slow tests that `make test` leaves to `make test-rest`.

`pytest --record-durations` writes `data/durations.json`: of every test that takes more than `LISTED` in all its cases,
their number and the seconds of one. What a case starts counts too: processes, and commands of `preloaded`.
"""

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

import preloaded

FILE: Final = Path(__file__).with_name("data") / "durations.json"
# Seconds that the cases of one test may take in the whole quick tier, and where a kind, a change or a file is tested;
# and from which a test is listed.
IN_QUICK: Final = 0.4
IN_PART: Final = 3.0
LISTED: Final = 0.4
# Every case of these is a test of its own. A file of golden texts holds other sentences than the next; the others run
# every example of every mechanism and layer, and every pair of its options and places.
OF_ONE_CASE: Final = (
    "test_golden.py::test_commands_print_what_they_printed",
    "test_every_layer.py::test_a_layer_gives_what_its_reference_says",
    "test_every_mechanism.py::test_macs_are_half_of_what_torch_s_own_counter_says",
)


def name_of(item: pytest.Item) -> str:
    """A test without its parameters, as file::function."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def timed_as(item: pytest.Item) -> str:
    """The test whose cases share their seconds: without its parameters, or one case of `OF_ONE_CASE`."""
    return f"{item.path.name}::{item.name}" if name_of(item) in OF_ONE_CASE else name_of(item)


def seconds() -> float:
    """CPU seconds of this process, of those that it has started and waited for, and of commands of `preloaded`."""
    return sum(os.times()[:4]) + preloaded.seconds


def recorded() -> dict[str, float]:
    """Of each slow test the seconds of one case."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def in_quick(cases: int, each: float, seconds: float) -> int:
    """How many of a test's cases the quick tier runs: as many as fit into so many seconds."""
    return min(cases, math.floor(seconds / each))


def that_fit(test: str, cases: Sequence[str], durations: Mapping[str, float], seconds: float) -> list[str]:
    """Of a test's cases as many as run in so many seconds, spread evenly; of `OF_ONE_CASE` each that does."""
    if test in OF_ONE_CASE:
        return [case for case in cases if durations.get(f"{test}[{case}]", 0) <= seconds]
    kept = in_quick(len(cases), durations[test], seconds) if test in durations else len(cases)
    return [cases[number * len(cases) // kept] for number in range(kept)]


def write(measured: Iterable[tuple[str, float]]) -> None:
    """Record (test, seconds of a case): of a test that ran, its mean; the others keep what they had."""
    found = defaultdict(list)
    for name, spent in measured:
        found[name].append(spent)
    means = {name: float(f"{sum(all_) / len(all_):.2g}") for name, all_ in found.items() if sum(all_) > LISTED}
    kept = {name: each for name, each in recorded().items() if name not in found}
    FILE.write_text(json.dumps(dict(sorted((kept | means).items())), indent=0) + "\n", encoding="utf-8")
