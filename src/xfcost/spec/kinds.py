"""Fields that hold a component of any kind of a written list: the class is imported when a spec names the kind."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from xfcost.formulas.component import Component
from xfcost.formulas.kinds import Kinds

T = TypeVar("T")


class OneOf(type):
    """The type of such a field; msgspec knows it as a custom type, which `converted` fills."""

    lists: tuple[Kinds[Any], ...]

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Component)

    def kinds(cls) -> list[str]:
        """The kinds that may stand there."""
        return [kind for known in cls.lists for kind in known]

    def component(cls, kind: object) -> type[Component] | None:
        """The class of `kind`; None where no such kind may stand there."""
        if not isinstance(kind, str):
            return None
        return next((known[kind] for known in cls.lists if kind in known), None)

    def components(cls) -> list[type[Component]]:
        """All classes that may stand there."""
        return [component for known in cls.lists for component in known.values()]


def one_of(name: str, *lists: Kinds[Any]) -> OneOf:
    """The type of a field that holds a component of one of `lists`."""
    return OneOf(name, (), {"lists": lists})


class _ComponentError(ValueError):
    """The validator's message, its path being the component's own; msgspec adds the path to the component."""


def converted(value: Any, hint: type[T]) -> T:
    """`msgspec.convert`, components by their kinds.

    Raises:
        msgspec.ValidationError: its message is what msgspec says of a union of all classes.
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
    """One path of two: `… - at `$.heads` - at `$.head`` -> `… - at `$.head.heads``."""
    to_component = outer.removeprefix(inner).removeprefix(" - at `$").removesuffix("`")
    message, found, rest = inner.rpartition(" - at `$") if inner.endswith("`") else (inner, "", "")
    message, inside = (message, rest.removesuffix("`")) if found else (inner, "")
    return f"{message} - at `${to_component}{inside}`" if to_component or inside else message
