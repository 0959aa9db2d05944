"""How a notebook draws a result: by the report that is registered for its type.

Results stand below the reports that draw them, so that they can't import them: `xfcost.api` registers the drawings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_HTML: Final[dict[str, Callable[[Any], str]]] = {}


def register(name: str, drawing: Callable[[Any], str]) -> None:
    """Let `drawing` make the HTML of every result whose class is called `name`."""
    _HTML[name] = drawing


def html(result: Any) -> str | None:
    """The HTML of `result`; None where nothing is registered, and a notebook shows its `repr`."""
    drawing = _HTML.get(type(result).__name__)
    return None if drawing is None else drawing(result)
