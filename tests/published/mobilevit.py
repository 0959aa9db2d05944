"""MobileViT: what mmpretrain prints counts norms and no classifier (tests/test_mobilevit.py adds them up)."""

from __future__ import annotations

from published.judged import TENTH_OF_A_MILLION, Judged, Off

CONVENTION = Off(1e7, "fvcore's convention, norms included and the classifier left out")

PUBLISHED: Judged = {
    ("mobilevit-xxs", "params", 1.3e6): TENTH_OF_A_MILLION,
    ("mobilevit-xxs", "macs", 0.42e9): CONVENTION,
    ("mobilevit-xs", "params", 2.3e6): TENTH_OF_A_MILLION,
    ("mobilevit-xs", "macs", 1.05e9): CONVENTION,
    ("mobilevit-s", "params", 5.6e6): TENTH_OF_A_MILLION,
    ("mobilevit-s", "macs", 2.03e9): CONVENTION,
}
