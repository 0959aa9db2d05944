"""The survey's table: two tables on a terminal and in papers, one row per system for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from xfcost.counting.measured import Ratio
from xfcost.counting.survey import FULL_ATTENTION, Survey, SurveyLine, explanations
from xfcost.ledger import units
from xfcost.report.formats import formatted
from xfcost.report.style import letters_text
from xfcost.spec.survey import CLASSES

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xfcost.report.output import Format

PAPER: Final = "Tay et al. 2022, Efficient Transformers: A Survey, Table 1"
_WEIGHTS: Final = {True: "content", False: "static", None: "both"}
_AGREES: Final = {"yes": "yes", "otherwise": "if so", "no": "no", None: units.DASH}
_YES: Final = {True: "yes", False: "no", None: units.DASH}
# Columns of text; the others hold numbers.
# Columns whose cells may take several lines.
_FOLDED: Final = ("printed", "derived", "otherwise", "mixing", "reads")
_TEXTS: Final = (
    "system",
    "class",
    "printed",
    "derived",
    "agrees",
    "otherwise",
    "decodes",
    "mixing",
    "reads",
    "weights",
)


def tables(found: Survey) -> dict[str, list[dict[str, str]]]:
    """Title -> its rows, as text."""
    tables = {
        f"Complexity as printed ({PAPER}) and as derived": orders(found),
        "What each does": doings(found),
        "Attention memory, and parameters beyond full attention's": costs(found),
    }
    return tables | ({"Measured time over full attention's": times(found)} if found.timed is not None else {})


def render(found: Survey, *, verbose: bool) -> RenderableType:
    """Orders beside the printed ones; then what every system does and takes; with `verbose`, why."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for title, rows in tables(found).items():
        parts += [Text(title, style="bold"), _table(rows), Text()]
    parts += map(Text, notes(found))
    if verbose:
        parts += [Text(), *(Text(f"{system}: {why}") for system, why in explanations(found.lines))]
    else:
        parts.append(Text("--verbose explains every order", style="dim"))
    return Group(*parts)


def _table(rows: Sequence[dict[str, str]]) -> RenderableType:
    from xfcost.report.console import bare_table

    table = bare_table()
    for head in rows[0]:
        table.add_column(
            head,
            justify="left" if head in _TEXTS else "right",
            overflow="fold",
            no_wrap=head not in _FOLDED and not ("derived" in rows[0] and head == "system"),
        )
    for row in rows:
        table.add_row(*row.values())
    return table


def orders(found: Survey) -> list[dict[str, str]]:
    """Class and complexity as printed, and the derived orders."""
    return [
        {
            "system": line.entry.system,
            "class": " + ".join(line.entry.classes) or units.DASH,
            "printed": line.entry.complexity or units.DASH,
            "derived": line.derived,
            "agrees": _AGREES[line.agrees],
            "otherwise": line.otherwise or "",
        }
        for line in found.lines
    ]


def doings(found: Survey) -> list[dict[str, str]]:
    """How every system mixes tokens, and whether it decodes."""
    return [
        {
            "system": line.entry.system,
            "mixing": ", ".join(line.mixing),
            "reads": ", ".join(line.reads),
            "weights": _WEIGHTS[line.content_dependent],
            "decodes": line.decoding.answer,
            "printed": _YES[line.entry.decodes],
        }
        for line in found.lines
    ]


def costs(found: Survey) -> list[dict[str, str]]:
    """The memory and the parameters that every system takes."""
    return [_cost_cells(line) for line in found.lines]


def _cost_cells(line: SurveyLine) -> dict[str, str]:
    cells = {"system": line.entry.system}
    cells |= {f"memory {n // 1024}k": units.size(size, 3) for n, size in line.attention_bytes.items()}
    cells |= {f"added {n // 1024}k": _signed(number) for n, number in line.added_params.items()}
    return cells


def times(found: Survey) -> list[dict[str, str]]:
    """The measured times of the systems that the file has rows of."""
    return [_time_cells(line.entry.system, line.time) for line in found.lines if line.time is not None]


