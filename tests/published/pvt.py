"""PVT and PVT v2."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged

PUBLISHED: Judged = {
    ("pvt-v2-b1", "params", 14.0e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b2", "macs", 4.0e9): TENTH_OF_A_BILLION,
    ("pvt-v2-b5", "params", 82.0e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b5", "macs", 11.8e9): "0.7 % above the exact 11.72e9; its cause is unknown",
}
