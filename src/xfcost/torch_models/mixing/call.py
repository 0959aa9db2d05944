"""One dispatched call, and what a rule finds of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from xfcost.torch_models.mixing.owners import CONSTANT, distinct, present
from xfcost.torch_models.mixing.places import Places
from xfcost.torch_models.shared.private_torch import schema_of

if TYPE_CHECKING:
    from xfcost.torch_models.mixing.follower import Follower

Shape = tuple[int, ...]


class Finding(NamedTuple):
    """What one operation reads, before the kinds are known."""

    mixes: bool | None
    """None: it can't be found."""
    computed: Tensor | None = None
    """The number of places that each output line reads."""
    kept: Tensor | None = None
    """The same without masked ones."""
    chosen: bool = False
    """Does the mask depend on the input? Then what is kept depends on all that is computed."""
    places: frozenset[int] = frozenset()
    """All places that are read."""
    content_dependent: bool = False
    bounded: bool = False
    """Is the number fixed by the operation's own arguments (a kernel size)?"""
    latents: bool = False
    """Do learned queries, whose number does not grow, read each other?"""
    kernel: bool = False
    """Does it slide a kernel of learned weights along the tokens?"""
    merges: bool = False
    """Does it merge disjoint groups, which may be new tokens?"""
    sums: bool = False
    """Does it sum up its places, and so all tokens that they stand for?"""
    single: bool = False
    """Does each line read a single place, a state or a summary?"""
    step: bool = False
    """Does each line read one other, as a step of a recurrence reads the one before?"""
    recurs: bool = False
    """Is it a step of a recurrence that has run before?"""
    orders: bool = False
    """Does it sort every channel, or every head, of the tokens for itself?"""
    reason: str | None = None


PER_TOKEN = Finding(mixes=False)
# A product of two activations of one token.
GATED = Finding(mixes=False, content_dependent=True)


def unknown(reason: str) -> Finding:
    """Nothing can be said."""
    return Finding(mixes=None, reason=reason)


def is_unknown(finding: Finding | None) -> bool:
    """Is a finding missing for an operation that may mix tokens?"""
    return finding is not None and finding.mixes is None


class Outcome(NamedTuple):
    """The owners of every output tensor, and what was found; no finding of pure data movement."""

    owners: list[Tensor]
    finding: Finding | None


# The operation of a recurrence's steps: module path and name.
Step = tuple[str, str]
# More places than these are tokens, and no states: steps put together.
MOST_STATES: Final = 64


class Past(NamedTuple):
    """What a place has read, one step after the other."""

    places: frozenset[int]
    operations: frozenset[Step]


History = dict[int, Past]


class Call(NamedTuple):
    """One dispatched operation."""

    sequence: int
    packet: Any
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Tensor]
    run: Follower
    """What is known of all tensors of the run."""

    def argument(self, name: str, default: Any = None) -> Any:
        """The argument `name`, by position or by name."""
        for index, argument in enumerate(schema_of(self.func).arguments):
            if argument.name == name:
                if index < len(self.args):
                    return self.args[index]
                if name in self.kwargs:
                    return self.kwargs[name]
                return argument.default_value if argument.has_default_value() else default
        return default

    def owners(self, tensor: Tensor) -> Tensor:
        """The owners of a tensor's numbers, in its shape."""
        return self.run.owners(tensor)

    @property
    def places(self) -> Places:
        """The places of the run."""
        return self.run.places

    def made(self, groups: Sequence[frozenset[int]], parts: int = 1) -> Tensor:
        """The places (groups, parts) that it makes of groups of tokens; CONSTANT of none."""
        table = [
            [self.places.merged(self.sequence, group, part) if group else CONSTANT for part in range(parts)]
            for group in groups
        ]
        return torch.tensor(table).reshape(len(groups), parts)

    def one_place_each(self, groups: Sequence[frozenset[int]]) -> Tensor:
        """The place (groups) of each group of tokens; a group of one is the token itself."""
        large = self.made([group if len(group) > 1 else frozenset() for group in groups])[:, 0]
        alone = torch.tensor([next(iter(group)) if len(group) == 1 else CONSTANT for group in groups])
        return torch.maximum(large, alone)

    @property
    def result(self) -> Tensor:
        """Its first output."""
        return self.results[0]


def ids(places: Tensor) -> frozenset[int]:
    """The distinct places."""
    return frozenset(present(places).tolist())


def reads(read: Tensor, kept: Tensor, lines: Tensor | slice = slice(None), *, content_dependent: bool) -> Finding:
    """What `lines` read along the last axis: the places `read` (-1 for none), and of them `kept` by a mask."""
    return Finding(
        mixes=True,
        computed=distinct(read, -1)[lines],
        kept=distinct(kept, -1)[lines],
        places=ids(kept),
        content_dependent=content_dependent,
    )
