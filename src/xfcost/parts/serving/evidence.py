"""Published runs like a run, and the shares of the lower bound that they reach: what a bound is worth in practice.

Likeness is a list of features that must be equal (`LEVELS`). Where fewer than five runs of at least two engines are
found the list is relaxed in a stated order: the generation of the device first, whether they prefill or decode never.
The range is that of all runs found, least to most: with each engine left out in turn it holds seven of ten of its runs,
and the quartiles three or four (docs/serving.md).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from xfcost.ledger.device import DeviceGroup
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.parallelism import Parallelism
from xfcost.ledger.units import BYTES_PER_ELEMENT
from xfcost.ledger.units import seconds as seconds_text

FEWEST: Final = 5
"""Fewer runs make no range."""
FEWEST_ENGINES: Final = 2
"""Nor do runs of one engine, whatever their number: they show what it does, and not what a run does."""


class RunFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """What makes runs alike."""

    phase: str
    """prefill, decode, generate or train."""
    devices: int
    generation: str
    """The architecture of the GPU."""
    bits: float
    """Of a stored weight."""
    batch: int = 1
    """Samples, of inference."""
    tokens: int
    """N; of a generation that of the prompt."""
    recomputation: str = ""
    """none, selective or full, of training; empty where it isn't stated."""
    pass_seconds: float = 0.0
    """The bound of a prefill or of a step, in inference; of a generation that of a token, its prompt included."""
    params: int = 0
    """Of the model, in training."""


class PublishedRun(RunFeatures, frozen=True, kw_only=True):
    """A measured run, and what it reaches of the bound that xfcost gives for it."""

    id: str
    engine: str
    """What ran it, an inference engine or a training framework; where that isn't stated, who published it."""
    model: str
    device: str
    new_tokens: int = 0
    share: float
    """Least time / measured time."""
    source: str


class Feature(msgspec.Struct, frozen=True):
    """A feature that runs have in common: its class of a run, which is also what reports call it."""

    name: str
    words: Callable[[RunFeatures], str]


_SEVERAL: Final = 4
_MOST_DEVICES: Final = 8
# Bits of weights: between those of formats, for scales take some and few matrices stay in 16 bits.
_SIXTEEN: Final = 12
_EIGHT: Final = 7


def _bits(run: RunFeatures) -> str:
    if run.bits > 2 * _SIXTEEN:
        return "32 bits"
    return "16 bits" if run.bits > _SIXTEEN else "8 bits" if run.bits > _EIGHT else "fewer than 8 bits"


def _devices(run: RunFeatures) -> str:
    if run.devices == 1:
        return "1 device"
    return f"2 to {_SEVERAL} devices" if run.devices <= _SEVERAL else f"{_SEVERAL + 1} to {_MOST_DEVICES} devices"


PHASE: Final = Feature("phase", lambda run: {"generate": "generation"}.get(run.phase, run.phase))
PASS: Final = Feature("pass", lambda run: "prefill" if run.phase == "prefill" else "decode or generation")
BATCH: Final = Feature("batch", lambda run: "1 sample" if run.batch == 1 else "several samples")
BITS: Final = Feature("bits", _bits)
QUANTISED: Final = Feature("quantised", lambda run: _bits(run) if run.bits > _SIXTEEN else "8 bits or fewer")
DEVICES: Final = Feature("devices", _devices)
SEVERAL: Final = Feature("several", lambda run: "1 device" if run.devices == 1 else "several devices")
GENERATION: Final = Feature("generation", lambda run: run.generation)

