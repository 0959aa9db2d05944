"""Kinds found in small modules, with the answer worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from xfcost.torch_models.ownership.follower import Follower
from xfcost.torch_models.ownership.found import FoundOperation
from xfcost.torch_models.ownership.run import run_followed, watching
from xfcost.torch_models.ownership.verdict import follow, verdicts

D = 8


class Module(nn.Module):
    """A function of x and a linear map."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(D, D)

    def forward(self, *x: Tensor) -> Tensor:
        return self.function(self.linear, *x)


def found(module: nn.Module | Callable[..., Tensor], *shapes: tuple[int, ...], **given: Any) -> list[FoundOperation]:
    """What is found at inputs of these shapes and at the same with other sizes in place of the tokens'."""
    torch.manual_seed(0)
    module = (module if isinstance(module, nn.Module) else Module(module)).eval()
    small, large = (tuple(torch.randn(shape) for shape in sizes) for sizes in (shapes, map(longer, shapes)))
    return follow(module, small, larger=(large, {}), **given)


def longer(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(B, N, D) and images with more tokens."""
    if len(shape) == 3:
        return (shape[0], shape[1] + 4, *shape[2:])
    return (*shape[:2], *(2 * side for side in shape[2:]))


def mixing(operations: list[FoundOperation]) -> list[tuple[str, str | None, int | None, bool | None]]:
    """Name, kind, largest number read and content-dependence of what is not per-token."""
    return [
        (one.name.removeprefix("aten."), one.kind, one.reads.largest if one.reads else None, one.content_dependent)
        for one in operations
        if one.kind not in {None, "per-token"}
    ]


SEQUENCE, IMAGE = (1, 6, D), (1, 3, 8, 8)


def causal_mask(n: int) -> Tensor:
    return torch.full((n, n), float("-inf")).triu(1)


def window_mask(n: int) -> Tensor:
    """Each query and the two before it."""
    far = torch.arange(n)[:, None] - torch.arange(n)
    return torch.where((far >= 0) & (far < 3), 0.0, float("-inf"))


def attention(linear: nn.Linear, x: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = linear(x) @ x.transpose(1, 2)
    return (scores if mask is None else scores + mask).softmax(-1) @ x


def windows(linear: nn.Linear, x: Tensor) -> Tensor:
    """Attention inside windows of two, moved by one."""
    cut = x.roll(-1, 1).unflatten(1, (-1, 2))
    return ((linear(cut) @ cut.transpose(-2, -1)).softmax(-1) @ cut).flatten(1, 2).roll(1, 1) + x


def in_place(linear: nn.Linear, x: Tensor) -> Tensor:
    """A shift by slices of a buffer."""
    before = torch.zeros_like(x)
    before[:, 1:] = x[:, :-1]
    return x + before


def squeezed(linear: nn.Linear, x: Tensor) -> Tensor:
    return x * linear(x.mean(1, keepdim=True)).sigmoid()


def linear_attention(linear: nn.Linear, x: Tensor) -> Tensor:
    keys = linear(x).relu()
    return keys @ (keys.transpose(1, 2) @ x)


def summed_by_steps(linear: nn.Linear, x: Tensor) -> Tensor:
    state, steps = torch.zeros(x.shape[0], D), []
    for token in x.unbind(1):
        state = torch.tanh(token + linear(state))
        steps.append(state)
    return x + torch.stack(steps, 1)


def averaged_by_steps(linear: nn.Linear, x: Tensor) -> Tensor:
    """An exponential moving average: its weights are fixed."""
    state, steps = torch.zeros(x.shape[0], D), []
    for token in x.unbind(1):
        state = token + 0.9 * state
        steps.append(state)
    return x + torch.stack(steps, 1)


QK, AV = "bmm", "bmm"
CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...], list[tuple[str, str, int, bool]]]] = {
    "linear": (lambda linear, x: x + linear(x).relu(), (SEQUENCE,), []),
    "layer norm": (lambda linear, x: F.layer_norm(linear(x), (D,)), (SEQUENCE,), []),
    "softmax over channels": (lambda linear, x: linear(x).softmax(-1), (SEQUENCE,), []),
    "attention": (
        attention,
        (SEQUENCE,),
        [(QK, "global", 6, True), ("_softmax", "global", 6, True), (AV, "global", 6, True)],
    ),
    "attention of a batch": (
        attention,
        ((2, 6, D),),
        [(QK, "global", 6, True), ("_softmax", "global", 6, True), (AV, "global", 6, True)],
    ),
    "causal": (
        lambda linear, x: attention(linear, x, causal_mask(x.shape[1])),
        (SEQUENCE,),
        [
            ("bmm", "global", 6, True),
            ("add", "global", 6, False),
            ("_softmax", "global", 6, True),
            ("bmm", "global", 6, True),
        ],
    ),
    "a window kept of a dense product": (
        lambda linear, x: attention(linear, x, window_mask(x.shape[1])),
        (SEQUENCE,),
        [
            ("bmm", "local", 3, True),
            ("add", "local", 3, False),
            ("_softmax", "local", 3, True),
            ("bmm", "local", 3, True),
        ],
    ),
    "the same in one kernel": (
        lambda linear, x: F.scaled_dot_product_attention(*[x[:, None]] * 3, attn_mask=window_mask(x.shape[1])),
        (SEQUENCE,),
        [("_scaled_dot_product_flash_attention_for_cpu", "local", 3, True)],
    ),
    "windows, shifted": (
        windows,
        (SEQUENCE,),
        [("bmm", "local", 2, True), ("_softmax", "local", 2, True), ("bmm", "local", 2, True)],
    ),
    "element-wise scores": (
        lambda linear, x: (linear(x)[:, :, None] + x[:, None]).tanh().sum(-1).softmax(-1) @ x,
        (SEQUENCE,),
        [("add", "global", 6, True), ("_softmax", "global", 6, True), ("bmm", "global", 6, True)],
    ),
    "a state": (linear_attention, (SEQUENCE,), [("bmm", "global", 6, True), ("bmm", "global", 6, True)]),
    "a shift": (
        lambda linear, x: x + F.pad(x, (0, 0, 1, -1)),
        (SEQUENCE,),
        [("add", "local", 2, False)],
    ),
    "a shift, written in place": (in_place, (SEQUENCE,), [("add", "local", 2, False)]),
    "cumulative sum": (lambda linear, x: x.cumsum(1), (SEQUENCE,), [("cumsum", "global", 6, False)]),
    "a recurrence": (summed_by_steps, (SEQUENCE,), [("add", "global", 6, True)] * 5),
    "a moving average": (averaged_by_steps, (SEQUENCE,), [("add", "global", 6, False)] * 5),
    "LSTM": (nn.LSTM(D, D, batch_first=True), (SEQUENCE,), [("mkldnn_rnn_layer", "global", 6, True)]),
    "a mean at the end": (lambda linear, x: linear(x.mean(1)), (SEQUENCE,), []),
    "a mean that tokens read": (squeezed, (SEQUENCE,), [("mean", "global", 6, False), ("mul", "global", 6, True)]),
    "pointwise convolution": (nn.Conv2d(3, 5, 1), (IMAGE,), []),
    "patches": (nn.Conv2d(3, 5, 4, stride=4), (IMAGE,), []),
    "convolution": (nn.Conv2d(3, 5, 3, padding=1), (IMAGE,), [("convolution", "local", 9, False)]),
    "dilated convolution": (
        nn.Conv2d(3, 3, 3, padding=2, dilation=2, groups=3),
        (IMAGE,),
        [("convolution", "local", 9, False)],
    ),
    "maximum pooling": (nn.MaxPool2d(3, 1, 1), (IMAGE,), [("max_pool2d_with_indices", "local", 9, True)]),
    "an unfolded convolution": (
        lambda linear, x: F.unfold(x, 3, padding=1).transpose(1, 2) @ torch.ones(27, 2),
        (IMAGE,),
        [("bmm", "local", 9, False)],
    ),
    "group norm": (nn.GroupNorm(1, 3), (IMAGE,), [("native_group_norm", "global", 64, True)]),
    "patch merging": (
        lambda linear, x: F.layer_norm(torch.cat([x[:, ::2], x[:, 1::2]], -1), (2 * D,)) @ torch.ones(2 * D, 3),
        (SEQUENCE,),
        [],
    ),
    "merged keys": (
        lambda linear, x: attention_to(linear, x, F.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2)),
        (SEQUENCE,),
        [("avg_pool2d", "local", 2, False), *[(name, "global", 3, True) for name in ("bmm", "_softmax", "bmm")]],
    ),
}


def attention_to(linear: nn.Linear, x: Tensor, memory: Tensor) -> Tensor:
    return (linear(x) @ memory.transpose(1, 2)).softmax(-1) @ memory


@pytest.mark.parametrize("name", CASES)
def test_the_kind_of_every_operation_is_found(name: str) -> None:
    module, shapes, expected = CASES[name]
    assert mixing(found(module, *shapes)) == expected


def test_learned_maps_along_the_tokens_are_static() -> None:
    torch.manual_seed(0)
    keys = [nn.Linear(tokens, 3) for tokens in (6, 10)]

    def linformer(tokens: int) -> nn.Module:
        project = keys[tokens > 6]
        module = Module(lambda linear, x: attention_to(linear, x, project(x.transpose(1, 2)).transpose(1, 2)))
        module.add_module("project", project)
        return module

    runs = [run_followed(linformer(tokens), (torch.randn(1, tokens, D),), {}) for tokens in (6, 10)]
    assert mixing(verdicts(*runs)) == [
        ("mm", "global", 6, False),
        *[(name, "global", 3, True) for name in ("bmm", "_softmax", "bmm")],
    ]


def test_of_a_dense_product_both_numbers_are_given() -> None:
    scores = next(
        one for one in found(*CASES["a window kept of a dense product"][:1], SEQUENCE) if one.name == "aten.bmm"
    )
    assert scores.computed is not None
    assert scores.reads is not None
    assert (scores.computed.largest, scores.reads) == (6, (1, 3, 3))


def test_without_a_second_size_what_reads_a_part_is_unknown() -> None:
    torch.manual_seed(0)
    operations = follow(Module(windows), (torch.randn(SEQUENCE),))
    assert {one.kind for one in operations} == {None, "per-token", "unknown"}
    assert {one.kind for one in follow(Module(attention), (torch.randn(SEQUENCE),))} == {None, "per-token", "global"}


def test_what_no_rule_knows_is_unknown() -> None:
    (only,) = (one for one in found(lambda linear, x: torch.cdist(x, x), SEQUENCE) if one.kind)
    assert (only.kind, only.reason) == ("unknown", "no rule knows it")


def test_tokens_may_lie_on_another_axis() -> None:
    inputs = [torch.randn(1, 6, tokens) for tokens in (8, 12)]
    module = nn.Conv1d(6, 5, 3, padding=1)
    operations = follow(module, (inputs[0],), token_axes={0: (2,)}, larger=((inputs[1],), {}))
    assert mixing(operations) == [("convolution", "local", 3, False)]


class Seen(TorchDispatchMode):
    """Another mode beside the follower."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("outside", [False, True])
def test_another_dispatch_mode_sees_the_same_operations_and_no_others(outside: bool) -> None:
    module, follower, seen = Module(attention), Follower(), Seen()
    x = torch.randn(SEQUENCE)
    follower.own(x, (1,))
    first, second = (seen, follower) if outside else (follower, seen)
    with torch.no_grad(), watching(module, follower), first, second:
        module(x)
    assert seen.names == [noted.name for noted in follower.noted]


def test_the_module_is_left_as_it_was() -> None:
    module = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    follow(module, (torch.randn(SEQUENCE),))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in module.modules())
    assert torch.backends.mha.get_fastpath_enabled()


def test_each_operation_names_its_innermost_module() -> None:
    module = nn.Sequential(nn.Linear(D, D), nn.Sequential(nn.ReLU()))
    assert [
        (one.module, one.name) for one in follow(module, (torch.randn(4, D),), token_axes={0: (0,)}) if one.kind
    ] == [
        ("0", "aten.addmm"),
        ("1.0", "aten.relu"),
    ]
