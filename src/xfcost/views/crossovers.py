"""Crossovers of a comparison as text: which points were counted, and which system costs less at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from xfcost.comparing.comparison import Comparison
from xfcost.comparing.crossovers import CrossoverSearch, NamedOrder
from xfcost.comparing.quantities import QUANTITIES
from xfcost.report.document import TextLines, line

CURVE_WORDS: Final = {name: QUANTITIES[name].name for name in ("macs", "mixing_macs", "attention_bytes")}
# Of these a report that is not verbose has a line.
_USUAL_QUANTITIES: Final = ("macs", "attention_bytes")
# An order that changes more often is summed up.
_MOST_CHANGES: Final = 3
# Fewer tokens, and images with shorter sides, are left out of a report that is not verbose.
_SMALLEST: Final = {"lengths": 32, "grids": 32, "sizes": 64}
# A counted point -> its name.
_At = Callable[[int], str]


def crossover_texts(comparison: Comparison, *, verbose: bool) -> Iterator[TextLines]:
    """The N at which one overtakes the other, or that none does at the counted N."""
    if not comparison.searches:
        if _have_tokens(comparison):
            yield line("crossovers: no N fits two of the systems", "bold")
        return
    searches = comparison.searches if verbose else list(map(_of_usual_sizes, comparison.searches))
    lines = order_lines(searches, lambda tokens: f"N = {tokens:,}", verbose=verbose)
    words = (f"crossovers at equal N{(part := forward_part(comparison))}", f"crossover at equal N{part}")
    yield from _headed(words, searches, lines, verbose=verbose)


def _headed(
    words: tuple[str, str], searches: Sequence[CrossoverSearch], lines: Sequence[TextLines], *, verbose: bool
) -> Iterator[TextLines]:
    """The lines below what was searched for and where; with `verbose` where, pair by pair, if that differs.

    `words` are those for some crossovers, and for none.
    """
    several, none = words
    searched = list(dict.fromkeys(map(search_text if verbose else range_text, searches)))
    if len(searched) > 1:
        yield line("", head=f"{several}:") if lines else line(" none found", head=f"{none}:")
        for one in searches if verbose else ():
            yield line(f"  {one.systems[0]} and {one.systems[1]}: counted {search_text(one)}", "dim")
    elif lines:
        yield line(f" ({searched[0]}):", head=several)
    else:
        found = f"none found ({searched[0]})" if verbose else f"none {_between(searches[0])}"
        yield line(f" {found}", head=f"{none}:")
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
    lines = order_lines(searches, lambda side: f"{side}×{side}", verbose=verbose)
    if lines or (searches and not _have_tokens(comparison)):
        words = ("crossovers at equal image sizes", "crossover at equal image sizes")
        yield from _headed(words, searches, lines, verbose=verbose)


def _of_usual_sizes(search: CrossoverSearch) -> CrossoverSearch:
    """The search without so few tokens, and so small images, that no model is used on them."""
    usual = tuple(one for one in search.orders if one.last >= _SMALLEST[search.kind])
    starts = {one.quantity: one.first for one in reversed(usual)}
    return msgspec.structs.replace(search, orders=usual, first=max([search.first, *starts.values()]))


def range_text(one: CrossoverSearch) -> str:
    """`counted from N = 1 to 1,048,576`, `counted on some square grids from N = 1 to 4,096`."""
    some = one.every < one.last
    if one.kind == "sizes":
        return f"counted {'at some sizes ' if some else ''}from {one.first:,} to {one.last:,} pixels"
    if one.kind == "grids":
        return f"counted on {'some ' if some else ''}square grids from N = {one.first:,} to {one.last:,}"
    return f"counted {'at some N from' if some else 'from N ='} {one.first:,} to {one.last:,}"


def _between(one: CrossoverSearch) -> str:
    """`between N = 1 and 1,048,576 (some square grids)`, where none was found."""
    some = "some " if one.every < one.last else ""
    if one.kind == "sizes":
        return f"between {one.first:,} and {one.last:,} pixels{' (at some sizes)' if some else ''}"
    counted = f" ({some}square grids)" if one.kind == "grids" else " (at some N)" if some else ""
    return f"between N = {one.first:,} and {one.last:,}{counted}"


def search_text(one: CrossoverSearch) -> str:
    """`on every square grid from N = 1 to 4,096, and at some to 1,048,576; between those not counted …`."""
    more = "; between counted sizes the order may change again" if one.every < one.last else ""
    if one.kind == "lengths":
        each = "" if one.grain == 1 else f", multiples of {one.grain:,}"
        every = f", every one to {one.every:,}" if one.every else ""
        return f"at {one.points:,} N from {one.first:,} to {one.last:,}{each}{every}{more}"
    what = "on every square grid from N =" if one.kind == "grids" else f"at every multiple of {one.grain} pixels from"
    if not one.every:
        return f"at {one.points:,} of them from {one.first:,} to {one.last:,}{more}"
    some = f", and at some to {one.last:,}" if more else ""
    return f"{what} {one.first:,} to {one.every:,}{some}{more}"


def order_lines(searches: Sequence[CrossoverSearch], at: _At, *, verbose: bool = False) -> list[TextLines]:
    """One line per pair whose order changes between counted points; with `verbose` also of mixing MACs alone."""
    quantities = CURVE_WORDS if verbose else _USUAL_QUANTITIES
    lines = []
    for search in searches:
        texts = {one: text for one in quantities if (text := _order_text(search, one, at, verbose=verbose))}
        if texts:
            lines.append(line("  " + "; ".join(f"{CURVE_WORDS[one]}: {text}" for one, text in texts.items())))
    return lines


def _order_text(search: CrossoverSearch, quantity: str, at: _At, *, verbose: bool) -> str:
    """Which costs less up to, between and from which counted points on; nothing where one does at all of them.

    Points at which both cost the same are named with `verbose`, and where they are several.
    """
    runs: list[NamedOrder] = []
    for one in search.orders:
        if one.quantity != quantity or not (verbose or one.cheaper or one.first < one.last or not runs):
            continue
        if runs and runs[-1].cheaper == one.cheaper:
            runs[-1] = msgspec.structs.replace(runs[-1], last=one.last, points=runs[-1].points + one.points)
        else:
            runs.append(one)
    if not runs:
        return ""
    first, *others = runs
    if not others:
        equal = f"{' and '.join(search.systems)} are equal at all {first.points:,} counted"
        return "" if first.cheaper or (quantity != "macs" and not verbose) else equal
    who = f"{first.cheaper} costs less" if first.cheaper else f"{' and '.join(search.systems)} are equal"
    texts = [f"{who} {'at' if first.first == first.last else 'up to'} {at(first.last)}"]
    if len(others) > _MOST_CHANGES:
        texts.append(f"then the order changes {len(others)} times ({_tally(runs, search)})")
        others = others[-1:]
    for one in others:
        span = f"from {at(one.first)} {'on' if one is runs[-1] else f'to {at(one.last)}'}"
        texts.append(f"{one.cheaper or 'equal'} {f'at {at(one.first)}' if one.first == one.last else span}")
    return ", ".join(texts)


def _tally(orders: Sequence[NamedOrder], search: CrossoverSearch) -> str:
    """At how many of the counted points which of the two costs less."""
    points = {who: sum(one.points for one in orders if one.cheaper == who) for who in (*search.systems, None)}
    shares = [f"{who or 'equal'} at {number:,}" for who, number in points.items() if number]
    return f"{', '.join(shares)} of {sum(points.values()):,} counted"
