"""LLaMA 1, 2 and 3, and Mistral."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, Judged, Off, RoundedDown

BILLION, TEN_MILLION = 1e9, 1e7

PUBLISHED: Judged = {
    ("llama-13b", "params", 13.0e9): TENTH_OF_A_BILLION,
    ("llama-65b", "params", 65.2e9): RoundedDown(TENTH_OF_A_BILLION),
    ("llama2-70b", "params", 70e9): Off(BILLION, "the name; the released model has 68.98B"),
    ("llama3-70b", "params", 70e9): Off(BILLION, "the name; the released model has 70.55B"),
    ("llama3.1-70b", "params", 70e9): Off(BILLION, "the name; the released model has 70.55B"),
    ("llama3.1-405b", "params", 405e9): Off(BILLION, "the name; the released model has 405.85B"),
    ("llama3.2-1b", "params", 1.23e9): RoundedDown(TEN_MILLION),
    ("mistral-7b", "params", 7.3e9): Off(
        TENTH_OF_A_BILLION, "the announcement's; no count of the released model is it"
    ),
}
