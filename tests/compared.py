"""A module beside its reference: the same weights, the same input, and nothing else given from one to the other."""

import importlib
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from cases import CASES
from cases.base import Case
from references import FILES
from references.plain import Options, Place, Weights
from xfcost.formulas.component import Mixer, tag_of

# Buffers that hold drawn or remembered numbers; all others are geometry, which a reference works out by itself.
GIVEN = {
    "centroids_HCK", "columns_HKr", "evicted_1ND", "features_FK", "memory_1PD", "running_mean", "running_var",
    "weight",
}  # fmt: skip


def reference_of(mechanism: type[Mixer]) -> Callable[..., Tensor]:
    """The slow reference of a mechanism: the function of its name."""
    name, files = tag_of(mechanism), (importlib.import_module(f"references.{file}") for file in FILES)
    found = [getattr(file, name) for file in files if hasattr(file, name)]
    assert len(found) == 1, f"{name}: expected one function `{name}` in tests/references, found {len(found)}"
    return found[0]


def options_of(component: msgspec.Struct, **more: Any) -> Options:
    """What a spec may say of it, as plain data."""
    fields = {field: getattr(component, field) for field in component.__struct_fields__}
    nested = {name: options_of(value) for name, value in fields.items() if isinstance(value, msgspec.Struct)}
    return Options(fields | nested | more | {"kind": tag_of(type(component))})


def given(module: nn.Module) -> Weights:
    """Copies of its parameters, and of those buffers that no formula gives."""
    tensors = {name: one.detach().clone().requires_grad_() for name, one in module.named_parameters()}
    drawn = {name: one.clone() for name, one in module.named_buffers() if name.rpartition(".")[2] in GIVEN}
    return Weights(tensors | drawn)


def scattered(module: nn.Module) -> nn.Module:
    """The module with noise on all that is given: no weight is 0 or 1, no remembered token zero."""
    noise = torch.Generator().manual_seed(5)

    def like(tensor: Tensor) -> Tensor:
        return torch.randn(tensor.shape, generator=noise, dtype=torch.float64)

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            # a temperature is a logarithm with a bound, which some of them reach
            parameter.add_((4 if "temperature" in name else 0.3) * like(parameter))
        for name, buffer in module.named_buffers():
            kind = name.rpartition(".")[2]
            if kind in ("running_mean", "evicted_1ND", "memory_1PD"):
                buffer.add_(like(buffer))
            elif kind == "running_var":
                buffer.mul_(1 + like(buffer).square())
    return module


def referred(case: Case, weights: Weights, *inputs: Tensor) -> Tensor:
    """What the reference says at the case's place, with these weights."""
    grid, drawn = case.place.grid, CASES[type(case.component)].drawn(case.component, case.place)
    where = Place(grid.sides, grid.special, case.place.dim, case.place.out_dim, grid.levels)
    return reference_of(type(case.component))(options_of(case.component, **drawn), where, weights, *inputs)


def answers_of(
    case: Case, module: nn.Module, inputs: tuple[Tensor, ...]
) -> tuple[tuple[Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]:
    """(output, gradients of the inputs and of the parameters in their order): the module's, the reference's."""
    weights = given(module)
    plain_inputs = [one.detach().clone().requires_grad_() for one in inputs]
    for one in inputs:
        one.requires_grad_()
    ours, plain = module(*inputs), referred(case, weights, *plain_inputs)
    assert ours.shape == plain.shape
    named = [weights.tensors[name] for name, _ in module.named_parameters()]
    sways = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one, other = (
        (answer.detach(), list(torch.autograd.grad((answer * sways).sum(), leaves, materialize_grads=True)))
        for answer, leaves in ((ours, [*inputs, *module.parameters()]), (plain, [*plain_inputs, *named]))
    )
    return one, other
