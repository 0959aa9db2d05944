"""The presets, and what each costs at its own size; the published models that are known by name."""

from __future__ import annotations

from typing import Any, Final

from xfcost.counting.forward import count
from xfcost.spec.load import load, preset_files
from xfcost.spec.models import models
from xfcost.spec.placement import place
from xfcost.spec.run import Run

QUANTITIES: Final = ("params", "macs")


def gallery_rows(*, totals: bool) -> list[dict[str, Any]]:
    """One plain dict per preset: family, preset, and with `totals` its name, tokens, parameters and MACs (raw)."""
    rows = []
    for preset, file in preset_files().items():
        row: dict[str, Any] = {"family": file.parent.name, "preset": preset}
        if totals:
            ledger = count(place(load(preset), Run()), orders=False)
            row |= {"name": ledger.metadata.name, "tokens": ledger.metadata.tokens}
            row |= {quantity: ledger.total(quantity) for quantity in QUANTITIES}
        rows.append(row)
    return rows


def model_rows() -> list[dict[str, Any]]:
    """One plain dict per published model."""
    return [
        {"model": name, "name": one.title, "params": one.params, "source": one.source, "config": one.config}
        for name, one in models().items()
    ]
