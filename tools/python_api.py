"""The tables of docs/python.md: every public function with its arguments, options and results, from the code."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, UnionType
from typing import Any, Final, cast

from blocks import anchor

import xfcost
from xfcost.api import options as declared
from xfcost.ledger.notebook import Reported
from xfcost.ledger.option import Option

# Section -> its functions, in the order of the page.
SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Count one model": ("analyze", "summary", "trace", "build", "register"),
    "Compare and search": ("compare", "diff", "check", "find"),
    "Draw": ("plot", "roofline", "diagram", "glance", "write_report"),
    "Time": ("measure", "calibrate"),
    "How information travels": ("reach", "stream"),
    "Published tables": ("survey", "layer_types"),
}
# What most functions return, and its rows: they come first.
FIRST: Final = ("Ledger", "Operation")
# What the page says once, of all functions.
REPEATED: Final = ("", "As for `analyze`.", "bad input; the message says what was expected and how to mend it.")
UNIONS: Final = (typing.Union, UnionType)
LONGEST_CALL: Final = 90


def functions() -> str:
    """The list of all functions, then a section of each."""
    rows = [
        {"function": f"[`{name}`](#{anchor(f'xfcost.{name}')})", "what it does": _cell(_first(_own(name)))}
        for names in SECTIONS.values()
        for name in names
    ]
    texts = [_table(rows)]
    for title, names in SECTIONS.items():
        texts += [f"## {title}", *(_function(name) for name in names)]
    return "\n\n".join(texts)


def options() -> str:
    """A table of the options of each topic, and which functions take them."""
    texts = []
    for topic, names in _topics().items():
        takers: dict[str, tuple[str, ...]] = {
            name: tuple(one for one in _all_functions() if name in _options_of(one)) for name in names
        }
        rows = [
            {
                "option": f"`{name}`",
                "values": _values(name),
                "default": f"`{declared.EVERY[name].default!r}`",
                "meaning": _cell(_meaning(declared.EVERY[name])),
            }
            for name in names
            if takers[name]
        ]
        texts += [f"### {topic}", _table(rows)]
    return "\n\n".join(texts)


def results() -> str:
    """A table of the attributes of every class that a function returns, and one of its methods."""
    returned = (found for function in _all_functions() for _, found in _returned(function))
    classes = dict.fromkeys([*(getattr(xfcost, name) for name in FIRST), *returned])
    texts = [_result(found) for found in (Reported, *classes)]
    return "\n\n".join([*texts, f"### `XfcostError`\n\n{_text(inspect.getdoc(xfcost.XfcostError) or '')}"])


def _all_functions() -> list[str]:
    return [name for names in SECTIONS.values() for name in names]


def _own(name: str) -> FunctionType:
    """The function as it is written: of its options, only `**options`."""
    return cast("FunctionType", inspect.unwrap(getattr(xfcost, name)))


def _options_of(name: str) -> list[str]:
    """The declared options that a function takes, without arguments of its own that have the same name."""
    own = inspect.signature(_own(name)).parameters
    return [one for one in inspect.signature(getattr(xfcost, name)).parameters if one not in own]


def _topics() -> dict[str, list[str]]:
    """Topic -> its options; `Timing, with --device` is `Timing`."""
    topics: dict[str, list[str]] = {}
    for name in declared.EVERY:
        topics.setdefault(_topic(name), []).append(name)
    order = [one.partition(",")[0] for one in declared.GROUPS]
    return {topic: topics[topic] for topic in order if topic in topics}


def _topic(name: str) -> str:
    return declared.GROUP_OF[name].partition(",")[0]


# A function ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _function(name: str) -> str:
    function = _own(name)
    parts = _docstring(inspect.getdoc(function) or "")
    texts = [f"### `xfcost.{name}`", f"```python\n{_call(name, function)}\n```", _text(parts[""])]
    arguments = dict(_items(parts.get("Args", "")))
    about = arguments.pop("**options", "")
    parameters = inspect.signature(function).parameters
    rows = [
        {
            "argument": f"`{argument}`",
            "default": _default(parameters[argument.lstrip("*")]),
            "meaning": _cell(_text(meaning)),
        }
        for argument, meaning in arguments.items()
    ]
    texts += [_table(rows)] if rows else []
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        texts += [text for text in (_options(name), _capital(_text(about))) if text not in REPEATED]
    if "Returns" in parts:
        texts.append(f"**Returns** {_linked(_text(parts['Returns']), name)}")
    elif found := _returned(name):
        texts.append(f"**Returns** {', '.join(_link(one) for one, _ in found)}")
    raised = ((error, _text(why)) for error, why in _items(parts.get("Raises", "")))
    texts += [f"**Raises** `{error}`: {why}" for error, why in raised if why not in REPEATED]
    return "\n\n".join(texts)


def _options(name: str) -> str:
    """Links to the topics whose options it takes; the options themselves where it takes only some of a topic."""
    taken = set(_options_of(name))
    if not taken:
        return ""
    links = []
    for topic, names in _topics().items():
        ours, others = ([one for one in names if (one in taken) is wanted] for wanted in (True, False))
        listed = ", ".join(f"`{one}`" for one in min(ours, others, key=len))
        which = "" if not others else f" ({listed})" if len(ours) <= len(others) else f" (all but {listed})"
        links += [f"[{topic}](#{anchor(topic)}){which}"] if ours else []
    return f"**Options** {', '.join(links)}."


def _call(name: str, function: FunctionType) -> str:
    """How it is called: arguments without types, and the class of the result."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    text = f"xfcost.{name}{inspect.Signature(parameters)}"
    if len(text) > LONGEST_CALL:
        words = [str(one) for one in parameters]
        only = next((at for at, one in enumerate(parameters) if one.kind is inspect.Parameter.KEYWORD_ONLY), None)
        if only is not None and all(one.kind is not inspect.Parameter.VAR_POSITIONAL for one in parameters):
            words.insert(only, "*")
        lines = "".join(f"    {word},\n" for word in words)
        text = f"xfcost.{name}(\n{lines})"
    returned = signature.return_annotation
    return text if returned is inspect.Signature.empty else f"{text} -> {returned}"


