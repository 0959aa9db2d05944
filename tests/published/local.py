"""Local attention and local relation in place of convolutions."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged, Off, RoundedDown

ELEMENTWISE = "which element-wise work the paper counts is not said"
WIDTHS = "rebuilt at LR-Net-50's inner widths, which the paper set anew for every depth"
TABLE = "the table stands about 5 % above MACs: ResNet-50 is 4.3 in it"

PUBLISHED: Judged = {
    ("sasa-38", "params", 14.1e6): RoundedDown(TENTH_OF_A_MILLION),
    ("sasa-50", "params", 18.0e6): TENTH_OF_A_MILLION,
    ("sasa-50", "flops", 7.0e9): Off(TENTH_OF_A_BILLION, ELEMENTWISE, within=0.01),
    ("sasa-50-k3", "flops", 6.6e9): Off(TENTH_OF_A_BILLION, ELEMENTWISE, within=0.01),
    ("lr-net-26", "params", 14.7e6): Off(TENTH_OF_A_MILLION, WIDTHS, within=0.01),
    ("lr-net-26", "macs", 2.6e9): Off(TENTH_OF_A_BILLION, f"{WIDTHS}; {TABLE}", within=0.1),
    ("lr-net-50", "params", 23.3e6): Off(TENTH_OF_A_MILLION, "without batch norms' numbers 23.31M", within=0.01),
    ("lr-net-50", "macs", 4.3e9): Off(TENTH_OF_A_BILLION, TABLE),
    ("lr-net-101", "params", 42.0e6): Off(TENTH_OF_A_MILLION, WIDTHS),
    ("lr-net-101", "macs", 8.0e9): Off(TENTH_OF_A_BILLION, f"{WIDTHS}; {TABLE}"),
}
