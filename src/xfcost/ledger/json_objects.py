"""Ledger -> plain dicts of raw numbers: the rows of the CSV, the object of `--format json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from xfcost.ledger.accounts import DISPATCHED, LEARNING, RAN, TRACED, TRAFFIC
from xfcost.ledger.achieved import beside_rows, peak_of, rates, reached, row_rates, step_rates, whole_of_peak
from xfcost.ledger.least_work import RowBound, row_bound
from xfcost.ledger.model_flops import model_flops
from xfcost.ledger.operation import COUNTED, Operation
from xfcost.ledger.visible import json_visible

if TYPE_CHECKING:
    from xfcost.ledger.execution import Convention
    from xfcost.ledger.ledger import Ledger

AnyView = Literal["operation", "block", "stage", "mixing", "module"]
"""What rows can be grouped by, and the tree of modules."""
Sort = Literal["macs", "seconds", "params", "memory"]
"""What rows and groups can be sorted by."""

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
# Fields of a ledger: from which N on mixing costs more than something.
_OUTWEIGHS: Final = ("mixing_outweighs", "mixing_outweighs_feed_forward")


def records(ledger: Ledger) -> list[dict[str, Any]]:
    """One plain dict per row, in the order of the CSV's columns; with a probe, its results too.

    Of a timed run the seconds that no row accounts for are rows of their own at the end.
    """
    rows = _operations(ledger)
    if ledger.probe is not None and ledger.probe.detailed:
        probed = {row.path: row for row in ledger.probe.rows}
        rows = [row | probed[row["path"]].record() for row in rows]
    empty: dict[str, Any] = dict.fromkeys(rows[0]) if rows else {}
    beside = beside_rows(ledger).items()
    return rows + [empty | {"operation": name, "title": name, "times": 1} | spent for name, spent in beside]


def _operations(ledger: Ledger) -> list[dict[str, Any]]:
    fields = _FIELDS if ledger.training is None else (*_FIELDS, *LEARNING, "backward_saved")
    again = () if ledger.training is None else ("recomputed_macs",)
    fields = fields if ledger.metadata.inputs is None else (*fields, *RAN, *again)
    fields = fields if ledger.prediction is None else (*fields, "predicted_seconds")
    rows = [{field: row.figure(field) for field in fields} for row in ledger.rows]
    if ledger.on is not None:
        bounds = (row_bound(row, ledger) for row in ledger.rows)  # None where a row's bytes are not known
        no_time = {"least_seconds": None} if ledger.no_time else {}
        rows = [
            one | (dict.fromkeys(RowBound._fields) if bound is None else bound._asdict()) | no_time
            for one, bound in zip(rows, bounds, strict=True)
        ]
    if ledger.timing is None:
        return rows
    how: dict[str, Any] = {"trained": ledger.training is not None, "peak": peak_of(ledger)}
    return [one | row_rates(row, **how) for one, row in zip(rows, ledger.rows, strict=True)]


def grouped(ledger: Ledger, by: AnyView | Literal["path"], depth: int | None = None) -> list[dict[str, Any]]:
    """One plain dict per group, with its totals over all blocks; by mixing always all three kinds.

    By module every module down to `depth`, with the totals of everything inside it. Of a timed run every group has its
    seconds and rates, and the seconds that no row accounts for are groups of their own.
    """
    if by == "module":
        return module_tree(ledger, depth)
    result: list[dict[str, Any]] = []
    quantities = (*COUNTED, "active_params", *TRACED, *DISPATCHED, *(LEARNING if ledger.training else ()))
    for name, rows in ledger.by(by).items():
        part = ledger.part(rows)
        group: dict[str, Any] = {by: name} | {quantity: part.total(quantity) for quantity in quantities}
        if ledger.prediction is not None:
            group |= {"predicted_seconds": part.total("predicted_seconds")}
        result.append(group | _group_times(ledger, part.rows))
    return result + _beside(ledger, by, result)


def _beside(ledger: Ledger, by: str, groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups for the seconds that no row accounts for."""
    empty: dict[str, Any] = dict.fromkeys(groups[0]) if groups else {}
    return [empty | {by: name} | spent for name, spent in beside_rows(ledger).items()]


