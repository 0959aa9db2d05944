"""The page as one HTML text: the templates filled, style and script inlined, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from xfcost import __version__
from xfcost.comparing.crossovers import MOST_PAIRED
from xfcost.ledger import units
from xfcost.ledger.grid import near_square, sides_text
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import KINDS
from xfcost.ledger.roofline import Roofline
from xfcost.ledger.visible import visible
from xfcost.questions.report.page.system_view import (
    TOTAL_WORDS,
    PageContent,
    PageSizes,
    comparison_lines,
    crossover_lines,
    spaced,
    system_view,
)
from xfcost.questions.report.sizes import BY_KIND, OWN_OPERATIONS, ROW_QUANTITIES, TOTAL, TOTALS, SizeFigures
from xfcost.report.input_description import first_stage, names_text, run_text
from xfcost.report.style import INDEXED, WORDS
from xfcost.views.analyze import CONVENTION
from xfcost.views.crossovers import search_text
from xfcost.views.roofline import place_text, point_cells, roofs_text

_FOLDER: Final = Path(__file__).parent
# Lines of an answer, of a system and on crossovers that are shown, and where systems are many; others are folded.
_SHOWN_LINES, _SHOWN_OF_MANY, _TWO = 5, 3, 2
_SECTIONS: Final = (
    ("answer", "Answer"),
    ("growth", "Growth with N"),
    ("kinds", "Mixing kinds"),
    ("operations", "Operations"),
    ("tree", "Tree"),
    ("systems", "Systems"),
    ("blocks", "Blocks"),
    ("roofline", "Roofline"),
    ("notes", "Notes on method"),
)


def page_html(content: PageContent) -> str:
    """The whole page."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: visible(value) if type(value) is str else value,
    )  # fmt: skip
    environment.filters["indexed"] = indexed
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html.jinja").render(_values(content))


def indexed(text: str) -> Markup:
    """Text of the page with the indices of its letters set below the line."""
    return Markup(INDEXED.sub(r"\1<sub>\2</sub>", str(escape(visible(text)))))  # noqa: S704 - escaped


def _values(content: PageContent) -> dict[str, Any]:
    comparison, sizes = content.comparison, content.sizes
    style, script = ((_FOLDER / name).read_text("utf-8") for name in ("page.css", "page.js"))
    streams = any(len(ledger.metadata.streams) > 1 for ledger in comparison.ledgers)
    crossovers, few = crossover_lines(comparison), len(comparison.names) <= MOST_PAIRED
    systems = [system_view(content, place) for place in range(len(comparison.names))]
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    specs = [one for one in metadata if one.inputs is None]
    drawn = content.diagram
    columns = TOTAL_WORDS.keys() - {"cache_bytes"} if isinstance(sizes, str) else set(shown_totals(sizes))
    rooflines = content.rooflines
    shown = {"systems": len(systems) > 1, "roofline": bool(rooflines)}
    not_drawn = f"not drawn, for so many columns do not fit side by side: the last {content.not_drawn} of the systems"
    return {
        "title": f"Cost of {names_text(list(comparison.names))}{_at_image(metadata)}",
        "run": spaced(run_text(specs or metadata[:1])),
        "version": __version__,
        "policy": _policy(style, script),
        "style": Markup(style),  # noqa: S704 - a file of this package
        "script": Markup(script),  # noqa: S704 - a file of this package
        "data": script_data(content),
        "sections": [one for one in _SECTIONS if shown.get(one[0], True)],
        "comparison_lines": comparison_lines(comparison, options=False),
        "crossovers": crossovers,
        "shown_lines": _SHOWN_LINES if len(systems) <= _TWO else _SHOWN_OF_MANY,
        "few": few,
        "systems": systems,
        "totals": [(quantity, word) for quantity, word in TOTAL_WORDS.items() if quantity in columns],
        "slider": None if isinstance(sizes, str) else _slider(sizes) | {"streams": streams},
        "no_slider": sizes if isinstance(sizes, str) else "",
        "tree_title": "Stages and modules" if specs else "Modules",
        "diagram": {
            "columns": drawn.columns,
            "rows": [{"boxes": boxes, "mark": drawn.mark(number)} for number, boxes in enumerate(drawn.rows)],
            "differing": drawn.differing,
            "notes": [*drawn.notes, *([not_drawn] if content.not_drawn else [])],
        },
        "roofline": None if isinstance(rooflines, str) else roofline_view(rooflines),
        "no_roofline": rooflines if isinstance(rooflines, str) else "",
        "method": list(method_notes(content)),
        "words": WORDS,
    }


def _at_image(systems: Sequence[Metadata]) -> str:
    """` at 224×224`, where all systems see images of one size."""
    images = {one.image for one in systems}
    image = images.pop() if len(images) == 1 else None
    return "" if image is None else f" at {sides_text(image)}"


