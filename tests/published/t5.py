"""T5."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, Judged, Off, RoundedDown

BILLION, TEN_MILLION = 1e9, 1e7

PUBLISHED: Judged = {
    ("t5-large", "params", 770e6): Off(TEN_MILLION, "the released model has 737.7M"),
    ("t5-3b", "params", 2.8e9): RoundedDown(TENTH_OF_A_BILLION),
}
