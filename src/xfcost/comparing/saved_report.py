"""The report of `xfcost analyze --format json`, read back: what two runs are compared by.

A ledger and a saved file both become a `Report`, so that one comparison serves both. Its parts are read by the structs
that wrote them, where they have one.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from xfcost.ledger import notebook
from xfcost.ledger.errors import UsageError, printable, validation_text
from xfcost.ledger.files import fault_of_numbers
from xfcost.ledger.json_objects import ledger_object
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.lora import Lora
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.measurements import fault_of_timing
from xfcost.ledger.metadata import Timing
from xfcost.ledger.modes import CacheBytes, CachedPrefix, Generation
from xfcost.ledger.ran import NOTHING_RAN, ModuleRun
from xfcost.ledger.units import BYTES_PER_ELEMENT, Count, number_of
from xfcost.parts.prediction.result import Prediction
from xfcost.parts.serving.result import MemoryNeed
from xfcost.parts.training.result import DeviceMemory, TrainingStep

Seconds = Annotated[float, msgspec.Meta(ge=0)]
_NO_REPORT: Final = "is not a report of `xfcost analyze --format json -o FILE`"
# Other JSON of xfcost: a key that only it has -> the command that wrote it.
_OTHERS: Final = {"systems": "compare", "rows": "measure", "targets": "check", "before": "diff", "asked": "find"}


class ReportOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a report; figures are for one block, `times` is the number of blocks."""

    path: str
    title: str
    mixing: str
    stage: str
    block: str
    times: Annotated[int, msgspec.Meta(ge=1)]
    params: Count
    macs: Count
    flops: Count
    reads: str | None = None
    active_params: Count = 0
    comparisons: Count = 0
    moved: Count = 0
    cached: Count = 0
    matrix_kept: Count = 0
    matrix_statistics: Count = 0
    backward_macs: Count | None = None
    backward_saved: Count = 0
    kept_bytes: Count | None = None
    """Saved activations of all its blocks."""
    seconds: float | None = None
    predicted_seconds: float | None = None
    aten: str | None = None
    """Of a module, the operator that ran."""

    def attention_bytes(self, element: int) -> int:
        """Bytes of its attention matrices in all blocks, as training keeps them; `element` is the size of the dtype."""
        matrix = Matrix(0, 0, self.matrix_kept, self.matrix_statistics)
        return matrix.kept_bytes(element) * self.times


class ReportTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals that are compared; None of what a run does not have."""

    params: Count | None = None
    active_params: Count | None = None
    macs: Count | None = None
    flops: Count | None = None
    held_bytes: Count | None = None
    """Of the weights in inference."""
    attention_bytes: Count | None = None
    attention_peak_bytes: Count | None = None
    backward_macs: Count | None = None
    kept_bytes: Count | None = None


class ReportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A training step on devices."""

    device: str
    devices: Count
    memory: DeviceMemory
    bound_step_seconds: Seconds
    shortage: str | None = None
    """By how much it does not fit."""
    remedies: tuple[str, ...] = ()
    """Options with which, together, it would."""


class ReportTraining(msgspec.Struct, frozen=True, kw_only=True):
    """Training."""

    step: TrainingStep | None = None
    plan: ReportPlan | None = None


class ReportOnDevices(msgspec.Struct, frozen=True, kw_only=True):
    """A run on devices, with its lower bound."""

    device: str
    count: Count
    least_seconds: Seconds | None
    outputs: Count | None
    """New tokens of a decode step or a generation, tokens of a prompt, samples of a forward; None where not known."""
    no_time: str | None = None
    """Why it takes none."""
    memory: MemoryNeed


class ReportCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The tensors of a checkpoint, as stored."""

    bytes: Count
    other_bytes: dict[str, Count]
    """Why they belong to no operation -> those bytes."""
    dtypes: dict[str, Count]
    """Type -> the bytes of its tensors."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one system: the input, the run, the totals and the operations."""

    name: str
    spec: str = ""
    """What was analyzed, as it was named."""
    tokens: Count | None
    grid: str
    batch: int
    dtype: str
    attention: str
    mode: str
    totals: ReportTotals
    operations: tuple[ReportOperation, ...]
    image: tuple[int, ...] | None = None
    logits: str | None = None
    memory_level: int | None = None
    lora: Lora | None = None
    settings: tuple[str, ...] = ()
    timing: Timing | None = None
    prediction: Prediction | None = None
    cache: CacheBytes | None = None
    generation: Generation | None = None
    cached_prefix: CachedPrefix | None = None
    training: ReportTraining | None = None
    module: ModuleRun = NOTHING_RAN
    on: ReportOnDevices | None = None
    checkpoint: ReportCheckpoint | None = None
    versions: dict[str, str] = {}

    def __repr__(self) -> str:
        return notebook.line(self, f"{self.name}: {number_of(len(self.operations), 'operation')}")

    @property
    def element(self) -> int:
        """Bytes of one element."""
        return BYTES_PER_ELEMENT[self.dtype]


def report_of(ledger: Ledger) -> Report:
    """The report of a ledger."""
    return msgspec.convert(ledger_object(ledger), Report)


def read_report(text: str, name: str) -> Report:
    """The report in a file called `name`.

    Raises:
        UsageError: it is cut, no JSON, or JSON of something else.
    """
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{name}: {_NO_REPORT}: it is cut, or no JSON ({validation_text(error)})") from None
    if not isinstance(fields, dict) or not {"operations", "totals"} <= fields.keys() or _OTHERS.keys() & fields.keys():
        known = [command for key, command in _OTHERS.items() if isinstance(fields, dict) and key in fields]
        other = f", but of `xfcost {known[0]}`" if known else "; it has no operations, and may be of another tool"
        raise UsageError(f"{name}: {_NO_REPORT}{other}")
    try:
        report = msgspec.convert(fields, Report, str_keys=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {_NO_REPORT}: {validation_text(error)}") from None
    fault = fault_of_numbers(fields) or fault_of_timing(report.timing)
    if report.dtype not in BYTES_PER_ELEMENT:
        fault = f"there is no dtype {printable(report.dtype)}"
    if fault is not None:
        raise UsageError(f"{name}: {_NO_REPORT}: {fault}")
    return report
