"""The original Transformer's variants."""

from __future__ import annotations

from published.judged import Judged

_VOCABULARY = "the table's sizes need vocabularies of 40k to 42k; the text says about 37k"

PUBLISHED: Judged = {
    ("transformer-base-dk16", "params", 58e6): _VOCABULARY,
    ("transformer-base-dk32", "params", 60e6): _VOCABULARY,
    ("transformer-base-n2", "params", 36e6): _VOCABULARY,
    ("transformer-base-n4", "params", 50e6): _VOCABULARY,
    ("transformer-base-n8", "params", 80e6): _VOCABULARY,
    ("transformer-base-d256", "params", 28e6): _VOCABULARY,
    ("transformer-base-d1024", "params", 168e6): _VOCABULARY,
    ("transformer-base-ff1024", "params", 53e6): _VOCABULARY,
    ("transformer-base-ff4096", "params", 90e6): _VOCABULARY,
}
