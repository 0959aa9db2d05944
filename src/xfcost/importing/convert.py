"""config.json -> the YAML of a spec that loads, and the sentences that say what was assumed."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.importing.families import FAMILIES, family_of
from xfcost.importing.family import Family, as_written, configured
from xfcost.importing.file import ConfigFile, read_config
from xfcost.ledger.errors import ComponentError, SpecError, UsageError, nearest, printable
from xfcost.spec.explain import explained
from xfcost.spec.grammar import Spec
from xfcost.spec.kinds import converted
from xfcost.spec.load import Loaded
from xfcost.spec.reader import read, shown_value
from xfcost.spec.walk import Run, place
from xfcost.spec.writer import spec_text

_MOST_NAME: Final = 80


class Imported(NamedTuple):
    """A spec that a config made."""

    text: str
    """YAML, with comments that say where it comes from."""
    data: dict[str, Any]
    """The same without comments."""
    model_type: str
    architecture: str
    remarks: tuple[str, ...]
    """What was assumed and what a reader must be told, sentence by sentence."""


def imported(path: Path, architecture: str | None = None, ignored: Collection[str] = ()) -> Imported:
    """The spec of the config at `path`; of another `architecture` than it names, without the fields to be `ignored`.

    Raises:
        SpecError: the file is no config, or holds what the grammar can't carry; with file, line and field.
        UsageError: `architecture` is none that is carried.
    """
    file = read_config(path, printable(str(path), most=200))
    model_type = _model_type(file)
    kind, followed = _family(model_type, file)
    chosen, assumed = _architecture(file, kind, architecture)
    family, noted = configured(kind, file, ignored)
    keys, told = _draft(family, chosen, file)
    remarks = (*followed, *assumed, *(f"{name}: ignored, as asked for." for name in ignored), *noted, *told)
    data = {"name": f"{_name(path, file)} ({chosen})", "paper": kind.paper, **keys}
    made = f"Made by `xfcost import` from {file.name}: model_type {model_type}, architecture {chosen}."
    text = spec_text(data, (made, *remarks))
    _check(text, file)
    return Imported(text, data, model_type, chosen, remarks)


def _model_type(file: ConfigFile) -> str:
    if "model_type" not in file.values:
        raise SpecError(
            f"{file.name}: has no model_type; expected a config.json of transformers, which names one: "
            f"{', '.join(FAMILIES)}"
        )
    model_type = file.values["model_type"]
    if not isinstance(model_type, str):
        raise file.error("model_type", f"expected text, got {shown_value(model_type)}")
    return model_type


def _family(model_type: str, file: ConfigFile) -> tuple[type[Family], list[str]]:
    """The family of `model_type`; of an unknown one, that of the architecture which the config names."""
    if model_type in FAMILIES:
        return family_of(model_type), []
    named = file.values.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    kinds = [kind for kind in map(family_of, FAMILIES) if first in kind.architectures]
    if not kinds:
        raise file.error(
            "model_type",
            f"{shown_value(model_type)} is not carried, nor is its architecture ({shown_value(first)}); a config of "
            f"another model_type is another model. Known: {', '.join(FAMILIES)}",
        )
    said = f"Assumed: {first}, which the config names, for no family has the model_type {printable(model_type)}."
    return kinds[0], [said]


def _architecture(file: ConfigFile, kind: type[Family], asked: str | None) -> tuple[str, list[str]]:
    """The class that is counted, and what was assumed of it."""
    known = kind.architectures
    if asked is not None:
        if asked not in known:
            raise UsageError(
                f"--architecture {printable(str(asked))}: {nearest(asked, known)} "
                f"({file.name} is one of {', '.join(known)})"
            )
        return asked, []
    named = file.values.get("architectures")
    if named is None or named == []:
        others = f"; --architecture takes {', '.join(known[1:])}" if known[1:] else ""
        return known[0], [f"Assumed: {known[0]}, as the config names no architectures{others}."]
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        raise file.error("architectures", f"expected a list of names, got {shown_value(named)}")
    if named[0] not in known:
        raise file.error(
            "architectures",
            f"{shown_value(named[0])} is not carried; expected one of {', '.join(known)} (--architecture chooses one)",
        )
    more = [f"Assumed: {named[0]}, the first of {len(named)} architectures."] if len(named) > 1 else []
    return named[0], more


def _draft(family: Family, architecture: str, file: ConfigFile) -> tuple[dict[str, Any], list[str]]:
    try:
        return family.draft(architecture)
    except ComponentError as error:
        raise file.error(as_written(error.field, type(family), file), error.message) from None


def _name(path: Path, file: ConfigFile) -> str:
    """What the model is called: as its file is, as its config says, or as its folder is."""
    own = file.values.get("_name_or_path")
    called = own.rstrip("/").rpartition("/")[2] if isinstance(own, str) else ""
    candidates = (path.stem if path.stem != "config" else "", called, path.resolve().parent.name, "model")
    plain = (re.sub(r"[^\w .+-]", "", name).strip(" .") for name in candidates)
    return next(name for name in plain if name)[:_MOST_NAME]


def _check(text: str, file: ConfigFile) -> None:
    """The spec must load, and every component must stand where it does."""
    data, source = read(text, f"{file.name}: the spec that it makes")
    try:
        loaded = Loaded(converted(data, Spec), data, source, file.name)
    except msgspec.ValidationError as error:
        raise explained(str(error), data, source) from None
    place(loaded, Run())
