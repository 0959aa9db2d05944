"""Modules of a decode step: parameters as in the modules of all N tokens, and a KV cache or a state."""

from __future__ import annotations

from typing import Any

from xfcost.formulas.component import Component
from xfcost.layers.context import Context
from xfcost.layers.position import Position
from xfcost.layers.shift import Shift
from xfcost.mechanisms.bytenet import ByteNet
from xfcost.mechanisms.conv import Conv
from xfcost.mechanisms.cross import Cross
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.gru import Gru
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.lstm import Lstm
from xfcost.mechanisms.mamba import Mamba
from xfcost.mechanisms.mamba2 import Mamba2
from xfcost.mechanisms.mla import Mla
from xfcost.mechanisms.retention import Retention
from xfcost.mechanisms.rnn import Rnn
from xfcost.mechanisms.rwkv_channel import RwkvChannel
from xfcost.mechanisms.rwkv_time import RwkvTime
from xfcost.mechanisms.sliding import Sliding
from xfcost.torch_models.decoding.attention import CrossStep, FullStep, SlidingStep
from xfcost.torch_models.decoding.conv import ByteNetStep, ConvolutionStep
from xfcost.torch_models.decoding.kernel import KernelStep
from xfcost.torch_models.decoding.latent import LatentStep
from xfcost.torch_models.decoding.layers import ContextStep, PositionStep, ShiftStep
from xfcost.torch_models.decoding.recurrent import RecurrentStep
from xfcost.torch_models.decoding.retention import RetentionStep
from xfcost.torch_models.decoding.rwkv import ChannelMixingStep, TimeMixingStep
from xfcost.torch_models.decoding.state_spaces import Mamba2Step, MambaStep

# Every config whose one token more is not work like any other: made of (config, place, batch, shared tables).
STEPS: dict[type[Component], Any] = {
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
