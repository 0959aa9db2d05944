"""The rows of a file of measurements (`xfcost measure --save runs.jsonl`): what was run, where, and what it took.

A file is JSON Lines: a header, then a row per configuration. Counts are ints, seconds and bytes are SI. Rows that were
changed by hand, or broken, and that no measurement gives, are not to be reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from xfcost.ledger.errors import printable, shown
from xfcost.ledger.grid import MOST_TOKENS
from xfcost.ledger.metadata import Timing
from xfcost.ledger.roofline import RooflinePoint

# Raised where rows of an older version can no longer be read as they are.
VERSION: Final = 1
FORMAT: Final = "measurements"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a row. Rows of another one are of another machine, whatever its device."""

    host: str
    processor: str
    cores: int
    """Physical cores."""

    def __str__(self) -> str:
        return f"{self.host} ({self.processor}, {self.cores} cores)"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the file."""

    tool: str = "xfcost"
    format: str = FORMAT
    version: int = VERSION
    machine: Machine
    """The machine of the first rows."""
    versions: dict[str, str]
    started: str
    """UTC, as in ISO 8601."""


class OfModule(msgspec.Struct, frozen=True, kw_only=True):
    """How a torch module is made and called."""

    inputs: tuple[str, ...] = ()
    """The texts after `--input`."""
    build: tuple[str, ...] = ()
    """The texts after `--build`."""
    mixing: bool = False
    """Are the mixing kinds of its operations looked for?"""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What a row measures: a system, its input and its run."""

    system: str
    """Its name in reports; distinct within a command."""
    target: str
    """The preset or the file, as given."""
    settings: tuple[str, ...] = ()
    """The `--set` options."""
    spec_hash: str
    """Of the expanded spec, without name and texts: equal specs have equal ones.

    Of a torch module of its code, and of the names, shapes and dtypes of its weights.
    """
    N: int
    """Tokens of the first stage; 0 of a module's image, whose tokens are not known."""
    size: tuple[int, int] | None = None
    """The image's height and width, if these were given instead of N."""
    batch: int = 1
    dtype: str = "float32"
    attention: str = "eager"
    mode: str = "forward"
    run_options: dict[str, Any] = {}
    """Further options of its mode: new_tokens, logits, optimizer."""
    device: str
    threads: int
    """torch's threads on the CPU."""
    compiled: bool = False
    composed: bool = False
    """Was every distinct block run once, and the whole composed of them?"""
    module: OfModule | msgspec.UnsetType = msgspec.UNSET
    """Only for a torch module."""

    @property
    def is_module(self) -> bool:
        """Is it a torch module, and no spec?"""
        return self.module is not msgspec.UNSET

    @property
    def extent(self) -> int:
        """What orders the sizes of one system: N, or pixels."""
        return self.N or (math.prod(self.size) if self.size else 0)


# Options of one mode or two: the others do without.
OF_MODES: Final = {"new_tokens": ("generate",), "logits": ("prefill", "generate"), "optimizer": ("train",)}

# Fields of a configuration that do not change what runs.
_NAMES: Final = ("target", "settings")


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Costs in closed form, of what is timed."""

    params: int
    macs: int
    """Of all passes: of a generation the prefill and its steps, of a training step the backward pass too."""
    flops: int | None = None
    """None of a training step, whose element-wise work is not counted backwards."""
    attention_entries: int
    attention_bytes: int
    """Attention matrices alive at once; in a training step those that it saves."""
    by_mixing: dict[str, dict[str, int]]
    """Mixing kind -> params, macs, flops, attention_entries of one forward pass (of a generation, all passes).

    {} of a torch module whose kinds were not looked for.
    """

    @property
    def costs(self) -> tuple[int | None, ...]:
        """The totals."""
        return self.params, self.macs, self.flops, self.attention_entries


class MeasuredMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory while the model is built and run."""

    predicted: int | None = None
    """Of live tensors."""
    measured: int | None = None
    """The growth of the process on the CPU, torch's allocator on CUDA; None where the system has no figure."""


class RowOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a configuration in its process."""

    status: Literal["measured", "skipped", "failed", "timed out"]
    reason: str | None = None
    """Why it was not measured."""
    needed_bytes: int | None = None
    """Of a skipped one that does not fit: the bytes that it would need, and those that a limit leaves."""
    left_bytes: int | None = None
    timing: Timing | None = None
    predicted_seconds: float | None = None
    """From the machine's calibration, with `--check`."""
    pace: float | None = None
    """Seconds of a reference product after the row over those at the calibration, with `--check`."""
    seconds_by_mixing: dict[str, float] | None = None
    """Mixing kind -> seconds of its rows in all blocks; None where no rows were timed."""
    memory: MeasuredMemory | None = None
    points: tuple[RooflinePoint, ...] | None = None
    """Its operations on a roofline; None of more than one pass, and in files that older versions wrote."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the file."""

    configuration: Configuration
    outcome: RowOutcome
    counted: Counted
    machine: Machine
    device_name: str
    """The processor or the GPU that ran it."""
    versions: dict[str, str]
    """Of xfcost, torch and Python."""
    process_seconds: float
    """From the start of the process to its end."""
    ended: str
    """UTC, as in ISO 8601."""

    @property
    def predicted_seconds(self) -> float | None:
        """From the machine's calibration; None without a prediction."""
        return self.outcome.predicted_seconds

    @property
    def key(self) -> bytes:
        """Equal for rows that measure the same on the same machine; of these the last one counts."""
        return key_of(self.configuration, self.machine, self.device_name)

    @property
    def attention_share(self) -> float | None:
        """The share of attention matrices in the predicted peak: both are of one account.

        A process that has free memory to begin with grows by less than it uses, and so by less than its matrices.
        """
        memory = self.outcome.memory
        if memory is None or not memory.predicted:
            return None
        return self.counted.attention_bytes / memory.predicted


