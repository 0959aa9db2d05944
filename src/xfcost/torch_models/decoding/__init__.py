"""Modules of a decode step: parameters as in the modules of all N tokens, and a KV cache or a state."""

from __future__ import annotations

from typing import Any

from xfcost.formulas.component import Component
from xfcost.layers import Context, Position, Shift
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.conv import Conv
from xfcost.mechanisms.recurrent import Gru, Lstm, Rnn
from xfcost.mechanisms.rwkv import RwkvChannel, RwkvTime
from xfcost.torch_models.decoding.conv import ByteNetStep, ConvolutionStep
from xfcost.torch_models.decoding.doors import ContextStep, PositionStep, ShiftStep
from xfcost.torch_models.decoding.recurrent import RecurrentStep
from xfcost.torch_models.decoding.rwkv import ChannelMixingStep, TimeMixingStep

# Every config whose one token more is not work like any other: made of (config, place, batch, shared tables).
STEPS: dict[type[Component], Any] = {
    ByteNet: ByteNetStep,
    Context: ContextStep,
    Conv: ConvolutionStep,
    Gru: RecurrentStep,
    Lstm: RecurrentStep,
    Position: PositionStep,
    Rnn: RecurrentStep,
    RwkvChannel: ChannelMixingStep,
    RwkvTime: TimeMixingStep,
    Shift: ShiftStep,
}
