"""Mixtures of experts: a plain loop over tokens and experts, what idles and what is dropped."""

from __future__ import annotations

from math import ceil

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from cases.layers import PACKED, SLOTTED
from contract import example
from places import rows_of, total
from refused import refusals
from whole_probe import probe
from xfcost.api.analysis import analyze
from xfcost.formulas.component import Place, Residual
from xfcost.layers.feed_forward import Mlp, Swiglu
from xfcost.layers.moe import Groups, Moe
from xfcost.ledger.grid import Grid
from xfcost.torch_models.modules import MODULES

GRIDS = (Grid((1,)), Grid((2,)), Grid((7,)), Grid((3, 5)), Grid((2, 4), 1))
every_component = pytest.mark.parametrize("component", [*PACKED, *SLOTTED], ids=str)
every_grid = pytest.mark.parametrize("grid", GRIDS, ids=str)


def at(grid: Grid = Grid((7,)), dim: int = 6) -> Place:  # noqa: B008 - a tuple
    return Place(grid=grid, dim=dim, out_dim=dim)


def make(component: Moe, place: Place, device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    with torch.device(device):
        module = MODULES[Moe](component, place).double().eval()
    if component.correction and device == "cpu":
        module.correction.bias_E.copy_(torch.randn(component.experts))
    return module


# The count ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_experts_active_idle_none() -> None:
    assert total(PACKED[2], at(), "active_params") == total(PACKED[2], at(), "params")


@every_component
@every_grid
def test_macs_are_half_of_what_torch_s_own_counter_says_and_backward_twice_as_many(component: Moe, grid: Grid) -> None:
    """On a CPU the routing decides what each expert gets, and what all get together is the same."""
    module, (x,) = make(component, at(grid)), example(at(grid), 2)
    ours = 2 * total(component, at(grid), "macs")
    with FlopCounterMode(display=False) as counter:
        answer = module(x.requires_grad_())
    assert counter.get_total_flops() == 2 * ours
    with FlopCounterMode(display=False) as backward:
        answer.sum().backward()
    assert backward.get_total_flops() == 2 * 2 * ours
    assert all(parameter.grad is not None for parameter in module.parameters())


# What runs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def network(component: Moe, experts: nn.Module, number: int, x_D: Tensor) -> Tensor:
    """What one expert says of one token."""

    def mapped(leaf: nn.Module, y: Tensor) -> Tensor:
        bias = 0 if leaf.bias is None else leaf.bias[number]
        return leaf.weight[number] @ y + bias

    if isinstance(component.expert, Mlp):
        act = F.relu if component.expert.act == "relu" else F.gelu
        return mapped(experts.fc2, act(mapped(experts.fc1, x_D)))
    act = F.silu if isinstance(component.expert, Swiglu) else F.gelu
    return mapped(experts.down, act(mapped(experts.gate, x_D)) * mapped(experts.up, x_D))


def chosen(component: Moe, torch_module: nn.Module, x_D: Tensor) -> list[tuple[int, Tensor]]:
    """The experts of one token, the best first, and their weights."""
    scores = torch_module.router.weight @ x_D
    probability = scores.softmax(0) if component.router == "softmax" else 1 / (1 + (-scores).exp())
    by = (probability + torch_module.correction.bias_E if component.correction else probability).detach()
    may = range(component.experts)
    if component.groups:
        each = component.experts // component.groups.count
        best = 1 if component.groups.score == "max" else 2
        members = [range(first, first + each) for first in range(0, component.experts, each)]
        worth = [sum(sorted((float(by[one]) for one in group), reverse=True)[:best]) for group in members]
        groups = sorted(range(component.groups.count), key=lambda group: -worth[group])[: component.groups.active]
        may = [expert for group in groups for expert in members[group]]
    ranked = sorted(may, key=lambda expert: -float(by[expert]))[: component.active]
    weights = [probability[expert] for expert in ranked]
    if component.normalize:
        weights = [weight / sum(weights) for weight in weights]
    return [(expert, weight * (component.scale or 1)) for expert, weight in zip(ranked, weights, strict=True)]


def reference(component: Moe, torch_module: nn.Module, x_ND: Tensor) -> Tensor:
    """One sample, token after token, expert after expert; with a capacity, first choices before second ones."""
    plans = [chosen(component, torch_module, x_D) for x_D in x_ND]
    room = [
        ceil(component.capacity * component.active * len(x_ND) / component.experts) if component.capacity else len(x_ND)
    ] * component.experts
    answers = [0 * x_D for x_D in x_ND]
    for rank in range(component.active):
        for token, plan in enumerate(plans):
            expert, weight = plan[rank]
            if room[expert]:
                room[expert] -= 1
                answers[token] = answers[token] + weight * network(component, torch_module.experts, expert, x_ND[token])
    if torch_module.shared is not None:
        answers = [answer + torch_module.shared(x_D) for answer, x_D in zip(answers, x_ND, strict=True)]
    return torch.stack(answers)


@every_component
@every_grid
def test_outputs_and_gradients_are_those_of_a_loop(component: Moe, grid: Grid) -> None:
    torch_module, (x_BND,) = make(component, at(grid)), example(at(grid), 2)
    leaves = [x_BND.requires_grad_(), *torch_module.parameters()]
    ours, plain = torch_module(x_BND), torch.stack([reference(component, torch_module, x_ND) for x_ND in x_BND])
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-12)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    both = [torch.autograd.grad((one * weights).sum(), leaves, materialize_grads=True) for one in (ours, plain)]
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_an_expert_that_no_token_chose_is_not_run() -> None:
    component = Moe(experts=6, active=1, expert=Mlp(hidden=5), normalize=False)
    torch_module, (x_BND,) = make(component, at()), example(at(), 1)
    torch_module.requires_grad_(requires_grad=False)
    with torch.no_grad():
        torch_module.router.weight.fill_(0)
        x_BND[..., 0] = 1
        torch_module.router.weight[4, 0] = 1  # all choose the fifth
        before = torch_module(x_BND)
        for leaf in (torch_module.experts.fc1, torch_module.experts.fc2):
            leaf.weight[[0, 1, 2, 3, 5]] = float("nan")
        assert torch.equal(torch_module(x_BND), before)
        with FlopCounterMode(display=False) as counter:
            torch_module(x_BND)
    assert counter.get_total_flops() == 2 * total(component, at(), "macs")


