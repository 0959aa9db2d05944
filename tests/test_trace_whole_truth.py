"""A trace changes nothing, and says what it did not count in the same breath as its totals."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import xfcost
from modules import Call
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.tracing.trace import trace


def torch_macs(model: nn.Module, *inputs: Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        model.to("meta")(*(tensor.to("meta") for tensor in inputs))
    return counter.get_total_flops() // 2


# What nobody reads ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_work_whose_result_nobody_reads_is_counted() -> None:
    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.wasted = nn.Linear(3, 4), nn.Linear(4, 7)

        def forward(self, x: Tensor) -> Tensor:
            y = self.used(x)
            (self.wasted(y) * 0).sum()
            return y

    found = trace(Wasteful(), (torch.zeros(2, 3),))
    assert (found.modules["used"].macs, found.modules["wasted"].macs) == (24, 56)
    assert found.macs == torch_macs(Wasteful(), torch.zeros(2, 3)) == 80
    # and the product, and the sum of 2·7 numbers
    assert found.modules[""].flops == 28


def test_modules_that_were_never_called_are_named() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(3, 4), nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    found = trace(Spare(), (torch.zeros(2, 3),))
    assert (found.uncalled, found.params, found.macs) == (("spare",), 32, 24)
    assert found.complete
    assert str(found).splitlines()[-1] == "never called: spare"


# What no handle knows ────────────────────────────────────────────────────────────────────────────────────────────────


def test_totals_that_are_all_are_printed_plainly() -> None:
    found = trace(nn.Linear(30, 40), (torch.zeros(50, 30),))
    # 60,000 MACs; twice, and 2000 sums
    assert found.complete
    assert str(found) == repr(found) == "60,000 MACs, 122,000 FLOPs; 1,240 parameters"


def test_totals_that_are_not_all_say_so_in_the_same_breath() -> None:
    found = trace(Call(lambda x: torch.i0(x @ x).logcumsumexp(0).logcumsumexp(1)), (torch.zeros(3, 3),))
    assert not found.complete
    assert str(found) == repr(found)
    assert str(found).splitlines() == [
        "at least 27 MACs, at least 54 FLOPs; 0 parameters",
        "not counted, because no handle is known: aten::i0 (1×), aten::logcumsumexp (2×)",
    ]


class _Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x @ x

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> Tensor:
        return gradients[0]


@torch.jit.script
def _looped(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x @ x
    return x


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (_Squared.apply, "prim::PythonOp._Squared"),
        (lambda x: _looped(x) + 1, "prim::CallFunction"),
        (lambda x: torch.sparse.mm(x.to_sparse(), x), "aten::_sparse_mm"),
        (lambda x: F.interpolate(x[None, None], scale_factor=0.5, mode="bilinear", antialias=True)[0, 0], None),
        (lambda x: torch.linalg.inv(x + torch.eye(4)), "aten::linalg_inv"),
        (lambda x: torch.linalg.solve(x + torch.eye(4), x), "aten::linalg_solve"),
    ],
)
def test_calls_into_what_the_graph_does_not_show_are_named(function: Callable[[Tensor], Tensor], name) -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        found = trace(Call(function), (torch.zeros(4, 4),))
    assert not found.complete
    assert (name or "aten::_upsample_bilinear2d_aa") in found.unsupported


def test_operations_without_a_shape_are_named() -> None:
    def nested(x: Tensor) -> Tensor:
        return torch.nested.to_padded_tensor(torch.nested.nested_tensor([x, x[:2]]) * 2, 0.0)

    found = trace(Call(nested), (torch.zeros(4, 3),))
    assert "aten::mul without a shape" in found.unsupported


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (nn.Linear(3, 3), ([1.0],), "input 0 is list, expected a tensor"),
        (nn.Sequential(nn.LazyLinear(3)), (torch.zeros(2, 3),), r"0 \(LazyLinear\) has no shapes yet; run the model"),
        (nn.Sequential(torch.jit.script(nn.Linear(3, 3))), (torch.zeros(2, 3),), "is scripted, and its operations can"),
    ],
)
def test_what_can_not_be_traced_is_refused(model, inputs, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        xfcost.trace(model, *inputs)


# Nothing is changed ──────────────────────────────────────────────────────────────────────────────────────────────────


class Busy(nn.Module):
    """Everything that a module may change when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.table = nn.Embedding(5, 3, max_norm=0.1)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.calls, self.seen, self.last = 0, [], None
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(x.shape)
        self.steps.add_(1)
        self.last = self.table(torch.arange(3))
        random.random()  # noqa: S311 - any draw changes its state
        np.random.rand()  # noqa: NPY002
        x.mul_(2)
        return self.dropout(self.spectral(self.norm(x)) + self.last) * self.frozen


