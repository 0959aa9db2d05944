"""Mamba-2 is printed by its checkpoints' names."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, Judged

PUBLISHED: Judged = {
    ("mamba2-130m", "params", 130e6): 10 * MILLION,
    ("mamba2-370m", "params", 370e6): 10 * MILLION,
    ("mamba2-780m", "params", 780e6): 10 * MILLION,
    ("mamba2-1.3b", "params", 1.3e9): TENTH_OF_A_BILLION,
    ("mamba2-2.7b", "params", 2.7e9): TENTH_OF_A_BILLION,
}
