"""What a trace refuses, what it passes through, and what it names as not seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

import xfcost
from modules import Call
from xfcost.ledger.errors import UsageError
from xfcost.torch_models.running.by_row import dispatch
from xfcost.torch_models.tracing import trace as live_trace

X = torch.zeros(2, 3)
NUMPY = "Tensor.numpy (work outside torch is not seen)"


def refused(model, *inputs) -> str:
    with pytest.raises(UsageError) as caught:
        xfcost.trace(model, *inputs)
    return str(caught.value)


# Refused before it runs ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_compiled_module_is_traced_as_it_was_written():
    # 2 rows · 3 · 4
    compiled, inside = torch.compile(nn.Linear(3, 4), backend="eager"), nn.Sequential(nn.Linear(3, 4))
    inside[0].compile(backend="eager")
    assert xfcost.trace(compiled, X).macs == 24
    for model in (nn.Sequential(compiled), inside):
        before = model[0]
        assert {name: each.macs for name, each in xfcost.trace(model, X).modules.items()} == {"": 0, "0": 24}
        assert model[0] is before


def test_what_is_no_module_is_refused():
    assert refused(nn.Linear, X) == "expected a torch module, got the class Linear; make a module of it"
    assert refused(lambda x: x, X) == "expected a torch module, got function"


def test_tensors_in_a_tuple_are_told_to_be_passed_one_by_one():
    said = refused(nn.MultiheadAttention(3, 1), (X, X, X))
    assert "input 0 is tuple, expected a tensor; pass tensors one by one, as in trace(model, q, k, v)" in said
    assert "one by one" not in refused(nn.Linear(3, 4), ([1.0],))


# What torch's tracer can't do, and what the module itself does ───────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (
            lambda: torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4)), {nn.Linear}),
            (2, 3),
            "Only tensors or",
        ),
        (lambda: Call(lambda x: flex_attention(x, x, x)), (1, 2, 16, 16), "Unsupported value kind: Tensor"),
        (lambda: Call(torch.func.grad(lambda x: (x * x).sum())), (2, 3), "Cannot access data pointer"),
    ],
    ids=["quantized", "flex_attention", "torch.func.grad"],
)
def test_what_the_tracer_gives_up_on_is_a_usage_error(model, shape, message):
    built, x = model(), torch.zeros(shape)
    built(x)
    assert refused(built, x).startswith(f"trace: this module can't be traced: {message}")


def test_what_the_module_itself_raises_passes_through():
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        xfcost.trace(nn.Linear(4, 4), X)

    class OwnError(Exception):
        pass

    def fails(x: Tensor) -> Tensor:
        raise OwnError("mine")

    with pytest.raises(OwnError, match="mine"):
        xfcost.trace(Call(fails), X)


def test_a_fault_of_a_handle_is_no_fault_of_the_module(monkeypatch):
    def fails(inputs, outputs):
        raise ZeroDivisionError("in a handle")

    monkeypatch.setitem(live_trace._HANDLES, "aten::linear", fails)
    with pytest.raises(ZeroDivisionError, match="in a handle"):
        xfcost.trace(nn.Linear(3, 4), X)


def test_finding_out_whether_it_runs_changes_nothing():
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return torch.func.grad(lambda y: (y * y).sum())(x.add_(1))

    model, x = Counting(), torch.zeros(2, 3)
    refused(model, x)
    assert model.calls == 0
    assert torch.equal(x, torch.zeros(2, 3))
    assert not model._forward_hooks


# Modules that were not called, and whose parameters were used ────────────────────────────────────────────────────────


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_a_module_whose_weight_another_used_is_not_called_unused(device, training):
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training).to(device)
    assert xfcost.trace(encoder, torch.zeros(5, 2, 8, device=device)).uncalled == ()
    q = torch.zeros(5, 2, 8, device=device)
    assert xfcost.trace(nn.MultiheadAttention(8, 2).to(device), q, q, q).uncalled == ()


def test_of_two_modules_that_were_not_called_the_one_without_use_is_named():
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.by_weight, self.spare, self.called = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.called(x @ self.by_weight.weight.T)

    found = xfcost.trace(Halves(), X)
    assert found.uncalled == ("spare",)
    assert found.macs == 2 * 3 * 4 + 2 * 4 * 3


# Work outside torch ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("read", [lambda x: x.detach().numpy(), np.asarray], ids=["numpy", "asarray"])
def test_a_product_that_runs_in_numpy_is_named(read):
    weight = np.ones((3, 4), dtype=np.float32)
    model = Call(lambda x: torch.from_numpy(read(x) @ weight) + 1)
    found = xfcost.trace(model, X)
    assert (found.complete, found.unsupported) == (False, {NUMPY: 1})
    assert dispatch(model, (X,)).unknown == {NUMPY: 1}
    assert "numpy" not in vars(Tensor)


def test_whole_numbers_that_go_to_numpy_are_no_work():
    model = Call(lambda x: x[: int(x.argmax(1).numpy().max()) + 1] + 1)
    assert xfcost.trace(model, X).complete
    assert not dispatch(model, (X,)).unknown
