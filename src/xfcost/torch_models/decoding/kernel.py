"""Kernel attention for one token more: `mechanisms/kernel.py`, `decoding`.

B batch, D width, H heads, K head width, F features.
"""

from __future__ import annotations

from torch import Tensor

from xfcost.formulas.component import Place, alone
from xfcost.mechanisms.kernel import Kernel
from xfcost.torch_models.mechanisms.kernel import KernelAttention, Recurrent
from xfcost.torch_models.shared.cache import State
from xfcost.torch_models.shared.leaves import Tables


class KernelStep(KernelAttention):
    """(B, 1, D) -> (B, 1, D)."""

    def __init__(self, config: Kernel, place: Place, batch: int, tables: Tables) -> None:
        super().__init__(config.recurrent, alone(place), tables)
        head_dim = config.inner(place.dim) // config.heads
        shape = (batch, config.heads, 1, config.features.width(head_dim))
        self.core = RecurrentStep(config.features.epsilon, shape, head_dim)


class RecurrentStep(Recurrent):
    """φ(q), φ(k) (B, H, 1, F), v (B, H, 1, K) -> (B, H, 1, K)."""

    def __init__(self, epsilon: float, shape: tuple[int, ...], head_dim: int) -> None:
        super().__init__(epsilon)
        del self.join  # a step alone has nothing to be joined to
        self.cache = State((*shape, head_dim), shape)

    def forward(self, q_BH1F: Tensor, k_BH1F: Tensor, v_BH1K: Tensor) -> Tensor:
        y_BH1K, weight_BH11, *new = self._step(q_BH1F, k_BH1F, v_BH1K, *self.cache.past)
        self.cache(*new)
        return self.divide(y_BH1K, weight_BH11)
