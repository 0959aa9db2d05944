"""How results look in a notebook: as their reports do, rendered when one is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xfcost.ledger import notebook

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_as(name: str, render: Callable[[Any, int], RenderableType]) -> None:
    """Show results whose class is called `name` as `render` gives them at a width."""

    def html(result: Any) -> str:
        from xfcost.report.console import rich_html

        return rich_html(lambda width: render(result, width))

    notebook.register(name, html)
