"""Hyena: printed in millions; 153M is rounded down."""

from __future__ import annotations

from published.judged import MILLION, Judged, RoundedDown

PUBLISHED: Judged = {
    ("hyena-153m", "params", 153e6): RoundedDown(MILLION),
}
