"""Kinds found in small modules, with the answer worked out by hand."""

from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import xfcost
from followed import follow, run_followed
from ownership_cases import CASES, OF_SEQUENCES, SEQUENCE, D, attention, attention_to, decoded, mapping, solved
from xfcost.torch_models.any_model.row_kinds import at_full_size
from xfcost.torch_models.mixing.follower import Follower
from xfcost.torch_models.mixing.verdict import FoundOperation, verdicts
from xfcost.torch_models.shared.running_modules import running_modules


def found(module: nn.Module | Callable[..., Tensor], *shapes: tuple[int, ...], **given: Any) -> list[FoundOperation]:
    """What is found at inputs of these shapes and at the same with other sizes in place of the tokens'."""
    torch.manual_seed(0)
    module = (module if isinstance(module, nn.Module) else mapping(module)).eval()
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


@pytest.mark.parametrize("name", CASES)
def test_the_kind_of_every_operation_is_found(name: str) -> None:
    module, shapes, expected = CASES[name]
    assert mixing(found(module, *shapes)) == expected


def depends_on(module: nn.Module, x: Tensor) -> int:
    """The most tokens (of axis 1) of which a change changes one output token: each is changed, one after the other."""
    before = _first(module(x))
    changed = []
    for token in range(x.shape[1]):
        other = x.clone()
        other[:, token] += 1
        changed.append(((_first(module(other)) - before).abs() > 1e-12).any(-1))
    return int(torch.stack(changed).sum(0).max())


def _first(answer: Any) -> Tensor:
    return answer[0] if isinstance(answer, tuple) else answer


NEW_TOKENS = (
    "a mean at the end", "a bag at the end", "patch merging", "columns laid side by side", "columns that overlap",
)  # fmt: skip
# Where a token's content decides what the others read, its change moves them too, or moves nothing.
CHOSEN = ("tokens sorted by one of their numbers", "attention in buckets", "the best key", "a bag that tokens read")
OF_TOKENS = [name for name in OF_SEQUENCES if name not in NEW_TOKENS + CHOSEN]


@pytest.mark.parametrize("name", OF_TOKENS)
def test_what_is_found_is_what_the_output_depends_on(name: str) -> None:
    module, shapes, _ = CASES[name]
    operations = found(module, *shapes)
    torch.manual_seed(0)
    module = module if isinstance(module, nn.Module) else mapping(module)
    behind = max((one.represents or 1 for one in operations), default=1)
    with torch.no_grad():
        assert depends_on(module.double().eval(), torch.randn(shapes[0], dtype=torch.float64)) == behind


def test_learned_maps_along_the_tokens_are_static() -> None:
    torch.manual_seed(0)
    keys = [nn.Linear(tokens, 3) for tokens in (6, 10)]

    def linformer(tokens: int) -> nn.Module:
        project = keys[tokens > 6]
        module = mapping(lambda linear, x: attention_to(linear, x, project(x.transpose(1, 2)).transpose(1, 2)))
        module.add_module("project", project)
        return module

    runs = [run_followed(linformer(tokens), (torch.randn(1, tokens, D),), {}) for tokens in (6, 10)]
    assert mixing(verdicts(*runs)) == [
        ("mm", "global", 6, False),
        *[(name, "global", 3, True) for name in ("bmm", "_softmax", "bmm")],
    ]


def test_tokens_may_lie_on_another_axis() -> None:
    inputs = [torch.randn(1, 6, tokens) for tokens in (8, 12)]
    module = nn.Conv1d(6, 5, 3, padding=1)
    operations = follow(module, (inputs[0],), token_axes={0: (2,)}, larger=((inputs[1],), {}))
    assert mixing(operations) == [("convolution", "local", 3, False)]


def test_a_convolution_whose_channels_are_tokens_reads_all_of_its_group() -> None:
    torch.manual_seed(0)
    for groups, reads in ((1, 6), (2, 3)):
        x = torch.randn(1, 6, D)
        runs = [run_followed(nn.Conv1d(6, 6, 3, padding=1, groups=groups), (x,), {})]
        (only,) = (one for one in verdicts(*runs) if one.kind)
        assert only.reads is not None
        assert (only.reads.largest, only.content_dependent) == (reads, False)
        assert only.kind == ("global" if groups == 1 else "unknown")


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
    module, follower, seen = mapping(attention), Follower(), Seen()
    x = torch.randn(SEQUENCE)
    follower.own(x, (1,))
    first, second = (seen, follower) if outside else (follower, seen)
    with torch.no_grad(), running_modules(module, follower.running), first, second:
        module(x)
    assert seen.names == [noted.name for noted in follower.noted]


def test_a_system_of_equations_reads_all_tokens_before() -> None:
    kinds = {one[0]: one[1:] for one in mixing(found(solved, SEQUENCE))}
    assert kinds["linalg_solve_triangular"] == ("global", 6, True)


def test_a_loop_that_reads_all_tokens_so_far_is_global() -> None:
    ledger = xfcost.analyze(mapping(decoded), example_inputs=torch.randn(1, 20, D), mixing=True, trace=False)
    rows = [(row.operation, row.mixing, row.reads_tokens) for row in ledger.rows if row.mixing != "per-token"]
    assert rows == [(name, "global", 20) for name in ("bmm", "_softmax", "bmm_2")]


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_followed_gives_the_same_numbers(name: str) -> None:
    module, shapes, _ = CASES[name]
    module = deepcopy(module).float() if isinstance(module, nn.Module) else mapping(module)  # a test makes it double
    inputs = tuple(torch.randn(shape) for shape in shapes)
    follower = Follower()
    follower.own(inputs[0], (1,) if inputs[0].dim() == 3 else (2, 3))
    with torch.no_grad():
        alone = module(*inputs)
        with follower:
            followed = module(*inputs)
    assert torch.equal(_first(alone), _first(followed))


SIZES: Final = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2))


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (zip(SIZES, numbers, strict=True), expected)
        for numbers, expected in (
            ((8, 16, 32), 64), ((9, 17, 33), 65), ((4, 4, 4), 4), ((4, 8, 12), None), ((8, None, 32), None),
            ((1, 1, 2), None),
        )
    ]
    + [([(SIZES[0], 8), (SIZES[1], 16)], None), ([(Fraction(1), 40)], 40)]
    + [([(None, 8), (None, 16), (None, 32)], None)],
)  # fmt: skip
def test_a_number_at_the_given_size_is_on_a_line_through_three(points: Any, expected: int | None) -> None:
    assert at_full_size(list(points)) == expected
