"""CaiT."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged, Off

UNKNOWN = "up to 1 % beside the exact figure, above it or below; the printing method is unknown"

PUBLISHED: Judged = {
    ("cait-xxs24", "params", 12.0e6): TENTH_OF_A_MILLION,
    ("cait-xxs24-384", "macs", 9.5e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-xxs36-384", "macs", 14.2e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-xs24-384", "macs", 19.3e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-xs36", "macs", 8.1e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-xs36-384", "macs", 28.8e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-s24", "macs", 9.4e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-s24-384", "macs", 32.2e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-s36-384", "macs", 48.0e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-s48-384", "macs", 63.8e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-m24", "macs", 36.0e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-m24-384", "macs", 116.1e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-m36", "macs", 53.7e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-m36-384", "macs", 173.3e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-m36-448", "macs", 247.8e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
    ("cait-m48", "params", 356.0e6): TENTH_OF_A_MILLION,
    ("cait-m48-448", "macs", 329.6e9): Off(TENTH_OF_A_BILLION, UNKNOWN),
}
