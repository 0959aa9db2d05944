"""What is analyzed, compared, plotted and drawn: a spec, a torch module or a published model, at any input.

`systems/` has the three; everything else asks this protocol, and no system what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from xfcost.ledger.ledger import Ledger
from xfcost.ledger.timing_plan import USUAL, TimingPlan
from xfcost.spec.grammar import Spec
from xfcost.spec.load import Loaded
from xfcost.spec.run import Run
from xfcost.spec.targets import writes_text

if TYPE_CHECKING:
    from xfcost.counting.reach.result import Reach
    from xfcost.torch_models.timing.systems import OnDevice


class AccountOptions(NamedTuple):
    """Which accounts of a system are taken, and how."""

    trace: bool | None = False
    """Are counts compared with the real model? None: those of a module where its run is short."""
    device: str | None = None
    """Where it is timed."""
    predict: str | None = None
    """The device on which its seconds are predicted."""
    timing: TimingPlan = USUAL
    progress: Callable[[str], None] | None = None
    orders: bool | None = None
    """Do its rows have their orders in N? None: those of a module where they are found quickly."""
    limits: bool = True
    """Are the largest batch and N that fit the devices sought, and published runs like it?"""
    strict: bool = False
    """Is a module refused that has operations that are not counted?"""
    mixing: float = 0
    """How many elements are followed to find the mixing kinds of a module, or to check those of a spec, at most."""
    check: bool = False
    """Are the declared kinds of a spec checked in its running model?"""
    probe: bool = False
    """Is what each operation of a spec reads found in its running model, and reported?"""
    tokens_of: Sequence[str] = ()
    """The axes of a module's inputs along which tokens lie."""
    cache: tuple[str | None, str | None] = (None, None)
    """What a module calls its cache, as an input and in what it returns; None where it has the usual names."""

    def say(self, text: str) -> None:
        """A line before a long step."""
        if self.progress is not None:
            self.progress(text)


class Grown(msgspec.Struct, frozen=True):
    """The same system at two inputs."""

    own: Ledger
    other: Ledger
    factor: float
    """How many times the tokens of `own` `other` has."""


class System(Protocol):
    """A system that can be counted at many inputs. Every method raises an XfcostError where it can't have that one.

    What is answered here is the answer of most systems; a spec, say, has another one.
    """

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def loaded(self) -> Loaded | None:
        """Its spec; None of a module and of a published model."""
        return None

    @property
    def config(self) -> str | None:
        """The path of the config of transformers that it is made of; None of a spec, and of modules without one."""
        return None

    @property
    def letters(self) -> frozenset[str] | None:
        """The letters in the given inputs of a module that stand for sizes; None where no inputs are given."""
        return None

    @property
    def remakes_keys(self) -> bool:
        """Does a decode step of its class make the keys and values of earlier tokens again?"""
        return False

    @property
    def has_tokens(self) -> bool:
        """Can N of its input be any number?"""

    @property
    def has_images(self) -> bool:
        """Can its input be a square image of any side?"""

    @property
    def points(self) -> int:
        """At how many points a line of a plot is counted: enough to show the steps that padded windows make."""
        return 97

    def prepare(self, runs: Iterable[Run]) -> None:
        """Do at once what is quicker so for these runs, which are counted next; most systems have nothing."""
        return

    def ledger(self, run: Run) -> Ledger:
        """Its rows, counted, without orders."""

    def costs(self, run: Run) -> tuple[int, dict[str, int]]:
        """N (0 where there is none), and the figures of `CURVES` that are known."""
        ledger = self.ledger(run)
        figures = {name: curve(ledger) for name, curve in CURVES.items()}
        return ledger.metadata.grid_tokens, {name: one for name, one in figures.items() if one is not None}

    def feed_forward_macs(self, run: Run) -> int | None:
        """The MACs of its feed-forward layers; None of a system whose components have no kinds."""
        return None

    def input_key(self, run: Run) -> Hashable:
        """The same for all runs that give it the same input."""

    def axes(self, run: Run) -> int:
        """1 where N is any length, 2 where it is a square grid."""

    def token_step(self) -> int:
        """What N of a plot's points is a multiple of, where it is no square."""
        return 1

    def time_steps(self) -> int:
        """What N of a square grid is multiplied by."""
        return 1

    def pixels(self, run: Run) -> int:
        """What the side of an image is a multiple of."""

    def scores(self, ledger: Ledger, run: Run) -> tuple[int | None, int | None]:
        """Score dot products of a head in the first block that has any: without special tokens, and with them.

        Which tokens of a module are special is not known.
        """
        return None, first_scores(ledger)

    def grown(self, ledger: Ledger, run: Run) -> Grown | None:
        """Its growth from `ledger` to an input twice as long on every axis, or half as long; None if it has neither.

        In the mode `generate` that of the prefill.
        """

    def kind(self, run: Run) -> Spec | bool:
        """Its spec; of others: is it a language model, in the mode of the run?"""
        return writes_text(self.config, run.mode)

    def with_positions(self, tokens: int) -> System:
        """The same with tables of positions for so many tokens, where they are parameters; others as they are."""
        return self

    def positions_up_to(self, most: int, run: Run) -> int:
        """The positions of a language model, at most so many, of a spec to a power of two below; 0 of other systems."""

    def with_samples(self, batch: int) -> System:
        """The same with this batch; a spec as it is, which takes that of its run."""

    def account(self, run: Run, how: AccountOptions) -> Ledger:
        """Its ledger with the accounts that are asked for, on the devices of the run."""

    def on_device(self, run: Run, how: AccountOptions) -> OnDevice:
        """What is timed on a device, in turns with other systems."""

    def start(self, runs: Sequence[Run], how: AccountOptions) -> None:
        """Count a module at the first of these runs that it can have: its other sizes are counted from there.

        Raises:
            XfcostError: it can have none of them; the error is that of the first.
        """
        return

    def remarks(self) -> Iterable[str]:
        """Notes on how a module is counted at other sizes."""
        return ()

    def reach(self, run: Run, token: Sequence[int] | None, say: Callable[[str], None]) -> Reach:
        """How far information travels in it."""


def without_steps(*ledgers: Ledger) -> bool:
    """Are these sizes without padding, and without tokens that are left out?

    The rule of slopes, of plots and of growth: they are of such sizes where a system has two of them, else of any.
    """
    return not any(ledger.metadata.steps for ledger in ledgers)


def first_scores(ledger: Ledger) -> int | None:
    """Score dot products per head and sample in the first attention sub-layer; None of a fused one, unless it ran."""
    layer: str | None = None
    scores = 0
    for row in ledger.rows:
        entries = row.attention_entries if row.ran or ledger.metadata.attention == "eager" else 0
        if row.ran and entries:  # of a fused kernel they are its statistics
            entries = int(row.core.times * row.core.queries * row.core.keys) if row.core else 0
        if entries and layer in (None, row.component):
            layer, scores = row.component, scores + entries // ((row.heads or 1) * ledger.metadata.batch)
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
