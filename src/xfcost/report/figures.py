"""The figures of a comparison as a table: a row per quantity, ratios against the first system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from xfcost.counting.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.report.decoding import cache_name, intensity_number
from xfcost.report.document import DataTable, TableColumn
from xfcost.report.header import at_least
from xfcost.report.style import TERMINAL
from xfcost.report.timing import share_text
from xfcost.report.training import days_text, scientific

_EXTRA: Final = "score_dot_products_with_extra_tokens"
# quantity -> (words, style)
_LINES: Final[dict[str, tuple[str, str]]] = {
    "tokens": ("tokens N", ""),
    "token_pairs": ("pairs of tokens, N²", ""),
    "params": ("parameters", ""),
    "active_params": ("  active (one token's)", ""),
    "macs": ("MACs", "bold"),
    "macs_per-token": ("  per-token", TERMINAL["per-token"]),
    "macs_local": ("  local mixing", TERMINAL["local"]),
    "macs_global": ("  global mixing", TERMINAL["global"]),
    "macs_unknown": ("  mixing not known", TERMINAL["unknown"]),
    "traced_macs": ("traced MACs", ""),
    "flops": ("FLOPs", ""),
    "score_dot_products": ("score dot products", ""),
    _EXTRA: ("  with special tokens", ""),
    "attention_bytes": ("attention memory, all layers", ""),
    "attention_peak_bytes": ("attention memory, peak", ""),
    "plain_traffic_bytes": ("attention traffic, matrices kept", ""),
    "tiled_traffic_bytes": ("  tiled for the memory level", ""),
    "sequential_steps": ("sequential steps of all mixers", ""),
    "parallel_width": ("  tokens at once", ""),
    "cache_bytes": ("KV cache", ""),
    "cache_bytes_per_token": ("  more per token", ""),
    "read_bytes": ("bytes read per step", ""),
    "intensity": ("arithmetic intensity, FLOP/byte", ""),
    "generation_macs_without_cache": ("MACs without a cache", ""),
    "needed_bytes": ("memory needed on the devices", ""),
    "least_seconds": ("lower bound of the time", "bold"),
    "tf32_least_seconds": ("  with TF32", ""),
    "estimated_seconds": ("estimated time", "bold"),
    "tf32_estimated_seconds": ("  with TF32", ""),
    "predicted_seconds": ("predicted time", "bold"),
    "predicted_seconds_update": ("  predicted time of the update", ""),
    "seconds": ("time", "bold"),
    "mfu": ("  MFU reached", ""),
    "tf32_mfu": ("  MFU reached, of TF32", ""),
    "mbu": ("  MBU reached", ""),
    "seconds_per-token": ("  time per-token", TERMINAL["per-token"]),
    "seconds_local": ("  time of local mixing", TERMINAL["local"]),
    "seconds_global": ("  time of global mixing", TERMINAL["global"]),
    "seconds_unknown": ("  time, mixing not known", TERMINAL["unknown"]),
    "seconds_update": ("  time of the update", ""),
    "seconds_not_attributed": ("  not attributed", ""),
    "backward_macs": ("backward MACs", "bold"),
    "step_flops": ("FLOPs of a step, forward and backward", ""),
    "update_flops": ("FLOPs of the update", ""),
    "gradients_bytes": ("gradients", ""),
    "optimizer_bytes": ("optimizer states", ""),
    "kept_bytes": ("saved activations", ""),
    "step_bytes": ("memory of a step, without the loss", ""),
    "run_flops": ("FLOPs of the run", "bold"),
    "estimated_flops": ("  6·P·D", ""),
    "run_days": ("time of the run (days)", ""),
    "tf32_run_days": ("  with TF32", ""),
    "bound_days": ("  at the peak, a lower bound", ""),
    "tf32_bound_days": ("  at the peak of TF32", ""),
    "device_bytes": ("memory of a device", "bold"),
    "device_parameters_bytes": ("  parameters", ""),
    "device_gradients_bytes": ("  gradients", ""),
    "device_master_bytes": ("  master copy", ""),
    "device_optimizer_bytes": ("  optimizer states", ""),
    "device_activations_bytes": ("  saved activations", ""),
    "device_spare_bytes": ("  left of its memory", ""),
}
_EXACT: Final = ("sequential_steps", "tokens", "token_pairs", "score_dot_products", _EXTRA)
# Of a module with operations that nothing counts these are lower bounds.
_BOUNDED: Final = ("macs", "macs_per-token", "macs_local", "macs_global", "macs_unknown", "flops")
# A quantity that is listed only where it differs from another.
_ONLY_BESIDE: Final = {_EXTRA: "score_dot_products", "active_params": "params"}
# Listed only where a system has a recurrence.
_OF_RECURRENCES: Final = ("sequential_steps", "parallel_width")
# How some are written; others by the unit in their names, or as counts.
_WRITTEN: Final[dict[str, Callable[[float], str]]] = {
    **dict.fromkeys(("mfu", "tf32_mfu", "mbu"), share_text),
    **dict.fromkeys(("run_flops", "estimated_flops"), scientific),
    "intensity": intensity_number,
}
# Listed only where systems differ in them.
_ONLY_DIFFERENT: Final = ("tokens", "token_pairs")
_ONLY_NONZERO: Final = ("macs_per-token", "macs_local", "macs_global")


def figure_rows(comparison: Comparison) -> list[list[str]]:
    """Words, then one text per system, the ratio against the first beside the figure."""
    return [
        [words, *(f"{figure} {ratio}".rstrip() for figure, ratio in cells)] for _, words, cells in _figures(comparison)
    ]


def _figures(comparison: Comparison) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Quantity, its words, and per system its figure and how that stands to the first system's."""
    for quantity, (words, _) in _LINES.items():
        values = [comparison.figures[name].get(quantity) for name in comparison.names]
        if all(value is None for value in values) or (quantity in _ONLY_NONZERO and not any(values)):
            continue
        if quantity in _OF_RECURRENCES and not any(map(recurs, comparison.ledgers)):
            continue
        if quantity in _ONLY_DIFFERENT and len(set(values)) == 1:
            continue
        plain = _ONLY_BESIDE.get(quantity)
        if plain and values == [comparison.figures[name][plain] for name in comparison.names]:
            continue
        ratios = [None, *(_ratio(comparison, name, quantity) for name in comparison.names[1:])]
        texts = [
            f"{bounded(ledger, quantity) if value else ''}{figure_text(quantity, value)}"
            for value, ledger in zip(values, comparison.ledgers, strict=True)
        ]
        alone = plain and all(comparison.figures[name].get(plain) is None for name in comparison.names)
        told = f"{_LINES[plain][0]}, {words.strip()}" if plain and alone else words
        told = cache_name(*(ledger.cache for ledger in comparison.ledgers)) if quantity == "cache_bytes" else told
        yield quantity, told, list(zip(texts, map(_against, ratios), strict=True))


