"""How long a model ran or would run, where, and how far to trust it; and what a calibration found."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from xfcost.counting.comparison import Comparison
from xfcost.ledger import units
from xfcost.ledger.achieved import reached, whole_bandwidth, whole_rate
from xfcost.ledger.calibration import Calibration, Network
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import CudaGraph, Lanes, Prediction, Timing
from xfcost.ledger.statistics import nine_in_ten
from xfcost.report.document import DataTable, Part, TextLines, line, numbers

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
    peak = f", peak {(_gpu_peak_text if on_cuda else units.size)(timing.peak_bytes)}" if timing.peak_bytes else ""
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
    found, timing = reached(ledger), ledger.timing
    if found is None or timing is None:
        return
    mbu = "" if found.mbu is None else f" and {share_text(found.mbu)} MBU"
    other = "; faster than the bound: the device or the dtype of its products must be another one"
    over = other if found.of_bound > 1 else ""
    shares = f"{share_text(found.mfu)} MFU{mbu}"
    bound = f"the lower bound is {share_text(found.of_bound)} of it{over}"
    where = f"{units.seconds(timing.seconds)} on {where_text(timing)}"
    yield line(f"{where}: {shares}; {bound}", head="measured: ")


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


def _gpu_peak_text(live: int) -> str:
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
_MOST_UNKNOWN = 4


def prediction_texts(ledger: Ledger) -> Iterator[TextLines]:
    """How long a run would take, and where; nothing without `--predict`."""
    found = ledger.prediction
    if found is None:
        return
    parts = [(phase.name, phase.seconds) for phase in found.phases]
    parts += [] if found.update_seconds is None else [("update", found.update_seconds)]
    phases = ", ".join(f"{name} {units.seconds(spent)}" for name, spent in parts)
    phases = f" ({phases})" if phases else ""
    yield line(f"predicted: {units.seconds(found.seconds)}{phases}, {_range_text(found)}")
    if found.lanes is not None:
        yield line(_predicted_lanes_text(found.lanes))
    if found.peak_bytes is not None:
        yield line(f"predicted peak: {_gpu_peak_text(found.peak_bytes)}")
    yield line(f"on {prediction_where(found)}; {_run_text([ledger])}", "dim")
    if ledger.timing is not None:
        beyond = found.seconds / ledger.timing.seconds - 1
        yield line(f"predicted against measured: {beyond:+.1%}")
    yield from _unknown_texts(found)


def compared_prediction_texts(comparison: Comparison, short: Mapping[str, str] | None = None) -> Iterator[TextLines]:
    """Where, then a line per system with its ratio against the first; nothing without `--predict`.

    In an overview, whose names are `short`, a line for each lane that is the longer one.
    """
    found = {
        name: ledger.prediction
        for name, ledger in zip(comparison.names, comparison.ledgers, strict=True)
        if ledger.prediction is not None
    }
    if not found:
        return
    first, width = next(iter(found)), max(map(len, found))
    yield line(f"on {prediction_where(found[first])}; {_run_text(comparison.ledgers)}", head="predicted time: ")
    if short is not None:
        for of_host, what in ((True, "host-bound: the host's"), (False, "device-bound: the kernels'")):
            names = [short[name] for name, one in found.items() if one.lanes and one.lanes.host_bound is of_host]
            if names:
                yield line(f"  {what} seconds are the longer lane, and predicted, of {', '.join(names)}")
    for name, one in found.items() if short is None else ():
        against = "" if name == first else f"; {units.ratio(one.seconds / found[first].seconds)} that of {first}"
        yield line(f"  {name:<{width}}  {units.seconds(one.seconds)}, {_range_text(one)}{against}")
        if one.lanes is not None:
            yield line(f"  {name:<{width}}  {_predicted_lanes_text(one.lanes)}")
    for name, one in found.items():
        yield from (
            text._replace(texts=[f"{short[name] if short else name}: {text.plain}"]) for text in _unknown_texts(one)
        )


def prediction_where(found: Prediction) -> str:
    """`cpu, AMD EPYC, 2 threads, calibrated 2026-11-22`; of a GPU, what its calls were recorded with."""
    if found.torch is not None:
        return f"{found.device}: calls recorded {found.calibrated[:10]} on {found.machine}, torch {found.torch}"
    return f"{where_text(found)}, calibrated {found.calibrated[:10]}"


def _predicted_lanes_text(lanes: Lanes) -> str:
    """`kernels 1.7 ms, host 8.4 ms: host-bound`."""
    bound = "host-bound" if lanes.host_bound else "device-bound"
    return f"kernels {units.seconds(lanes.kernels)}, host {units.seconds(lanes.host)}: {bound}"


def _run_text(ledgers: Sequence[Ledger]) -> str:
    """Was anything run? Code of a module that looks at values was, on the CPU, to record its calls."""
    ran = [ledger.metadata.name for ledger in ledgers if ledger.module is not None and ledger.module.tensors == "real"]
    return f"{', '.join(ran)} ran on the CPU to record its calls" if ran else "nothing was run"


def _range_text(found: Prediction) -> str:
    return f"nine in ten between {units.seconds(found.low)} and {units.seconds(found.high)}"


def _unknown_texts(found: Prediction) -> Iterator[TextLines]:
    if found.unknown:
        more = len(found.unknown) - _MOST_UNKNOWN
        names = ", ".join(found.unknown[:_MOST_UNKNOWN]) + (f" and {more} more" if more > 0 else "")
        yield line(f"rough estimates, never measured on this device: {names}", "yellow")


_WORST = 5


def parts(calibration: Calibration) -> Iterator[Part]:
    """The machine's peaks, and how well the calibrating networks are predicted, each from the others."""
    machine, peak = calibration.machine, calibration.baseline
    yield line(
        f"{machine.name}, {units.number_of(machine.threads, 'thread')}, {machine.dtype}, torch {machine.torch}", "bold"
    )
    yield line(
        f"matrix products {2 * peak.macs_per_second / 1e9:,.0f} GFLOP/s; "
        f"memory {peak.bytes_per_second / 1e9:,.1f} GB/s; shortest call {units.seconds(peak.call_seconds)}"
    )
    yield from _errors("networks", calibration.networks)
    if calibration.training:
        yield from _errors("training steps", calibration.training.networks)
    yield from _disturbances(calibration)


