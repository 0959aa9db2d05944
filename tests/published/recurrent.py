"""Recurrent sequence-to-sequence models: Sutskever et al. 2014 print one size, Bahdanau et al. 2015 none."""

from __future__ import annotations

from published.judged import MILLION, Judged

PUBLISHED: Judged = {
    # the biases, 144,000 of them, are less than the rounding
    ("seq2seq-lstm", "params", 384e6): MILLION,
}