def bounded(ledger: Ledger, quantity: str) -> str:
    """`at least ` before a figure that is a lower bound."""
    return at_least(ledger) if quantity in _BOUNDED else ""


def _ratio(comparison: Comparison, name: str, quantity: str) -> float | None:
    """Against the first system; of times whose difference is not seen, or that are noisy, none."""
    if quantity == "seconds_not_attributed":
        return None
    found = comparison.time_ratios.get(name)
    unseen = found is not None and quantity == "seconds" and not found.seen  # the times of kinds have no interval
    if found is not None and quantity.startswith("seconds") and (found.noisy or unseen):
        return None
    return comparison.ratios[name][quantity]


def recurs(ledger: Ledger) -> bool:
    """Does a token wait for the one before it, as in a recurrence?"""
    return ledger.metadata.sequential_steps > ledger.metadata.mixers


def figure_text(quantity: str, value: float | None) -> str:  # noqa: PLR0911 - a return per unit
    """A figure in the unit of its quantity."""
    if value is None:
        return units.DASH
    if quantity in _WRITTEN:
        return _WRITTEN[quantity](value)
    if "seconds" in quantity:
        return units.seconds(value)
    if quantity.endswith("days"):
        return days_text(value, "")
    if "bytes" in quantity:
        return units.size(int(value))
    if quantity in _EXACT:
        return units.exact(int(value))
    return units.count(value)


def _against(ratio: float | None) -> str:
    """`(16× less)`, `(1.28× more)`, `(hardly more)`, `(same)`: how a figure stands to the first system's."""
    if not ratio or ratio == 1:
        return "(same)" if ratio else ""
    more, word = (1 / ratio, "less") if ratio < 1 else (ratio, "more")
    text = units.ratio(more)
    return f"(hardly {word})" if text == "1×" else f"({text} {word})"


def figures_table(comparison: Comparison, *, verbose: bool) -> DataTable:
    """Figures side by side, ratios beside them, or below them on a narrow screen; rows that differ, or all."""
    every = list(_figures(comparison))
    figures = comparison.figures.values()
    rows = [row for row in every if verbose or len({one.get(row[0]) for one in figures}) > 1] or every
    styles = [_LINES[quantity][1] for quantity, _, _ in rows]
    widths = [
        tuple(max(len(cells[system][part]) for _, _, cells in rows) for part in (0, 1))
        for system in range(len(comparison.names))
    ]
    beside = [
        [words, *(f"{one:>{wide}} {ratio}".rstrip() for (one, ratio), (wide, _) in zip(cells, widths, strict=True))]
        for _, words, cells in rows
    ]
    below = [[words, *(f"{one}\n{ratio}".rstrip() for one, ratio in cells)] for _, words, cells in rows]
    names = zip(comparison.names, widths, strict=True)
    columns = [TableColumn("", fold=1), *(TableColumn(name.rjust(wide), fold=1) for name, (wide, _) in names)]
    stacked = [TableColumn("", fold=1), *(TableColumn(name, right=True, fold=1) for name in comparison.names)]
    return DataTable(columns, beside, styles, narrow=[DataTable(stacked, below, styles)])
