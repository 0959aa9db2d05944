"""Fields that hold one of many kinds of components: a kind's class is imported when a spec names it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from xfcost.formulas.component import Component, Kinds

T = TypeVar("T")


class OneOf(type):
    """The type of such a field: a custom type for msgspec, which `converted` decodes."""

    lists: tuple[Kinds[Any], ...]

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Component)

    def kinds(cls) -> list[str]:
        """The kinds that the field may hold."""
        return [kind for kinds in cls.lists for kind in kinds]

    def component(cls, kind: object) -> type[Component] | None:
        """The class of `kind`; None where the field may not hold it."""
        if not isinstance(kind, str):
            return None
        return next((kinds[kind] for kinds in cls.lists if kind in kinds), None)

    def components(cls) -> list[type[Component]]:
        """All classes that the field may hold."""
        return [component for kinds in cls.lists for component in kinds.values()]


def one_of(name: str, *lists: Kinds[Any]) -> OneOf:
    """The type of a field that holds a component of one of `lists`."""
    return OneOf(name, (), {"lists": lists})


class _ComponentError(ValueError):
    """The validator's message with a path inside the component; msgspec appends the path to the component."""


def converted(value: Any, hint: type[T]) -> T:
    """`msgspec.convert`, with components decoded by their kinds.

    Raises:
        msgspec.ValidationError: with the message that msgspec gives for a union of all classes.
    """
    try:
        return msgspec.convert(value, hint, dec_hook=_component)
    except msgspec.ValidationError as error:
        if not isinstance(error.__cause__, _ComponentError):
            raise
        joined = _joined(str(error.__cause__), str(error))
    raise msgspec.ValidationError(joined)


def _component(hint: Any, value: Any) -> Component:
    if not isinstance(value, dict):
        raise _ComponentError(f"Expected `object`, got `{type(value).__name__}`")
    if "kind" not in value:
        raise _ComponentError("Object missing required field `kind`")
    struct: type[Component] | None = hint.component(value["kind"])
    if struct is None:
        raise _ComponentError(f"Invalid value {value['kind']!r} - at `$.kind`")
    try:
        return msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        raise _ComponentError(str(error)) from None


def _joined(inner: str, outer: str) -> str:
    """Both paths as one: `… - at `$.heads` - at `$.head`` -> `… - at `$.head.heads``."""
    to_component = split_path(outer.removeprefix(inner))[1]
    message, in_component = split_path(inner)
    return f"{message} - at `${to_component}{in_component}`" if to_component or in_component else message


def split_path(message: str) -> tuple[str, str]:
    """The validator's message, and the path at its end: "… - at `$.head.heads`" -> ("…", ".head.heads")."""
    text, at, path = message.rpartition(" - at `$")
    return (text, path.removesuffix("`")) if at and path.endswith("`") else (message, "")
