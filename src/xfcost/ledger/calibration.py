"""A calibration: what a device was measured to do, for predicting seconds without a run. One file per device and dtype.

Times are in seconds, rates per second.
"""

from __future__ import annotations

import gzip
import os
import re
from importlib.resources import files
from math import log
from pathlib import Path
from typing import Annotated, Final

import msgspec

from xfcost.ledger import notebook, units
from xfcost.ledger.errors import OutputError, UsageError, printable
from xfcost.ledger.files import Expected, read_bytes, write_whole
from xfcost.ledger.units import Rate, Seconds, Spent, number_of

FORMAT: Final = "xfcost calibration"
VERSION: Final = 4
_THIS: Final = (FORMAT, VERSION)
_SHIPPED: Final = files("xfcost") / "recorded_calls"
_NONE: Final = "no calibration of xfcost"
EXPECTED_CALIBRATION: Final = Expected(
    what="a calibration of xfcost",
    missing="`xfcost calibrate` measures one",
    large="a calibration is a few megabytes",
    most_bytes=64_000_000,
)

# The calls of a network take its whole time but for what it spends outside them: a quarter of it at most.
_FAR_APART: Final = 0.3
# The same product takes this share longer or shorter: the machine runs at another pace.
_OTHER_PACE: Final = 0.08

_Logarithm = Annotated[float, msgspec.Meta(gt=-128, lt=128)]


class CalibratedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """Where a calibration holds."""

    device: str
    name: str
    """Of the processor or the GPU."""
    threads: int
    dtype: str
    torch: str
    """Its version."""


class DeviceCache(msgspec.Struct, frozen=True, kw_only=True):
    """The cache that all multiprocessors of a GPU share."""

    held_bytes: Rate
    bytes_per_second: Rate


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A device as three numbers, and of a GPU its cache and its multiprocessors."""

    call_seconds: Seconds
    """Seconds of the shortest call."""
    macs_per_second: Rate
    """Of its largest matrix products."""
    bytes_per_second: Rate
    """Of element-wise additions larger than its caches: reads and writes."""
    cache: DeviceCache | None = None
    """Of a GPU, whose calls are seconds of kernels."""
    multiprocessors: int = 1


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a forward, or of a training step, that no operation spends: fitted to whole networks."""

    call: Spent
    """Per ATen call."""
    view: Spent
    """Per call that only makes another view of a tensor."""
    module: Spent
    """Per call of an `nn.Module`."""

    def seconds(self, *, calls: int = 0, views: int = 0, modules: int = 0) -> float:
        """All of it for so many of each."""
        return self.call * calls + self.view * views + self.module * modules


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """The measured calls of one kind."""

    operation: str
    variant: str
    numbers: tuple[tuple[_Logarithm, ...], ...]
    """Of each call, logarithms (base 2) of its sizes."""
    ratios: tuple[_Logarithm, ...]
    """Of each call, the logarithm of its seconds over the baseline's."""

    def __post_init__(self) -> None:
        """Each call has a ratio, and as many numbers as the others.

        Raises:
            ValueError: it has not, or there is no call.
        """
        if len(self.numbers) != len(self.ratios) or len({len(each) for each in self.numbers}) != 1:
            raise ValueError(f"{self.operation}: numbers and ratios of measured calls don't fit together")


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """A network that was run whole: its seconds, and those that the other networks' calls predict for it."""

    name: str
    seconds: Seconds
    predicted: Seconds
    calls: Spent | None = None
    """Seconds of its calls, each measured alone in the middle of it."""
    pace: Spent = 0.0
    """Seconds of the reference product (`Calibration.pace`) at that time."""

    @property
    def disturbed(self) -> bool:
        """Did something slow the machine down while it was measured?"""
        return self.calls is not None and disturbed(self.calls, self.seconds)


class TrainingSteps(msgspec.Struct, frozen=True, kw_only=True):
    """What training steps on the device were measured to do."""

    overhead: Overhead
    networks: tuple[Network, ...]
    samples: tuple[Samples, ...]


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """A device, measured."""

    format: str = FORMAT
    version: int = VERSION
    machine: CalibratedMachine
    measured: str
    """The time (UTC, ISO 8601)."""
    baseline: Baseline
    overhead: Overhead
    networks: tuple[Network, ...]
    samples: tuple[Samples, ...]
    pace: Spent = 0.0
    """Seconds of a product that all threads share: how fast the machine ran. 0 where it was not measured."""

    training: TrainingSteps | None = None
    """None of a calibration that ran no training steps."""

    def __repr__(self) -> str:
        where = f"{self.machine.device}, {self.machine.dtype}, {number_of(self.machine.threads, 'thread')}"
        return notebook.line(self, f"{where}: {number_of(len(self.every_network), 'network')}")

    @property
    def by_kernels(self) -> bool:
        """Are the seconds of calls those of a GPU's kernels, and the overhead those of its host?"""
        return self.baseline.cache is not None

    @property
    def every_network(self) -> tuple[Network, ...]:
        """Of forwards and of training steps."""
        return (*self.networks, *(self.training.networks if self.training else ()))

    @property
    def off_pace(self) -> int:
        """The number of networks that were measured while the machine ran faster or slower than for most."""
        return sum(not same_pace(one.pace, self.pace) for one in self.every_network)


