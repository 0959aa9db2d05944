"""Colours of tables, plots and diagrams, and the words that say the same without colour."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from xfcost.formulas.letters import LETTERS, W_WITH_K
from xfcost.ledger.operation import Mixing

# Terminal styles: blue per-token, red global, green local.
TERMINAL: Final[dict[Mixing, str]] = {"per-token": "blue", "local": "green", "global": "red", "unknown": ""}
# The same for figures, dark enough on white and apart under deuteranopia.
FIGURE: Final[dict[Mixing, str]] = {
    "per-token": "#2c6fbb",
    "local": "#1b7a5a",
    "global": "#d55e00",
    "unknown": "#a8a8a8",
}
# One colour per system in a plot; any two are apart under deuteranopia (CIE76 ΔE of 20 or more), and none looks like
# that of a mixing kind.
SYSTEMS: Final = ("#332288", "#dd3366", "#888822", "#9966ff", "#1a1a1a", "#aa4499", "#6e2c00", "#cc7799")
# Lines that are there for comparison.
CONTEXT: Final = "#d4d4d4"
WORDS: Final[dict[Mixing, str]] = {
    "per-token": "per-token",
    "local": "local mixing",
    "global": "global mixing",
    "unknown": "not known",
}
PLAIN_WIDTH: Final = 100
# A letter and its index, as in W_O and 1/√d_k: pictures and pages set the index below the line.
INDEXED: Final = re.compile(r"\b([A-Za-z])_([A-Za-z])\b")


def lowered(title: str) -> str:
    """`Relative position bias` -> `relative position bias`; `QKᵀ` and `LoRA` stay."""
    return title[:1].lower() + title[1:] if title.partition(" ")[0][1:].islower() else title


def letters_text(orders: Iterable[str | None]) -> str:
    """The meaning of the letters in some orders: `N tokens, d width`."""
    known = re.compile("|".join(sorted(map(re.escape, LETTERS), key=len, reverse=True)))
    bare = (re.sub(r"^O|log | parameters$| comparisons$", "", order) for order in orders if order)
    used = {letter for order in bare for letter in known.findall(order)}
    meanings = LETTERS | ({"W": W_WITH_K} if "K" in used else {})
    return ", ".join(f"{letter} {meaning}" for letter, meaning in meanings.items() if letter in used)
