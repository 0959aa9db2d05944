"""`h100-sxm[x8]` -> the devices of that name: shipped ones, those of the user's own devices.yaml, and this machine.

Every figure's unit is checked; every error names file and line.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from xfcost.ledger import calibration
from xfcost.ledger.calibration import EXPECTED_CALIBRATION, FORMAT, VERSION, Baseline, CalibratedMachine
from xfcost.ledger.device import PEAK_DTYPES, THIS_MACHINE, Device, DeviceFigure, DeviceGroup, DeviceSource, Link
from xfcost.ledger.errors import MOST_NAMES, SpecError, UsageError, near_names, nearest, printable, shown
from xfcost.ledger.execution import MOST_DEVICES
from xfcost.ledger.files import Expected, read_bytes
from xfcost.ledger.read_numbers import read_number, whole_number
from xfcost.ledger.roofs import roofs_of
from xfcost.ledger.units import number_of, size
from xfcost.spec.reader import YamlPath, read, read_file, shown_value

_NEEDED: Final = ("bandwidth", "peaks")
_MOST_PRICE: Final = 1e9
OWN: Final = "own"
"""The key of the source of figures in a user's file that name none."""


class _FigureKind(msgspec.Struct, frozen=True):
    """A kind of figure: its units, its bounds and an example, for messages."""

    what: str
    unit: re.Pattern[str]
    least: float
    most: float
    example: str


# Bounds refuse figures without the prefix of their unit: 989.4 instead of 989.4 TFLOP/s.
_PEAK: Final = _FigureKind(
    "dense FLOP/s", re.compile(r"\s*(FLOP/s|FLOPS|OP/s|OPS)\s*$", re.IGNORECASE), 1e9, 1e19, "989.4 TFLOP/s or 989.4T"
)
_RATE: Final = _FigureKind("bytes per second", re.compile(r"\s*B(/s|ps)\s*$", re.IGNORECASE), 1e8, 1e16, "3350 GB/s")
_MEMORY: Final = _FigureKind("bytes", re.compile(r"\s*B\s*$", re.IGNORECASE), 1e8, 1e15, "79.1 GiB or 80 GB")
_MEMORY_KINDS: Final = ("usable", "nominal")


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
        try:
            data, self._source = read(text, name)
        except SpecError as error:
            what, of_specs, _ = str(error).partition("; expected a mapping with")
            mend = "; expected `devices:` and under it a name with its figures" if of_specs else ""
            raise SpecError(f"{what}{mend}", error.location) from None
        self._name, self._own = name, own
        for key in data:
            if key not in {"sources", "devices"}:
                raise self._source.error((key,), f"unknown key; {nearest(key, ('sources', 'devices'))}")
        self._sources: dict[str, DeviceSource] = {}
        for key, value in self._mapping(data.get("sources") or {}, ("sources",)).items():
            try:
                self._sources[key] = msgspec.convert(value, DeviceSource)
            except msgspec.ValidationError as error:
                raise self._source.error(("sources", key), f"{error}; expected {{title: …, url: …}}") from None
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
            "driver": self._text,
            "also": self._names,
            "vendor": self._text,
            "year": lambda given, at: self._number(given, at, "a year, as in 2022"),
            "generation": self._text,
            "memory": lambda given, at: self._figure(given, at, _MEMORY),
            "bandwidth": lambda given, at: self._figure(given, at, _RATE),
            "peaks": lambda given, at: (dict(base.peaks) if base else {}) | self._peaks(given, at),
            "link": self._link,
            "network": self._link,
            "node": self._node,
            "price_per_hour": lambda given, at: float(
                self._number(given, at, "a price per hour of one device, as in 2.5", int | float, 0, _MOST_PRICE)
            ),
            "notes": self._notes,
        }
        for key in entry:
            if key not in readers:
                raise self._source.error((*path, key), f"unknown key; {nearest(key, readers)}")
        fields = {key: readers[key](value, (*path, key)) for key, value in entry.items()}
        if "memory" in fields:
            fields["memory_kind"] = self._memory_kind(entry["memory"], (*path, "memory"))
        return fields

    def _peaks(self, given: Any, path: YamlPath) -> dict[str, DeviceFigure]:
        peaks = self._mapping(given, path)
        for dtype in peaks:
            if dtype not in PEAK_DTYPES:
                raise self._source.error((*path, dtype), f"no such dtype; {nearest(dtype, PEAK_DTYPES)}")
        if not peaks:
            raise self._source.error(path, f"expected a peak of one dtype or more, as in bfloat16: {_PEAK.example}")
        return {dtype: self._figure(value, (*path, dtype), _PEAK) for dtype, value in peaks.items()}

    def _figure(self, given: Any, path: YamlPath, kind: _FigureKind) -> DeviceFigure:
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
        return DeviceFigure(value=self._value(parts.get("value"), path, kind), sources=tuple(keys), note=note)

    def _value(self, given: Any, path: YamlPath, kind: _FigureKind) -> float:
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
        if set(parts) - {"mesh"} != {"name", "rate"}:
            raise self._source.error(path, "expected {name: …, rate: …}, as in {name: NVLink 4, rate: 450 GB/s}")
        return Link(
            name=self._text(parts["name"], (*path, "name")),
            rate=self._figure(parts["rate"], (*path, "rate"), _RATE),
            mesh=self._node(parts["mesh"], (*path, "mesh")) if "mesh" in parts else None,
        )

    def _node(self, given: Any, path: YamlPath) -> int:
        return int(self._number(given, path, "how many devices the link joins, as in 8", int, 2, MOST_DEVICES))

    def _number(
        self, given: Any, path: YamlPath, what: str, kind: Any = int, least: float = -inf, most: float = inf
    ) -> Any:
        if isinstance(given, bool) or not isinstance(given, kind) or not least <= given <= most:
            raise self._source.error(path, f"{shown_value(given)}: expected {what}")
        return given

    def _names(self, given: Any, path: YamlPath) -> tuple[str, ...]:
        if not isinstance(given, list):
            raise self._source.error(path, f"{shown_value(given)}: expected a list of names")
        return tuple(self._text(name, (*path, number)) for number, name in enumerate(given))

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

    def _used(self, fields: Mapping[str, Any]) -> dict[str, DeviceSource]:
        rates = [link.rate for link in (fields.get("link"), fields.get("network")) if link is not None]
        figures = [*fields.get("peaks", {}).values(), fields.get("memory"), fields.get("bandwidth"), *rates]
        known = self._sources | ({OWN: DeviceSource(title=self._name)} if self._own else {})
        return {key: known[key] for figure in figures if figure for key in figure.sources if key in known}


