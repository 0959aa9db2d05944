"""A training step of any module: what the run of its backward pass says of work and memory."""

from __future__ import annotations

import msgspec
from torch import Tensor, nn

from xfcost.counting.training import TrainedParameters, training_step, with_saved_activations
from xfcost.formulas.conventions import STATE_BYTES
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.training import Plan, Training
from xfcost.torch_models.any_model.run import Run
from xfcost.torch_models.memory.training_step import adafactor_states


def with_training_step(ledger: Ledger, model: nn.Module, found: Run, plan: Plan) -> Ledger:
    """`ledger` with the step that `found` ran. Only parameters that a gradient reached have one, and optimizer states.

    `ledger`'s rows have their backward passes.
    """
    learned = [parameter for name, parameter in model.named_parameters() if name in found.learned]
    parameters = TrainedParameters(
        held_bytes=sum(parameter.nbytes for parameter in model.parameters()),
        trained=sum(parameter.numel() for parameter in learned),
        gradients_bytes=sum(parameter.nbytes for parameter in learned),
        master_bytes=sum(parameter.numel() * STATE_BYTES for parameter in learned if _is_half(parameter)),
        state_bytes=sum(parameter.numel() * max(STATE_BYTES, parameter.itemsize) for parameter in learned),
    )
    again = ledger.total("recomputed_macs") or 0
    step = training_step(ledger, plan.optimizer, parameters, tokens=None, recomputed=again)
    trained = msgspec.structs.replace(ledger, training=Training(step=step))
    return with_saved_activations(trained, ledger.total("kept_bytes") or 0, adafactor_states(learned))


def _is_half(parameter: Tensor) -> bool:
    return parameter.is_floating_point() and parameter.itemsize < STATE_BYTES
