"""Swin V2, and what was added to Swin."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, Judged

# The public code's own flops() leaves the position bias networks out; tests/test_swin_v2.py works its figures out.
NETWORKS = "model.flops() leaves out the networks that answer for position biases"

PUBLISHED: Judged = {
    ("swinv2-t-w16-256", "macs", 6.6e9): NETWORKS,
    ("swinv2-s-w8-256", "params", 50e6): MILLION,
    ("swinv2-s-w16-256", "params", 50e6): MILLION,
    ("swinv2-s-w16-256", "macs", 12.6e9): NETWORKS,
    ("swinv2-b-w16-256", "macs", 21.8e9): NETWORKS,
    ("swinv2-b-w24-384", "macs", 54.7e9): NETWORKS,
    ("swinv2-l-w16-256", "macs", 47.5e9): NETWORKS,
    ("swinv2-l-w24-384", "macs", 115.4e9): NETWORKS,
    ("swinv2-g-w12-192", "params", 3.0e9): TENTH_OF_A_BILLION,
}
