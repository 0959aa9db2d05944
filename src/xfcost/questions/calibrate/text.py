"""What a calibration found, as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from xfcost.ledger import units
from xfcost.ledger.calibration import Calibration, Network
from xfcost.ledger.statistics import nine_in_ten
from xfcost.report.document import DataTable, Part, TextLines, line, numbers

_WORST: Final = 5


def calibration_parts(calibration: Calibration) -> Iterator[Part]:
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