_SOURCE: Final = "calibration"


class _Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a calibration that a device needs; its samples are not read."""

    format: str
    version: int
    machine: CalibratedMachine
    measured: str
    baseline: Baseline


def calibrated_names() -> list[str]:
    """`this-machine` where one processor or GPU is calibrated, `this-machine-cpu` and so on where several are."""
    kinds = list(_calibrations(calibration.folder()))
    return [THIS_MACHINE] if len(kinds) == 1 else [f"{THIS_MACHINE}-{kind}" for kind in kinds]


def calibrated_device(name: str) -> Device:
    """The calibrated device of one of `names()`."""
    kinds = _calibrations(calibration.folder())
    kind = next(iter(kinds)) if name == THIS_MACHINE else name.removeprefix(f"{THIS_MACHINE}-")
    found = kinds[kind]
    latest, machine = found[-1], found[-1].machine
    of_dtype = {one.machine.dtype: one for one in found}

    def measured(value: float) -> DeviceFigure:
        return DeviceFigure(value=value, sources=(_SOURCE,))

    memory: DeviceFigure | None = None
    if kind == "cpu":
        with suppress(AttributeError, ValueError, OSError):  # a system that does not report its memory
            pages = os.sysconf("SC_PHYS_PAGES")
            memory = measured(pages * os.sysconf("SC_PAGE_SIZE")) if pages > 0 else None
    return Device(
        name=name,
        title=f"{machine.name} ({machine.device}, {number_of(machine.threads, 'thread')})",
        vendor="",
        memory=memory,
        memory_kind="physical",
        bandwidth=measured(latest.baseline.bytes_per_second),
        peaks={dtype: measured(roofs_of(one.baseline).flops_per_second) for dtype, one in of_dtype.items()},
        notes=("peaks and bandwidth are measured, not nominal: runs can exceed them a little",),
        sources={_SOURCE: DeviceSource(title=f"xfcost calibrate, {latest.measured}")},
        calibrated=latest.measured,
    )


@cache
def _calibrations(where: Path) -> dict[str, list[_Calibrated]]:
    """Kind of device (cpu, cuda) -> its calibrations of the most threads, the latest last; others are left out."""
    found: dict[str, list[_Calibrated]] = {}
    for path in sorted(where.glob("calibration-*.json")):
        try:
            one = msgspec.json.decode(read_bytes(path, path.name, EXPECTED_CALIBRATION), type=_Calibrated)
        except (UsageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if (one.format, one.version) == (FORMAT, VERSION):
            found.setdefault(one.machine.device, []).append(one)
    for kind, several in found.items():
        most = max(one.machine.threads for one in several)
        found[kind] = sorted((one for one in several if one.machine.threads == most), key=lambda one: one.measured)
    return found


_SHIPPED: Final = Path(__file__).with_name("devices.yaml")
_GROUP: Final = re.compile(r"(?P<name>.*[^\s\[])\s*\[?\s*[x×*:]\s*(?P<count>[+-]?\d[\w.+-]*)\s*\]?", re.IGNORECASE)
_COUNT_FIRST: Final = re.compile(r"(?P<count>\d+)\s*[x×*]\s*(?P<name>.*\S)", re.IGNORECASE)
_VENDORS: Final = re.compile(r"^\s*((nvidia|amd|google|aws|geforce|instinct|tesla)\b[\s_-]*)+", re.IGNORECASE)
# What torch, and other commands, call devices of the machine itself.
_RUNS_HERE: Final = frozenset({"cpu", "gpu", "cuda", "mps", "local", "auto"})
_EXAMPLE: Final = "as in h100-sxm, or h100-sxmx8 for eight of them (`xfcost devices` lists them)"
_MOST_NEAR: Final = 4
_EXPECTED: Final = Expected(what="a YAML file", large="a list of devices is a few pages of YAML")


def read_devices(given: Any, option: str = "--on") -> DeviceGroup:
    """The devices that `given` names: `h100-sxm`, `h100-sxmx8`, `h100-sxm[x8]`, `H100-SXM x8`, `8xH100`.

    Raises:
        UsageError: there is no such device, more than one, or the count is no number of devices.
        SpecError: the user's own file is invalid.
    """
    if isinstance(given, DeviceGroup):
        return given
    if isinstance(given, Device):
        return DeviceGroup(device=given)
    text = given.strip() if isinstance(given, str) else ""
    if not text:
        raise UsageError(f"{option} {shown(given)}: expected a device, {_EXAMPLE}")
    if (name := _known(text)) is not None:
        return DeviceGroup(device=device(name))
    several = _counted(text)
    if "," in text or any(_members(one) for one in (text, *(name for name, _ in several))):
        raise UsageError(
            f"{option} {shown(given)}: expected one device here; `xfcost analyze` sets several side by side"
        )
    name, number = next(((one, number) for part, number in several if (one := _known(part))), (None, ""))
    if name is None:
        raise UsageError(f"{option} {shown(given)}: {_unknown(text)}")
    try:
        count = whole_number(option, number, least=1, most=MOST_DEVICES, example=f"{name}x8")
    except UsageError:
        raise UsageError(
            f"{option} {shown(given)}: expected x1 to x{MOST_DEVICES:,} devices, as in {option} {name}x8"
        ) from None
    return DeviceGroup(device=device(name), count=count)


def read_several(given: Any, option: str = "--on") -> tuple[DeviceGroup, ...]:
    """The devices of a list, `h100-sxm,l40sx4`: each by its name; `all`, a vendor's or those of a pattern, `a100-*x2`.

    Raises:
        UsageError: a name is of no device, of more than one, or there twice; or nothing is named.
        SpecError: the user's own file is invalid.
    """
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
    if not parts or (len(parts) > 1 and not all(parts)):
        raise UsageError(f"{option} {shown(given)}: expected devices with commas between them, as in h100-sxm,l40s")
    groups: list[DeviceGroup] = []
    for part in parts:
        found = _groups(part, option)
        if len(found) == 1 and found[0] in groups:
            raise UsageError(f"{option} {shown(given)}: {found[0].name} is given twice; give it once")
        groups += [one for one in found if one not in groups]
    return tuple(groups)


def _groups(given: Any, option: str) -> list[DeviceGroup]:
    if not isinstance(given, str):
        return [read_devices(given, option)]
    text = given.strip()
    if (name := _known(text)) is not None:
        return [DeviceGroup(device=device(name))]
    for name, count in ((text, ""), *_counted(text)):
        if members := _members(name):
            return [read_devices(f"{member}x{count}" if count else member, option) for member in members]
    return [read_devices(given, option)]


def _counted(text: str) -> list[tuple[str, str]]:
    """The name and the count of several devices, `8xh100` or `h100x8`: as the text can be read."""
    return [(found["name"], found["count"]) for one in (_GROUP, _COUNT_FIRST) if (found := one.fullmatch(text))]


def _members(text: str) -> list[str]:
    """The devices of a group: all, a vendor's, or those whose names match a pattern; none where it is no group."""
    if not text:
        return []
    if text.lower() == "all":
        return device_names()
    if "*" in text or "?" in text:
        return fnmatch.filter(device_names(), text.lower())
    return [name for name in device_names() if device(name).vendor.lower() == text.lower()]