def module_tree(ledger: Ledger, depth: int | None = None) -> list[dict[str, Any]]:
    """One plain dict per module down to `depth`, each with the totals of everything inside it; the whole first.

    A module with nothing but one other in it has that one's depth: it is no level of its own.
    """
    levels = _levels(row.component for row in ledger.rows)
    result: list[dict[str, Any]] = []
    for path, level in levels.items():
        if depth is None or level <= depth:
            inside = (row for row in ledger.rows if not path or f"{row.component}.".startswith(f"{path}."))
            part = ledger.part(inside)
            quantities = (*COUNTED, "active_params", *TRACED, *(LEARNING if ledger.training else ()))
            totals: dict[str, Any] = {quantity: part.total(quantity) for quantity in quantities}
            result.append({"module": path, "depth": level} | totals | _group_times(ledger, part.rows))
    return result + [group | {"depth": 0} for group in _beside(ledger, "module", result)]


def module_levels(ledger: Ledger) -> int:
    """The levels of its tree of modules."""
    return max(_levels(row.component for row in ledger.rows).values())


def distinct_modules(tree: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A tree of modules without those that have nothing but the next one in them."""
    return [
        one
        for one, after in zip(tree, [*tree[1:], None], strict=True)
        if after is None or one["depth"] != after["depth"] or not after["module"].startswith(f"{one['module']}.")
    ]


def _levels(components: Iterable[str]) -> dict[str, int]:
    """Path of every module -> its level, in the order of the tree: the whole is 0."""
    own = dict.fromkeys(components)
    paths = {"": None} | {start: None for path in own for start in starts_of(path)}
    children = Counter(path.rpartition(".")[0] for path in paths if path)
    passed = {path for path in paths if path and path not in own and children[path] == 1}
    return {
        path: sum(start == path or start not in passed for start in starts_of(path)) for path in _in_tree_order(paths)
    }


def starts_of(path: str) -> list[str]:
    """`a`, `a.b`, `a.b.c` of `a.b.c`; none of the whole."""
    parts = path.split(".") if path else []
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _group_times(ledger: Ledger, rows: Sequence[Operation]) -> dict[str, Any]:
    """Seconds and rates of rows together; {} where no row was timed."""
    if ledger.timing is None or not any(row.seconds for row in ledger.rows):
        return {}
    return {"seconds": ledger.part(rows).total("seconds")} | rates(
        rows, trained=ledger.training is not None, peak=peak_of(ledger)
    )


def _in_tree_order(paths: Iterable[str]) -> list[str]:
    """Every module before its children, modules in the order in which they first ran."""
    first: dict[str, int] = {path: place for place, path in enumerate(paths)}

    return sorted(first, key=lambda path: [first[start] for start in starts_of(path)])


def ledger_object(ledger: Ledger) -> dict[str, Any]:
    """The object of `analyze --format json`."""
    metadata, timing = ledger.metadata, None
    if ledger.timing is not None:  # with the shares of the machine's peak and of the devices of `--on`, where known
        found = reached(ledger)
        shares = {} if found is None else found._asdict()
        timing = {**msgspec.to_builtins(ledger.timing), **whole_of_peak(ledger), **shares}
    return {
        "name": metadata.name,
        "spec": metadata.source,
        "paper": metadata.paper,
        "tokens": metadata.grid_tokens if metadata.inputs is None else None,
        "extra_tokens": metadata.extra_tokens,
        "grid": metadata.tokens,
        "image": None if metadata.image is None else list(metadata.image),
        "streams": [dict(stream) for stream in metadata.streams],
        "settings": list(metadata.settings),
        **{name: getattr(metadata, name) for name in _RUN},
        **{name: ledger.total(name) for name in ("params", "macs", "flops")},
        "totals": ledger.totals() | {"held_bytes": ledger.held_bytes},
        "attention_memory": ledger.attention_memory(),
        "by_stage": ledger.by_stage(),
        "by_mixing": {group.pop("mixing"): group for group in grouped(ledger, "mixing")},
        "operations": _operations(ledger),
        **{f"{name}_from": n for name in _OUTWEIGHS if (n := getattr(ledger, name)) is not None},
        **_if_any("generated_token", ledger.generated_token),
        "flops_by_convention": model_flops(ledger).to_object(_convention(ledger)),
        "agreement": msgspec.to_builtins(ledger.agreement),
        "published": ledger.published_beside_ours(),
        "published_left_out": metadata.published_left_out,
        "timing": timing,
        **_if_any("lora", metadata.lora),
        **_if_any("prediction", ledger.prediction),
        **mode_objects(ledger),
        **formats_object(ledger),
        **checkpoint_object(ledger),
        **({} if ledger.on is None else {"on": ledger.on.to_object()}),
        **({} if (rates := step_rates(ledger)) is None else {"step_time": rates._asdict()}),
        **({"choices": [choice.record() for choice in ledger.choices]} if ledger.choices else {}),
        "training": None if ledger.training is None else ledger.training.to_object(),
        **({} if ledger.probe is None else ledger.probe.to_object()),
        "notes": [*metadata.warnings, *metadata.notes],
        "versions": metadata.versions,
        **_if_any("module", ledger.module, closed_form=msgspec.to_builtins(ledger.closed_form)),
        **(_if_any("closed_form", ledger.closed_form) if ledger.module is None else {}),
    }


def _convention(ledger: Ledger) -> Convention | None:
    """That of the MFU of a training run."""
    training = ledger.training
    known = None if training is None else training.plan or training.run
    return None if known is None else known.convention


def _if_any(name: str, part: msgspec.Struct | None, **more: Any) -> dict[str, Any]:
    """A key that a ledger without this part has not."""
    return {} if part is None else {name: msgspec.to_builtins(part) | more}


def formats_object(ledger: Ledger) -> dict[str, Any]:
    """The key `quantised`: formats of weights and cache, and the bytes of all weights; {} where neither has one."""
    metadata, weights = ledger.metadata, ledger.metadata.weight_format
    formats = {"weights": None if weights is None else weights.name, "cache": metadata.cache_format}
    published = {"as_published": True} if weights is not None and weights.published else {}
    return {"quantised": formats | published | {"weight_bytes": ledger.held_bytes}} if any(formats.values()) else {}


def checkpoint_object(ledger: Ledger) -> dict[str, Any]:
    """The key `checkpoint`: bytes on the disk, of operations, and of none by reason; {} where none was named."""
    stored, found = ledger.metadata.checkpoint, ledger.joined_weights
    if stored is None or found is None:
        return {}
    figures = {name: getattr(stored, name) for name in ("place", "files", "tensors", "bytes")}
    others = {"operations_bytes": found.bytes, "other_bytes": dict(found.others)}
    return {"checkpoint": figures | others | {"dtypes": dict(stored.dtypes)}}


def mode_objects(ledger: Ledger) -> dict[str, Any]:
    """The keys `cache`, `step` and `generation`; null in other modes; others where they are asked for."""
    step, generation = ledger.step, ledger.generation
    names = ("bytes_read", "intensity")
    derived = {name: getattr(step, name) for name in names} if step else {}
    with_cache = {"with_cache": msgspec.to_builtins(generation.with_cache)} if generation else {}
    return {
        "cache": msgspec.to_builtins(ledger.cache),
        "step": msgspec.to_builtins(step) | derived if step else None,
        "generation": msgspec.to_builtins(generation) | with_cache if generation else None,
        **_if_any("cached_prefix", ledger.prefix),
        **({} if ledger.speculation is None else {"speculation": ledger.speculation.to_object()}),
    }


def json_text(value: Any) -> str:
    """JSON as every command prints it: indented, in Unicode, with a final newline; Infinity is none."""
    import json

    return json_visible(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"
