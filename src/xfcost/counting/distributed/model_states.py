"""Model states: parameters, gradients, master copy and optimizer states; what ZeRO leaves of them on a device.

With Ψ parameters of 16 bits, Adam and N_d replicas, one device holds (Rajbhandari et al. 2020, §5, table 1)

    stage 0  16Ψ             everything on every replica
    stage 1  4Ψ + 12Ψ/N_d    the optimizer's states and the master copy are shared out
    stage 2  2Ψ + 14Ψ/N_d    gradients too
    stage 3  16Ψ/N_d         parameters too
"""

from __future__ import annotations

from typing import Final, NamedTuple

from xfcost.formulas.arithmetic import ceil_div
from xfcost.ledger.training import TrainingStep
from xfcost.ledger.units import BYTES_PER_ELEMENT

# Which parts each ZeRO stage shares out among the replicas.
SHARED_OUT: Final[dict[str, int]] = {"optimizer": 1, "master": 1, "gradients": 2, "parameters": 3}


class ModelStates(NamedTuple):
    """Bytes by part."""

    parameters: int
    gradients: int
    master: int
    optimizer: int | None
    """None where it depends on the parameters' shapes, and no model was built."""

    def among(self, replicas: int, zero: int) -> ModelStates:
        """What a device holds of them with the ZeRO stage `zero`."""
        held = {
            name: size if size is None or zero < SHARED_OUT[name] else ceil_div(size, replicas)
            for name, size in self._asdict().items()
        }
        return ModelStates(**held)


def model_states(step: TrainingStep, params: int, total: int, gradients: str | None) -> ModelStates:
    """The states of `params` of the `total` parameters of `step`; gradients in a dtype of their own, or the model's."""
    of_gradients = step.gradients_bytes
    if gradients is not None:
        of_gradients = total * BYTES_PER_ELEMENT[gradients]
    parts = (step.params_bytes, of_gradients, step.master_bytes, step.optimizer_bytes)
    return ModelStates(*(None if part is None else ceil_div(part * params, max(total, 1)) for part in parts))  # type: ignore[arg-type]
