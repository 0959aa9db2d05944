"""How often a row was begun on a cluster: the scheduler keeps it, whichever worker is killed.

Dask counts every task that a killed worker had, also those that only waited there. These count where they have begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from xfcost.api.measuring.jobs import DescribedDevice

if TYPE_CHECKING:
    from distributed import Client


class Attempts:
    """Those of one row, in a queue of Dask that lasts while the command holds it."""

    def __init__(self, row: str, client: Client | None = None) -> None:
        """`client` is that of the command; a worker has its own."""
        from distributed import Queue

        self._queue = Queue(f"xfcost-{row}", client=client)

    @property
    def number(self) -> int:
        """So many have begun."""
        return int(self._queue.qsize())

    def begin(self, described: DescribedDevice) -> None:
        """One begins on this device; the scheduler knows it when this returns."""
        self._queue.put(msgspec.json.encode(described).decode())

    def last(self) -> DescribedDevice:
        """The device of the last one; takes all of them out."""
        return msgspec.json.decode(self._queue.get(batch=True)[-1], type=DescribedDevice)

    def close(self) -> None:
        """Let the scheduler forget them, where nobody else holds them."""
        self._queue.close()
