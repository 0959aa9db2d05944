"""The dispatched account, and the one table that says what an operation costs."""

import itertools
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from modules import Call, Module, work
from specs import architecture_of
from strategies import both_accounts
from xfcost.formulas.operation_costs import CHOICES, COSTS, FREE, PER_INPUT, PER_OUTPUT
from xfcost.program import attention, functions
from xfcost.torch_models.program import FunctionLeaf
from xfcost.torch_models.running.by_row import dispatch, dispatched_rows
from xfcost.torch_models.running.loops import MOST_STEPS
from xfcost.torch_models.shared import leaves, recurrence
from xfcost.torch_models.tracing.trace import trace, traced_rows

# The dispatched account: what a graph drops, what runs inside loops, and what no formula knows ────────────────────────


def meta(*shape):
    return torch.empty(shape, device="meta")


def costs(function, *tensors):
    """What the dispatcher counts of a function, zeros left out."""
    found = dispatch(Call(function), tensors)
    assert not found.uncounted()
    return {name: work for name, work in found.costs_by_module().get("", {}).items() if work}


def differing(ledger):
    """(row, quantity) of all differences between the counted and the dispatched account."""
    return {
        (each["path"].rpartition(".")[2], each["quantity"])
        for each in ledger.agreement.differences
        if "dispatched" in each
    }


class TestWhatAGraphDrops:
    """Work whose result nobody reads is in no graph."""

    @pytest.mark.parametrize(
        ("does", "wasted", "quantities"),
        [
            (attention.softmax, lambda scores: scores @ scores, {"macs", "flops"}),
            (leaves.Linear, F.gelu, {"flops"}),
            (attention.softmax, lambda scores: scores.sort(dim=-1), {"comparisons"}),
            (functions.added, lambda x: torch.cat([x, x], dim=1), {"moved"}),
        ],
    )
    def test_work_inside_a_leaf(self, does, wasted, quantities, monkeypatch):
        leaf = does if isinstance(does, type) else FunctionLeaf
        before = leaf.forward

        def forward(self, *inputs, **options):
            if does in (leaf, getattr(self, "function", None)):
                wasted(inputs[0])
            return before(self, *inputs, **options)

        monkeypatch.setattr(leaf, "forward", forward)
        ledger = both_accounts(architecture_of("vit-ti16"))
        assert {quantity for _, quantity in differing(ledger)} == quantities
        if quantities == {"macs", "flops"}:
            # 3 heads · 197³
            assert next(row for row in ledger.rows if row.operation == "softmax").dispatched.macs == 3 * 197**3


class TestLoops:
    """A graph shows a loop as one node, with a formula for it."""

    @pytest.mark.parametrize("name", ["common-lstm", "rnnsearch"])
    def test_a_wasted_matmul_in_every_step_is_seen(self, name, monkeypatch):
        before = recurrence.in_order

        def in_order(x_BNG, *, reverse):
            for token_BG in before(x_BNG, reverse=reverse):
                _ = token_BG.mT @ token_BG
                yield token_BG

        monkeypatch.setattr(recurrence, "in_order", in_order)
        ledger = both_accounts(architecture_of(name))
        assert {quantity for _, quantity in differing(ledger)} == {"macs", "flops"}
        assert not any("traced" in each for each in ledger.agreement.differences)  # the loop is one node there

    def test_loops_of_other_sizes_are_not_taken_for_equal(self):
        # 70 steps of 4 hidden units: 3 and 1 samples, which lie alike in memory
        def two_loops(x, weight):
            return [torch.ops.xfcost.rnn_tanh(one, weight, None, None, False) for one in (x, x[:1])]

        found = dispatch(Call(two_loops), (meta(3, 70, 4), meta(4, 4)))
        assert found.costs_by_module()[""]["macs"] == 70 * 4 * 4 * (3 + 1)

    def test_one_step_that_does_more_than_the_others_is_seen(self, monkeypatch):
        before = recurrence.in_order

        def in_order(x_BNG, *, reverse):
            for number, token_BG in enumerate(before(x_BNG, reverse=reverse)):
                if number == 20:
                    _ = token_BG.mT @ token_BG
                yield token_BG

        monkeypatch.setattr(recurrence, "in_order", in_order)
        x_BNG, weight_GH = meta(1, 32, 8), meta(8, 2)
        # 32 steps of 8·2 MACs, and one product of (8, 1) · (1, 8)
        assert costs(run_lstm, x_BNG, weight_GH)["macs"] == 32 * 16 + 64

    @pytest.mark.parametrize("steps", [1, 2, MOST_STEPS, MOST_STEPS + 1, 3 * MOST_STEPS])
    def test_of_very_many_steps_a_few_are_walked_and_the_sum_is_the_same(self, steps):
        gates, units, batch = 12, 3, 2
        found = costs(run_lstm, meta(batch, steps, gates), meta(gates, units))
        # a product of gates · units; 27 FLOPs per hidden unit (`conventions.py`); every step's answer is written
        assert found == {
            "macs": steps * batch * gates * units,
            "flops": steps * batch * (2 * gates * units + 27 * units),
            "moved": steps * batch * units,
        }


