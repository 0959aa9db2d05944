"""The devices of this machine: which there are, their names, and clocks that wait for their work."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

import psutil
import torch

from xfcost.ledger.errors import DeviceError, printable
from xfcost.ledger.metadata import Load
from xfcost.ledger.units import TF32, size
from xfcost.torch_models.shared.environment import Read, cgroup_folders, read_text
from xfcost.torch_models.shared.private_torch import is_compiler_error

DEVICES: Final = ("cpu", "cuda", "mps")

Clock = Callable[[], float]


def check_device(device: str, dtype: str | None = None) -> None:
    """Refuse a device that this machine does not have, or that does not compute in the dtype of a run."""
    devices = ["cpu", *["cuda"] * torch.cuda.is_available(), *["mps"] * torch.backends.mps.is_available()]
    kind, _, index = device.partition(":")
    if kind in devices and (
        not index or (kind == "cuda" and index.isdigit() and int(index) < torch.cuda.device_count())
    ):
        check_tf32(device, dtype)
        return
    why = "there is no such device here" if kind in DEVICES else f"expected one of {', '.join(DEVICES)}"
    raise DeviceError(f"--device {printable(device)}: {why}; this machine has {', '.join(devices)}")


def check_tf32(device: str, dtype: str | None) -> None:
    """Refuse TF32 on a device that has no tensor cores for it."""
    if dtype != TF32:
        return
    if device.startswith("cuda"):
        with torch.cuda.device(device):
            if torch.cuda.is_tf32_supported():
                return
    raise DeviceError(f"--dtype tf32: {device} has no products in TF32, as an A100 has; take --dtype float32")


@contextmanager
def products_in(dtype: str, device: str) -> Iterator[None]:
    """On a GPU, float32 products are in TF32 inside if it is the `dtype`, and else not; then as before.

    Raises:
        DeviceError: the device has no TF32.
    """
    check_tf32(device, dtype)
    if not device.startswith("cuda"):
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    settings = [matmul, *(getattr(cudnn, name) for name in ("conv", "rnn"))]
    before = [one.fp32_precision for one in settings]
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = dtype == TF32
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = (one == "tf32" for one in before[:2])
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision


def accelerators() -> tuple[list[str], str]:
    """The GPUs that torch can use, and with which library; where there is none, what could be the cause."""
    if torch.backends.mps.is_available():
        return ["Apple GPU (mps)"], "torch was built with Metal"
    hip, cuda = torch.version.hip, torch.version.cuda
    built = f"torch was built for {f'ROCm {hip}' if hip else f'CUDA {cuda}'}"
    if not torch.cuda.is_available():
        if hip or cuda:
            return [], f"{built}, and no driver answers {'rocm-smi' if hip else 'nvidia-smi'}"
        return [], "a torch that is built for CUDA or ROCm: https://pytorch.org/get-started"
    sizes = [(machine(f"cuda:{k}"), torch.cuda.mem_get_info(k)[1]) for k in range(torch.cuda.device_count())]
    return [f"{name}, {size(total)}" for name, total in sizes], built


def waiting_clock(device: str, clock: Clock = time.perf_counter) -> Clock:
    """`clock`, read when `device` has finished its work."""

    def waited() -> float:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        elif device == "mps":
            torch.mps.synchronize()
        return clock()

    return waited


def machine(device: str) -> str:
    """The name of the GPU, or of the processor as the system reports it, otherwise its architecture."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    lines = (read_text("/proc/cpuinfo") or "").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def cores() -> int:
    """The physical cores that this process may use: those of its CPU affinity, as far as its cgroup's quota goes."""
    return max(1, min(physical_cores(usable_cpus(), read_text), int(quota(read_text))))


