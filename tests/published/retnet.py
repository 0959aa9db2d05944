"""RetNet, printed in billions."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, Judged

PUBLISHED: Judged = {
    ("retnet-1.3b", "params", 1.3e9): TENTH_OF_A_BILLION,
    ("retnet-2.7b", "params", 2.7e9): TENTH_OF_A_BILLION,
    ("retnet-6.7b", "params", 6.7e9): TENTH_OF_A_BILLION,
}
