"""Rows on a Dask cluster: each is a task for one of its machines, in a process separate from the worker.

A machine gets the next row when it has answered the one before. Dask sends a row whose worker is killed again, as often
as its scheduler allows (`distributed.scheduler.allowed-failures`); the row's process ends with its worker.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost import __version__
from xfcost.api.measuring.processes import DescribedDevice, Executor, RanRow, RowProcesses
from xfcost.ledger.errors import DeviceError, UsageError, XfcostError, printable
from xfcost.ledger.measurements import Configuration, RowOutcome
from xfcost.ledger.runs_file import lock
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.report.messages import say
from xfcost.spec.load import Loaded
from xfcost.spec.targets import module_target

if TYPE_CHECKING:
    from distributed import Client

# So long a scheduler may take to answer, and a first worker to be there.
_SECONDS: Final = 5.0
# So long an interrupt waits for the workers.
_LAST_SECONDS: Final = 3.0
# So long a worker may take to be there again after one was killed.
_BACK_SECONDS: Final = 60.0
# So often it is looked whether there still is a worker.
_LOOK_SECONDS: Final = 5.0
# Tasks of a search per worker that are sent before the first answers.
_AHEAD: Final = 4


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A row that a worker is asked for, or, without a configuration, its device."""

    command: str
    """Of the same command the same text, of another one another."""
    device: str
    timing: TimingPlan
    timeout: float
    configuration: Configuration | None = None
    spec: str | None = None
    """The expanded spec as JSON: its file need not be on the worker's machine."""


# (the command's version, what it asks) -> the row; of a request without a configuration the device
Work = Callable[[str, Request], Any]


# In the process of a worker ───────────────────────────────────────────────────────────────────────────────────────────

# What runs, and for which command; and the commands that have ended.
_RUNNING: Final[dict[RowProcesses, str]] = {}
_ENDED: Final[set[str]] = set()


def version() -> str:
    """Of xfcost on this machine."""
    return __version__


def answer(asking_version: str, request: Request) -> RanRow | DescribedDevice:
    """What became of a row, or the device, as soon as that is free.

    Raises:
        DeviceError: the device can't be used, or the command has ended, or is of another version.
    """
    if asking_version != __version__:
        raise DeviceError(f"it has xfcost {__version__}, and the command is of {asking_version}")
    with device_alone(request.device):
        if request.command in _ENDED:
            raise DeviceError("the command has ended")
        described = _described(request.device)
        if request.configuration is None:
            return described
        threads = request.timing.threads or described.threads
        configuration = msgspec.structs.replace(request.configuration, threads=threads)
        processes = RowProcesses(request.device, request.timing._replace(threads=threads), request.timeout)
        _RUNNING[processes] = request.command
        try:
            return processes(configuration, request.spec)._replace(described=described)
        finally:
            del _RUNNING[processes]


def end(command: str) -> None:
    """A command has ended: so do its processes in this worker, and it starts no others."""
    _ENDED.add(command)
    for processes, of_command in list(_RUNNING.items()):
        if of_command == command:
            processes.kill()


@cache
def _described(device: str) -> DescribedDevice:
    return RowProcesses(device, TimingPlan(), 0.0).described()


