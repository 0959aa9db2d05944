"""What `xfcost compare` says of several systems, and the object of `compare --format json`."""

from __future__ import annotations

from typing import Any

import msgspec

from xfcost.counting.system_crossovers import Search
from xfcost.ledger import notebook
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.objects import json_text, ledger_object


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What `xfcost compare` says."""

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
    """System -> side of a square image -> its tokens and costs, None where it can't have it; {} without images."""
    crossovers: tuple[dict[str, Any], ...]
    """{quantity, systems, N, last_below, cheaper_below, cheaper_above}; of many systems only those against the first.

    `last_below` and `N` were counted: the one costs less at the first, the other at the second, and at what was counted
    between them both cost the same. At N that were not counted the order may be another: see `searches`."""
    size_crossovers: tuple[dict[str, Any], ...]
    """The same at equal image sizes, `size` in place of `N`; only of systems whose tokens are of different sizes."""
    searches: tuple[Search, ...]
    """At which N crossovers were looked for, pair by pair; no pair that has no N in common."""
    size_searches: tuple[Search, ...]
    """At which image sizes, likewise."""

    def _repr_html_(self) -> str | None:
        """The table that a notebook shows."""
        return notebook.html(self)

    def to_json(self) -> str:
        """The JSON object of `xfcost compare --format json`."""
        return comparison_json(self)


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    """The object of `compare --format json`."""
    tokens = {ledger.metadata.grid_tokens for ledger in comparison.ledgers}
    return {
        "N": tokens.pop() if len(tokens) == 1 else None,
        "systems": [ledger_object(ledger) for ledger in comparison.ledgers],
        "figures": comparison.figures,
        "ratios": comparison.ratios,
        "growth": comparison.growth,
        "by_size": comparison.by_size,
        "crossovers": list(comparison.crossovers),
        "size_crossovers": list(comparison.size_crossovers),
        "crossovers_searched": _searched(comparison),
    }


def _searched(comparison: Comparison) -> dict[str, Any]:
    """The N between which crossovers were looked for ([0, 0]: nowhere), how many at most, and pair by pair."""
    found = comparison.searches
    ends = [min((one.first for one in found), default=0), max((one.last for one in found), default=0)]
    told = {"N": ends, "points": max((one.points for one in found), default=0)}
    return told | {"pairs": msgspec.to_builtins(found), "sizes": msgspec.to_builtins(comparison.size_searches)}


def comparison_json(comparison: Comparison) -> str:
    """`compare --format json`."""
    return json_text(comparison_object(comparison))
