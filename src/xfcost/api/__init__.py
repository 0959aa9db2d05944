"""What the Python functions of several questions share. A notebook shows the reports of their results."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from xfcost.ledger import notebook


def show_in_notebooks(name: str, module: str) -> None:
    """Show results whose class is called `name` by the report of this module."""
    notebook.register(name, partial(_html, module), partial(_text, module))


def draw_in_notebooks(name: str, module: str, function: str) -> None:
    """Show results whose class is called `name` by a picture: `function` of this module makes its file."""
    notebook.register_picture(name, partial(_svg, module, function))


def _svg(module: str, function: str, result: Any) -> str:
    made: bytes = getattr(import_module(module), function)(result, ".svg")
    return made.decode()


def _document(module: str, result: Any) -> Any:
    return import_module(module).document([result] if type(result).__name__ == "Reach" else result)


def _text(module: str, result: Any) -> str:
    text: str = _document(module, result).text("table")
    return text.rstrip("\n")


def _html(module: str, result: Any) -> str:
    from xfcost.report.console import rich_html

    name = type(result).__name__
    tables = rich_html(_document(module, result).terminal)
    if name not in ("Ledger", "Comparison"):
        return tables
    from xfcost.views.shares import shares_svg

    return tables + shares_svg(result)


show_in_notebooks("Ledger", "xfcost.views.analyze")
show_in_notebooks("Comparison", "xfcost.views.compare")
