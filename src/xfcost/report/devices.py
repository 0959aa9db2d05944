"""What `xfcost devices` prints: a line per device, or of one device every figure with its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from xfcost.ledger import units
from xfcost.ledger.device import PEAK_DTYPES, Device, DeviceFigure
from xfcost.report.formats import formatted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format

# Peaks of the table of all devices; the others are in csv, json and the table of one device.
_SHOWN: Final = ("float32", "tf32", "bfloat16", "float16", "float8", "int8")
# Columns that a narrow screen has no room for, the first ones hidden first.
_HIDDEN_FIRST: Final = ("tf32", "int8", "fp16", "link", "fp8", "fp32", "per hour", "bytes/s", "bf16")
_GAP: Final = 2
_SHORT: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float8": "fp8"}


class Described(NamedTuple):
    """A figure of a device in words."""

    name: str
    text: str
    figure: DeviceFigure
    ridge_point: float | None = None


def devices_text(found: Sequence[Device], form: Format) -> str:
    """The devices in a format."""
    from xfcost.ledger.objects import json_text

    return formatted(
        form,
        json=lambda: json_text([_object(device) for device in found]),
        rows=lambda: [_record(device) for device in found],
        table=lambda width: render(found, width),
        markup=lambda: _markup(found, form),
    )


def render(found: Sequence[Device], width: int) -> RenderableType:
    """A line per device, with the columns that fit; one device alone with all figures and sources."""
    from rich.console import Group
    from rich.text import Text

    if len(found) == 1:
        return _one(found[0])
    rows = lines(found)
    heads = _fitting(rows, width)
    hidden = [head for head in rows[0] if head not in heads]
    narrow = [f"hidden at this width: {', '.join(hidden)}"] if hidden else []
    table = _table([{head: row[head] for head in heads} for row in rows])
    return Group(table, Text(), *(Text(note, style="dim") for note in (*narrow, *notes(found))))


def _fitting(rows: Sequence[dict[str, str]], width: int) -> list[str]:
    """The columns that fit unbroken."""
    heads = list(rows[0])
    needed = {head: max(len(head), *(len(row[head]) for row in rows)) + _GAP for head in heads}
    for head in _HIDDEN_FIRST:
        if sum(needed[one] for one in heads) - _GAP <= width:
            break
        if head in heads:
            heads.remove(head)
    return heads


def lines(found: Sequence[Device]) -> list[dict[str, str]]:
    """The table of several devices, as text."""
    dtypes = [dtype for dtype in _SHOWN if any(dtype in device.peaks for device in found)]
    return [_line(device, dtypes, priced=any(one.price_per_hour is not None for one in found)) for device in found]


def _line(device: Device, dtypes: Sequence[str], *, priced: bool) -> dict[str, str]:
    cells = {"device": device.name, "memory": _memory(device), "bytes/s": units.count(device.bytes_per_second, 3)}
    for dtype in dtypes:
        figure = device.peaks.get(dtype)
        cells[_SHORT.get(dtype, dtype)] = units.DASH if figure is None else units.count(figure.value, 3)
    cells["link"] = units.DASH if device.link is None else units.count(device.link.rate.value, 3)
    return cells | ({"per hour": _price(device)} if priced else {})


def _memory(device: Device) -> str:
    mark = "" if device.memory_kind == "usable" else "*"
    return units.DASH if device.memory_bytes is None else f"{units.size(device.memory_bytes, 3)}{mark}"


def _price(device: Device) -> str:
    return units.DASH if device.price_per_hour is None else f"{device.price_per_hour:,g}"


def notes(found: Sequence[Device]) -> Iterator[str]:
    """What the columns are."""
    yield "fp32 to int8: dense peaks, FLOP/s (int8: operations/s); link: bytes/s in one direction"
    if any(device.memory is not None and device.memory_kind != "usable" for device in found):
        yield "*: the label (of this machine, all of it); others: what the driver reports, before any context"
    yield "`xfcost devices h100-sxm`: all figures of one, with sources; your own: docs/devices.md"


def _table(rows: Sequence[dict[str, str]]) -> RenderableType:
    from xfcost.report.console import bare_table

    table = bare_table(None)
    for head in rows[0]:
        words = head in {"device", "figure", "source"}
        table.add_column(head, justify="left" if words else "right", no_wrap=head != "source", overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    return table


def _one(device: Device) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    head = Text.assemble((device.title, "bold"), f"   {heading(device)}")
    rows = [
        Text(f"{key}: {source.title}{f', {source.url}' if source.url else ''}")
        for key, source in device.sources.items()
    ]
    own = [Text(f"price per hour: {_price(device)} (your entry)")] if device.price_per_hour is not None else []
    own_notes = [Text(f"note: {note}") for note in device.notes]
    return Group(head, Text(), _table(figure_lines(device)), Text(), *own, *own_notes, *rows)


def heading(device: Device) -> str:
    """`h100-sxm   NVIDIA   2022`."""
    measured = f"measured {device.calibrated}" if device.calibrated else ""
    return "   ".join(str(part) for part in (device.name, device.vendor, device.year, measured) if part)


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
        yield Described(f"link ({device.link.name})", f"{units.count(device.link.rate.value)}B/s", device.link.rate)


def figure_lines(device: Device) -> list[dict[str, str]]:
    """The table of one device."""
    return [
        {
            "figure": one.name,
            "value": one.text,
            "ridge point": units.DASH if one.ridge_point is None else f"{one.ridge_point:,.4g}",
            "source": "; ".join(filter(None, (", ".join(one.figure.sources), one.figure.note))),
        }
        for one in figures(device)
    ]


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
        "price_per_hour": device.price_per_hour,
        "sources": " ".join(device.sources),
    }


def _object(device: Device) -> dict[str, Any]:
    """The object of `--format json`: every figure with its sources."""
    return msgspec.to_builtins(device)  # type: ignore[no-any-return]


def _markup(found: Sequence[Device], form: Format) -> str:
    from xfcost.report.export import to_markup
    from xfcost.report.latex import latex

    rows = figure_lines(found[0]) if len(found) == 1 else lines(found)
    written: Callable[[str], str] = latex if form == "latex" else str
    below = found[0].notes if len(found) == 1 else tuple(notes(found))
    head = [f"{written(f'{found[0].title}, {heading(found[0])}')}\n"] if len(found) == 1 else []
    return "\n".join([*head, to_markup(rows, form), *(f"{written(note)}.\n" for note in below)])