def _docstring(text: str) -> dict[str, str]:
    """Section of a docstring -> its text; what comes first is ""."""
    head, *parts = re.split(r"^(Args|Returns|Raises):\n", text, flags=re.MULTILINE)
    return {"": head} | dict(zip(parts[::2], parts[1::2], strict=True))


def _items(text: str) -> Iterator[tuple[str, str]]:
    """(name, text) of every entry of `Args:` and `Raises:`."""
    for entry in re.split(r"^    (?=\S)", text, flags=re.MULTILINE)[1:]:
        name, _, about = entry.partition(":")
        yield name, about


def _text(text: str) -> str:
    """Lines as one, paragraph by paragraph; an example at the prompt is a block of code."""
    paragraphs = [part for part in re.split(r"\n\s*\n", inspect.cleandoc(text)) if part.strip()]
    return "\n\n".join(
        f"```python\n{part}\n```" if part.startswith(">>>") else " ".join(part.split()) for part in paragraphs
    )


def _first(function: FunctionType) -> str:
    """The first paragraph of its docstring."""
    return _text(inspect.getdoc(function) or "").partition("\n\n")[0]


def _default(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return "any number"
    return "required" if parameter.default is inspect.Parameter.empty else f"`{parameter.default!r}`"


# Options ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _values(name: str) -> str:
    """The words that it takes, or its types; None is left out, for it is the default where it may be given."""
    words = declared.EVERY[name].words
    if words:
        return ", ".join(f"`{word}`" for word in words)
    members = typing.get_args(declared.TYPES[name].__origin__) or (declared.TYPES[name].__origin__,)
    if typing.get_origin(declared.TYPES[name].__origin__) not in UNIONS:
        members = (declared.TYPES[name].__origin__,)
    return " or ".join(_type(member) for member in members if member is not type(None))


def _type(member: Any) -> str:
    if member is Any:
        return "any"
    text = member.__name__ if isinstance(member, type) and not typing.get_args(member) else str(member)
    return f"`{re.sub(r'(?:collections[.]abc|typing)[.]', '', text)}`"


def _meaning(option: Option) -> str:
    """The text of `--help`, with options as Python writes them, and what only Python has."""
    return f"{_pythonic(option.help)} {option.python}".strip()


def _pythonic(text: str) -> str:
    """The text with `--new-tokens` as `new_tokens`, in code that is nothing else and outside of code."""
    flags = {declared.flag_of(name).split("/")[0]: name for name in declared.EVERY}
    flags |= {
        f"--{name}": name for function in _all_functions() for name in inspect.signature(_own(function)).parameters
    }
    words = text.split("`")
    words[1::2] = (f"`{flags.get(code, code)}`" for code in words[1::2])
    words[::2] = (
        re.sub(r"--[a-z][a-z-]*", lambda flag: f"`{flags.get(flag[0], flag[0])}`", plain) for plain in words[::2]
    )
    return "".join(words)


# Results ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _returned(name: str) -> list[tuple[str, type]]:
    """The classes in the annotation of what a function returns, with their names."""
    function = _own(name)
    return list(_classes(function.__module__, function.__annotations__.get("return", "")))


def _classes(module: str, annotation: str) -> Iterator[tuple[str, type]]:
    """The classes of ours in an annotation of `module`, with their names."""
    for word in re.findall(r"\w+", annotation):
        where = _imported(module, word)
        if where is not None and isinstance(one := getattr(import_module(where), word, None), type):
            yield word, one


def _about(module: str, annotation: str) -> str:
    """What the class of an attribute is, for one that has no text of its own."""
    return next((inspect.getdoc(one) or "" for _, one in _classes(module, annotation)), "")


def _imported(module: str, name: str) -> str | None:
    """The module of ours that `module` imports `name` from, for types too; `module` itself where it defines it."""
    for node in ast.walk(ast.parse(Path(str(import_module(module).__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            return node.module if str(node.module).startswith("xfcost.") else None
    return None


def _result(found: type) -> str:
    """A class: what it is, its attributes, its methods."""
    attributes, methods = [], []
    for name, type_, text in _members(found):
        if type_ is None:
            methods.append({"method": f"`{name}`", "what it returns": _cell(text)})
        else:
            words = type_.replace(" | ", " or ")  # a bar ends a cell, and in code no backslash hides it
            attributes.append(
                {"attribute": f"`{name}`", "type": f"`{_cell(words)}`", "meaning": _cell(_pythonic(text))}
            )
    tables = [_table(rows) for rows in (attributes, methods) if rows]
    return "\n\n".join([f"### `{found.__name__}`", _text(inspect.getdoc(found) or ""), *tables])


def _members(found: type) -> Iterator[tuple[str, str | None, str]]:
    """(name, type, first paragraph) of each public field and property; of methods (call, None, first paragraph)."""
    (body,) = (
        node.body
        for node in ast.parse(Path(inspect.getfile(found)).read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name == found.__name__
    )
    for node, after in zip(body, [*body[1:], None], strict=True):
        match node, after:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=type_), _ if not name.startswith("_"):
                text = after.value.value if _is_text(after) else _about(found.__module__, ast.unparse(type_))
                yield name, ast.unparse(type_), _text(text).partition("\n\n")[0]
            case ast.FunctionDef(name=name), _ if not name.startswith("_"):
                text = _text(ast.get_docstring(node) or "").partition("\n\n")[0]
                is_property = any("property" in ast.unparse(one) for one in node.decorator_list)
                arguments = [one.arg for one in (*node.args.args[1:], *node.args.kwonlyargs)]
                returns = "" if node.returns is None else ast.unparse(node.returns)
                yield (name, returns, text) if is_property else (f"{name}({', '.join(arguments)})", None, text)


def _is_text(node: ast.stmt | None) -> typing.TypeGuard[Any]:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


# Markdown ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _linked(text: str, name: str) -> str:
    """The text, with links to the classes that the function returns."""
    for word, _ in _returned(name):
        text = re.sub(rf"\b{word}\b(?!`)", _link(word), text, count=1)
    return text if "](" in text else f"{', '.join(_link(one) for one, _ in _returned(name))}: {text}"


def _link(name: str) -> str:
    return f"[`{name}`](#{anchor(name)})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _cell(text: str) -> str:
    """In a cell of a table; three brackets would end a block of cog."""
    return " ".join(text.split()).replace("|", "\\|").replace("]]]", "]] ]")


def _table(rows: list[dict[str, str]]) -> str:
    """A table without padding: most cells are long."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
