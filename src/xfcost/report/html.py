"""Styled text as HTML for notebooks, readable on light and dark themes.

Its text has the notebook's own colour. Its colours are CSS variables, set for the theme of JupyterLab and VS Code, and
elsewhere for that of the browser. A page that strips <style>, as GitHub's does, shows the third colour of `COLOURS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from rich.segment import Segment
from rich.style import Style

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
    text = "".join(_span(segment.text, segment.style) for segment in simple)
    return f'<style>{style_sheet()}</style><pre class="xfcost" style="{_LAYOUT}">{text}</pre>'


def style_sheet() -> str:
    """The colours of each theme. The notebook's theme comes after the browser's, and so wins."""
    light, dark = (_variables(at) for at in (0, 1))
    return (
        f".xfcost{{{light}}}@media (prefers-color-scheme:dark){{.xfcost{{{dark}}}}}"
        f'[data-jp-theme-light="true"] .xfcost,.vscode-light .xfcost{{{light}}}'
        f'[data-jp-theme-light="false"] .xfcost,.vscode-dark .xfcost{{{dark}}}'
    )


def _variables(at: int) -> str:
    return ";".join(f"--xfcost-{name}:{colours[at]}" for name, colours in COLOURS.items())


def _span(text: str, style: Style | None) -> str:
    css = _css(style) if style else ""
    return f'<span style="{css}">{escape(text)}</span>' if css else escape(text)


def _css(style: Style) -> str:
    parts = []
    if style.color is not None and not style.color.is_default:
        parts.append(f"color:var(--xfcost-{style.color.name},{COLOURS[style.color.name][2]})")
    if style.bold:
        parts.append("font-weight:bold")
    if style.dim:
        parts.append("opacity:.75")
    return ";".join(parts)
