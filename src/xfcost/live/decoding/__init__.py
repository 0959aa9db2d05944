"""Twins for one token more: parameters as in the twins of all N tokens, and what is kept of the past beside them."""

from __future__ import annotations

from typing import Any

from xfcost.layers import Context, Position, Shift
from xfcost.live.decoding.attention import CrossStep, FullStep, SlidingStep
from xfcost.live.decoding.conv import ByteNetStep, ConvolutionStep
from xfcost.live.decoding.doors import ContextStep, PositionStep, ShiftStep
from xfcost.live.decoding.kernel import KernelStep
from xfcost.live.decoding.latent import LatentStep
from xfcost.live.decoding.recurrent import RecurrentStep
from xfcost.live.decoding.retention import RetentionStep
from xfcost.live.decoding.rwkv import ChannelMixingStep, TimeMixingStep
from xfcost.live.decoding.state_spaces import Mamba2Step, MambaStep
from xfcost.mechanisms.base import Page
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.conv import Conv
from xfcost.mechanisms.cross import Cross
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.mamba import Mamba
from xfcost.mechanisms.mamba2 import Mamba2
from xfcost.mechanisms.mla import Mla
from xfcost.mechanisms.recurrent import Gru, Lstm, Rnn
from xfcost.mechanisms.retention import Retention
from xfcost.mechanisms.rwkv import RwkvChannel, RwkvTime
from xfcost.mechanisms.sliding import Sliding

# Every page whose one token more is not work like any other: made of (page, place, batch, shared tables).
STEPS: dict[type[Page], Any] = {
    ByteNet: ByteNetStep,
    Context: ContextStep,
    Conv: ConvolutionStep,
    Cross: CrossStep,
    Full: FullStep,
    Gru: RecurrentStep,
    Kernel: KernelStep,
    Lstm: RecurrentStep,
    Mamba: MambaStep,
    Mamba2: Mamba2Step,
    Mla: LatentStep,
    Position: PositionStep,
    Retention: RetentionStep,
    Rnn: RecurrentStep,
    RwkvChannel: ChannelMixingStep,
    RwkvTime: TimeMixingStep,
    Shift: ShiftStep,
    Sliding: SlidingStep,
}
