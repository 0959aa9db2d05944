"""A device: its memory, bandwidth, dense peaks, links and price, each figure with its sources; and a group of them.

Memory is in bytes, rates in bytes/s and FLOP/s (of int8: operations/s), two operations per multiply-add. Peaks are
dense: datasheets print twice as many where half of the weights are zeros (structured sparsity).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from xfcost.ledger import units
from xfcost.ledger.errors import UsageError

# float32 is plain float32 arithmetic, without TF32.
PEAK_DTYPES: Final = ("float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8")
THIS_MACHINE: Final = "this-machine"
"""The beginning of the names of calibrated devices."""


class DeviceSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a figure was read."""

    title: str
    url: str | None = None


class DeviceFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a device."""

    value: float
    sources: tuple[str, ...]
    """Keys of the device's `sources`."""
    note: str | None = None
    """How it was derived, or in what sources differ."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What joins a device with others of its kind."""

    name: str
    rate: DeviceFigure
    """Bytes/s in one direction; vendors print the sum of both."""
    mesh: int | None = None
    """Direct links to so many other devices, which share the rate; None: a switch gives one of them all of it."""

    def among(self, devices: int) -> float:
        """Bytes/s of a device that exchanges with so many, itself included."""
        share = 1.0 if self.mesh is None else min(1.0, (devices - 1) / self.mesh)
        return self.rate.value * share


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator, as its vendor sells it; of this machine, as it was calibrated."""

    name: str
    title: str
    vendor: str
    driver: str | None = None
    """The name that its driver reports, as torch gives it; None where that isn't known, or is of a part of it."""
    also: tuple[str, ...] = ()
    """Names that several devices could have, and that mean this one, the most common form: `h100` is `h100-sxm`."""
    year: int | None = None
    generation: str | None = None
    """The architecture of a GPU, `Hopper`; None of other devices, and where it isn't known."""
    memory: DeviceFigure | None = None
    memory_kind: Literal["usable", "nominal", "physical"] = "nominal"
    """`usable`: what the driver reports, before context and framework; `nominal`: the label; `physical`: all of it."""
    bandwidth: DeviceFigure
    """Bytes/s of its memory."""
    peaks: dict[str, DeviceFigure]
    """Dense FLOP/s by dtype; float64, float32: of matrix products where the vendor has units for them."""
    link: Link | None = None
    node: int | None = None
    """How many devices the link joins; None where that is not known, or of no concern."""
    network: Link | None = None
    """What joins nodes, for each device."""
    price_per_hour: float | None = None
    """The user's own entry."""
    memory_share: float | None = None
    """The share of its memory that a run may use, with `--memory-share`; None: all of it."""
    notes: tuple[str, ...] = ()
    sources: Mapping[str, DeviceSource] = {}
    """Those of its figures."""
    calibrated: str | None = None
    """When it was measured (UTC, ISO 8601); None where figures are the vendor's."""

    @property
    def memory_bytes(self) -> int | None:
        """Bytes of its memory that a run may use, of the kind `memory_kind`."""
        if self.memory is None or self.memory_share is None:
            return None if self.memory is None else int(self.memory.value)
        return int(self.memory.value * self.memory_share)

    @property
    def memory_words(self) -> str:
        """What `memory_bytes` is a figure of: ` (nominal)`, ` (90 % of the memory)`; empty for all usable memory."""
        if self.memory_share is not None:
            whole = "the memory" if self.memory_kind == "usable" else f"the {self.memory_kind} memory"
            return f" ({100 * self.memory_share:.3g} % of {whole})"
        return "" if self.memory_kind == "usable" else f" ({self.memory_kind})"

    @property
    def bytes_per_second(self) -> float:
        """The bandwidth of its memory."""
        return self.bandwidth.value

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s of a dtype.

        Raises:
            UsageError: no figure is known for it.
        """
        figure = self.peaks.get(dtype)
        if figure is None:
            known = ", ".join(
                f"{name} ({units.count(one.value)}FLOP/s)"
                for name, one in self.peaks.items()
                if name in units.BYTES_PER_ELEMENT
            )
            only = f", only {known}; choose one with --dtype" if known else ""
            raise UsageError(f"{self.name}: no {dtype} peak of it is known{only}")
        return figure.value

    def ridge_point(self, dtype: str) -> float:
        """FLOPs per byte from which on an operation is compute-bound.

        Raises:
            UsageError: no peak is known for the dtype.
        """
        return self.peak(dtype) / self.bytes_per_second


class DeviceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal devices that share a run."""

    device: Device
    count: int = 1

    def with_memory_share(self, share: float | None) -> DeviceGroup:
        """These devices, of whose memory a run may use a share; all of it where that is None."""
        if share is None:
            return self
        return msgspec.structs.replace(self, device=msgspec.structs.replace(self.device, memory_share=share))

    @property
    def name(self) -> str:
        """`h100-sxm`, or `h100-sxm x8`."""
        return self.device.name if self.count == 1 else f"{self.device.name} x{self.count}"

    @property
    def title(self) -> str:
        """`NVIDIA H100 SXM`, or `8 × NVIDIA H100 SXM`."""
        return self.device.title if self.count == 1 else f"{self.count:,} × {self.device.title}"

    @property
    def memory_bytes(self) -> int | None:
        """Of all devices."""
        return None if self.device.memory_bytes is None else self.count * self.device.memory_bytes

    @property
    def bytes_per_second(self) -> float:
        """Of all devices' memories."""
        return self.count * self.device.bytes_per_second

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s of all devices.

        Raises:
            UsageError: no figure is known for the dtype.
        """
        return self.count * self.device.peak(dtype)

    @property
    def price_per_hour(self) -> float | None:
        """Of all devices."""
        return None if self.device.price_per_hour is None else self.count * self.device.price_per_hour
