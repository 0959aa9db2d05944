"""YAML text -> plain Python with the line of every value. A spec can't run code or exhaust memory.

Only the data of YAML 1.2's core schema is read: no tags, no merge keys, no duplicate keys; `1e-5` is a number and
`no` is a string. The number and depth of values are limited: before anything is built (libyaml recurses in C, and a
file of brackets would crash the process), and again while aliases are expanded, which multiply values. Only regular
files are opened, and a spec may extend those of its own folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from xfcost.ledger.errors import SpecError, UsageError, printable
from xfcost.ledger.files import Expected, read_bytes


def read_file(file: Path, name: str, expected: Expected = Expected()) -> str:  # noqa: B008 - immutable
    """The text of a spec file, or of another kind that is `expected`; only regular files are opened.

    Raises:
        SpecError: it is missing, a directory, a pipe or a device, too large, not readable or not UTF-8 text.
    """
    try:
        return read_bytes(file, name, expected).decode("utf-8-sig")
    except UsageError as error:
        raise SpecError(str(error)) from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{name}: is not UTF-8 text (byte {error.start}); expected {expected.what}") from None


_ALLOW_OUTSIDE: ContextVar[bool] = ContextVar("_ALLOW_OUTSIDE", default=False)


@contextmanager
def allow_outside() -> Iterator[None]:
    """Inside the block, specs may extend files of any folder: `xfcost --allow-outside`."""
    token = _ALLOW_OUTSIDE.set(True)
    try:
        yield
    finally:
        _ALLOW_OUTSIDE.reset(token)


def outside_allowed() -> bool:
    """May specs extend files of any folder?"""
    return _ALLOW_OUTSIDE.get()


def check_inside(path: Path, path_text: str, spec: Path, spec_text: str) -> None:
    """Refuse a file outside the folder of `spec`, links and `..` resolved, before anything is read of it.

    Raises:
        UsageError: it lies outside, and that isn't allowed.
    """
    folder = os.path.realpath(spec.parent)
    if outside_allowed() or Path(os.path.realpath(path)).is_relative_to(folder):
        return
    raise UsageError(
        f"{path_text} lies outside the folder of {spec_text}, and is not read; copy it there, or where you trust the "
        "spec write `xfcost --allow-outside` before the command"
    )


try:
    from yaml import CBaseLoader as _BaseLoader
except ImportError:  # PyYAML without libyaml: the same loader, slower
    from yaml import BaseLoader as _BaseLoader  # type: ignore[assignment]

YamlPath = tuple[str | int, ...]

MOST_VALUES: Final = 20_000
MOST_DEPTH: Final = 60
# By aliases. The longest of the specs that come with xfcost has 218 values in all.
_MOST_REPEATED: Final = 2_000
_INT: Final = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: Final = {"null": None, "~": None, "": None, "true": True, "false": False}
_Mark = tuple[int, int]
_BRACKETS: Final = {"while parsing a flow sequence": "[", "while parsing a flow mapping": "{"}


class Source:
    """The file's name as the user wrote it, and the file and line of every path."""

    def __init__(self, name: str, lines: Mapping[YamlPath, tuple[str, int]] = MappingProxyType({})) -> None:
        self.name = name
        self.lines = dict(lines)
        self.read_as = ""
        """Of a file of hyperparameters: what it was read as."""

    def where(self, path: YamlPath) -> str:
        """`toy.yaml:14`, the line of `path` or of its nearest parent."""
        name, line = self._at(path)
        return f"{name}:{line}" if line else name

    def _at(self, path: YamlPath) -> tuple[str, int]:
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return self.name, 1

    def error(self, path: YamlPath, message: str, fits: int | None = None) -> SpecError:
        """The error `file:line path: message`; with a number there that `fits`, the option that sets it."""
        text, option = path_text(path), ""
        if fits is not None:
            option = f"--set {'.'.join(map(str, path))}={fits}"
            message = f"{message}, or more with {option}"
        full = f"{self.where(path)} {text}: {message}" if text else f"{self.where(path)} {message}"
        return SpecError(full, self._at(path), path, option=option)


