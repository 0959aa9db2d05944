"""How long a model is timed, and how it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from xfcost.ledger.errors import DeviceError
from xfcost.ledger.metadata import Lane, Load, Timing
from xfcost.ledger.statistics import Estimate, interquartile_range, median, precision


class TimingPlan(NamedTuple):
    """How long a model is timed, and how it runs."""

    precision: float = 0.05
    """Turns end when the 95 % interval of the median reaches no further from it than this share."""
    max_time: float = 10.0
    """Or when this many seconds per system are spent."""
    min_time: float = 0.5
    """Seconds that are measured at least, per system."""
    runs: int | None = None
    """Exactly this many turns, instead of the three above."""
    threads: int | None = None
    """None: the physical cores that the process may use."""
    compile: bool = False
    """Is the model compiled by torch.compile before?"""
    composed: bool = False
    """Is every distinct block run once, and the whole composed of them?"""
    cuda_graph: bool = False
    """Is a replay of the model's CUDA graph timed too?"""
    lane: Lane = "wall"
    """The lane of a GPU whose seconds are reported, and have to be precise."""
    checks: bool = False
    """Is a prediction from the machine's calibration held against the measured seconds?"""


USUAL: Final = TimingPlan()


# ── the verdict on a measurement ──


# The share of its cores that a run may miss before a note says so.
_MISSED: Final = 0.1
# A processor below this share of its maximal frequency is throttled. All cores at once rarely reach the maximum.
_SLOW: Final = 0.5


def noise_text(
    measured: Estimate, load: Load, threads: int, plan: TimingPlan, *, host_bound: bool = False
) -> str | None:
    """Why a measurement is not to be trusted, and what to do; None where nothing speaks against it.

    Of a `host_bound` run on a GPU the host varies.
    """
    disturbed = list(_disturbances(load, threads))
    reached = precision(measured)
    if reached is None:
        return _text([*disturbed, "fewer than 6 measurements give no interval"], plan)
    if reached > plan.precision:
        cause = ", because the host issues kernels at a varying rate" if host_bound else ""
        disturbed.append(f"the 95 % interval is ±{_percent(reached)}, and more than ±{_percent(plan.precision)}{cause}")
    return _text(disturbed, plan) if disturbed else None


def _disturbances(load: Load, threads: int) -> Iterator[str]:
    """What other processes, the host, the quota and the heat took away."""
    if load.others is not None and load.cores is not None and load.others + threads > load.cores + _MISSED * threads:
        yield f"other processes kept {load.others:.1f} of {load.cores} cores busy"
    if load.stolen is not None and load.stolen > _MISSED * threads:
        yield f"the host of this virtual machine took {load.stolen:.1f} cores away"
    if load.withheld is not None and load.withheld > _MISSED:
        yield f"the cgroup's quota stopped the process for {_percent(load.withheld)} of the time"
    if load.frequency is not None and load.frequency < _SLOW:
        yield f"the processor ran at {_percent(load.frequency)} of its frequency"


def in_lane(timing: Timing, lane: Lane, plan: TimingPlan = USUAL) -> Timing:
    """`timing` with the seconds of a `lane` of a GPU, which are those of the whole call before.

    Raises:
        DeviceError: the lanes were not measured.
    """
    if lane == "wall":
        return timing
    times = () if timing.lanes is None else {"host": timing.lanes.host_times, "device": timing.lanes.kernel_times}[lane]
    if not times:
        raise DeviceError(
            f"--lane {lane}: torch's profiler saw no kernels on {timing.device}, so that there is no such lane; "
            "leave --lane out, or run on a GPU whose kernels it traces (CUPTI on NVIDIA, ROCm's tracer on AMD)"
        )
    found, load = median(times), (timing.load or Load()) if lane == "host" else Load()
    return msgspec.structs.replace(
        timing,
        lane=lane,
        seconds=found.value,
        spread=interquartile_range(times),
        runs=len(times),
        interval=found.interval,
        precision=precision(found),
        times=times,
        noisy=noise_text(found, load, 1, plan),
    )


def _text(reasons: list[str], plan: TimingPlan) -> str:
    option = "--max-time" if plan.runs is None else "--runs"
    return f"{'; '.join(reasons)}; repeat on a quiet machine or raise {option}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