def _time_cells(system: str, ratio: Ratio) -> dict[str, str]:
    interval = f"{ratio.interval.low:.3g} to {ratio.interval.high:.3g}" if ratio.interval else units.DASH
    return {"system": system, "time": f"{ratio.value:.3g}×", "95 % interval": interval, "at N": f"{ratio.x:,}"}


def _signed(number: int) -> str:
    return f"{'−' if number < 0 else ''}{units.count(abs(number), 3)}"


def notes(found: Survey) -> Iterator[str]:
    """What the columns are, and the letters."""
    shown = {kind for line in found.lines for kind in line.entry.classes}
    yield "class: " + ", ".join(f"{kind} {meaning}" for kind, meaning in CLASSES.items() if kind in shown)
    yield (
        "derived: the leading term in N of all MACs but the projections', from the formulas of each preset; agrees: "
        "does it grow with N as the printed one (if so: otherwise)? otherwise: under other keys, " + _where(found)
    )
    yield (
        "decodes: made causal, its decode step reads a cache or a state (cached), or it has none (uncached); "
        "approximate: later tokens are not read, yet sway which are; printed: the survey's column"
    )
    yield "weights: of the mixing, computed from the content, static (learned and fixed), or both"
    run = found.run
    yield (
        f"memory: attention matrices alive at once in inference, batch {run.batch}, {run.dtype}, "
        f"{run.attention} attention; added: parameters beyond {FULL_ATTENTION}"
    )
    if found.timed is not None:
        yield f"time: over full attention's at the largest N of both; {found.timed}"
    texts = [text for line in found.lines for text in (line.derived, line.otherwise)]
    yield f"letters: {letters_text(texts)}"


def _where(found: Survey) -> str:
    """Under which other keys, in words, the systems of each."""
    places: dict[str, list[str]] = {}
    for line in found.lines:
        if line.entry.otherwise is not None:
            places.setdefault(line.entry.otherwise.where, []).append(line.entry.system)
    return "; ".join(f"{where} ({' and '.join(systems)})" for where, systems in places.items())


def records(found: Survey) -> list[dict[str, Any]]:
    """One plain dict of raw values per system."""
    return [_record(line, timed=found.timed is not None) for line in found.lines]


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


def survey_text(found: Survey, form: Format, *, verbose: bool) -> str:
    """The table in a format."""
    from xfcost.ledger.objects import json_text

    return formatted(
        form,
        json=lambda: json_text(_object(found)),
        rows=lambda: records(found),
        table=lambda width: render(found, verbose=verbose),
        markup=lambda: _markup(found, form, verbose=verbose),
    )


def _markup(found: Survey, form: Format, *, verbose: bool) -> str:
    from xfcost.report.export import to_markup
    from xfcost.report.latex import latex

    lines = [f"{text}." for text in notes(found)]
    why = list(explanations(found.lines)) if verbose else []
    if form == "latex":
        lines += [f"{system}: {text}" for system, text in why]
        return "\n".join(
            [*(to_markup(rows, form) for rows in tables(found).values()), *(f"{latex(line)}\n" for line in lines)]
        )
    parts = [f"{title}:\n\n{to_markup(rows, form)}" for title, rows in tables(found).items()]
    parts += [f"{line}\n" for line in lines] + (
        ["\n".join(f"- **{system}.** {text}" for system, text in why)] if why else []
    )
    return "\n".join(parts).rstrip("\n") + "\n"


def _object(found: Survey) -> dict[str, Any]:
    """The object of `--format json`."""
    why = dict(explanations(found.lines))
    systems = [
        row | {"decodes_reason": line.decoding.reason, "note": why[line.entry.system]}
        for row, line in zip(records(found), found.lines, strict=True)
    ]
    run = {name: getattr(found.run, name) for name in ("batch", "dtype", "attention")}
    return {"source": PAPER} | run | {"timed": found.timed, "systems": systems}
