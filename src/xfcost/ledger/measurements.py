"""The rows of a file of measurements (`xfcost measure --save runs.jsonl`): what was run, where, and what it took.

A file is JSON Lines: a header, then a row per configuration. Counts are ints, seconds and bytes are SI. Rows that were
changed by hand, or broken, and that no measurement gives, are not to be reported.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

import msgspec

from xfcost.ledger.errors import printable
from xfcost.ledger.grid import MOST_TOKENS
from xfcost.ledger.metadata import Timing
from xfcost.ledger.roofline import RooflinePoint
from xfcost.ledger.units import Count, Spent

# Raised where rows of an older version can no longer be read as they are.
VERSION: Final = 1
FORMAT: Final = "measurements"

# What can be printed: a terminal would obey other letters.
Words = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z")]
Length = Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a row. Rows of another one are of another machine, whatever its device."""

    host: Words
    processor: Words
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


# Options of one mode or two: the others do without.
OF_MODES: Final = {
    "new_tokens": ("generate",), "logits": ("prefill", "generate"), "optimizer": ("train",), "checkpoint": ("train",),
}  # fmt: skip


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What a row measures: a system, its input and its run."""

    system: Words
    """Its name in reports; distinct within a command."""
    target: str
    """The preset or the file, as given."""
    settings: tuple[str, ...] = ()
    """The `--set` options."""
    spec_hash: str
    """Of the expanded spec, without name and texts: equal specs have equal ones.

    Of a torch module of its code, and of the names, shapes and dtypes of its weights.
    """
    N: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
    """Tokens of the first stage; 0 of a module's image, whose tokens are not known."""
    size: tuple[Length, Length] | None = None
    """The image's height and width, if these were given instead of N."""
    batch: Length = 1
    dtype: Words = "float32"
    attention: Words = "eager"
    mode: Words = "forward"
    run_options: dict[str, Any] = {}
    """Further options of its mode: new_tokens, logits, optimizer, checkpoint (`--recompute`)."""
    device: Words
    threads: Length
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


# Fields of a configuration that do not change what runs.
_NAMES: Final = ("target", "settings")


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Costs in closed form, of what is timed."""

    params: Count
    macs: Count
    """Of all passes: of a generation the prefill and its steps, of a training step the backward pass too."""
    flops: Count | None = None
    """None of a training step, whose element-wise work is not counted backwards."""
    attention_entries: Count
    attention_bytes: Count
    """Attention matrices alive at once; in a training step those that it saves."""
    by_mixing: dict[str, dict[str, Count]]
    """Mixing kind -> params, macs, flops, attention_entries of one forward pass (of a generation, all passes).

    {} of a torch module whose kinds were not looked for.
    """

    @property
    def costs(self) -> tuple[int | None, ...]:
        """The totals."""
        return self.params, self.macs, self.flops, self.attention_entries


class MeasuredMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory while the model is built and run."""

    predicted: Count | None = None
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
    seconds_by_mixing: dict[str, Spent] | None = None
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
    device_name: Words
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


def fault_of(row: Measurement) -> str | None:
    """What is impossible in a row, and its types allow; None of a possible one."""
    configuration, outcome = row.configuration, row.outcome
    if not configuration.N and not (configuration.is_module and configuration.size):  # of an image none may be known
        return "its N is 0"
    if unknown := configuration.run_options.keys() - OF_MODES.keys():
        return f"its run has an unknown option, {printable(min(unknown))}"
    if outcome.timing is None and outcome.status == "measured":
        return "it is measured, and has no timing"
    return fault_of_timing(outcome.timing)


def fault_of_timing(timing: Timing | None) -> str | None:
    """What is impossible in measured seconds; None where nothing is."""
    if timing is None or timing.interval is None or timing.interval[0] <= timing.seconds <= timing.interval[1]:
        return None
    low, high = timing.interval
    return f"its interval is {low} s to {high} s; expected to hold its time, {timing.seconds} s"