def run_lstm(x_BNG, weight_GH):
    return torch.ops.xfcost.lstm(x_BNG, weight_GH, None, None, None, False)[0]


def test_an_operation_that_no_formula_knows_is_named():
    found = dispatch(Call(lambda x: torch.special.i0(x) + x), (meta(3),))
    assert found.uncounted() == {"aten::i0": 1}
    unknown = nn.Sequential(Call(torch.special.i0))
    _, loose = dispatched_rows(unknown, (meta(3),), {"0": "x"})
    assert any("no formula is known" in line for line in loose)
    assert traced_rows(unknown, (torch.ones(3),), {"0": "x"})[1] == ["aten::i0 ran 1 time(s), and no handle is known"]


def test_work_outside_the_leaves_is_told():
    nested = Module(lambda self, x: self.inside(x) * 2, inside=nn.Linear(4, 4, device="meta"))
    rows, loose = dispatched_rows(nn.Sequential(nested), (meta(3, 4),), {"0": "x"})
    assert [(row.path, row.macs) for row in rows] == [("x.inside", 48)]
    assert loose == ["0: 12 flops outside the leaves of any mechanism"]


def test_an_exception_leaves_the_model_as_it_was():
    def fails(x):
        raise ValueError("not today")

    model = nn.Sequential(nn.Linear(2, 2, device="meta"), Call(fails))
    with pytest.raises(ValueError, match="not today"):
        dispatch(model, (meta(1, 2),))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


# One table says what an operation costs: it names operations of torch, and both accounts count by it ──────────────────

aten = torch.ops.aten


def test_every_name_is_an_operation_of_torch():
    names = {name.removeprefix("aten::") for name in (*COSTS, *FREE) if name.startswith("aten::")}
    assert {name for name in names if not hasattr(aten, name)} == set()


def test_no_operation_is_both_counted_and_free():
    assert COSTS.keys() & FREE == set()


def is_composite(name):
    """Is it made of other operations, which are all that the dispatcher sees?"""
    overloads = [getattr(getattr(aten, name), overload)._name for overload in getattr(aten, name).overloads()]
    known = [one for one in overloads if torch._C._dispatch_has_kernel(one) and "out" not in one.rpartition(".")[2]]
    return all(torch._C._dispatch_has_kernel_for_dispatch_key(one, "CompositeImplicitAutograd") for one in known)


def called(name):
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


def test_most_operations_are_called():
    assert len(CALLED) > 100


@pytest.mark.parametrize("name", CALLED)
def test_both_accounts_count_the_same_of_an_operation(name):
    x = torch.full((2, 3), 0.5)
    traced, dispatched = trace(CALLED[name], (x,)), dispatch(CALLED[name], (x,))
    assert traced.unsupported == dispatched.uncounted() == {}
    assert work(traced) == +sum(dispatched.costs_by_module().values(), Counter())


def as_complex(x):
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
def test_both_accounts_count_complex_numbers_alike(name):
    function, expected = COMPLEX[name]
    x = torch.full((2, 3), 0.5)
    assert work(trace(Call(function), (x,))) == expected
    assert dispatch(Call(function), (x,)).costs_by_module()[""] == expected


def test_both_accounts_name_what_complex_numbers_have_no_count_of():
    module, x = Call(lambda x: as_complex(x).exp()), torch.full((2, 3), 0.5)
    assert trace(module, (x,)).unsupported == {"aten::exp of complex numbers": 1}
    assert dispatch(module, (x,)).uncounted() == {"aten::exp": 1}
