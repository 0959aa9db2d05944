"""Ledger -> plain dicts of raw numbers: the rows of the CSV, the object of `--format json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from xfcost.ledger.accounts import DISPATCHED, LEARNING, TRACED, TRAFFIC
from xfcost.ledger.operation import COUNTED
from xfcost.ledger.probe import Mixes, ProbedRow
from xfcost.ledger.visible import json_visible

if TYPE_CHECKING:
    from xfcost.ledger.ledger import Ledger

View = Literal["operation", "block", "stage", "mixing"]
"""What rows can be grouped by."""

_FIELDS: Final = (
    "path", "operation", "title", "mixing", "content_dependent", "reads", "reads_tokens", "order", "stage", "block",
    "times", "params", "active_params", "bound", "macs", "flops", "attention_entries",
    "matrix_entries", "matrix_statistics", "matrices_alive", "matrix_kept", "comparisons", "moved",
    "cached", "cached_per_token", "read", *TRAFFIC, "heads", "pairs", "shared", *TRACED, *DISPATCHED, "seconds",
)  # fmt: skip
# Of the metadata: how the spec is run, and what follows for its mixers.
_RUN: Final = (
    "batch", "dtype", "attention", "mode", "logits", "memory_level", "sequential_steps", "parallel_width",
)  # fmt: skip


def records(ledger: Ledger) -> list[dict[str, Any]]:
    """One plain dict per row, in the order of the CSV's columns; with a probe, its results too."""
    rows = _operations(ledger)
    if ledger.probe is not None:
        probed = {row.path: row for row in ledger.probe.rows}
        rows = [row | _probed_columns(probed[row["path"]]) for row in rows]
    return rows


def _operations(ledger: Ledger) -> list[dict[str, Any]]:
    fields = _FIELDS if ledger.training is None else (*_FIELDS, *LEARNING, "backward_saved")
    return [{field: row.figure(field) for field in fields} for row in ledger.rows]


def _probed_columns(row: ProbedRow) -> dict[str, Any]:
    found = msgspec.to_builtins(row.found) or dict.fromkeys(Mixes.__struct_fields__)
    columns = {f"probed_{name}": value for name, value in found.items()}
    return columns | {"probed_agrees": row.agrees, "not_probed": row.reason}


def probe_object(ledger: Ledger) -> dict[str, Any]:
    """The key `probe`, with `--probe`."""
    if ledger.probe is None:
        return {}
    rows = [msgspec.to_builtins(row) | {"agrees": row.agrees} for row in ledger.probe.rows]
    return {"probe": {"exact": ledger.probe.exact, "sizes": ledger.probe.sizes, "rows": rows}}


def grouped(ledger: Ledger, by: View) -> list[dict[str, Any]]:
    """One plain dict per group, with its totals over all blocks; by mixing always all three kinds."""
    result = []
    quantities = (*COUNTED, "active_params", *TRACED, *DISPATCHED, *(LEARNING if ledger.training else ()))
    for name, rows in ledger.by(by).items():
        part = ledger.part(rows)
        result.append({by: name} | {quantity: part.total(quantity) for quantity in quantities})
    return result


def ledger_object(ledger: Ledger) -> dict[str, Any]:
    """The object of `analyze --format json`."""
    metadata = ledger.metadata
    return {
        "name": metadata.name,
        "spec": metadata.source,
        "paper": metadata.paper,
        "tokens": metadata.grid_tokens,
        "extra_tokens": metadata.extra_tokens,
        "grid": metadata.tokens,
        "image": None if metadata.image is None else list(metadata.image),
        "streams": [dict(stream) for stream in metadata.streams],
        "settings": list(metadata.settings),
        **{name: getattr(metadata, name) for name in _RUN},
        "totals": ledger.totals(),
        "attention_memory": ledger.attention_memory(),
        "by_stage": ledger.by_stage(),
        "by_mixing": {group.pop("mixing"): group for group in grouped(ledger, "mixing")},
        "operations": _operations(ledger),
        "agreement": msgspec.to_builtins(ledger.agreement),
        "published": ledger.published_beside_ours(),
        "published_left_out": metadata.published_left_out,
        "timing": msgspec.to_builtins(ledger.timing),
        **mode_objects(ledger),
        "training": training_object(ledger),
        **probe_object(ledger),
        "notes": list(metadata.notes),
        "versions": metadata.versions,
    }


def mode_objects(ledger: Ledger) -> dict[str, Any]:
    """The keys `cache`, `step` and `generation`; null in other modes."""
    step, generation = ledger.step, ledger.generation
    derived = {"bytes_read": step.bytes_read, "intensity": step.intensity} if step else {}
    with_cache = {"with_cache": msgspec.to_builtins(generation.with_cache)} if generation else {}
    return {
        "cache": msgspec.to_builtins(ledger.cache),
        "step": msgspec.to_builtins(step) | derived if step else None,
        "generation": msgspec.to_builtins(generation) | with_cache if generation else None,
    }


def training_object(ledger: Ledger) -> dict[str, Any] | None:
    """The key `training`; None in other modes."""
    if ledger.training is None:
        return None
    step, run = ledger.training.step, ledger.training.run
    step_object = msgspec.to_builtins(step) | {"fixed_bytes": step.fixed_bytes, "total_bytes": step.total_bytes}
    if run is None:
        return {"step": step_object, "run": None}
    days = {"seconds": run.seconds, "days": run.days, "device_days": run.device_days}
    return {"step": step_object, "run": msgspec.to_builtins(run) | days}


def json_text(value: Any) -> str:
    """JSON as every command prints it: indented, in Unicode, with a final newline."""
    import json

    return json_visible(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"
