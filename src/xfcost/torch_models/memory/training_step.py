"""One training step of a torch model, forward, backward and update: timed, or its memory predicted on `meta`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import prod
from typing import Any, Final

import torch
from torch import Tensor, nn

from xfcost.torch_models.build import BuiltModel
from xfcost.torch_models.memory.peak import peak_in, peak_on_cuda
from xfcost.torch_models.running.recorder import Recorder
from xfcost.torch_models.shared.leaves import trained
from xfcost.torch_models.shared.private_torch import pytree

# A small learning rate keeps the weights finite. It does not change the work.
_RATE: Final = 1e-9


class Lion(torch.optim.Optimizer):
    """The sign of an average of gradients (Chen et al. 2023, algorithm 2). torch.optim does not have it."""

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-4) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            sign_beta, mean_beta = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                direction = state["mean"].lerp(parameter.grad, 1 - sign_beta).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                state["mean"].lerp_(parameter.grad, 1 - mean_beta)


def optimizer(name: str, model: nn.Module, *, lists: bool) -> torch.optim.Optimizer:
    """torch's own optimizer; `lists`: one kernel for all parameters if possible, as torch does on CUDA."""
    if name == "lion":
        return Lion(model.parameters(), lr=_RATE)
    if name in ("sgd", "momentum"):
        return torch.optim.SGD(model.parameters(), _RATE, 0.9 if name == "momentum" else 0.0, foreach=lists)
    made = {"adamw": torch.optim.AdamW, "adafactor": torch.optim.Adafactor}[name]
    return made(model.parameters(), lr=_RATE, foreach=lists)


class Stepping:
    """Training steps of a model on one repeated batch; the loss is the sum of the outputs."""

    def __init__(self, live: BuiltModel, name: str, *, lists: bool) -> None:
        self.model, self.inputs = trained(live.model.train()), live.inputs
        self.call: Callable[..., Any] = self.model
        """The model, or what is compiled of it."""
        self._optimizer = partial(optimizer, name, self.model, lists=lists)
        self.optimizer = self._optimizer()

    def __call__(self) -> None:
        self.backward(self.forward())
        self.update()

    def forward(self) -> Any:
        """The loss."""
        answers = self.call(*self.inputs)
        return torch.stack(
            [one.sum(dtype=torch.float32) for one in pytree.tree_iter(answers) if one.requires_grad]
        ).sum()

    def backward(self, loss: Any) -> None:
        loss.backward()

    def update(self) -> None:
        """The optimizer's update, with the gradients freed."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def peak_on(self, device: str) -> int:
        """Peak bytes: CUDA's own figure, of live tensors elsewhere."""
        return peak_on_cuda(self, device) if device.startswith("cuda") else self.peak()

    def peak(self) -> int:
        """Peak bytes of two steps, the second with optimizer states."""
        self.optimizer = self._optimizer()
        recorder = Recorder(self.model, self.inputs, calls=False, numbers_on_meta=True)
        return peak_in(recorder, self, self.model, first=self)


def adafactor_states(parameters: Iterable[Tensor]) -> int:
    """Elements of Adafactor's state: rows and columns of each matrix (the last two axes), one per element of vectors.

    Shazeer and Stern 2018, algorithms 4 and 5 (without β₁); axes before the last two as torch.optim.Adafactor has them.
    """
    total = 0
    for parameter in parameters:
        *lead, rows, columns = (1, 1, *parameter.shape)
        total += prod(lead) * (rows + columns) if parameter.ndim > 1 else parameter.numel()
    return total
