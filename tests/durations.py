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
# Seconds that the cases of one test may take in the quick tier, and from which a test is listed.
IN_QUICK: Final = 3.0
LISTED: Final = 1.0
# Its cases run in the quick tier, all of them: each holds other sentences.
WHOLE: Final = "test_golden.py"


def name_of(item: pytest.Item) -> str:
    """A test without its parameters, as file::function."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"


def seconds() -> float:
    """CPU seconds of this process, of those that it has started and waited for, and of commands of `preloaded`."""
    return sum(os.times()[:4]) + preloaded.seconds


def recorded() -> dict[str, float]:
    """Of each slow test the seconds of one case."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def in_quick(cases: int, each: float) -> int:
    """How many of a test's cases the quick tier runs: as many as fit into `IN_QUICK`."""
    return min(cases, math.floor(IN_QUICK / each))


def thinned(items: Sequence[pytest.Item], durations: Mapping[str, float]) -> None:
    """Mark as `rest` the cases of slow tests that do not fit into the quick tier; those that stay are spread evenly."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("rest") is None:
            cases[name_of(item)].append(item)
    for name, known in cases.items():
        kept = in_quick(len(known), durations.get(name, 0.0)) if name in durations else len(known)
        chosen = {number * len(known) // kept for number in range(kept)}
        for number, item in enumerate(known):
            if number not in chosen:
                item.add_marker(pytest.mark.rest)


def write(measured: Iterable[tuple[str, float]]) -> None:
    """Record (test, seconds of a case): of a test that ran, its mean; the others keep what they had."""
    found = defaultdict(list)
    for name, spent in measured:
        found[name].append(spent)
    means = {name: float(f"{sum(all_) / len(all_):.2g}") for name, all_ in found.items() if sum(all_) > LISTED}
    means = {name: each for name, each in means.items() if not name.startswith(WHOLE)}
    kept = {name: each for name, each in recorded().items() if name not in found}
    FILE.write_text(json.dumps(dict(sorted((kept | means).items())), indent=0) + "\n", encoding="utf-8")
