"""Mixtures of experts: Mixtral, Switch Transformers, GShard, GLaM, DeepSeek."""

from __future__ import annotations

from published.judged import TENTH_OF_A_BILLION, Judged, Off

BILLION, HUNDRED_BILLION = 1e9, 1e11

PUBLISHED: Judged = {
    ("mixtral-8x7b", "params", 47e9): BILLION,
    ("mixtral-8x7b", "active_params", 13e9): BILLION,
    ("mixtral-8x22b", "params", 141e9): BILLION,
    ("mixtral-8x22b", "active_params", 39e9): BILLION,
    ("switch-base-128", "params", 7e9): BILLION,
    ("switch-large-128", "params", 26e9): BILLION,
    ("switch-xxl-128", "params", 395e9): BILLION,
    ("switch-xxl-64", "params", 395e9): Off(BILLION, "half as many experts as make the printed figure", within=0.5),
    ("switch-c-2048", "params", 1571e9): BILLION,
    ("glam-64b-64e", "params", 1.2e12): HUNDRED_BILLION,
    ("glam-64b-64e", "active_params", 96.6e9): TENTH_OF_A_BILLION,
    ("gshard-600b", "params", 600e9): Off(BILLION, "the experts alone are 618B; printed sizes are round"),
    ("deepseek-moe-16b", "params", 16.4e9): TENTH_OF_A_BILLION,
    ("deepseek-moe-16b", "active_params", 2.8e9): TENTH_OF_A_BILLION,
    ("deepseek-v2", "params", 236e9): BILLION,
    ("deepseek-v2", "active_params", 21e9): BILLION,
    ("deepseek-v2-lite", "params", 15.7e9): TENTH_OF_A_BILLION,
    ("deepseek-v2-lite", "active_params", 2.4e9): Off(
        TENTH_OF_A_BILLION, "2.45B without the embedding, which is 0.21B", within=0.12
    ),
    ("deepseek-v3", "params", 671e9): BILLION,
    ("deepseek-v3", "active_params", 37e9): Off(BILLION, "36.63B without the embedding, which is 0.93B"),
}
