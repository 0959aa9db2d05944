"""Figures: one look whatever the reader's matplotlibrc says, and the same bytes for the same numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from xfcost.ledger.visible import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: Final = (".svg", ".png", ".pdf")
INK: Final = "#222222"
QUIET: Final = "#767676"
# No dates in the files, so that the same numbers give the same bytes.
_METADATA: Final[dict[str, dict[str, Any]]] = {
    ".svg": {"Date": None},
    ".png": {},
    ".pdf": {"CreationDate": None},
}


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib's own defaults and ours, inside the block only."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "xfcost", "font.size": 10, "text.color": INK, "axes.edgecolor": QUIET})
        mpl.rcParams["text.parse_math"] = False  # a dollar in a name begins no formula
        yield


def to_bytes(figure: Figure, form: str) -> bytes:
    """The figure as a file of the format `form` (an ending), with no control characters in its texts and ids."""
    from matplotlib.text import Text

    for artist in figure.findobj():
        if isinstance(artist, Text):
            artist.set_text(visible(artist.get_text()))
        artist.set_gid(visible(artist.get_gid() or "") or None)
    stream = io.BytesIO()
    figure.savefig(stream, format=form[1:], dpi=160, metadata=_METADATA[form])
    return stream.getvalue()