def path_text(path: YamlPath) -> str:
    """`stages[1].block[0].heads`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{printable(step)}"
    return text


def value_at(data: Any, path: YamlPath) -> Any:
    """The value at `path`, or None."""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def shown_value(value: Any) -> str:
    """A value as YAML writes it: 'four', 4.5, true, null, [1, 2]."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return printable(repr(value))


def read(text: str, name: str) -> tuple[dict[str, Any], Source]:
    """The mapping in `text`, and the line of every value.

    Raises:
        SpecError: it is not YAML, not plain data, or not one mapping.
    """
    data, source = _read(text, name)
    return _copied(data), Source(name, source.lines)


@lru_cache(maxsize=64)
def _read(text: str, name: str) -> tuple[dict[str, Any], Source]:
    """Cached: many variants extend one preset."""
    source = Source(name)
    node, tagged = _compose(text, source)
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        raise SpecError(f"{name}:1 is empty; expected a mapping with `input`, `embed`, `stages` and `head`")
    source.lines[()] = (name, node.start_mark.line + 1)
    builder = _Builder(source, tagged)
    if not isinstance(node, yaml.MappingNode):
        builder.refuse_tag(node, ())
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
        raise source.error((), f"{kind} at top level; expected a mapping with `input`, `embed`, `stages`, `head`")
    return builder.build(node, ()), source


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def read_value(text: str) -> Any:
    """One value from the command line (`--set key=VALUE`), by the same rules."""
    source = Source("--set")
    node, tagged = _compose(text, source)
    return None if node is None else _Builder(source, tagged).build(node, ())


class _TooLargeError(Exception):
    """A text is nested too deep or has too many values."""


class _Loader(_BaseLoader):
    """Composes nodes, all of their words unresolved; stops where they are nested too deep or are too many."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = self.values = 0

    def descend_resolver(self, parent: Any, index: Any) -> None:
        """Called before each node is composed."""
        self.depth += 1
        self.values += 1
        if self.depth > MOST_DEPTH + 1 or self.values > 2 * MOST_VALUES:  # a word is one deeper; keys and values
            raise _TooLargeError

    def ascend_resolver(self) -> None:
        """Called after each."""
        self.depth -= 1

    def resolve(self, kind: Any, value: Any, implicit: Any) -> None:
        """The tag of a node without one."""


def _compose(text: str, source: Source) -> tuple[yaml.Node | None, dict[_Mark, str]]:
    """The nodes of `text`, and its written tags by line and column."""
    try:
        return _composed(text, source)
    except yaml.YAMLError as error:
        raise SpecError(f"{source.name}:{_problem(error)}") from None
    except UnicodeEncodeError:  # bytes of the command line that are no UTF-8
        raise SpecError(f"{source.name}: has half a character; expected UTF-8 text") from None


def _problem(error: yaml.YAMLError) -> str:
    """`3 is not valid YAML: …`, by the line where the parser noticed it; of an open bracket, by the bracket's."""
    context, mark, problem = (getattr(error, name, None) for name in ("context", "problem_mark", "problem"))
    begin = getattr(error, "context_mark", None)
    if begin and context in _BRACKETS:
        return f"{begin.line + 1} is not valid YAML: this `{_BRACKETS[context]}` is not closed ({problem})"
    if context == "while parsing a flow node":
        problem = f"{problem}; is a `[` or `{{` above not closed?"
    if "nesting depth" in str(problem):  # libyaml's own limit, since PyYAML 6.0.4
        return f"{mark.line + 1 if mark else 1} is nested deeper than {MOST_DEPTH} levels; write a flatter spec"
    words = ", ".join(filter(None, (context, problem))) or getattr(error, "reason", None) or "it can't be parsed"
    return f"{mark.line + 1 if mark else 1} is not valid YAML: {words}"


