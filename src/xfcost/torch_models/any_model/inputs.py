"""Example inputs: one tensor, positional ones, keyword ones, nested, dataclasses, caches, none."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from xfcost.ledger.errors import UsageError
from xfcost.torch_models.any_model.user_errors import raised
from xfcost.torch_models.shared.private_torch import pytree


class Given(NamedTuple):
    """The inputs of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def places(self, model: nn.Module) -> list[str]:
        """The names of the parameters that take the positional inputs."""
        return [_name(model, place) for place in range(len(self.args))]

    def named(self, model: nn.Module) -> list[tuple[str, Tensor]]:
        """Every tensor among the inputs, with the name of the parameter that takes it and its place there."""
        places = self.places(model)
        result = []
        for name, value in (*zip(places, self.args, strict=True), *self.kwargs.items()):
            for path, leaf in pytree.tree_flatten_with_path(value)[0]:
                if isinstance(leaf, Tensor):
                    result.append((name + pytree.keystr(path), leaf))
        return result


class Lengths(NamedTuple):
    """What the letters in a module's inputs stand for; None where nothing asks for it."""

    tokens: int | None = None
    """N."""
    size: tuple[int, int] | None = None
    """H and W, of an image."""


def letters_of(given: Any) -> frozenset[str]:
    """The letters that example inputs are a function of: N, or H and W where its parameters are called so."""
    if not callable(given):
        return frozenset()
    names = _parameters_of(given)
    return frozenset({"H", "W"} | (names & {"N"}) if names >= {"H", "W"} else {"N"})


def _parameters_of(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def inputs_at(given: Any, lengths: Lengths, keywords: Mapping[str, Any] | None = None) -> Given:
    """The example inputs that a user gives, as values or as a function of N, or of H and W.

    Raises:
        UsageError: a letter has no number, or the function raises.
    """
    if not callable(given):
        return example_inputs(given, keywords)
    letters = letters_of(given)
    if "N" in letters and lengths.tokens is None:
        raise UsageError("example_inputs: it is a function of N, and N has no number; give --N (N=… in Python)")
    if "H" in letters and lengths.size is None:
        raise UsageError("example_inputs: it is a function of H and W; give --size (size=… in Python)")
    height, width = lengths.size or (None, None)
    numbers = {"H": height, "W": width, "N": lengths.tokens}
    try:
        if "H" in letters:
            return example_inputs(given(**{letter: numbers[letter] for letter in sorted(letters)}), keywords)
        return example_inputs(given(lengths.tokens), keywords)
    except Exception as error:
        told = ", ".join(str(numbers[letter]) for letter in sorted(letters))
        raise UsageError(f"example_inputs({told}) raised {raised(error)}") from error


def _name(model: nn.Module, place: int) -> str:
    """The name of the parameter that takes the positional input at `place`: `x`, or `*xs` as `xs[1]`."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    for number, parameter in enumerate(parameters[: place + 1]):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return f"{parameter.name}[{place - number}]"
    return parameters[place].name if place < len(parameters) else str(place)


def example_inputs(given: Any, keywords: Mapping[str, Any] | None = None) -> Given:
    """What a user gives: a tuple or list is positional, a dictionary keywords, everything else the only input."""
    extra = dict(keywords or {})
    if given is None:
        return Given((), extra)
    if isinstance(given, Mapping):
        return Given((), {str(name): value for name, value in given.items()} | extra)
    if isinstance(given, tuple | list) and not hasattr(given, "_fields"):
        return Given(tuple(given), extra)
    return Given((given,), extra)


def noise(shape: Sequence[int], device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal noise with a seed of its own, which leaves the global random state alone; on `meta` no elements."""
    if device == "meta":  # drawing there imports torch's compiler
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    return torch.randn(tuple(shape), dtype=dtype, device=device, generator=torch.Generator(device).manual_seed(0))
