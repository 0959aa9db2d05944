"""Mamba is printed by its checkpoints' names, RWKV-4 to four digits."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, TENTH_OF_A_MILLION, Judged

PUBLISHED: Judged = {
    ("mamba-130m", "params", 130e6): 10 * MILLION,
    ("mamba-370m", "params", 370e6): 10 * MILLION,
    ("mamba-790m", "params", 790e6): 10 * MILLION,
    ("mamba-1.4b", "params", 1.4e9): TENTH_OF_A_BILLION,
    ("mamba-2.8b", "params", 2.8e9): TENTH_OF_A_BILLION,
    ("rwkv4-169m", "params", 1.693e8): TENTH_OF_A_MILLION,
    ("rwkv4-430m", "params", 4.304e8): TENTH_OF_A_MILLION,
    ("rwkv4-1b5", "params", 1.515e9): MILLION,
    ("rwkv4-7b", "params", 7.393e9): MILLION,
    ("rwkv4-14b", "params", 1.415e10): 10 * MILLION,
}
