"""From a preset's name or a file to a checked `Spec`: presets, `extends`, `--set`, and errors that say where."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.ledger.errors import SpecError, UsageError, XfcostError, all_wrong, nearest, printable, shown, together
from xfcost.spec.grammar import Spec
from xfcost.spec.kinds import converted
from xfcost.spec.outside import check_inside
from xfcost.spec.overlay import laid_over
from xfcost.spec.reader import Expected, Source, YamlPath, read, read_file, shown_value
from xfcost.spec.setting import apply_all, apply_own

_MOST_EXTENDS: Final = 16


class Loaded(NamedTuple):
    """A checked spec, its data after `extends` and `--set`, and where every value came from."""

    spec: Spec
    data: dict[str, Any]
    source: Source
    name: str
    settings: tuple[str, ...] = ()


class Written(NamedTuple):
    """A spec file as it was written, before anything is laid over anything."""

    shown: str
    """What messages call it."""
    text: str
    data: dict[str, Any]
    source: Source


def gallery() -> Path:
    """The folder of the presets: inside the package when installed, at the top of a checkout otherwise."""
    inside = Path(__file__).parents[1] / "specs"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "specs"


def preset_files() -> dict[str, Path]:
    """Preset name -> file, in the gallery's order (family by family)."""
    return dict(_listed(gallery()))


@cache
def _listed(gallery: Path) -> dict[str, Path]:
    """The folder is read once: a gallery names its presets hundreds of times when all of them are loaded."""
    found: dict[str, Path] = {}
    for folder in sorted(entry.path for entry in os.scandir(gallery) if entry.is_dir()):
        for name in sorted(os.listdir(folder), key=lambda name: _natural(name.partition(".")[0])):
            stem, ending = os.path.splitext(name)
            if ending == ".yaml":
                found[stem] = Path(folder, name)
    return found


def preset_names() -> list[str]:
    """All presets."""
    return list(preset_files())


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def expanded(names: Sequence[str]) -> list[str]:
    """`names` with every pattern (`common-*`) replaced by the presets that match it and were not named before.

    Raises:
        UsageError: a pattern matches no preset.
    """
    found: list[str] = []
    for name in names:
        if not re.search(r"[*?\[]", name) or is_path(name):
            found.append(name)
            continue
        matching = fnmatch.filter(preset_names(), name)
        if not matching:
            raise UsageError(f"{shown(name)}: no preset matches; `xfcost list` names them")
        found += [preset for preset in matching if preset not in found]
    return found


def load(name: str, settings: Sequence[str] = ()) -> Loaded:
    """The spec called `name`: a preset, or a path to a YAML file.

    Args:
        name: a preset (`vit`), or a path (it has a separator or ends in .yaml or .yml).
        settings: `key.path=value` overrides, as after `--set`.

    Raises:
        SpecError: with file, line and path of what is wrong.
        UsageError: no such preset, or a setting that names nothing.
    """
    files = [(written.data, written.source) for written in lineage(name)]
    data, source = files.pop()
    wrong = apply_own(data, source)
    while files:
        data, source = laid_over((data, source), files.pop())
        wrong += apply_own(data, source)
    if wrong:
        raise together([*wrong, *_faults(data, source, name)])
    if unset := apply_all(data, source, settings):
        faults = (part for fault in _faults(data, source, name) for part in fault.parts)
        raise UsageError(all_wrong([*unset, *map(str, faults)]))
    try:
        return Loaded(converted(data, Spec), data, source, name, tuple(settings))
    except msgspec.ValidationError:
        found = _faults(data, source, name)
    raise together(found)


def _faults(data: dict[str, Any], source: Source, name: str) -> list[SpecError]:
    """All that the grammar refuses, and all that can't stand where it does."""
    from xfcost.spec.problems import problems  # bad input alone needs the schema

    found: list[SpecError] = []
    spec: Spec | None
    try:
        spec = converted(data, Spec)
    except msgspec.ValidationError:
        found, spec = problems(data, source)
    if spec is not None:
        found += _misplaced(Loaded(spec, data, source, name), [error.path[:-1] for error in found])
    return found


def _misplaced(loaded: Loaded, told: Sequence[YamlPath]) -> list[SpecError]:
    """What can't stand where it does, but for what has an unknown key, as is `told` already."""
    from xfcost.spec.walk import Run, place  # it takes what is loaded here

    try:
        place(loaded, Run())
    except SpecError as error:
        return [one for one in error.parts if not any(one.path in (own, (*own, *one.path[-1:])) for own in told)]
    except UsageError:
        pass
    return []


def lineage(name: str) -> list[Written]:
    """The file of the spec called `name`, then the one it extends, and so on.

    Raises:
        SpecError: a file can't be read, or extends nothing that there is, or itself.
        UsageError: no such preset.
    """
    path, shown = _find(name)
    first, first_shown = path, shown
    text = read_file(path, shown, _expected(name))
    files: list[Written] = []
    paths: list[str] = []
    while True:
        data, source = read(text, shown)
        if "model_type" in data:
            raise source.error(
                ("model_type",),
                f"a config.json of transformers is no spec yet; `xfcost import {shown} -o model.yaml` makes one of it",
            )
        files.append(Written(shown, text, data, source))
        paths.append(os.path.realpath(path))
        parent = data.get("extends")
        if parent is None:
            return files
        if not isinstance(parent, str):
            raise source.error(("extends",), f"expected the name of a preset or a file, got {shown_value(parent)}")
        try:
            path, shown = _find(parent, path)
            if parent not in preset_files():
                check_inside(path, shown, first, first_shown)
            text = read_file(path, shown)
        except XfcostError as error:
            raise source.error(("extends",), str(error)) from None
        trail = " -> ".join(os.path.basename(file) for file in (*paths, str(path)))
        if os.path.realpath(path) in paths:
            raise source.error(("extends",), f"the specs extend each other in a circle: {trail}")
        if len(paths) >= _MOST_EXTENDS:
            raise source.error(("extends",), f"more than {_MOST_EXTENDS} specs extend one another: {trail}")


def _find(name: str, base: Path | None = None) -> tuple[Path, str]:
    """The file of a preset or a path (relative to the file `base`), and what to call it in messages."""
    if not name or "\0" in name:
        raise UsageError(f"expected the name of a preset or a path, got {shown_value(name)}")
    if is_path(name):
        path = Path(name) if base is None else base.parent / name
        return path, printable(name if base is None else str(path), most=200)
    files = preset_files()
    if name not in files:
        hint = f"; a file is meant by its path: ./{name}" if os.path.exists(name) else ""
        raise UsageError(
            f"there is no preset {shown_value(name)}; {nearest(name, files)}{hint} (`xfcost list` shows all)"
        )
    return files[name], f"{name}.yaml"


def _expected(name: str) -> Expected:
    """What is said where there is no file `name`: a hub's name for a model, which looks like a path, gets a way on."""
    if not re.fullmatch(r"(https?://\S+|[\w.-]+/[\w.-]+)", name) or name.startswith(".") or name.endswith(_ENDINGS):
        return Expected()
    return Expected(
        missing="and nothing is fetched: of a model on a hub, get its config.json, then "
        "`xfcost import config.json -o model.yaml` and `xfcost analyze model.yaml`"
    )


_ENDINGS: Final = (".yaml", ".yml", ".json")


def is_path(name: str) -> bool:
    """Is it a path, and not the name of a preset?"""
    return "/" in name or os.sep in name or name.endswith(_ENDINGS) or name in (".", "..")
