"""Operations without a rule, found by changing tokens; and runs that are followed give the same numbers."""

from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from typing import Final

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ownership_cases import CASES, SEQUENCE, Module
from test_ownership import found, mixing
from test_ownership_choice import CASES as CHOICES
from xfcost.torch_models.any_model.row_kinds import at_full_size
from xfcost.torch_models.mixing.follower import Follower


def solved(linear: nn.Linear, x: Tensor) -> Tensor:
    """Each token minus what those before it explain, as in a delta rule."""
    eye = torch.eye(x.shape[1], dtype=x.dtype)
    return torch.linalg.solve_triangular((linear(x) @ x.mT).tril(-1) + eye, x, upper=False)


def folded(linear: nn.Linear, x: Tensor) -> Tensor:
    """Tokens as columns that are laid side by side."""
    return F.fold(x.mT, (2, x.shape[1]), (2, 1), stride=(2, 1))


OPERATIONS: Final[dict[str, tuple[Callable[..., Tensor], list[tuple[str, str, int, bool]]]]] = {
    "halves multiplied": (lambda linear, x: F.glu(x), []),
    "a Fourier transform of tokens and channels": (
        lambda linear, x: torch.fft.fftn(x, dim=(1, 2)).real,
        [("_fft_c2c", "global", 6, False)],
    ),
    "columns laid side by side": (folded, []),
    "columns that overlap": (
        lambda linear, x: F.fold(x.mT, (1, x.shape[1] + 1), (1, 2)),
        [("col2im", "local", 2, False)],
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_no_rule_knows_is_found_by_changing_tokens(name: str) -> None:
    function, expected = OPERATIONS[name]
    assert mixing(found(function, SEQUENCE)) == expected


def test_a_system_of_equations_reads_all_tokens_before() -> None:
    kinds = {one[0]: one[1:] for one in mixing(found(solved, SEQUENCE))}
    assert kinds["linalg_solve_triangular"] == ("global", 6, True)


ALL: Final = {
    **{name: (module if isinstance(module, nn.Module) else Module(module), shapes)
       for name, (module, shapes, _) in CASES.items()},
    **{name: (Module(function), (SEQUENCE,)) for name, (function, _) in CHOICES.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_run_that_is_followed_gives_the_same_numbers(name: str) -> None:
    module, shapes = ALL[name]
    module = deepcopy(module).float()  # another test may have made it double
    inputs = tuple(torch.randn(shape) for shape in shapes)
    follower = Follower()
    follower.own(inputs[0], (1,) if inputs[0].dim() == 3 else (2, 3))
    with torch.no_grad():
        alone = module(*inputs)
        mode: TorchDispatchMode = follower
        with mode:
            followed = module(*inputs)
    first, second = (one[0] if isinstance(one, tuple) else one for one in (alone, followed))
    assert torch.equal(first, second)


SIZES: Final = (Fraction(1, 8), Fraction(1, 4), Fraction(1, 2))


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((8, 16, 32), 64), ((9, 17, 33), 65), ((4, 4, 4), 4), ((4, 8, 12), None), ((8, None, 32), None)],
)
def test_a_number_at_the_given_size_is_on_a_line_through_three(
    numbers: tuple[int | None, ...], expected: int | None
) -> None:
    assert at_full_size(list(zip(SIZES, numbers, strict=True))) == expected


def test_two_sizes_confirm_nothing_and_the_given_size_needs_no_line() -> None:
    assert at_full_size([(SIZES[0], 8), (SIZES[1], 16)]) is None
    assert at_full_size([(Fraction(1), 40)]) == 40
    assert at_full_size([(SIZES[0], 1), (SIZES[1], 1), (SIZES[2], 2)]) is None
    assert at_full_size([(None, 8), (None, 16), (None, 32)]) is None
