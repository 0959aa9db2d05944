"""The shapes of a module's inputs as texts, and texts that are meant for one system of several: `2:1xNx768`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from xfcost.ledger.errors import UsageError, printable

SHAPE: Final = re.compile(r"(?P<sides>(?:\d+|[A-Z])(?:x(?:\d+|[A-Z]))*)(?::(?P<dtype>\w+))?\Z")
NO_MODULE: Final = "--input and --build are of torch modules; a spec knows its inputs (--N, --size, --batch)"
_NUMBERED: Final = re.compile(r"(?P<place>\d+):(?P<text>.+)\Z", re.DOTALL)


class ModuleTexts(NamedTuple):
    """The texts after `--input` and `--build`."""

    inputs: tuple[str, ...] = ()
    build: tuple[str, ...] = ()


def texts_by_place(given: ModuleTexts, modules: Mapping[int, str], systems: int) -> dict[int, ModuleTexts]:
    """The texts of every module of a command, by its place among the systems, which are counted from 1.

    A text without a number is of every module that has none with its own.

    Args:
        given: all texts.
        modules: place -> the module's name.
        systems: how many there are.

    Raises:
        UsageError: there is no module, or a number is of none.
    """
    if (given.inputs or given.build) and not modules:
        raise UsageError(NO_MODULE)
    inputs = _by_place("--input", given.inputs, modules, systems)
    build = _by_place("--build", given.build, modules, systems)
    return {place: ModuleTexts(inputs[place], build[place]) for place in modules}


def _by_place(
    option: str, texts: Sequence[str], modules: Mapping[int, str], systems: int
) -> dict[int, tuple[str, ...]]:
    common: list[str] = []
    own: dict[int, list[str]] = {}
    for text in texts:
        found = _NUMBERED.match(text)
        if found is None or not _begins(option, found["text"]):
            common.append(text)
            continue
        place = int(found["place"])
        if place not in modules:
            known = ", ".join(f"{number} is {printable(name, 80)}" for number, name in modules.items())
            raise UsageError(
                f"{option} {printable(text, 200)}: {place} is no torch module among the {systems} systems; {known}"
            )
        own.setdefault(place, []).append(found["text"])
    return {place: tuple(own.get(place, common)) for place in modules}


def _begins(option: str, text: str) -> bool:
    """Does an input or an argument begin here, behind a number? `1:int64` is a shape and its dtype."""
    return option == "--build" or "=" in text or SHAPE.match(text) is not None
