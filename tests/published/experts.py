"""Mixtures of experts: Mixtral, Switch Transformers, GShard, GLaM, DeepSeek."""

from __future__ import annotations

from published.judged import Judged

BILLION = 1e9

PUBLISHED: Judged = {
    ("mixtral-8x7b", "params", 47e9): BILLION,
    ("mixtral-8x7b", "active_params", 13e9): BILLION,
    ("mixtral-8x22b", "params", 141e9): BILLION,
    ("mixtral-8x22b", "active_params", 39e9): BILLION,
}
