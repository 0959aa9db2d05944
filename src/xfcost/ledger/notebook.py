"""The HTML of a result in a notebook, rendered by the report that is registered for its class.

Results can't import reports, which are a layer above: `xfcost.api` registers the renderers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_HTML: Final[dict[str, Callable[[Any], str]]] = {}


def register(name: str, renderer: Callable[[Any], str]) -> None:
    """Use `renderer` for every result whose class is called `name`."""
    _HTML[name] = renderer


def html(result: Any) -> str | None:
    """The HTML of `result`; None where nothing is registered, and a notebook shows its `repr`."""
    renderer = _HTML.get(type(result).__name__)
    return None if renderer is None else renderer(result)