def device_names() -> list[str]:
    """All names: the shipped devices, the user's own, this machine."""
    return list(
        dict.fromkeys([*_shipped().names, *(own.names if (own := _own()) is not None else ()), *calibrated_names()])
    )


def device(name: str) -> Device:
    """The device of that full name; figures of the user's own file replace the shipped ones.

    Raises:
        SpecError: a figure of a file is invalid.
    """
    if name in calibrated_names():
        return calibrated_device(name)
    base = _shipped_device(name) if name in _shipped() else None
    own = _own()
    return own.device(name, base) if own is not None and name in own else base or _shipped_device(name)


def device_reported(driver: str) -> Device | None:
    """The device that a driver reports under that name; None where no known one has it.

    Raises:
        SpecError: a figure of a file is invalid.
    """
    return next((one for name in device_names() if (one := device(name)).driver == driver), None)


def own_file() -> Path:
    """The user's own devices, in the folder of the calibrations."""
    return calibration.folder() / "devices.yaml"


@cache
def _shipped() -> DeviceFile:
    return DeviceFile(_SHIPPED.read_text("utf-8"), "devices.yaml", own=False)


@cache
def _shipped_device(name: str) -> Device:
    return _shipped().device(name)


def _own() -> DeviceFile | None:
    """The user's own file; None where there is none.

    Raises:
        SpecError: it is invalid, or has a name that means several of another device.
    """
    path = own_file()
    if not path.exists():
        return None
    own = DeviceFile(read_file(path, str(path), _EXPECTED), str(path), own=True)
    names = [*_shipped().names, *own.names, *calibrated_names()]
    for name in own.names:
        if (several := _GROUP.fullmatch(name)) is not None and (one := _among(names, several["name"])) is not None:
            raise own.bad_name(name, f"means {several['count']} of {one}; a device's name does not end in x and digits")
    return own


