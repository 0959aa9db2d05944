"""PVT and PVT v2."""

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
    ("pvt-v2-b0", "params", 3.7e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b0", "macs", 0.6e9): TENTH_OF_A_BILLION,
    ("pvt-v2-b1", "params", 14.0e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b1", "macs", 2.1e9): TENTH_OF_A_BILLION,
    ("pvt-v2-b2", "params", 25.4e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b2", "macs", 4.0e9): TENTH_OF_A_BILLION,
    ("pvt-v2-b2-li", "params", 22.6e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b2-li", "macs", 3.9e9): TENTH_OF_A_BILLION,
    ("pvt-v2-b3", "params", 45.2e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b3", "macs", 6.9e9): TENTH_OF_A_BILLION,
    ("pvt-v2-b4", "params", 62.6e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b4", "macs", 10.1e9): TENTH_OF_A_BILLION,
    ("pvt-v2-b5", "params", 82.0e6): TENTH_OF_A_MILLION,
    ("pvt-v2-b5", "macs", 11.8e9): "0.7 % above the exact 11.72e9; its cause is unknown",
}
