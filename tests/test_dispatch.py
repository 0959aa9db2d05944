"""The dispatched account: what a graph drops, what runs inside loops, and what no formula knows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from modules import Call
from specs import architecture_of
from xfcost.counting.forward import count
from xfcost.ledger.ledger import Ledger
from xfcost.torch_models.accounts import reconciled
from xfcost.torch_models.build import build
from xfcost.torch_models.running.by_row import dispatch, dispatched_rows
from xfcost.torch_models.running.loops import MOST_STEPS
from xfcost.torch_models.shared import leaves, recurrence


def meta(*shape: int) -> Tensor:
    return torch.empty(shape, device="meta")


def costs(function, *tensors: Tensor) -> dict[str, int]:
    """What the dispatcher counts of a function, zeros left out."""
    found = dispatch(Call(function), tensors)
    assert not found.unknown
    return {name: work for name, work in found.modules.get("", {}).items() if work}


def reconciled_preset(name: str) -> Ledger:
    architecture = architecture_of(name)
    return reconciled(count(architecture), *build(architecture))


def differing(ledger: Ledger) -> set[tuple[str, str]]:
    """(row, quantity) of all differences between the counted and the dispatched account."""
    return {
        (each["path"].rpartition(".")[2], each["quantity"])
        for each in ledger.agreement.differences
        if "dispatched" in each
    }


class TestWhatAGraphDrops:
    """Work whose result nobody reads is in no graph."""

    def test_a_matmul_inside_a_softmax_leaf(self, monkeypatch):
        def forward(self, scores):
            weights = scores.softmax(dim=-1)
            _ = weights @ weights
            return weights

        monkeypatch.setattr(leaves.Softmax, "forward", forward)
        ledger = reconciled_preset("vit-ti16")
        assert differing(ledger) == {("softmax", "macs"), ("softmax", "flops")}
        # 3 heads · 197³
        assert next(row for row in ledger.rows if row.operation == "softmax").dispatched.macs == 3 * 197**3

    def test_an_activation_inside_a_linear_map(self, monkeypatch):
        def forward(self, x):
            F.gelu(x)
            return F.linear(x, self.weight, self.bias)

        monkeypatch.setattr(leaves.Linear, "forward", forward)
        assert {quantity for _, quantity in differing(reconciled_preset("vit-ti16"))} == {"flops"}

    def test_elements_that_are_moved_for_nothing(self, monkeypatch):
        def forward(self, x, y):
            torch.cat([x, x], dim=1)
            return x + y

        monkeypatch.setattr(leaves.Add, "forward", forward)
        assert ("residual_add", "moved") in differing(reconciled_preset("vit-ti16"))

    def test_comparisons_for_nothing(self, monkeypatch):
        def forward(self, scores):
            scores.sort(dim=-1)
            return scores.softmax(dim=-1)

        monkeypatch.setattr(leaves.Softmax, "forward", forward)
        assert differing(reconciled_preset("vit-ti16")) == {("softmax", "comparisons")}


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
        ledger = reconciled_preset(name)
        assert {quantity for _, quantity in differing(ledger)} == {"macs", "flops"}
        assert not any("traced" in each for each in ledger.agreement.differences)  # the loop is one node there

    def test_loops_of_other_sizes_are_not_taken_for_equal(self):
        # 70 steps of 4 hidden units: 3 and 1 samples, which lie alike in memory
        def two_loops(x, weight):
            return [torch.ops.xfcost.rnn_tanh(one, weight, None, None, False) for one in (x, x[:1])]

        found = dispatch(Call(two_loops), (meta(3, 70, 4), meta(4, 4)))
        assert found.modules[""]["macs"] == 70 * 4 * 4 * (3 + 1)

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


def run_lstm(x_BNG: Tensor, weight_GH: Tensor) -> Tensor:
    return torch.ops.xfcost.lstm(x_BNG, weight_GH, None, None, None, False)[0]


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        # 2·3·5 outputs, each of 4 products
        (F.linear, [(2, 3, 4), (5, 4)], {"macs": 120, "flops": 240}),
        # and a bias for each
        (F.linear, [(2, 3, 4), (5, 4), (5,)], {"macs": 120, "flops": 270}),
        (lambda x, y: torch.einsum("bnd,bmd->bnm", x, y), [(2, 3, 4), (2, 5, 4)], {"macs": 120, "flops": 240}),
        (lambda x, y: torch.einsum("i,j->ij", x, y), [(3,), (4,)], {"flops": 12}),
        (lambda a, x: a @ x, [(3, 4), (4,)], {"macs": 12, "flops": 24}),
        (lambda x, y: x @ y, [(4,), (4,)], {"macs": 4, "flops": 8}),
        # 6 outputs of 2 channels · 3 taps, and their biases
        (F.conv1d, [(1, 2, 5), (2, 2, 3), (2,)], {"macs": 36, "flops": 78}),
        # groups of one channel: 3 taps each
        (lambda x, w: F.conv1d(x, w, groups=2), [(1, 2, 5), (2, 1, 3)], {"macs": 18, "flops": 36}),
        # softmax 5 per entry of 2·3·5, scaled queries 2·3·4, products 2·3·5·(4 + 4)
        (
            F.scaled_dot_product_attention,
            [(2, 3, 4), (2, 5, 4), (2, 5, 4)],
            {"macs": 240, "flops": 480 + 150 + 24},
        ),
        (lambda x: F.layer_norm(x, (4,)), [(3, 4)], {"flops": 60}),
        (lambda x, w: F.rms_norm(x, (4,), w), [(3, 4), (4,)], {"flops": 48}),
        (F.gelu, [(3, 4)], {"flops": 60}),
        (lambda x: F.gelu(x, approximate="tanh"), [(3, 4)], {"flops": 108}),
        (lambda x: x.mean(0), [(3, 4)], {"flops": 12}),
        (lambda x: x.repeat_interleave(2, dim=0), [(3, 4)], {"moved": 24}),
        # n/2 complex numbers: 5 · 8/2 · log₂ 8; the filling up is the transform's
        (lambda x: torch.fft.rfft(x, n=8), [(5,)], {"flops": 60}),
        (lambda x: x.topk(2), [(3, 5)], {"comparisons": 45}),
        # three columns of 16: log₂ 16 comparisons per element
        (lambda x: torch.sort(x, dim=0, stable=True)[0], [(16, 3)], {"comparisons": 192}),
        (lambda x: x.floor(), [(3, 4)], {"flops": 12}),
        # one per element of the output, 3·4
        (torch.maximum, [(1, 4), (3, 4)], {"comparisons": 12}),
        (lambda x: F.max_pool2d(x, 2), [(1, 1, 4, 4)], {"comparisons": 16}),
        # 3·5 points, 4 channels: 60 samples of 4 neighbours, a product and a sum each, 15·4 weights of 4 FLOPs
        (
            lambda x, at: F.grid_sample(x, at, align_corners=False),
            [(1, 4, 6, 6), (1, 3, 5, 2)],
            {"flops": 60 * 8 + 60 * 4},
        ),
        (
            lambda x, at: F.grid_sample(x, at, mode="nearest", align_corners=False),
            [(1, 4, 6, 6), (1, 3, 5, 2)],
            {"moved": 60},
        ),
        (
            lambda x, at: F.grid_sample(x, at, align_corners=False),
            [(1, 4, 3, 3, 3), (1, 1, 3, 5, 3)],
            {"flops": 60 * 16 + 120 * 4},
        ),
        (lambda x: x.reshape(2, 6).transpose(0, 1)[1:], [(3, 4)], {}),
    ],
)
def test_costs_by_hand(function, shapes, expected):
    assert costs(function, *(meta(*shape) for shape in shapes)) == expected


def test_an_operation_that_no_formula_knows_is_named():
    found = dispatch(Call(lambda x: torch.special.i0(x) + x), (meta(3),))
    assert found.unknown == {"aten::i0": 1}
    _, loose = dispatched_rows(nn.Sequential(Call(torch.special.i0)), (meta(3),), {"0": "x"})
    assert any("no formula knows it" in line for line in loose)


def test_work_outside_the_leaves_is_told():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = nn.Linear(4, 4, device="meta")

        def forward(self, x):
            return self.inside(x) * 2

    rows, loose = dispatched_rows(nn.Sequential(Nested()), (meta(3, 4),), {"0": "x"})
    assert [(row.path, row.macs) for row in rows] == [("x.inside", 48)]
    assert loose == ["0: 12 flops outside the leaves of any mechanism"]


def test_an_exception_leaves_the_model_as_it_was():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("not today")

    model = nn.Sequential(nn.Linear(2, 2, device="meta"), Fails())
    with pytest.raises(ValueError, match="not today"):
        dispatch(model, (meta(1, 2),))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_its_macs_are_those_of_torch_s_own_counter():
    architecture = architecture_of("swin-t")
    live = build(architecture)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        live.model(*live.inputs)
    found = dispatch(live.model, live.inputs)
    assert 2 * sum(each["macs"] for each in found.modules.values()) == counter.get_total_flops()