def same_pace(one: float, other: float) -> bool:
    """Is a machine as fast now as it was? Both are seconds of the same product, 0 where it was not measured."""
    return not (one > 0 and other > 0) or abs(log(one / other)) <= _OTHER_PACE


class _DispatchKind(msgspec.Struct, frozen=True):
    """The part of a file that any version has."""

    format: str = ""
    version: int = 0


def disagreement(calls: float, whole: float) -> float:
    """How far the seconds of a network's calls are from those of the whole, as a logarithm."""
    return abs(log(calls / whole)) if calls > 0 and whole > 0 else 0.0


def disturbed(calls: float, whole: float) -> bool:
    """Whole and calls are measured one after the other: what slows one of them down makes them differ."""
    return disagreement(calls, whole) > _FAR_APART


def folder() -> Path:
    """Where calibrations are kept: the system's folder for a program's settings."""
    from typer import get_app_dir

    return Path(get_app_dir("xfcost"))


def path_of(device: str, threads: int, dtype: str) -> Path:
    """The file of a calibration: `calibration-cpu-2-threads-float32.json`."""
    return folder() / f"calibration-{re.sub(r'[^a-z0-9]', '-', device)}-{threads}-threads-{dtype}.json"


def read_calibration(path: Path, machine: CalibratedMachine) -> Calibration:
    """The calibration in a file, if it is of `machine`.

    Raises:
        UsageError: there is none, it is no calibration of this version, it is another machine's, or of a GPU by a
            clock. Its message begins with the machine or the file.
    """
    mend = f"measure this one: {_command(machine)}"
    if not os.path.exists(path):
        raise UsageError(
            f"{machine.name} ({units.number_of(machine.threads, 'thread')}, {machine.dtype}) is not calibrated; {mend}"
        )
    content = read_bytes(path, printable(str(path), 200), EXPECTED_CALIBRATION)
    try:
        kind = msgspec.json.decode(content, type=_DispatchKind)
        found = msgspec.json.decode(content, type=Calibration) if (kind.format, kind.version) == _THIS else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UsageError(f"{printable(str(path), 200)} is {_NONE}; {mend}") from None
    if found is None:
        word = f"a calibration of version {kind.version}, expected {VERSION}" if kind.format == FORMAT else _NONE
        raise UsageError(f"{printable(str(path), 200)} is {word}; {mend}")
    if found.machine != machine:
        raise UsageError(
            f"{printable(str(path), 200)} was measured on {_words(found.machine)}, and this is "
            f"{_words(machine)}; {mend}"
        )
    if machine.device.startswith("cuda") and not found.by_kernels:
        raise UsageError(f"{printable(str(path), 200)} has no seconds of kernels; {mend}")
    return found


def shipped_devices() -> tuple[str, ...]:
    """The GPUs whose recorded calls are a part of the package."""
    names = (one.name for one in _SHIPPED.iterdir() if one.name.endswith(".json.gz"))
    return tuple(sorted({name.rpartition("-")[0] for name in names}))


def shipped_calibration(device: str, dtype: str) -> Calibration:
    """The calls of one of them that were recorded for a dtype.

    Raises:
        UsageError: none were.
    """
    file = _SHIPPED / f"{device}-{dtype}.json.gz"
    if not file.is_file():
        there = " and ".join(
            one.name.removeprefix(f"{device}-").removesuffix(".json.gz")
            for one in sorted(_SHIPPED.iterdir(), key=lambda one: one.name) if one.name.startswith(f"{device}-")
        )  # fmt: skip
        raise UsageError(f"calls on {device} were recorded in {there}, not in {dtype}; give --dtype one of those")
    return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=Calibration)


def training_steps(calibration: Calibration) -> TrainingSteps:
    """What a calibration knows of training steps.

    Raises:
        UsageError: nothing.
    """
    if calibration.training is None:
        raise UsageError(
            "--mode train: seconds are predicted from a calibration with training steps, and this machine's has none; "
            f"measure it again: {_command(calibration.machine)}"
        )
    return calibration.training


def write_calibration(path: Path, calibration: Calibration | None) -> None:
    """Write the file whole, or not at all; None before one is measured, to refuse a place where none can be kept.

    Raises:
        OutputError: the folder can't be written.
    """
    try:
        if calibration is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{os.getpid()}")
            part.touch()
            part.unlink()
        else:
            write_whole(path, msgspec.json.format(msgspec.json.encode(calibration), indent=1))
    except OSError as error:
        raise OutputError(f"{printable(str(path), 200)} can't be written: {error.strerror or error}") from None


def _command(machine: CalibratedMachine) -> str:
    dtype = f" --dtype {machine.dtype}" if machine.dtype != "float32" else ""
    threads = f" --threads {machine.threads}" if machine.device == "cpu" else ""
    return f"xfcost calibrate --device {machine.device}{dtype}{threads}"


def _words(machine: CalibratedMachine) -> str:
    return f"{machine.name}, {units.number_of(machine.threads, 'thread')}, {machine.dtype}, torch {machine.torch}"
