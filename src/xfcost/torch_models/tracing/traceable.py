"""Which modules can be traced: checks before the trace, kernels of `meta`, and explained errors of torch's tracer."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from xfcost.ledger.errors import UsageError, printable
from xfcost.torch_models.running.surroundings import grouped_mm, layer_norm, unchanged
from xfcost.torch_models.shared.from_fvcore import TRACING
from xfcost.torch_models.shared.private_torch import (
    convolution_shape,
    is_compiled,
    is_compiled_in_place,
    plain_convolution,
    replaced_kernels,
)
from xfcost.torch_models.shared.recurrence import shapes_alone


def check_traceable(model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Refuse inputs and modules that cannot be traced, if that shows before the run.

    Raises:
        UsageError: `model` is no module, or an input no tensor; or a module is scripted, compiled or without shapes.
    """
    _check_module(model)
    for number, given in enumerate(inputs):
        if not isinstance(given, Tensor):
            raise UsageError(f"trace: input {number} is {type(given).__name__}, expected a tensor; {_instead(given)}")
    for name, module in model.named_modules():
        place = f"{name or 'the model itself'} ({type(module).__name__})"
        if isinstance(module, torch.jit.ScriptModule):
            raise UsageError(f"trace: {place} is scripted; pass the module that it was scripted from")
        if is_compiled(module):
            raise UsageError(
                f"trace: {place} is compiled; pass the module that it was compiled from, `model._orig_mod`"
            )
        if is_compiled_in_place(module):
            raise UsageError(f"trace: {place} is compiled in place; pass one on which `.compile()` was not called")
        if any(is_lazy(parameter) for parameter in module.parameters(recurse=False)):
            raise UsageError(f"trace: {place} has no shapes yet; run the model once, then trace it")


def _check_module(model: Any) -> None:
    if isinstance(model, type):
        name = model.__name__
        raise UsageError(
            f"trace: expected a torch module, got the class {name}; make a module of it: trace({name}(…), …)"
        )
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"trace: expected a torch module, got {type(model).__name__}; wrap it in a module whose forward calls it"
        )


def _instead(given: Any) -> str:
    """Advice for an input that is not a tensor."""
    wrap = "wrap the model in a module whose forward takes tensors alone"
    if isinstance(given, tuple | list) and given and all(isinstance(item, Tensor) for item in given):
        return f"pass tensors one by one, as in trace(model, q, k, v), or {wrap}"
    return wrap


@contextmanager
def tracer_may_refuse(model: nn.Module, inputs: tuple[Tensor, ...]) -> Iterator[None]:
    """Turn an error of torch's tracer into a UsageError; errors of `model` itself pass through.

    Raises:
        UsageError: the tracer failed on a model that runs where it is called with the same inputs.
    """
    try:
        yield
    except Exception as error:
        if not _raised_while_tracing(error) or not _runs(model, inputs):
            raise
        first = printable(str(error).partition("\n")[0], 200) or type(error).__name__
        raise UsageError(
            f"trace: this module can't be traced: {first}; "
            "trace the parts of it that can be, or a module that does the same with operations that torch can trace"
        ) from error


def _raised_while_tracing(error: Exception) -> bool:
    """Did the error occur while tracing, not while counting?"""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is TRACING.__code__ for frame, _ in frames)


def _runs(model: nn.Module, inputs: tuple[Tensor, ...]) -> bool:
    """Does a plain call of `model` succeed?"""
    try:
        with unchanged(model):
            model(*(tensor.detach().clone() for tensor in inputs))
    except Exception:  # noqa: BLE001 - whatever the module raises, it does not run
        return False
    return True


@contextmanager
def traceable_meta() -> Iterator[None]:
    """Let torch.jit trace models with convolutions and recurrences on `meta`, with fast layer norms.

    torch 2.13 cannot trace convolutions on `meta`. The tracer records only `aten::_convolution`, which `meta` never
    calls; and in a trace sizes are tensors, which torch's shape formula rejects. So `convolution` calls `_convolution`,
    whose shape is computed in a separate thread, outside the trace.

    A recurrence would run its N steps just for a shape.
    """
    with shapes_alone(), ThreadPoolExecutor(max_workers=1) as pool:

        def shaped(*args: Any) -> Tensor:
            return pool.submit(convolution_shape, *args[:9]).result()

        def grouped(*args: Any, **kwargs: Any) -> Tensor:
            return pool.submit(grouped_mm, *args, **kwargs).result()

        kernels: dict[str, Callable[..., Any]] = {"convolution": plain_convolution, "_convolution": shaped}
        kernels |= {"native_layer_norm": layer_norm, "_grouped_mm": grouped}
        with replaced_kernels("Meta", kernels):
            yield
