"""Tensors that torch cannot number, refused before they are laid out or as they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from xfcost.ledger.errors import DeviceError, NoRoomError
from xfcost.ledger.ledger import Ledger

_MOST_BYTES: Final = 2**63
# torch's error text for a tensor too large to address.
_TOO_LARGE: Final = "overflow"


def check_addressable(ledger: Ledger) -> None:
    """Refuse tensors that torch cannot address, on any device.

    Raises:
        NoRoomError: one of them has 2⁶³ bytes or more.
    """
    largest = max(
        (max(row.params, row.attention_entries, 0 if row.macs else row.flops) for row in ledger.rows), default=0
    )
    needed = largest * ledger.bytes_per_element
    if needed >= _MOST_BYTES:
        raise NoRoomError(
            f"{ledger.metadata.name} has a tensor of about {largest:,} elements ({needed:,} bytes), "
            "and torch numbers bytes up to 2⁶³; --no-trace counts it all the same",
            needed,
            _MOST_BYTES,
        )


@contextmanager
def within_torch(name: str) -> Iterator[None]:
    """Report a tensor that torch cannot address, also a temporary one, as a DeviceError.

    Raises:
        DeviceError: a tensor is too large for torch.
    """
    try:
        yield
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        if _TOO_LARGE not in first:
            raise
        raise DeviceError(
            f"{name} is too large to be laid out here, even on `meta` ({first}); take a smaller --N, "
            "or leave --device out and take --no-trace, which counts it all the same"
        ) from None


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
