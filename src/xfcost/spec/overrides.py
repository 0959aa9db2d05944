"""Overrides of single keys: `--set stages.0.depth=4` on the command line, `set: {stages.0.depth: 4}` in a file.

A key is a path: `*` matches every item of a list (`stages.*.pattern.*.0.size`), `**` any depth at which the rest of
the path is written (`**.spatial.size`), and `each` gives every item its own value (`stages.each.depth: [2, 2, 18, 2]`).
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import SpecError, UsageError, any_of, nearest, printable
from xfcost.spec.grammar import Spec
from xfcost.spec.reader import MOST_DEPTH, MOST_VALUES, Source, YamlPath, path_text, read_value, shown_value, value_at

_EVERY: Final = "*"
_ANYWHERE: Final = "**"
_EACH: Final = "each"
_FILE_KEYS: Final = ("extends", "set")


def apply_settings(data: dict[str, Any], source: Source, settings: Sequence[str]) -> list[str]:
    """Apply the `--set` options in order, as in `stages.0.depth=4`.

    Returns:
        The errors of those that can't be set, each once.
    """
    errors: list[str] = []
    for setting in settings:
        try:
            _apply_setting(data, source, setting)
        except UsageError as error:
            errors.append(str(error))
    return list(dict.fromkeys(errors))


def _apply_setting(data: dict[str, Any], source: Source, setting: str) -> None:
    """Apply one `--set stages.0.depth=4`. Its last word may be new; the words before it are in the spec, or allowed.

    Raises:
        UsageError: it is no `key=value`, its value is no YAML, or its key leads nowhere.
    """
    key, equals, text = setting.partition("=")
    shown = f"--set {printable(setting)}:"
    if not equals or not key.strip():
        raise UsageError(f"{shown} expected key=value, as in --set stages.0.depth=4")
    if (first := _words(key)[0]) in _FILE_KEYS:
        raise UsageError(f"{shown} `{first}` belongs to a file; name the spec itself instead of the one you set it on")
    if key not in Spec.__struct_fields__ and "." not in key and _holds(data, key):
        key = f"**.{key}"  # of all parts that have it
    elif "." not in key and key not in Spec.__struct_fields__ and (place := _of_kind(data, key)) is not None:
        first, keys = place
        path = re.sub(r"\.\d+(?=\.)", ".*", first)
        raise UsageError(
            f"{shown} {key} is a kind here, whose keys are {any_of(keys)}, as in --set {path}.{keys[0]}={text}"
        )
    try:
        _assign(data, source, key, read_value(text), (shown, 0))
    except SpecError as error:
        raise UsageError(f"{shown} {str(error).removeprefix('--set:1 ')}") from None
    except _PathError as error:
        raise UsageError(f"{shown} {error}") from None


def apply_file_settings(data: dict[str, Any], source: Source) -> list[SpecError]:
    """Apply the `set` of a file (`set: {stages.2.depth: 18}`), over what it extends and what it writes.

    Returns:
        The errors of those that can't be set.
    """
    errors: list[SpecError] = []
    settings = data.get("set")
    for key, value in settings.items() if isinstance(settings, dict) else ():  # the grammar refuses anything else
        if (first := _words(key)[0]) in _FILE_KEYS:
            errors.append(source.error(("set", key), f"`{first}` belongs to the file; write it outside of `set`"))
            continue
        try:
            _assign(data, source, key, value, source.lines.get(("set", key), (source.name, 0)))
        except _PathError as error:
            errors.append(source.error(("set", key), str(error)))
    return errors


def assignments(data: dict[str, Any], key: str, value: Any) -> dict[YamlPath, Any]:
    """The paths of `data` that `key` leads to, each with the value that it gets; mappings on the way are added.

    Raises:
        UsageError: it leads nowhere.
    """
    words = _words(key)
    if words[0] in _FILE_KEYS:
        raise UsageError(f"`{words[0]}` belongs to a file; leave it out")
    try:
        each = _expanded(data, words, value)
        return {target.path: item for item_words, item in each for target in _matched(data, item_words)}
    except _PathError as error:
        raise UsageError(str(error)) from None


def kinds_that_it_changes(data: dict[str, Any], setting: str) -> Counter[str]:
    """How many components of each kind a `--set **.size=12` changes; none of one without `**`."""
    key, found = setting.partition("=")[0], Counter[str]()
    if _ANYWHERE in _words(key):
        for path in assignments(data, key, None):
            holder = value_at(data, path[:-1])
            found[str(holder["kind"] if isinstance(holder, dict) and "kind" in holder else path[-2:][0])] += 1
    return found


class _PathError(Exception):
    """A path that matches nothing, and why."""


class _Target(NamedTuple):
    """`container[step]`, the value to set."""

    container: Any
    step: str | int
    path: YamlPath


def has_each(key: str) -> bool:
    """Does the key take a list of values, one for each item?"""
    return _EACH in _words(key)


def _words(key: str) -> list[str]:
    """`stages[0].depth` -> stages, 0, depth."""
    return re.sub(r"\[([0-9]+|\*|each)\]", r".\1", key.strip()).split(".")


def _assign(data: dict[str, Any], source: Source, key: str, value: Any, line: tuple[str, int]) -> None:
    for item_words, item_value in _expanded(data, _words(key), value):
        _assign_at(data, source, item_words, item_value, line)


def _expanded(data: dict[str, Any], words: list[str], value: Any) -> list[tuple[list[str], Any]]:
    """The paths that `words` stand for, each with its value: of `each` one per item, else the words themselves."""
    return list(_expanded_each(data, words, value)) if _EACH in words else [(words, value)]


def _expanded_each(data: dict[str, Any], words: list[str], values: Any) -> Iterator[tuple[list[str], Any]]:
    """`stages.each.depth: [2, 6]` as `stages.0.depth: 2` and `stages.1.depth: 6`."""
    index = words.index(_EACH)
    before, after = words[:index], words[index + 1 :]
    if not before or _EACH in after:
        raise _PathError("'each' may occur once, after a list, as in stages.each.depth")
    for container, step, path in _targets(data, data, before, ()):
        items = value_at(container, (step,))
        if not isinstance(items, list):
            raise _PathError(f"'each' is every item of a list, and {path_text(path)} is {shown_value(items)}")
        if not isinstance(values, list) or len(values) != len(items):
            given = f"a list of {len(values)}" if isinstance(values, list) else shown_value(values)
            wanted = f"a list of {len(items)}, one value for each item of {path_text(path)}"
            raise _PathError(f"'each' needs {wanted}; got {given}")
        for number, value in enumerate(values):
            yield [*map(str, path), str(number), *after], value


def _assign_at(data: dict[str, Any], source: Source, words: list[str], value: Any, line: tuple[str, int]) -> None:
    targets = _matched(data, words)
    if _grows(targets, value) and _size(data) + len(targets) * _size(value) > MOST_VALUES:
        raise _PathError(f"more than {MOST_VALUES:,} values; write a smaller spec")
    if max(len(target.path) for target in targets) > MOST_DEPTH:
        raise _PathError(f"nested deeper than {MOST_DEPTH} levels; write a flatter spec")
    for container, step, path in targets:
        replaced = value_at(container, (step,))
        container[step] = copy.deepcopy(value)
        if isinstance(replaced, dict | list):  # its lines are removed with it
            source.lines = {other: place for other, place in source.lines.items() if other[: len(path)] != path}
        source.lines[path] = line


def _matched(data: dict[str, Any], words: list[str]) -> list[_Target]:
    """What `words` match, at least one place."""
    if words.count(_ANYWHERE) > 1 or words[-1] == _ANYWHERE:
        raise _PathError("'**' may occur once, before the key that it searches for, as in **.heads")
    targets = list(_targets(data, data, words, ()))
    if not targets:
        raise _PathError(f"nothing in the spec is at {printable('.'.join(words))}")
    return targets


def _targets(data: dict[str, Any], value: Any, words: list[str], path: YamlPath) -> Iterator[_Target]:
    """What `words` match inside `value`, which is at `path` of `data`."""
    word, *rest = words
    if word == _ANYWHERE:
        for inner, inner_path in list(_containers(value, path)):
            if _is_written(inner, rest):
                yield from _targets(data, inner, rest, inner_path)
        return
    if rest and isinstance(value, dict) and word not in value and _can_begin(data, path, word, rest[0]):
        value[word] = {}
    for step in _steps(value, word, path, new=not rest):
        if rest:
            yield from _targets(data, value[step], rest, (*path, step))
        else:
            yield _Target(value, step, (*path, step))


def _can_begin(data: dict[str, Any], path: YamlPath, word: str, next_word: str) -> bool:
    """Could `word`, which the spec leaves out, hold the key `next_word`, as in `residual.layer_scale`?"""
    from xfcost.spec.schema import known_keys  # the schema of all kinds, which few settings need

    return not re.fullmatch(r"[0-9]+|\*", next_word) and word in known_keys(data, path) and word not in _FILE_KEYS


def _containers(value: Any, path: YamlPath) -> Iterator[tuple[Any, YamlPath]]:
    """`value` and every mapping and list inside it, with their paths."""
    if isinstance(value, dict | list):
        yield value, path
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            if path or step not in _FILE_KEYS:
                yield from _containers(item, (*path, step))


def _is_written(value: Any, words: list[str]) -> bool:
    """Is the whole path `words` written inside `value`?"""
    if not words:
        return True
    word, *rest = words
    if isinstance(value, list):
        items = value if word == _EVERY else value[int(word) :][:1] if re.fullmatch(r"[0-9]{1,9}", word) else []
        return bool(items) and all(_is_written(item, rest) for item in items)
    return isinstance(value, dict) and word in value and _is_written(value[word], rest)


def _steps(value: Any, word: str, path: YamlPath, *, new: bool) -> list[str | int]:
    """The keys or numbers of `value` that `word` matches."""
    if isinstance(value, list):
        if word == _EVERY and value:
            return list(range(len(value)))
        if re.fullmatch(r"[0-9]{1,9}", word) and int(word) < len(value):
            return [int(word)]
        items = f"items 0 to {len(value) - 1}" if value else "no items"
        raise _PathError(f"{path_text(path)} has {items}, and no {shown_value(word)}")
    if isinstance(value, dict):
        if word == _EVERY:
            raise _PathError(f"'*' is every item of a list, and {path_text(path) or 'the spec'} is a mapping")
        if word in value or (new and word):
            return [word]
        keys = [key for key in value if path or key not in _FILE_KEYS]
        raise _PathError(f"{path_text(path) or 'the spec'} has no {shown_value(word)}; {nearest(word, keys)}")
    raise _PathError(f"{path_text(path)} is {shown_value(value)} and holds no {shown_value(word)}")


def _grows(targets: list[_Target], value: Any) -> bool:
    """Can the spec become larger? Not where one number or word replaces another."""
    new = any(isinstance(container, dict) and step not in container for container, step, _ in targets)
    return new or isinstance(value, dict | list)


def _of_kind(value: Any, kind: str, path: str = "") -> tuple[str, list[str]] | None:
    """The place of the first component of that kind, and its keys."""
    if isinstance(value, dict) and value.get("kind") == kind and len(value) > 1:
        return path, [key for key in value if key != "kind"]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = (_of_kind(item, kind, f"{path}.{name}".lstrip(".")) for name, item in items)
    return next((one for one in found if one is not None), None)


def _holds(value: Any, key: str) -> bool:
    """Does a mapping in it have the key?"""
    if isinstance(value, list):
        return any(_holds(item, key) for item in value)
    return isinstance(value, dict) and (key in value or any(_holds(item, key) for item in value.values()))


def _size(value: Any) -> int:
    """The number of values in `value`, itself included."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(_size(item) for item in items)
