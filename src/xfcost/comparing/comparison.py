"""Several ledgers side by side: ratios to the first, growth exponents, crossovers; the result of `xfcost compare`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from xfcost.comparing.crossovers import (
    MOST_PAIRED,
    OF_MANY,
    QUICK,
    THOROUGH,
    Crossovers,
    CrossoverSearch,
    size_crossovers,
    token_crossovers,
)
from xfcost.comparing.quantities import QUANTITIES, figures_of, quantity_called
from xfcost.comparing.sweep import PIXELS, SizedSystem
from xfcost.counting.system import GROWING, Grown, System, without_steps
from xfcost.ledger import notebook
from xfcost.ledger.join import growth_exponent
from xfcost.ledger.json_objects import json_text, ledger_object
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.statistics import TimeRatio, time_ratio
from xfcost.ledger.units import count, number_of
from xfcost.spec.run import Run


class Comparison(notebook.Reported, msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of several systems."""

    ledgers: tuple[Ledger, ...]
    """One per system, in the given order, or in that of a quantity."""
    names: tuple[str, ...]
    """One distinct name per system."""
    figures: dict[str, dict[str, int | float | None]]
    """System -> quantity -> value."""
    ratios: dict[str, dict[str, float | None]]
    """System -> quantity -> its value over the first system's."""
    growth: dict[str, dict[str, float | None]]
    """System -> quantity -> exponent in N, between `N` and N·`factor` (4 on a grid, 2 in a sequence, in all streams).

    `N` is another than that of the ledger where that pads; `padded`: the exponents include padding.
    """
    by_size: dict[str, dict[int, dict[str, int] | None]]
    """System -> side of a square image -> tokens and costs, None where it can't have that size; {} without images."""
    crossovers: tuple[dict[str, Any], ...]
    """{quantity, systems, N, last_below, cheaper_below, cheaper_above}; many systems are compared with the first alone.

    Both `last_below` and `N` were counted: one system costs less at the first, the other at the second, and at counted
    points between them both cost the same. At points that were not counted the order may differ: see `searches`."""
    size_crossovers: tuple[dict[str, Any], ...]
    """The same at equal image sizes, `size` instead of `N`; only for systems with patches of different sizes."""
    searches: tuple[CrossoverSearch, ...]
    """At which N crossovers were searched for, pair by pair, where the pair has any N in common."""
    size_searches: tuple[CrossoverSearch, ...]
    """At which image sizes crossovers were searched for."""
    time_ratios: dict[str, TimeRatio] = {}
    """System -> its seconds over the first system's, turn by turn; {} where nothing was timed."""

    @property
    def by_name(self) -> dict[str, Ledger]:
        """System -> its ledger."""
        return dict(zip(self.names, self.ledgers, strict=True))

    def __repr__(self) -> str:
        systems = (f"{name}: {count(figures['macs'])} MACs" for name, figures in self.figures.items())
        return notebook.line(self, f"{number_of(len(self.names), 'system')}; {', '.join(systems)}")

    def to_json(self) -> str:
        """The JSON object of `xfcost compare --format json`."""
        return json_text(comparison_object(self))


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    """The object of `compare --format json`."""
    tokens = {ledger.metadata.grid_tokens for ledger in comparison.ledgers}
    searches, found = comparison.searches, comparison.time_ratios.items()
    times = {name: msgspec.to_builtins(one) | {"different": one.different} for name, one in found}
    return {
        "N": (tokens.pop() or None) if len(tokens) == 1 else None,
        "systems": [ledger_object(ledger) for ledger in comparison.ledgers],
        "figures": comparison.figures,
        "ratios": comparison.ratios,
        "growth": comparison.growth,
        "by_size": comparison.by_size,
        "crossovers": list(comparison.crossovers),
        "size_crossovers": list(comparison.size_crossovers),
        "crossovers_searched": {
            "N": [min((one.first for one in searches), default=0), max((one.last for one in searches), default=0)],
            "points": max((one.points for one in searches), default=0),
            "pairs": msgspec.to_builtins(searches),
            "sizes": msgspec.to_builtins(comparison.size_searches),
        },
    } | ({"time_ratios": times} if times else {})


# Image sizes at which systems are compared: the usual ones of ImageNet models, and a detector's.
SIZES: Final = (224, 384, 512, 1024)


