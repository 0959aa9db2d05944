"""One table says what an operation costs: it names operations of torch, and torch's own formulas agree with it."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from modules import Call, work
from xfcost.torch_models.running.by_row import dispatch
from xfcost.torch_models.running.operation_costs import CHOICES, COSTS, FREE, PER_INPUT, PER_OUTPUT
from xfcost.torch_models.tracing.trace import trace

aten = torch.ops.aten


def made(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, device="meta", dtype=dtype)


IMAGE, KERNELS, ADDED = made(2, 6, 9, 9), made(8, 3, 3, 3), made(8)
# stride, padding, dilation, transposed, padding of the output, groups
WINDOW = ([2, 2], [1, 1], [1, 1], False, [0, 0], 2)
TRANSPOSED = ([2, 2], [1, 1], [1, 1], True, [0, 0], 2)
# Calls of the operations that torch counts too.
BY_TORCH = {
    "aten::mm": (made(3, 4), made(4, 5)),
    "aten::bmm": (made(2, 3, 4), made(2, 4, 5)),
    "aten::addmm": (made(5), made(3, 4), made(4, 5)),
    "aten::baddbmm": (made(2, 3, 5), made(2, 3, 4), made(2, 4, 5)),
    "aten::convolution": (IMAGE, KERNELS, ADDED, *WINDOW),
    "aten::convolution transposed": (IMAGE, made(6, 4, 3, 3), ADDED, *TRANSPOSED),
    "aten::_convolution": (IMAGE, KERNELS, ADDED, *WINDOW, False, False, False),
}


def test_every_name_is_an_operation_of_torch() -> None:
    names = {name.removeprefix("aten::") for name in (*COSTS, *FREE) if name.startswith("aten::")}
    assert {name for name in names if not hasattr(aten, name)} == set()


def test_no_operation_is_both_counted_and_free() -> None:
    assert COSTS.keys() & FREE == set()


@pytest.mark.parametrize("name", BY_TORCH)
def test_torch_counts_the_same_products(name: str) -> None:
    args, packet = BY_TORCH[name], getattr(aten, name.partition("::")[2].partition(" ")[0])
    shape = (2, 8, 17, 17) if "transposed" in name else None  # (9 - 1)·2 - 2 + 3
    result = made(*shape) if shape else made(2, 8, 5, 5) if "convolution" in name else packet(*args)
    costs = COSTS[name.partition(" ")[0]](args, result)
    assert costs is not None
    assert 2 * costs["macs"] == flop_registry[packet](*args, out_val=result)


def is_composite(name: str) -> bool:
    """Is it made of other operations, which are all that the dispatcher sees?"""
    overloads = [getattr(getattr(aten, name), overload)._name for overload in getattr(aten, name).overloads()]
    known = [one for one in overloads if torch._C._dispatch_has_kernel(one) and "out" not in one.rpartition(".")[2]]
    return all(torch._C._dispatch_has_kernel_for_dispatch_key(one, "CompositeImplicitAutograd") for one in known)


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


def as_complex(x: Tensor) -> Tensor:
    return torch.complex(x, x)


# On 2·3 complex numbers: a sum adds two parts, a product takes 6 FLOPs.
COMPLEX = {
    "sum": (lambda x: as_complex(x) + as_complex(x), {"flops": 12}),
    "product": (lambda x: as_complex(x) * as_complex(x), {"flops": 36}),
    "total": (lambda x: as_complex(x).sum(), {"flops": 12}),
    "movement": (lambda x: torch.cat([as_complex(x), as_complex(x)]), {"moved": 12}),
    # 2·2 dot products of 3 numbers, 8 FLOPs each, and what is added to them
    "product and sum": (
        lambda x: torch.addmm(as_complex(x[:, :2]), as_complex(x), as_complex(x.t())),
        {"macs": 12, "flops": 96 + 8},
    ),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_both_accounts_count_complex_numbers_alike(name: str) -> None:
    function, expected = COMPLEX[name]
    x = torch.full((2, 3), 0.5)
    assert work(trace(Call(function), (x,))) == expected
    assert dispatch(Call(function), (x,)).modules[""] == expected


def test_both_accounts_name_what_complex_numbers_have_no_count_of() -> None:
    module, x = Call(lambda x: as_complex(x).exp()), torch.full((2, 3), 0.5)
    assert trace(module, (x,)).unsupported == {"aten::exp of complex numbers": 1}
    assert dispatch(module, (x,)).unknown == {"aten::exp": 1}