@contextmanager
def device_alone(device: str) -> Iterator[None]:
    """While no other worker of this machine, and no other thread of this one, measures on the device."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    name = re.sub(r"\W", "-", f"xfcost-{user}-{device}")
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(Path(tempfile.gettempdir()) / f"{name}.lock", flags, 0o600)
    try:
        lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


# In the process of the command ────────────────────────────────────────────────────────────────────────────────────────


class Cluster:
    """A scheduler and its workers, all with this version of xfcost."""

    def __init__(self, address: str, seconds: float = _SECONDS) -> None:
        """Connect.

        Raises:
            UsageError: Dask is not installed, nothing answers, there is no worker, or versions differ.
        """
        self.address = address
        self.client = _connected(address, seconds)
        try:
            self.workers = self._checked(seconds)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the cluster as it is."""
        with suppress(Exception):
            self.client.close(timeout=_LAST_SECONDS)

    def error(self, text: str) -> DeviceError:
        """What went wrong on it."""
        return DeviceError(f"--scheduler {self.address}: {text}")

    def each(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """The answers of `work` to all tasks, as they come; `work` is sent to every worker once.

        Raises:
            DeviceError: a worker failed, or was killed several times, or the scheduler is gone.
        """
        from distributed import TimeoutError as LateError
        from distributed import wait

        self.await_worker()
        there = self.client.scatter(work, broadcast=True, hash=False)
        sent = (self.client.submit(_called, there, task, pure=False) for task in tasks)
        running = set(islice(sent, _AHEAD * len(self.workers)))
        while running:
            try:
                with self.client.as_current():
                    done, running = wait(running, timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED")
            except LateError:
                self.await_worker()
                continue
            for future in done:
                try:
                    yield future.result()
                except Exception as error:  # whatever a worker raised
                    raise self.error(f"a worker failed: {_text(error)}") from error
                running |= set(islice(sent, 1))

    def await_worker(self) -> None:
        """Wait for a worker where none is left, after a line that says so.

        Raises:
            DeviceError: none comes back.
        """
        from distributed import TimeoutError as LateError  # not Python's own before 3.11

        if not self.client.scheduler_info()["workers"]:
            say(f"--scheduler {self.address}: its workers are gone; waiting {_BACK_SECONDS:g} s for one to be back …")
        try:
            self.client.wait_for_workers(1, timeout=_BACK_SECONDS)
        except LateError:
            raise self.error("its workers were killed, and none has come back") from None

    def _checked(self, seconds: float) -> list[str]:
        """The addresses of the workers.

        Raises:
            UsageError: there is none, or one has another version or none.
        """
        from distributed import TimeoutError as LateError

        start = f"start one: dask worker {self.address}"
        try:
            self.client.wait_for_workers(1, timeout=seconds)
        except LateError:
            raise UsageError(f"--scheduler {self.address}: it has no workers; {start}") from None
        versions: Mapping[str, Any] = self.client.run(version, on_error="return")
        try:
            scheduler = self.client.run_on_scheduler(version)
        except ImportError as error:
            scheduler = error
        for place, found in {
            "the scheduler": scheduler,
            **{f"worker {at}": one for at, one in versions.items()},
        }.items():
            check_version(self.address, place, found)
        return list(versions)


def _called(work: Callable[[Any], Any], task: Any) -> Any:
    return work(task)


def check_version(address: str, place: str, version: object) -> None:
    """Refuse a part of the cluster with another xfcost.

    Raises:
        UsageError: its version is another, or it has none.
    """
    if version == __version__:
        return
    has = f"has xfcost {version}" if isinstance(version, str) else f"has no working xfcost ({_text(version)})"
    raise UsageError(
        f"--scheduler {address}: {place} {has}, and this is xfcost {__version__}; install the same version there"
    )


def _text(error: object) -> str:
    return printable(str(error).strip().partition("\n")[0], 120)


def _connected(address: str, seconds: float) -> Client:
    """A client of the scheduler.

    Raises:
        UsageError: Dask is not installed, or nothing answers at the address.
    """
    try:
        from distributed import Client
        from distributed import TimeoutError as LateError  # not Python's own before 3.11
        from distributed.comm.addressing import get_address_host_port
        from distributed.core import rpc
        from distributed.utils import LoopRunner
    except ImportError as error:
        raise UsageError(f"--scheduler: needs Dask ({_text(error)}); pip install 'xfcost[cluster]'") from None
    for name in logging.root.manager.loggerDict:
        if name.startswith("distributed"):  # this command reports an error once
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    async def identity() -> None:
        async with rpc(address) as scheduler:
            await scheduler.identity()

    try:
        socket.create_connection(get_address_host_port(address), timeout=seconds).close()
        LoopRunner().run_sync(identity, callback_timeout=seconds)  # a client's own timeout doesn't bound its handshake
        return Client(address, timeout=seconds, set_as_default=False)
    except Exception as error:  # noqa: BLE001 - what is no scheduler answers anything
        known = isinstance(error, (OSError, ValueError, TypeError))
        why = _text(error) if known else "the server uses another protocol"
        if isinstance(error, LateError):
            why = f"nothing within {seconds:g} s"
        raise UsageError(
            f"--scheduler {printable(address, 100)}: no scheduler answers there ({why}); expected its "
            "address, as in tcp://10.0.0.1:8786; start one with `dask scheduler`, and `dask worker ADDRESS` on every "
            "machine"
        ) from None


def located(configuration: Configuration) -> Configuration:
    """The same, a module's file with its whole path, as a process in another folder finds it."""
    target = module_target(configuration.target) if configuration.is_module else None
    return configuration if target is None else msgspec.structs.replace(configuration, target=target.absolute)


class ClusterRows:
    """Runs each configuration on a machine that is free; may be called by as many threads as there are machines."""

    def __init__(
        self, cluster: Cluster, device: str, timing: TimingPlan, timeout: float, specs: Mapping[str, str], *,
        work: Work = answer,
    ) -> None:  # fmt: skip
        """Every machine reports its device; `specs` are the expanded specs as JSON, by system.

        Raises:
            DeviceError: a machine has no such device, or does not answer.
        """
        from distributed.comm.addressing import get_address_host

        self._cluster, self._specs, self._work = cluster, specs, work
        self._asked = Request(command=uuid.uuid4().hex, device=device, timing=timing, timeout=timeout)
        hosts = list(dict.fromkeys(map(get_address_host, cluster.workers)))
        with ThreadPoolExecutor(len(hosts)) as pool:
            self.machines = dict(zip(hosts, pool.map(self._machine, hosts), strict=True))
        self._free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for host in self.machines:
            self._free.put(host)

    def _machine(self, host: str) -> DescribedDevice:
        from distributed.scheduler import KilledWorker

        try:
            described: DescribedDevice = self._answer(self._asked, host)
        except KilledWorker:
            raise self._cluster.error(f"a worker on {host} was killed when it was asked for its device") from None
        return described

    def __call__(self, configuration: Configuration) -> RanRow:
        """Measure one configuration.

        Raises:
            DeviceError: no worker can, or the scheduler is gone.
        """
        from distributed.scheduler import KilledWorker

        configuration = located(configuration)
        spec = self._specs.get(configuration.system)
        host = self._free.get()
        try:
            request = msgspec.structs.replace(self._asked, configuration=configuration, spec=spec)
            ran: RanRow = self._answer(request, host)
        except KilledWorker as error:
            last, times = error.last_worker.host, error.allowed_failures + 1
            if last not in self.machines:
                raise self._cluster.error(f"{configuration.system} killed its worker on {last}, which is new") from None
            there = self.machines[last]
            counted = "once" if times == 1 else f"{times} times"
            reason = f"its worker was killed {counted} (out of memory?); the last one was on {there.machine.host}"
            return RanRow(RowOutcome(status="failed", reason=reason), described=there)
        finally:
            self._free.put(host)
        return ran

    def kill(self) -> None:
        """End what the workers run for the command; of a scheduler that is gone no answer is waited for."""

        def tell() -> None:
            with suppress(Exception):
                self._cluster.client.run(end, self._asked.command)

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        telling.join(_LAST_SECONDS)

    def _answer(self, request: Request, host: str) -> Any:
        """The answer of a worker on the machine; of one elsewhere where that has none any more.

        Raises:
            KilledWorker: the workers that had it were killed.
            DeviceError: a worker failed or refuses, none comes back, or the scheduler is gone.
        """
        from distributed import CancelledError
        from distributed import TimeoutError as LateError  # not Python's own before 3.11
        from distributed.scheduler import KilledWorker

        client = self._cluster.client
        try:
            here: dict[str, Any] = {"workers": [host], "allow_other_workers": True}
            future = client.submit(self._work, __version__, request, **here, pure=False)
            while not future.done():
                with suppress(LateError):
                    future.exception(timeout=_LOOK_SECONDS)
                    break
                self._cluster.await_worker()
            failure = future.exception()
        except (CancelledError, OSError, RuntimeError):
            raise self._cluster.error("the scheduler is gone") from None
        if failure is None:
            return future.result()
        if isinstance(failure, KilledWorker):
            raise failure
        if isinstance(failure, CancelledError):
            raise self._cluster.error("the scheduler is gone")
        if isinstance(failure, XfcostError):
            raise self._cluster.error(f"a worker refuses: {failure}")
        raise self._cluster.error(f"a worker failed: {_text(failure)}") from failure


@contextmanager
def cluster_executor(
    address: str, device: str, timing: TimingPlan, timeout: float, specs: Mapping[str, Loaded]
) -> Iterator[Executor]:
    """The machines of a Dask cluster; `specs` are the systems by their names.

    Raises:
        UsageError: there is no such cluster, or it has another xfcost.
        DeviceError: a machine has no such device.
    """
    texts = {name: msgspec.json.encode(one.data).decode() for name, one in specs.items()}
    with closing(Cluster(address)) as cluster:
        rows = ClusterRows(cluster, device, timing, timeout, texts)
        first, number = next(iter(rows.machines.values())), len(rows.machines)
        threads = timing.threads or 0
        yield Executor(rows, rows.kill, first, threads, one_machine=False, at_once=number, timed_at_once=number)
