"""What `xfcost devices` prints: a line per device, or of one device every figure with its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from xfcost.ledger import units
from xfcost.ledger.device import PEAK_DTYPES, Device, DeviceFigure
from xfcost.ledger.json_objects import json_text
from xfcost.report.document import Document, Gap, Part, TextLines, table_of

# Peaks of the table of all devices; the others are in csv, json and the table of one device.
_SHOWN: Final = ("float32", "tf32", "bfloat16", "float16", "float8", "int8")
# Columns that a narrow screen has no room for, the first ones hidden first.
_HIDDEN_FIRST: Final = ("tf32", "int8", "fp16", "link", "fp8", "fp32", "per hour", "bytes/s", "bf16")
_TEXT: Final = {"device": 0, "figure": 0, "source": 30}
_SHORT: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8": "fp8"}


def document(found: Sequence[Device]) -> Document:
    """A line per device; one device alone with all figures and sources."""
    return Document(
        parts=lambda: _one(found[0]) if len(found) == 1 else _several(found),
        records=lambda: [_record(device) for device in found],
        json=lambda: json_text([msgspec.to_builtins(device) for device in found]),
        prose=True,
    )


def _several(found: Sequence[Device]) -> Iterator[Part]:
    dtypes = [dtype for dtype in _SHOWN if any(dtype in device.peaks for device in found)]
    priced = any(one.price_per_hour is not None for one in found)
    yield table_of([_line(device, dtypes, priced=priced) for device in found], _TEXT, _HIDDEN_FIRST)
    notes = ["fp32 to int8: dense peaks, FLOP/s (int8: operations/s); link: bytes/s in one direction"]
    if any(device.memory is not None and device.memory_kind != "usable" for device in found):
        notes.append(
            "*: memory size on the label (for this machine, all memory); others: memory that the driver "
            "reports, before any context"
        )
    notes.append(
        "`xfcost devices h100-sxm` lists all figures of one device, with sources; docs/choosing-devices.md explains "
        "how to add your own"
    )
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
    yield from (Gap(), table_of(list(figures(device)), _TEXT), Gap())
    if device.also:
        yield TextLines([f"named in short: {', '.join(device.also)}"])
    if device.price_per_hour is not None:
        yield TextLines([f"price per hour: {_price(device)} (your entry)"])
    yield TextLines([f"note: {note}" for note in device.notes], ended=True)
    yield TextLines([f"{key}: {one.title}{f', {one.url}' if one.url else ''}" for key, one in device.sources.items()])


def figures(device: Device) -> Iterator[dict[str, str]]:
    """Every figure, in words."""

    def row(name: str, text: str, figure: DeviceFigure, ridge_point: float | None = None) -> dict[str, str]:
        ridge = units.DASH if ridge_point is None else f"{ridge_point:,.4g}"
        source = "; ".join(filter(None, (", ".join(figure.sources), figure.note)))
        return {"figure": name, "value": text, "ridge point": ridge, "source": source}

    if device.memory is not None:
        yield row(f"memory ({device.memory_kind})", units.size(int(device.memory.value)), device.memory)
    yield row("bandwidth", f"{units.count(device.bandwidth.value)}B/s", device.bandwidth)
    for dtype in PEAK_DTYPES:
        if (figure := device.peaks.get(dtype)) is not None:
            text = f"{units.count(figure.value)}{'OP/s' if dtype == 'int8' else 'FLOP/s'}"
            yield row(f"peak {dtype}", text, figure, device.ridge_point(dtype))
    if (link := device.link) is not None:
        joins = "" if device.node is None else f", joins {device.node}"
        yield row(f"link ({link.name}{joins})", f"{units.count(link.rate.value)}B/s", link.rate)
    if (network := device.network) is not None:
        yield row(f"network ({network.name})", f"{units.count(network.rate.value)}B/s", network.rate)


def _record(device: Device) -> dict[str, Any]:
    """One plain dict of raw values."""
    names = ("title", "vendor", "year", "memory_bytes", "memory_kind", "bytes_per_second")
    found: dict[str, Any] = {"device": device.name} | {name: getattr(device, name) for name in names}
    for dtype in PEAK_DTYPES:
        found[f"peak_{dtype}"] = device.peaks[dtype].value if dtype in device.peaks else None
    for name, one in (("link", device.link), ("network", device.network)):
        found |= {name: one and one.name, f"{name}_bytes_per_second": one and one.rate.value}
        found |= {"link_devices": device.node} if name == "link" else {}
    return found | {"price_per_hour": device.price_per_hour, "sources": " ".join(device.sources)}