def _policy(style: str, script: str) -> str:
    """A Content-Security-Policy that runs this script alone, and loads nothing."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    of_style, of_script = (f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; img-src data:; style-src {of_style}; script-src {of_script}; "
        "base-uri 'none'; form-action 'none'"
    )


def _slider(sizes: PageSizes) -> dict[str, Any]:
    shown = shown_totals(sizes)
    return {
        "last": len(sizes.tokens) - 1,
        "own": sizes.own,
        "common": sizes.common,
        "label": f"N = {size_label(sizes.tokens[sizes.own], sizes)}" if sizes.common else "their own N",
        "count": len(sizes.tokens),
        "first": f"{sizes.tokens[0]:,}",
        "end": f"{sizes.tokens[-1]:,}",
        "of": sizes.of,
        "steps": next((one.steps for one in sizes.systems if one.steps), 0),
        "metrics": [(quantity, TOTAL_WORDS[quantity]) for quantity in TOTALS if quantity in shown],
    }


def method_notes(content: PageContent) -> Iterator[str]:
    """Conventions, how the figures were counted, which versions did."""
    comparison = content.comparison
    yield f"{CONVENTION}."
    inputs = [ledger.metadata.inputs for ledger in comparison.ledgers]  # those of torch modules
    if None in inputs:
        yield ("Specs are counted in closed form: every operation has a formula, evaluated in whole numbers.")
    if any(one is not None for one in inputs):
        yield (
            "Torch modules are counted by what they run: every ATen operation of one pass; at other N from "
            "polynomials through several counts, or by another count."
        )
    yield (
        "Attention memory is that of the attention matrices saved for training in all layers; parameters and MACs "
        "are of the whole batch and of all blocks."
    )
    if not isinstance(content.sizes, str):
        yield (
            "Every figure was counted at every N of the slider. The closed forms are read from the same formulas, and "
            "hold in the range of N that is next to them."
        )
    for searched in dict.fromkeys(search_text(one) for one in comparison.searches):
        yield f"Crossovers were looked for {searched}."
    sources = (
        f"{name}: {ledger.metadata.source}" + "".join(f" with {one}" for one in ledger.metadata.settings)
        for name, ledger in comparison.by_name.items()
    )
    yield f"Sources: {'; '.join(sources)}."
    versions = {
        f"{name} {version}" for ledger in comparison.ledgers for name, version in ledger.metadata.versions.items()
    }
    yield f"Versions: {', '.join(sorted(versions))}."


def script_data(content: PageContent) -> dict[str, Any]:
    """The N that can be chosen, and of every system its figures there; {} where there is no choice."""
    if isinstance(content.sizes, str):
        return {}
    ledgers, names = content.comparison.ledgers, content.comparison.names
    systems = zip(names, ledgers, content.sizes.systems, strict=True)
    return {
        "sizes": list(content.sizes.tokens),
        "labels": [size_label(n, content.sizes) for n in content.sizes.tokens],
        "common": content.sizes.common,
        "of_axis": first_stage(ledger.metadata for ledger in ledgers),
        "systems": [_script_system(*one) for one in systems],
    }


def size_label(tokens: int, sizes: PageSizes) -> str:
    """`784 (28×28)`; `784` where no system takes a grid."""
    grid = near_square(tokens) if any(one.steps for one in sizes.systems) else None
    return f"{tokens:,}" + ("" if grid is None else f" ({sides_text(grid)})")


def shown_totals(sizes: PageSizes) -> list[str]:
    """The totals that are not zero throughout."""
    return [name for name in TOTALS if any(any(one.figures[TOTAL, name]) for one in sizes.systems)]


def _script_system(name: str, ledger: Ledger, found: SizeFigures) -> dict[str, Any]:
    rows = [
        {quantity: runs(found.figures.get((row.path, quantity), ())) for quantity in ROW_QUANTITIES}
        for row in ledger.rows
    ]
    whole = {TOTAL: {key[1]: runs(found.figures[key]) for key in (*((TOTAL, name) for name in TOTALS), OWN_OPERATIONS)}}
    whole |= {kind: {name: runs(found.figures[kind, name]) for name in BY_KIND} for kind in KINDS}
    return {"name": visible(name), "rows": rows, "whole": whole}


def runs(figures: Sequence[int | None]) -> list[tuple[int, str | None]]:
    """(the first place from which a figure stands, the figure) each; text, for JavaScript's numbers are not exact."""
    return [
        (place, None if value is None else str(value))
        for place, value in enumerate(figures)
        if not place or value != figures[place - 1]
    ]


# Points of a system that the table lists, the longest first.
_MOST_POINTS: Final = 15
_CELLS: Final = ("title", "mixing", "seconds", "share", "intensity", "rate", "of_roof", "bound")


def roofline_view(found: Sequence[Roofline]) -> dict[str, Any] | None:
    """What the template needs; None where nothing was timed or predicted, and no device named."""
    if not found:
        return None
    from xfcost.views.roofline_figure import roofline_bytes

    names = ", ".join(one.name for one in found)
    return {
        "picture": base64.b64encode(roofline_bytes(found, ".svg")).decode(),
        "words": f"Roofline of {names}; {place_text(found[0])}; {roofs_text(found[0].roofs)}.",
        "systems": [
            {"name": one.name, "seconds": units.seconds(one.seconds)}
            | {"how": "at the roofs" if one.bounded else "predicted" if one.predicted else "measured"}
            | {"points": [dict(zip(_CELLS, point_cells(one, it), strict=True)) for it in one.drawn[:_MOST_POINTS]]}
            for one in found
        ],
    }
