"""One spec laid over another: `extends` merges files, and the line of every value is kept."""

from __future__ import annotations

from typing import Any, Final

from xfcost.spec.reader import Source, YamlPath

# What a file says of itself, and not of those that extend it.
_OF_ITSELF: Final = ("published", "extends", "notes", "set")


def laid_over(
    below: tuple[dict[str, Any], Source], above: tuple[dict[str, Any], Source]
) -> tuple[dict[str, Any], Source]:
    """`above` over `below`: mappings of one kind are merged key by key, anything else is replaced whole.

    What a file says of itself stays its own, unless `above` changes nothing and so is another name for it.
    """
    (below_data, below_source), (above_data, above_source) = below, above
    own = _OF_ITSELF if len(above_data) > 1 else ("extends", "set")
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
