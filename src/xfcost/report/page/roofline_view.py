"""The roofline of the page: the picture, and its points as a table."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from xfcost.ledger import units
from xfcost.ledger.roofline import Roofline, RooflinePoint
from xfcost.report.roofline import place_text, point_cells, roofs_text

# Points of a system that the table lists, the longest first.
_MOST_POINTS: Final = 15
_CELLS: Final = ("title", "mixing", "seconds", "share", "intensity", "rate", "of_roof", "bound")


def roofline_view(found: Sequence[Roofline]) -> dict[str, Any] | None:
    """What the template needs; None where nothing was timed or predicted, and no device named."""
    if not found:
        return None
    from xfcost.report.roofline_figure import roofline_bytes

    names = ", ".join(one.name for one in found)
    return {
        "picture": base64.b64encode(roofline_bytes(found, ".svg")).decode(),
        "words": f"Roofline of {names}; {place_text(found[0])}; {roofs_text(found[0].roofs)}.",
        "systems": [_system(one) for one in found],
    }


def _system(one: Roofline) -> dict[str, Any]:
    how = "at the roofs" if one.bounded else "predicted" if one.predicted else "measured"
    points = [_point(one, point) for point in one.drawn[:_MOST_POINTS]]
    return {"name": one.name, "how": how, "seconds": units.seconds(one.seconds), "points": points}


def _point(one: Roofline, point: RooflinePoint) -> dict[str, str]:
    return dict(zip(_CELLS, point_cells(one, point), strict=True))
