"""The roofs of a machine: the rate that it allows an operation, by its arithmetic intensity.

The roofline model of Williams, Waterman and Patterson 2009: an operation of I FLOP per byte runs at most at
min(P, I·B), with P the peak rate of arithmetic and B the bandwidth of memory. They meet at the ridge point P/B.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from xfcost.ledger.calibration import Baseline
from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.units import FLOPS_PER_MAC, Rate

Bound = Literal["memory-bound", "compute-bound", "link-bound"]


class Roofs(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine was measured to reach, or should reach by the figures of its device."""

    flops_per_second: Rate
    """The peak: of its largest matrix products."""
    bytes_per_second: Rate
    """The bandwidth of its memory: of element-wise additions larger than its caches."""
    calibrated: str | None = None
    """When `xfcost calibrate` measured them (UTC, ISO 8601); None: measured only for this report, or nominal."""
    nominal: str | None = None
    """The device whose figures they are; None where they were measured."""

    @property
    def ridge_point(self) -> float:
        """The arithmetic intensity from which on the peak is the roof."""
        return self.flops_per_second / self.bytes_per_second

    def at(self, intensity: float) -> float:
        """The FLOP/s that an operation of this intensity can have."""
        return min(self.flops_per_second, intensity * self.bytes_per_second)

    def bound(self, intensity: float) -> Bound:
        """What limits an operation of this intensity: memory below the ridge point, else arithmetic."""
        return "memory-bound" if intensity < self.ridge_point else "compute-bound"


def nominal_roofs(on: DeviceGroup, dtype: str) -> Roofs:
    """The roofs in the figures of devices.

    Raises:
        UsageError: no peak is known for the dtype.
    """
    measured = on.device.calibrated
    return Roofs(
        flops_per_second=on.peak(dtype), bytes_per_second=on.bytes_per_second, calibrated=measured,
        nominal=on.name if measured is None else None,
    )  # fmt: skip


def roofs_of(baseline: Baseline, calibrated: str | None = None) -> Roofs:
    """The roofs in the peaks of a calibration."""
    return Roofs(
        flops_per_second=FLOPS_PER_MAC * baseline.macs_per_second,
        bytes_per_second=baseline.bytes_per_second,
        calibrated=calibrated,
    )
