"""Predicted seconds of a run that did not happen."""

from __future__ import annotations

import msgspec

from xfcost.ledger.metadata import Phase


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a forward, a generation or a training step on a calibrated device, without running it."""

    device: str
    machine: str
    threads: int
    seconds: float
    low: float
    """From low to high: nine of ten networks of the calibration, each predicted from the others, lie within."""
    high: float
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
