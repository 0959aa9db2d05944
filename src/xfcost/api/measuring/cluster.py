"""Rows on a Dask cluster: each is a task, and a row whose worker is killed runs on another one, a few times."""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from xfcost import __version__
from xfcost.api.measuring import worker
from xfcost.api.measuring.attempts import Attempts
from xfcost.api.measuring.crews import RanRow
from xfcost.api.measuring.jobs import DescribedDevice
from xfcost.api.measuring.worker import Request, Response
from xfcost.ledger.errors import DeviceError, UsageError, printable
from xfcost.ledger.measurements import Configuration, RowOutcome

if TYPE_CHECKING:
    from distributed import Client, Future

# So long a scheduler may take to answer, and a first worker to be there.
_SECONDS: Final = 5.0
# So long an interrupt waits for the workers.
_LAST_SECONDS: Final = 3.0
# So long a worker may take to be there again after one was killed.
_BACK_SECONDS: Final = 60.0
# So often it is looked whether there still is a worker.
_LOOK_SECONDS: Final = 20.0
# A row that is never begun, since its workers are killed before, is not sent more often.
_MOST_SENT: Final = 25
# Tasks per worker that are sent before the first answers.
_AHEAD: Final = 4

Work = Callable[[str, bytes], bytes]


def _answered(work: Callable[[Any], Any], task: Any) -> Any:
    return work(task)


class KilledError(DeviceError):
    """Every worker that ran a row was killed."""

    def __init__(self, described: DescribedDevice, times: int) -> None:
        counted = "once" if times == 1 else f"{times} times"
        host = described.machine.host
        super().__init__(f"its worker was killed {counted} (out of memory?); the last one was on {host}")
        self.described = described


