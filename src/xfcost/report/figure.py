"""Figures: one look whatever the reader's matplotlibrc says, and the same bytes for the same numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xfcost.ledger.errors import UsageError, shown

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


def ending(path: Path, others: tuple[str, ...] = ()) -> str:
    """The ending of `path`, in lower case.

    Raises:
        UsageError: no format of figures (nor one of `others`) ends so.
    """
    known = (*FIGURES, *others)
    if path.suffix.lower() not in known:
        raise UsageError(f"-o {shown(path, 200)}: the ending says the format; expected one of {', '.join(known)}")
    return path.suffix.lower()


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
    """The figure as a file of the format `form` (an ending)."""
    stream = io.BytesIO()
    figure.savefig(stream, format=form[1:], dpi=160, metadata=_METADATA[form])
    return stream.getvalue()
