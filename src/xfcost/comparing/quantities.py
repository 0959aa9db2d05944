"""The quantities of comparisons, declared once: name, value of a system, unit, words; tables and formats read them.

A quantity is an entry of `QUANTITIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from xfcost.counting.system import System, mixing_macs
from xfcost.ledger import units
from xfcost.ledger.achieved import reached
from xfcost.ledger.errors import UsageError, shown
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import KINDS, MIXINGS
from xfcost.ledger.option_readers import named_by
from xfcost.parts.serving.text import intensity_number
from xfcost.parts.timing.text import share_text
from xfcost.parts.training.text import days_text, scientific
from xfcost.report.style import TERMINAL
from xfcost.spec.run import Run


class Counted:
    """A system that was counted: what quantities are read from."""

    def __init__(self, ledger: Ledger, scores: tuple[int | None, int | None] = (None, None)) -> None:
        self.ledger = ledger
        self.scores = scores
        """Dot products QKᵀ of the first attention, without and with special tokens."""
        self.memory = ledger.attention_memory()
        self.reached = reached(ledger)
        self.tokens = ledger.metadata.grid_tokens or None
        generation = ledger.generation
        self.only_prefill = generation is not None and generation.decode is None
        """Has its generation no decode steps?"""
        self.macs, self.seconds = self._by_kind("macs"), self._by_kind("seconds")

    def _by_kind(self, quantity: str) -> dict[str, Any]:
        return {
            kind: self.ledger.total(quantity, lambda row, kind=kind: row.mixing == kind)  # type: ignore[misc]
            for kind in KINDS
        }


def _kinds_known(found: Mapping[str, Any]) -> bool:
    return any(found[kind] for kind in MIXINGS) or not found["unknown"]


def _total(quantity: str) -> Callable[[Counted], Any]:
    """All rows together."""
    return lambda one: one.ledger.total(quantity)


def _work(quantity: str) -> Callable[[Counted], Any]:
    """All rows together; not of a generation without decode steps, whose rows are a prefill's."""
    return lambda one: None if one.only_prefill else one.ledger.total(quantity)


def _macs_of(kind: str) -> Callable[[Counted], Any]:
    return lambda one: None if one.only_prefill or not _kinds_known(one.macs) else one.macs[kind] or 0


def _seconds_of(kind: str) -> Callable[[Counted], Any]:
    def seconds(one: Counted) -> Any:
        if one.ledger.timing is None:
            return UNSET
        return one.seconds[kind] if _kinds_known(one.seconds) else None

    return seconds


def _read(path: str) -> Callable[[Counted], Any]:
    """A field of the ledger, `step.intensity`; None where it has no such part."""

    def read(one: Counted) -> Any:
        found: Any = one.ledger
        for name in path.split("."):
            found = None if found is None else getattr(found, name)
        return found

    return read


def _of_part(*paths: str) -> Callable[[Counted], Any]:
    """The same of the first path whose part the ledger has; UNSET without."""
    parts = [(_read(path.rpartition(".")[0]), _read(path)) for path in paths]
    return lambda one: next((read(one) for part, read in parts if part(one) is not None), UNSET)


def _known(path: str) -> Callable[[Counted], Any]:
    """The same where it is known; else UNSET."""
    read = _read(path)
    return lambda one: UNSET if read(one) is None else read(one)


def _on_devices(field: str) -> Callable[[Counted], Any]:
    """Seconds on the devices of `--on`; None where the run does not fit."""
    read = _read(f"on.{field}")
    return lambda one: UNSET if read(one) is None else None if one.ledger.no_time is not None else read(one)


class Quantity(NamedTuple):
    """One quantity; its key is its name in JSON and CSV."""

    line: str
    """Its line in a table of figures, indented where it is a part of the one above; empty: it has none."""
    meaning: str
    """What it is; the glossary of the docs lists it."""
    of: Callable[[Counted], Any]
    """Its value; None where it is not known, UNSET where the run has no such figure."""
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


def quantity_called(option: str, given: str, known: Sequence[str]) -> str:
    """The one of the `known` quantities that a word names: as in JSON, or as in a report (`attention-memory`).

    Raises:
        UsageError: it names none, or several.
    """
    called = {name: key for key in known for name in (QUANTITIES[key].head, QUANTITIES[key].name, key)}
    keys = list(dict.fromkeys(called[name] for name in named_by(given, called)))
    if len(keys) == 1:
        return keys[0]
    raise UsageError(f"{option} {shown(given)}: expected one of {', '.join(keys or known)}")


