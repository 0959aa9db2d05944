"""Shape-only kernels that stand in on `meta` while torch.jit traces: what torch lacks there, and what it has slow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._meta_registrations import meta_conv

from xfcost.torch_models.shared.recurrence import shapes_alone


@contextmanager
def traceable_meta() -> Iterator[None]:
    """Let torch.jit trace models with convolutions on `meta`, and layer norms without working them out.

    Convolutions, which torch 2.13 fails on there and would not record: the tracer records only `aten::_convolution`,
    which `meta` never calls; and while a trace runs, sizes are tensors, which torch's shape formula refuses. So
    `convolution` is sent through `_convolution`, whose shape is worked out in a thread of its own, where no trace runs.

    Recurrences, whose N steps would be walked to learn a shape.
    """
    with shapes_alone(), ThreadPoolExecutor(max_workers=1) as pool:

        def convolution(*args: Any) -> Tensor:
            return torch._convolution(*args, False, False, False, False)  # type: ignore[call-overload]  # noqa: SLF001

        def shaped(*args: Any) -> Tensor:
            return pool.submit(meta_conv, *args[:9]).result()

        with _kernels(convolution=convolution, _convolution=shaped, native_layer_norm=_layer_norm):
            yield


@contextmanager
def quick_layer_norm() -> Iterator[None]:
    """On `meta`, let a layer norm say what shapes it gives.

    torch runs its decomposition in Python, a third of the time of a trace, to learn shapes that are the input's.
    """
    with _kernels(native_layer_norm=_layer_norm):
        yield


@contextmanager
def _kernels(**kernels: Callable[..., Any]) -> Iterator[None]:
    """These kernels of ATen operations stand in on `meta`."""
    library = torch.library.Library("aten", "IMPL", "Meta")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden is the point
        for name, kernel in kernels.items():
            library.impl(name, kernel)
    try:
        yield
    finally:
        library._destroy()  # noqa: SLF001 - the documented way to take an implementation back


def _layer_norm(x: Tensor, normalized_shape: Any, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and the mean and 1/σ of every normalised group: shapes alone."""
    statistics = x
    for axis in range(1, len(normalized_shape) + 1):
        statistics = statistics.narrow(-axis, 0, 1)
    return torch.empty_like(x), torch.empty_like(statistics), torch.empty_like(statistics)
