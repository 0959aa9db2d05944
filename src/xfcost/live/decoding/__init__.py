"""Twins for one token more: parameters as in the twins of all N tokens, and what is kept of the past beside them."""

from __future__ import annotations

from typing import Any

from xfcost.layers import Position
from xfcost.live.decoding.attention import CrossStep, FullStep, SlidingStep
from xfcost.live.decoding.doors import PositionStep
from xfcost.live.decoding.latent import LatentStep
from xfcost.mechanisms.base import Page
from xfcost.mechanisms.cross import Cross
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.mla import Mla
from xfcost.mechanisms.sliding import Sliding

# Every page whose one token more is not work like any other: made of (page, place, batch, shared tables).
STEPS: dict[type[Page], Any] = {
    Cross: CrossStep,
    Full: FullStep,
    Mla: LatentStep,
    Position: PositionStep,
    Sliding: SlidingStep,
}
