"""The models that fit as points, the most of one quantity against the least of another, and their front as a line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from xfcost.counting.find.result import QUANTITIES, FindResult, FoundModel, limited
from xfcost.counting.find.search import value_text
from xfcost.ledger import units
from xfcost.ledger.errors import UsageError
from xfcost.report.figure import (
    QUIET,
    TICKS,
    Captions,
    LabelBox,
    PointName,
    Ticks,
    caption_heights,
    draw_captions,
    draw_names,
    log_frame,
    look,
    to_bytes,
)
from xfcost.report.find import answer, memory_note, short_keys, time_notes
from xfcost.report.style import SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches.
_ACROSS, _UP, _LEFT, _RIGHT, _ABOVE, _BELOW = 8.0, 5.0, 1.0, 0.35, 0.3, 0.75
_NAME_SIZE: Final = 8
# Models of the front that are named, those of a long one evenly.
_NAMED: Final = 12
# Pixels on both sides of a line that take room.
_ROOM: Final = 2.5
# The share of the height that the text of a budget takes.
_TEXT: Final = 0.3
_COLOUR: Final = SYSTEMS[0]
_UNITS: Final = {units.size: "byte", units.seconds: "second"}


def find_bytes(found: FindResult, form: str) -> bytes:
    """The figure as a file of the format `form` (an ending).

    Raises:
        UsageError: no model fits.
    """
    if not found.rows:
        raise UsageError("-o: no model fits, so there is nothing to draw; give larger budgets")
    with look():
        return to_bytes(find_figure(found), form)


def find_figure(found: FindResult) -> Figure:
    """Points on logarithmic axes, the front over them, and the budgets as lines."""
    from matplotlib.figure import Figure

    captions = _captions(found)
    head, foot = caption_heights(captions)
    width, height = _LEFT + _ACROSS + _RIGHT, head + _ABOVE + _UP + foot
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((_LEFT / width, foot / height, _ACROSS / width, _UP / height))
    more, less = found.question.front
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.scatter(
        [one[1] for one in found.cloud], [one[0] for one in found.cloud], s=14, facecolor="#c4c4c4", edgecolor="none",
        gid="models that fit", zorder=2,
    )  # fmt: skip
    xs, ys = [row.figures[less] for row in found.front], [row.figures[more] for row in found.front]
    axes.plot(xs, ys, color=_COLOUR, linewidth=1.3, drawstyle="steps-post", gid="front", zorder=3)
    axes.scatter(xs, ys, s=26, color=_COLOUR, gid="models of the front", zorder=4)
    _limits(axes, found)
    _label_axes(axes, found)
    _draw_budgets(axes, found)
    _draw_names(axes, found)
    draw_captions(figure, captions, _LEFT)
    return figure


def _limits(axes: Axes, found: FindResult) -> None:
    """Room around all points, more of it to the right and above, for names."""
    more, less = found.question.front
    every = [*found.cloud, *((row.figures[more], row.figures[less]) for row in found.front)]
    for values, setter in ((([one[1] for one in every]), axes.set_xlim), ([one[0] for one in every], axes.set_ylim)):
        low, high = min((value for value in values if value > 0), default=1), max(values)
        room = max(high / low, 2) ** 0.07
        setter(low / room, high * room**1.5)


def _label_axes(axes: Axes, found: FindResult) -> None:
    more, less = (QUANTITIES[name] for name in found.question.front)
    ticks = []
    for axis, one, better in ((axes.xaxis, less, "less"), (axes.yaxis, more, "more")):
        low, high = axis.get_view_interval()
        subs = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)  # noqa: PLR2004 - labels would touch
        ticks.append(Ticks(f"{one.title} ({better} is better)", TICKS[_UNITS.get(one.text, "count")], subs))
    log_frame(axes, ticks[0], ticks[1])


def _draw_budgets(axes: Axes, found: FindResult) -> None:
    """The limits of the two quantities, where they are in sight."""
    more, less = found.question.front
    for budget in found.question.budgets:
        if limited(budget) == less and axes.get_xlim()[0] < budget.limit < axes.get_xlim()[1]:
            axes.axvline(budget.limit, color=QUIET, linewidth=0.9, linestyle="--", gid=budget.text(), zorder=1)
            axes.annotate(
                budget.text(), (budget.limit, 0.02), xycoords=("data", "axes fraction"), xytext=(-3, 0),
                textcoords="offset points", rotation=90, ha="right", va="bottom", fontsize=_NAME_SIZE, color=QUIET,
            )  # fmt: skip
        if limited(budget) == more and axes.get_ylim()[0] < budget.limit < axes.get_ylim()[1]:
            axes.axhline(budget.limit, color=QUIET, linewidth=0.9, linestyle="--", gid=budget.text(), zorder=1)
            axes.annotate(
                budget.text(), (0.01, budget.limit), xycoords=("axes fraction", "data"), xytext=(0, 3),
                textcoords="offset points", fontsize=_NAME_SIZE, color=QUIET,
            )  # fmt: skip


def _named(front: tuple[FoundModel, ...]) -> list[FoundModel]:
    """The largest of the front, then others evenly."""
    step = (len(front) - 1) / max(min(len(front), _NAMED) - 1, 1)
    places = dict.fromkeys(round(len(front) - 1 - number * step) for number in range(min(len(front), _NAMED)))
    return [front[place] for place in places]


def _draw_names(axes: Axes, found: FindResult) -> None:
    """Names beside points of the front, where there is room for them."""
    more, less = found.question.front
    front = {(row.figures[less], row.figures[more]): row for row in found.front}
    named = _named(found.front)
    points = [PointName(row.figures[less], row.figures[more], 4.0, _name(found, row)) for row in named]
    points += [PointName(*at, 4.0) for at, row in front.items() if row not in named]
    points += [PointName(x, y, 3.0) for y, x in found.cloud if (x, y) not in front]
    taken = [*_steps([_pixels(axes, *at) for at in front]), *_lines(axes, found)]
    draw_names(axes, points, taken, _NAME_SIZE)


def _name(found: FindResult, row: FoundModel) -> str:
    """A preset's name; of a configuration its values alone, which the footnote explains."""
    return " · ".join(map(value_text, row.values)) if found.keys else row.name


