"""The survey's table: each system as printed, and as derived from its spec at two lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from xfcost.counting.forward import count
from xfcost.counting.measured.ratios import Ratio
from xfcost.counting.survey.decoding import Decoding, decoding
from xfcost.counting.survey.orders import derived_order, growth, mixing_parts, with_keys
from xfcost.formulas.component import tag_of
from xfcost.ledger import notebook
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import MIXINGS, Mixing, Operation
from xfcost.ledger.units import number_of
from xfcost.spec.load import Loaded, load, presets_with
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.spec.survey import SurveyEntry

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
    """Measured time over full attention's, at the largest N that both were timed at."""

    @property
    def agrees(self) -> Literal["yes", "otherwise", "no"] | None:
        """Does the derived order grow with N as the printed one, as it stands or otherwise? None without a print."""
        if self.entry.complexity is None:
            return None
        printed = growth(self.entry.complexity)
        if printed == growth(self.derived):
            return "yes"
        return "otherwise" if self.otherwise is not None and printed == growth(self.otherwise) else "no"


class Survey(NamedTuple):
    """The lines of the table, and how their times were measured."""

    lines: list[SurveyLine]
    run: Run
    timed: str | None = None

    def __repr__(self) -> str:
        return notebook.line(self, number_of(len(self.lines), "system"))

    def _repr_html_(self) -> str | None:
        """The tables that a notebook shows."""
        return notebook.html(self)


def survey(run: Run, settings: Sequence[str] = (), time: TimeRatio = lambda preset: None) -> list[SurveyLine]:
    """The lines of all presets that have one, full attention first, then class by class.

    Raises:
        XfcostError: one of `settings`, as after `--set`, fits not every system.
    """
    loaded = [load(name, settings) for name in presets_with("survey")]
    full = _at_both(load(FULL_ATTENTION, settings), run)
    lines = [_line(one, one.spec.survey, full, run, time) for one in loaded if one.spec.survey is not None]
    return sorted(lines, key=_rank)


def _rank(line: SurveyLine) -> tuple[bool, int, str]:
    """Full attention, then class by class as the survey's text has them."""
    order = ("FP", "CP", "LP", "M", "LR", "KR", "RC", "DS", "Sparse")
    first = order.index(line.entry.classes[0]) if line.entry.classes else -1
    return line.preset != FULL_ATTENTION, first, line.preset


def _at_both(loaded: Loaded, run: Run) -> dict[int, Ledger]:
    return {n: count(place(loaded, run._replace(tokens=(n,))), orders=False) for n in (SHORT, LONG)}


def _line(loaded: Loaded, entry: SurveyEntry, full: dict[int, Ledger], run: Run, time: TimeRatio) -> SurveyLine:
    ledgers = _at_both(loaded, run)
    short, long = (place(loaded, run._replace(tokens=(n,))) for n in (SHORT, LONG))
    parts = mixing_parts(short, long)
    rows = _mixing_rows(ledgers[SHORT])
    content = {row.content_dependent for row in rows}
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
        added_params={n: _params(ledger) - _params(full[n]) for n, ledger in ledgers.items()},
        time=time(loaded.name),
    )


def _mixing_rows(ledger: Ledger) -> Sequence[Operation]:
    """The operations that mix tokens by MACs."""
    return [row for row in ledger.rows if row.mixes and row.macs]


def _params(ledger: Ledger) -> int:
    return ledger.total("params") or 0


def explanations(lines: Sequence[SurveyLine]) -> Iterator[tuple[str, str]]:
    """System and text: why the order is what it is, and why it does not decode as the survey prints."""
    for line in lines:
        yield line.entry.system, " ".join([line.entry.note, *_decoding_text(line)])


def _decoding_text(line: SurveyLine) -> Iterator[str]:
    """Why a system decodes otherwise than the survey prints; nothing where it agrees."""
    found = line.decoding
    reason = (found.reason or "").partition(";")[0].partition("has no causal form: ")
    why = reason[2] or reason[0]
    if line.entry.decodes and found.answer == "no":
        yield f"The survey prints that it decodes; this form can't: {why}."
    if line.entry.decodes and found.answer == "approximate":
        yield f"It decodes approximately: {why}."


__all__ = ["FULL_ATTENTION", "LONG", "SHORT", "Survey", "SurveyLine", "TimeRatio", "explanations", "survey"]