def usable_cpus() -> tuple[int, ...]:
    """The numbers of the logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores(cpus: Collection[int], read: Read) -> int:
    """The physical cores behind logical `cpus`: of hardware threads that share a core, one counts."""
    siblings = [read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in cpus]
    if all(siblings):
        return len(set(siblings))
    return min(psutil.cpu_count(logical=False) or len(cpus), len(cpus))


def quota(read: Read) -> float:
    """The CPUs that the tightest cgroup leaves to this process."""
    least = float(os.cpu_count() or 1)
    for folder in cgroup_folders(read, "cpu"):
        if folder.version == 1:
            allowed = read(f"{folder.path}/cpu.cfs_quota_us"), read(f"{folder.path}/cpu.cfs_period_us")
        else:
            words = (read(f"{folder.path}/cpu.max") or "").split()
            allowed = (words[0], words[1]) if words else (None, None)
        if all(text is not None and text.strip().isdigit() for text in allowed):
            least = min(least, float(allowed[0] or 0) / float(allowed[1] or 1))
    return least


@contextmanager
def threads_set(number: int) -> Iterator[None]:
    """Let torch run operations with `number` threads; then with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_MICRO = 1e-6
_NANO = 1e-9


class SystemCounters(NamedTuple):
    """Counters of the system at one moment, in seconds since some start; None where the system does not report it."""

    busy: float
    """CPU seconds of all processes, on the CPUs that this process may use."""
    own: float
    """CPU seconds of this process."""
    cores: int
    stolen: float | None = None
    withheld: float | None = None
    """Seconds in which the cgroup's quota stopped this process."""
    frequency: float | None = None
    """Now, over the maximum."""


def read_system() -> SystemCounters:
    """The counters of this machine and process."""
    cpus = usable_cpus()
    every = psutil.cpu_times(percpu=True)
    times = [every[cpu] for cpu in cpus if cpu < len(every)] or every
    own, frequency = psutil.Process().cpu_times(), None
    with suppress(OSError, NotImplementedError, RuntimeError):
        now = psutil.cpu_freq()
        frequency = now.current / now.max if now is not None and now.max else None
    return SystemCounters(
        busy=sum(getattr(one, name, 0.0) for one in times for name in ("user", "nice", "system", "irq", "softirq")),
        own=own.user + own.system,
        cores=physical_cores(cpus, read_text),
        stolen=sum(one.steal for one in times) if hasattr(times[0], "steal") else None,
        withheld=withheld_seconds(read_text),
        frequency=frequency,
    )


def withheld_seconds(read: Read) -> float | None:
    """Seconds in which a quota stopped the threads of this process's cgroup; None without a quota."""
    found = []
    for folder in cgroup_folders(read, "cpu"):
        stat = dict(line.split() for line in (read(f"{folder.path}/cpu.stat") or "").splitlines())
        units = (("throttled_usec", _MICRO), ("throttled_time", _NANO))
        found += [int(stat[name]) * unit for name, unit in units if name in stat]
    return max(found, default=None)


def load_between(start: SystemCounters, end: SystemCounters, seconds: float) -> Load:
    """The means between two readings that are `seconds` apart."""
    if seconds <= 0:
        return Load(cores=end.cores, frequency=end.frequency)

    def mean(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None else max(after - before, 0.0) / seconds

    return Load(
        others=mean(start.busy - start.own, end.busy - end.own),
        cores=end.cores,
        stolen=mean(start.stolen, end.stolen),
        withheld=mean(start.withheld, end.withheld),
        frequency=end.frequency,
    )


_NO_KERNEL: Final = re.compile(r'"(\w+)" not implemented for \'(\w+)\'')
_LOST: Final = re.compile(r"CUDA error|CUDA driver|HIP error|no longer available|device-side assert", re.IGNORECASE)


@contextmanager
def on_device(name: str, device: str, dtype: str) -> Iterator[None]:
    """Run in a dtype; report a missing kernel, a lost device and a failed compilation as a DeviceError."""
    try:
        with products_in(dtype, device):
            yield
    except Exception as error:
        text = str(error)
        first = (text.strip() or type(error).__name__).partition("\n")[0]
        if is_compiler_error(error):
            refusal = f"--compile: torch could not compile {name} ({first}); leave --compile out"
        elif kernel := _NO_KERNEL.search(text):
            refusal = (
                f"--dtype {dtype}: torch has no kernel for it on {device}, and {name} needs one ({kernel[1]}, "
                f"{kernel[2]}); take --dtype float32, or leave --device out: counting needs no kernel"
            )
        elif isinstance(error, RuntimeError) and _LOST.search(text) and "out of memory" not in text:
            refusal = f"--device {device}: it failed while {name} ran ({first}); check the device, then run again"
        else:
            raise
        raise DeviceError(refusal) from None
