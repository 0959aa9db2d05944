"""Where rich text goes: the terminal, a pipe, a file, a notebook; and the tables and notes that all reports have."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any, Final

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from xfcost.ledger.visible import one_line, visible, written_columns
from xfcost.report.style import INDEXED, PLAIN_WIDTH

# Characters of a line in notebooks and pictures.
_WIDE: Final = PLAIN_WIDTH + 20
# A report needs these; a terminal with fewer wraps its lines.
_LEAST_WIDTH: Final = 20
# No text is read as colours or pictures.
_PLAIN: Final[dict[str, Any]] = {"highlight": False, "emoji": False, "markup": False, "force_jupyter": False}


class Visible(msgspec.Struct, frozen=True):
    """A report as the terminal may get it: its colours are ours, and its text is only read."""

    report: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.report, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


class _Lines(Console):
    """A console on which a text is one line: a line end in it, as a file's name may have, is a blank."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = one_line(renderable)
        elif isinstance(renderable, Text) and "\n" in renderable.plain:
            renderable = Text(" ").join(renderable.split("\n", allow_blank=True))
        return super().render(renderable, options)


def show(render: Callable[[int], RenderableType]) -> None:
    """Print to stdout, as wide as the terminal; a pipe gets 100 columns (or COLUMNS) and no trailing blanks."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    console = _Lines(width=width, **_PLAIN)
    console.width = max(console.width, _LEAST_WIDTH)
    if console.is_terminal:
        console.print(Visible(render(console.width)))
        return
    with console.capture() as captured:
        console.print(Visible(render(console.width)))
    text = "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())
    sys.stdout.write(written_columns(text, sys.stdout))
    sys.stdout.flush()


def plain_text(render: Callable[[int], RenderableType]) -> str:
    """Text without colour, 100 columns wide, without trailing blanks."""
    stream = io.StringIO()
    console = _Lines(file=stream, width=PLAIN_WIDTH, color_system=None, **_PLAIN)
    console.print(Visible(render(PLAIN_WIDTH)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def rich_html(render: Callable[[int], RenderableType]) -> str:
    """A coloured <pre> for notebooks."""
    console = _Lines(file=io.StringIO(), width=_WIDE, **_PLAIN)
    return html(console.render(Visible(render(_WIDE))))


# rich's picture of a terminal without its window, in the fonts of the reader, dark where the reader's theme is dark.
_SVG: Final = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, Menlo, "DejaVu Sans Mono", monospace; }}
{styles}
@media (prefers-color-scheme: dark) {{ svg {{ filter: invert(0.9) hue-rotate(180deg); }} }}
</style>
<defs>{lines}</defs>
<rect width="100%" height="100%" fill="#ffffff"/>
<g transform="translate({terminal_x}, {terminal_y})" class="{unique_id}-matrix">{matrix}</g>
</svg>
"""


def svg_text(render: Callable[[int], RenderableType]) -> str:
    """A picture of the report on a terminal of 120 columns."""
    from rich.color import ANSI_COLOR_NAMES
    from rich.terminal_theme import TerminalTheme

    console = _Lines(file=io.StringIO(), record=True, width=_WIDE, **_PLAIN)
    console.print(Visible(render(_WIDE)))
    light = {ANSI_COLOR_NAMES[name]: shades[0] for name, shades in COLOURS.items()}
    colours = [tuple(bytes.fromhex(light.get(number, "#1c2126")[1:])) for number in range(16)]
    theme = TerminalTheme((255, 255, 255), (28, 33, 38), colours[:8], colours[8:])  # type: ignore[arg-type]
    picture = console.export_svg(theme=theme, code_format=_SVG, unique_id="xfcost")
    return re.sub(r"<text [^>]*>[^<]*</text>", _with_indices, picture)


# An index is smaller and lower than its letter; the character behind it is back on the line.
_INDEXED: Final = re.compile(rf"{INDEXED.pattern}(&[^;]*;|[^<]|)")
_LOWERED: Final = r'\1<tspan dy="0.25em" font-size="70%">\2</tspan><tspan dy="-0.175em">\3</tspan>'


def _with_indices(text: re.Match[str]) -> str:
    """A text of a picture; one with indices is shorter than its characters on the terminal, so that its length goes."""
    lowered = _INDEXED.sub(_LOWERED, text[0])
    return lowered if lowered == text[0] else re.sub(' textLength="[^"]*"', "", lowered)


# Colour of the terminal -> the same on a light theme, on a dark one, and where the theme is not known.
COLOURS: Final = {
    "blue": ("#1f5fa8", "#6fb1ff", "#2f78cf"),
    "green": ("#17694e", "#4cc79b", "#1f8262"),
    "red": ("#b3470b", "#ff9a57", "#cc5200"),
    "yellow": ("#7a5c00", "#e3b341", "#94700a"),
}
_LAYOUT: Final = "line-height:1.2;white-space:pre;overflow-x:auto;color:inherit;background:transparent"


def html(segments: Iterable[Segment]) -> str:
    """Rendered text as <pre>, with the style sheet of its colours."""
    simple = Segment.filter_control(Segment.simplify(segments))
    text = "".join(
        f'<span style="{css}">{escape(one.text)}</span>' if (css := one.style and _css(one.style)) else escape(one.text)
        for one in simple
    )
    return f'<style>{style_sheet()}</style><pre class="xfcost" style="{_LAYOUT}">{text}</pre>'


def style_sheet() -> str:
    """The colours of each theme. The notebook's theme comes after the browser's, and so wins."""
    light, dark = (";".join(f"--xfcost-{name}:{colours[at]}" for name, colours in COLOURS.items()) for at in (0, 1))
    return (
        f".xfcost{{{light}}}@media (prefers-color-scheme:dark){{.xfcost{{{dark}}}}}"
        f'[data-jp-theme-light="true"] .xfcost,.vscode-light .xfcost{{{light}}}'
        f'[data-jp-theme-light="false"] .xfcost,.vscode-dark .xfcost{{{dark}}}'
    )


def _css(style: Style) -> str:
    parts = []
    if style.color is not None and not style.color.is_default:
        parts.append(f"color:var(--xfcost-{style.color.name},{COLOURS[style.color.name][2]})")
    if style.bold:
        parts.append("font-weight:bold")
    if style.dim:
        parts.append("opacity:.75")
    return ";".join(parts)
