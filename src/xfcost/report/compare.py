"""Comparison -> rich tables: figures side by side, ratios against the first, growth, crossovers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from xfcost.counting.comparison_result import Comparison
from xfcost.counting.overtaking import MOST_PAIRED
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.report.console import plain_text, rich_html, show
from xfcost.report.crossovers import CURVE_WORDS, crossover_texts, of_what, size_crossover_texts
from xfcost.report.inputs import input_text, input_warnings, run_text
from xfcost.report.remarks import agreement_texts
from xfcost.report.run_options import run_texts
from xfcost.report.stages import size_parts, stage_parts
from xfcost.report.style import TERMINAL
from xfcost.report.table import CONVENTION
from xfcost.report.training import days_text, scientific

_EXTRA: Final = "score_dot_products_with_extra_tokens"
# quantity -> (words, style)
_LINES: Final[dict[str, tuple[str, str]]] = {
    "tokens": ("tokens N", ""),
    "token_pairs": ("pairs of tokens, N²", ""),
    "params": ("parameters", ""),
    "active_params": ("  that a token uses", ""),
    "macs": ("MACs", "bold"),
    "macs_per-token": ("  per-token", TERMINAL["per-token"]),
    "macs_local": ("  local mixing", TERMINAL["local"]),
    "macs_global": ("  global mixing", TERMINAL["global"]),
    "traced_macs": ("traced MACs", ""),
    "flops": ("FLOPs", ""),
    "score_dot_products": ("score dot products", ""),
    _EXTRA: ("  with extra tokens", ""),
    "attention_bytes": ("attention memory, all layers", ""),
    "attention_peak_bytes": ("attention memory, peak", ""),
    "plain_traffic_bytes": ("attention traffic, matrices kept", ""),
    "tiled_traffic_bytes": ("  tiled for the memory level", ""),
    "sequential_steps": ("sequential steps of all mixers", ""),
    "parallel_width": ("  tokens at once", ""),
    "cache_bytes": ("cache of the past", ""),
    "cache_bytes_per_token": ("  more per token", ""),
    "read_bytes": ("read per step", ""),
    "intensity": ("FLOPs per byte read", ""),
    "generation_macs_without_cache": ("MACs without a cache", ""),
    "seconds": ("time", ""),
    "backward_macs": ("backward MACs", "bold"),
    "step_flops": ("FLOPs of a step, forward and backward", ""),
    "update_flops": ("FLOPs of its update", ""),
    "gradients_bytes": ("gradients", ""),
    "optimizer_bytes": ("optimizer states", ""),
    "kept_bytes": ("activations kept", ""),
    "step_bytes": ("all that a step keeps", ""),
    "run_flops": ("FLOPs of the whole run", "bold"),
    "estimated_flops": ("  6·P·D", ""),
    "run_days": ("days of the whole run", ""),
}
_EXACT: Final = ("sequential_steps", "tokens", "token_pairs", "score_dot_products", _EXTRA)
# Said only where it differs from another quantity.
_ONLY_BESIDE: Final = {_EXTRA: "score_dot_products", "active_params": "params"}
# Said only where tokens of a system wait for others.
_OF_SEQUENCES: Final = ("sequential_steps", "parallel_width")
# How a few are written; others are counts.
_WRITTEN: Final[dict[str, Callable[[float], str]]] = {
    "seconds": units.seconds,
    "intensity": lambda value: units.ratio(value)[:-1],
    "run_flops": scientific,
    "estimated_flops": scientific,
    "run_days": lambda days: days_text(days, ""),
}
# Said only where systems differ in them.
_SAME: Final = ("tokens", "token_pairs")


def print_comparison(comparison: Comparison) -> None:
    """The report of `compare` on the terminal."""
    show(lambda width: report(comparison, width))


def comparison_plain(comparison: Comparison) -> str:
    """The same as text without colour."""
    return plain_text(lambda width: report(comparison, width))


def comparison_html(comparison: Comparison) -> str:
    """The same for a notebook."""
    return rich_html(lambda width: report(comparison, width))


def report(comparison: Comparison, width: int) -> Group:
    """Everything that `compare` says."""
    if len(comparison.names) > MOST_PAIRED:
        from xfcost.report.many import overview

        return overview(comparison, width)
    parts: list[RenderableType] = [
        header(comparison),
        Text(),
        figures_table(comparison, width),
        Text(),
        *growth_texts(comparison),
        *stage_parts(comparison, width),
        *size_parts(comparison),
    ]
    parts += [Text(), *crossover_texts(comparison), *size_crossover_texts(comparison), Text(), *endnotes(comparison)]
    return Group(*parts)


def header(comparison: Comparison) -> Text:
    """One line per system."""
    text = Text()
    width = max(map(len, comparison.names))
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    for name, here in zip(comparison.names, metadata, strict=True):
        text.append(f"{name:<{width}}", style="bold")
        text.append(f"   {input_text(here)}\n")
    text.append(run_text(metadata[0]))
    for warning in input_warnings(dict(zip(comparison.names, metadata, strict=True))):
        text.append(f"\n{warning}", style="bold yellow")
    return text


def figure_rows(comparison: Comparison) -> list[list[str]]:
    """Words, then one text per system, the ratio against the first beside the figure."""
    return [
        [words, *(f"{figure} {ratio}".rstrip() for figure, ratio in cells)] for _, words, cells in _figures(comparison)
    ]


def _figures(comparison: Comparison) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Quantity, its words, and per system its figure and how that stands to the first system's."""
    for quantity, (words, _) in _LINES.items():
        values = [comparison.figures[name].get(quantity) for name in comparison.names]
        if all(value is None for value in values) or (quantity.startswith("macs_") and not any(values)):
            continue
        if quantity in _OF_SEQUENCES and not any(map(recurs, comparison.ledgers)):
            continue
        if quantity in _SAME and len(set(values)) == 1:
            continue
        plain = _ONLY_BESIDE.get(quantity)
        if plain and values == [comparison.figures[name][plain] for name in comparison.names]:
            continue
        cells = []
        for name, value in zip(comparison.names, values, strict=True):
            ratio = comparison.ratios[name][quantity] if name != comparison.names[0] else None
            cells.append((_figure(quantity, value), against(ratio) if ratio else ""))
        yield quantity, words, cells


