"""The prediction of a ledger."""

from __future__ import annotations

import msgspec

from xfcost.ledger.metadata import Lanes, Phase
from xfcost.ledger.units import Seconds


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a forward, a generation or a training step on a calibrated device, without running it."""

    device: str
    machine: str
    threads: int
    seconds: Seconds
    low: Seconds
    """From low to high: nine of ten networks of the calibration, each predicted from the others, lie within."""
    high: Seconds
    calibrated: str
    """When the device was measured (UTC)."""
    unknown: tuple[str, ...] = ()
    """ATen operations of the model that the calibration never measured."""
    not_attributed: float = 0.0
    """Seconds outside all rows: what calls of modules and views cost."""
    phases: tuple[Phase, ...] = ()
    """Prefill and decode steps of a generation."""
    update_seconds: float | None = None
    """Of the optimizer, in a training step."""
    lanes: Lanes | None = None
    """On a GPU the seconds of the host and of the kernels: the longer one is `seconds`; rows are parts of `kernels`."""
    torch: str | None = None
    """On a GPU the versions that its calls were recorded with."""
    peak_bytes: int | None = None
    """On a GPU: peak of live tensor bytes, parameters included."""

    @property
    def whole(self) -> float:
        """The seconds that the rows are parts of: of the run, on a GPU of its kernels."""
        return self.seconds if self.lanes is None else self.lanes.kernels
