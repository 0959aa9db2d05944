"""CvT."""

from __future__ import annotations

from published.judged import MILLION, Judged

PUBLISHED: Judged = {
    ("cvt-13", "params", 20e6): MILLION,
    ("cvt-13", "macs", 4.5e9): "1.4 % below the exact count; its cause is unknown",
    ("cvt-13-384", "params", 20e6): MILLION,
    ("cvt-21", "macs", 7.1e9): "1.1 % below the exact count; its cause is unknown",
    ("cvt-21-384", "macs", 24.9e9): "24.85e9, and 24.89e9 with the biases that it counts",
    ("cvt-w24-384", "macs", 193.2e9): "0.5 % below the exact count; its cause is unknown",
}
