"""Mixtures of experts: Mixtral, Switch Transformers, GShard, GLaM, DeepSeek."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, Judged, Off

BILLION, HUNDRED_BILLION = 1e9, 1e11

PUBLISHED: Judged = {
    ("switch-xxl-64", "params", 395e9): Off(BILLION, "half as many experts as make the printed figure", within=0.5),
    ("gshard-600b", "params", 600e9): Off(BILLION, "the experts alone are 618B; printed sizes are round"),
    ("deepseek-v2-lite", "active_params", 2.4e9): Off(
        TENTH_OF_A_BILLION, "2.45B without the embedding, which is 0.21B", within=0.12
    ),
    ("deepseek-v3", "active_params", 37e9): Off(BILLION, "36.63B without the embedding, which is 0.93B"),
}