def _errors(what: str, networks: Sequence[Network]) -> Iterator[Part]:
    errors = {one.name: one.predicted / one.seconds - 1 for one in networks}
    sizes = sorted(abs(error) for error in errors.values())
    yield line(
        f"{len(errors)} {what}, each predicted from the others: median error {statistics.median(sizes):.1%}, "
        f"nine in ten within {nine_in_ten(sizes):.1%}; the worst:"
    )
    worst = sorted(networks, key=lambda one: -abs(errors[one.name]))[:_WORST]
    yield DataTable(
        numbers("network", "measured", "predicted", "error"),
        [
            [one.name, units.seconds(one.seconds), units.seconds(one.predicted), f"{errors[one.name]:+.1%}"]
            for one in worst
        ],
    )


def _disturbances(calibration: Calibration) -> Iterator[TextLines]:
    disturbed, networks = sum(one.disturbed for one in calibration.every_network), len(calibration.every_network)
    if disturbed:
        yield line(
            f"{disturbed} of {networks} networks were disturbed while they were measured (their calls do not add up to "
            "the whole): calibrate again on a machine that does nothing else",
            "yellow",
        )
    if calibration.off_pace:
        yield line(
            f"{calibration.off_pace} of {networks} networks were measured while the machine ran faster or slower than "
            "for the others (one product, timed beside each): predictions are of the pace of most",
            "yellow",
        )