def recurs(ledger: Ledger) -> bool:
    """Are there tokens that wait for others, as in a recurrence?"""
    return ledger.metadata.sequential_steps > ledger.metadata.mixers


def _figure(quantity: str, value: float | None) -> str:
    if value is None:
        return units.DASH
    if quantity in _WRITTEN:
        return _WRITTEN[quantity](value)
    if "_bytes" in quantity:
        return units.size(int(value))
    if quantity in _EXACT:
        return units.exact(int(value))
    return units.count(value)


def against(ratio: float) -> str:
    """`(16× less)`, `(1.28× more)`, `(hardly more)`, `(same)`: how a figure stands to the first system's."""
    if ratio == 1:
        return "(same)"
    more, word = (1 / ratio, "less") if ratio < 1 else (ratio, "more")
    text = units.ratio(more)
    return f"(hardly {word})" if text == "1×" else f"({text} {word})"


def figures_table(comparison: Comparison, width: int) -> Table:
    """Figures side by side, ratios in line behind them, or below them where the screen is narrow."""
    rows = list(_figures(comparison))
    widths = [
        tuple(max(len(cells[system][part]) for _, _, cells in rows) for part in (0, 1))
        for system in range(len(comparison.names))
    ]
    beside = max(len(words) for _, words, _ in rows) + sum(sum(pair) + 3 for pair in widths) <= width
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for name, (wide, _) in zip(comparison.names, widths, strict=True):
        table.add_column(name.rjust(wide) if beside else name, justify="left" if beside else "right")
    for quantity, words, cells in rows:
        texts = [
            _beside(figure, ratio, wide, wider) if beside else f"{figure}\n{ratio}".rstrip()
            for (figure, ratio), (wide, wider) in zip(cells, widths, strict=True)
        ]
        table.add_row(words, *texts, style=_LINES[quantity][1])
    return table


def _beside(figure: str, ratio: str, wide: int, wider: int) -> str:
    return f"{figure:>{wide}} {ratio}" if wider else f"{figure:>{wide}}"


def growth_texts(comparison: Comparison) -> Iterator[Text]:
    """Growth exponents in N, system by system."""
    yield Text(f"growth in N{of_what(comparison)}: the exponent e of cost ~ N^e", style="bold")
    width = max(len(name) for name in comparison.names)
    for name in comparison.names:
        growth = comparison.growth[name]
        told = dict(CURVE_WORDS)
        told |= {"sequential_steps": "sequential steps"} if any(map(recurs, comparison.ledgers)) else {}
        told |= {"cache_bytes": "cache"} if any(ledger.step for ledger in comparison.ledgers) else {}
        exponents = ", ".join(f"{words} {_exponent(growth[quantity])}" for quantity, words in told.items())
        yield Text(f"  {name:<{width}}  {exponents}{_between(growth['factor'])}")


def _between(factor: float | None) -> str:
    """Between which N the exponents are."""
    if factor is None:
        return " (no other N fits)"
    return f" (to {units.ratio(factor)[:-1]}·N)" if factor > 1 else f" (from N/{units.ratio(1 / factor)[:-1]})"


def _exponent(value: float | None) -> str:
    return units.DASH if value is None else f"{value:.2f}"


def endnotes(comparison: Comparison) -> Iterator[Text]:
    """Agreement and notes, each with its system's name; what the rows mean."""
    for name, ledger in zip(comparison.names, comparison.ledgers, strict=True):
        for text in (*agreement_texts(ledger), *(Text(f"note: {note}") for note in ledger.metadata.notes)):
            yield Text.assemble(f"{name}: ", text)
    yield from run_texts(comparison.ledgers[0])
    yield Text(
        "score dot products: per head, in the first block that has scores, on the grid's own tokens", style="dim"
    )
    yield Text(CONVENTION, style="dim")
