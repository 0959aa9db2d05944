"""The roofline of a system: its operations by arithmetic intensity and achieved FLOP/s, under the machine's roofs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Mixing, Operation
from xfcost.ledger.roofs import Bound, Roofs
from xfcost.ledger.units import Count, Seconds

# A rate that exceeds the peak by less is within what two measurements differ.
_CLEARLY: Final = 1.1


class RooflinePoint(NamedTuple):
    """An operation in all blocks that have it. Figures are of all its blocks together."""

    title: str
    mixing: Mixing
    seconds: Seconds
    share: float
    """Of the time of the whole run."""
    flops: Count
    operand_bytes: Annotated[int, msgspec.Meta(ge=1)]
    """Bytes moved where nothing stays in a cache: inputs, outputs and parameters, each once."""

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOP per byte moved; 0 of what only moves data."""
        return self.flops / self.operand_bytes

    @property
    def flops_per_second(self) -> float:
        """The rate that it achieved."""
        return self.flops / self.seconds


class Roofline(NamedTuple):
    """A system's operations under the roofs of the machine that ran it, or that was predicted."""

    ledger: Ledger
    points: tuple[RooflinePoint, ...]
    """The longest first."""
    roofs: Roofs

    @property
    def name(self) -> str:
        """The system's name."""
        return self.ledger.metadata.name

    @property
    def predicted(self) -> bool:
        """Are the seconds predicted, and not measured?"""
        return self.ledger.timing is None

    @property
    def bounded(self) -> bool:
        """Are the seconds those at the roofs of given devices?"""
        return self.ledger.timing is None and self.ledger.on is not None

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return _whole(self.ledger)[0]

    @property
    def share_base(self) -> float:
        """The seconds that those of the operations are shares of: of the run, or their sum where that is more."""
        return self.seconds - min(self.not_attributed, 0.0)

    @property
    def not_attributed(self) -> float:
        """Seconds that no operation accounts for; negative where measuring the operations costs more."""
        return _whole(self.ledger)[1]

    @property
    def drawn(self) -> tuple[RooflinePoint, ...]:
        """The points with FLOPs: log axes have no zero."""
        return tuple(point for point in self.points if point.flops)

    def of_roof(self, point: RooflinePoint) -> float | None:
        """The share of the roof at its intensity that it achieved; None of what only moves data."""
        return point.flops_per_second / self.roofs.at(point.intensity) if point.flops else None

    def above_memory(self) -> tuple[RooflinePoint, ...]:
        """Memory-bound points that ran faster than memory gives their operands: those stayed in a cache."""
        if self.bounded:
            return ()
        found = (point for point in self.drawn if self.roofs.bound(point.intensity) == "memory-bound")
        return tuple(point for point in found if point.flops_per_second > self.roofs.at(point.intensity))

    def above_peak(self) -> tuple[RooflinePoint, ...]:
        """Points clearly faster than the peak, which was then measured on a busier machine."""
        return tuple(point for point in self.drawn if point.flops_per_second > _CLEARLY * self.roofs.flops_per_second)


def roofline_of(ledger: Ledger, roofs: Roofs) -> Roofline:
    """The points of a ledger whose rows have seconds, measured or predicted, and bytes."""
    found = Roofline(ledger, (), roofs)
    return found._replace(points=points_of(ledger.rows, found.share_base, predicted=ledger.timing is None))


def points_of(rows: Iterable[Operation], base: float, *, predicted: bool) -> tuple[RooflinePoint, ...]:
    """Rows of the same title and mixing kind together, the longest first; rows without seconds have no point.

    Shares are of the `base`, in seconds.

    Operations of a torch module have their paths as titles: its modules may all call a product `mm`.
    """
    groups: dict[tuple[str, Mixing], list[tuple[float, int, int]]] = {}
    for row in rows:
        seconds = row.predicted_seconds if predicted else row.seconds
        if seconds and row.operand_bytes:
            each = (seconds * row.times, row.flops * row.times, row.operand_bytes * row.times)
            title = row.title if row.ran is None else row.path
            groups.setdefault((title, row.mixing), []).append(each)
    points = []
    for (title, mixing), figures in groups.items():
        spent = sum(one[0] for one in figures)
        flops, held = sum(one[1] for one in figures), sum(one[2] for one in figures)
        points.append(RooflinePoint(title, mixing, spent, spent / base, flops, held))
    return tuple(sorted(points, key=lambda point: -point.seconds))


def _whole(ledger: Ledger) -> tuple[float, float]:
    """Seconds of the whole run, on a GPU of its kernels, and those of no operation."""
    if ledger.timing is not None:
        return ledger.timing.whole, ledger.timing.not_attributed or 0.0
    if ledger.on is not None:
        return sum((row.predicted_seconds or 0) * row.times for row in ledger.rows), 0.0
    if ledger.prediction is None:
        raise TypeError("only a timed or predicted ledger has a roofline")
    return ledger.prediction.whole, ledger.prediction.not_attributed


def records(found: Roofline) -> list[dict[str, Any]]:
    """One plain dict per point, in the order of the CSV's columns."""
    metadata, ran = found.ledger.metadata, found.ledger.timing or found.ledger.prediction
    where = {name: getattr(ran, name, None) for name in ("device", "machine", "threads")}
    where |= {"device": found.ledger.on.on.name} if found.bounded and found.ledger.on else {}
    run = {name: getattr(metadata, name) for name in ("batch", "dtype", "attention", "mode")}
    before = {"system": found.name, "N": metadata.grid_tokens} | run | where | {"predicted": found.predicted}
    peaks = {
        "peak_flops_per_second": found.roofs.flops_per_second,
        "peak_bytes_per_second": found.roofs.bytes_per_second,
    }
    return [before | _figures(found, point) | peaks for point in found.points]


def _figures(found: Roofline, point: RooflinePoint) -> dict[str, Any]:
    bound: Bound = found.roofs.bound(point.intensity)
    return {
        "operation": point.title,
        "mixing": point.mixing,
        "seconds": point.seconds,
        "share": point.share,
        "flops": point.flops,
        "operand_bytes": point.operand_bytes,
        "intensity": point.intensity,
        "flops_per_second": point.flops_per_second,
        "bytes_per_second": point.operand_bytes / point.seconds,
        "of_roof": found.of_roof(point),
        "bound": bound,
    }
