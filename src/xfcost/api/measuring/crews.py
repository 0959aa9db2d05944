"""Who runs the rows of a sweep: one after another, or several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from xfcost.api.measuring.jobs import DescribedDevice
from xfcost.ledger.measurements import Configuration, RowOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xfcost.api.measuring.processes import Processes


class TimingGate:
    """Rows are prepared side by side, and timed alone.

    A row that is prepared goes before those that are not: so the next ones are prepared together too.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._preparing = 0
        self._prepared = 0
        self._timing = False

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """While no row is timed or waits for that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timing and not self._prepared)
            self._preparing += 1
        try:
            yield
        finally:
            with self._changed:
                self._preparing -= 1
                self._changed.notify_all()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Alone."""
        with self._changed:
            self._prepared += 1
            self._changed.wait_for(lambda: not self._timing and not self._preparing)
            self._prepared -= 1
            self._timing = True
        try:
            yield
        finally:
            with self._changed:
                self._timing = False
                self._changed.notify_all()


class Turn:
    """One row's way through the gate."""

    def __init__(self, gate: TimingGate, clock: Callable[[], float]) -> None:
        self._gate, self._clock = gate, clock
        self.waited = 0.0
        """Seconds before the gate."""

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """The process starts, counts, and predicts its memory."""
        with self._after(self._gate.preparing()):
            yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """The process measures."""
        with self._after(self._gate.timing()):
            yield

    @contextmanager
    def _after(self, opening: AbstractContextManager[None]) -> Iterator[None]:
        started = self._clock()
        with opening:
            self.waited += self._clock() - started
            yield


class RanRow(NamedTuple):
    """What became of a configuration, and where."""

    outcome: RowOutcome
    described: DescribedDevice | None = None
    """None: the machine and the device of the command."""
    seconds: float | None = None
    """Of its process; None: as long as the call took."""


Runner = Callable[[Configuration], RanRow]


class Crew(Protocol):
    """Calls a function of every number, in their order."""

    @property
    def together(self) -> int:
        """So many rows are timed at once."""

    def __call__(self, numbers: Sequence[int], work: Callable[[int], None]) -> None:
        """Return when all are done; the first error ends it."""


class OneByOne:
    """Each row after the one before."""

    together: Final[int] = 1

    def __call__(self, numbers: Sequence[int], work: Callable[[int], None]) -> None:
        for number in numbers:
            work(number)


ONE_BY_ONE: Final = OneByOne()


class SideBySide:
    """As many rows at once as there are threads."""

    def __init__(self, threads: int, together: int) -> None:
        self._threads = threads
        self.together: Final = together

    def __call__(self, numbers: Sequence[int], work: Callable[[int], None]) -> None:
        from joblib import Parallel, delayed

        jobs = Parallel(n_jobs=self._threads, backend="threading", batch_size=1, pre_dispatch="n_jobs")
        jobs(delayed(work)(number) for number in numbers)


class LocalRows:
    """Runs each configuration in a process of its own, several being prepared at once and one being timed."""

    def __init__(self, processes: Callable[[], Processes], clock: Callable[[], float]) -> None:
        self._make, self._clock, self._gate = processes, clock, TimingGate()
        self._running: set[Processes] = set()
        self._changing = threading.Lock()

    def __call__(self, configuration: Configuration) -> RanRow:
        started, turn = self._clock(), Turn(self._gate, self._clock)
        with self._one() as processes:
            outcome = processes(configuration, turn=turn)
        return RanRow(outcome, seconds=self._clock() - started - turn.waited)

    def kill(self) -> None:
        """End the processes that run."""
        with self._changing:
            running = list(self._running)
        for processes in running:
            processes.kill()

    @contextmanager
    def _one(self) -> Iterator[Processes]:
        processes = self._make()
        with self._changing:
            self._running.add(processes)
        try:
            yield processes
        finally:
            with self._changing:
                self._running.discard(processes)
