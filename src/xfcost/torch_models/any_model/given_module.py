"""The ledger of a module at any lengths of its inputs, and a module that a user gives with example inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from torch import nn

from xfcost.ledger.errors import SizeError
from xfcost.ledger.ledger import Ledger
from xfcost.torch_models.any_model.in_n import ledger_in_n
from xfcost.torch_models.any_model.inputs import Given, Lengths, inputs_at, letters_of
from xfcost.torch_models.any_model.mixing import Built, OnCPU
from xfcost.torch_models.any_model.options import How
from xfcost.torch_models.any_model.timing import OnDevice


class GivenModule:
    """A module with its example inputs: values, or a function of N, or of H and W."""

    def __init__(self, module: nn.Module, inputs: Any, keywords: Mapping[str, Any] | None = None) -> None:
        self.module, self.inputs, self.keywords = module, inputs, keywords
        self.title = type(module).__name__

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        """Its ledger on inputs of these lengths.

        Raises:
            UsageError: the module does not run on them.
            IncompleteError: an operation is not counted, and `how` is strict.
        """
        letters = letters_of(self.inputs)
        return ledger_at_lengths(self.module, self._given_at, lengths, letters, how, lambda: [self._built(lengths)])

    @contextmanager
    def on_cpu(self, lengths: Lengths) -> Iterator[Built]:
        """The module as it is, with its inputs."""
        yield self._built(lengths)

    def _built(self, lengths: Lengths) -> Built:
        return self.module, self._given_at(lengths)

    def _given_at(self, lengths: Lengths) -> Given:
        return inputs_at(self.inputs, lengths, self.keywords)


def ledger_at_lengths(  # noqa: PLR0913 - options
    model: nn.Module, given_at: Callable[[Lengths], Given], lengths: Lengths, letters: frozenset[str], how: How,
    on_cpu: OnCPU, *, name: str | None = None,
) -> Ledger:  # fmt: skip
    """The ledger at these lengths, with N or the image's size where these are `letters` in its inputs.

    `on_cpu` gives the module with real numbers.
    """
    has_n = "N" in letters and lengths.tokens is not None
    images = not has_n and letters >= {"H", "W"} and lengths.size is not None and len({*lengths.size}) == 1

    def at_number(number: int | None) -> Given:
        if not images or number is None:
            return given_at(lengths._replace(tokens=number))
        side = math.isqrt(number)
        if side * side != number:
            raise SizeError(f"{number:,} pixels are no square image")
        return given_at(lengths._replace(size=(side, side)))

    number = math.prod(lengths.size) if images and lengths.size is not None else lengths.tokens
    ledger = ledger_in_n(
        model, at_number, number, has_n=has_n or images, images=images,
        trace=how.trace, strict=how.strict, name=name, closed_form=how.closed_form,
        mixing=on_cpu if how.mixing else None, plan=how.plan, predict=how.predict,
        on=None if how.device is None else OnDevice(str(how.device), on_cpu, how.say, how.timing, taken=how.taken),
    )  # fmt: skip
    known: dict[str, Any] = {"grid_tokens": lengths.tokens} if has_n else {}
    known |= {"image": lengths.size} if letters & {"H", "W"} else {}
    return msgspec.structs.replace(ledger, metadata=msgspec.structs.replace(ledger.metadata, **known))
