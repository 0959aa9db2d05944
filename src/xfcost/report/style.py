"""One look for tables, plots and diagrams: a colour per mixing kind, and the words that say the same without colour."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from xfcost.formulas.letters import LETTERS
from xfcost.ledger.operation import Mixing

# Terminal styles: blue per-token, red global, green local.
TERMINAL: Final[dict[Mixing, str]] = {"per-token": "blue", "local": "green", "global": "red"}
# The same for figures, dark enough to be read on white and apart for colour-blind eyes.
FIGURE: Final[dict[Mixing, str]] = {"per-token": "#2c6fbb", "local": "#2e8b57", "global": "#c0392b"}
# One colour per system in a plot.
SYSTEMS: Final = ("#2c6fbb", "#c0392b", "#2e8b57", "#8e5ea2", "#d98c21", "#4d4d4d", "#17a2b8", "#b5651d")
WORDS: Final[dict[Mixing, str]] = {"per-token": "per-token", "local": "local mixing", "global": "global mixing"}
PLAIN_WIDTH: Final = 100


def letters_text(orders: Iterable[str | None]) -> str:
    """What the letters of some orders stand for: `N tokens, d width`."""
    known = re.compile("|".join(sorted(map(re.escape, LETTERS), key=len, reverse=True)))
    bare = (re.sub(r"^O|log | parameters$| comparisons$", "", order) for order in orders if order)
    used = {letter for order in bare for letter in known.findall(order)}
    return ", ".join(f"{letter} {meaning}" for letter, meaning in LETTERS.items() if letter in used)
