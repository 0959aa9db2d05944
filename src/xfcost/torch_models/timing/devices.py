"""The devices of this machine: which there are, their names, and clocks that wait for their work."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from xfcost.ledger.errors import DeviceError, printable

DEVICES: Final = ("cpu", "cuda", "mps")

Clock = Callable[[], float]


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have.

    Raises:
        DeviceError: with the devices that are.
    """
    devices = available()
    kind, _, index = device.partition(":")
    if kind in devices and (
        not index or (kind == "cuda" and index.isdigit() and int(index) < torch.cuda.device_count())
    ):
        return
    why = "there is no such device here" if kind in DEVICES else f"expected one of {', '.join(DEVICES)}"
    raise DeviceError(f"--device {printable(device)}: {why}; this machine has {', '.join(devices)}")


def available() -> list[str]:
    """The devices of this machine."""
    devices = ["cpu"]
    if torch.cuda.is_available():
        devices.append("cuda")
    if torch.backends.mps.is_available():
        devices.append("mps")
    return devices


def waiter(device: str) -> Callable[[], None]:
    """Waits until `device` has finished its work."""
    if device.startswith("cuda"):
        return lambda: torch.cuda.synchronize(device)
    if device == "mps":
        return torch.mps.synchronize
    return lambda: None


def waiting_clock(device: str, clock: Clock = time.perf_counter) -> Clock:
    """`clock`, read when `device` has finished its work."""
    wait = waiter(device)

    def waited() -> float:
        wait()
        return clock()

    return waited


def machine(device: str) -> str:
    """The name of the GPU or the processor."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return cpu_name()


def cpu_name() -> str:
    """The processor's name as the system reports it, otherwise its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()