def _composed(text: str, source: Source) -> tuple[yaml.Node | None, dict[_Mark, str]]:
    tagged = _scan(text, source) if "!" in text else {}
    loader = _Loader(text)
    try:
        return loader.get_single_node(), tagged
    except (_TooLargeError, yaml.YAMLError):
        _scan(text, source)  # raises the first error, with its line
        raise
    finally:
        loader.dispose()


def _scan(text: str, source: Source) -> dict[_Mark, str]:
    """The written tags of `text`. Refuses too deep or too many values with their line, without recursion."""
    tagged: dict[_Mark, str] = {}
    depth = values = 0
    event: Any  # the stubs let a parsed event lack its mark
    for event in yaml.parse(text, Loader=_BaseLoader):
        line, column = event.start_mark.line + 1, event.start_mark.column
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            values += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
            if tag := getattr(event, "tag", None):
                tagged[line, column] = tag
        if depth > MOST_DEPTH:
            raise SpecError(f"{source.name}:{line} is nested deeper than {MOST_DEPTH} levels; write a flatter spec")
        if values > 2 * MOST_VALUES:  # keys and values
            raise SpecError(f"{source.name}:{line} is the end of {MOST_VALUES:,} values; write a smaller spec")
    return tagged


class _Builder:
    """Nodes -> values; counts them and records their lines."""

    def __init__(self, source: Source, tagged: dict[_Mark, str]) -> None:
        self.source = source
        self.tagged = tagged
        self.values = 0
        self.built: set[yaml.Node] = set()

    def build(self, node: yaml.Node, path: YamlPath) -> Any:
        """The value of `node`, which is at `path`."""
        self.source.lines.setdefault(path, (self.source.name, node.start_mark.line + 1))
        self.values += 1
        self.built.add(node)
        if self.values > MOST_VALUES:
            raise self.source.error(path, f"more than {MOST_VALUES:,} values; write a smaller spec")
        if self.values - len(self.built) > _MOST_REPEATED:
            raise self.source.error(
                path,
                f"aliases repeat more than {_MOST_REPEATED:,} values; expected no more; "
                "`depth`, or `repeat` in `blocks`, repeats blocks without aliases",
            )
        if len(path) > MOST_DEPTH:
            raise self.source.error(path[:3], f"nested deeper than {MOST_DEPTH} levels (an alias to itself?)")
        self.refuse_tag(node, path)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, number)) for number, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: YamlPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.source.lines[(*path, "?")] = (self.source.name, line)
                raise self.source.error((*path, "?"), "a key must be a word")
            key = str(key_node.value)
            key_path = (*path, key)
            first = self.source.where(key_path) if key in result else None
            self.source.lines[key_path] = (self.source.name, line)
            if first:
                raise self.source.error(key_path, f"duplicate key (first at {first}); keep one of them")
            if key == "<<":
                raise self.source.error(key_path, "merge keys are not read; write the keys out, or use `extends`")
            self.refuse_tag(key_node, key_path)
            result[key] = self.build(value_node, key_path)
        return result

    def _scalar(self, node: Any, path: YamlPath) -> Any:
        text = node.value
        if node.style:  # quoted or a block: always text
            return text
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        try:
            if _INT.match(text):
                return int(text.replace("_", ""))
            if _FLOAT.match(text):
                return float(text.replace("_", ""))
        except ValueError:
            raise self.source.error(path, f"a number of {len(text)} digits is too large") from None
        return text

    def refuse_tag(self, node: yaml.Node, path: YamlPath) -> None:
        """Refuse a tag: it instructs the loader, and a spec is plain data."""
        if tag := self.tagged.get((node.start_mark.line + 1, node.start_mark.column)):
            name = printable(tag.replace("tag:yaml.org,2002:", "!!"))
            raise self.source.error(
                path, f"the tag {name} is not read: a spec is plain data and can't run code; leave it out"
            )
