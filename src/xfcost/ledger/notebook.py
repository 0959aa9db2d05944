"""How results look at Python's prompt, and in a notebook: by the report that is registered for their class.

Results can't import reports, which are a layer above: `xfcost.api` registers the renderers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from xfcost.ledger.errors import printable

_HTML: Final[dict[str, Callable[[Any], str]]] = {}
_TEXT: Final[dict[str, Callable[[Any], str]]] = {}
_SVG: Final[dict[str, Callable[[Any], str]]] = {}
_MOST_CHARACTERS: Final = 200


def register(name: str, renderer: Callable[[Any], str], text: Callable[[Any], str]) -> None:
    """Use `renderer`, and where one is printed `text`, for every result whose class is called `name`."""
    _HTML[name], _TEXT[name] = renderer, text


def register_picture(name: str, renderer: Callable[[Any], str]) -> None:
    """Use the SVG of `renderer` for every result whose class is called `name`."""
    _SVG[name] = renderer


def line(result: object, text: str) -> str:
    """The `repr` of a result: its class and `text`, on one line of at most 200 characters or so."""
    return f"<{type(result).__name__} {printable(text, _MOST_CHARACTERS)}>"


def html(result: Any) -> str | None:
    """The HTML of `result`; None where nothing is registered, and a notebook shows its `repr`."""
    renderer = _HTML.get(type(result).__name__)
    return None if renderer is None else renderer(result)


def text(result: Any) -> str:
    """What `print` shows: the report of `result`; its `repr` where nothing is registered."""
    renderer = _TEXT.get(type(result).__name__)
    return repr(result) if renderer is None else renderer(result)


def svg(result: Any) -> str | None:
    """The picture of `result`, likewise."""
    renderer = _SVG.get(type(result).__name__)
    return None if renderer is None else renderer(result)
