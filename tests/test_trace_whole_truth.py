"""A trace changes nothing, and says what it did not count in the same breath as its totals."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from modules import Busy, Call, state, torch_macs
from small_networks import Square
from xfcost.torch_models.tracing.trace import trace


def test_work_whose_result_nobody_reads_is_counted() -> None:
    def run(x: Tensor) -> Tensor:
        y = model.used(x)
        (model.wasted(y) * 0).sum()
        return y

    model = Call(run)
    model.used, model.wasted = nn.Linear(3, 4), nn.Linear(4, 7)
    found = trace(model, (torch.zeros(2, 3),))
    assert (found.modules["used"].macs, found.modules["wasted"].macs) == (24, 56)
    assert found.macs == torch_macs(model, torch.zeros(2, 3)) == 80
    # and the product, and the sum of 2·7 numbers
    assert found.modules[""].flops == 28


def test_totals_that_are_not_all_say_so_in_the_same_breath() -> None:
    found = trace(nn.Linear(30, 40), (torch.zeros(50, 30),))
    # 60,000 MACs; twice, and 2000 sums
    assert str(found) == repr(found) == "60,000 MACs, 122,000 FLOPs; 1,240 parameters"
    found = trace(Call(lambda x: torch.i0(x @ x).logcumsumexp(0).logcumsumexp(1)), (torch.zeros(3, 3),))
    assert str(found) == repr(found)
    assert str(found).splitlines() == [
        "at least 27 MACs, at least 54 FLOPs; 0 parameters",
        "not counted, because no handle is known: aten::i0 (1×), aten::logcumsumexp (2×)",
    ]


@torch.jit.script
def _looped(x: Tensor) -> Tensor:
    for _ in range(3):
        x = x @ x
    return x


def _nested(x: Tensor) -> Tensor:
    return torch.nested.to_padded_tensor(torch.nested.nested_tensor([x, x[:2]]) * 2, 0.0)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (_nested, "aten::mul without a shape"),
        (Square.apply, "prim::PythonOp.Square"),
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


class Failing(Busy):
    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        raise RuntimeError("no more")


@pytest.mark.parametrize("kind", [Busy, Failing])
@pytest.mark.parametrize("fast", [True, False])
def test_a_trace_leaves_everything_as_it_was(kind: type[Busy], fast: bool) -> None:
    torch.manual_seed(0)
    model, x = kind().train(), torch.randn(4, 8)
    model.norm.eval()
    model.norm.weight.grad = torch.ones(8)
    model.register_forward_hook(lambda *_: None)
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        before = state(model, x)
        if kind is Failing:
            with pytest.raises(RuntimeError, match="no more"):
                trace(model, (x,))
        else:
            assert trace(model, (x,)).macs > 0
        assert state(model, x) == before
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_a_model_that_changes_its_own_parameters_is_told_of() -> None:
    class Growing(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            self.weight.add_(1)
            return super().forward(x)

    with pytest.warns(UserWarning, match=r"changes its own parameters .*: \['weight'\]"):
        trace(Growing(3, 3), (torch.zeros(2, 3),))


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
