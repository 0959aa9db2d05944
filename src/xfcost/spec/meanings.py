"""The meanings of the fields of a spec: the docstring under each field of the grammar, read from the source."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

import msgspec


@cache
def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> the docstring under it, in the struct itself or in the nearest base class that has one.

    The meaning of the tag `kind` is the first line of the struct's docstring.
    """
    docstrings: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        docstrings |= _field_docstrings(base.__module__).get(base.__qualname__, {})
    fields = msgspec.structs.fields(struct)
    result = {field.encode_name: docstrings[field.name] for field in fields if field.name in docstrings}
    tag_field = struct.__struct_config__.tag_field
    if tag_field and struct.__doc__:
        result[tag_field] = struct.__doc__.strip().partition("\n")[0]
    return result


def clause(meaning: str) -> str:
    """A meaning within another sentence: `Width d_k of a head; d/h by default.` -> `width d_k of a head`."""
    first = meaning.partition(";")[0].partition(". ")[0].removesuffix(".")
    return first if first[1:2].isupper() else first[:1].lower() + first[1:]


@cache
def _field_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Class -> field -> the docstring under the field, for the classes at a module's top level."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # installed without sources, or built in
        return {}
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_documented(node.body)) for node in classes}


def _documented(body: list[ast.stmt]) -> list[tuple[str, str]]:
    """(field, docstring) of every annotated name that a string follows."""
    return [
        (field.target.id, " ".join(below.value.value.split()))
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    ]
