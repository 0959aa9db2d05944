"""One spec laid over another: `extends` merges files, `--set` overrides a key; the line of every value is kept."""

from __future__ import annotations

import re
from typing import Any, Final

from xfcost.errors import SpecError, UsageError, nearest
from xfcost.spec.reader import Source, YamlPath, path_text, printable, read_value, shown_value

# What a file says of itself, and not of those that extend it.
_OF_ITSELF: Final = ("published", "extends", "notes")


def laid_over(
    below: tuple[dict[str, Any], Source], above: tuple[dict[str, Any], Source]
) -> tuple[dict[str, Any], Source]:
    """`above` over `below`: mappings of one kind are merged key by key, anything else is replaced whole.

    What a file says of itself stays its own, unless `above` changes nothing and so is another name for it.
    """
    (below_data, below_source), (above_data, above_source) = below, above
    own = _OF_ITSELF if len(above_data) > 1 else ("extends",)
    replaced: list[YamlPath] = [(key,) for key in own]
    inherited = {key: value for key, value in below_data.items() if key not in own}
    data = _merged(inherited, above_data, (), replaced)
    source = Source(above_source.name)
    kept = {path: line for path, line in below_source.lines.items() if not _within(path, replaced)}
    source.lines = kept | above_source.lines
    return data, source


def _merged(below: dict[str, Any], above: dict[str, Any], path: YamlPath, replaced: list[YamlPath]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and value.get("kind", old.get("kind")) == old.get("kind"):
            result[key] = _merged(old, value, (*path, key), replaced)
        else:
            result[key] = value
            replaced.append((*path, key))
    return result


def _within(path: YamlPath, places: list[YamlPath]) -> bool:
    return any(path[: len(place)] == place for place in places)


def apply(data: dict[str, Any], source: Source, setting: str) -> None:
    """One `--set stages.0.depth=4`. The key's last word may be new; what leads to it must stand in the spec.

    Raises:
        UsageError: it is no `key=value`, its value is no YAML, or its key leads nowhere.
    """
    key, equals, text = setting.partition("=")
    said = f"--set {printable(setting)}:"
    if not equals or not key.strip():
        raise UsageError(f"{said} expected key=value, as in --set stages.0.depth=4")
    words = re.sub(r"\[([0-9]+)\]", r".\1", key.strip()).split(".")
    if words == ["extends"]:
        raise UsageError(f"{said} `extends` belongs to a file; name the spec itself in place of the one you set it on")
    try:
        value = read_value(text)
    except SpecError as error:
        raise UsageError(f"{said} {str(error).removeprefix('--set:1 ')}") from None
    path: YamlPath = ()
    here: Any = data
    for word in words[:-1]:
        step = _step(here, word, path, said, new=False)
        here, path = here[step], (*path, step)
    step = _step(here, words[-1], path, said, new=True)
    here[step], path = value, (*path, step)
    source.lines = {known: line for known, line in source.lines.items() if known[: len(path)] != path}
    source.lines[path] = (said, 0)


def _step(here: Any, word: str, path: YamlPath, said: str, *, new: bool) -> str | int:
    """The key or the number that `word` means in `here`."""
    if isinstance(here, list):
        if re.fullmatch(r"[0-9]{1,9}", word) and int(word) < len(here):
            return int(word)
        there = f"items 0 to {len(here) - 1}" if here else "no items"
        raise UsageError(f"{said} {path_text(path)} has {there}, and no {shown_value(word)}")
    if isinstance(here, dict):
        if word in here or (new and word):
            return word
        raise UsageError(f"{said} {path_text(path) or 'the spec'} has no {shown_value(word)}; {nearest(word, here)}")
    raise UsageError(f"{said} {path_text(path)} is {shown_value(here)} and holds no {shown_value(word)}")
