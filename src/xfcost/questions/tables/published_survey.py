"""The systems of the survey of efficient attention: each as published, and as derived from its spec at two lengths.

The order is that of all MACs of the components that mix tokens, without their projections, in letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isqrt
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.comparing.measured import Ratio, ratios
from xfcost.comparing.measured_series import METRICS, Series, grouped, identity, shared_words
from xfcost.comparing.sweep import TOKENS
from xfcost.counting.forward import count
from xfcost.formulas.component import Component, ComponentError, Mixer, Place, tag_of
from xfcost.formulas.letters import form_of, grid_in_letters, lettered
from xfcost.ledger import notebook, units
from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.operation import MIXINGS, Mixing, Operation
from xfcost.ledger.units import number_of
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Architecture, Part
from xfcost.spec.grammar import ROOT_OF_TOKENS, MechanismKeys, SurveyEntry
from xfcost.spec.load import Loaded, load, presets_with
from xfcost.spec.placement import place
from xfcost.spec.run import Run

# Of log N, between no growth and any power.
_LOG: Final = 0.01


class MixingPart(NamedTuple):
    """A component that mixes tokens, at its place."""

    component: Component
    place: Place
    grows: bool
    """Do its tokens grow with N? Latents do not."""


def mixing_parts(small: Architecture, large: Architecture) -> list[MixingPart]:
    """The components of an architecture that mix tokens, repeated ones once, at the smaller of two sizes."""
    pairs = zip(_mixing(small), _mixing(large), strict=True)
    return [
        MixingPart(part.component, part.place, part.place.grid.total != longer.place.grid.total)
        for part, longer in pairs
    ]


def _mixing(architecture: Architecture) -> Iterator[Part]:
    for labelled in architecture.parts():
        part = labelled.part
        if any(row.mixes for row in component_rows(part.component, part.place)):
            yield part


def derived_order(parts: list[MixingPart]) -> str:
    """O(…) of their MACs, with the numbers of their keys as letters."""
    return form_of(sum(row.macs for part in parts for row in _beside_projections(part))).order()


def with_keys(parts: list[MixingPart], keys: MechanismKeys) -> list[MixingPart]:
    """The parts with other values of the mechanism's keys, in every mixer that has them.

    Raises:
        UsageError: no mixer has them.
    """
    changed = [_with_keys(part, keys) for part in parts]
    if keys and all(new is old for new, old in zip(changed, parts, strict=True)):
        raise UsageError(f"survey: expected keys of one of its mechanisms, got {', '.join(keys)}")
    return changed


def growth(order: str) -> float:
    """The exponent of N in an order, printed or derived: 1.5 of `O(N√N·d)`; log N is a little above 0.

    As published, N_c is a compressed length, which grows with N; N_g global tokens, which do not; n is N too.
    """
    plain = order.replace("N_c", "N").replace("N_g", "g").replace("O(n", "O(N")
    powers = {"N²": 2.0, "N√N": 1.5, "N log N": 1 + _LOG, "N": 1.0}
    terms = plain.removeprefix("O(").removesuffix(")").split(" + ")
    return max(next((power for text, power in powers.items() if text in term), 0.0) for term in terms)


def _beside_projections(part: MixingPart) -> Iterator[Operation]:
    """The rows in letters, without those that have parameters and mix no tokens."""
    component, place = part.component.in_letters(part.place)
    if not part.grows:
        place = msgspec.structs.replace(place, grid=grid_in_letters(part.place.grid, "k"))
    return (row for row in component_rows(component, place) if row.mixes or not row.params)


def _with_keys(part: MixingPart, keys: MechanismKeys) -> MixingPart:
    root = lettered(isqrt(part.place.grid.total), "N", root=2)
    given: dict[str, Any] = {key: root if value == ROOT_OF_TOKENS else value for key, value in keys.items()}
    if not isinstance(part.component, Mixer) or not given.keys() <= set(part.component.__struct_fields__):
        return part
    return part._replace(component=msgspec.structs.replace(part.component, **given))


Answer = Literal["cached", "uncached", "approximate", "no"]

# From the most that a system can do to the least.
ANSWERS: Final[tuple[Answer, ...]] = ("cached", "uncached", "approximate", "no")


class Decoding(NamedTuple):
    """Whether a system decodes, and why it does not, or how."""

    answer: Answer
    reason: str | None = None


def decoding(parts: Iterable[MixingPart]) -> Decoding:
    """The least that any of the mixers can do: exactly causal and cached, uncached, approximate, not at all."""
    found = [_of_one(part.component, part.place) for part in parts]
    return max(found, key=lambda one: ANSWERS.index(one.answer))


def _of_one(component: Component, place: Place) -> Decoding:
    if not isinstance(component, Mixer):
        return Decoding("no", f"{tag_of(type(component)).replace('_', ' ')} reads all tokens, later ones too")
    refused: str | None = None
    forms = [component]  # exactly causal and approximately causal, as far as its keys can say so
    if "causal" in component.__struct_fields__:
        forms = [msgspec.structs.replace(component, causal=value) for value in (True, "approximate")]
    for causal in forms:
        if causal.causality == "none":
            continue
        try:
            causal.check(place)
        except ComponentError as error:
            refused = refused or str(error)
            continue
        if causal.causality == "approximate":
            return Decoding("approximate", getattr(causal, "leak", None))
        try:
            causal.check_decodes(place)
        except ComponentError as error:
            return Decoding("uncached", str(error))
        return Decoding("cached")
    return Decoding("no", refused or "a token reads later tokens")


SHORT: Final = 4096
LONG: Final = 65536
# The encoder of the common family whose mixer is full attention: parameters and times are compared with it.
FULL_ATTENTION: Final = "common-full"

TimeRatio = Callable[[str], Ratio | None]


class SurveyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A system: what the survey prints, and what xfcost derives."""

    preset: str
    entry: SurveyEntry
    kinds: tuple[str, ...]
    """Kinds of the components that mix tokens."""
    derived: str
    otherwise: str | None
    """The order under the entry's other keys."""
    decoding: Decoding
    mixing: tuple[Mixing, ...]
    reads: tuple[str, ...]
    """Tokens read per token, of every mixing operation with MACs."""
    content_dependent: bool | None
    """Are the weights of its mixing computed from the input? None where some are and some are learned and fixed."""
    attention_bytes: dict[int, int]
    """N -> bytes of attention matrices that are alive at once."""
    added_params: dict[int, int]
    """N -> parameters beyond those of the same encoder with full attention."""
    time: Ratio | None = None
    """Measured time relative to full attention, at the largest N that both were timed at."""

    @property
    def agrees(self) -> Literal["yes", "otherwise", "no"] | None:
        """Does the derived order grow with N as the published one, with these or other keys? None: none published."""
        if self.entry.complexity is None:
            return None
        printed = growth(self.entry.complexity)
        if printed == growth(self.derived):
            return "yes"
        return "otherwise" if self.otherwise is not None and printed == growth(self.otherwise) else "no"


