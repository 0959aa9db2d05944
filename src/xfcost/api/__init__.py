"""What the Python functions of several questions share. A notebook shows the reports of their results."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from xfcost.ledger import notebook


def show_in_notebooks(name: str, module: str) -> None:
    """Show results whose class is called `name` by the report of this module."""
    notebook.register(name, partial(_html, module), partial(_document, module))


def draw_in_notebooks(name: str, module: str, function: str) -> None:
    """Show results whose class is called `name` by a picture: `function` of this module makes its file."""
    notebook.register_picture(name, partial(_svg, module, function))


def _svg(module: str, function: str, result: Any) -> str:
    made: bytes = getattr(import_module(module), function)(result, ".svg")
    return made.decode()


def _document(module: str, result: Any) -> Any:
    return import_module(module).document([result] if type(result).__name__ == "Reach" else result)


def _save(document: Any, file: str | os.PathLike[str], form: str | None, *, force: bool) -> None:
    from xfcost.report.output import ENDINGS, ending_of, write_whole

    path = Path(file)
    text = document.text(form or ENDINGS[ending_of(path, ENDINGS)])
    write_whole(path, (text if text.endswith("\n") else f"{text}\n").encode(), force=force)


def _html(module: str, result: Any) -> str:
    from xfcost.report.console import rich_html

    name = type(result).__name__
    tables = rich_html(_document(module, result).terminal)
    if name not in ("Ledger", "Comparison"):
        return tables
    from xfcost.views.shares import shares_svg

    return tables + shares_svg(result)


notebook.register_writer(_save)
show_in_notebooks("Ledger", "xfcost.views.analyze")
show_in_notebooks("Comparison", "xfcost.views.compare")
