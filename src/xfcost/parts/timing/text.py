"""How long a model ran or would run, where, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from xfcost.ledger import units
from xfcost.ledger.achieved import StepRates, reached, step_rates, whole_bandwidth, whole_rate
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import CudaGraph, Timing
from xfcost.ledger.model_flops import COUNTED_WORDS
from xfcost.report.document import TextLines, line

if TYPE_CHECKING:
    from xfcost.parts.prediction.result import Prediction

_RATES: Final = (
    "FLOP/s and bytes/s: FLOPs of the formulas, and bytes of inputs, outputs and weights (each counted once), divided "
    "by the measured time"
)
# Least and most bytes that torch's allocator reserved beyond the peak of its tensors, in the recorded runs of float32
# (tests/data/gpu/peaks.csv). Models ran one after the other in a process, and libraries have workspaces.
RESERVED_RUNS: Final = 80
RESERVED_MORE: Final = (54_669_824, 2_121_355_776)
_OF_TRAINING: Final = "; both include the backward pass, with gradients and saved activations"


def time_answer(ledger: Ledger) -> Iterator[TextLines]:
    """How long a forward took; nothing where none was timed."""
    if (timing := ledger.timing) is not None:
        yield line(f"time: {units.seconds(timing.seconds)} {_what_ran(ledger)}, {spread_text(timing)}")


def timing_texts(ledger: Ledger) -> Iterator[TextLines]:
    """Where it was timed, and how far to trust it; nothing where none was."""
    timing = ledger.timing
    if timing is None:
        return
    on_cuda = timing.device.startswith("cuda")
    peak = f", peak {(gpu_peak_text if on_cuda else units.size)(timing.peak_bytes)}" if timing.peak_bytes else ""
    yield line(f"time: on {where_text(timing)}{peak}")
    yield from _lane_texts(timing)
    if timing.device == "mps":
        yield line("operations: not measured on mps, where torch reports no kernels")
    if timing.noisy:
        yield line(f"noisy: {timing.noisy}", "bold yellow")
    if timing.composed:
        yield line("composed: every distinct block was run once, and its time is multiplied by its repetitions")
    if timing.compiled:
        yield line(f"compiled by torch.compile; the first call took {units.seconds(timing.warm_up_seconds)}")
    yield from _beside_texts(timing)
    yield from _peak_texts(ledger, timing)


def reached_texts(ledger: Ledger) -> Iterator[TextLines]:
    """A measured run compared with the bound on the devices of `--on`: the shares of their peak and bandwidth."""
    if (given := step_rates(ledger)) is not None:
        plan = None if ledger.training is None else ledger.training.plan
        if plan is None or given.of_bound > 1:  # else its own lines have the shares
            yield line(f"{_shares_of(given)}; {_of_bound(given.of_bound)}", head="measured: ")
    found, timing = reached(ledger), ledger.timing
    if found is None or timing is None:
        return
    mbu = "" if found.mbu is None else f" and {share_text(found.mbu)} MBU"
    shares = f"{share_text(found.mfu)} MFU{mbu}"
    bound = _of_bound(found.of_bound)
    where = f"{units.seconds(timing.seconds)} on {where_text(timing)}"
    yield line(f"{where}: {shares}; {bound}", head="measured: ")


def _shares_of(given: StepRates) -> str:
    """`210 ms: 42.7 % MFU (28.00 T model FLOPs, all pairs, at 312.0 TFLOP/s), 43.6 % HFU`."""
    words = f"{units.seconds(given.seconds)}: {share_text(given.mfu)} MFU"
    if given.mbu is not None:
        return f"{words} and {share_text(given.mbu)} MBU"
    counted = f"{units.count(given.model_flops)} model FLOPs, {COUNTED_WORDS[given.convention]}"
    computed = f", {share_text(given.hfu)} HFU" if given.recomputes and given.hfu is not None else ""
    return f"{words} ({counted}, at {units.count(given.peak)}FLOP/s){computed}"


def _of_bound(share: float) -> str:
    """How far a measured time is from its lower bound."""
    other = "; faster than the bound: the device or the dtype of its products must be another one"
    return f"the lower bound is {share_text(share)} of it{other if share > 1 else ''}"


def share_text(share: float) -> str:
    """0.1495 -> `14.9 %`, 0.000012 -> `0.0012 %`."""
    return f"{100 * share:.3g} %"


def rates_text(ledger: Ledger) -> str:
    """What the columns FLOP/s and bytes/s are."""
    return _RATES if ledger.training is None else _RATES + _OF_TRAINING


def spread_text(timing: Timing) -> str:
    """`95 % interval 110 ms to 130 ms (median of 12, interquartile range 8.9 ms)`."""
    statistics = f"median of {timing.runs}, interquartile range {units.seconds(timing.spread)}"
    if timing.interval is None:
        return statistics
    return f"95 % interval {interval_text(timing.interval)} ({statistics})"


def interval_text(interval: tuple[float, float]) -> str:
    """`110 ms to 130 ms`."""
    return " to ".join(map(units.seconds, interval))


def where_text(timing: Timing | Prediction) -> str:
    """`cpu, AMD EPYC, 2 threads`."""
    return f"{timing.device}, {timing.machine}, {units.number_of(timing.threads, 'thread')}"


def gpu_peak_text(live: int) -> str:
    """`124 MiB of tensors; in 80 recorded runs torch reserved 52.0 MiB to 1.98 GiB more`."""
    more = " to ".join(map(units.size, RESERVED_MORE))
    return f"{units.size(live)} of tensors; in {RESERVED_RUNS} recorded runs torch reserved {more} more"


def lane_text(timing: Timing | None) -> str:
    """Of which lane of a GPU the seconds are; empty of the whole call."""
    return "" if timing is None else {"wall": "", "host": " of the host", "device": " of kernels"}[timing.lane]


def _what_ran(ledger: Ledger) -> str:
    if text := ledger.generation:
        phases = f"prefill {units.seconds(text.prefill_seconds)}, steps {units.seconds(text.decode_seconds)}"
        return f"for {units.number_of(text.new_tokens, 'new token')} ({phases})"
    if ledger.training is not None:
        return f"a step of training ({ledger.training.step.optimizer} in {ledger.metadata.dtype})"
    return "a decode step" if ledger.step else "a forward"


def _peak_texts(ledger: Ledger, timing: Timing) -> Iterator[TextLines]:
    """The shares of the peak and of the bandwidth that the run achieved; where they are not known, how to know them."""
    if timing.not_calibrated is not None:
        yield line(f"no percent of peak: {timing.not_calibrated}", "dim")
    rate, bandwidth, roofs = whole_rate(ledger), whole_bandwidth(ledger), timing.roofs
    if roofs is None or rate is None:
        return
    reached = [(rate, roofs.flops_per_second, "FLOP/s", "the peak of")]
    reached += [] if bandwidth is None else [(bandwidth, roofs.bytes_per_second, "B/s", "the memory's")]
    texts = [
        f"{units.count(one, 3)}{unit}, {units.percent(one, most)} of {of} {units.count(most, 3)}{unit}"
        for one, most, unit, of in reached
    ]
    nominal = f" (nominal, {roofs.nominal})" if roofs.nominal else ""
    yield line(f"achieved: {' and '.join(texts)}{nominal}")
    if timing.lanes is not None:
        over = timing.lanes.kernels / timing.wall
        shares = " and ".join(units.percent(one / over, most) for one, most, _, _ in reached)
        yield line(f"achieved while kernels run: {shares}")


def _lane_texts(timing: Timing) -> Iterator[TextLines]:
    """Which of the two lanes of a GPU is the longer one."""
    if (lanes := timing.lanes) is None:
        yield from map(line, _graph_texts(timing.cuda_graph))  # the kernels were not traced
        return
    kernels = f"kernels take {units.seconds(lanes.kernels)} ({lanes.launches:,} launches)"
    idle = units.percent(max(0.0, timing.wall - lanes.kernels), timing.wall)
    host = units.seconds(lanes.host)
    bound = (
        f"host-bound: the GPU is idle {idle} of the time; {kernels}, the host {host}"
        if lanes.host_bound
        else f"device-bound: {kernels}, the host issues them in {host}"
    )
    yield line("; ".join([bound, *_graph_texts(timing.cuda_graph)]))


def _graph_texts(graph: CudaGraph | None) -> list[str]:
    if graph is None:
        return []
    known = graph.seconds is not None
    return [f"a CUDA graph takes {units.seconds(graph.seconds)}" if known else f"no CUDA graph: {graph.not_captured}"]


def _beside_texts(timing: Timing) -> Iterator[TextLines]:
    """What the sum of the operations leaves, in words."""
    rest = timing.not_attributed
    if rest is None:  # no operation was timed
        return
    if (lanes := timing.lanes) is not None:
        own = units.percent(lanes.kernels - lanes.copies - rest, timing.share_base)
        copies = f", copies and fills between operations {units.percent(lanes.copies, timing.share_base)}"
        yield line(f"times of operations are those of their kernels, {own} of all kernels{copies}", "dim")
        return
    share = units.percent(abs(rest), timing.seconds)
    if rest < 0:
        why = "timing each operation costs that much, or the machine was slower while they ran"
        sums = f"the operations add up to {share} more than the whole, and shares are of their sum"
        yield line(f"measuring overhead: {sums}; {why}", "dim")
        return
    yield line(f"not attributed: {share} of the time, between the operations and outside them", "dim")


# Names of operations that were never measured; more are counted.