def _exact(value: float) -> str:
    return units.exact(int(value))


QUANTITIES: Final[dict[str, Quantity]] = {
    "tokens": Quantity(
        "tokens N",
        "tokens of the first stage, without special tokens",
        lambda one: one.tokens,
        column="N",
        text=_exact,
    ),
    "token_pairs": Quantity(
        "pairs of tokens, N²",
        "N², the pairs that full attention scores",
        lambda one: one.tokens and one.tokens**2,
        column="pairs",
        text=_exact,
    ),
    "params": Quantity(
        "parameters",
        "learned numbers; a shared table counts once, buffers do not count",
        _total("params"),
        column="params",
    ),
    "active_params": Quantity(
        "  active (one token's)",
        "parameters that one token uses: in a mixture of experts, only the experts that the router selects",
        _total("active_params"),
        words="active parameters",
        column="active params",
    ),
    "macs": Quantity(
        "MACs",
        "multiply-accumulates of one forward pass (of a decode step, of one step), one each, masked pairs included",
        _work("macs"),
        style="bold",
    ),
    "macs_per-token": Quantity(
        "  per-token",
        "MACs of operations that process each token alone",
        _macs_of("per-token"),
        column="per-token MACs",
        style=TERMINAL["per-token"],
    ),
    "macs_local": Quantity(
        "  local mixing",
        "MACs of operations that read a set of tokens that does not grow with N",
        _macs_of("local"),
        column="local MACs",
        style=TERMINAL["local"],
    ),
    "macs_global": Quantity(
        "  global mixing",
        "MACs of operations that read a set of tokens that grows with N",
        _macs_of("global"),
        column="global MACs",
        style=TERMINAL["global"],
    ),
    "macs_unknown": Quantity(
        "  mixing not known",
        "MACs of a module's operations whose mixing kind was not found",
        lambda one: one.macs["unknown"] if _kinds_known(one.macs) and one.macs["unknown"] else UNSET,
        column="unknown MACs",
        style=TERMINAL["unknown"],
    ),
    "mixing_macs": Quantity(
        "",
        "local and global MACs together",
        lambda one: None if one.only_prefill else mixing_macs(one.ledger),
        words="mixing MACs",
        style=TERMINAL["global"],
    ),
    "traced_macs": Quantity(
        "traced MACs", "MACs that fvcore's trace of the real torch model counts", _total("traced_macs")
    ),
    "flops": Quantity("FLOPs", "2·MACs plus element-wise work", _work("flops")),
    "score_dot_products": Quantity(
        "query-key pairs per head",
        "dot products QKᵀ per head and sample in the first attention sub-layer, on the grid only",
        lambda one: one.scores[0],
        column="query-key pairs",
        text=_exact,
    ),
    "score_dot_products_with_extra_tokens": Quantity(
        "  with special tokens",
        "the same with special tokens ([CLS])",
        lambda one: one.scores[1],
        words="query-key pairs per head, with special tokens",
        column="query-key pairs with special tokens",
        text=_exact,
    ),
    "attention_bytes": Quantity(
        "attention memory, all layers",
        "attention matrices of all layers that are kept for the backward pass; for fused kernels, their statistics",
        lambda one: one.memory["all_layers"],
        words="attention memory",
    ),
    "attention_peak_bytes": Quantity(
        "attention memory, at once",
        "attention matrices that are alive at once in inference",
        lambda one: one.memory["peak"],
        column="attention peak",
    ),
    "plain_traffic_bytes": Quantity(
        "attention traffic, matrices stored",
        "main-memory traffic of attention cores if every matrix is written, with --memory-level",
        _total("plain_traffic_bytes"),
        column="traffic",
    ),
    "tiled_traffic_bytes": Quantity(
        "  tiled for the memory level",
        "the same in tiles that fit the on-chip memory, as FlashAttention computes it",
        _total("tiled_traffic_bytes"),
        column="tiled",
    ),
    "sequential_steps": Quantity(
        "sequential steps of all mixers",
        "steps that must run one after another: one per mixer, N for a recurrence over N tokens",
        _read("metadata.sequential_steps"),
        text=_exact,
    ),
    "parallel_width": Quantity(
        "  tokens at once",
        "tokens that a mixer computes at once, averaged over its steps",
        _read("metadata.parallel_width"),
    ),
    "cache_bytes": Quantity(
        "KV cache",
        "KV cache and recurrent states with N tokens, of the whole batch",
        _read("cache.bytes"),
        words="KV cache and state",
        column="cache",
    ),
    "cache_bytes_per_token": Quantity(
        "  for each further token",
        "bytes that each further token of a sample adds to it",
        _read("cache.bytes_per_token"),
        words="KV cache for each further token",
        column="cache per token",
    ),
    "cross_attention_bytes": Quantity(
        "  of cross-attention",
        "the part of it in keys and values of an encoder's tokens, which is filled once",
        _read("cache.cross_attention_bytes"),
        column="cross-attention cache",
    ),
    "read_bytes": Quantity(
        "bytes read per step",
        "bytes that a decode step reads: weights once for the batch (the expected number of experts), and the whole "
        "cache",
        _read("step.bytes_read"),
        column="read/step",
    ),
    "intensity": Quantity(
        "arithmetic intensity, FLOP/byte",
        "FLOPs of a decode step per byte that it reads",
        _read("step.intensity"),
        column="FLOP/byte",
        text=intensity_number,
    ),
    "generation_macs": Quantity(
        "", "MACs of a generation with its cache", _read("generation.with_cache.macs"), words="MACs of the generation"
    ),
    "generation_macs_without_cache": Quantity(
        "MACs without a cache",
        "MACs of a generation that recomputes all tokens for each new one",
        _read("generation.without_cache.macs"),
    ),
    "needed_bytes": Quantity(
        "memory needed on the devices",
        "weights, cache and attention matrices of the run, with --on",
        _of_part("on.memory.reserved"),
        column="memory",
    ),
    "least_seconds": Quantity(
        "lower bound of the time",
        "the larger of FLOPs at the peak and bytes at the full bandwidth of the devices of --on, with the expected "
        "number of experts",
        _on_devices("seconds"),
        column="lower bound",
        style="bold",
    ),
    "estimated_seconds": Quantity(
        "estimated time",
        "the same at the shares --mfu of the peak and --mbu of the bandwidth",
        _on_devices("estimate"),
        column="estimate",
        style="bold",
    ),
    "predicted_seconds": Quantity(
        "predicted time",
        "time of a forward pass that a calibration of the device predicts, with --predict",
        _of_part("prediction.seconds"),
        style="bold",
        column="predicted",
    ),
    "predicted_seconds_update": Quantity(
        "  predicted time of the update",
        "predicted time of the optimizer's update",
        _known("prediction.update_seconds"),
    ),
    "seconds": Quantity(
        "time", "median of the measured runs on the device", _read("timing.seconds"), style="bold", column="time"
    ),
    "mfu": Quantity(
        "  MFU reached",
        "model FLOPs per second over the peak of the device",
        lambda one: UNSET if one.reached is None else one.reached.mfu,
        text=share_text,
    ),
    "mbu": Quantity(
        "  MBU reached",
        "bytes that a decode step reads per second over the bandwidth of the device",
        lambda one: UNSET if one.reached is None else one.reached.mbu,
        text=share_text,
    ),
    "seconds_per-token": Quantity(
        "  time per-token",
        "measured time of operations that process each token alone",
        _seconds_of("per-token"),
        style=TERMINAL["per-token"],
    ),
    "seconds_local": Quantity(
        "  time of local mixing", "measured time of local mixing", _seconds_of("local"), style=TERMINAL["local"]
    ),
    "seconds_global": Quantity(
        "  time of global mixing", "measured time of global mixing", _seconds_of("global"), style=TERMINAL["global"]
    ),
    "seconds_unknown": Quantity(
        "  time, mixing not known",
        "measured time of operations whose kind was not found",
        lambda one: one.seconds["unknown"] or UNSET,
        column="time of unknown mixing",
        style=TERMINAL["unknown"],
    ),
    "seconds_host": Quantity(
        "  host", "measured seconds until the host has issued every kernel of a GPU", _of_part("timing.lanes.host")
    ),
    "seconds_kernels": Quantity(
        "  kernels", "measured time of all kernels, copies and fills of a GPU", _of_part("timing.lanes.kernels")
    ),
    "seconds_copies": Quantity(
        "  copies and fills",
        "measured time of a GPU's copies and fills between operations",
        _of_part("timing.lanes.copies"),
    ),
    "seconds_update": Quantity(
        "  time of the update", "measured time of the optimizer's update", _of_part("timing.update_seconds")
    ),
    "seconds_not_attributed": Quantity(
        "  not attributed", "the whole less the time of all operations", _of_part("timing.not_attributed")
    ),
    "backward_macs": Quantity(
        "backward MACs",
        "multiply-accumulates of the backward pass, with --mode train",
        _of_part("training.step.backward_macs"),
        style="bold",
    ),
    "step_flops": Quantity(
        "FLOPs of a step, forward and backward",
        "FLOPs of forward, backward and recomputed passes of a training step",
        _of_part("training.step.model_flops"),
        column="step FLOPs",
    ),
    "update_flops": Quantity(
        "FLOPs of the update", "FLOPs of the optimizer's update", _of_part("training.step.update_flops")
    ),
    "gradients_bytes": Quantity(
        "gradients", "gradients of the trained parameters", _of_part("training.step.gradients_bytes")
    ),
    "optimizer_bytes": Quantity(
        "optimizer states",
        "states of the optimizer, in float32",
        _of_part("training.step.optimizer_bytes"),
        column="states",
    ),
    "kept_bytes": Quantity(
        "saved activations",
        "activations that autograd saves for the backward pass",
        _of_part("training.step.kept_bytes"),
        column="saved",
    ),
    "step_bytes": Quantity(
        "memory of a step, without the loss",
        "parameters, gradients, states and saved activations of a training step",
        _of_part("training.step.total_bytes"),
        column="step memory",
    ),
    "run_flops": Quantity(
        "FLOPs of the run",
        "FLOPs of a training run over --tokens",
        _of_part("training.run.flops"),
        column="run FLOPs",
        style="bold",
        text=scientific,
    ),
    "estimated_flops": Quantity(
        "  6·P·D",
        "6·P·D, the usual estimate of the FLOPs of the run (Kaplan et al. 2020)",
        _of_part("training.run.estimate"),
        text=scientific,
    ),
    "run_days": Quantity(
        "time of the run",
        "time of the run at the given rate",
        _of_part("training.plan.given_days", "training.run.days"),
        column="run time",
    ),
    "bound_days": Quantity(
        "  at the peak, a lower bound",
        "time of the run at the peak rate, which no run reaches",
        _of_part("training.plan.bound_days"),
        column="least run time",
    ),
    "device_bytes": Quantity(
        "memory of a device",
        "memory of the device that needs the most, under the training plan",
        _of_part("training.plan.memory.total"),
        style="bold",
    ),
    "device_parameters_bytes": Quantity(
        "  parameters",
        "parameters that it holds",
        _of_part("training.plan.memory.parameters"),
        column="parameters of a device",
    ),
    "device_gradients_bytes": Quantity(
        "  gradients",
        "gradients that it holds",
        _of_part("training.plan.memory.gradients"),
        column="gradients of a device",
    ),
    "device_master_bytes": Quantity(
        "  master copy",
        "float32 copies of parameters in half precision",
        _of_part("training.plan.memory.master"),
        column="master copy of a device",
    ),
    "device_optimizer_bytes": Quantity(
        "  optimizer states",
        "optimizer states that it holds",
        _of_part("training.plan.memory.optimizer"),
        column="optimizer states of a device",
    ),
    "device_activations_bytes": Quantity(
        "  saved activations",
        "activations that it saves",
        _of_part("training.plan.memory.activations"),
        column="activations of a device",
    ),
    "device_spare_bytes": Quantity(
        "  left of its memory",
        "free memory of that device; negative if the plan does not fit",
        _of_part("training.plan.spare_bytes"),
        column="left of a device",
    ),
}


def figure_text(quantity: str, value: float | None) -> str:
    """A figure in the unit of its quantity."""
    if value is None:
        return units.DASH
    known = QUANTITIES.get(quantity)
    if known is not None and known.text is not None:
        return known.text(value)
    match unit_of(quantity):
        case "s":
            return units.seconds(value)
        case "days":
            return days_text(value)
        case "bytes":
            return units.size(int(value))
    return units.count(value)


def unit_of(quantity: str) -> str:
    """`s`, `days`, `bytes`, or nothing of a number; names end with their unit."""
    words = quantity.split("_")
    return next((unit for word, unit in _UNITS.items() if word in words), "")


_UNITS: Final = {"seconds": "s", "days": "days", "bytes": "bytes"}


def figures_of(system: System, ledger: Ledger, run: Run) -> dict[str, int | float | None]:
    """Quantity -> its value, of those that the run has."""
    one = Counted(ledger, system.scores(ledger, run))
    found = {name: quantity.of(one) for name, quantity in QUANTITIES.items()}
    return {name: value for name, value in found.items() if value is not UNSET}
