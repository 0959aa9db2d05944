"""What is compared, plotted and drawn: a spec, or a module without one, counted at any input that it can have."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from xfcost.counting.forward import count, curve_costs
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.inputs import image_size_for_grid, sized_inputs, takes_images, time_steps
from xfcost.spec.load import Loaded
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# Doublings of a spec's own input in search of one without padding.
_MOST_DOUBLINGS: Final = 12


class Grown(msgspec.Struct, frozen=True):
    """The same system at two inputs."""

    own: Ledger
    other: Ledger
    factor: float
    """How many times the tokens of `own` `other` has."""


class System(Protocol):
    """A system that can be counted at many inputs. Every method raises an XfcostError where it can't have that one."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def has_tokens(self) -> bool:
        """Can N of its input be any number?"""

    @property
    def has_images(self) -> bool:
        """Can its input be a square image of any side?"""

    @property
    def points(self) -> int:
        """At how many points a line of a plot is counted."""

    def ledger(self, run: Run) -> Ledger:
        """Its rows, counted, without orders."""

    def costs(self, run: Run) -> tuple[int, dict[str, int]]:
        """N and the figures of `CURVES`."""

    def input_key(self, run: Run) -> Hashable:
        """The same for all runs that give it the same input."""

    def axes(self, run: Run) -> int:
        """1 where N is any length, 2 where it is a square grid."""

    def token_step(self) -> int:
        """What N of a plot's points is a multiple of, where it is no square."""

    def time_steps(self) -> int:
        """What N of a square grid is multiplied by."""

    def pixels(self, run: Run) -> int:
        """What the side of an image is a multiple of."""

    def scores(self, ledger: Ledger, run: Run) -> tuple[int | None, int | None]:
        """Score dot products of a head in the first block that has any: without special tokens, and with them."""

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        """Its growth from `ledger` to an input twice as long on every axis, or half as long; None if it has neither."""


def without_steps(*ledgers: Ledger) -> bool:
    """Are these sizes without padding, and without tokens that are left out?

    The rule of slopes, of plots and of growth: they are of such sizes where a system has two of them, else of any.
    """
    return not any(ledger.metadata.steps for ledger in ledgers)


class SpecSystem(msgspec.Struct, frozen=True):
    """A spec."""

    loaded: Loaded

    @property
    def name(self) -> str:
        """The spec's name."""
        return self.loaded.spec.name

    @property
    def has_tokens(self) -> bool:
        """Every spec can be asked for an N."""
        return True

    @property
    def has_images(self) -> bool:
        """Is its input an image, no side folded into the width?"""
        return takes_images(self.loaded)

    @property
    def points(self) -> int:
        """Enough to show the steps that padded windows make."""
        return 97

    def ledger(self, run: Run) -> Ledger:
        """The closed form."""
        return count(place(self.loaded, run), orders=False)

    def costs(self, run: Run) -> tuple[int, dict[str, int]]:
        """N and the sums over the rows."""
        architecture = place(self.loaded, run)
        return int(architecture.grid.tokens), curve_costs(architecture)

    def input_key(self, run: Run) -> Hashable:
        """The sides of its inputs."""
        return tuple(entry.sides for entry in sized_inputs(self.loaded, run))

    def axes(self, run: Run) -> int:
        """The axes of the first stage's grid, or of its feature maps."""
        return len(place(self.loaded, run).grid.map_sides)

    def token_step(self) -> int:
        """A spec is asked for every N."""
        return 1

    def time_steps(self) -> int:
        """Those of a video, or as many tokens as stand over one of the smallest of several feature maps."""
        return time_steps(self.loaded)

    def pixels(self, run: Run) -> int:
        """Pixels per token of the first stage."""
        return max(image_size_for_grid(self.loaded, run, (1, 1)))

    def scores(self, ledger: Ledger, run: Run) -> tuple[int | None, int | None]:
        """Of eager attention, whatever the run's."""
        eager_run = run._replace(attention="eager")
        eager = ledger if run == eager_run else self.ledger(eager_run)
        special = any(stream["extra_tokens"] for stream in ledger.metadata.streams)
        on_grid = self.ledger(eager_run._replace(extra_tokens=False)) if special else eager
        return first_scores(on_grid), first_scores(eager)

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        """In the mode `generate` that of the prefill.

        Where that pads, it is from the spec's own input, doubled until it is as long, if that and its double do not.
        """
        if run.mode == "generate":
            ledger = self.ledger(run)
        grown = self._from(ledger, run)
        if grown is None or without_steps(grown.own, grown.other):
            return grown
        own = run._replace(tokens=None, size=None)
        for power in range(_MOST_DOUBLINGS):
            with suppress(XfcostError):
                longer = self.ledger(own._replace(scale=(2**power, 1)))
                if longer.metadata.grid_tokens >= ledger.metadata.grid_tokens:
                    found = self._from(longer, own, 2**power)
                    return found if found and without_steps(longer, found.other) else grown
        return grown

    def _from(self, ledger: Ledger, run: Run, times: int = 1) -> Grown | None:
        """From `ledger`, of `run` scaled `times`, to its input doubled, or halved."""
        length = 2 ** self.axes(run)
        for scale, factor in (((2 * times, 1), length), ((times, 2), 1 / length)):
            try:
                return Grown(ledger, self.ledger(run._replace(scale=scale)), factor)
            except XfcostError:  # beyond the last learned position, or a side that can't be halved
                continue
        return None


def first_scores(ledger: Ledger) -> int | None:
    """Score dot products per head and sample in the first attention sub-layer (of an eager ledger, or of a module)."""
    layer: str | None = None
    scores = 0
    for row in ledger.rows:
        if row.attention_entries and layer in (None, row.component):
            if ledger.module is None:
                heads = (row.heads or 1) * ledger.metadata.batch
                layer, scores = row.component, scores + row.attention_entries // heads
            elif row.core is not None:
                heads = (row.heads or 1) * ledger.metadata.batch
                layer, scores = row.component, scores + int(row.core.times * row.core.queries * row.core.keys) // heads
    return scores or None


def mixing_macs(ledger: Ledger) -> int | None:
    """MACs of all operations that mix tokens; None where that is not known of some of them."""
    if any(row.mixing == "unknown" and row.macs for row in ledger.rows):
        return None
    return ledger.total("macs", lambda row: row.mixes) or 0


CURVES: Final[dict[str, Callable[[Ledger], int | None]]] = {
    "macs": lambda ledger: ledger.total("macs") or 0,
    "mixing_macs": mixing_macs,
    "attention_bytes": lambda ledger: ledger.attention_memory()["all_layers"],
}

# Quantities whose growth exponent in N is reported.
GROWING: Final[dict[str, Callable[[Ledger], int | None]]] = {
    **CURVES,
    "sequential_steps": lambda ledger: ledger.metadata.sequential_steps,
    "cache_bytes": lambda ledger: ledger.cached_bytes,
}
