"""The result of `xfcost compare`, and the object of `compare --format json`."""

from __future__ import annotations

from typing import Any

import msgspec

from xfcost.counting.system_crossovers import Search
from xfcost.ledger import notebook
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import json_text, ledger_object
from xfcost.ledger.time_ratio import TimeRatio
from xfcost.ledger.units import count, number_of


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of several systems."""

    ledgers: tuple[Ledger, ...]
    names: tuple[str, ...]
    """One distinct name per system."""
    figures: dict[str, dict[str, int | float | None]]
    """System -> quantity -> value."""
    ratios: dict[str, dict[str, float | None]]
    """System -> quantity -> its value over the first system's."""
    growth: dict[str, dict[str, float | None]]
    """System -> quantity -> exponent in N, between N and N·`factor` (4 on a grid, 2 in a sequence, in all streams)."""
    by_size: dict[str, dict[int, dict[str, int] | None]]
    """System -> side of a square image -> tokens and costs, None where it can't have that size; {} without images."""
    crossovers: tuple[dict[str, Any], ...]
    """{quantity, systems, N, last_below, cheaper_below, cheaper_above}; many systems are compared with the first alone.

    Both `last_below` and `N` were counted: one system costs less at the first, the other at the second, and at counted
    points between them both cost the same. At points that were not counted the order may differ: see `searches`."""
    size_crossovers: tuple[dict[str, Any], ...]
    """The same at equal image sizes, `size` in place of `N`; only of systems with patches of different sizes."""
    searches: tuple[Search, ...]
    """At which N crossovers were searched for, pair by pair, where the pair has any N in common."""
    size_searches: tuple[Search, ...]
    """At which image sizes crossovers were searched for."""
    time_ratios: dict[str, TimeRatio] = {}
    """System -> its seconds over the first system's, turn by turn; {} where nothing was timed."""

    def __repr__(self) -> str:
        systems = (f"{name}: {count(figures['macs'])} MACs" for name, figures in self.figures.items())
        return notebook.line(self, f"{number_of(len(self.names), 'system')}; {', '.join(systems)}")

    def _repr_html_(self) -> str | None:
        """The table that a notebook shows."""
        return notebook.html(self)

    def to_json(self) -> str:
        """The JSON object of `xfcost compare --format json`."""
        return json_text(comparison_object(self))


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    """The object of `compare --format json`."""
    tokens = {ledger.metadata.grid_tokens for ledger in comparison.ledgers}
    return {
        "N": (tokens.pop() or None) if len(tokens) == 1 else None,
        "systems": [ledger_object(ledger) for ledger in comparison.ledgers],
        "figures": comparison.figures,
        "ratios": comparison.ratios,
        "growth": comparison.growth,
        "by_size": comparison.by_size,
        "crossovers": list(comparison.crossovers),
        "size_crossovers": list(comparison.size_crossovers),
        "crossovers_searched": _searched(comparison),
        **_time_ratios(comparison),
    }


def _time_ratios(comparison: Comparison) -> dict[str, Any]:
    """The key `time_ratios`, where systems were timed."""
    if not comparison.time_ratios:
        return {}
    found = comparison.time_ratios.items()
    return {"time_ratios": {name: msgspec.to_builtins(one) | {"different": one.different} for name, one in found}}


def _searched(comparison: Comparison) -> dict[str, Any]:
    """The range of N that was searched ([0, 0]: none), the most points of a pair, and all searches."""
    searches = comparison.searches
    return {
        "N": [min((pair.first for pair in searches), default=0), max((pair.last for pair in searches), default=0)],
        "points": max((pair.points for pair in searches), default=0),
        "pairs": msgspec.to_builtins(searches),
        "sizes": msgspec.to_builtins(comparison.size_searches),
    }
