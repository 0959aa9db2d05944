"""The tables of docs/spec.md: every struct of the grammar with keys, types, defaults and meanings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import inspect
from tabulate import tabulate

from xfcost.formulas.component import Residual, SubLayer, tag_of
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.mechanisms import MECHANISMS
from xfcost.spec import grammar
from xfcost.spec.grammar import SurveyEntry
from xfcost.spec.schema import meanings, structs_in

INPUTS = (grammar.ImageInput, grammar.VideoInput, grammar.TokenInput, grammar.VectorInput, grammar.FeatureMapsInput)
# Section -> its structs; `Inside other keys` has the rest.
SECTIONS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "The spec": (
        grammar.Spec,
        grammar.StreamSpec,
        grammar.StageSpec,
        grammar.Group,
        Residual,
        grammar.Published,
        SurveyEntry,
    ),
    "`input`": INPUTS,
    "`embed`": tuple(EMBEDS.values()),
    "`enter`": tuple(ENTERS.values()),
    "In a block: mechanisms": tuple(MECHANISMS.values()),
    "In a block: per token": tuple(SUBLAYERS.values()),
    "`head`": tuple(HEADS.values()),
}
TITLES = {
    grammar.Spec: "The whole spec",
    grammar.StreamSpec: "`encoder` and `decoder`",
    grammar.StageSpec: "One of `stages`",
    grammar.Group: "A group in `blocks`",
    Residual: "`residual`",
    grammar.Published: "One of `published`",
    SurveyEntry: "`survey`",
}


def sections() -> Iterator[tuple[str, list[str]]]:
    """(title, texts of its structs); a struct of two sections has its table in the first and its name in the second."""
    shown: set[type[msgspec.Struct]] = set()
    for title, structs in SECTIONS.items():
        texts = [described(struct) for struct in structs if struct not in shown]
        repeated = ", ".join(f"`{tag_of(struct)}`" for struct in structs if struct in shown)
        yield title, [*texts, f"And, as above: {repeated}.\n"] if repeated else texts
        shown |= set(structs)
    rest = [struct for struct in structs_in(inspect.type_info(grammar.Spec)) if struct not in shown]
    yield "Inside other keys", [described(struct) for struct in rest]


def index() -> str:
    """A line per section, with a link to every kind in it; headings of one name are numbered as Markdown does."""
    headings: dict[str, int] = {}
    lines = []
    for title, texts in sections():
        links = []
        for text in texts:
            if not text.startswith("#### "):
                continue
            heading = text.partition("\n")[0].removeprefix("#### ")
            anchor = re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")
            number = headings[anchor] = headings.get(anchor, -1) + 1
            words = heading.replace("`", "").removeprefix("kind: ")
            links.append(f"[{words}](#{anchor}{f'-{number}' if number else ''})")
        lines.append(f"- {title}: {', '.join(links)}")
    return "\n".join(lines)


def described(struct: type[msgspec.Struct]) -> str:
    """Heading, first sentence and table of keys."""
    tag = struct.__struct_config__.tag
    title = TITLES.get(struct) or (f"`kind: {tag_of(struct)}`" if tag else f"`{struct.__name__.lower()}`")
    first = (struct.__doc__ or "").strip().partition("\n")[0]
    text = f"#### {title}\n\n{first}\n"
    lines = list(_lines(struct))
    return text + (f"\n{tabulate(lines, headers='keys', tablefmt='github', disable_numparse=True)}\n" if lines else "")


def _lines(struct: type[msgspec.Struct]) -> Iterator[dict[str, str]]:
    known = meanings(struct)
    for field in cast(inspect.StructType, inspect.type_info(struct)).fields:
        if field.encode_name == "residual" and issubclass(struct, SubLayer) and field.default is None:
            continue  # every sub-layer has it: the text says so once
        yield {
            "key": f"`{field.encode_name}`",
            "type": _cell(_type(field.type)),
            "default": "required" if field.required else f"`{_yaml(_default(field))}`",
            "meaning": _cell(known[field.encode_name]),
        }


def _type(type_: inspect.Type) -> str:
    """The type in words, with the values that it allows; null is left out, for it is the default where it may be."""
    if isinstance(type_, inspect.UnionType):
        structs = [member for member in type_.types if isinstance(member, inspect.StructType)]
        many = len(structs) > MOST_KINDS
        left_out = (inspect.NoneType, inspect.StructType) if many else inspect.NoneType
        single = [member for member in type_.types if not isinstance(member, left_out)]
        words = ["`{kind: …}`"] * many + [_type(member) for member in single]
        return " or ".join(sorted(dict.fromkeys(words), key=lambda word: word.startswith("list")))
    if isinstance(type_, inspect.IntType | inspect.FloatType):
        return _number(type_)
    if isinstance(type_, inspect.LiteralType):
        return ", ".join(f"`{value}`" for value in type_.values)
    if isinstance(type_, inspect.ListType):
        items = _type(type_.item_type)
        return f"list{_length(type_)} of {'blocks' if items.startswith('list') else items}"
    if isinstance(type_, inspect.StructType) and type_.cls.__struct_config__.tag:
        return f"`{{kind: {tag_of(type_.cls)}, …}}`"
    return WORDS[type(type_)]


MOST_KINDS = 3
WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "`true`, `false`",
    inspect.StrType: "text",
    inspect.DictType: "mapping",
    inspect.StructType: "mapping",
    inspect.CustomType: "`{kind: …}`",  # a component of any kind
}


def _number(type_: inspect.IntType | inspect.FloatType) -> str:
    """With its bounds; an upper one that only catches typing errors is left to `xfcost schema`."""
    word = "whole number" if isinstance(type_, inspect.IntType) else "number"
    if type_.gt is not None:
        word += f" > {type_.gt:g}"
    if type_.ge is not None:
        word += f" ≥ {type_.ge:g}"
    return word + (f", ≤ {type_.le:g}" if type_.le is not None and type_.le <= NEAR else "")


NEAR = 1024


def _length(type_: inspect.ListType) -> str:
    low, high = type_.min_length or 0, type_.max_length
    if high is None:
        return ""
    return f" ({low})" if low == high else f" ({low} to {high})"


def _default(field: inspect.Field) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _yaml(value: Any) -> str:
    """A default as a spec would write it, a struct by what differs from its own defaults."""
    if isinstance(value, msgspec.Struct):
        tag = type(value).__struct_config__.tag
        given = {"kind": tag} if tag else {}
        own = {field.name: field.default for field in msgspec.structs.fields(value)}
        given |= {name: getattr(value, name) for name, usual in own.items() if getattr(value, name) != usual}
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in given.items()) + "}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
