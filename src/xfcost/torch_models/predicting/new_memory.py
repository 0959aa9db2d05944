"""New memory of a forward and of a training step: bytes of each module, on `meta`."""

from __future__ import annotations

import torch

from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.new_memory import NewBytes, new_bytes
from xfcost.torch_models.memory.peak import FusedOnMeta
from xfcost.torch_models.memory.process import LinearInPlace
from xfcost.torch_models.memory.training_step import Stepping
from xfcost.torch_models.predicting.calls import Recorder
from xfcost.torch_models.shared.recurrence import in_few_steps
from xfcost.torch_models.tracing.kernels import KernelOnMeta, NumbersOnMeta


def bytes_of_forward(live: BuiltModel, alive: NewBytes) -> dict[str, float]:
    """Module path -> bytes that each forward obtains from the system; the steps of long loops are left out."""

    def run() -> None:
        with FusedOnMeta(), LinearInPlace(), torch.no_grad(), in_few_steps(Recorder(None).loop):
            live.model(*live.inputs)

    return new_bytes(live.model, run, alive)


def bytes_of_step(live: BuiltModel, stepping: Stepping, alive: NewBytes) -> dict[str, float]:
    """The same of a training step; "" stands for its backward pass and for the update."""

    def run() -> None:
        with KernelOnMeta(products=False), NumbersOnMeta(), LinearInPlace():
            stepping()

    return new_bytes(live.model, run, alive)
