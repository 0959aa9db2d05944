"""The report of `compare` on many systems: a line each, with ratios, growth and crossovers against the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from xfcost.counting.comparison import Comparison
from xfcost.counting.crossovers import NamedOrder
from xfcost.ledger import units
from xfcost.report.agreement import COUNTED_ONLY, NOT_TRACED, agreement_texts
from xfcost.report.comparison_answer import exponent_text, no_estimates, on_text
from xfcost.report.console import bare_table, note_texts, stacked
from xfcost.report.crossovers import range_text, search_text
from xfcost.report.figures import bounded, figure_text
from xfcost.report.input_description import common_input_text, default_notes, input_warnings, names_text, run_text
from xfcost.report.style import TERMINAL
from xfcost.report.table import CONVENTION
from xfcost.report.time_comparison import noise_texts, where_texts
from xfcost.report.training import run_texts


class Column(NamedTuple):
    """A column of the overview; on a narrow screen the lowest ranks are hidden first."""

    title: str
    width: int
    rank: int
    quantity: str
    what: Literal["figure", "ratio", "growth", "crossover"] = "figure"
    """The quantity itself, over the first system's, its exponent in N, or where it becomes less than the first's."""
    style: str = ""

    def cell(self, comparison: Comparison, name: str) -> str:
        """The text of a system's cell."""
        if self.what == "crossover":
            return _first_fewer(comparison, name)
        if self.what == "growth":
            return exponent_text(comparison.growth[name][self.quantity])
        if self.what == "ratio":
            ratio = comparison.ratios[name][self.quantity]
            return units.ratio(None if ratio is None else float(f"{ratio:.3g}"))
        value = comparison.figures[name].get(self.quantity)
        bound = bounded(comparison.ledgers[comparison.names.index(name)], self.quantity) if value else ""
        return f"{'≥' if bound else ''}{figure_text(self.quantity, value)}"


COLUMNS: Final = (
    Column("params", 7, 5, "params"),
    Column("MACs", 7, 9, "macs", style="bold"),
    Column("×first", 7, 8, "macs", "ratio"),
    Column("MACs N^", 7, 6, "macs", "growth"),
    Column("traced", 7, 6, "traced_macs"),
    Column("mixing MACs", 11, 7, "mixing_macs", style=TERMINAL["global"]),
    Column("mixing N^", 9, 9, "mixing_macs", "growth"),
    Column("attention memory", 16, 6, "attention_bytes"),
    Column("memory N^", 9, 4, "attention_bytes", "growth"),
    Column("traffic", 9, 7, "plain_traffic_bytes"),
    Column("tiled", 9, 8, "tiled_traffic_bytes"),
    Column("cache", 9, 9, "cache_bytes"),
    Column("read/step", 9, 7, "read_bytes"),
    Column("FLOPs/byte", 10, 6, "intensity"),
    Column("without cache", 13, 8, "generation_macs_without_cache"),
    Column("backward", 8, 8, "backward_macs"),
    Column("states", 9, 6, "optimizer_bytes"),
    Column("step bytes", 10, 7, "step_bytes"),
    Column("run FLOPs", 9, 8, "run_flops"),
    Column("days", 7, 8, "run_days"),
    Column("least days", 10, 7, "bound_days"),
    Column("one device", 10, 9, "device_bytes"),
    Column("its activations", 15, 6, "device_activations_bytes"),
    Column("least time", 10, 9, "least_seconds", style="bold"),
    Column("with TF32", 9, 9, "tf32_least_seconds"),
    Column("estimate", 9, 8, "estimated_seconds"),
    Column("needs", 9, 8, "needed_bytes"),
    Column("predicted", 9, 8, "predicted_seconds"),
    Column("time", 8, 8, "seconds"),
    Column("fewer MACs\nfirst seen at N", 17, 8, "macs", "crossover"),
)


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
    first = orders[cheaper.index(name)].first
    return f"at {first:,}{'*' if _changes_back(comparison, name) else ''}"


