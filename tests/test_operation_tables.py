"""The graph's handles, the dispatcher's formulas and the backward pass know the same ATen operations."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from torch.utils.flop_counter import flop_registry

from modules import Call
from test_trace_elementwise import work
from xfcost.torch_models.running.by_row import dispatch
from xfcost.torch_models.running.costs import FLOPS
from xfcost.torch_models.tracing.contraction_costs import CONTRACTIONS
from xfcost.torch_models.tracing.elementwise_costs import ELEMENTWISE
from xfcost.torch_models.tracing.handles import COUNTED, FREE
from xfcost.torch_models.tracing.operation_names import CHOICES, PER_INPUT, PER_OUTPUT
from xfcost.torch_models.tracing.trace import trace

aten = torch.ops.aten
GRAPH = {name.removeprefix("aten::") for name in (*COUNTED, *FREE) if name.startswith("aten::")}
DISPATCHER = {*FLOPS, *CONTRACTIONS, *ELEMENTWISE, *flop_registry}
# What the dispatcher sees of a function that a graph holds as one operation.
KERNELS = {
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "_cdist_forward": "cdist",
    "_euclidean_dist": "cdist",
    "_embedding_bag": "embedding_bag",
    "_embedding_bag_forward_only": "embedding_bag",
    "_fft_c2r": "fft_irfft",
    "_fft_r2c": "fft_rfft",
    "_grid_sampler_2d_cpu_fallback": "grid_sampler_2d",
    "_native_batch_norm_legit": "batch_norm",
    "_trilinear": "bilinear",
    "cudnn_batch_norm": "batch_norm",
    "cudnn_convolution": "_convolution",
    "cudnn_grid_sampler": "grid_sampler",
    "convolution_overrideable": "_convolution",
    "mkldnn_linear": "linear",
    "native_batch_norm": "batch_norm",
    "_slow_conv2d_forward": "_convolution",
}
FUSED_ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
# Seen in modules of others alone: their graphs name the operation as not counted.
NO_HANDLE = {
    "_fft_c2c",
    "_addmm_activation",
    "_weight_int4pack_mm",
    "_weight_int8pack_mm",
    "nll_loss_forward",
    "nll_loss2d_forward",
}


def is_composite(name: str) -> bool:
    """Is it made of other operations, which are all that the dispatcher sees?"""
    overloads = [getattr(getattr(aten, name), overload)._name for overload in getattr(aten, name).overloads()]
    known = [one for one in overloads if torch._C._dispatch_has_kernel(one) and "out" not in one.rpartition(".")[2]]
    return all(torch._C._dispatch_has_kernel_for_dispatch_key(one, "CompositeImplicitAutograd") for one in known)


def test_what_a_graph_may_hold_the_dispatcher_knows() -> None:
    unknown = {name for name in GRAPH if getattr(aten, name) not in DISPATCHER and not is_composite(name)}
    assert unknown == set(), "add each to operation_names.py, or its formula to elementwise_costs.py"


def test_what_the_dispatcher_knows_has_a_handle() -> None:
    names = {str(packet._qualified_op_name) for packet in DISPATCHER if hasattr(packet, "_qualified_op_name")}
    alone = {name.removeprefix("aten::") for name in names if name.startswith("aten::")} - GRAPH
    forward = {name for name in alone if "backward" not in name and not name.startswith(FUSED_ATTENTION)}
    assert forward - NO_HANDLE == set(KERNELS), "add each to operation_names.py, or a handle"
    assert set(KERNELS.values()) <= GRAPH


def called(name: str) -> Call | None:
    """A module that calls the operation on as many equal tensors as it takes, at most three; None: it takes others."""
    packet = getattr(aten, name)
    for overload, tensors in itertools.product(packet.overloads(), (1, 2, 3)):
        operation = getattr(packet, overload)
        try:
            operation(*[torch.full((2, 3), 0.5) for _ in range(tensors)])
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        # in place, every tensor is its own
        return Call(lambda x, operation=operation, tensors=tensors: operation(*[x.clone() for _ in range(tensors)]))
    return None


NAMES = [name for works in (PER_OUTPUT, PER_INPUT) for names in works.values() for name in names.split()]
CALLED = {name: module for name in (*NAMES, *CHOICES.split()) if not is_composite(name) and (module := called(name))}


def test_most_operations_are_called() -> None:
    assert len(CALLED) > 100


@pytest.mark.parametrize("name", CALLED)
def test_both_accounts_count_the_same_of_an_operation(name: str) -> None:
    x = torch.full((2, 3), 0.5)
    traced, dispatched = trace(CALLED[name], (x,)), dispatch(CALLED[name], (x,))
    assert traced.unsupported == dispatched.unknown == {}
    assert work(traced) == +sum(dispatched.modules.values(), Counter())
