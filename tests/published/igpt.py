"""iGPT."""

from __future__ import annotations

from published.judged import MILLION, Judged, RoundedDown

PUBLISHED: Judged = {
    ("igpt-s", "params", 76e6): RoundedDown(MILLION),
    ("igpt-m", "params", 455e6): MILLION,
    ("igpt-l", "params", 1362e6): MILLION,
    ("igpt-xl", "params", 6801e6): MILLION,
}