class Survey(notebook.Reported, msgspec.Struct, frozen=True):
    """The lines of the table, and how their times were measured."""

    lines: list[SurveyLine]
    run: Run
    timed: str | None = None

    def __repr__(self) -> str:
        return notebook.line(self, number_of(len(self.lines), "system"))


def survey_lines(run: Run, settings: Sequence[str] = (), time: TimeRatio = lambda preset: None) -> list[SurveyLine]:
    """The lines of all presets that have one, full attention first, then class by class.

    Raises:
        XfcostError: one of `settings`, as after `--set`, fits not every system, or leaves it without its line.
    """
    loaded = [load(name, settings) for name in presets_with("survey")]
    full = _at_both(load(FULL_ATTENTION, settings), run)
    lines = [_line(one, one.spec.survey, full, run, time) for one in loaded if one.spec.survey is not None]
    if len(lines) < len(loaded):
        raise UsageError("--set survey=null: every system needs its line of the survey; leave the setting out")
    order = ("FP", "CP", "LP", "M", "LR", "KR", "RC", "DS", "Sparse")  # as the survey's text has them

    def rank(line: SurveyLine) -> tuple[bool, int, str]:
        first = order.index(line.entry.classes[0]) if line.entry.classes else -1
        return line.preset != FULL_ATTENTION, first, line.preset

    return sorted(lines, key=rank)