def _known(text: str) -> str | None:
    """The device of that name, without vendor, case, spaces and hyphens; or that has the words of `text` alone."""
    names = device_names()
    if (found := _same(names, text)) is not None:
        return found
    letters = _letters(text)
    others = {_letters(one): name for name in names for one in (device(name).driver, *device(name).also) if one}
    return others.get(letters) or _among(names, text)


def _among(names: Sequence[str], text: str) -> str | None:
    found = _same(names, text)
    return found or (several[0] if len(several := _with_words(text, names)) == 1 else None)


def _same(names: Sequence[str], text: str) -> str | None:
    return next((name for name in names if _letters(name) == _letters(text)), None)


def _letters(name: str) -> str:
    return "".join(_words(name))


def _words(name: str) -> list[str]:
    """`A100-SXM4-80GB` is `a100 sxm 80`."""
    words = re.split(r"[\s_-]+", _VENDORS.sub("", name).strip().lower())
    return [re.sub(r"(?<=^sxm)\d$|(?<=\d)gb$", "", word) for word in words]


def _with_words(text: str, names: Iterable[str]) -> list[str]:
    """The names that have every word of `text`, `a100` is in four; or some in a row, as `rtx3060` of `rtx-3060-12`."""
    words, letters = set(_words(text)), _letters(text)
    return [name for name in names if words <= set(_words(name)) or letters in _rows(_words(name))]


def _rows(words: Sequence[str]) -> set[str]:
    places = range(len(words) + 1)
    return {"".join(words[first:last]) for first in places for last in places[first + 1 :]}


def _with_memory(name: str) -> str:
    memory = device(name).memory_bytes
    return name if memory is None else f"{name} ({size(memory, 3)})"


def _unknown(text: str) -> str:
    names = device_names()
    if text.lower().startswith(THIS_MACHINE) and not calibrated_names():
        return "this machine is not calibrated; `xfcost calibrate` measures its peaks (a few minutes)"
    if text.lower() in _RUNS_HERE:
        here = "cpu" if text.lower() == "cpu" else "cuda"
        return (
            f"expected a device of `xfcost devices`, of which figures are known; --device {here} runs and times the "
            "model on this machine"
        )
    parts = [name for name, _ in _counted(text)]
    if found := next((several for one in (text, *parts) if (several := _with_words(one, names))), []):
        return f"which of {', '.join(map(_with_memory, found))}?"
    near = near_names(text, names) or [
        name
        for part in (text, *parts)
        for word in near_names(part, {word for name in names for word in _words(name) if not word.isdigit()})
        for name in _with_words(word, names)
    ]
    if near:
        listed = " or ".join(map(_with_memory, dict.fromkeys(near[:_MOST_NEAR])))
        return f"there is no such device; did you mean {listed}? (`xfcost devices` lists all)"
    listed = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    return f"there is no such device; expected one of {listed} (`xfcost devices` lists all)"
