"""`h100-sxm[x8]` -> the devices of that name: shipped ones, those of the user's own file, and this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from xfcost.counting.devices import calibrated
from xfcost.counting.devices.reading import DeviceFile
from xfcost.ledger import calibration
from xfcost.ledger.device import Device, DeviceGroup
from xfcost.ledger.errors import MOST_NAMES, UsageError, near_names, shown
from xfcost.ledger.execution import MOST_DEVICES
from xfcost.ledger.quantities import whole_number
from xfcost.spec.files import Expected, read_file

_SHIPPED: Final = Path(__file__).with_name("devices.yaml")
_GROUP: Final = re.compile(r"(?P<name>.*?[^\s\[])\s*\[?\s*[x×*]\s*(?P<count>[+-]?\d[\w.+-]*)\s*\]?", re.IGNORECASE)
_VENDORS: Final = re.compile(r"^\s*(nvidia|amd|google|aws|geforce|instinct)\b[\s_-]*", re.IGNORECASE)
_EXAMPLE: Final = "as in h100-sxm, or h100-sxmx8 for eight of them (`xfcost devices` lists them)"
_EXPECTED: Final = Expected(what="a YAML file", large="a list of devices is a few pages of YAML")


def read_devices(given: Any, option: str = "--on") -> DeviceGroup:
    """The devices that `given` names: `h100-sxm`, `h100-sxmx8`, `h100-sxm[x8]`, `H100-SXM x8`.

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
    several = _GROUP.fullmatch(text)
    name = _known(several["name"]) if several else None
    if several is None or name is None:
        raise UsageError(f"{option} {shown(given)}: {_unknown(several['name'] if several else text)}")
    try:
        count = whole_number(option, several["count"], least=1, most=MOST_DEVICES, example=f"{name}x8")
    except UsageError:
        raise UsageError(
            f"{option} {shown(given)}: expected x1 to x{MOST_DEVICES:,} devices, as in {option} {name}x8"
        ) from None
    return DeviceGroup(device=device(name), count=count)


def device_names() -> list[str]:
    """All names: the shipped devices, the user's own, this machine."""
    return list(dict.fromkeys([*_shipped().names, *_own_names(), *calibrated.names()]))


def device(name: str) -> Device:
    """The device of that full name; figures of the user's own file replace the shipped ones.

    Raises:
        SpecError: a figure of a file is invalid.
    """
    if name in calibrated.names():
        return calibrated.device(name)
    base = _shipped().device(name) if name in _shipped() else None
    own = _own()
    return own.device(name, base) if own is not None and name in own else base or _shipped().device(name)


def own_file() -> Path:
    """The user's own devices, beside the calibrations."""
    return calibration.folder() / "devices.yaml"


@cache
def _shipped() -> DeviceFile:
    return DeviceFile(_SHIPPED.read_text("utf-8"), "devices.yaml", own=False)


def _own() -> DeviceFile | None:
    """The user's own file; None where there is none.

    Raises:
        SpecError: it is invalid, or has a name that means several of another device.
    """
    path = own_file()
    if not path.exists():
        return None
    own = DeviceFile(read_file(path, str(path), _EXPECTED), str(path), own=True)
    names = [*_shipped().names, *own.names, *calibrated.names()]
    for name in own.names:
        if (several := _GROUP.fullmatch(name)) is not None and (one := _among(names, several["name"])) is not None:
            raise own.bad_name(name, f"means {several['count']} of {one}; a device's name does not end in x and digits")
    return own


def _own_names() -> tuple[str, ...]:
    own = _own()
    return own.names if own is not None else ()


def _known(text: str) -> str | None:
    """The device that `text` names, without vendor, case, spaces and hyphens, or by words that only one has."""
    return _among(device_names(), text)


def _among(names: Sequence[str], text: str) -> str | None:
    text = _VENDORS.sub("", text)
    same = [name for name in names if _letters(name) == _letters(text)]
    return same[0] if same else next(iter(found), None) if len(found := _with_words(text, names)) == 1 else None


def _letters(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.lower())


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s_-]+", name.lower()))


def _with_words(text: str, names: Iterable[str]) -> list[str]:
    """The names that have every word of `text`: `a100` is in four."""
    return [name for name in names if _words(text) <= _words(name)]


def _unknown(text: str) -> str:
    names = device_names()
    if text.lower().startswith(calibrated.THIS_MACHINE) and not calibrated.names():
        return "this machine is not calibrated; `xfcost calibrate` measures its peaks (a few minutes)"
    if found := _with_words(text, names):
        return f"which of {', '.join(found)}?"
    near = near_names(text, names)
    if near:
        return f"there is no such device; did you mean {' or '.join(near)}? (`xfcost devices` lists all)"
    listed = ", ".join(names[:MOST_NAMES]) + (", …" if len(names) > MOST_NAMES else "")
    return f"there is no such device; expected one of {listed} (`xfcost devices` lists all)"