class Failing(Busy):
    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        raise RuntimeError("no more")


def numpy_state() -> np.ndarray:
    return np.random.get_state()[1]  # noqa: NPY002 - the global one


@pytest.mark.parametrize("kind", [Busy, Failing])
@pytest.mark.parametrize("fast", [True, False])
def test_a_trace_leaves_everything_as_it_was(kind: type[Busy], fast: bool) -> None:
    torch.manual_seed(0)
    model, x = kind().train(), torch.randn(3, 3)
    model.norm.eval()
    model.norm.weight.grad = torch.ones(3)
    model.register_forward_hook(lambda *_: None)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = {name: id(value) for name, value in [*model.named_parameters(), *model.named_buffers()]}
    hooks = {name: (len(one._forward_hooks), len(one._forward_pre_hooks)) for name, one in model.named_modules()}
    training = {name: module.training for name, module in model.named_modules()}
    gradients = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    given, randoms = x.clone(), (torch.get_rng_state(), random.getstate(), numpy_state().copy())
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        if kind is Failing:
            with pytest.raises(RuntimeError, match="no more"):
                trace(model, (x,))
        else:
            assert trace(model, (x,)).macs > 0
        assert torch.backends.mha.get_fastpath_enabled() is fast
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert state.keys() == model.state_dict().keys()
    assert {name: id(one) for name, one in [*model.named_parameters(), *model.named_buffers()]} == tensors
    assert {n: (len(one._forward_hooks), len(one._forward_pre_hooks)) for n, one in model.named_modules()} == hooks
    assert {name: module.training for name, module in model.named_modules()} == training
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == gradients
    assert torch.equal(model.norm.weight.grad, torch.ones(3))
    assert (model.calls, model.seen, model.last) == (0, [], None)
    assert torch.equal(x, given)
    assert torch.equal(torch.get_rng_state(), randoms[0])
    assert random.getstate() == randoms[1]
    assert np.array_equal(numpy_state(), randoms[2])
    assert torch.is_grad_enabled()


def test_statistics_of_a_batch_norm_in_training_stay() -> None:
    norm = nn.BatchNorm2d(4).train()
    trace(norm, (torch.randn(2, 4, 3, 3),))
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert torch.equal(norm.running_var, torch.ones(4))
    assert norm.num_batches_tracked == 0


def test_a_model_that_changes_its_own_parameters_is_told_of() -> None:
    class Growing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            self.weight.add_(1)
            return super().forward(x)

    with pytest.warns(
        UserWarning, match=r"changes its own parameters when it runs, and the trace ran it: \['weight'\]"
    ):
        trace(Growing(3, 3), (torch.zeros(2, 3),))


# Einsum, any einsum ──────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Two to four operands over letters of sizes from 2 up; an ellipsis now and then, and any output."""
    sizes = {letter: draw(st.integers(2, 4)) for letter in "abcde"}
    letters = st.lists(st.sampled_from("abcde"), max_size=3, unique=True)
    terms = draw(st.lists(letters, min_size=2, max_size=4))
    hidden = [draw(st.sampled_from([(), (3,), (2, 3), (1, 3)])) if draw(st.booleans()) else None for _ in terms]
    there = sorted({letter for term in terms for letter in term})
    output = draw(st.permutations(there))[: draw(st.integers(0, len(there)))]
    shapes = [(*(more or ()), *(sizes[one] for one in term)) for term, more in zip(terms, hidden, strict=True)]
    left = ["".join(["..." if more is not None else "", *term]) for term, more in zip(terms, hidden, strict=True)]
    dots = "..." if any(more is not None for more in hidden) else ""
    return ",".join(left) + "->" + dots + "".join(output), shapes


@given(equations())
@settings(max_examples=150, deadline=None)
def test_any_einsum_is_counted_as_torch_runs_it(drawn: tuple[str, list[tuple[int, ...]]]) -> None:
    equation, shapes = drawn
    module = Call(lambda *operands: torch.einsum(equation, *operands))
    inputs = tuple(torch.empty(shape, device="meta") for shape in shapes)
    found = trace(module, inputs)
    assert found.unsupported == {}
    assert found.macs == torch_macs(module, *inputs)
