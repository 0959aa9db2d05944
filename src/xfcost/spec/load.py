"""From a preset's name or a file to a checked `Spec`: presets, `extends`, `--set`, and errors that say where."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.errors import SpecError, UsageError, nearest
from xfcost.spec.grammar import Spec
from xfcost.spec.reader import Source, YamlPath, path_text, read, read_file, read_value
from xfcost.spec.schema import known_keys, known_kinds

_MOST_EXTENDS: Final = 16


class Loaded(NamedTuple):
    """A checked spec, its data after `extends` and `--set`, and where every value came from."""

    spec: Spec
    data: dict[str, Any]
    source: Source
    name: str


def gallery() -> Path:
    """The folder of the presets: inside the package when installed, at the top of a checkout otherwise."""
    inside = Path(__file__).parents[1] / "specs"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "specs"


def preset_files() -> dict[str, Path]:
    """Preset name -> file, in the gallery's order (family by family)."""
    found: dict[str, Path] = {}
    for folder in sorted(entry.path for entry in os.scandir(gallery()) if entry.is_dir()):
        for name in sorted(os.listdir(folder), key=lambda name: _natural(name.partition(".")[0])):
            stem, ending = os.path.splitext(name)
            if ending == ".yaml":
                found[stem] = Path(folder, name)
    return found


def preset_names() -> list[str]:
    """All presets."""
    return list(preset_files())


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def load(name: str, settings: Sequence[str] = ()) -> Loaded:
    """The spec called `name`: a preset, or a path to a YAML file.

    Args:
        name: a preset (`vit`), or a path (it has a separator or ends in .yaml or .yml).
        settings: `key.path=value` overrides, as after `--set`.

    Raises:
        SpecError: with file, line and path of what is wrong.
        UsageError: no such preset, or a setting that names nothing.
    """
    data, source = _read_chain(name, base=None, chain=())
    for setting in settings:
        _apply(data, source, setting)
    return Loaded(_convert(data, source), data, source, name)


def find(name: str, base: Path | None = None) -> tuple[Path, str]:
    """The file of a preset or a path, and what to call it in messages."""
    if _is_path(name):
        path = Path(name) if base is None else base.parent / name
        return path, str(path) if base is not None else name
    files = preset_files()
    if name not in files:
        hint = f"; a file is meant by its path: ./{name}" if Path(name).exists() else ""
        raise UsageError(f"there is no preset {name!r}: {nearest(name, files)}{hint} (`xfcost list` shows all)")
    return files[name], f"{name}.yaml"


def _is_path(name: str) -> bool:
    return "/" in name or os.sep in name or name.endswith((".yaml", ".yml")) or name in ("", ".", "..")


def _read_chain(name: str, base: Path | None, chain: tuple[Path, ...]) -> tuple[dict[str, Any], Source]:
    """A file's data laid over that of the file it extends."""
    path, shown = find(name, base)
    data, source = read(read_file(path, shown), shown)
    parent = data.get("extends")
    if parent is None:
        return data, source
    if not isinstance(parent, str):
        raise source.error(("extends",), f"expected the name of a preset or a file, got {parent!r}")
    chain = (*chain, path.resolve())
    try:
        parent_path, _ = find(parent, path)
    except UsageError as error:
        raise source.error(("extends",), str(error)) from None
    if parent_path.resolve() in chain or len(chain) > _MOST_EXTENDS:
        trail = " -> ".join(file.name for file in (*chain, parent_path))
        raise source.error(("extends",), f"the specs extend each other in a circle: {trail}")
    below, below_source = _read_chain(parent, path, chain)
    return _overlay(below, data), _overlay_lines(below_source, source, data)


def _overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Mappings are merged key by key; anything else is replaced whole; `published` is never inherited."""
    result = {key: value for key, value in below.items() if key not in ("published", "extends", "notes")}
    for key, value in above.items():
        old = result.get(key)
        same_kind = isinstance(old, dict) and isinstance(value, dict) and ("kind" not in value or value["kind"] == old.get("kind"))
        result[key] = _overlay(old, value) if same_kind else value  # type: ignore[arg-type]
    return result


def _overlay_lines(below: Source, above: Source, data: dict[str, Any]) -> Source:
    """Lines of the file above where it says something, else those of the file below."""
    merged = Source(above.name)
    merged.lines = below.lines | above.lines
    for key, value in data.items():
        if not isinstance(value, dict):  # replaced whole: what the file below had under it is gone
            for path in [path for path in below.lines if path[0:1] == (key,) and path not in above.lines]:
                merged.lines.pop(path)
    return merged


def _apply(data: dict[str, Any], source: Source, setting: str) -> None:
    """One `--set stages.0.depth=4`. The key's last word may be new; what leads to it must stand in the spec."""
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {setting}: expected key=value, as in --set stages.0.depth=4")
    words = re.sub(r"\[(\d+)\]", r".\1", key.strip()).split(".")
    value = read_value(text)
    here: Any = data
    path: YamlPath = ()
    for position, word in enumerate(words):
        last = position == len(words) - 1
        if isinstance(here, list):
            if not word.isdigit() or int(word) >= len(here):
                raise UsageError(f"--set {setting}: {path_text(path)} has items 0 to {len(here) - 1}, and no {word!r}")
            step: str | int = int(word)
        elif isinstance(here, dict):
            if word not in here and not last:
                raise UsageError(f"--set {setting}: {path_text(path) or 'the spec'} has no {word!r}; {nearest(word, here)}")
            step = word
        else:
            raise UsageError(f"--set {setting}: {path_text(path)} is {here!r} and holds no {word!r}")
        path = (*path, step)
        if last:
            here[step] = value  # type: ignore[index]
        else:
            here = here[step]  # type: ignore[index]
    source.lines = {known: line for known, line in source.lines.items() if known[: len(path)] != path}
    source.lines[path] = (f"--set {setting}:", 0)


def _convert(data: dict[str, Any], source: Source) -> Spec:
    try:
        return msgspec.convert(data, Spec)
    except msgspec.ValidationError as error:
        raise _explained(str(error), data, source) from None


def _explained(message: str, data: dict[str, Any], source: Source) -> SpecError:
    """msgspec's message with its place in the file, what came, and near names where a name is wrong."""
    text, _, place = message.partition(" - at `$")
    path = _path_of(place.rstrip("`"))
    if found := re.search(r"unknown field `(.*)`", text):
        key = found.group(1)
        near = nearest(key, known_keys(data, path))
        return source.error((*path, key), f"unknown key {key!r}; {near}")
    if found := re.search(r"missing required field `(.*)`", text):
        return source.error(path, f"the key {found.group(1)!r} is missing")
    value = _value_at(data, path)
    if path and path[-1] == "kind":
        kinds = known_kinds(path)
        return source.error(path, f"unknown kind {value!r}; {nearest(str(value), kinds)}")
    if found := re.search(r"Invalid enum value", text):
        choices = known_keys(data, path)
        return source.error(path, f"got {value!r}; {nearest(str(value), choices)}")
    return source.error(path, f"{text[0].lower()}{text[1:]}, got {_short(value)}".replace("`", ""))


def _path_of(text: str) -> YamlPath:
    """`.stages[1].block[0].heads` -> ("stages", 1, "block", 0, "heads")."""
    return tuple(int(number) if number else word for word, number in re.findall(r"\.([^.\[]+)|\[(\d+)\]", text))


def _value_at(data: Any, path: YamlPath) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _short(value: Any, most: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