def _extremes(comparison: Comparison, short: dict[str, str]) -> str:
    """`MACs: least …, most …`."""
    macs = {name: value for name in comparison.names if (value := comparison.figures[name]["macs"]) is not None}
    if not macs:
        return "MACs: none counted"
    least, most = min(macs, key=lambda name: macs[name]), max(macs, key=lambda name: macs[name])
    return (
        f"MACs: {short[least]} has the least ({units.count(macs[least])}), "
        f"{short[most]} the most ({units.count(macs[most])})"
    )


def overview(comparison: Comparison, width: int, *, verbose: bool = False) -> Group:
    """The report of `compare` on many systems."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    short = _short(comparison)
    head = [Text(f"{len(short)} systems, each against {short[comparison.names[0]]}", style="bold")]
    of_specs = [one for one in metadata if one.inputs is None] or metadata[:1]
    head += map(Text, f"{common_input_text(metadata)}{run_text(of_specs)}".split("\n"))
    if all(ledger.agreement is None for ledger in comparison.ledgers):
        head[-1].append(f"   {COUNTED_ONLY}", style="dim")
    head.append(Text(_extremes(comparison, short)))
    if text := on_text(comparison):
        head += map(Text, [text, *no_estimates(comparison)])
    warnings = input_warnings(dict(zip(short.values(), metadata, strict=True)))
    head += (Text(warning, style="bold yellow") for warning in warnings)
    filled = [one for one in COLUMNS if any(one.cell(comparison, name) != units.DASH for name in short)]
    names = min(max(map(len, short.values())), max(24, width // 3))
    fitting = _fitting(filled, width - names)
    hidden = [column.title.replace("\n", " ") for column in filled if column not in fitting]
    notes = endnotes(comparison, short, hidden, verbose=verbose)
    return Group(*head, Text(), _table(comparison, short, fitting, names), Text(), *notes)


def _short(comparison: Comparison) -> dict[str, str]:
    """The name of a system's line: its preset; the system's own name where it is of a file or comes twice."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    sources = [one.source for one in metadata]
    lines = zip(comparison.names, metadata, strict=True)
    return {name: one.source if one.preset and sources.count(one.source) == 1 else name for name, one in lines}


def _fitting(columns: list[Column], width: int) -> list[Column]:
    """The columns that fit, the lowest ranks hidden first."""
    fitting = list(columns)
    while sum(column.width + 2 for column in fitting) > width and len(fitting) > 2:  # noqa: PLR2004 - a table yet
        fitting.remove(min(fitting, key=lambda column: column.rank))
    return fitting


def _table(comparison: Comparison, short: dict[str, str], columns: list[Column], width: int) -> Table:
    """One line per system, with `width` for its name."""
    result = bare_table()
    result.add_column("", min_width=width, max_width=width, overflow="fold")
    for column in columns:
        result.add_column(stacked(column.title), justify="right", no_wrap=True, min_width=column.width)
    for name, line in short.items():
        result.add_row(line, *(Text(column.cell(comparison, name), style=column.style) for column in columns))
    return result


def endnotes(comparison: Comparison, short: dict[str, str], hidden: list[str], *, verbose: bool) -> Iterator[Text]:
    """The counted N, agreement, notes (each once), hidden columns."""
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
    yield from where_texts(comparison)
    yield from noise_texts(comparison)
    notes: dict[str, list[str]] = {}
    for name, ledger in zip(comparison.names, comparison.ledgers, strict=True):
        if ledger.agreement is not None:
            for text in agreement_texts(ledger):
                if text.plain != NOT_TRACED:
                    yield Text.assemble(f"{short[name]}: ", text)
        for note in ledger.metadata.notes:
            notes.setdefault(note, []).append(short[name])
    yield from note_texts(default_notes(ledger.metadata for ledger in comparison.ledgers), verbose=verbose)
    yield from note_texts([f"{', '.join(names)}: {note}" for note, names in notes.items()], verbose=verbose)
    if hidden:
        yield Text(f"hidden at this width: {', '.join(hidden)}", style="dim")
    yield from run_texts(comparison.ledgers[0])
    yield Text(CONVENTION, style="dim")