LEVELS: Final[tuple[tuple[Feature, ...], ...]] = (
    (PHASE, BATCH, BITS, DEVICES, GENERATION),
    (PHASE, BATCH, BITS, DEVICES),
    (PHASE, BATCH, BITS, SEVERAL),
    (PASS, BATCH, BITS, SEVERAL),
    (PASS, BATCH, QUANTISED, SEVERAL),
    (PASS, BATCH, SEVERAL),
    (PASS, BATCH),
    (PASS,),
)
"""The features that must be equal in inference, the most first."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Published runs like a run, and what its bound becomes where it reaches the same shares."""

    runs: tuple[PublishedRun, ...]
    """Those with the most features in common; too few for a range where `why_none` says so."""
    alike: tuple[str, ...] = ()
    """What they and the run have in common."""
    why_none: str | None = None
    """Why there is no range: a feature of the run that no or few published runs have."""
    bound_seconds: float
    """The bound of which the shares are: without communication, which bounds of published runs leave out too."""
    least_seconds: float
    """The whole bound, below which no time is."""

    @property
    def shares(self) -> tuple[float, float] | None:
        """The least and the most of the bound that they reach; None without a range."""
        if self.why_none is not None:
            return None
        shares = [run.share for run in self.runs]
        return min(shares), max(shares)

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The least and the most time at these shares."""
        if self.shares is None:
            return None
        least, most = self.shares
        return max(self.bound_seconds / most, self.least_seconds), max(self.bound_seconds / least, self.least_seconds)

    def to_object(self) -> dict[str, Any]:
        """The key `evidence` of JSON."""
        return {
            "shares": self.shares and list(self.shares),
            "seconds": self.seconds and list(self.seconds),
            "runs": len(self.runs),
            "alike": list(self.alike),
            "engines": sorted({run.engine for run in self.runs}),
            "ids": [run.id for run in self.runs],
            "why_none": self.why_none,
        }


class Collection:
    """Published runs, found by their features.

    Args:
        runs: all of them.
        levels: the features that must be equal, the most first.
    """

    def __init__(self, runs: Iterable[PublishedRun], levels: Sequence[Sequence[Feature]]) -> None:
        self.runs = tuple(runs)
        self._levels: list[tuple[Sequence[Feature], dict[tuple[str, ...], list[PublishedRun]]]] = []
        for level in levels:
            found: dict[tuple[str, ...], list[PublishedRun]] = {}
            for run in self.runs:
                found.setdefault(_words(level, run), []).append(run)
            self._levels.append((level, found))

    def like(self, asked: RunFeatures) -> tuple[tuple[PublishedRun, ...], tuple[str, ...]]:
        """The runs of the first level that has enough, and what they have in common; of none those of the last one."""
        runs: list[PublishedRun] = []
        words: tuple[str, ...] = ()
        for level, found in self._levels:
            words = _words(level, asked)
            runs = found.get(words, [])
            if enough(runs):
                break
        return tuple(runs), words

    def shortest(self, asked: RunFeatures) -> float:
        """The shortest bound of the published prefills or steps: overheads of shorter ones nobody has shown."""
        known = (run.pass_seconds for run in self.runs if PASS.words(run) == PASS.words(asked))
        return min(known, default=0.0)

    def evidence(self, asked: RunFeatures, bound_seconds: float, least_seconds: float) -> Evidence:
        """The published runs like `asked`, whose bound takes so long."""
        found, alike = self.like(asked)
        why_none = None if enough(found) else f"with {', '.join(alike)}"
        times = {"bound_seconds": bound_seconds, "least_seconds": least_seconds}
        return Evidence(runs=found, alike=alike, why_none=why_none, **times)


def _words(level: Sequence[Feature], run: RunFeatures) -> tuple[str, ...]:
    return tuple(feature.words(run) for feature in level)


def enough(runs: Sequence[PublishedRun]) -> bool:
    """Do they make a range?"""
    return len(runs) >= FEWEST and len({run.engine for run in runs}) >= FEWEST_ENGINES


def read_runs(path: Path) -> tuple[PublishedRun, ...]:
    """The runs of a CSV file, an empty cell being what it is by default."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(stream)]
    return tuple(msgspec.convert(row, PublishedRun, strict=False) for row in rows)


@cache
def published_runs() -> Collection:
    """Measured runs of inference; tools/evidence.py writes them from tests/data/serving.csv."""
    return Collection(read_runs(Path(__file__).with_name("published_runs.csv")), LEVELS)


def serving_evidence(
    ledger: Ledger,
    on: DeviceGroup,
    plan: Parallelism | None,
    lengths: tuple[int, int],
    times: tuple[float, float],
    *,
    offloaded: bool,
) -> Evidence:
    """Of a run of inference.

    Args:
        ledger: of the run.
        on: its devices.
        plan: how they share the model; None: perfectly.
        lengths: N, of a generation that of its prompt; and its new tokens, otherwise 1.
        times: the bound without communication, and the whole one, seconds.
        offloaded: do blocks stay on the host?
    """
    (prompt, new_tokens), (bound_seconds, least_seconds) = lengths, times
    asked = RunFeatures(
        phase=ledger.metadata.mode,
        devices=on.count,
        generation=on.device.generation or "",
        bits=_stored_bits(ledger),
        batch=ledger.metadata.batch,
        tokens=prompt,
        pass_seconds=bound_seconds / new_tokens,
    )
    if why_none := _unlike_all(ledger, on, plan, offloaded=offloaded) or _too_short(asked):
        return Evidence(runs=(), why_none=why_none, bound_seconds=bound_seconds, least_seconds=least_seconds)
    return published_runs().evidence(asked, bound_seconds, least_seconds)


def _too_short(asked: RunFeatures) -> str | None:
    """That no published pass has so short a bound."""
    shortest = published_runs().shortest(asked)
    if asked.pass_seconds >= shortest:
        return None
    of_published = f"that of published runs is {seconds_text(shortest)} or more"
    return f"with a bound of {seconds_text(asked.pass_seconds)}: {of_published}"


def _unlike_all(ledger: Ledger, on: DeviceGroup, plan: Parallelism | None, *, offloaded: bool) -> str | None:
    """What no published run has: they are of decoders with a KV cache, whose layers all devices divide."""
    cache = ledger.cache
    divided = plan is None or (plan.pipeline, plan.expert, plan.replicas(on.count)) == (1, 1, 1)
    reasons = {
        "of a forward pass": ledger.metadata.mode not in ("prefill", "decode", "generate"),
        "with recurrent states": not ledger.metadata.attends or (cache is not None and cache.recurrent_bytes > 0),
        "with cross-attention": cache is not None and cache.cross_attention_bytes > 0,
        "with blocks on the host": offloaded,
        "with pipeline stages, replicas or experts on some devices": not divided,
        f"on more than {_MOST_DEVICES} devices": on.count > _MOST_DEVICES,
    }
    return next((words for words, is_so in reasons.items() if is_so), None) or unlike_devices(on)


def unlike_devices(on: DeviceGroup) -> str | None:
    """Why no published run is on such devices: their shares are of datasheets of GPUs."""
    if on.device.calibrated is not None:
        return "with the measured rates of a calibrated machine"
    return None if on.device.generation else f"on {on.device.title}, of which no generation of GPUs is known"


def _stored_bits(ledger: Ledger) -> float:
    """Bits of a stored weight, scales included."""
    params = ledger.total("params")
    return 8 * (ledger.held_bytes / params if params else BYTES_PER_ELEMENT[ledger.metadata.dtype])
