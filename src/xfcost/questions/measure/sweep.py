"""The sweep: every configuration that the file does not have yet is run, and its row appended at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from statistics import fmean, linear_regression
from typing import Final

import msgspec

from xfcost.api.measuring.plan import PlannedRow
from xfcost.api.measuring.process import DescribedDevice, RanRow
from xfcost.ledger import units
from xfcost.ledger.errors import OutputError, UsageError
from xfcost.ledger.measurements import Configuration, Machine, Measurement, RowOutcome, key_of
from xfcost.ledger.runs_file import RunsFile
from xfcost.questions.measure.progress import SweepLines
from xfcost.views.measurements import size_text

# Below so many rows the time left is their mean; from there on it grows with the MACs.
_FEW: Final = 3

# Runs rows, each when it takes the next one -> those that have run, in any order.
Runner = Callable[[Iterable[PlannedRow]], Iterable[tuple[PlannedRow, RanRow]]]


def utc_now() -> str:
    """`2025-01-31T12:00:00Z`."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_machine(file: RunsFile, machine: Machine, *, any_machine: bool) -> None:
    """Refuse to add rows of this machine to those of another, unless that is asked for.

    Raises:
        UsageError: the file has rows of another machine.
    """
    others = [one for one in file.machines if one != machine]
    if others and not any_machine:
        raise UsageError(
            f"--save {file.path}: its rows are of another machine, {others[0]}; this is {machine}. Take another file, "
            "or --any-machine to add rows of this one beside them"
        )


def differing_versions(file: RunsFile, versions: dict[str, str]) -> list[str]:
    """`torch 2.6.0 (now 2.7.1)` for every version with which rows of the file were measured, and which is another."""
    texts = {
        f"{name} {row.versions[name]} (now {version})": None
        for row in file.rows
        for name, version in versions.items()
        if row.versions.get(name, version) != version
    }
    return list(texts)


class RowSweep:
    """One command's rows: all of one machine, or, without `described`, each of whichever machine runs it."""

    def __init__(
        self, planned: Sequence[PlannedRow], described: DescribedDevice | None, file: RunsFile,
        now: Callable[[], str] = utc_now,
    ) -> None:  # fmt: skip
        self._described, self._file, self._now = described, file, now
        self._any_threads = any(not one.configuration.threads for one in planned)
        where = (described.machine, described.device_name) if described else (None, None)
        self._planned = {self._key(one.configuration, *where): one for one in planned}
        self._known = {self._key_of_row(row): row for row in file.rows}
        self._spent: list[tuple[int, float]] = []
        for key, one in self._planned.items():
            row, configuration = self._known.get(key), one.configuration
            if row is None or not configuration.is_module or row.counted.costs == one.counted.costs:
                continue
            raise UsageError(
                f"--save {self._file.path}: has a row of {configuration.system} at {size_text(configuration)} with "
                f"{row.counted.macs:,} MACs and {row.counted.params:,} parameters, and now it has "
                f"{one.counted.macs:,} and {one.counted.params:,}: code that it imports has changed; take another file"
            )

    @property
    def rows(self) -> list[Measurement]:
        """The rows of the command that the file has, in the order of the plan."""
        return [self._known[key] for key in self._planned if key in self._known]

    def run(self, runner: Runner, progress: SweepLines, *, retry: bool = False, machines: int = 1) -> None:
        """Measure what the file has no row of, on so many machines; with `retry` also what was not measured before.

        Raises:
            OutputError: a row can't be written.
            DeviceError: the device is no longer there.
        """
        planned = list(self._planned.values())
        done = {key for key, row in self._known.items() if row.outcome.status == "measured" or not retry}
        left = [one for key, one in self._planned.items() if key not in done]
        progress.started(len(planned), len(planned) - len(left))

        def keep(one: PlannedRow, ran: RanRow) -> None:
            row = self._row(one, ran)
            self._append(row)
            left.remove(one)
            self._spent.append((one.counted.macs, row.process_seconds))
            progress.measured(planned.index(one) + 1, row)

        def begun() -> Iterator[PlannedRow]:
            for one in tuple(left):
                seconds = self._seconds_left(left)
                progress.running(planned.index(one) + 1, one.configuration, seconds and seconds / machines)
                if skipped := self._skipped(one.configuration):
                    keep(one, skipped)
                else:
                    yield one

        for one, ran in runner(begun()):
            keep(one, ran)

    def _row(self, planned: PlannedRow, ran: RanRow) -> Measurement:
        described, configuration = ran.described, planned.configuration
        if not configuration.threads:
            configuration = msgspec.structs.replace(configuration, threads=described.threads)
        return Measurement(
            configuration=configuration,
            outcome=ran.outcome,
            counted=planned.counted,
            machine=described.machine,
            device_name=described.device_name,
            versions=described.versions,
            process_seconds=ran.seconds,
            ended=self._now(),
        )

    def _skipped(self, configuration: Configuration) -> RanRow | None:
        """Where the same run of the same system timed out at a smaller N (on this machine)."""
        machine = self._described.machine if self._described else None
        for row in self._known.values():
            other = row.configuration
            at_this = msgspec.structs.replace(other, N=configuration.N, size=configuration.size)
            larger = row.outcome.status == "timed out" and other.extent < configuration.extent
            if larger and self._key(at_this, row.machine, None) == self._key(configuration, machine, None):
                outcome = RowOutcome(status="skipped", reason=f"at {size_text(other)} it timed out")
                there = DescribedDevice(
                    machine=row.machine, device_name=row.device_name, threads=other.threads, versions=row.versions
                )
                return RanRow(outcome, self._described or there)
        return None

    def _key(self, configuration: Configuration, machine: Machine | None, device_name: str | None) -> bytes:
        """Equal for configurations that are measured once."""
        if self._described is not None:
            threads = configuration.threads or self._described.threads
            return key_of(msgspec.structs.replace(configuration, threads=threads), machine, device_name)
        if self._any_threads:
            configuration = msgspec.structs.replace(configuration, threads=0)
        return key_of(configuration, None, None)

    def _key_of_row(self, row: Measurement) -> bytes:
        return self._key(row.configuration, row.machine, row.device_name)

    def _append(self, row: Measurement) -> None:
        try:
            self._file.append(row)
            self._known[self._key_of_row(row)] = row
        except OutputError as error:
            text = msgspec.json.encode(row).decode()
            kept = f"{units.number_of(len(self.rows), 'row')} {'is' if len(self.rows) == 1 else 'are'} in it"
            raise OutputError(
                f"{error}; {kept}; run the same command again to continue. The last measured row:\n{text}"
            ) from None

    def _seconds_left(self, rows: Iterable[PlannedRow]) -> float | None:
        """Expected seconds of rows, by those measured: a constant part and one that grows with the MACs."""
        if not self._spent:
            return None
        fixed, per_mac = line_through(self._spent)
        return sum(fixed + per_mac * one.counted.macs for one in rows)


def line_through(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Constant and slope, neither negative, of the least-squares line; of few points their mean."""
    xs, ys = zip(*points, strict=True)
    if len(points) < _FEW or len(set(xs)) == 1:
        return fmean(ys), 0.0
    slope = max(linear_regression(xs, ys).slope, 0.0)
    constant = fmean(ys) - slope * fmean(xs)
    return (constant, slope) if constant >= 0 else (0.0, sum(x * y for x, y in points) / sum(x * x for x in xs))
