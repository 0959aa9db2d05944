"""PVT."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged

PUBLISHED: Judged = {
    ("pvt-tiny", "params", 13.2e6): TENTH_OF_A_MILLION,
    ("pvt-tiny", "macs", 1.9e9): TENTH_OF_A_BILLION,
    ("pvt-small", "params", 24.5e6): TENTH_OF_A_MILLION,
    ("pvt-small", "macs", 3.8e9): TENTH_OF_A_BILLION,
    ("pvt-medium", "params", 44.2e6): TENTH_OF_A_MILLION,
    ("pvt-medium", "macs", 6.7e9): TENTH_OF_A_BILLION,
    ("pvt-large", "params", 61.4e6): TENTH_OF_A_MILLION,
    ("pvt-large", "macs", 9.8e9): TENTH_OF_A_BILLION,
}
