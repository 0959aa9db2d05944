"""Comparison of many systems -> one line each: costs, ratios to the first, growth, crossovers with the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.counting.comparison_result import Comparison
from xfcost.ledger import units
from xfcost.report.crossovers import search_text
from xfcost.report.inputs import common_input_text, input_warnings, names_text, run_text
from xfcost.report.remarks import agreement_texts
from xfcost.report.run_options import run_texts
from xfcost.report.style import TERMINAL
from xfcost.report.table import CONVENTION
from xfcost.report.training import days_text, scientific


class Column(NamedTuple):
    """A column of the overview; the lowest ranks go first where the screen is narrow."""

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
        exponent = comparison.growth[name][quantity]
        return units.DASH if exponent is None else f"{exponent:.2f}"

    return cell


def _intensity(comparison: Comparison, name: str) -> str:
    value = comparison.figures[name].get("intensity")
    return units.DASH if value is None else units.ratio(value)[:-1]


def _run_flops(comparison: Comparison, name: str) -> str:
    value = comparison.figures[name].get("run_flops")
    return units.DASH if value is None else scientific(value)


def _days(comparison: Comparison, name: str) -> str:
    value = comparison.figures[name].get("run_days")
    return units.DASH if value is None else days_text(value, "")


def _first_fewer(comparison: Comparison, name: str) -> str:
    """The least counted N at which the system costs fewer MACs than the first; `*`: not at all counted N above it."""
    search = next((one for one in comparison.searches if name == one.systems[1]), None)
    if search is None:
        return units.DASH
    cheaper = [one.cheaper for one in search.orders if one.quantity == "macs"]
    if set(cheaper) == {name}:
        return "at all looked at"
    if name not in cheaper:
        return "at none looked at" if any(cheaper) else "equal where seen"
    first = next(one.first for one in search.orders if one.quantity == "macs" and one.cheaper == name)
    return f"at {first:,}{'' if set(cheaper[cheaper.index(name) :]) == {name} else '*'}"


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
    Column("cache", 9, 9, _size("cache_bytes")),
    Column("read/step", 9, 7, _size("read_bytes")),
    Column("FLOPs/byte", 10, 6, _intensity),
    Column("without cache", 13, 8, _count("generation_macs_without_cache")),
    Column("backward", 8, 8, _count("backward_macs")),
    Column("states", 9, 6, _size("optimizer_bytes")),
    Column("step keeps", 10, 7, _size("step_bytes")),
    Column("run FLOPs", 9, 8, _run_flops),
    Column("days", 7, 8, _days),
    Column("time", 8, 8, lambda comparison, name: units.seconds(comparison.figures[name]["seconds"])),
    Column("fewer MACs\nfirst seen at N", 17, 8, _first_fewer),
)


def overview(comparison: Comparison, width: int) -> Group:
    """Everything that `compare` says of many systems."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    head = Text(
        f"{len(comparison.names)} systems, each against {_short(comparison)[comparison.names[0]]}", style="bold"
    )
    head.append(f"\n{common_input_text(metadata)}{run_text(metadata[0])}", style="not bold")
    for warning in input_warnings(dict(zip(_short(comparison).values(), metadata, strict=True))):
        head.append(f"\n{warning}", style="bold yellow")
    parts: list[RenderableType] = [head, Text(), table(comparison, width), Text(), *endnotes(comparison, width)]
    return Group(*parts)


def _short(comparison: Comparison) -> dict[str, str]:
    """What a line is called: the preset as it was asked for; a file's system, or one asked for twice, by its name."""
    asked = [ledger.metadata.source for ledger in comparison.ledgers]
    plain = [asked.count(source) == 1 and not source.endswith((".yaml", ".yml")) for source in asked]
    lines = zip(comparison.names, asked, plain, strict=True)
    return {name: source if short else name for name, source, short in lines}


def _speaking(comparison: Comparison) -> list[Column]:
    """The columns that have something to say."""
    return [column for column in COLUMNS if any(column.cell(comparison, one) != units.DASH for one in comparison.names)]


def _fitting(comparison: Comparison, width: int) -> tuple[list[Column], int]:
    """The columns that have something to say and fit, and the width left for names."""
    longest = max(map(len, _short(comparison).values()))
    columns = _speaking(comparison)
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


def endnotes(comparison: Comparison, width: int) -> Iterator[Text]:
    """What columns were left out, where crossovers were looked for, agreement and notes, each note once."""
    columns, _ = _fitting(comparison, width)
    short = _short(comparison)
    searches: dict[str, list[str]] = {}
    for one in comparison.searches:
        searches.setdefault(search_text(one), []).append(short[one.systems[1]])
    for where, names in searches.items():
        whose = f" ({names_text(names)})" if len(searches) > 1 else ""
        yield Text(
            f"fewer MACs: than {short[comparison.names[0]]} at the same N, looked for {where}{whose}", style="dim"
        )
    if any(_first_fewer(comparison, name).endswith("*") for name in comparison.names):
        yield Text("*: not at all N above it that were looked at; json has the order at each", style="dim")
    told: dict[str, list[str]] = {}
    for name, ledger in zip(comparison.names, comparison.ledgers, strict=True):
        if ledger.agreement is not None:
            for text in agreement_texts(ledger):
                yield Text.assemble(f"{short[name]}: ", text)
        for note in ledger.metadata.notes:
            told.setdefault(note, []).append(short[name])
    for note, names in told.items():
        yield Text(f"note: {', '.join(names)}: {note}")
    left_out = [" ".join(column.title.split()) for column in _speaking(comparison) if column not in columns]
    if left_out:
        yield Text(f"not shown at {width} columns: {', '.join(left_out)}; csv and json have them", style="dim")
    yield from run_texts(comparison.ledgers[0])
    yield Text(CONVENTION, style="dim")
