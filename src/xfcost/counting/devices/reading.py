"""The text of a devices.yaml -> devices: every figure with its unit checked, every error with file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from xfcost.ledger.device import PEAK_DTYPES, Device, DeviceSource, Figure, Link
from xfcost.ledger.errors import SpecError, nearest, printable
from xfcost.ledger.quantities import read_number
from xfcost.spec.reader import Source, YamlPath, read, shown_value

_KEYS: Final = ("title", "vendor", "year", "memory", "bandwidth", "peaks", "link", "price_per_hour", "notes")
_NEEDED: Final = ("bandwidth", "peaks")
_MOST_PRICE: Final = 1e9
OWN: Final = "own"
"""The key of the source of figures in a user's file that name none."""


class _Kind(msgspec.Struct, frozen=True):
    """A kind of figure: its units, its bounds and an example, for messages."""

    what: str
    unit: re.Pattern[str]
    least: float
    most: float
    example: str


# Bounds refuse figures without the prefix of their unit: 989.4 in place of 989.4 TFLOP/s.
_PEAK: Final = _Kind(
    "dense FLOP/s", re.compile(r"\s*(FLOP/s|FLOPS|OP/s|OPS)\s*$", re.IGNORECASE), 1e9, 1e19, "989.4 TFLOP/s or 989.4T"
)
_RATE: Final = _Kind("bytes per second", re.compile(r"\s*B(/s|ps)\s*$", re.IGNORECASE), 1e8, 1e16, "3350 GB/s")
_MEMORY: Final = _Kind("bytes", re.compile(r"\s*B\s*$", re.IGNORECASE), 1e8, 1e15, "79.1 GiB or 80 GB")
_MEMORY_KINDS: Final = ("usable", "nominal")


def _read(text: str, name: str) -> tuple[dict[str, Any], Source]:
    """The mapping in `text`.

    Raises:
        SpecError: it is no YAML, or no mapping.
    """
    try:
        return read(text, name)
    except SpecError as error:
        what, of_specs, _ = str(error).partition("; expected a mapping with")
        mend = "; expected `devices:` and under it a name with its figures" if of_specs else ""
        raise SpecError(f"{what}{mend}", error.location) from None


