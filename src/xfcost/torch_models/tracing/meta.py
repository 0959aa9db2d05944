"""Shape-only `meta` kernels for torch.jit traces: missing in torch, or slow there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from xfcost.torch_models.shared.private_torch import convolution_shape, plain_convolution, replaced_kernels
from xfcost.torch_models.shared.recurrence import shapes_alone


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
            return pool.submit(_grouped_mm, *args, **kwargs).result()

        kernels: dict[str, Callable[..., Any]] = {"convolution": plain_convolution, "_convolution": shaped}
        kernels |= {"native_layer_norm": _layer_norm, "_grouped_mm": grouped}
        with replaced_kernels("Meta", kernels):
            yield


@contextmanager
def shapes_on_meta() -> Iterator[None]:
    """On `meta`, layer norms and grouped products return empty tensors of the right shapes.

    torch runs the decomposition of a layer norm in Python, a third of a run's time, with its input's memory format;
    kernels make a contiguous result. Of grouped products torch computes shapes only in bfloat16.
    """
    with replaced_kernels("Meta", {"native_layer_norm": _layer_norm, "_grouped_mm": _grouped_mm}):
        yield


def _layer_norm(x: Tensor, normalized_shape: Any, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The output, and the mean and 1/σ of each normalised group, in float32 or wider: shapes only."""
    sizes = (*x.shape[: x.ndim - len(normalized_shape)], *[1] * len(normalized_shape))
    dtype = torch.promote_types(x.dtype, torch.float32)
    return x.new_empty(x.shape), x.new_empty(sizes, dtype=dtype), x.new_empty(sizes, dtype=dtype)


def _grouped_mm(left: Tensor, right: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """(G, n, k) · (G, k, m), or with rows, columns or the summed axis cut into groups: shapes only."""
    groups = 0 if offs is None else offs.shape[0]
    sizes = [left.shape[-2], right.shape[-1]]
    if left.ndim == right.ndim:
        sizes = [groups if left.ndim == 2 else left.shape[0], *sizes]  # noqa: PLR2004
    return left.new_empty(sizes, dtype=out_dtype or left.dtype)
