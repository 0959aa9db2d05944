"""What the page of `xfcost report` is made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xfcost.counting.comparison import Comparison
from xfcost.counting.diagram import Diagram
from xfcost.counting.size_forms import SizeForms
from xfcost.ledger.roofline import Roofline


class Sizes(NamedTuple):
    """The N that a reader can choose, and the systems' costs at each."""

    tokens: tuple[int, ...]
    own: int
    """The place of the (first) system's own N."""
    common: bool
    """Do all systems have that N, in the page's figures?"""
    systems: tuple[SizeForms, ...]
    of: str
    """The part of the work that they are of: `of one forward pass`."""


class PageContent(NamedTuple):
    """The parts of the page."""

    comparison: Comparison
    """Of one system too."""
    diagram: Diagram
    not_drawn: int
    """Systems that the diagram leaves out."""
    sizes: Sizes | str
    """Or why there is no choice of N."""
    rooflines: Sequence[Roofline] | str
    """Of what was timed or predicted, or of the devices of `--on`; none without. Or why these have none."""