@pytest.mark.parametrize("component", PACKED, ids=str)
@every_grid
def test_no_token_reads_another(component: Moe, grid: Grid) -> None:
    # tokens of one expert share a product, and its size decides how it rounds
    seen = probe(make(component, at(grid)), example(at(grid), 1), rounding=1e-12)
    assert seen.reads == tuple(frozenset({token}) for token in range(grid.total))


def test_with_a_capacity_tokens_compete_and_the_first_come_first() -> None:
    # One slot each: ⌈1·1·4/4⌉. All choose the same expert; the first gets the slot, the others nothing.
    component = Moe(experts=4, active=1, capacity=1.0, expert=Mlp(), normalize=False)
    place = at(Grid((4,)))
    assert component.slots(4) == 1
    torch_module, (x_BND,) = make(component, place), example(place, 2)
    with torch.no_grad():
        torch_module.router.weight.fill_(0)
        x_BND[..., 0] = 1
        torch_module.router.weight[2, 0] = 1
        answer = torch_module(x_BND)
    assert answer[:, 0].abs().min() > 0
    assert answer[:, 1:].abs().max() == 0
    assert any("so that the tokens of a sample compete" in note for note in component.notes(place))


def test_slots_by_hand() -> None:
    # 1.1 is 11/10 as it is written: 1.1·1·20/2 = 11 slots, and not 12 for the float above it
    assert Moe(experts=2, active=1, capacity=1.1).slots(20) == 11
    # ⌈1.25·2·7/8⌉ = ⌈2.1875⌉ = 3 slots, 24 computed for 14 copies
    component = Moe(capacity=1.25)
    assert (component.slots(7), component.computed(7)) == (3, 24)
    assert any("3 slots for each of 8 experts, 24 for 14 copies" in note for note in component.notes(at()))
    step = analyze("switch-base-128-capacity", N="1,64", mode="decode", trace=False)
    told = next(note for note in step.metadata.notes if "capacity" in note)
    assert "1 slot for each of 128 experts, 128 for 1 copy of a token" in told
    assert "one token by itself is never dropped" in told
    assert rows_of(component, at())["experts_gate"].macs == 24 * 6 * 16


def test_enough_capacity_drops_nothing() -> None:
    slotted, packed = Moe(capacity=4.0), Moe()
    (x_BND,) = example(at(), 3)
    modules = [make(component, at()) for component in (slotted, packed)]
    modules[0].load_state_dict(modules[1].state_dict())
    torch.testing.assert_close(modules[0](x_BND), modules[1](x_BND), rtol=1e-12, atol=1e-13)


def test_a_matrix_of_all_experts_is_one_tensor() -> None:
    """However many they are: a trace of 256 experts holds no more than one of 8."""
    many, few = (make(Moe(experts=experts, expert=Swiglu(hidden=4)), at(), "meta") for experts in (256, 8))
    assert len(list(many.parameters())) == len(list(few.parameters())) == 4
    assert many.experts.gate.weight.shape == (256, 4, 6)


# Bad input and what is told ──────────────────────────────────────────────────────────────────────────────────────────


test_what_can_not_be_is_refused = refusals(
    [
        (Moe(active=9), "active", "a token can't use 9 of 8 experts"),
        (Moe(groups=Groups(count=3, active=1)), "groups", "8 experts don't divide into 3 groups; .* 1, 2, 4, 8"),
        (Moe(groups=Groups(count=4, active=5)), "groups", "5 of 4 groups can't be active"),
        (Moe(active=3, groups=Groups(count=8, active=2)), "groups", "2 groups of 1 experts hold 2, and a token uses 3"),
        (Moe(active=1, groups=Groups(count=8, active=2, score="top_two")), "groups", "no two best; write score: max"),
        (Moe(expert=Mlp(chunks=2)), "expert", "an expert takes no 'chunks'"),
        (Moe(expert=Swiglu(residual=Residual())), "expert", "an expert takes no 'residual'"),
        (Moe(expert=Mlp(ratio=0.1)), "expert", "ratio: "),
    ],
    at(),
)


def test_what_a_reader_is_told() -> None:
    def notes(component: Moe) -> str:
        return " ".join(component.notes(at()))

    assert notes(Moe()) == ""
    assert "8 numbers per block" in notes(Moe(correction=True))
    assert "a buffer, as in transformers, and no parameter" in notes(Moe(correction=True))
    assert "always 1" in notes(Moe(active=1))
    assert notes(Moe(active=1, normalize=False)) == ""


def test_a_bias_of_the_choice_is_no_parameter_and_changes_no_weight() -> None:
    component = Moe(router="sigmoid", correction=True, expert=Mlp(hidden=3))
    with_bias, without = make(component, at()), make(msgspec.structs.replace(component, correction=False), at())
    assert sum(one.numel() for one in with_bias.parameters()) == sum(one.numel() for one in without.parameters())
    with_bias.correction.bias_E.fill_(3.0)  # the same for all: the choice stays
    (x_BND,) = example(at(), 2)
    torch.testing.assert_close(with_bias(x_BND), without(x_BND), rtol=0, atol=0)
