"""What xfcost needs and can use here: Python, torch, GPUs, libraries, programs, calibrations, and how to get each."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Final, Literal, NamedTuple

import msgspec

from xfcost.ledger.calibration import EXPECTED_CALIBRATION, CalibratedMachine, folder, read_calibration, shipped_devices
from xfcost.ledger.errors import UsageError, XfcostError, printable
from xfcost.ledger.files import read_bytes
from xfcost.ledger.tested import TESTED, untested
from xfcost.ledger.units import number_of

# Can it be used? If not, can xfcost do without it?
State = Literal["ok", "optional", "wrong"]


class Prerequisite(NamedTuple):
    """One thing that xfcost needs or can use."""

    what: str
    found: str
    """Its version, name or path; empty where it is missing."""
    state: State
    use: str
    """What it is for, or what is expected."""
    get: str
    """How to get it."""


# Optional libraries and programs (of several, one is enough): what needs them, and how to get them.
_LIBRARIES: Final = {
    "transformers": ("for a config.json for which there is no spec", "pip install transformers"),
    "huggingface_hub": ("for --fetch", 'pip install "xfcost[hub]"'),
    "distributed": ("for --scheduler", 'pip install "xfcost[cluster]"'),
    "onnx": ("for ONNX graphs", 'pip install "xfcost[onnx]"'),
}
_PROGRAMS: Final = {
    "git": (("git",), "for models at a revision, as in HEAD~1:spec.yaml", "https://git-scm.com"),
    "LaTeX": (
        ("tectonic", "pdflatex", "lualatex"),
        "for a PDF of what --format latex writes",
        "https://tug.org/texlive",
    ),
}
_PYTORCH: Final = "https://pytorch.org/get-started"


class _Kept(msgspec.Struct, frozen=True):
    """The part of a calibration that says where and when it was measured."""

    machine: CalibratedMachine
    measured: str


def doctor() -> list[Prerequisite]:
    """Everything that xfcost needs or can use, whether it is here or not."""
    return [*_libraries(), *_torch(), *_programs(), *_calibrations()]


def _libraries() -> Iterator[Prerequisite]:
    """Python and the libraries, compared with the versions in the package's metadata."""
    from packaging.requirements import Requirement

    try:
        python, needed = metadata("xfcost")["Requires-Python"], [*map(Requirement, requires("xfcost") or ())]
    except PackageNotFoundError:
        yield Prerequisite("xfcost", "", "wrong", "for the versions of libraries", "pip install .")
        return
    here = platform.python_version()
    fits = Requirement(f"python{python}").specifier.contains(here, prereleases=True)
    yield Prerequisite("Python", here, "ok" if fits else "wrong", f"expected {python}", "https://python.org")
    required = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    optional = {one.name: one for one in needed if one.name in _LIBRARIES}
    there = []
    for one in (*required, *optional.values()):
        try:
            found = version(one.name)
        except PackageNotFoundError:
            found = ""
        fits = bool(found) and one.specifier.contains(found, prereleases=True)
        if not fits and one.name not in optional:
            command = f"pip install '{one.name}{one.specifier}'"
            yield Prerequisite(one.name, found, "wrong", f"expected {one.specifier}", command)
            continue
        # torch has a row of its own
        if fits and one.name != "torch" and (told := untested(one.name, found)) is not None:
            command = f"pip install '{one.name}>={TESTED[one.name].oldest},<={TESTED[one.name].newest}'"
            yield Prerequisite(one.name, found, "optional", told, command)
        elif one.name in optional:
            yield Prerequisite(one.name, found, "ok" if fits else "optional", *_LIBRARIES[one.name])
        if one.name not in optional:
            there.append(f"{one.name} {found}")
    yield Prerequisite("libraries", ", ".join(there), "ok", f"{len(there)} of {len(required)} that it requires", "")


def _torch() -> Iterator[Prerequisite]:
    """The versions of torch that the tests were run with, and the GPUs that this one can use."""
    from xfcost.torch_models.memory.shortage import check_torch_loads

    try:
        installed = version("torch")
    except PackageNotFoundError:  # listed among the libraries
        return
    try:
        check_torch_loads()
        from xfcost.torch_models.timing.devices import accelerators
    except (ImportError, OSError, XfcostError) as error:
        yield Prerequisite("torch", "", "wrong", f"can't be imported: {printable(str(error), 200)}", _PYTORCH)
        return
    from packaging.version import Version

    oldest, newest = TESTED["torch"]
    number = Version(Version(installed).base_version)
    state: State = "wrong" if number < Version(oldest) else "optional" if number > Version(newest) else "ok"
    told = untested("torch", installed) or f"tested with {oldest} to {newest}"
    yield Prerequisite("torch", installed, state, told, _PYTORCH)
    names, why = accelerators()
    for name in names or [""]:
        yield Prerequisite("GPU", name, "ok" if name else "optional", "for --device cuda or mps", why)


def _programs() -> Iterator[Prerequisite]:
    for what, (names, use, get) in _PROGRAMS.items():
        path = next(filter(None, map(shutil.which, names)), "")
        yield Prerequisite(what, path, "ok" if path else "optional", use, get)


def _calibrations() -> Iterator[Prerequisite]:
    """The calibrations of this machine, and the GPUs whose calls come with the package."""
    paths = sorted(folder().glob("calibration-*.json"))
    for path in paths:
        from xfcost.torch_models.predicting.calibrate import this_machine

        try:
            kept = msgspec.json.decode(read_bytes(path, path.name, EXPECTED_CALIBRATION), type=_Kept)
            machine = kept.machine
            here = msgspec.structs.replace(this_machine(machine.device, machine.dtype), threads=machine.threads)
            read_calibration(path, here)
            days = (datetime.now(timezone.utc) - datetime.fromisoformat(kept.measured)).days
        except (OSError, ValueError, RuntimeError, AssertionError, UsageError) as error:  # torch: no such device
            yield Prerequisite("calibration", str(path), "optional", printable(str(error), 300), "xfcost calibrate")
            continue
        of = f"for --predict on {machine.device}, {machine.dtype}, {number_of(machine.threads, 'thread')}"
        use = f"{of}, {number_of(days, 'day')} old"
        yield Prerequisite("calibration", str(path), "ok", use, "xfcost calibrate")
    if not paths:
        yield Prerequisite("calibration", "", "optional", f"for --predict; kept in {folder()}", "xfcost calibrate")
    yield Prerequisite("recorded GPUs", ", ".join(shipped_devices()), "ok", "for --predict --on", "")