class Cluster:
    """A scheduler and its workers, all with this version of xfcost."""

    def __init__(self, address: str, seconds: float = _SECONDS) -> None:
        """Connect.

        Raises:
            UsageError: Dask is not installed, nothing answers, there is no worker, or versions differ.
        """
        self.address = address
        self._client = _connected(address, seconds)
        try:
            self.workers = self._checked(seconds)
            self._tries: int = self._client.run_on_scheduler(worker.tries)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the cluster as it is."""
        with suppress(Exception):
            self._client.close(timeout=_LAST_SECONDS)

    def end(self, command: str) -> None:
        """End what the workers run for a command; of a scheduler that is gone no answer is waited for."""

        def tell() -> None:
            with suppress(Exception):
                self._client.run(worker.end, command)

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        telling.join(_LAST_SECONDS)

    def ask(self, request: Request, work: Work = worker.answer) -> Response:
        """The answer of some worker.

        Raises:
            KilledError: each worker that ran the row was killed, and it was begun as often as a task may be.
            DeviceError: no worker can answer, or the scheduler is gone.
        """
        from distributed import CancelledError

        request = msgspec.structs.replace(request, row=uuid.uuid4().hex, tries=self._tries)
        try:
            with closing(Attempts(request.row, self._client)) as attempts:
                return self._answer(request, attempts, work)
        except (CancelledError, OSError, RuntimeError):
            raise DeviceError(f"--scheduler {self.address}: the scheduler is gone") from None

    def _answer(self, request: Request, attempts: Attempts, work: Work) -> Response:
        """The answer of some worker; a row that only waited at workers which were killed is sent again.

        Raises:
            KilledError: the row was begun as often as a task may be.
            DeviceError: the workers are killed before they begin.
        """
        for _ in range(1 if request.configuration is None else _MOST_SENT):
            response = self._response(request, work)
            if response is not None:
                return response
            if (number := attempts.number) >= self._tries:
                raise KilledError(attempts.last(), number)
            self.wait_for_a_worker()
        raise DeviceError(f"--scheduler {self.address}: its workers are killed before they begin what they are sent")

    def _response(self, request: Request, work: Work) -> Response | None:
        """The answer of a worker; None where all that had the request were killed.

        Raises:
            DeviceError: a worker failed or refuses.
        """
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        future = self._client.submit(work, __version__, msgspec.json.encode(request), pure=False)
        self._wait_for(future)
        try:
            response = msgspec.json.decode(future.result(), type=Response)
        except KilledWorker:
            return None
        except CancelledError:
            raise
        except Exception as error:  # whatever a worker raised
            raise DeviceError(f"--scheduler {self.address}: a worker failed: {_text(error)}") from error
        if response.refused is not None:
            raise DeviceError(f"--scheduler {self.address}: a worker refuses: {response.refused}")
        return None if response.killed else response

    def _wait_for(self, future: Future[bytes]) -> None:
        """Until a task is done, while there are workers."""
        from distributed import TimeoutError as LateError  # not Python's own before 3.11

        while not future.done():
            with suppress(LateError):
                future.exception(timeout=_LOOK_SECONDS)
                return
            self.wait_for_a_worker()

    def each(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
        """The answers of `work` to all tasks, as they come; `work` is sent to every worker once.

        Raises:
            DeviceError: a worker failed, or was killed several times, or the scheduler is gone.
        """
        from distributed import as_completed

        there = self._client.scatter(work, broadcast=True, hash=False)
        waiting = iter(tasks)
        first = [
            self._client.submit(_answered, there, task, pure=False) for task in islice(waiting, _AHEAD * self.workers)
        ]
        running = as_completed(first, loop=self._client.loop)
        for future in running:
            try:
                yield future.result()
            except Exception as error:  # whatever a worker raised
                raise DeviceError(f"--scheduler {self.address}: a worker failed: {_text(error)}") from error
            for task in islice(waiting, 1):
                running.add(self._client.submit(_answered, there, task, pure=False))

    def described(self, request: Request, work: Work = worker.answer) -> DescribedDevice:
        """The device of the first worker that answers.

        Raises:
            DeviceError: none answers.
        """
        described = self.ask(request, work).described
        if described is None:
            raise DeviceError(f"--scheduler {self.address}: a worker did not tell its device")
        return described

    def wait_for_a_worker(self) -> None:
        """After one was killed.

        Raises:
            DeviceError: none comes back.
        """
        from distributed import TimeoutError as LateError

        try:
            self._client.wait_for_workers(1, timeout=_BACK_SECONDS)
        except LateError:
            raise DeviceError(f"--scheduler {self.address}: its workers were killed, and none has come back") from None

    def _checked(self, seconds: float) -> int:
        """The number of workers.

        Raises:
            UsageError: there is none, or one has another version or none.
        """
        from distributed import TimeoutError as LateError

        start = f"start one: dask worker {self.address}"
        try:
            self._client.wait_for_workers(1, timeout=seconds)
        except LateError:
            raise UsageError(f"--scheduler {self.address}: it has no workers; {start}") from None
        versions: Mapping[str, Any] = self._client.run(worker.version, on_error="return")
        try:
            scheduler = self._client.run_on_scheduler(worker.version)
        except ImportError as error:
            scheduler = error
        for place, version in {"the scheduler": scheduler, **_named(versions)}.items():
            check_version(self.address, place, version)
        return len(versions)


def _named(versions: Mapping[str, Any]) -> dict[str, Any]:
    return {f"worker {address}": version for address, version in versions.items()}


def check_version(address: str, place: str, version: object) -> None:
    """Refuse a part of the cluster with another xfcost.

    Raises:
        UsageError: its version is another, or it has none.
    """
    if version == __version__:
        return
    has = f"has xfcost {version}" if isinstance(version, str) else f"has no xfcost that answers ({_text(version)})"
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

    async def answer() -> None:
        async with rpc(address) as scheduler:
            await scheduler.identity()

    try:
        socket.create_connection(get_address_host_port(address), timeout=seconds).close()
        LoopRunner().run_sync(answer, callback_timeout=seconds)  # a client's own timeout doesn't bound its handshake
        return Client(address, timeout=seconds, set_as_default=False)
    except Exception as error:  # noqa: BLE001 - what is no scheduler answers anything
        known = isinstance(error, (OSError, ValueError, TypeError))
        why = _text(error) if known else "what answers speaks another protocol"
        if isinstance(error, LateError):
            why = f"nothing within {seconds:g} s"
        raise UsageError(
            f"--scheduler {printable(address, 100)}: no scheduler answers there ({why}); expected its "
            "address, as in tcp://10.0.0.1:8786; start one with `dask scheduler`, and `dask worker ADDRESS` on every "
            "machine"
        ) from None


class ClusterRows:
    """Runs each configuration on whichever worker is free."""

    def __init__(self, cluster: Cluster, asked: Request, specs: Mapping[str, str], work: Work = worker.answer) -> None:
        """`asked` is each row's request but for the row; `specs` are the expanded specs as JSON, by system."""
        self._cluster, self._asked, self._specs, self._work = cluster, asked, specs, work

    def __call__(self, configuration: Configuration) -> RanRow:
        request = msgspec.structs.replace(
            self._asked, configuration=configuration, spec=self._specs.get(configuration.system)
        )
        try:
            response = self._cluster.ask(request, self._work)
        except KilledError as error:
            return RanRow(RowOutcome(status="failed", reason=str(error)), error.described)
        if response.outcome is None:
            raise DeviceError(f"--scheduler {self._cluster.address}: a worker gave no outcome")
        return RanRow(response.outcome, response.described, response.seconds)

    def kill(self) -> None:
        """End the processes that run on the workers."""
        self._cluster.end(self._asked.command)
