"""fvcore's trace of the same module, laid beside the dispatched account, module by module.

A trace has other operations than the dispatcher (`linear`, not `addmm`), so that what both have is the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.accounts import RUN
from xfcost.ledger.errors import XfcostError, printable
from xfcost.torch_models.any_model.stand_in import reached
from xfcost.torch_models.any_model.user_errors import raised
from xfcost.torch_models.shared.private_torch import pytree

Costs = Mapping[str, int]


class Beside(NamedTuple):
    """The trace by module, or the reason why there is none."""

    modules: dict[str, dict[str, int]]
    unsupported: dict[str, int]
    refused: str | None = None


class _Flat(nn.Module):
    """A module that takes tensors alone, which torch's tracer needs; other inputs are constants."""

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        super().__init__()
        self.model = model
        leaves, self.structure = pytree.tree_flatten(inputs)
        self.constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def forward(self, *tensors: Tensor) -> Any:
        leaves = list(self.constants)
        for place, tensor in zip(self.places, tensors, strict=False):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.model(*args, **kwargs)


def traced_beside(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Beside:
    """The trace of `model(*args, **kwargs)`."""
    from xfcost.torch_models.tracing.trace import trace

    tensors = tuple(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
    if not tensors:  # the tracer needs one
        tensors = (torch.empty(1, device=_device(model, (args, kwargs))),)
    try:
        traced = trace(_Flat(model, (args, kwargs)), tensors)
    except XfcostError as error:
        return Beside({}, {}, printable(str(error).removeprefix("trace: "), 200))
    except Exception as error:  # noqa: BLE001 - the dispatched account stands; the trace's failure is reported
        return Beside({}, {}, raised(error))
    modules = {
        name.removeprefix("model").removeprefix("."): {quantity: getattr(costs, quantity) for quantity in RUN}
        for name, costs in traced.modules.items()
        if name
    }
    return Beside(modules, traced.unsupported)


def _device(model: nn.Module, inputs: Any) -> torch.device:
    """Where the model is, or its inputs."""
    tensors = (*model.parameters(), *model.buffers(), *reached(inputs))
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def differences(ours: Mapping[str, Costs], beside: Beside) -> list[dict[str, Any]]:
    """{path, quantity, counted, traced} of every module where the accounts differ."""
    found: list[dict[str, Any]] = []
    for path in dict.fromkeys((*ours, *beside.modules)):
        counted, traced = ours.get(path, {}), beside.modules.get(path, {})
        found += [
            {"path": path, "quantity": quantity, "counted": counted.get(quantity, 0), "traced": traced.get(quantity, 0)}
            for quantity in RUN
            if counted.get(quantity, 0) != traced.get(quantity, 0)
        ]
    return found
