"""The models that fit as points, the most of one quantity against the least of another, and their front as a line."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from xfcost.ledger import units
from xfcost.ledger.errors import UsageError
from xfcost.questions.find.result import QUANTITIES, FindResult, limited
from xfcost.questions.find.search import value_text
from xfcost.questions.find.text import answer, memory_note, short_keys, time_notes
from xfcost.report.figure import (
    QUIET,
    Captions,
    LabelBox,
    PanelSize,
    PointName,
    as_file,
    draw_names,
    label_axes,
    log_panels,
    unit_ticks,
)
from xfcost.report.style import SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE: Final = PanelSize(8.0, 5.0, left=1.0, right=0.35, above=0.3, below=0.75)
_NAME_SIZE: Final = 8
# Models of the front that are named, those of a longer one evenly; and how many times as large a figure may become for
# the names to have room.
_NAMED: Final = 40
_LARGER: Final = (1.0, 1.25, 1.6, 2.0, 2.5)
# Pixels on both sides of a line that take room.
_ROOM: Final = 2.5
# The share of the height that the text of a budget takes.
_TEXT: Final = 0.3
_COLOUR: Final = SYSTEMS[0]
_UNITS: Final = {units.size: "byte", units.seconds: "second"}


def find_figure(found: FindResult) -> Figure:
    """Points on logarithmic axes, the front over them, and the budgets as lines.

    Raises:
        UsageError: no model fits.
    """
    if not found.rows:
        raise UsageError("-o: no model fits, so there is nothing to draw; give larger budgets")
    for times in _LARGER:
        figure, unnamed = _drawn(found, _SIZE._replace(across=_SIZE.across * times, up=_SIZE.up * times))
        if not unnamed:
            break
    return figure


def _drawn(found: FindResult, size: PanelSize) -> tuple[Figure, int]:
    """The figure at a size, and how many names had no room in it."""
    figure, (axes,) = log_panels(_captions(found), 1, size)
    more, less = found.question.front
    axes.scatter(
        [one[1] for one in found.cloud], [one[0] for one in found.cloud], s=14, facecolor="#c4c4c4", edgecolor="none",
        gid="models that fit", zorder=2,
    )  # fmt: skip
    xs, ys = [row.figures[less] for row in found.front], [row.figures[more] for row in found.front]
    axes.plot(xs, ys, color=_COLOUR, linewidth=1.3, drawstyle="steps-post", gid="front", zorder=3)
    axes.scatter(xs, ys, s=26, color=_COLOUR, gid="models of the front", zorder=4)
    _label_axes(axes, found)
    taken = _draw_budgets(axes, found)
    return figure, _draw_names(axes, found, taken)


find_bytes = as_file(find_figure)


def _label_axes(axes: Axes, found: FindResult) -> None:
    """Room around all points, more of it to the right and above, for names."""
    every = [*found.cloud, *(tuple(row.figures[name] for name in found.question.front) for row in found.front)]
    ticks = []
    for place, better in ((1, "less"), (0, "more")):
        values = [one[place] for one in every]
        low, high = min((value for value in values if value > 0), default=1), max(values)
        room = max(high / low, 2) ** 0.07
        low, high = low / room, high * room**1.5
        (axes.set_xlim if place else axes.set_ylim)(low, high)
        quantity = QUANTITIES[found.question.front[place]]
        unit = _UNITS.get(quantity.text, "count")
        ticks.append(unit_ticks(f"{quantity.title} ({better} is better)", unit, (low, high)))
    label_axes(axes, ticks[0], ticks[1])


def _draw_budgets(axes: Axes, found: FindResult) -> list[LabelBox]:
    """The limits of the two quantities, where they are in sight; the room of their lines and texts, in pixels."""
    frame, taken = LabelBox(*axes.bbox.extents), list[LabelBox]()
    for budget in found.question.budgets:
        if limited(budget) not in found.question.front:
            continue
        upright = limited(budget) == found.question.front[1]
        low, high = axes.get_xlim() if upright else axes.get_ylim()
        x, y = axes.transData.transform((budget.limit, budget.limit))
        if upright:
            taken.append(LabelBox(x - _ROOM, frame.bottom, x + _ROOM, frame.top))
            taken.append(LabelBox(x - 5 * _ROOM, frame.bottom, x, frame.bottom + _TEXT * (frame.top - frame.bottom)))
        else:
            taken.append(LabelBox(frame.left, y - _ROOM, frame.right, y + _ROOM))
        if low < budget.limit < high:
            rule = axes.axvline if upright else axes.axhline
            rule(budget.limit, color=QUIET, linewidth=0.9, linestyle="--", gid=budget.text(), zorder=1)
            axes.annotate(
                budget.text(), (budget.limit, 0.02) if upright else (0.01, budget.limit),
                xycoords=("data", "axes fraction") if upright else ("axes fraction", "data"),
                xytext=(-3, 0) if upright else (0, 3), textcoords="offset points", fontsize=_NAME_SIZE, color=QUIET,
                va="bottom", rotation=90 if upright else 0, ha="right" if upright else "left",
            )  # fmt: skip
    return taken


def _draw_names(axes: Axes, found: FindResult, taken: list[LabelBox]) -> int:
    """Names next to points of the front; a configuration's name is its values. How many had no room."""
    more, less = found.question.front
    number = min(len(found.front), _NAMED)
    step = (len(found.front) - 1) / max(number - 1, 1)
    places = dict.fromkeys(round(len(found.front) - 1 - place * step) for place in range(number))
    named = [found.front[place] for place in places]  # the largest, then others evenly
    front = {(row.figures[less], row.figures[more]): row for row in found.front}
    points = [
        PointName(
            row.figures[less],
            row.figures[more],
            4.0,
            " · ".join(map(value_text, row.values)) if found.keys else row.name,
        )
        for row in named
    ]
    points += [PointName(*at, 4.0) for at, row in front.items() if row not in named]
    points += [PointName(x, y, 3.0) for y, x in found.cloud if (x, y) not in front]
    for (x0, y0), (x1, y1) in pairwise(axes.transData.transform(list(front))):  # in steps: across, then up
        taken.append(LabelBox(x0 + _ROOM + 4, y0 - _ROOM, x1, y0 + _ROOM))
        taken.append(LabelBox(x1 - _ROOM, y0, x1 + _ROOM, y1 - _ROOM - 4))
    return draw_names(axes, points, taken, _NAME_SIZE)


def _captions(found: FindResult) -> Captions:
    more, less = (QUANTITIES[name].title for name in found.question.front)
    title = f"{more[:1].upper()}{more[1:]} for {less}: {found.spec or 'the gallery'}"
    keys = " · ".join(short_keys(found.keys))
    names = [f"Names: {keys}."] if found.keys else []
    notes = [*names, f"Line: the Pareto front, {len(found.front):,} models that no other model beats in both."]
    asked = {*found.question.front, *map(limited, found.question.budgets)}
    notes += [_sentence(memory_note(found))] if "memory" in asked else []
    notes += map(_sentence, time_notes(found) if "seconds" in found.question.front else [])
    return Captions(title, f"{answer(found)[0]}", "  ".join(notes))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