def compared(
    systems: Sequence[System], ledgers: Sequence[Ledger], run: Run, *, thorough: bool = True, sort: str | None = None
) -> Comparison:
    """The comparison of systems whose `ledgers` were already counted (and traced, timed).

    Crossovers are searched for at many points, or, where it isn't `thorough`, at fewer. The systems keep the given
    order, or are in that of the quantity `sort`, from the least on, those without it last.

    Raises:
        UsageError: none of them has such a quantity.
    """
    every = [figures_of(system, ledger, run) for system, ledger in zip(systems, ledgers, strict=True)]
    if sort is not None:
        key = quantity_called("--sort", sort, [one for one in QUANTITIES if any(each.get(one) for each in every)])
        values = [each.get(key) for each in every]
        order = sorted(range(len(every)), key=lambda at: (values[at] is None, values[at] or 0))
        every, systems = [every[at] for at in order], [systems[at] for at in order]
        ledgers = [ledgers[at] for at in order]
    names = distinct(_with_files([ledger.metadata for ledger in ledgers]))
    counted = list(zip(names, systems, ledgers, strict=True))
    figures = dict(zip(names, every, strict=True))
    base = figures[names[0]]
    ratios: dict[str, dict[str, float | None]] = {
        name: {
            quantity: value / own if value is not None and (own := base.get(quantity)) else None
            for quantity, value in values.items()
        }
        for name, values in figures.items()
    }
    timings = [ledger.timing for ledger in ledgers if ledger.timing is not None]
    time_ratios: dict[str, TimeRatio] = {}
    if len(timings) == len(ledgers):
        time_ratios = {name: time_ratio(timings[0], one) for name, one in zip(names[1:], timings[1:], strict=True)}
    for name, found in time_ratios.items():
        ratios[name]["seconds"] = found.ratio
    density = QUICK if not thorough else THOROUGH if len(systems) <= MOST_PAIRED else OF_MANY
    sized = [SizedSystem(one, run) for one in systems]
    tokens = token_crossovers(names, sized, ledgers, density)
    of_images = [msgspec.structs.replace(one, axis=PIXELS) for one in sized]
    by_size = _by_size(names, of_images)
    sizes = size_crossovers(names, of_images, density) if by_size else Crossovers((), ())
    return Comparison(
        ledgers=tuple(ledgers),
        names=tuple(names),
        figures=figures,
        ratios=ratios,
        growth={name: _growth(system.grown(ledger, run)) for name, system, ledger in counted},
        by_size=by_size,
        crossovers=tokens.crossovers,
        size_crossovers=sizes.crossovers,
        searches=tokens.searches,
        size_searches=sizes.searches,
        time_ratios=time_ratios,
    )


def _with_files(systems: Sequence[Metadata]) -> Iterator[str]:
    """Their names, `my (old.yaml)` of one of a file where another has the same name."""
    for one in systems:
        others = {other.source for other in systems if other.name == one.name} - {one.source}
        file = os.path.basename(one.source)
        if not others or one.preset or ":" in file:  # the class of a module is no file
            yield one.name
        else:
            short = file not in map(os.path.basename, others)
            yield f"{one.name} ({file if short else one.source})"


def distinct(names: Iterable[str]) -> list[str]:
    """The names; a repeated one is marked `#2`, `#3` and so on."""
    result: list[str] = []
    for name in names:
        number = 1 + sum(1 for earlier in result if earlier == name or earlier.startswith(f"{name} #"))
        result.append(name if number == 1 else f"{name} #{number}")
    return result


def _growth(grown: Grown | None) -> dict[str, float | None]:
    if grown is None:
        return dict.fromkeys([*GROWING, "factor", "N", "padded"])
    costs = {name: (curve(grown.own) or 0, curve(grown.other) or 0) for name, curve in GROWING.items()}
    exponents = {name: growth_exponent(*both, grown.factor) for name, both in costs.items()}
    padded = not without_steps(grown.own, grown.other)
    return exponents | {"factor": grown.factor, "N": grown.own.metadata.grid_tokens, "padded": padded}


def _by_size(names: Sequence[str], systems: Sequence[SizedSystem]) -> dict[str, dict[int, dict[str, int] | None]]:
    """The costs of every system at usual image sizes, where all systems take images."""
    if not all(one.system.has_images for one in systems) or len(systems) > MOST_PAIRED:
        return {}
    found = {name: {side: one.costs(side) for side in SIZES} for name, one in zip(names, systems, strict=True)}
    return {
        name: {side: None if counted is None else {"tokens": counted[0]} | counted[1] for side, counted in own.items()}
        for name, own in found.items()
    }
