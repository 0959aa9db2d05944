"""`extends`: one spec file merged over another, every value with its line."""

from __future__ import annotations

from typing import Any, Final

from xfcost.spec.reader import Source, YamlPath

# Keys that describe a file itself, and not the files that extend it.
_NOT_INHERITED: Final = ("published", "survey", "extends", "notes", "set")


def merged(below: tuple[dict[str, Any], Source], above: tuple[dict[str, Any], Source]) -> tuple[dict[str, Any], Source]:
    """`above` over `below`: mappings of one kind are merged key by key, anything else is replaced whole.

    Published figures, a survey's line and notes are not inherited, unless `above` changes nothing and so is another
    name of `below`.
    """
    (below_data, below_source), (above_data, above_source) = below, above
    not_inherited = _NOT_INHERITED if len(above_data) > 1 else ("extends", "set")
    replaced: list[YamlPath] = [(key,) for key in not_inherited]
    inherited = {key: value for key, value in below_data.items() if key not in not_inherited}
    data = _merged(inherited, above_data, (), replaced)
    prefixes, lengths = set(replaced), {len(path) for path in replaced}
    inherited_lines = {
        path: line
        for path, line in below_source.lines.items()
        if not any(path[:length] in prefixes for length in lengths)
    }
    return data, Source(above_source.name, inherited_lines | above_source.lines)


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
