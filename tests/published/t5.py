"""T5."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, Judged, Off, RoundedDown

BILLION, TEN_MILLION = 1e9, 1e7

PUBLISHED: Judged = {
    ("t5-small", "params", 60e6): TEN_MILLION,
    ("t5-base", "params", 220e6): TEN_MILLION,
    ("t5-large", "params", 770e6): Off(TEN_MILLION, "the released model has 737.7M"),
    ("t5-3b", "params", 2.8e9): RoundedDown(TENTH_OF_A_BILLION),
    ("t5-3b", "params", 3e9): BILLION,
    ("t5-11b", "params", 11e9): BILLION,
    ("t5-v1.1-xxl", "params", 11e9): BILLION,
}
