"""Crossovers of a comparison -> text: what was looked at, and the order of costs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from rich.text import Text

from xfcost.comparison import Comparison
from xfcost.overtaking import Search

CURVE_WORDS: Final = {"macs": "MACs", "mixing_macs": "mixing MACs", "attention_bytes": "attention memory"}
# Of two systems that change places more often, only how often and between which ends.
_MOST_CROSSINGS: Final = 3


def crossover_texts(comparison: Comparison) -> Iterator[Text]:
    """The N at which one overtakes the other, or that none does where it was looked."""
    if not comparison.searches:
        yield Text("crossovers: not looked for, no N fits two of the systems", style="bold")
        return
    of = of_what(comparison)
    searched = list(searched_texts(comparison.searches))
    if len(searched) == 1:
        yield Text(f"crossovers at equal N{of} (looked for {searched[0]})", style="bold")
    else:
        yield Text(f"crossovers at equal N{of}", style="bold")
        for one in comparison.searches:
            yield Text(f"  {one.systems[0]} and {one.systems[1]}: looked for {search_text(one)}", style="dim")
    yield from _orders(comparison.crossovers, lambda found, key: f"N = {found['N' if key == 'at' else key]:,}")
    if not comparison.crossovers:
        yield Text("  none found in MACs, mixing MACs or attention memory: one order at all of these")


def of_what(comparison: Comparison) -> str:
    """Of which part of the work growth and crossovers are, where that is not all of it."""
    first = comparison.ledgers[0]
    return " of the prefill" if first.generation else " of the forward" if first.training else ""


def size_crossover_texts(comparison: Comparison) -> Iterator[Text]:
    """The image sizes at which one overtakes the other."""
    if comparison.size_crossovers:
        searched = "; ".join(searched_texts(comparison.size_searches))
        yield Text(f"crossovers at equal image sizes (looked for {searched})", style="bold")
        yield from _orders(
            comparison.size_crossovers, lambda found, key: "{0}×{0}".format(found["size" if key == "at" else key])
        )


def searched_texts(searches: Sequence[Search]) -> Iterator[str]:
    """What was looked at, once for all pairs of which it is the same."""
    yield from dict.fromkeys(map(search_text, searches))


def search_text(one: Search) -> str:
    """`on every square grid from N = 1 to 4,096, and on some up to 1,048,576`."""
    if one.kind == "lengths":
        each = "" if one.grain == 1 else f", multiples of {one.grain:,}"
        return f"at {one.points:,} N from {one.first:,} to {one.last:,}{each}, then bisected"
    what = "on every square grid from N =" if one.kind == "grids" else f"at every multiple of {one.grain} pixels from"
    if not one.every:
        return f"at {one.points:,} of them from {one.first:,} to {one.last:,}"
    more = "" if one.last <= one.every else f", and at some to {one.last:,}"
    return f"{what} {one.first:,} to {one.every:,}{more}"


def _orders(crossovers: Sequence[dict[str, Any]], at: Callable[[dict[str, Any], str], str]) -> Iterator[Text]:
    """One line per quantity and pair: who costs less from where to where, as far as it was looked at.

    Where two trade places again and again (padding makes steps), how often, and who costs less outside of that.
    """
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for found in crossovers:
        groups.setdefault((found["quantity"], *found["systems"]), []).append(found)
    for (quantity, first, second), changes in groups.items():
        start, end = changes[0], changes[-1]
        words = f"  {CURVE_WORDS[quantity]}: {start['cheaper_below']} costs less up to {at(start, 'last_below')}"
        if len(changes) > _MOST_CROSSINGS:
            traded = f"then {first} and {second} trade places {len(changes)} times"
            yield Text(f"{words}, {traded}, and {end['cheaper_above']} costs less from {at(end, 'at')}")
            continue
        between = [
            f", {before['cheaper_above']} {_span(at(before, 'at'), at(after, 'last_below'))}"
            for before, after in pairwise(changes)
        ]
        yield Text(f"{words}{''.join(between)}, {end['cheaper_above']} from {at(end, 'at')}")


def _span(first: str, last: str) -> str:
    return f"at {first}" if first == last else f"from {first} to {last}"
