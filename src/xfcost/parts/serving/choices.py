"""Devices side by side for one run: how many of each hold it, how fast it is there, and what its outputs cost."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.roofs import Bound
from xfcost.ledger.units import HOUR
from xfcost.parts.serving.result import OnDevices


class BatchAtRate(msgspec.Struct, frozen=True, kw_only=True):
    """The largest batch of decode steps that gives every sample so many tokens per second, and fits."""

    tokens_per_user: float
    """Tokens per second of each sample, at least."""
    by_rate: int | None
    """The largest batch that is fast enough, 0 where one sample is too slow; None where every batch is."""
    by_memory: int | None
    """The largest batch that fits; None where every batch does, or no memory is known."""
    seconds: float | None
    """Of a step of the largest batch; None without one."""

    @property
    def batch(self) -> int | None:
        """The largest batch under both limits; None where neither sets one."""
        return min((limit for limit in (self.by_rate, self.by_memory) if limit is not None), default=None)

    @property
    def limit(self) -> Literal["rate", "memory"] | None:
        """Which of the two limits a larger batch would break; of both the rate."""
        return None if self.batch is None else "rate" if self.batch == self.by_rate else "memory"

    @property
    def outputs_per_second(self) -> float | None:
        """Tokens of all samples."""
        return self.batch / self.seconds if self.batch and self.seconds else None


class DeviceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of device for the run, as many as were given, or as many as hold it."""

    asked: DeviceGroup
    takes: int | None
    """The fewest of the device whose memory holds the run, divided perfectly; None where its memory is not known."""
    found: OnDevices | None
    """The run on as many devices as were given; side by side, where these don't hold it, on as many as it takes."""
    at_rate: BatchAtRate | None = None
    """With `tokens_per_user`."""
    reason: str | None = None
    """Why nothing was found."""

    @property
    def fits(self) -> bool | None:
        """Do the devices that were given hold it? None where their memory is not known."""
        return None if self.takes is None else self.asked.count >= self.takes

    @property
    def seconds(self) -> float | None:
        """At the shares of peak and bandwidth that are given, else at full rates."""
        found = self.found
        return None if found is None else sum(part.seconds_at(found.mfu, found.mbu) for part in found.parts)

    @property
    def outputs_per_second(self) -> float | None:
        """Of all samples, None where these are not known; with a rate for each sample of the largest batch with it."""
        if self.at_rate is not None:
            return self.at_rate.outputs_per_second
        outputs = None if self.found is None else self.found.outputs
        return outputs / self.seconds if outputs is not None and self.seconds else None

    @property
    def outputs_per_price(self) -> float | None:
        """Outputs for one unit of the currency in which a price is given; None without a price."""
        price = None if self.found is None else self.found.on.price_per_hour
        return self.outputs_per_second * HOUR / price if price and self.outputs_per_second else None

    @property
    def order(self) -> tuple[bool, float, bool, float]:
        """What sorts devices: the most outputs for the price first; then those that hold the run, the fastest first."""
        price = self.outputs_per_price or 0.0
        rate = self.outputs_per_second or (1 / self.seconds if self.seconds else 0.0)  # the same number on every device
        return self.found is None, -price, self.fits is False, -rate

    def record(self) -> dict[str, Any]:
        """One plain dict of raw values: a row of the CSV, an entry of `choices` in JSON."""
        found, rate = self.found, self.at_rate
        figures: dict[str, Any] = {
            "devices": lambda on: on.on.count,
            "dtype": lambda on: on.dtype,
            "memory_bytes": lambda on: on.memory.available,
            "needed_bytes": lambda on: on.memory.needed,
            "bound": lambda on: on.time.bound,
            "least_seconds": lambda on: on.seconds,
            "mfu": lambda on: on.mfu,
            "mbu": lambda on: on.mbu,
            "estimated_seconds": lambda on: on.estimate,
            "price_per_hour": lambda on: on.on.price_per_hour,
        }
        record: dict[str, Any] = {"device": self.asked.device.name, "count": self.asked.count}
        record |= {"fits": self.fits, "takes": self.takes, "memory_kind": self.asked.device.memory_kind}
        record |= {name: None if found is None else figure(found) for name, figure in figures.items()}
        if self.asked.device.memory_share is not None:
            record |= {"memory_share": self.asked.device.memory_share}
        if found is not None and found.memory.reserved_cache is not None:
            record |= {"reserved_bytes": found.memory.reserved}
        record |= {"outputs_per_second": self.outputs_per_second, "outputs_per_price": self.outputs_per_price}
        if rate is not None:
            record |= {"tokens_per_user": rate.tokens_per_user, "largest_batch": rate.batch, "limit": rate.limit}
            record |= {"largest_batch_by_rate": rate.by_rate, "largest_batch_by_memory": rate.by_memory}
            record |= {"largest_batch_seconds": rate.seconds}
        return record | {"reason": self.reason}


class ThroughputPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A decode step of so many samples."""

    batch: int
    seconds: float
    bound: Bound

    @property
    def per_user(self) -> float:
        """Tokens per second of each sample."""
        return 1 / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Of all samples."""
        return self.batch / self.seconds


class ThroughputCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Decode steps of one system on devices, as the batch grows."""

    name: str
    on: DeviceGroup
    tokens: int
    dtype: str
    mfu: float | None
    mbu: float | None
    experts: bool
    """Do the times depend on an expected number of experts?"""
    points: tuple[ThroughputPoint, ...]
    """Batches ascending, from one sample."""
    largest_batch: int | None
    """The largest batch that fits, the last point; None where the curve ends before memory does."""
    warnings: tuple[str, ...] = ()
    """Of its ledger: N is beyond the model's positions, say."""

    def records(self) -> list[dict[str, Any]]:
        """One plain dict per point of the curve: the rows of its CSV."""
        return [
            {
                "system": self.name,
                "device": self.on.device.name,
                "devices": self.on.count,
                "N": self.tokens,
                "dtype": self.dtype,
                "mfu": self.mfu,
                "mbu": self.mbu,
                "batch": point.batch,
                "seconds": point.seconds,
                "tokens_per_second_per_user": point.per_user,
                "tokens_per_second": point.tokens_per_second,
                "bound": point.bound,
            }
            for point in self.points
        ]
