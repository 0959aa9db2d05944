"""The quantities of reports, declared once; and the figures of a comparison as a table, ratios against the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from xfcost.comparing.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.parts.serving.text import cache_name, intensity_number
from xfcost.parts.timing.text import share_text
from xfcost.parts.training.text import days_text, scientific
from xfcost.report.document import DataTable, TableColumn
from xfcost.report.style import TERMINAL
from xfcost.views.header import at_least


class ReportQuantity(NamedTuple):
    """One quantity; its key is its name in JSON and CSV."""

    line: str
    """Its line in a table of figures, indented where it is a part of the one above; empty: it has none."""
    meaning: str
    """What it is; the glossary of the docs lists it."""
    words: str = ""
    """In a sentence, where its line is another."""
    column: str = ""
    """The heading of its column, where that is shorter."""
    style: str = ""
    text: Callable[[Any], str] | None = None
    """How it is written; None: by the unit in its name, or as a count."""

    @property
    def name(self) -> str:
        """In a sentence."""
        return self.words or self.line.strip()

    @property
    def head(self) -> str:
        """Of a column."""
        return self.column or self.name


def _exact(value: float) -> str:
    return units.exact(int(value))


QUANTITIES: Final[dict[str, ReportQuantity]] = {
    "tokens": ReportQuantity("tokens N", "tokens of the first stage, without special tokens", text=_exact),
    "token_pairs": ReportQuantity("pairs of tokens, N²", "N², the pairs that full attention scores", text=_exact),
    "params": ReportQuantity(
        "parameters", "learned numbers; a shared table counts once, buffers do not count", column="params"
    ),
    "active_params": ReportQuantity(
        "  active (one token's)",
        "parameters that one token uses: in a mixture of experts, only the experts that the router selects",
        words="active parameters",
    ),
    "macs": ReportQuantity(
        "MACs",
        "multiply-accumulates of one forward pass (of a decode step, of one step), one each, masked pairs included",
        style="bold",
    ),
    "macs_per-token": ReportQuantity(
        "  per-token", "MACs of operations that process each token alone", style=TERMINAL["per-token"]
    ),
    "macs_local": ReportQuantity(
        "  local mixing",
        "MACs of operations that read a set of tokens that does not grow with N",
        style=TERMINAL["local"],
    ),
    "macs_global": ReportQuantity(
        "  global mixing", "MACs of operations that read a set of tokens that grows with N", style=TERMINAL["global"]
    ),
    "macs_unknown": ReportQuantity(
        "  mixing not known",
        "MACs of a module's operations whose mixing kind was not found",
        style=TERMINAL["unknown"],
    ),
    "mixing_macs": ReportQuantity("", "local and global MACs together", words="mixing MACs"),
    "traced_macs": ReportQuantity("traced MACs", "MACs that fvcore's trace of the real torch model counts"),
    "flops": ReportQuantity("FLOPs", "2·MACs plus element-wise work"),
    "score_dot_products": ReportQuantity(
        "score dot products",
        "dot products QKᵀ per head and sample in the first attention sub-layer, on the grid only",
        text=_exact,
    ),
    "score_dot_products_with_extra_tokens": ReportQuantity(
        "  with special tokens", "the same with special tokens ([CLS])", text=_exact
    ),
    "attention_bytes": ReportQuantity(
        "attention memory, all layers",
        "attention matrices of all layers that training saves; for fused kernels, their statistics",
        words="attention memory",
    ),
    "attention_peak_bytes": ReportQuantity(
        "attention memory, peak", "attention matrices that are alive at once in inference"
    ),
    "plain_traffic_bytes": ReportQuantity(
        "attention traffic, matrices stored",
        "main-memory traffic of attention cores if every matrix is written, with --memory-level",
    ),
    "tiled_traffic_bytes": ReportQuantity(
        "  tiled for the memory level", "the same in tiles that fit the on-chip memory, as FlashAttention computes it"
    ),
    "sequential_steps": ReportQuantity(
        "sequential steps of all mixers",
        "steps that must run one after another: one per mixer, N for a recurrence over N tokens",
        text=_exact,
    ),
    "parallel_width": ReportQuantity(
        "  tokens at once", "tokens that a mixer computes at once, averaged over its steps"
    ),
    "cache_bytes": ReportQuantity(
        "KV cache",
        "KV cache and recurrent states with N tokens, of the whole batch",
        words="KV cache and state",
        column="cache",
    ),
    "cache_bytes_per_token": ReportQuantity("  more per token", "bytes that each further token of a sample adds to it"),
    "cross_attention_bytes": ReportQuantity(
        "  of cross-attention", "the part of it in keys and values of an encoder's tokens, which is filled once"
    ),
    "read_bytes": ReportQuantity(
        "bytes read per step",
        "bytes that a decode step reads: weights once for the batch (the expected number of experts), and the whole "
        "cache",
    ),
    "intensity": ReportQuantity(
        "arithmetic intensity, FLOP/byte", "FLOPs of a decode step per byte that it reads", text=intensity_number
    ),
    "generation_macs_without_cache": ReportQuantity(
        "MACs without a cache", "MACs of a generation that recomputes all tokens for each new one"
    ),
    "needed_bytes": ReportQuantity(
        "memory needed on the devices", "weights, cache and attention matrices of the run, with --on"
    ),
    "least_seconds": ReportQuantity(
        "lower bound of the time",
        "the larger of FLOPs at the peak and bytes at the full bandwidth of the devices of --on, with the expected "
        "number of experts",
        style="bold",
    ),
    "estimated_seconds": ReportQuantity(
        "estimated time", "the same at the shares --mfu of the peak and --mbu of the bandwidth", style="bold"
    ),
    "predicted_seconds": ReportQuantity(
        "predicted time",
        "time of a forward pass that a calibration of the device predicts, with --predict",
        style="bold",
        column="predicted",
    ),
    "predicted_seconds_update": ReportQuantity(
        "  predicted time of the update", "predicted time of the optimizer's update"
    ),
    "seconds": ReportQuantity("time", "median of the measured runs on the device", style="bold", column="time"),
    "mfu": ReportQuantity("  MFU reached", "model FLOPs per second over the peak of the device", text=share_text),
    "mbu": ReportQuantity(
        "  MBU reached", "bytes that a decode step reads per second over the bandwidth of the device", text=share_text
    ),
    "seconds_per-token": ReportQuantity(
        "  time per-token", "measured time of operations that process each token alone", style=TERMINAL["per-token"]
    ),
    "seconds_local": ReportQuantity("  time of local mixing", "measured time of local mixing", style=TERMINAL["local"]),
    "seconds_global": ReportQuantity(
        "  time of global mixing", "measured time of global mixing", style=TERMINAL["global"]
    ),
    "seconds_unknown": ReportQuantity(
        "  time, mixing not known", "measured time of operations whose kind was not found", style=TERMINAL["unknown"]
    ),
    "seconds_host": ReportQuantity("  host", "measured seconds until the host has issued every kernel of a GPU"),
    "seconds_kernels": ReportQuantity("  kernels", "measured time of all kernels, copies and fills of a GPU"),
    "seconds_copies": ReportQuantity(
        "  copies and fills", "measured time of a GPU's copies and fills between operations"
    ),
    "seconds_update": ReportQuantity("  time of the update", "measured time of the optimizer's update"),
    "seconds_not_attributed": ReportQuantity("  not attributed", "the whole less the time of all operations"),
    "backward_macs": ReportQuantity(
        "backward MACs", "multiply-accumulates of the backward pass, with --mode train", style="bold"
    ),
    "step_flops": ReportQuantity(
        "FLOPs of a step, forward and backward", "FLOPs of forward, backward and recomputed passes of a training step"
    ),
    "update_flops": ReportQuantity("FLOPs of the update", "FLOPs of the optimizer's update"),
    "gradients_bytes": ReportQuantity("gradients", "gradients of the trained parameters"),
    "optimizer_bytes": ReportQuantity("optimizer states", "states of the optimizer, in float32"),
    "kept_bytes": ReportQuantity(
        "saved activations", "activations that autograd saves for the backward pass", column="saved"
    ),
    "step_bytes": ReportQuantity(
        "memory of a step, without the loss", "parameters, gradients, states and saved activations of a training step"
    ),
    "run_flops": ReportQuantity(
        "FLOPs of the run", "FLOPs of a training run over --tokens", style="bold", text=scientific
    ),
    "estimated_flops": ReportQuantity(
        "  6·P·D", "6·P·D, the usual estimate of the FLOPs of the run (Kaplan et al. 2020)", text=scientific
    ),
    "run_days": ReportQuantity("time of the run", "time of the run at the given rate"),
    "bound_days": ReportQuantity(
        "  at the peak, a lower bound", "time of the run at the peak rate, which no run reaches"
    ),
    "device_bytes": ReportQuantity(
        "memory of a device", "memory of the device that needs the most, under the training plan", style="bold"
    ),
    "device_parameters_bytes": ReportQuantity("  parameters", "parameters that it holds"),
    "device_gradients_bytes": ReportQuantity("  gradients", "gradients that it holds"),
    "device_master_bytes": ReportQuantity("  master copy", "float32 copies of parameters in half precision"),
    "device_optimizer_bytes": ReportQuantity("  optimizer states", "optimizer states that it holds"),
    "device_activations_bytes": ReportQuantity("  saved activations", "activations that it saves"),
    "device_spare_bytes": ReportQuantity(
        "  left of its memory", "free memory of that device; negative if the plan does not fit"
    ),
}


def figure_text(quantity: str, value: float | None, *, headed: bool = False) -> str:
    """A figure in the unit of its quantity; `headed`: under a heading that names it."""
    if value is None:
        return units.DASH
    known = QUANTITIES.get(quantity)
    if known is not None and known.text is not None:
        return known.text(value)
    match unit_of(quantity):
        case "s":
            return units.seconds(value)
        case "days":
            return days_text(value, "" if headed else "day")
        case "bytes":
            return units.size(int(value))
    return units.count(value)


def unit_of(quantity: str) -> str:
    """`s`, `days`, `bytes`, or nothing of a number; names end with their unit."""
    words = quantity.split("_")
    return next((unit for word, unit in _UNITS.items() if word in words), "")


_UNITS: Final = {"seconds": "s", "days": "days", "bytes": "bytes"}


_EXTRA: Final = "score_dot_products_with_extra_tokens"
# Of a module with operations that nothing counts these are lower bounds.
_BOUNDED: Final = ("macs", "macs_per-token", "macs_local", "macs_global", "macs_unknown", "flops")
# A quantity that is listed only if it differs from another.
_ONLY_BESIDE: Final = {
    _EXTRA: "score_dot_products",
    "active_params": "params",
}
# Listed only where a system has a recurrence.
_OF_RECURRENCES: Final = ("sequential_steps", "parallel_width")
# Listed only where systems differ in them.
_ONLY_DIFFERENT: Final = ("tokens", "token_pairs")
_ONLY_NONZERO: Final = ("macs_per-token", "macs_local", "macs_global")


def figure_lines(comparison: Comparison) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Quantity, its words, and per system its figure and the ratio to the first system's."""
    for quantity, declared in QUANTITIES.items():
        if not declared.line:
            continue
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
        words = declared.line
        told = f"{QUANTITIES[plain].name}, {words.strip()}" if plain and alone else words
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
    return comparison.ratios[name].get(quantity)


