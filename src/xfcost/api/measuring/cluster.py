"""A Dask cluster: its machines measure rows, one at a time on a device.

Dask sends a row whose worker is killed again, as often as its scheduler allows
(`distributed.scheduler.allowed-failures`); the row's process ends with its worker.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from xfcost import __version__
from xfcost.api.measuring import process
from xfcost.api.measuring.plan import PlannedRow
from xfcost.api.measuring.process import DescribedDevice, RanRow, RowJob
from xfcost.ledger.errors import DeviceError, UsageError, XfcostError, printable
from xfcost.ledger.measurements import RowOutcome
from xfcost.ledger.runs_file import lock

if TYPE_CHECKING:
    from distributed import Client, Future

# So long a scheduler may take to answer, and a first worker to be there.
SECONDS: Final = 5.0
# So long an interrupt waits for the workers.
_LAST_SECONDS: Final = 3.0


# In the process of a worker ───────────────────────────────────────────────────────────────────────────────────────────


def answer(asking_version: str, job: RowJob) -> RanRow | DescribedDevice:
    """What became of a row, or the device, as soon as that is free.

    Raises:
        DeviceError: the device can't be used, or the command has ended, or is of another version.
    """
    if asking_version != __version__:
        raise DeviceError(f"it has xfcost {__version__}, and the command is of {asking_version}")
    with device_alone(job.device):
        described = _described(job.device)
        return described if job.configuration is None else process.ran(job, described)


@cache
def _described(device: str) -> DescribedDevice:
    return process.described(RowJob(device=device))


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


@contextmanager
def connected(address: str, seconds: float = SECONDS) -> Iterator[Client]:
    """A client of a scheduler that has workers, all of them with this version of xfcost.

    Raises:
        UsageError: Dask is not installed, nothing answers at the address, there is no worker, or versions differ.
    """
    try:
        from distributed import Client
        from distributed import TimeoutError as LateError  # not Python's own before 3.11
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
        LoopRunner().run_sync(identity, callback_timeout=seconds)  # a client's own timeout doesn't bound its handshake
        client = Client(address, timeout=seconds, set_as_default=False)
    except Exception as error:  # noqa: BLE001 - what is no scheduler answers anything
        known = isinstance(error, (OSError, ValueError, TypeError))
        why = _text(error) if known else "the server uses another protocol"
        why = f"nothing within {seconds:g} s" if isinstance(error, LateError) else why
        raise UsageError(
            f"--scheduler {printable(address, 100)}: no scheduler answers there ({why}); expected its "
            "address, as in tcp://10.0.0.1:8786; start one with `dask scheduler`, and `dask worker ADDRESS` on every "
            "machine"
        ) from None
    try:
        try:
            client.wait_for_workers(1, timeout=seconds)
        except LateError:
            start = f"start one: dask worker {address}"
            raise UsageError(f"--scheduler {address}: it has no workers; {start}") from None
        check_versions(address, cast("dict[str, Any]", client.get_versions(packages=["xfcost"])))
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=_LAST_SECONDS)


def check_versions(address: str, versions: dict[str, Any]) -> None:
    """Refuse a part of the cluster with another xfcost.

    Raises:
        UsageError: its version is another, or it has none.
    """
    places = {"the scheduler": versions["scheduler"]}
    places |= {f"worker {at}": one for at, one in versions["workers"].items()}
    own = versions["client"]["packages"]["xfcost"]
    for place, one in places.items():
        if (found := one["packages"]["xfcost"]) != own:
            raise UsageError(
                f"--scheduler {address}: {place} has {f'xfcost {found}' if found else 'no xfcost'}, and this is xfcost "
                f"{own}; install the same version there"
            )


class ClusterRows:
    """The machines of a cluster, each of which gets the next row when it has answered the one before."""

    def __init__(
        self, client: Client, address: str, asked: RowJob, work: Callable[[str, RowJob], Any] = answer
    ) -> None:
        """Every machine reports its device; `asked` is the job of every row, without configuration and spec.

        Raises:
            DeviceError: a machine has no such device, or does not answer.
        """
        from distributed.comm.addressing import get_address_host

        self._client, self._address, self._asked, self._work = client, address, asked, work
        self.machines: dict[str, DescribedDevice] = {}
        asking = {host: self._sent(asked, host) for host in dict.fromkeys(map(get_address_host, client.nthreads()))}
        for host, one in asking.items():
            self.machines[host] = self._answer(one)

    def run(self, rows: Iterable[PlannedRow]) -> Iterator[tuple[PlannedRow, RanRow]]:
        """Measure rows, a machine for each.

        Raises:
            DeviceError: a worker can't, or the scheduler is gone.
        """
        from distributed import as_completed

        waiting, running = as_completed(loop=self._client.loop), dict[Any, tuple[PlannedRow, str]]()
        coming = iter(rows)

        def begin(host: str) -> None:
            one = next(coming, None)
            if one is not None:
                future = self._sent(one.job(self._asked), host)
                running[future] = one, host
                waiting.add(future)

        for host in self.machines:
            begin(host)
        for future in waiting:
            one, host = running.pop(future)
            yield one, self._answer(future)
            begin(host)

    def end(self) -> None:
        """End what the workers run for the command; of a scheduler that is gone no answer is waited for."""

        def tell() -> None:
            with suppress(Exception):
                self._client.run(process.end, self._asked.owner)

        telling = threading.Thread(target=tell, daemon=True)
        telling.start()
        telling.join(_LAST_SECONDS)

    def _sent(self, job: RowJob, host: str) -> Future[Any]:
        """To the machine; elsewhere where that has no worker any more."""
        where: dict[str, Any] = {"workers": [host], "allow_other_workers": True}
        return self._client.submit(self._work, __version__, job, **where, pure=False)

    def _answer(self, future: Future[Any]) -> Any:
        """The answer of a worker; a row that killed its workers has failed."""
        from distributed.scheduler import KilledWorker

        if future.cancelled():
            raise self._error("the scheduler is gone")
        try:
            return future.result()
        except KilledWorker as error:
            host, times = error.last_worker.host, error.allowed_failures + 1
            if (there := self.machines.get(host)) is None:
                raise self._error(f"a worker on {host} was killed before it had told its device") from None
            counted = "once" if times == 1 else f"{times} times"
            reason = f"its worker was killed {counted} (out of memory?); the last one was on {there.machine.host}"
            return RanRow(RowOutcome(status="failed", reason=reason), there)
        except XfcostError as error:
            raise self._error(f"a worker refuses: {error}") from None
        except Exception as error:  # whatever a worker raised
            raise self._error(f"a worker failed: {_text(error)}") from error

    def _error(self, text: str) -> DeviceError:
        return DeviceError(f"--scheduler {self._address}: {text}")


def _text(error: object) -> str:
    return printable(str(error).strip().partition("\n")[0], 120)
