"""The refusal of a batch norm that has one value per channel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from xfcost.ledger.errors import DeviceError


@contextmanager
def batch_statistics(name: str) -> Iterator[None]:
    """In training a batch norm computes the statistics of its batch.

    Raises:
        DeviceError: a channel has a single value, which has no variance.
    """
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise DeviceError(
            f"{name}: in training a batch norm takes the variance of its batch, and a channel has one value here; take "
            "a larger --batch (or --N, --size), or leave --device out and take --no-trace"
        ) from None
