"""iGPT."""

from __future__ import annotations

from published.judged import MILLION, Judged, RoundedDown

PUBLISHED: Judged = {
    ("igpt-s", "params", 76e6): RoundedDown(MILLION),
}
