"""Keys set one by one: `--set stages.0.depth=4` on the command line, `set: {stages.0.depth: 4}` in a file.

A key is a path of words: `*` is every item of a list (`stages.*.pattern.*.0.size`), `**` any way down to where the
rest of the path is written (`**.spatial.size`), and `each` every item with a value of its own (`stages.each.depth:
[2, 2, 18, 2]`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from xfcost.ledger.errors import SpecError, UsageError, nearest, printable
from xfcost.spec.reader import MOST_DEPTH, MOST_VALUES, Source, YamlPath, path_text, read_value, shown_value

_EVERY: Final = "*"
_ANYWHERE: Final = "**"
_EACH: Final = "each"
_OF_A_FILE: Final = ("extends", "set")


def apply_all(data: dict[str, Any], source: Source, settings: Sequence[str]) -> list[str]:
    """What `--set` says, one after another, as in `stages.0.depth=4`.

    Returns:
        What is wrong with those that can't be set, each once.
    """
    wrong: list[str] = []
    for setting in settings:
        try:
            _apply(data, source, setting)
        except UsageError as error:
            wrong.append(str(error))
    return list(dict.fromkeys(wrong))


def _apply(data: dict[str, Any], source: Source, setting: str) -> None:
    """One `--set stages.0.depth=4`. The key's last word may be new; what leads to it stands in the spec, or could.

    Raises:
        UsageError: it is no `key=value`, its value is no YAML, or its key leads nowhere.
    """
    key, equals, text = setting.partition("=")
    said = f"--set {printable(setting)}:"
    if not equals or not key.strip():
        raise UsageError(f"{said} expected key=value, as in --set stages.0.depth=4")
    if (first := _words(key)[0]) in _OF_A_FILE:
        raise UsageError(f"{said} `{first}` belongs to a file; name the spec itself in place of the one you set it on")
    try:
        _assign(data, source, key, read_value(text), (said, 0))
    except SpecError as error:
        raise UsageError(f"{said} {str(error).removeprefix('--set:1 ')}") from None
    except _AstrayError as error:
        raise UsageError(f"{said} {error}") from None


def apply_own(data: dict[str, Any], source: Source) -> list[SpecError]:
    """The keys that a file itself sets (`set: {stages.2.depth: 18}`), over what it extends and what it writes.

    Returns:
        What is wrong with those that can't be set.
    """
    wrong: list[SpecError] = []
    settings = data.get("set")
    for key, value in settings.items() if isinstance(settings, dict) else ():  # the grammar refuses anything else
        if (first := _words(key)[0]) in _OF_A_FILE:
            wrong.append(source.error(("set", key), f"`{first}` belongs to the file; write it outside of `set`"))
            continue
        try:
            _assign(data, source, key, value, source.lines.get(("set", key), (source.name, 0)))
        except _AstrayError as error:
            wrong.append(source.error(("set", key), str(error)))
    return wrong


class _AstrayError(Exception):
    """A path that leads nowhere, and why."""


class _Target(NamedTuple):
    """`holder[step]`, the value to set."""

    holder: Any
    step: str | int
    path: YamlPath


def _words(key: str) -> list[str]:
    """`stages[0].depth` -> stages, 0, depth."""
    return re.sub(r"\[([0-9]+|\*|each)\]", r".\1", key.strip()).split(".")


def _assign(data: dict[str, Any], source: Source, key: str, value: Any, line: tuple[str, int]) -> None:
    words = _words(key)
    if _EACH not in words:
        _assign_at(data, source, words, value, line)
        return
    for one, own in list(_one_by_one(data, words, value)):
        _assign_at(data, source, one, own, line)


def _one_by_one(data: dict[str, Any], words: list[str], values: Any) -> Iterator[tuple[list[str], Any]]:
    """`stages.each.depth: [2, 6]` as `stages.0.depth: 2` and `stages.1.depth: 6`."""
    at = words.index(_EACH)
    before, after = words[:at], words[at + 1 :]
    if not before or _EACH in after:
        raise _AstrayError("'each' stands once, behind the list that it counts, as in stages.each.depth")
    for holder, step, path in _targets(data, data, before, ()):
        items = _value_at(holder, step)
        if not isinstance(items, list):
            raise _AstrayError(f"'each' is every item of a list, and {path_text(path)} is {shown_value(items)}")
        if not isinstance(values, list) or len(values) != len(items):
            given = f"a list of {len(values)}" if isinstance(values, list) else shown_value(values)
            wanted = f"a list of {len(items)}, one value for each item of {path_text(path)}"
            raise _AstrayError(f"'each' needs {wanted}; got {given}")
        for number, value in enumerate(values):
            yield [*map(str, path), str(number), *after], value


def _assign_at(data: dict[str, Any], source: Source, words: list[str], value: Any, line: tuple[str, int]) -> None:
    if words.count(_ANYWHERE) > 1 or words[-1] == _ANYWHERE:
        raise _AstrayError("'**' stands once, before the key that it looks for, as in **.heads")
    targets = list(_targets(data, data, words, ()))
    if not targets:
        raise _AstrayError(f"nothing in the spec is at {printable('.'.join(words))}")
    if _grows(targets, value) and _size(data) + len(targets) * _size(value) > MOST_VALUES:
        raise _AstrayError(f"more than {MOST_VALUES:,} values; write a smaller spec")
    if max(len(target.path) for target in targets) > MOST_DEPTH:
        raise _AstrayError(f"nested deeper than {MOST_DEPTH} levels; write a flatter spec")
    for holder, step, path in targets:
        replaced = _value_at(holder, step)
        holder[step] = copy.deepcopy(value)
        if isinstance(replaced, dict | list):  # its lines go with it
            source.lines = {known: at for known, at in source.lines.items() if known[: len(path)] != path}
        source.lines[path] = line


def _targets(data: dict[str, Any], here: Any, words: list[str], path: YamlPath) -> Iterator[_Target]:
    """What `words` lead to from `here`, which stands at `path` of `data`."""
    word, *rest = words
    if word == _ANYWHERE:
        for below, way in list(_within(here, path)):
            if _written(below, rest):
                yield from _targets(data, below, rest, way)
        return
    if rest and isinstance(here, dict) and word not in here and _begins(data, path, word, rest[0]):
        here[word] = {}
    for step in _steps(here, word, path, new=not rest):
        if rest:
            yield from _targets(data, here[step], rest, (*path, step))
        else:
            yield _Target(here, step, (*path, step))


def _begins(data: dict[str, Any], path: YamlPath, word: str, then: str) -> bool:
    """Whether `word`, which the spec leaves out, could hold the key `then`, as in `residual.layer_scale`."""
    from xfcost.spec.schema import known_keys  # the schema of all kinds, which few settings need

    return not re.fullmatch(r"[0-9]+|\*", then) and word in known_keys(data, path) and word not in _OF_A_FILE


def _within(here: Any, path: YamlPath) -> Iterator[tuple[Any, YamlPath]]:
    """Every mapping and list at `here` and in it."""
    if isinstance(here, dict | list):
        yield here, path
        for step, value in here.items() if isinstance(here, dict) else enumerate(here):
            if path or step not in _OF_A_FILE:
                yield from _within(value, (*path, step))


def _written(here: Any, words: list[str]) -> bool:
    """Whether the path `words` stands in the spec from `here` on, its last word too."""
    if not words:
        return True
    word, *rest = words
    if isinstance(here, list):
        items = here if word == _EVERY else here[int(word) :][:1] if re.fullmatch(r"[0-9]{1,9}", word) else []
        return bool(items) and all(_written(item, rest) for item in items)
    return isinstance(here, dict) and word in here and _written(here[word], rest)


def _steps(here: Any, word: str, path: YamlPath, *, new: bool) -> list[str | int]:
    """The keys or numbers that `word` means in `here`."""
    if isinstance(here, list):
        if word == _EVERY and here:
            return list(range(len(here)))
        if re.fullmatch(r"[0-9]{1,9}", word) and int(word) < len(here):
            return [int(word)]
        there = f"items 0 to {len(here) - 1}" if here else "no items"
        raise _AstrayError(f"{path_text(path)} has {there}, and no {shown_value(word)}")
    if isinstance(here, dict):
        if word == _EVERY:
            raise _AstrayError(f"'*' is every item of a list, and {path_text(path) or 'the spec'} is a mapping")
        if word in here or (new and word):
            return [word]
        known = [key for key in here if path or key not in _OF_A_FILE]
        raise _AstrayError(f"{path_text(path) or 'the spec'} has no {shown_value(word)}; {nearest(word, known)}")
    raise _AstrayError(f"{path_text(path)} is {shown_value(here)} and holds no {shown_value(word)}")


def _value_at(holder: Any, step: str | int) -> Any:
    return holder.get(step) if isinstance(holder, dict) else holder[step]


def _grows(targets: list[_Target], value: Any) -> bool:
    """Whether the spec can become larger: not where one number or word stands in place of another."""
    new = any(isinstance(holder, dict) and step not in holder for holder, step, _ in targets)
    return new or isinstance(value, dict | list)


def _size(value: Any) -> int:
    """How many values `value` is, those in it counted."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(_size(item) for item in inside)