class DeviceFile:
    """The entries of one devices.yaml, each read when it is asked for.

    Args:
        text: its text.
        name: the file's name, for messages.
        own: is it a user's, whose figures need no source?

    Raises:
        SpecError: it is no YAML, or its keys are not `sources` and `devices`.
    """

    def __init__(self, text: str, name: str, *, own: bool) -> None:
        data, self._source = _read(text, name)
        self._name, self._own = name, own
        for key in data:
            if key not in {"sources", "devices"}:
                raise self._source.error((key,), f"unknown key; {nearest(key, ('sources', 'devices'))}")
        self._sources = self._read_sources(data.get("sources") or {})
        self._entries = self._mapping(data.get("devices"), ("devices",))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """The devices, in the order of the file."""
        return tuple(self._entries)

    def bad_name(self, name: str, why: str) -> SpecError:
        """The error of an entry's name, with its line."""
        return self._source.error(("devices", name), why)

    def device(self, name: str, base: Device | None = None) -> Device:
        """The device `name`; its figures replace those of `base`.

        Raises:
            SpecError: a figure is missing, has no unit, no source, or is out of range.
        """
        path = ("devices", name)
        entry = self._mapping(self._entries[name], path)
        for key in entry:
            if key not in _KEYS:
                raise self._source.error((*path, key), f"unknown key; {nearest(key, _KEYS)}")
        fields = self._fields(entry, path, base)
        if base is not None:
            used = self._used(fields)
            return msgspec.structs.replace(base, **fields, sources=dict(base.sources) | used)
        for key in _NEEDED:
            if key not in fields:
                raise self._source.error(path, f"`{key}` is missing; a device has at least {' and '.join(_NEEDED)}")
        defaults = {"title": name, "vendor": ""}
        return Device(name=name, **defaults | fields, sources=self._used(fields))

    def _fields(self, entry: Mapping[str, Any], path: YamlPath, base: Device | None) -> dict[str, Any]:
        readers: dict[str, Callable[[Any, YamlPath], Any]] = {
            "title": self._text,
            "vendor": self._text,
            "year": self._year,
            "memory": lambda given, at: self._figure(given, at, _MEMORY),
            "bandwidth": lambda given, at: self._figure(given, at, _RATE),
            "peaks": lambda given, at: (dict(base.peaks) if base else {}) | self._peaks(given, at),
            "link": self._link,
            "price_per_hour": self._price,
            "notes": self._notes,
        }
        fields = {key: readers[key](value, (*path, key)) for key, value in entry.items()}
        if "memory" in fields:
            fields["memory_kind"] = self._memory_kind(entry["memory"], (*path, "memory"))
        return fields

    def _peaks(self, given: Any, path: YamlPath) -> dict[str, Figure]:
        peaks = self._mapping(given, path)
        for dtype in peaks:
            if dtype not in PEAK_DTYPES:
                raise self._source.error((*path, dtype), f"no such dtype; {nearest(dtype, PEAK_DTYPES)}")
        if not peaks:
            raise self._source.error(path, f"expected a peak of one dtype or more, as in bfloat16: {_PEAK.example}")
        return {dtype: self._figure(value, (*path, dtype), _PEAK) for dtype, value in peaks.items()}

    def _figure(self, given: Any, path: YamlPath, kind: _Kind) -> Figure:
        """A figure as `{value, sources, note}`, or, in a user's file, its value alone."""
        parts = given if isinstance(given, dict) else {"value": given}
        known = ("value", "sources", "note", *(("kind",) if kind is _MEMORY else ()))
        for key in parts:
            if key not in known:
                raise self._source.error((*path, key), f"unknown key; {nearest(key, known)}")
        keys = parts.get("sources") or ([OWN] if self._own else [])
        if not isinstance(keys, list) or not keys:
            raise self._source.error(path, "a figure without source; expected sources: [KEY, …], of `sources`")
        for number, key in enumerate(keys):
            if key != OWN and key not in self._sources:
                at = (*path, "sources", number)
                raise self._source.error(
                    at, f"{shown_value(key)} is not in `sources`; {nearest(str(key), self._sources)}"
                )
        note = None if parts.get("note") is None else self._text(parts["note"], (*path, "note"))
        return Figure(value=self._value(parts.get("value"), path, kind), sources=tuple(keys), note=note)

    def _value(self, given: Any, path: YamlPath, kind: _Kind) -> float:
        try:
            value = float(read_number(kind.unit.sub("", str(given)))) if not isinstance(given, bool) else 0.0
        except (ValueError, OverflowError):
            value = 0.0
        if not kind.least <= value <= kind.most:
            raise self._source.error(
                path,
                f"{shown_value(given)}: expected {kind.what} from {kind.least:g} to {kind.most:g} with the prefix of "
                f"the unit, as in {kind.example}",
            )
        return value

    def _memory_kind(self, given: Any, path: YamlPath) -> str:
        kind = given.get("kind", "nominal") if isinstance(given, dict) else "usable" if self._own else "nominal"
        if kind not in _MEMORY_KINDS:
            raise self._source.error((*path, "kind"), f"{shown_value(kind)}; {nearest(str(kind), _MEMORY_KINDS)}")
        return str(kind)

    def _link(self, given: Any, path: YamlPath) -> Link:
        parts = self._mapping(given, path)
        if set(parts) != {"name", "rate"}:
            raise self._source.error(path, "expected {name: …, rate: …}, as in {name: NVLink 4, rate: 450 GB/s}")
        return Link(
            name=self._text(parts["name"], (*path, "name")), rate=self._figure(parts["rate"], (*path, "rate"), _RATE)
        )

    def _price(self, given: Any, path: YamlPath) -> float:
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _MOST_PRICE:
            raise self._source.error(path, f"{shown_value(given)}: expected a price per hour of one device, as in 2.5")
        return float(given)

    def _year(self, given: Any, path: YamlPath) -> int:
        if isinstance(given, bool) or not isinstance(given, int):
            raise self._source.error(path, f"{shown_value(given)}: expected a year, as in 2022")
        return given

    def _notes(self, given: Any, path: YamlPath) -> tuple[str, ...]:
        if not isinstance(given, list):
            raise self._source.error(path, f"{shown_value(given)}: expected a list of sentences")
        return tuple(self._text(note, (*path, number)) for number, note in enumerate(given))

    def _text(self, given: Any, path: YamlPath) -> str:
        if not isinstance(given, str) or not given:
            raise self._source.error(path, f"{shown_value(given)}: expected a text")
        return printable(given, 300)

    def _mapping(self, given: Any, path: YamlPath) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise self._source.error(path, f"{shown_value(given)}: expected keys and values")
        return given

    def _read_sources(self, given: Any) -> dict[str, DeviceSource]:
        found = {}
        for key, value in self._mapping(given, ("sources",)).items():
            try:
                found[key] = msgspec.convert(value, DeviceSource)
            except msgspec.ValidationError as error:
                raise self._source.error(("sources", key), f"{error}; expected {{title: …, url: …}}") from None
        return found

    def _used(self, fields: Mapping[str, Any]) -> dict[str, DeviceSource]:
        """The sources of the figures in `fields`."""
        link = fields.get("link")
        figures = [*fields.get("peaks", {}).values(), fields.get("memory"), fields.get("bandwidth"), link and link.rate]
        known = self._sources | ({OWN: DeviceSource(title=self._name)} if self._own else {})
        return {key: known[key] for figure in figures if figure for key in figure.sources if key in known}