def _pixels(axes: Axes, x: float, y: float) -> tuple[float, float]:
    across, up = axes.transData.transform((x, y))
    return float(across), float(up)


def _steps(front: list[tuple[float, float]]) -> Iterator[LabelBox]:
    """The room of the line between the points, in steps: across, then up."""
    for (x0, y0), (x1, y1) in pairwise(front):
        yield LabelBox(x0 + _ROOM + 4, y0 - _ROOM, x1, y0 + _ROOM)
        yield LabelBox(x1 - _ROOM, y0, x1 + _ROOM, y1 - _ROOM - 4)


def _lines(axes: Axes, found: FindResult) -> Iterator[LabelBox]:
    """The room of the budgets' lines and texts."""
    more, less = found.question.front
    frame = LabelBox(*axes.bbox.extents)
    for budget in found.question.budgets:
        x, y = _pixels(axes, budget.limit, budget.limit)
        if limited(budget) == less:
            yield LabelBox(x - _ROOM, frame.bottom, x + _ROOM, frame.top)
            yield LabelBox(x - 5 * _ROOM, frame.bottom, x, frame.bottom + _TEXT * (frame.top - frame.bottom))
        if limited(budget) == more:
            yield LabelBox(frame.left, y - _ROOM, frame.right, y + _ROOM)


def _captions(found: FindResult) -> Captions:
    more, less = (QUANTITIES[name].title for name in found.question.front)
    title = f"{more[:1].upper()}{more[1:]} for {less}: {found.spec or 'the gallery'}"
    drawn = f"; {len(found.cloud):,} of them drawn" if len(found.cloud) < found.fits else ""
    keys = " · ".join(short_keys(found.keys))
    names = [f"Names: {keys}."] if found.keys else []
    notes = [*names, f"Line: the front, {len(found.front):,} models that no other beats in both."]
    notes += [_sentence(memory_note(found))]
    notes += map(_sentence, time_notes(found) if "seconds" in found.question.front else [])
    return Captions(title, f"{answer(found)[0]}{drawn}", "  ".join(notes))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