def recurs(ledger: Ledger) -> bool:
    """Does a token wait for the one before it, as in a recurrence?"""
    return ledger.metadata.sequential_steps > ledger.metadata.mixers


def _against(ratio: float | None) -> str:
    """`(16× less)`, `(1.28× more)`, `(hardly more)`, `(same)`: a figure relative to the first system's."""
    if ratio is None or ratio <= 0:
        return ""
    if ratio == 1:
        return "(same)"
    more, word = (1 / ratio, "less") if ratio < 1 else (ratio, "more")
    text = units.ratio(more)
    return f"(hardly {word})" if text == "1×" else f"({text} {word})"


def figures_table(comparison: Comparison, *, verbose: bool) -> DataTable:
    """Figures side by side, ratios next to them, or below them on a narrow screen; rows that differ, or all."""
    every = list(figure_lines(comparison))
    figures = comparison.figures.values()
    shown = {row[0] for row in every if verbose or len({one.get(row[0]) for one in figures}) > 1}
    whole = ""
    for quantity, words, _ in every:
        if not words.startswith(" "):
            whole = quantity
        elif quantity in shown:
            shown.add(whole)  # a part stands below what it is a part of
    rows = [row for row in every if row[0] in shown] or every
    styles = [QUANTITIES[quantity].style for quantity, _, _ in rows]
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
    columns = [TableColumn("", fold=20), *(TableColumn(name.rjust(wide), fold_head=12) for name, (wide, _) in names)]
    stacked = [TableColumn("", fold=20), *(TableColumn(name, right=True, fold_head=12) for name in comparison.names)]
    return DataTable(columns, beside, styles, narrow=[DataTable(stacked, below, styles)])