def _at_both(loaded: Loaded, run: Run) -> dict[int, Ledger]:
    return {n: count(place(loaded, run._replace(tokens=(n,))), orders=False) for n in (SHORT, LONG)}


def _line(loaded: Loaded, entry: SurveyEntry, full: dict[int, Ledger], run: Run, time: TimeRatio) -> SurveyLine:
    ledgers = _at_both(loaded, run)
    short, long = (place(loaded, run._replace(tokens=(n,))) for n in (SHORT, LONG))
    parts = mixing_parts(short, long)
    rows = [row for row in ledgers[SHORT].rows if row.mixes and row.macs]
    content = {row.content_dependent for row in rows}
    params = {n: (ledger.total("params") or 0) - (full[n].total("params") or 0) for n, ledger in ledgers.items()}
    return SurveyLine(
        preset=loaded.name,
        entry=entry,
        kinds=tuple(dict.fromkeys(tag_of(type(part.component)) for part in parts)),
        derived=derived_order(parts),
        otherwise=derived_order(with_keys(parts, entry.otherwise.keys)) if entry.otherwise else None,
        decoding=decoding(with_keys(parts, entry.decoder or {})),
        mixing=tuple(kind for kind in MIXINGS if any(row.mixing == kind for row in rows)),
        reads=tuple(dict.fromkeys(row.reads for row in rows if row.reads)),
        content_dependent=content.pop() if len(content) == 1 else None,
        attention_bytes={n: ledger.attention_memory()["peak"] for n, ledger in ledgers.items()},
        added_params=params,
        time=time(loaded.name),
    )


def explanations(lines: Sequence[SurveyLine]) -> Iterator[tuple[str, str]]:
    """System and text: the reason of the order, and why the system does not decode as published."""
    for line in lines:
        found, texts = line.decoding, [line.entry.note]
        reason = (found.reason or "").partition(";")[0].partition("has no causal form: ")
        why = reason[2] or reason[0]
        if line.entry.decodes and found.answer == "no":
            texts.append(f"According to the survey it decodes; this form can't: {why}.")
        if line.entry.decodes and found.answer == "approximate":
            texts.append(f"It decodes approximately: {why}.")
        yield line.entry.system, " ".join(texts)


def times_over_full(rows: Sequence[Measurement], file: str) -> tuple[TimeRatio, str]:
    """Preset -> its ratio at the largest N of both; and how the times were measured.

    Raises:
        UsageError: the file has no row of full attention, or rows of several runs of it.
    """
    series = [one for one in grouped(rows, TOKENS).series if one.rows]
    full = _full(series, file)
    beside = full.configuration

    def ratio(preset: str) -> Ratio | None:
        """Of the series of this preset that were run as full attention was."""
        alike = (
            one
            for one in series
            if (one.configuration.target, one.configuration.settings) == (preset, beside.settings)
            and identity(one.row)[1:] == identity(full.row)[1:]
        )
        points = [point for one in alike for point in ratios(full, one, METRICS["time"])]
        return max(points, key=lambda point: point.x, default=None)

    words = [", ".join([*shared_words([full]), *beside.settings])]
    rows = [row for one in series for row in one.rows]
    if noisy := sum(row.outcome.timing is not None and row.outcome.timing.noisy is not None for row in rows):
        words.append(f"noisy: {noisy} of the file's {units.number_of(len(rows), 'row')}")
    return ratio, "; ".join(words)


def _full(series: Sequence[Series], file: str) -> Series:
    full = [one for one in series if one.configuration.target == FULL_ATTENTION]
    if not full:
        raise UsageError(
            f"--from {file}: has no measured row of {FULL_ATTENTION}, over whose time the others' are; "
            f"`xfcost measure {FULL_ATTENTION} common-performer --N 4096 --save {file}` writes one"
        )
    if len(full) > 1:
        names = printable(", ".join(one.name for one in full), 200)
        raise UsageError(
            f"--from {file}: has {len(full)} series of {FULL_ATTENTION} ({names}); expected one way to "
            "run it: measure the others into a file of their own"
        )
    return full[0]
