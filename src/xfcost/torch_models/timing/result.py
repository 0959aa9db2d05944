"""Measurements -> the Timing of a ledger."""

from __future__ import annotations

from xfcost.ledger.metadata import Phase, Timing
from xfcost.ledger.noise import noise_text
from xfcost.ledger.statistics import interquartile_range, median, precision
from xfcost.ledger.timing_options import USUAL, TimingPlan
from xfcost.torch_models.timing.devices import machine
from xfcost.torch_models.timing.turns import Measured


def timing_of(
    measured: Measured, device: str, peak: int | None, predicted: int | None, plan: TimingPlan = USUAL
) -> Timing:
    """The statistics of several measurements, and whether they are to be trusted."""
    times = measured.times
    found = median(times)
    threads = measured.threads if device.startswith("cpu") else 1
    return Timing(
        device=device,
        machine=machine(device),
        seconds=found.value,
        spread=interquartile_range(times),
        runs=len(times),
        threads=measured.threads,
        peak_bytes=peak,
        predicted_peak_bytes=predicted,
        interval=found.interval,
        precision=precision(found),
        times=times,
        in_turns=measured.in_turns,
        warm_up_seconds=measured.warm_up,
        compiled=plan.compile,
        composed=plan.composed,
        load=measured.load,
        noisy=noise_text(found, measured.load, threads, plan),
        phases=tuple(_phase(name, spent) for name, spent in measured.phases.items() if name),
    )


def _phase(name: str, times: tuple[float, ...]) -> Phase:
    found = median(times)
    return Phase(name=name, seconds=found.value, interval=found.interval)
