"""The quantities of reports, declared once: their words, their columns, and how each is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from xfcost.ledger import units
from xfcost.report.on_devices import intensity_number
from xfcost.report.style import TERMINAL
from xfcost.report.timing import share_text
from xfcost.report.training import days_text, scientific


class ReportQuantity(NamedTuple):
    """One quantity; its key is its name in JSON and CSV."""

    line: str
    """Its line in a table of figures, indented where it is a part of the one above; empty: it has none."""
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
    "tokens": ReportQuantity("tokens N", text=_exact),
    "token_pairs": ReportQuantity("pairs of tokens, N²", text=_exact),
    "params": ReportQuantity("parameters", column="params"),
    "active_params": ReportQuantity("  active (one token's)", words="active parameters"),
    "macs": ReportQuantity("MACs", style="bold"),
    "macs_per-token": ReportQuantity("  per-token", style=TERMINAL["per-token"]),
    "macs_local": ReportQuantity("  local mixing", style=TERMINAL["local"]),
    "macs_global": ReportQuantity("  global mixing", style=TERMINAL["global"]),
    "macs_unknown": ReportQuantity("  mixing not known", style=TERMINAL["unknown"]),
    "mixing_macs": ReportQuantity("", words="mixing MACs"),
    "traced_macs": ReportQuantity("traced MACs"),
    "flops": ReportQuantity("FLOPs"),
    "score_dot_products": ReportQuantity("score dot products", text=_exact),
    "score_dot_products_with_extra_tokens": ReportQuantity("  with special tokens", text=_exact),
    "attention_bytes": ReportQuantity("attention memory, all layers", words="attention memory"),
    "attention_peak_bytes": ReportQuantity("attention memory, peak"),
    "plain_traffic_bytes": ReportQuantity("attention traffic, matrices kept"),
    "tiled_traffic_bytes": ReportQuantity("  tiled for the memory level"),
    "sequential_steps": ReportQuantity("sequential steps of all mixers", text=_exact),
    "parallel_width": ReportQuantity("  tokens at once"),
    "cache_bytes": ReportQuantity("KV cache", words="KV cache and state", column="cache"),
    "cache_bytes_per_token": ReportQuantity("  more per token"),
    "read_bytes": ReportQuantity("bytes read per step"),
    "intensity": ReportQuantity("arithmetic intensity, FLOP/byte", text=intensity_number),
    "generation_macs_without_cache": ReportQuantity("MACs without a cache"),
    "needed_bytes": ReportQuantity("memory needed on the devices"),
    "least_seconds": ReportQuantity("lower bound of the time", style="bold"),
    "tf32_least_seconds": ReportQuantity("  with TF32"),
    "estimated_seconds": ReportQuantity("estimated time", style="bold"),
    "tf32_estimated_seconds": ReportQuantity("  with TF32"),
    "predicted_seconds": ReportQuantity("predicted time", style="bold", column="predicted"),
    "predicted_seconds_update": ReportQuantity("  predicted time of the update"),
    "seconds": ReportQuantity("time", style="bold", column="time"),
    "mfu": ReportQuantity("  MFU reached", text=share_text),
    "tf32_mfu": ReportQuantity("  MFU reached, of TF32", text=share_text),
    "mbu": ReportQuantity("  MBU reached", text=share_text),
    "seconds_per-token": ReportQuantity("  time per-token", style=TERMINAL["per-token"]),
    "seconds_local": ReportQuantity("  time of local mixing", style=TERMINAL["local"]),
    "seconds_global": ReportQuantity("  time of global mixing", style=TERMINAL["global"]),
    "seconds_unknown": ReportQuantity("  time, mixing not known", style=TERMINAL["unknown"]),
    "seconds_update": ReportQuantity("  time of the update"),
    "seconds_not_attributed": ReportQuantity("  not attributed"),
    "backward_macs": ReportQuantity("backward MACs", style="bold"),
    "step_flops": ReportQuantity("FLOPs of a step, forward and backward"),
    "update_flops": ReportQuantity("FLOPs of the update"),
    "gradients_bytes": ReportQuantity("gradients"),
    "optimizer_bytes": ReportQuantity("optimizer states"),
    "kept_bytes": ReportQuantity("saved activations", column="saved"),
    "step_bytes": ReportQuantity("memory of a step, without the loss"),
    "run_flops": ReportQuantity("FLOPs of the run", style="bold", text=scientific),
    "estimated_flops": ReportQuantity("  6·P·D", text=scientific),
    "run_days": ReportQuantity("time of the run (days)"),
    "tf32_run_days": ReportQuantity("  with TF32"),
    "bound_days": ReportQuantity("  at the peak, a lower bound"),
    "tf32_bound_days": ReportQuantity("  at the peak of TF32"),
    "device_bytes": ReportQuantity("memory of a device", style="bold"),
    "device_parameters_bytes": ReportQuantity("  parameters"),
    "device_gradients_bytes": ReportQuantity("  gradients"),
    "device_master_bytes": ReportQuantity("  master copy"),
    "device_optimizer_bytes": ReportQuantity("  optimizer states"),
    "device_activations_bytes": ReportQuantity("  saved activations"),
    "device_spare_bytes": ReportQuantity("  left of its memory"),
}


def figure_text(quantity: str, value: float | None) -> str:
    """A figure in the unit of its quantity."""
    if value is None:
        return units.DASH
    known = QUANTITIES.get(quantity)
    if known is not None and known.text is not None:
        return known.text(value)
    if "seconds" in quantity:
        return units.seconds(value)
    if quantity.endswith("days"):
        return days_text(value, "")
    return units.size(int(value)) if "bytes" in quantity else units.count(value)
