"""What `xfcost devices` prints: a line per device, or of one device every figure with its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger import units
from xfcost.ledger.device import PEAK_DTYPES, Device, DeviceFigure, Link
from xfcost.ledger.objects import json_text
from xfcost.report.document import Document, Gap, Part, TableColumn, TextLines, table_of

# Peaks of the table of all devices; the others are in csv, json and the table of one device.
_SHOWN: Final = ("float32", "tf32", "bfloat16", "float16", "float8", "int8")
# Columns that a narrow screen has no room for, the first ones hidden first.
_HIDDEN_FIRST: Final = ("tf32", "int8", "fp16", "link", "fp8", "fp32", "per hour", "bytes/s", "bf16")
_SHORT: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8": "fp8"}


class Described(NamedTuple):
    """A figure of a device in words."""

    name: str
    text: str
    figure: DeviceFigure
    ridge_point: float | None = None


def document(found: Sequence[Device]) -> Document:
    """A line per device; one device alone with all figures and sources."""
    return Document(
        parts=lambda: _one(found[0]) if len(found) == 1 else _several(found),
        records=lambda: [_record(device) for device in found],
        json=lambda: json_text([msgspec.to_builtins(device) for device in found]),
        prose=True,
    )


def _column(head: str) -> TableColumn:
    rank = _HIDDEN_FIRST.index(head) if head in _HIDDEN_FIRST else None
    words = head in ("device", "figure", "source")
    return TableColumn(head, right=not words, fold=30 if head == "source" else 0, rank=rank)


def _several(found: Sequence[Device]) -> Iterator[Part]:
    dtypes = [dtype for dtype in _SHOWN if any(dtype in device.peaks for device in found)]
    priced = any(one.price_per_hour is not None for one in found)
    yield table_of([_line(device, dtypes, priced=priced) for device in found], _column)
    notes = ["fp32 to int8: dense peaks, FLOP/s (int8: operations/s); link: bytes/s in one direction"]
    if any(device.memory is not None and device.memory_kind != "usable" for device in found):
        notes.append("*: the label (of this machine, all of it); others: what the driver reports, before any context")
    notes.append("`xfcost devices h100-sxm`: all figures of one, with sources; your own: docs/devices.md")
    yield from (Gap(), TextLines(notes, "dim", ended=True))


def _line(device: Device, dtypes: Sequence[str], *, priced: bool) -> dict[str, str]:
    memory = units.DASH
    if device.memory_bytes is not None:
        memory = units.size(device.memory_bytes, 3) + ("" if device.memory_kind == "usable" else "*")
    cells = {"device": device.name, "memory": memory, "bytes/s": units.count(device.bytes_per_second, 3)}
    for dtype in dtypes:
        figure = device.peaks.get(dtype)
        cells[_SHORT.get(dtype, dtype)] = units.DASH if figure is None else units.count(figure.value, 3)
    cells["link"] = units.DASH if device.link is None else units.count(device.link.rate.value, 3)
    return cells | ({"per hour": _price(device)} if priced else {})


def _price(device: Device) -> str:
    return units.DASH if device.price_per_hour is None else f"{device.price_per_hour:,g}"


def _one(device: Device) -> Iterator[Part]:
    measured = f"measured {device.calibrated}" if device.calibrated else ""
    more = "   ".join(str(part) for part in (device.name, device.vendor, device.year, measured) if part)
    yield TextLines([f"   {more}"], head=device.title)
    rows = [
        {
            "figure": one.name,
            "value": one.text,
            "ridge point": units.DASH if one.ridge_point is None else f"{one.ridge_point:,.4g}",
            "source": "; ".join(filter(None, (", ".join(one.figure.sources), one.figure.note))),
        }
        for one in figures(device)
    ]
    yield from (Gap(), table_of(rows, _column), Gap())
    if device.price_per_hour is not None:
        yield TextLines([f"price per hour: {_price(device)} (your entry)"])
    yield TextLines([f"note: {note}" for note in device.notes], ended=True)
    yield TextLines([f"{key}: {one.title}{f', {one.url}' if one.url else ''}" for key, one in device.sources.items()])


def figures(device: Device) -> Iterator[Described]:
    """Every figure, in words."""
    if device.memory is not None:
        yield Described(f"memory ({device.memory_kind})", units.size(int(device.memory.value)), device.memory)
    yield Described("bandwidth", f"{units.count(device.bandwidth.value)}B/s", device.bandwidth)
    for dtype in PEAK_DTYPES:
        if (figure := device.peaks.get(dtype)) is not None:
            what = "OP/s" if dtype == "int8" else "FLOP/s"
            text = f"{units.count(figure.value)}{what}"
            yield Described(f"peak {dtype}", text, figure, device.ridge_point(dtype))
    if device.link is not None:
        joins = "" if device.node is None else f", joins {device.node}"
        yield Described(f"link ({device.link.name}{joins})", _rate(device.link), device.link.rate)
    if device.network is not None:
        yield Described(f"network ({device.network.name})", _rate(device.network), device.network.rate)


def _rate(link: Link) -> str:
    return f"{units.count(link.rate.value)}B/s"


def _record(device: Device) -> dict[str, Any]:
    """One plain dict of raw values."""
    return {
        "device": device.name,
        "title": device.title,
        "vendor": device.vendor,
        "year": device.year,
        "memory_bytes": device.memory_bytes,
        "memory_kind": device.memory_kind,
        "bytes_per_second": device.bytes_per_second,
        **{f"peak_{dtype}": device.peaks[dtype].value if dtype in device.peaks else None for dtype in PEAK_DTYPES},
        "link": None if device.link is None else device.link.name,
        "link_bytes_per_second": None if device.link is None else device.link.rate.value,
        "link_devices": device.node,
        "network": None if device.network is None else device.network.name,
        "network_bytes_per_second": None if device.network is None else device.network.rate.value,
        "price_per_hour": device.price_per_hour,
        "sources": " ".join(device.sources),
    }
