"""The timed account: seconds of a model's forward on a real device, in total and by row."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import torch
from torch import nn

from xfcost.ledger.errors import DeviceError, printable
from xfcost.ledger.metadata import Timing
from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.shared.cache import set_position
from xfcost.torch_models.tracing.rows import row_path

DEVICES: Final = ("cpu", "cuda", "mps")
# Forwards are repeated for this long; a longer forward runs _FEWEST times.
_MEASURE_SECONDS: Final = 1.0
_FEWEST: Final = 3
_HOOKED_RUNS: Final = 3

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


def time_model(
    live: BuiltModel, device: str, predicted: int, say: Callable[[str], None]
) -> tuple[dict[str, float], Timing]:
    """Median seconds of a forward, interquartile range, peak bytes, and seconds per row (of one block)."""
    say(f"timing on {device} …")
    with torch.no_grad():
        times = time_calls(lambda: live.model(*live.inputs), device)
        say(f"timing each operation on {device} …")
        rows = time_rows(live, device)
    return rows, timing_of(times, device, _peak(live, device), predicted)


def time_calls(call: Callable[[], object], device: str) -> list[float]:
    """Seconds of one call, from several measurements; short calls are repeated inside a measurement."""
    from torch.utils import benchmark  # its import takes half as long as a trace

    threads = torch.get_num_threads()
    timer = benchmark.Timer("call()", globals={"call": call}, timer=clock_of(device), num_threads=threads)
    times = list(timer.blocked_autorange(min_run_time=_MEASURE_SECONDS).times)
    while len(times) < _FEWEST:
        times += timer.timeit(1).times
    return times


def timing_of(times: list[float], device: str, peak: int | None, predicted: int) -> Timing:
    """The statistics of several measurements."""
    return Timing(
        device=device,
        machine=machine(device),
        seconds=statistics.median(times),
        spread=_spread(times),
        runs=len(times),
        threads=torch.get_num_threads(),
        peak_bytes=peak,
        predicted_peak_bytes=predicted,
    )


def time_steps(live: BuiltModel, device: str, positions: Sequence[int]) -> list[float]:
    """Seconds of all decode steps of a generation: the median of a few runs, or a single long run."""
    clock = clock_of(device)

    def run() -> float:
        started = clock()
        for position in positions:
            set_position(live.model, position)
            live.model(*live.inputs)
        return clock() - started

    with torch.no_grad():
        live.model(*live.inputs)  # warm-up
        times = [run()]
        while len(times) < _FEWEST and sum(times) < _MEASURE_SECONDS:
            times.append(run())
    return times


def clock_of(device: str) -> Clock:
    """A clock that waits until `device` has finished its work."""
    wait = _waiter(device)

    def clock() -> float:
        wait()
        return time.perf_counter()

    return clock


def _spread(times: list[float]) -> float:
    """The interquartile range."""
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return high - low


def _peak(live: BuiltModel, device: str) -> int:
    """Peak bytes of one forward: the device's own figure on CUDA, live tensors elsewhere."""
    if not device.startswith("cuda"):
        return peak_bytes(live.model, live.inputs)
    with torch.no_grad():
        return peak_on_cuda(lambda: live.model(*live.inputs), device)


def peak_on_cuda(call: Callable[[], object], device: str) -> int:
    """The peak of torch's allocator."""
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device))


def time_rows(live: BuiltModel, device: str, clock: Clock = time.perf_counter) -> dict[str, float]:
    """Seconds per row and block: the median over a row's leaves and a few forwards, by forward hooks.

    A leaf that is called several times in a forward counts the sum. The hooks wait for the device, so that the rows
    add up to a little more than a plain forward.
    """
    seconds: dict[tuple[str, str], float] = {}
    times: dict[str, list[float]] = {}
    with torch.no_grad(), _timed_leaves(live, _waiter(device), clock, seconds):
        for _ in range(_HOOKED_RUNS):
            seconds.clear()
            live.model(*live.inputs)
            for (path, _), spent in seconds.items():
                times.setdefault(path, []).append(spent)
    return {path: statistics.median(measured) for path, measured in times.items()}


@contextmanager
def _timed_leaves(
    live: BuiltModel, wait: Callable[[], None], clock: Clock, seconds: dict[tuple[str, str], float]
) -> Iterator[None]:
    """Add the seconds of each leaf of a row to `seconds`, by (row path, module path)."""
    started: dict[str, float] = {}

    def start(name: str) -> Callable[[nn.Module, object], None]:
        def hook(module: nn.Module, inputs: object) -> None:
            wait()
            started[name] = clock()

        return hook

    def stop(name: str, path: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, outputs: object) -> None:
            wait()
            seconds[path, name] = seconds.get((path, name), 0.0) + clock() - started[name]

        return hook

    with ExitStack() as hooks:
        for name, module in live.model.named_modules():
            path = row_path(name, live.rows)
            if path is not None and next(module.children(), None) is None:
                hooks.enter_context(module.register_forward_pre_hook(start(name)))
                hooks.enter_context(module.register_forward_hook(stop(name, path)))
        yield


def _waiter(device: str) -> Callable[[], None]:
    if device.startswith("cuda"):
        return lambda: torch.cuda.synchronize(device)
    if device == "mps":
        return torch.mps.synchronize
    return lambda: None


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
