"""GPT-1, GPT-3 and BERT."""

from __future__ import annotations

from published.judged import MILLION, Judged, Off

TEN_MILLION = 1e7

PUBLISHED: Judged = {
    ("gpt3-large", "params", 760e6): MILLION,
    ("gpt3-13b-5140", "params", 12850e6): Off(TEN_MILLION, "the printed width is not the one that the print counts"),
    ("bert-base-pretraining", "params", 110e6): MILLION,
}
