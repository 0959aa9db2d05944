"""The report of `compare` on many systems: a line each, with ratios, growth and crossovers against the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.counting.comparison_result import Comparison
from xfcost.counting.system_crossovers import NamedOrder
from xfcost.ledger import units
from xfcost.report.agreement import COUNTED_ONLY, agreement_texts
from xfcost.report.comparison_answer import exponent_text
from xfcost.report.crossovers import range_text, search_text
from xfcost.report.decoding import intensity_number
from xfcost.report.input_description import common_input_text, input_warnings, names_text, run_text
from xfcost.report.notes import note_texts
from xfcost.report.run_settings import run_texts
from xfcost.report.style import TERMINAL
from xfcost.report.table import CONVENTION
from xfcost.report.training import days_text, scientific


class Column(NamedTuple):
    """A column of the overview; on a narrow screen the lowest ranks are hidden first."""

    title: str
    width: int
    rank: int
    cell: Callable[[Comparison, str], str]
    style: str = ""


def _count(quantity: str) -> Callable[[Comparison, str], str]:
    return lambda comparison, name: units.count(comparison.figures[name].get(quantity))


def _size(quantity: str) -> Callable[[Comparison, str], str]:
    return lambda comparison, name: units.size(_whole(comparison.figures[name].get(quantity)))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _ratio(quantity: str) -> Callable[[Comparison, str], str]:
    return lambda comparison, name: units.ratio(_three(comparison.ratios[name][quantity]))


def _three(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _growth(quantity: str) -> Callable[[Comparison, str], str]:
    def cell(comparison: Comparison, name: str) -> str:
        return exponent_text(comparison.growth[name][quantity])

    return cell


def _intensity(comparison: Comparison, name: str) -> str:
    value = comparison.figures[name].get("intensity")
    return units.DASH if value is None else intensity_number(value)


def _run_flops(comparison: Comparison, name: str) -> str:
    value = comparison.figures[name].get("run_flops")
    return units.DASH if value is None else scientific(value)


def _days(comparison: Comparison, name: str) -> str:
    value = comparison.figures[name].get("run_days")
    return units.DASH if value is None else days_text(value, "")


def _cheaper_in_macs(comparison: Comparison, name: str) -> list[NamedOrder]:
    """The order of MACs against the first system, at ascending N; nothing where no N fits both."""
    search = next((one for one in comparison.searches if name == one.systems[1]), None)
    return [] if search is None else [one for one in search.orders if one.quantity == "macs"]


def _changes_back(comparison: Comparison, name: str) -> bool:
    """Does it cost more MACs than the first again, above an N at which it costs fewer?"""
    cheaper = [one.cheaper for one in _cheaper_in_macs(comparison, name)]
    return name in cheaper and set(cheaper[cheaper.index(name) :]) != {name}


def _first_fewer(comparison: Comparison, name: str) -> str:
    """The least counted N at which the system costs fewer MACs than the first; `*`: not at all counted N above it."""
    orders = _cheaper_in_macs(comparison, name)
    if not orders:
        return units.DASH
    cheaper = [one.cheaper for one in orders]
    if set(cheaper) == {name}:
        return "at all counted"
    if name not in cheaper:
        return "at none counted" if any(cheaper) else "equal at all"
    first = next(one.first for one in orders if one.cheaper == name)
    return f"at {first:,}{'*' if _changes_back(comparison, name) else ''}"


def _extremes(comparison: Comparison) -> str:
    """`MACs: least …, most …`."""
    short = _short(comparison)
    macs = {name: value for name in comparison.names if (value := comparison.figures[name]["macs"]) is not None}
    if not macs:
        return "MACs: none counted"
    least, most = min(macs, key=lambda name: macs[name]), max(macs, key=lambda name: macs[name])
    return (
        f"MACs: {short[least]} has the least ({units.count(macs[least])}), "
        f"{short[most]} the most ({units.count(macs[most])})"
    )


COLUMNS: Final = (
    Column("params", 7, 5, _count("params")),
    Column("MACs", 7, 9, _count("macs"), "bold"),
    Column("×first", 7, 8, _ratio("macs")),
    Column("MACs N^", 7, 6, _growth("macs")),
    Column("traced", 7, 6, _count("traced_macs")),
    Column("mixing MACs", 11, 7, _count("mixing_macs"), TERMINAL["global"]),
    Column("mixing N^", 9, 9, _growth("mixing_macs")),
    Column("attention memory", 16, 6, _size("attention_bytes")),
    Column("memory N^", 9, 4, _growth("attention_bytes")),
    Column("traffic", 9, 7, _size("plain_traffic_bytes")),
    Column("tiled", 9, 8, _size("tiled_traffic_bytes")),
    Column("KV cache", 9, 9, _size("cache_bytes")),
    Column("read/step", 9, 7, _size("read_bytes")),
    Column("FLOPs/byte", 10, 6, _intensity),
    Column("without cache", 13, 8, _count("generation_macs_without_cache")),
    Column("backward", 8, 8, _count("backward_macs")),
    Column("states", 9, 6, _size("optimizer_bytes")),
    Column("step bytes", 10, 7, _size("step_bytes")),
    Column("run FLOPs", 9, 8, _run_flops),
    Column("days", 7, 8, _days),
    Column("time", 8, 8, lambda comparison, name: units.seconds(comparison.figures[name]["seconds"])),
    Column("fewer MACs\nfirst seen at N", 17, 8, _first_fewer),
)


def overview(comparison: Comparison, width: int, *, verbose: bool = False) -> Group:
    """The report of `compare` on many systems."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    head = Text(
        f"{len(comparison.names)} systems, each against {_short(comparison)[comparison.names[0]]}", style="bold"
    )
    head.append(f"\n{common_input_text(metadata)}{run_text(metadata[0])}", style="not bold")
    if all(ledger.agreement is None for ledger in comparison.ledgers):
        head.append(f"   {COUNTED_ONLY}", style="dim")
    head.append(f"\n{_extremes(comparison)}", style="not bold")
    for warning in input_warnings(dict(zip(_short(comparison).values(), metadata, strict=True))):
        head.append(f"\n{warning}", style="bold yellow")
    parts: list[RenderableType] = [
        head,
        Text(),
        table(comparison, width),
        Text(),
        *endnotes(comparison, width, verbose=verbose),
    ]
    return Group(*parts)


