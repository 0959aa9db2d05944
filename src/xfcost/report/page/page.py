"""The page as one HTML text: the templates filled, style and script inlined, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from xfcost import __version__
from xfcost.counting.crossovers import MOST_PAIRED
from xfcost.counting.diagram import Diagram
from xfcost.counting.size_forms import TOTALS
from xfcost.ledger import units
from xfcost.ledger.visible import visible
from xfcost.report.input_description import names_text, run_text
from xfcost.report.page.answer import comparison_lines, crossover_lines, spaced
from xfcost.report.page.content import PageContent, Sizes
from xfcost.report.page.figures import TOTAL_WORDS
from xfcost.report.page.method import method_notes
from xfcost.report.page.roofline_view import roofline_view
from xfcost.report.page.script_data import script_data, shown_totals, size_label
from xfcost.report.page.system_view import system_view
from xfcost.report.style import WORDS

_FOLDER: Final = Path(__file__).parent
# More lines on crossovers are folded.
_MOST_LINES: Final = 6
_SECTIONS: Final = (
    ("answer", "Answer"),
    ("growth", "Growth with N"),
    ("kinds", "Mixing kinds"),
    ("operations", "Operations"),
    ("tree", "Tree"),
    ("blocks", "Blocks"),
    ("roofline", "Roofline"),
    ("notes", "Notes on method"),
)


def page_html(content: PageContent) -> str:
    """The whole page."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html.jinja").render(_values(content))


def _shown(value: Any) -> Any:
    """Text of a name without its control characters."""
    return visible(value) if type(value) is str else value


def _values(content: PageContent) -> dict[str, Any]:
    comparison, sizes = content.comparison, content.sizes
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    streams = any(len(ledger.metadata.streams) > 1 for ledger in comparison.ledgers)
    crossovers, few = crossover_lines(comparison), len(comparison.names) <= MOST_PAIRED
    systems = [system_view(content, place) for place in range(len(comparison.names))]
    specs = [ledger.metadata for ledger in comparison.ledgers if ledger.module is None]
    return {
        "title": f"Cost of {names_text(list(comparison.names))}",
        "run": spaced(run_text(specs or [comparison.ledgers[0].metadata])),
        "version": __version__,
        "policy": _policy(style, script),
        "style": Markup(style),  # noqa: S704 - a file of this package
        "script": Markup(script),  # noqa: S704 - a file of this package
        "data": script_data(content),
        "sections": _SECTIONS,
        "comparison_lines": comparison_lines(comparison),
        "crossovers": crossovers[:_MOST_LINES] if few else [],
        "more_crossovers": crossovers[_MOST_LINES:] if few else crossovers,
        "few": few,
        "systems": systems,
        "totals": _totals(content),
        "slider": None if isinstance(sizes, str) else _slider(sizes) | {"streams": streams},
        "no_slider": sizes if isinstance(sizes, str) else "",
        "tree_title": "Stages and modules" if specs else "Modules",
        "diagram": _diagram(content.diagram, content.not_drawn),
        "roofline": None if isinstance(content.rooflines, str) else roofline_view(content.rooflines),
        "no_roofline": content.rooflines if isinstance(content.rooflines, str) else "",
        "method": list(method_notes(content)),
        "words": WORDS,
        "count": units.count,
    }


def _policy(style: str, script: str) -> str:
    """A Content-Security-Policy that runs this script alone, and loads nothing."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    of_style, of_script = (f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; img-src data:; style-src {of_style}; script-src {of_script}; "
        "base-uri 'none'; form-action 'none'"
    )


def _totals(content: PageContent) -> list[tuple[str, str]]:
    """The columns of the table of totals: all but those that are zero throughout."""
    if not isinstance(content.sizes, str):
        shown = shown_totals(content.sizes)
        return [(quantity, word) for quantity, word in TOTAL_WORDS.items() if quantity in shown]
    return [(quantity, word) for quantity, word in TOTAL_WORDS.items() if quantity != "cache_bytes"]


def _slider(sizes: Sizes) -> dict[str, Any]:
    shown = shown_totals(sizes)
    return {
        "last": len(sizes.tokens) - 1,
        "own": sizes.own,
        "label": f"N = {size_label(sizes.tokens[sizes.own], sizes)}" if sizes.common else "their own N",
        "count": len(sizes.tokens),
        "first": f"{sizes.tokens[0]:,}",
        "end": f"{sizes.tokens[-1]:,}",
        "of": sizes.of,
        "steps": next((one.steps for one in sizes.systems if one.steps), 0),
        "metrics": [(quantity, TOTAL_WORDS[quantity]) for quantity in TOTALS if quantity in shown],
    }


def _diagram(found: Diagram, not_drawn: int) -> dict[str, Any]:
    return {
        "columns": found.columns,
        "rows": [{"boxes": boxes, "mark": found.mark(number)} for number, boxes in enumerate(found.rows)],
        "differing": found.differing,
        "notes": [*found.notes, *_left_out(not_drawn)],
    }


def _left_out(number: int) -> Iterator[str]:
    if number:
        yield f"not drawn, for so many columns do not fit side by side: the last {number} of the systems"
