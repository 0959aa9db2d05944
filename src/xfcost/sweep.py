"""Counted ledgers over a range of N: the numbers behind a scaling plot.

Image specs are swept over square grids, sequence specs over any N; both in about equal ratios, as log axes want it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from xfcost.comparison import CURVES, counted_at
from xfcost.errors import SpecError, UsageError
from xfcost.grid import near_square
from xfcost.ledger import Ledger
from xfcost.spec.load import Loaded
from xfcost.spec.walk import Run, place

# Points that a sweep aims at. Windows that don't divide a grid make steps; this many show them as they are.
_POINTS: Final = 97

QUANTITIES: Final[dict[str, Callable[[Ledger], int]]] = {
    "params": lambda ledger: ledger.total("params") or 0,
    **CURVES,
}
"""Name of a figure (as in the CSV) -> how a ledger answers it."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One system, counted at ascending N."""

    name: str
    loaded: Loaded
    ledgers: tuple[Ledger, ...]
    ended: str | None = None
    """Why the sweep stops short of the range, where it does."""

    @property
    def tokens(self) -> list[int]:
        """The N of its points."""
        return [ledger.facts.grid_tokens for ledger in self.ledgers]

    def values(self, quantity: str) -> list[int]:
        """One figure at every N."""
        return [QUANTITIES[quantity](ledger) for ledger in self.ledgers]


def sweep(name: str, loaded: Loaded, run: Run, span: tuple[int, int], extra: Iterable[int] = ()) -> Sweep:
    """`loaded` counted at every N of `span` that it can have, and at those of `extra`.

    Where N outgrows the spec (a learned position table), the sweep ends at the largest N that fits, and says why.

    Raises:
        SpecError: not even two N of the range can be.
        UsageError: the range holds fewer than two square grids.
    """
    root = 2 if len(place(loaded, run).grid.sides) > 1 else 1
    steps = _steps(span, root)
    ledgers: list[Ledger] = []
    ended: SpecError | None = None
    try:
        for step in steps:
            ledgers.append(counted_at(loaded, run, step**root))  # noqa: PERF401 - what came before an error is kept
    except SpecError as error:
        ended = error
        if ledgers:
            ledgers += _to_the_limit(loaded, run, steps[len(ledgers) - 1], steps[len(ledgers)], root)
        if len(ledgers) < 2:  # noqa: PLR2004 - a line has two ends
            raise
    known = {ledger.facts.grid_tokens for ledger in ledgers}
    more = [n for n in extra if n not in known and min(known) < n < max(known) and (root == 1 or near_square(n))]
    ledgers += [counted_at(loaded, run, n) for n in more]
    ledgers.sort(key=lambda ledger: ledger.facts.grid_tokens)
    return Sweep(name=name, loaded=loaded, ledgers=tuple(ledgers), ended=str(ended) if ended else None)


def _steps(span: tuple[int, int], root: int) -> list[int]:
    """Whole numbers in about equal ratios whose `root`-th power lies in `span`: sides of square grids, or N itself."""
    low, high = span
    if root > 1:
        low, high = math.isqrt(low - 1) + 1, math.isqrt(high)
        if low >= high:
            near = f"{max(low - 1, 1) ** 2}:{(max(low, high) + 1) ** 2}"
            raise UsageError(
                f"--N {span[0]}:{span[1]}: image specs are swept over square grids, and there are fewer than two "
                f"in this range; try --N {near}"
            )
    ratio = high / low
    return sorted({round(low * ratio ** (number / (_POINTS - 1))) for number in range(_POINTS)})


def _to_the_limit(loaded: Loaded, run: Run, fits: int, fails: int, root: int) -> list[Ledger]:
    """The ledger at the largest N that fits, between a step that does and one that doesn't."""
    best: list[Ledger] = []
    while fails - fits > 1:
        middle = (fits + fails) // 2
        try:
            best = [counted_at(loaded, run, middle**root)]
            fits = middle
        except SpecError:
            fails = middle
    return best


def slope(tokens: Sequence[float], values: Sequence[float]) -> float | None:
    """The exponent in N: the slope of the least-squares line through the points, both axes logarithmic."""
    points = [(math.log(n), math.log(value)) for n, value in zip(tokens, values, strict=True) if value > 0]
    if len({x for x, _ in points}) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    above = math.fsum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / math.fsum((x - mean_x) ** 2 for x, _ in points)


def few(tokens: Sequence[int], most: int) -> list[int]:
    """At most `most` of `tokens`, in about equal ratios, both ends included."""
    if len(tokens) <= most:
        return list(tokens)
    low, ratio = tokens[0], tokens[-1] / tokens[0]
    wanted = [low * ratio ** (number / (most - 1)) for number in range(most)]
    return sorted({min(tokens, key=lambda n, at=at: abs(math.log(n / at))) for at in wanted})  # type: ignore[misc]


def records(one: Sweep, measured: Sequence[Ledger] = ()) -> list[dict[str, Any]]:
    """One plain dict per N, as in the CSV: counts exact, bytes, seconds; what wasn't measured is None."""
    live = {ledger.facts.grid_tokens: ledger for ledger in measured}
    result = []
    for ledger in one.ledgers:
        facts, other = ledger.facts, live.get(ledger.facts.grid_tokens)
        row: dict[str, Any] = {"system": one.name, "spec": facts.source, "N": facts.grid_tokens}
        row |= {name: getattr(facts, name) for name in ("extra_tokens", "batch", "dtype", "attention")}
        row |= {quantity: answer(ledger) for quantity, answer in QUANTITIES.items()}
        row |= {f"traced_{name}": traced(other, name) if other else None for name in ("params", "macs", "mixing_macs")}
        timing = other.timing if other else None
        row |= {name: getattr(timing, name, None) for name in ("seconds", "spread", "runs", "device", "machine")}
        result.append(row)
    return result


def traced(ledger: Ledger, quantity: str) -> int | None:
    """`params`, `macs` or `mixing_macs` as the trace counted them; None where there was no trace."""
    if quantity == "mixing_macs":
        return ledger.total("traced_macs", lambda row: row.mixes)
    return ledger.total(f"traced_{quantity}")
