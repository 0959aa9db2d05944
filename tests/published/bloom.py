"""BLOOM: Table 3 of its paper, in millions."""

from __future__ import annotations

from published.judged import MILLION, Judged

PUBLISHED: Judged = {
    ("bloom-560m", "params", 559e6): MILLION,
    ("bloom-1b1", "params", 1065e6): MILLION,
    ("bloom-1b7", "params", 1722e6): MILLION,
    ("bloom-3b", "params", 3003e6): MILLION,
    ("bloom-7b1", "params", 7069e6): MILLION,
    ("bloom-176b", "params", 176247e6): MILLION,
}
