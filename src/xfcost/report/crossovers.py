"""Crossovers of a comparison as text: which points were counted, and which system costs less at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from xfcost.counting.comparison import Comparison
from xfcost.counting.crossovers import CrossoverSearch, NamedOrder
from xfcost.report.document import TextLines, line
from xfcost.report.quantities import QUANTITIES

CURVE_WORDS: Final = {name: QUANTITIES[name].name for name in ("macs", "mixing_macs", "attention_bytes")}
# An order that changes more often is summed up.
_MOST_CHANGES: Final = 3
# Images with shorter sides are left out of a report that is not verbose.
_SMALLEST_SIDE: Final = 64
# A counted point -> its name.
_At = Callable[[int], str]


def crossover_texts(comparison: Comparison, *, verbose: bool) -> Iterator[TextLines]:
    """The N at which one overtakes the other, or that none does at the counted N."""
    if not comparison.searches:
        if _have_tokens(comparison):
            yield line("crossovers: no N fits two of the systems", "bold")
        return
    part = forward_part(comparison)
    searched = list(dict.fromkeys(map(search_text if verbose else range_text, comparison.searches)))
    lines = order_lines(comparison.searches, lambda tokens: f"N = {tokens:,}")
    none = "" if lines else "none found "
    if len(searched) == 1:
        yield line(f"{none}({searched[0]})", head=f"crossovers at equal N{part}: ")
    else:
        yield line(f" {none}".rstrip(), head=f"crossovers at equal N{part}:")
        for one in comparison.searches if verbose else ():
            yield line(f"  {one.systems[0]} and {one.systems[1]}: counted {search_text(one)}", "dim")
    yield from lines


def _have_tokens(comparison: Comparison) -> bool:
    """Have all systems an N? A module whose inputs have the letters H and W alone has none."""
    return all(ledger.metadata.grid_tokens for ledger in comparison.ledgers)


def forward_part(comparison: Comparison) -> str:
    """The part of the work that growth and crossovers are of, where it is not all."""
    first = comparison.ledgers[0]
    return " of the prefill" if first.generation else " of the forward" if first.training else ""


def size_crossover_texts(comparison: Comparison, *, verbose: bool) -> Iterator[TextLines]:
    """The image sizes at which one overtakes the other; small images only with `verbose`."""
    searches = comparison.size_searches if verbose else [_of_usual_sizes(one) for one in comparison.size_searches]
    lines = order_lines(searches, lambda side: f"{side}×{side}")
    if lines or (searches and not _have_tokens(comparison)):
        searched = "; ".join(dict.fromkeys(map(search_text if verbose else range_text, searches)))
        none = "" if lines else "none found "
        yield line(f"{none}({searched})", head="crossovers at equal image sizes: ")
        yield from lines


def _of_usual_sizes(search: CrossoverSearch) -> CrossoverSearch:
    """The search without images that no model is used on."""
    usual = tuple(one for one in search.orders if one.last >= _SMALLEST_SIDE)
    first = next((one.first for one in usual), search.first)
    return msgspec.structs.replace(search, orders=usual, first=max(search.first, first))


def range_text(one: CrossoverSearch) -> str:
    """`counted from N = 1 to 1,048,576`, `counted from 64 to 2,048 pixels`."""
    some = ", not every one" if one.every < one.last else ""
    if one.kind == "sizes":
        return f"counted from {one.first:,} to {one.last:,} pixels{some}"
    return f"counted from N = {one.first:,} to {one.last:,}{some}"


def search_text(one: CrossoverSearch) -> str:
    """`on every square grid from N = 1 to 4,096, and at some to 1,048,576; between those not counted …`."""
    more = "; between those not counted the order may change again" if one.every < one.last else ""
    if one.kind == "lengths":
        each = "" if one.grain == 1 else f", multiples of {one.grain:,}"
        every = f", every one to {one.every:,}" if one.every else ""
        return f"at {one.points:,} N from {one.first:,} to {one.last:,}{each}{every}{more}"
    what = "on every square grid from N =" if one.kind == "grids" else f"at every multiple of {one.grain} pixels from"
    if not one.every:
        return f"at {one.points:,} of them from {one.first:,} to {one.last:,}{more}"
    some = f", and at some to {one.last:,}" if more else ""
    return f"{what} {one.first:,} to {one.every:,}{some}{more}"


def order_lines(searches: Sequence[CrossoverSearch], at: _At) -> list[TextLines]:
    """One line per quantity and pair whose order changes between counted points."""
    texts = ((quantity, _order_text(one, quantity, at)) for quantity in CURVE_WORDS for one in searches)
    return [line(f"  {CURVE_WORDS[quantity]}: {text}") for quantity, text in texts if text]


def _order_text(search: CrossoverSearch, quantity: str, at: _At) -> str:
    """Which costs less at which points; nothing where one does at all counted points.

    A range is named only where every point of it was counted; beyond that, only counted points.
    """
    orders = [one for one in search.orders if one.quantity == quantity]
    if len({one.cheaper for one in orders}) == 1:
        points = sum(one.points for one in orders)
        return "" if orders[0].cheaper else f"{' and '.join(search.systems)} are equal at all {points:,} counted"
    inside = [one for one in orders if one.last <= search.every]
    beyond = [one for one in orders if one.last > search.every]
    parts = [_ranges(inside, search, at)] if inside else []
    parts += [_seen(inside[-1:], beyond, search, at)] if beyond else []
    return "; ".join(parts)


def _ranges(orders: Sequence[NamedOrder], search: CrossoverSearch, at: _At) -> str:
    """The order on a range of which every point was counted."""
    start = orders[0]
    begins = f"at {at(start.first)}" if start.first == start.last else f"up to {at(start.last)}"
    who = f"{start.cheaper} costs less" if start.cheaper else f"{' and '.join(search.systems)} are equal"
    if len(orders) - 1 > _MOST_CHANGES:
        changes = f"then the order changes {len(orders) - 1} times up to {at(search.every)}"
        return f"{who} {begins}, {changes} ({_tally(orders, search)})"
    spans = (
        f"at {at(one.first)}" if one.first == one.last else f"from {at(one.first)} to {at(one.last)}"
        for one in orders[1:]
    )
    others = (f"{_cheaper(one)} {span}" for one, span in zip(orders[1:], spans, strict=True))
    return ", ".join([f"{who} {begins}", *others])


def _seen(inside: Sequence[NamedOrder], beyond: Sequence[NamedOrder], search: CrossoverSearch, at: _At) -> str:
    """The order at points of a range of which not all were counted: the changes between neighbours that were."""
    above = "above " if inside else ""
    changes = [
        (f"{_cheaper(before)} at {at(before.last)}", f"{_cheaper(after)} at {at(after.first)}")
        for before, after in pairwise([*inside, *beyond])
        if before.cheaper != after.cheaper
    ]
    if not changes:
        return f"{_cheaper(beyond[0])} at all {sum(one.points for one in beyond):,} counted {above}".rstrip()
    if len(changes) > _MOST_CHANGES:
        examples = f"{len(changes)} changes found, among them {_chained([changes[0], changes[-1]])}"
        return f"counted {above}({_tally(beyond, search)}): {examples}"
    return f"{f'counted {above}'.rstrip()}: {_chained(changes)}"


def _chained(changes: Sequence[tuple[str, str]]) -> str:
    """Changes one after another; a point where one ends and the next begins is listed once."""
    text = ", ".join(changes[0])
    for (_, last), (before, after) in pairwise(changes):
        text += f", {after}" if before == last else f"; {before}, {after}"
    return text


def _tally(orders: Sequence[NamedOrder], search: CrossoverSearch) -> str:
    """At how many of the counted points which of the two costs less."""
    points = {who: sum(one.points for one in orders if one.cheaper == who) for who in (*search.systems, None)}
    shares = [f"{who or 'equal'} at {number:,}" for who, number in points.items() if number]
    return f"{', '.join(shares)} of {sum(points.values()):,}"


def _cheaper(order: NamedOrder) -> str:
    return order.cheaper or "equal"
