"""GPT-1, GPT-3 and BERT."""

from __future__ import annotations

from published.judged import MILLION, TENTH_OF_A_BILLION, Judged, Off

TEN_MILLION = 1e7

PUBLISHED: Judged = {
    ("gpt1", "params", 117e6): MILLION,
    ("gpt3-small", "params", 125e6): MILLION,
    ("gpt3-medium", "params", 356e6): MILLION,
    ("gpt3-large", "params", 760e6): MILLION,
    ("gpt3-xl", "params", 1320e6): TEN_MILLION,
    ("gpt3-2.7b", "params", 2650e6): TEN_MILLION,
    ("gpt3-6.7b", "params", 6660e6): TEN_MILLION,
    ("gpt3-13b", "params", 12850e6): TEN_MILLION,
    ("gpt3-13b-5140", "params", 12850e6): Off(TEN_MILLION, "the printed width is not the one that the print counts"),
    ("gpt3-175b", "params", 174.6e9): TENTH_OF_A_BILLION,
    ("bert-base", "params", 110e6): TEN_MILLION,
    ("bert-base-pretraining", "params", 110e6): MILLION,
    ("bert-large", "params", 340e6): TEN_MILLION,
    ("bert-large-pretraining", "params", 340e6): TEN_MILLION,
}
