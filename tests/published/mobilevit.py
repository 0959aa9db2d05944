"""MobileViT: what mmpretrain prints counts norms and no classifier (tests/test_mobilevit.py adds them up)."""

from __future__ import annotations

from published.judged import Judged, Off

CONVENTION = Off(1e7, "fvcore's convention, norms included and the classifier left out")

PUBLISHED: Judged = {
    ("mobilevit-xxs", "macs", 0.42e9): CONVENTION,
    ("mobilevit-xs", "macs", 1.05e9): CONVENTION,
    ("mobilevit-s", "macs", 2.03e9): CONVENTION,
}
