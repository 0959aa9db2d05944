"""One step of training of a real model, forward, backward and update: timed, its memory predicted on `meta`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from xfcost.torch_models.build import Live
from xfcost.torch_models.memory.peak import watched
from xfcost.torch_models.tracing.kernels import KernelOnMeta, NumbersOnMeta

# The rate at which the timed steps learn: as much work as any other, and weights stay finite.
_RATE: Final = 1e-9


class Lion(torch.optim.Optimizer):
    """Sign of a mean of gradients (Chen et al. 2023, algorithm 2), which torch.optim has not."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            of_sign, of_mean = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                direction = state["mean"].lerp(parameter.grad, 1 - of_sign).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                state["mean"].lerp_(parameter.grad, 1 - of_mean)


_MADE: Final[dict[str, Callable[..., torch.optim.Optimizer]]] = {
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "momentum": partial(torch.optim.SGD, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
}


def optimizer(name: str, model: nn.Module, *, lists: bool) -> torch.optim.Optimizer:
    """torch's own optimizer; `lists`: all parameters in one kernel where that can be, as torch does on CUDA."""
    if name == "lion":
        return Lion(model.parameters(), lr=_RATE)
    return _MADE[name](model.parameters(), lr=_RATE, foreach=lists)


class Stepping:
    """Steps of training of a model, on one batch again and again; the loss is the sum of its answers."""

    def __init__(self, live: Live, name: str, *, lists: bool) -> None:
        self.model, self.inputs = live.model.train().requires_grad_(), live.inputs
        self.optimizer = optimizer(name, self.model, lists=lists)

    def __call__(self) -> None:
        """Forward, backward, update."""
        answers = self.model(*self.inputs)
        loss = torch.stack([one.sum(dtype=torch.float32) for one in tree_iter(answers) if one.requires_grad]).sum()
        del answers
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def peak_of_steps(live: Live, name: str, *, lists: bool) -> int:
    """Peak bytes of tensors alive in two steps, the second with the optimizer's states there; walked on `meta`, too."""
    stepping = Stepping(live, name, lists=lists)
    with watched(live.model, live.inputs) as alive, KernelOnMeta(products=False), NumbersOnMeta():
        stepping()
        stepping()
    return alive.peak
