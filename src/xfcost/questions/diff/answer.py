"""`xfcost.diff`: what changed between two specs, modules, saved runs or revisions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from xfcost.api.analysis import analyze
from xfcost.api.options import InputOptions, ProgressOption, RunOptions, SettingsOption, takes
from xfcost.api.revisions import at_revision, checked_out, code_report, revised
from xfcost.api.runs import refuse
from xfcost.api.systems import is_module, module_texts, settings_texts, spec_name
from xfcost.comparing.differences import Diff, difference, other_runs
from xfcost.comparing.saved_report import Report, read_report, report_of
from xfcost.ledger.errors import SpecError, UsageError, XfcostError, printable
from xfcost.ledger.files import Expected
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.measurements import Measurement
from xfcost.ledger.option_readers import one_of
from xfcost.ledger.runs_file import read_runs
from xfcost.parts.prediction.options import PredictOption
from xfcost.questions.diff.measured import RunsDiff, runs_difference
from xfcost.spec.reader import read_file
from xfcost.spec.targets import SHAPE, SUPPOSED

if TYPE_CHECKING:
    from typing_extensions import Unpack

Sort = Literal["macs", "flops", "params", "attention_bytes", "cache_bytes", "seconds", "predicted_seconds"]
SORTS: Final = get_args(Sort)

_SAVED: Final = Expected(
    what="a report of `xfcost analyze --format json`, or a config.json of transformers",
    missing="`xfcost analyze SPEC -o report.json` writes one",
    large="it is not a report of xfcost",
    most_bytes=200_000_000,
)


class Side(NamedTuple):
    """One of the two: its report, or the rows of a file of measurements."""

    label: str
    report: Report | None = None
    rows: Sequence[Measurement] | None = None
    saved: bool = False
    """Is its run the one of a file, and not the one that the options ask for?"""
    supposed: bool = False
    """Is its input, of a module, taken from its first layer?"""


class DiffOptions(RunOptions, InputOptions, SettingsOption, PredictOption, ProgressOption, total=False):
    """The keywords of `diff`."""


@takes(DiffOptions)
def diff(
    before: str | os.PathLike[str] | Ledger,
    after: str | os.PathLike[str] | Ledger,
    *,
    sort: Sort = "macs",
    **options: Unpack[DiffOptions],
) -> Diff | RunsDiff:
    """What changed from `before` to `after`, operation by operation, sorted by what it costs.

    Args:
        before: a preset, a path to a YAML file, a named torch module (`model.py:Net`) or a config.json; any of these
            files at a git revision (`HEAD~1:spec.yaml`, `main:model.py:Net`); a report that `analyze` saved as JSON; a
            file of measurements (`measure --save runs.jsonl`); or a ledger of `analyze`.
        after: the same.
        sort: the quantity by which changes are sorted.
        **options: as for `analyze`; the same for both. Those of times and devices are refused.

    Returns:
        A Diff; of two files of measurements a RunsDiff, row by row.

    Raises:
        XfcostError: bad input: no such file, revision or repository, or runs that are not comparable.
    """
    one_of(SORTS)("--sort", sort)
    refuse("diff", options)
    both = (before, after)
    with ExitStack() as stack:
        first, second = (opened(one, place, both, options, stack) for place, one in enumerate(both, 1))
        if shape := _shape_of_other(first, second, options):
            number = 1 if first.supposed else 2
            with suppress(XfcostError):  # it does not run on that, and keeps its own
                again = opened(both[number - 1], number, both, {**options, "inputs": [f"{number}:{shape}"]}, stack)
                first, second = (again, second) if number == 1 else (first, again)
    if first.saved and second.saved:
        refuse("saved runs", options)
    labels = (first.label, second.label)
    if first.rows is not None and second.rows is not None:
        return runs_difference(first.rows, second.rows, labels)
    for one, other in ((first, second), (second, first)):
        if one.rows is not None:
            raise UsageError(
                f"{one.label}: has measurements without operations, and {other.label} does not; compare two files of "
                "`xfcost measure --save`, or two specs or reports"
            )
    if first.report is None or second.report is None:
        raise UsageError("diff: expected two runs")
    return difference(first.report, second.report, labels, first=sort, notes=_checked(first, second))


def _shape_of_other(first: Side, second: Side, options: Mapping[str, Any]) -> str | None:
    """The shape of the only input of one side, as after `--input`, where that of the other is supposed."""
    if first.supposed == second.supposed or any(options.get(name) for name in ("inputs", "N", "size")):
        return None
    other = second.report if first.supposed else first.report
    if other is None or len(other.module.inputs) != 1:
        return None
    sides, _, dtype = other.module.inputs[0].rpartition(": ")[2].partition(" ")
    shape = sides.replace("×", "x")
    return (shape if dtype == "float32" else f"{shape}:{dtype}") if SHAPE.match(shape) else None


def _checked(first: Side, second: Side) -> tuple[str, ...]:
    """The lines about runs that differ.

    Raises:
        UsageError: one of them is saved, so that its run is not the one that was asked for.
    """
    if first.report is None or second.report is None:
        return ()
    differing = other_runs(first.report, second.report)
    if differing and (first.saved or second.saved):
        saved = first if first.saved else second
        again = "analyze one of them again" if first.saved and second.saved else f"give the options of {saved.label}"
        raise UsageError(
            f"{first.label} and {second.label} are not comparable: {'; '.join(differing)}; {again}, so that both are "
            "the same run"
        )
    return tuple(f"not the same run: {text}" for text in differing)


def opened(given: Any, place: int, both: Sequence[Any], options: Mapping[str, Any], stack: ExitStack) -> Side:
    """One of `both`, whatever it is, counted with `options`; what it needs is there until `stack` is closed.

    Raises:
        XfcostError: it can't be read or counted.
    """
    if isinstance(given, Ledger):
        return Side(given.metadata.name, report_of(given), saved=True)
    if is_module(given):
        raise UsageError("diff: a module has no inputs here; give its ledger: xfcost.analyze(module, example_inputs=…)")
    text, at = spec_name(given), revised(spec_name(given))
    there = None if at is None else stack.enter_context(checked_out(at))
    # the arguments of `analyze`; in a child's process they are JSON
    arguments = {name: value for name, value in options.items() if name not in ("inputs", "build", "progress")}
    arguments |= {"settings": list(settings_texts(options.get("settings"))), "trace": False}
    arguments |= module_texts([_named(one) for one in both], options)[place - 1]
    if at is None or there is None:
        return _of_file(text, text, arguments)
    if at.is_code:
        if (progress := options.get("progress")) is not None:
            progress(f"counting {printable(at.text, 80)} in a process of its own …")
        return Side(text, code_report(there, at, arguments))
    try:
        return _of_file(there.place, text, arguments)
    except SpecError as error:
        raise SpecError(at_revision(str(error), there, at)) from None
    except UsageError as error:
        raise UsageError(at_revision(str(error), there, at)) from None


def _named(given: Any) -> str | None:
    """A target without its revision."""
    if not isinstance(given, str):
        return None
    at = revised(given)
    return given if at is None else at.target


def _of_file(place: str, label: str, arguments: dict[str, Any]) -> Side:
    """A preset, a spec, a module, a config, or what a file holds."""
    if place.endswith(".jsonl"):
        return Side(label, rows=read_runs(Path(place)).rows, saved=True)
    if place.endswith(".json"):
        text = read_file(Path(place), printable(place, 200), _SAVED)
        if '"model_type"' not in text or '"operations"' in text:
            return Side(label, read_report(text, printable(place, 200)), saved=True)
    ledger = analyze(place, **({"mixing": False} | arguments))
    supposed = any(note.startswith(SUPPOSED) for note in ledger.metadata.notes)
    return Side(label, report_of(ledger), supposed=supposed)