def _short(comparison: Comparison) -> dict[str, str]:
    """The name of a system's line: its preset; the system's own name where it is of a file or comes twice."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    sources = [one.source for one in metadata]
    lines = zip(comparison.names, metadata, strict=True)
    return {name: one.source if one.preset and sources.count(one.source) == 1 else name for name, one in lines}


def _filled(comparison: Comparison) -> list[Column]:
    """The columns in which some system has a value."""
    return [column for column in COLUMNS if any(column.cell(comparison, one) != units.DASH for one in comparison.names)]


def _fitting(comparison: Comparison, width: int) -> tuple[list[Column], int]:
    """The columns that have values and fit, and the width left for names."""
    longest = max(map(len, _short(comparison).values()))
    columns = _filled(comparison)
    names = min(longest, max(24, width // 3))
    while names + sum(column.width + 2 for column in columns) > width and len(columns) > 2:  # noqa: PLR2004 - a table yet
        columns.remove(min(columns, key=lambda column: column.rank))
    return columns, names


def table(comparison: Comparison, width: int) -> Table:
    """One line per system."""
    columns, names = _fitting(comparison, width)
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    result.add_column("", min_width=names, max_width=names, overflow="fold")
    for column in columns:
        result.add_column(column.title, justify="right", no_wrap=True, min_width=column.width)
    for name, short in _short(comparison).items():
        result.add_row(short, *(Text(column.cell(comparison, name), style=column.style) for column in columns))
    return result


def endnotes(comparison: Comparison, width: int, *, verbose: bool) -> Iterator[Text]:
    """The counted N, agreement, notes (each once), hidden columns."""
    columns, _ = _fitting(comparison, width)
    short = _short(comparison)
    searches: dict[str, list[str]] = {}
    for one in comparison.searches:
        where = search_text(one) if verbose else range_text(one).removeprefix("counted ")
        searches.setdefault(where, []).append(short[one.systems[1]])
    for where, names in searches.items():
        of_names = f" ({names_text(names)})" if len(searches) > 1 else ""
        yield Text(
            f"fewer MACs: than {short[comparison.names[0]]} at the same N, counted {where}{of_names}", style="dim"
        )
    if any(_changes_back(comparison, name) for name in comparison.names):
        yield Text("*: not at all counted N above it; json has the order at each", style="dim")
    notes: dict[str, list[str]] = {}
    for name, ledger in zip(comparison.names, comparison.ledgers, strict=True):
        if ledger.agreement is not None:
            for text in agreement_texts(ledger):
                yield Text.assemble(f"{short[name]}: ", text)
        for note in ledger.metadata.notes:
            notes.setdefault(note, []).append(short[name])
    yield from note_texts([f"{', '.join(names)}: {note}" for note, names in notes.items()], verbose=verbose)
    hidden = [column.title.replace("\n", " ") for column in _filled(comparison) if column not in columns]
    if hidden:
        yield Text(f"hidden at this width: {', '.join(hidden)}", style="dim")
    yield from run_texts(comparison.ledgers[0])
    yield Text(CONVENTION, style="dim")
