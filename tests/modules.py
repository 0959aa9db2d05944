"""Modules that several tests of the live accounts share."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from xfcost.torch_models.tracing.trace import Traced, trace


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


class Module(nn.Module):
    """A function of the module itself and its inputs, with layers, parameters and what else it reads of itself."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any, **more: Any) -> Any:
        return self.function(self, *inputs, **more)


class Holder(nn.Module):
    """A module with a name to be found by."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.it = part

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.it(*inputs)


class Busy(nn.Module):
    """All that a module may change when it runs: statistics, weights, tensors, lists, draws, and its input (4, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.map, self.norm, self.dropout = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout()
        self.table = nn.Embedding(4, 8, max_norm=1.0)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)
        self.calls, self.kept, self.plain, self.seen = 0, [], torch.ones(8), {0}
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x.mul_(2)
        y = self.dropout(self.norm(self.spectral(self.map(x)))) * self.frozen
        y = y + self.plain + self.table(torch.zeros(4, dtype=torch.long))
        self.total += y.sum(0)
        self.kept.append(y)
        self.seen.add(self.calls + random.randrange(9) + np.random.randint(9))  # noqa: NPY002, S311
        self.plain = y
        return y


def state(model: Busy, *inputs: Tensor) -> dict[str, Any]:
    """All that a run might change."""
    tensors, modules = {**dict(model.named_parameters()), **dict(model.named_buffers())}, list(model.modules())
    return {
        "inputs": [x.tolist() for x in inputs],
        "training": [module.training for module in modules],
        "tensors": {name: (id(one), one.detach().clone().tolist(), one.device) for name, one in tensors.items()},
        "grads": [None if one.grad is None else one.grad.tolist() for one in model.parameters()],
        "needs grad": [one.requires_grad for one in model.parameters()],
        "hooks": [(len(one._forward_hooks), len(one._forward_pre_hooks)) for one in modules],
        "attributes": [sorted(vars(module)) for module in modules],
        "plain": (id(model.plain), list(map(id, model.kept)), model.calls, sorted(model.seen)),
        "random": (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()[1:3])),  # noqa: NPY002
        "grad mode": torch.is_grad_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
    }


def as_module(function: Callable[..., Any]) -> nn.Module:
    return function if isinstance(function, nn.Module) else Call(function)


def halves(shape: tuple[int, ...], device: str) -> Tensor:
    return torch.empty(shape, device=device).fill_(0.5)


def traced(function: Callable[..., Any], *shapes: tuple[int, ...], device: str = "cpu") -> Traced:
    """A trace on tensors of halves."""
    return trace(as_module(function).to(device), tuple(halves(shape, device) for shape in shapes))


def counted_by_torch(run: Callable[[], Any]) -> tuple[Any, int]:
    """What `run` gives, and the MACs that torch's own counter sees."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        answer = run()
    return answer, counter.get_total_flops() // 2


def torch_macs(function: Callable[..., Any], *inputs: Tensor, **named: Tensor) -> int:
    """What torch's own counter sees on `meta`, with the fast path off."""
    module = as_module(function).to("meta")
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        moved = {name: value.to("meta") for name, value in named.items()}
        return counted_by_torch(lambda: module(*(x.to("meta") for x in inputs), **moved))[1]
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def work(found: Traced) -> dict[str, int]:
    """The sums over all modules that aren't 0."""
    quantities = ("macs", "flops", "comparisons", "moved")
    sums = {one: sum(getattr(costs, one) for costs in found.modules.values()) for one in quantities}
    return {one: amount for one, amount in sums.items() if amount}


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