def key_of(configuration: Configuration, machine: Machine | None, device_name: str | None) -> bytes:
    """The key of a row before it is measured; without machine and device, of a row of whichever."""
    run = msgspec.to_builtins(configuration)
    for name in _NAMES:
        del run[name]
    run.get("module", {}).pop("mixing", None)
    return msgspec.json.encode([run, machine, device_name], order="sorted")


def latest(rows: list[Measurement]) -> list[Measurement]:
    """Of the rows with the same key the last one, in the place of the first."""
    return list({row.key: row for row in rows}.values())


# No clock reads less, and no run lasts longer: ratios of such times are still numbers.
_SHORTEST: Final = 1e-12
_LONGEST: Final = 1e12
# What no spec's name has; anything else is made visible where it is written.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Counts and bytes above this are no floats in a chart.
_LARGEST: Final = 10**100


def fault_of(row: Measurement) -> str | None:
    """What is impossible in a row; None of a possible one."""
    return next(_faults(row), None)


def _faults(row: Measurement) -> Iterator[str]:
    outcome = row.outcome
    yield from _faults_of_configuration(row.configuration)
    yield from _faults_of_words(row)
    if outcome.timing is not None:
        yield from faults_of_timing(outcome.timing)
    elif outcome.status == "measured":
        yield "it is measured, and has no timing"
    for kind, seconds in (outcome.seconds_by_mixing or {}).items():
        if not 0 <= seconds < _LONGEST:
            yield f"its time of {printable(kind)} is {seconds} s"
    for point in outcome.points or ():
        if not (0 < point.seconds < _LONGEST and 0 <= point.flops < _LARGEST and 0 < point.operand_bytes < _LARGEST):
            yield (
                f"its operation {printable(point.title)} takes {point.seconds} s for {shown(point.flops)} FLOP and "
                f"{shown(point.operand_bytes)} bytes"
            )
    predicted = None if outcome.memory is None else outcome.memory.predicted
    if predicted is not None and not 0 <= predicted < _LARGEST:
        yield f"its predicted peak memory is {shown(predicted)} bytes"
    yield from _faults_of_counts(msgspec.structs.asdict(row.counted))
    for kind, counts in row.counted.by_mixing.items():
        yield from _faults_of_counts({f"{name} of {printable(kind)}": count for name, count in counts.items()})


def _faults_of_configuration(configuration: Configuration) -> Iterator[str]:
    sides = configuration.size or ()
    on_image = configuration.is_module and bool(sides) and not configuration.N  # whose tokens are not known
    tokens = [] if on_image else [("N", configuration.N)]
    for name, number in [*tokens, *(("size", side) for side in sides)]:
        if not 1 <= number <= MOST_TOKENS:
            yield f"its {name} is {shown(number)}; expected 1 to {MOST_TOKENS:,}"
    for name, number in (("batch", configuration.batch), ("number of threads", configuration.threads)):
        if not 1 <= number <= MOST_TOKENS:
            yield f"its {name} is {shown(number)}; expected at least 1"
    for option in configuration.run_options:
        if option not in OF_MODES:
            yield f"its run has an unknown option, {printable(option)}"


def _faults_of_words(row: Measurement) -> Iterator[str]:
    """A terminal would obey what can't be printed."""
    configuration, machine = row.configuration, row.machine
    words = {"the name of its system": configuration.system, "the name of its device": row.device_name}
    words |= {"its machine": machine.host, "its processor": machine.processor}
    words |= {f"its {name}": getattr(configuration, name) for name in ("dtype", "attention", "mode", "device")}
    for name, word in words.items():
        if _CONTROL.search(word):
            yield f"{name} can't be printed: {printable(word)}"


def _faults_of_counts(counts: Mapping[str, object]) -> Iterator[str]:
    for name, count in counts.items():
        if isinstance(count, int) and not 0 <= count < _LARGEST:
            yield f"its {name} are {shown(count)}"


def faults_of_timing(timing: Timing) -> Iterator[str]:
    """What is impossible in measured seconds."""
    yield from faults_of_seconds((timing.seconds, *timing.times, *(timing.interval or ())))
    if (roofs := timing.roofs) is not None:
        for rate in (roofs.flops_per_second, roofs.bytes_per_second):
            if not 0 < rate < _LARGEST:
                yield f"a roof of its machine is {rate} a second"
    if timing.interval is not None and not timing.interval[0] <= timing.seconds <= timing.interval[1]:
        low, high = timing.interval
        yield f"its interval is {low} s to {high} s; expected to hold its time, {timing.seconds} s"


def faults_of_seconds(every: Iterable[float]) -> Iterator[str]:
    """Seconds that no run takes."""
    for seconds in every:
        if not _SHORTEST < seconds < _LONGEST:
            yield f"its time is {seconds} s; expected more than {_SHORTEST:g} and less than {_LONGEST:g}"
