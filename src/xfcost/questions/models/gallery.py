"""The presets, and what each costs at its own size; the published models that are known by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from xfcost.counting.forward import count
from xfcost.spec.load import load, preset_files
from xfcost.spec.models import models, squeezed
from xfcost.spec.placement import place
from xfcost.spec.run import Run

QUANTITIES: Final = ("params", "macs")


def gallery_rows(named: Sequence[str] = (), *, totals: bool) -> list[dict[str, Any]]:
    """One plain dict per preset: family, preset, and with `totals` its name, tokens, parameters and MACs (raw).

    `named` are texts, one of which is in the name of the preset or its family; by default all presets have one.
    """
    rows = []
    for preset, file in preset_files().items():
        row: dict[str, Any] = {"family": file.parent.name, "preset": preset}
        if not _has(named, *row.values()):
            continue
        if totals:
            ledger = count(place(load(preset), Run()), orders=False)
            row |= {"name": ledger.metadata.name, "tokens": ledger.metadata.tokens}
            row |= {quantity: ledger.total(quantity) for quantity in QUANTITIES}
        rows.append(row)
    return rows


def model_rows(named: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One plain dict per published model, likewise."""
    return [
        {"model": name, "name": one.title, "params": one.params, "source": one.source, "config": one.config}
        for name, one in models().items()
        if _has(named, name, one.title)
    ]


def _has(named: Sequence[str], *texts: str) -> bool:
    """Is one of the names in one of the texts, in any case and spelling, or is none given?"""
    return not named or any(squeezed(name) in squeezed(text) for name in named for text in texts)
