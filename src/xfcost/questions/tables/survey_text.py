"""The survey's table: two tables on a terminal and in papers, one row per system for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from xfcost.ledger import units
from xfcost.ledger.json_objects import json_text
from xfcost.questions.tables.published_survey import FULL_ATTENTION, Survey, SurveyLine, explanations
from xfcost.report.document import Document, Gap, Items, Part, TextLines, table_of
from xfcost.report.style import letters_text
from xfcost.spec.grammar import CLASSES

PAPER: Final = "Tay et al. 2022, Efficient Transformers: A Survey, Table 1"
_WEIGHTS: Final = {True: "content", False: "static", None: "both"}
_AGREES: Final = {"yes": "yes", "otherwise": "with those", "no": "no", None: units.DASH}
_YES: Final = {True: "yes", False: "no", None: units.DASH}
_TEXT: Final = {
    "system": 12,
    "printed": 8,
    "derived": 8,
    "with other keys": 9,
    "mixing": 6,
    "reads": 8,
} | dict.fromkeys(("class", "agrees", "decodes", "weights"), 0)


def document(found: Survey, *, verbose: bool = False) -> Document:
    """Derived and published orders; then what every system does and takes; with `verbose`, the reasons."""
    return Document(
        parts=lambda: _parts(found, verbose=verbose),
        records=lambda: [_record(line, timed=found.timed is not None) for line in found.lines],
        json=lambda: json_text(_object(found)),
        prose=True,
    )


def _parts(found: Survey, *, verbose: bool) -> Iterator[Part]:
    tables = {
        f"Complexity as published ({PAPER}) and as derived": [_orders(line) for line in found.lines],
        "What each does": [_doings(line) for line in found.lines],
        "Attention memory, and parameters beyond full attention's": [_costs(line) for line in found.lines],
    }
    if found.timed is not None:
        times = [(line.entry.system, line.time) for line in found.lines if line.time is not None]
        tables["Measured time relative to full attention"] = [
            {"system": system, "time": f"{one.value:.3g}×"}
            | {"95 % interval": f"{one.interval.low:.3g} to {one.interval.high:.3g}" if one.interval else units.DASH}
            | {"at N": f"{one.x:,}"}
            for system, one in times
        ]
    for title, rows in tables.items():
        text = _TEXT if rows and "derived" in rows[0] else _TEXT | {"system": 0}
        yield from (table_of(rows, text, title=title), Gap())
    yield TextLines(list(notes(found)), ended=True)
    if verbose:
        yield from (Gap(), Items(list(explanations(found.lines))))
    else:
        yield TextLines(["--verbose explains every order"], "dim", only="terminal")


def _orders(line: SurveyLine) -> dict[str, str]:
    """Class and complexity as published, and the derived orders."""
    return {
        "system": line.entry.system,
        "class": " + ".join(line.entry.classes) or units.DASH,
        "printed": line.entry.complexity or units.DASH,
        "derived": line.derived,
        "agrees": _AGREES[line.agrees],
        "with other keys": line.otherwise or "",
    }


def _doings(line: SurveyLine) -> dict[str, str]:
    """How a system mixes tokens, and whether it decodes."""
    return {
        "system": line.entry.system,
        "mixing": ", ".join(line.mixing),
        "reads": ", ".join(line.reads),
        "weights": _WEIGHTS[line.content_dependent],
        "decodes": line.decoding.answer,
        "printed": _YES[line.entry.decodes],
    }


def _costs(line: SurveyLine) -> dict[str, str]:
    """The memory and the parameters that a system takes."""
    cells = {"system": line.entry.system}
    cells |= {f"memory {n // 1024}k": units.size(size, 3) for n, size in line.attention_bytes.items()}
    for n, number in line.added_params.items():
        cells[f"added {n // 1024}k"] = f"{'−' if number < 0 else ''}{units.count(abs(number), 3)}"
    return cells


def notes(found: Survey) -> Iterator[str]:
    """What the columns are, and the letters."""
    shown = {kind for line in found.lines for kind in line.entry.classes}
    yield "class: " + ", ".join(f"{kind} {meaning}" for kind, meaning in CLASSES.items() if kind in shown)
    yield (
        "derived: the leading term in N of all MACs except the projections, from the formulas of each "
        "preset; agrees: whether it grows with N as the published one; other keys: " + _where(found)
    )
    yield (
        "decodes: whether its causal form has a decode step that reads a cache or a state (cached) or none "
        "(uncached); approximate: later tokens are not read but affect which tokens are; published: the survey's "
        "column"
    )
    yield "weights: mixing weights computed from the content, static (learned and fixed), or both"
    run = found.run
    yield (
        f"memory: attention matrices alive at once in inference, batch {run.batch}, {run.dtype}, "
        f"{run.attention} attention; added: parameters beyond {FULL_ATTENTION}"
    )
    if found.timed is not None:
        yield f"time: relative to full attention at the largest N of both; {found.timed}"
    texts = [text for line in found.lines for text in (line.derived, line.otherwise)]
    yield f"letters: {letters_text(texts)}"


def _where(found: Survey) -> str:
    """Under which other keys, in words, the systems of each."""
    places: dict[str, list[str]] = {}
    for line in found.lines:
        if line.entry.otherwise is not None:
            places.setdefault(line.entry.otherwise.where, []).append(line.entry.system)
    return "; ".join(f"{where} ({' and '.join(systems)})" for where, systems in places.items())


def _record(line: SurveyLine, *, timed: bool) -> dict[str, Any]:
    entry, ratio = line.entry, line.time
    row: dict[str, Any] = {"system": entry.system, "preset": line.preset, "kind": " ".join(line.kinds)}
    row |= {"class": " ".join(entry.classes), "printed": entry.complexity, "derived": line.derived}
    row |= {"otherwise": line.otherwise, "where": entry.otherwise.where if entry.otherwise else None}
    row["agrees"] = line.agrees
    row |= {"printed_decodes": entry.decodes, "decodes": line.decoding.answer}
    row |= {"mixing": " ".join(line.mixing), "reads": ", ".join(line.reads)}
    row["content_dependent"] = "both" if line.content_dependent is None else line.content_dependent
    row |= {f"attention_bytes_{n}": size for n, size in line.attention_bytes.items()}
    row |= {f"added_params_{n}": number for n, number in line.added_params.items()}
    if timed:
        row |= {"time_ratio": None, "time_ratio_low": None, "time_ratio_high": None, "time_N": None}
    if ratio is not None:
        low, high = ratio.interval or (None, None)
        row |= {"time_ratio": ratio.value, "time_ratio_low": low, "time_ratio_high": high, "time_N": ratio.x}
    return row


def _object(found: Survey) -> dict[str, Any]:
    """The object of `--format json`."""
    why = dict(explanations(found.lines))
    systems = [
        _record(line, timed=found.timed is not None)
        | {"decodes_reason": line.decoding.reason, "note": why[line.entry.system]}
        for line in found.lines
    ]
    run = {name: getattr(found.run, name) for name in ("batch", "dtype", "attention")}
    return {"source": PAPER} | run | {"timed": found.timed, "systems": systems}
