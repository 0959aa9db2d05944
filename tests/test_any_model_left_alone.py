"""A module that was analyzed is as it was, and one that does not run gives one message with the user's own line."""

from __future__ import annotations

import inspect
import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import xfcost
from modules import Call
from xfcost.ledger.errors import UsageError

X = torch.ones(4, 8)


class Everything(nn.Module):
    """Norms with statistics, dropout, a counter, hooks, tensors and lists among its attributes."""

    def __init__(self):
        super().__init__()
        self.map, self.norm, self.dropout = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout()
        self.table = nn.Embedding(4, 8, max_norm=1.0)
        self.calls, self.kept, self.plain = 0, [], torch.ones(8)
        self.seen = {0}
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = self.dropout(self.norm(self.map(x))) + self.plain + self.table(torch.zeros(4, dtype=torch.long))
        self.total += y.sum(0)
        self.kept.append(y)
        self.seen.add(self.calls + random.randrange(9) + np.random.randint(9))  # noqa: NPY002, S311
        self.plain = y
        return y


def state(model: nn.Module) -> dict[str, object]:
    """All that an analysis might change."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "training": [module.training for module in model.modules()],
        "tensors": {name: (id(one), one.detach().clone().tolist(), one.device) for name, one in tensors.items()},
        "grads": [None if one.grad is None else one.grad.tolist() for one in model.parameters()],
        "needs grad": [one.requires_grad for one in model.parameters()],
        "hooks": [(len(one._forward_hooks), len(one._forward_pre_hooks)) for one in model.modules()],
        "attributes": [sorted(vars(module)) for module in model.modules()],
        "seen": sorted(getattr(model, "seen", ())),
        "random": (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()[1:3])),  # noqa: NPY002
        "grad mode": torch.is_grad_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
    }


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("values", [False, True], ids=["on meta", "on real tensors"])
def test_the_module_is_left_as_it_was(training, values):
    model = Everything().train(training)
    called = []
    model.map.register_forward_hook(
        lambda module, inputs, output: called.append(bool(output.sum() > 0) if values else 1)
    )
    model(X).sum().backward()
    plain, kept, calls = model.plain, list(model.kept), model.calls
    before = state(model)
    ledger = xfcost.analyze(model, example_inputs=X)
    assert ledger.module.tensors == ("real" if values else "meta")
    assert state(model) == before
    assert model.plain is plain
    assert (model.kept, model.calls) == (kept, calls)
    assert len(called) > 1  # the user's hooks ran with it


def test_it_is_left_as_it_was_when_it_raises():
    class Raises(Everything):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ValueError("no")

    model = Raises()
    before = state(model)
    with pytest.raises(UsageError):
        xfcost.analyze(model, example_inputs=X)
    assert state(model) == before


def test_a_module_on_meta_stays_there():
    model = nn.Linear(8, 8, device="meta")
    xfcost.analyze(model, example_inputs=X.to("meta"))
    assert all(one.is_meta for one in model.parameters())


def test_the_loss_of_a_gradient_inside_does_not_reach_the_module():
    def force(x: Tensor) -> Tensor:
        with torch.enable_grad():
            energy = model.map(x).sum()
            energy.backward()
        return energy.detach()

    model = Everything()
    model.forward = force
    xfcost.analyze(model, example_inputs=X, trace=False)
    assert model.map.weight.grad is None


# Modules that don't run ──────────────────────────────────────────────────────────────────────────────────────────────


class Wrong(nn.Module):
    """Fails where `what` says."""

    def __init__(self, what: str):
        super().__init__()
        self.map, self.what = nn.Linear(8, 8), what

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.what == "raises":
            raise KeyError("lost")
        return self.map(x[:, :7] if self.what == "shape" else x)


def line_of(text: str) -> int:
    lines, first = inspect.getsourcelines(Wrong)
    return first + next(number for number, line in enumerate(lines) if text in line)


def refusal(model: object, *inputs: object) -> str:
    with pytest.raises(UsageError) as error:
        xfcost.analyze(model, example_inputs=inputs)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("device", ["cpu", "meta"])
class TestErrors:
    """One message, with the user's own line."""

    def test_the_model_raises(self, device):
        message = refusal(Wrong("raises").to(device), X.to(device), X.to(device))
        assert message.startswith("Wrong does not run on these inputs: KeyError: 'lost' (")
        assert f"({__file__}:{line_of('raise KeyError')})" in message

    def test_a_wrong_shape(self, device):
        message = refusal(Wrong("shape").to(device), X.to(device), X.to(device))
        assert f"({__file__}:{line_of('return self.map')})" in message
        assert "RuntimeError" in message

    def test_a_missing_input(self, device):
        message = refusal(Wrong("none").to(device), X.to(device))
        assert "missing 1 required positional argument: 'mask'" in message
        assert f"({__file__}:{line_of('def forward')})" in message
        assert message.endswith("it takes (x: 'Tensor', mask: 'Tensor')")


def test_an_error_in_a_lambda_inside_torch_has_the_users_line():
    model = nn.Sequential(nn.Linear(8, 8), Call(lambda x: x.reshape(5)))
    assert f"{__file__}:" in refusal(model, X)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_modules_are_refused():
    model = nn.Sequential(torch.jit.script(nn.Linear(8, 8)))
    assert "0 (" in refusal(model, X)
    assert "is scripted" in refusal(model, X)


def test_lazy_modules_are_refused():
    assert "has no shapes yet" in refusal(nn.Sequential(nn.LazyLinear(3)), X)


def test_a_class_is_refused():
    from xfcost.torch_models.any_model.ledger import module_ledger

    with pytest.raises(UsageError, match="got the class Linear"):
        module_ledger(nn.Linear, (X,))


def test_compiled_modules_are_looked_at_uncompiled():
    inner = nn.Linear(8, 8)
    compiled = torch.compile(nn.Sequential(torch.compile(inner), nn.ReLU()))
    in_place = nn.Linear(8, 4)
    in_place.compile()
    ledger = xfcost.analyze(nn.Sequential(compiled, in_place), example_inputs=X)
    assert [row.path for row in ledger.rows] == ["0.0.addmm", "0.1.relu", "1.addmm"]
    assert [row.path for row in xfcost.analyze(compiled, example_inputs=X).rows] == ["0.addmm", "1.relu"]
    assert in_place._compiled_call_impl is not None
    assert compiled._orig_mod[0]._orig_mod is inner
