"""Twins."""

from __future__ import annotations

from published.judged import TENTH_OF_A_MILLION, Judged

WITHOUT = "the README leaves out the products of attention"

PUBLISHED: Judged = {
    ("twins-pcpvt-s", "macs", 3.7e9): WITHOUT,
    ("twins-pcpvt-b", "macs", 6.4e9): WITHOUT,
    ("twins-pcpvt-l", "params", 60.9e6): 2 * TENTH_OF_A_MILLION,
    ("twins-pcpvt-l", "macs", 9.5e9): WITHOUT,
    ("twins-svt-s", "macs", 2.8e9): WITHOUT,
    ("twins-svt-b", "macs", 8.3e9): WITHOUT,
    ("twins-svt-l", "params", 99.2e6): 2 * TENTH_OF_A_MILLION,
    ("twins-svt-l", "macs", 14.8e9): WITHOUT,
}
