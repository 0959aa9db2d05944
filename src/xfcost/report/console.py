"""Where rich text goes: the terminal, a pipe, a file, a notebook."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

from rich.console import Console, RenderableType

from xfcost.report.style import PLAIN_WIDTH


def show(render: Callable[[int], RenderableType]) -> None:
    """Print to stdout, as wide as the terminal; a pipe gets 100 columns (or COLUMNS) and no trailing blanks."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    console = Console(width=width, highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        console.print(render(console.width))
        return
    with console.capture() as captured:
        console.print(render(console.width))
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    sys.stdout.flush()


def plain_text(render: Callable[[int], RenderableType]) -> str:
    """Text without colour, 100 columns wide, without trailing blanks."""
    stream = io.StringIO()
    console = Console(file=stream, width=PLAIN_WIDTH, color_system=None, highlight=False, emoji=False, markup=False)
    console.print(render(PLAIN_WIDTH))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def rich_html(render: Callable[[int], RenderableType]) -> str:
    """A coloured <pre> for notebooks."""
    console = Console(
        file=io.StringIO(), record=True, width=PLAIN_WIDTH + 20, highlight=False, emoji=False, markup=False
    )
    console.print(render(PLAIN_WIDTH + 20))
    return console.export_html(inline_styles=True, code_format='<pre style="line-height:1.2">{code}</pre>')
