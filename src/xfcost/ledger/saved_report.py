"""The report of `xfcost analyze --format json`, read back: what two runs are compared by.

A ledger and a saved file both become a `Report`, so that one comparison serves both.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.metadata import Timing
from xfcost.ledger.objects import ledger_object
from xfcost.ledger.prediction import Prediction
from xfcost.ledger.units import BYTES_PER_ELEMENT

Count = Annotated[int, msgspec.Meta(ge=0)]
_NO_REPORT: Final = "is no report of `xfcost analyze --format json -o FILE`"
# Other JSON of xfcost: a key that it alone has -> the command that wrote it.
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

    def attention_bytes(self, element: int) -> int:
        """Bytes of its attention matrices in all blocks, as training keeps them; `element` is the size of the dtype."""
        matrix = Matrix(0, 0, self.matrix_kept, self.matrix_statistics)
        return matrix.kept_bytes(element) * self.times


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one system: the input, the run, the totals and the operations."""

    name: str
    tokens: Count | None
    grid: str
    batch: int
    dtype: str
    attention: str
    mode: str
    totals: dict[str, Any]
    operations: tuple[ReportOperation, ...]
    image: tuple[int, ...] | None = None
    logits: str | None = None
    memory_level: int | None = None
    settings: tuple[str, ...] = ()
    timing: Timing | None = None
    prediction: Prediction | None = None
    cache: dict[str, Any] | None = None
    generation: dict[str, Any] | None = None
    training: dict[str, Any] | None = None
    module: dict[str, Any] | None = None
    versions: dict[str, str] = {}

    @property
    def element(self) -> int:
        """Bytes of one element."""
        return BYTES_PER_ELEMENT[self.dtype]

    @property
    def uncounted(self) -> dict[str, int]:
        """Operations of a module that no formula knows, and how often they ran; totals are lower bounds."""
        return dict((self.module or {}).get("uncounted") or {})


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
    except msgspec.DecodeError as error:
        raise UsageError(f"{name}: {_NO_REPORT}: it is cut, or no JSON ({printable(str(error), 120)})") from None
    if not isinstance(fields, dict) or not {"operations", "totals"} <= fields.keys() or _OTHERS.keys() & fields.keys():
        raise UsageError(f"{name}: {_NO_REPORT}{_other(fields)}")
    try:
        report = msgspec.convert(fields, Report)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {_NO_REPORT}: {printable(str(error), 120)}") from None
    if report.dtype not in BYTES_PER_ELEMENT:
        raise UsageError(f"{name}: {_NO_REPORT}: there is no dtype {printable(report.dtype)}")
    return report


def _other(fields: Any) -> str:
    """Whose JSON it may be."""
    known = [command for key, command in _OTHERS.items() if isinstance(fields, dict) and key in fields]
    return f", but of `xfcost {known[0]}`" if known else "; it has no operations, and may be of another tool"
