"""Where the cost sits: the parts of a model that cost most, in a line; and tables of groups of operations, sorted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import commonprefix
from typing import Any, Final, Literal, NamedTuple

from xfcost.formulas.operation_names import own_name
from xfcost.ledger import units
from xfcost.ledger.achieved import NOT_ATTRIBUTED, OF_PEAK, peak_of, whole_of_peak
from xfcost.ledger.errors import UsageError
from xfcost.ledger.json_objects import AnyView, Sort, distinct_modules, grouped, starts_of
from xfcost.ledger.least_work import expected_weights
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.operation import Operation
from xfcost.parts.serving.text import cache_name
from xfcost.report.document import DataTable, TextLines, line, numbers
from xfcost.report.style import TERMINAL, WORDS, lowered

# Parts that are named, or fewer where these have the share of the whole.
_MOST_PARTS: Final = 4
_ENOUGH: Final = 0.9
# Operations of a part that are named.
_MOST_NAMES: Final = 4


def largest_texts(ledger: Ledger) -> Iterator[TextLines]:
    """`most MACs: 49.6 % MLP up-projection + MLP down-projection, …`; of a decode step the bytes that it reads."""
    if ledger.step is not None:
        cache = {cache_name(ledger.cache): ledger.cached_bytes}
        yield from _largest("most bytes read", ledger, _bytes_read(ledger), cache)
    else:
        # rows of decode steps, if there are any, are summed with those of the prefill
        prompt_only = ledger.generation is not None and ledger.generation.decode is None
        of = " of the prefill" if prompt_only else " of the forward" if ledger.training else ""
        yield from _largest(f"most MACs{of}", ledger, lambda row: row.times_over("macs") or 0)


def slowest_texts(ledger: Ledger) -> Iterator[TextLines]:
    """The same of seconds, measured or predicted; nothing where there are none."""
    if ledger.timing is not None:
        spent = ledger.timing.whole
        yield from _largest("most seconds", ledger, lambda row: row.times_over("seconds") or 0, whole=spent)
    if ledger.prediction is not None:
        spent = ledger.prediction.whole
        yield from _largest(
            "most predicted seconds", ledger, lambda row: row.times_over("predicted_seconds") or 0, whole=spent
        )


def _bytes_read(ledger: Ledger) -> Callable[[Operation], float]:
    stored = ledger.storage
    return lambda row: row.times * stored.read_bytes(row, expected_weights(row))


def _largest(
    head: str,
    ledger: Ledger,
    cost: Callable[[Operation], float],
    beside: Mapping[str, int] = {},
    whole: float | None = None,
) -> Iterator[TextLines]:
    """The parts with the largest shares of the `whole`, by default of their sum; `beside` are costs of no row."""
    parts: dict[tuple[str, ...], dict[str, float]] = {}
    for row in ledger.rows:
        if value := cost(row):
            key, name = _part_of(row, ledger.metadata.name)
            names = parts.setdefault(key, {})
            names[name] = names.get(name, 0) + value
    alike: dict[frozenset[str], dict[str, float]] = {frozenset((name,)): {name: one} for name, one in beside.items()}
    for names in parts.values():  # the same operations of different blocks are one part
        together = alike.setdefault(frozenset(names), {})
        together |= {name: together.get(name, 0) + value for name, value in names.items()}
    largest = sorted(alike.values(), key=lambda names: -sum(names.values()))
    whole = whole or sum(sum(names.values()) for names in largest)
    covered, texts = 0.0, list[str]()
    for names in largest[:_MOST_PARTS]:
        if covered < _ENOUGH * whole:
            covered += (cost_of := sum(names.values()))
            texts.append(f"{units.percent(cost_of, whole)} {_label(sorted(names, key=lambda name: -names[name]))}")
    if len(largest) > 1:
        yield line(", ".join(texts), head=f"{head}: ")


def _part_of(row: Operation, whole: str) -> tuple[tuple[str, ...], str]:
    """What makes it one part with another row, and its name there.

    The products of a sub-layer are one part for each mixing kind, and another operation is its own. Of a module, which
    has no sub-layers, the modules with parameters in the same module are one part.
    """
    if row.ran is None:
        return ((row.component, row.mixing) if row.macs else ("", row.title)), lowered(row.title)
    words = row.symbol or row.title
    if not row.macs:
        return ("", words), words
    path = re.sub(r".*\.[\d*,:-]+\.", "", row.component)  # without the number of its block
    parent, _, own = row.component.rpartition(".")
    name = own_name(row)
    if row.params and not name.startswith(words):  # a matrix of the module itself
        return (row.component, "*"), ".".join(filter(None, (path, name)))
    named = f"{path} {words}" if _is_number(path) else path
    if row.params and parent:
        return (parent, "*"), named
    return (row.component, ""), named if (row.params or row.shared) and own else f"{path or whole} {words}"


def _label(names: list[str]) -> str:
    """`mlp.gate_proj + up_proj + down_proj`: what all names begin with is written once, but before numbers.

    Numbers with the same words behind them have these once: `mlp.0 + mlp.3 linear`.
    """
    modules, words = [name.partition(" ")[0] for name in names], {name.partition(" ")[2] for name in names}
    behind = f" {words.pop()}" if len(words) == 1 and all(map(_is_number, modules)) else ""
    first, *others = modules if behind else names
    start = re.sub(r"[^ .]*$", "", commonprefix([first, *others]))  # noqa: RUF071 - by character, up to a blank or a dot
    if not any(_is_number(name.partition(" ")[0]) for name in others):
        others = [name.removeprefix(start) for name in others]
    more = len(names) - _MOST_NAMES
    return " + ".join([first, *others][:_MOST_NAMES] + [f"{more} more"] * (more > 0)) + behind.rstrip()


def _is_number(path: str) -> bool:
    """Is a module called by its place, as those of an nn.Sequential are?"""
    return path.rpartition(".")[2].isdecimal()


class Order(NamedTuple):
    """The groups, or operations, in the order of what they cost, from the most."""

    sort: Sort = "macs"
    top: int | None = None
    """So many of them; None: all."""

    def sorted(self, ledger: Ledger, by: AnyView | None, depth: int | None = None) -> list[dict[str, Any]]:
        """The groups of `by`, without one the operations, over all blocks; with `memory` where it sorts by it.

        Raises:
            UsageError: it sorts by seconds, and nothing was timed or predicted.
        """
        groups = grouped(ledger, by or "path", depth)
        groups = distinct_modules(groups) if by == "module" else groups
        if self.sort == "memory":
            rows = _rows_by(ledger, by or "path", [group[by or "path"] for group in groups])
            groups = [group | {"memory": _memory(ledger, own)} for group, own in zip(groups, rows, strict=True)]
        key: str = self.sort
        if self.sort == "seconds":
            key = next((name for name in ("seconds", "predicted_seconds") if name in groups[0]), "")
        if not key:
            raise UsageError("--sort seconds: needs seconds; add --device cpu (or cuda, mps), or --predict")
        return sorted(groups, key=lambda group: -(group.get(key) or 0))[: self.top]


def _rows_by(ledger: Ledger, by: AnyView | Literal["path"], names: Sequence[str]) -> list[Sequence[Operation]]:
    """The rows of each group; those of a module with those of all modules in it."""
    if by != "module":
        groups = ledger.by(by)
        return [groups.get(name, ()) for name in names]
    return [[row for row in ledger.rows if not name or f"{row.component}.".startswith(f"{name}.")] for name in names]


def _memory(ledger: Ledger, rows: Sequence[Operation]) -> int:
    """Bytes of the weights, the cache, and saved activations in training, else the attention matrices of one block."""
    stored = ledger.storage
    held = sum(stored.held_in_all(row) + ledger.cached_bytes_of(row) for row in rows)
    part = ledger.part(rows)
    return held + ((part.total("kept_bytes") or 0) if ledger.training else part.attention_memory()["peak"])


# A name is wrapped down to so many characters; the parts of a tree are indented.
_LEAST_NAME: Final = 20
_LEAST_TREE: Final = 36


def groups_table(
    ledger: Ledger, by: AnyView | None, depth: int | None = None, order: Order | None = None, *, whole: Ledger
) -> DataTable:
    """Totals of `--by operation|block|stage|mixing|module`, over all blocks; modules as a tree, with what is inside.

    With an `order` sorted, and without `by` of every operation. Shares are of the `whole`, whose rows these may all be.
    """
    shown = {"flops": "FLOPs"}
    if order is not None:
        shown = {"memory": "memory"} if order.sort == "memory" else shown
    else:
        # seconds take the room of what is in csv and json as well
        if ledger.prediction is None and not any(row.seconds for row in ledger.rows):
            shown |= {"attention_entries": "attention entries", "traced_macs": "traced MACs"}
        shown |= {"cached": "cached"} if ledger.step and ledger.metadata.inputs is None else {}
        shown |= {"backward_macs": "backward MACs"} if ledger.training else {}
    groups = _groups(ledger, by or "operation", depth) if order is None else order.sorted(ledger, by, depth)
    rows = {} if by else {row.path: row for row in ledger.rows}
    tree = by == "module" and order is None
    around: list[str] = []  # the modules that the next line is in
    lines = []
    for group in distinct_modules(groups) if tree else groups:
        if tree:
            around = [*around[: int(group["depth"])], group["module"]]
        if (row := rows.get(group.get("path", ""))) is not None:
            lines.append((_in_blocks(row), group, TERMINAL[row.mixing]))
        else:
            style = TERMINAL.get(group["mixing"], "") if by == "mixing" else ""
            lines.append((_group_name(ledger, by, group, around[:-1]), group, style))
    return _totals_table(by or "operation", lines, shown, whole)


def _in_blocks(row: Operation) -> str:
    """`MLP up-projection, stage 1 · Self-attention ×12`."""
    return f"{row.title}, {row.block}{f' ×{row.times}' if row.times > 1 else ''}"


def _groups(ledger: Ledger, by: AnyView, depth: int | None = None) -> list[dict[str, Any]]:
    """The groups; of predicted ones also the seconds that no row accounts for."""
    groups = grouped(ledger, by, depth)
    if ledger.prediction is None or not groups or "predicted_seconds" not in groups[0]:
        return groups
    rest: dict[str, Any] = {"predicted_seconds": ledger.prediction.not_attributed}
    if groups[-1][by] == NOT_ATTRIBUTED:  # it is timed too
        return [*groups[:-1], groups[-1] | rest]
    return [*groups, dict.fromkeys(groups[0]) | {by: NOT_ATTRIBUTED} | rest]


def _group_name(ledger: Ledger, by: AnyView | None, group: Mapping[str, Any], around: Sequence[str]) -> str:
    """Its name; of a module in a tree, below those `around` it, from the outermost, that in the innermost."""
    path = beside_word(str(group[by or ("operation" if "operation" in group else "path")]), group.get("seconds"))
    if by != "module":
        return path
    inside = [start for start in starts_of(path) if len(start) > len(around[-1])] if around else []
    words = next(filter(None, (_part_words(ledger, start) for start in reversed(inside))), "")
    name = path.removeprefix(f"{around[-1]}.") if around else path
    return "  " * len(around) + (name or ledger.metadata.name) + (f" {words}" if words else "")


def _part_words(ledger: Ledger, path: str) -> str:
    """What a numbered part of a spec is: `stage 1`, `W-MSA ×2`, and of one without parts its costliest operation.

    Of a module the same of one without parts, without the title's path.
    """
    name, rows = path.rpartition(".")[2], [row for row in ledger.rows if f"{row.component}.".startswith(f"{path}.")]
    if not name.isdecimal() and name != "block":
        return ""
    if all(row.component == path for row in rows):
        costliest = max(rows, key=lambda row: (row.macs, row.params, row.flops))
        words = costliest.title if costliest.ran is None else costliest.symbol
        return f"{words or costliest.title}{', …' if len(rows) > 1 else ''}"
    if not ledger.metadata.stages:
        return ""
    if path.count(".") == 1:
        return rows[0].stage
    return rows[0].block.rpartition(" · ")[2] + (f" ×{rows[0].times}" if rows[0].times > 1 else "")


def mixing_table(ledger: Ledger) -> DataTable:
    """Totals by mixing kind."""
    groups = [
        (WORDS.get(kind := group["mixing"]) or beside_word(kind, group.get("seconds")), group, TERMINAL.get(kind, ""))
        for group in _groups(ledger, "mixing")
    ]
    total: dict[str, Any] = dict(ledger.totals())
    if ledger.timing is not None:
        total |= {"seconds": ledger.timing.whole, "share_base": ledger.timing.whole} | whole_of_peak(ledger)
    total |= {"predicted_seconds": ledger.prediction.seconds} if ledger.prediction else {}
    return _totals_table("totals by mixing kind", [*groups, ("all", total, "bold")], {"flops": "FLOPs"}, ledger)


def _totals_table(
    first: str, lines: Sequence[tuple[str, Any, str]], more: Mapping[str, str], ledger: Ledger
) -> DataTable:
    """A line per group (its words, figures and style): parameters, MACs, their share, and `more`; seconds if timed."""
    macs, timing = ledger.total("macs") or 0, ledger.timing
    timed = timing is not None and any("seconds" in figures for _, figures, _ in lines[:1])
    predicted = ledger.prediction is not None and any("predicted_seconds" in figures for _, figures, _ in lines[:1])
    peak = timed and peak_of(ledger) is not None
    times = ("time", "of time", *(("of peak",) if peak else ())) if timed else ()
    heads = [*(("predicted",) if predicted else ()), *times]
    rows = []
    for words, figures, _ in lines:
        params, own, *others = (
            units.size(figures[quantity]) if quantity == "memory" else units.count(figures[quantity])
            for quantity in ("params", "macs", *more)
        )
        share = units.DASH if figures["macs"] is None else units.percent(figures["macs"], macs)
        if timing is not None and timed:
            spent = figures["seconds"]
            part = time_share(spent, figures.get("share_base", timing.share_base))
            reached = [units.DASH if figures[OF_PEAK] is None else units.percent(figures[OF_PEAK], 1)] if peak else []
            others = [units.seconds(spent), part, *reached, *others]
        if predicted:
            others = [units.seconds(figures["predicted_seconds"]), *others]
        rows.append([words, params, own, share, *others])
    columns = numbers(first, "params", "MACs", "share", *heads, *more.values())
    columns[0] = columns[0]._replace(fold=_LEAST_TREE if first == "module" else _LEAST_NAME)
    ranks = {"traced MACs": 1, "attention entries": 2}
    columns = [one._replace(rank=ranks.get(one.head, one.rank)) for one in columns]
    return DataTable(columns, rows, [style for _, _, style in lines])


def beside_word(name: str, seconds: float | None) -> str:
    """The name of a row; what is not attributed is the overhead of measuring where the operations add up to more."""
    return "measuring overhead" if name == NOT_ATTRIBUTED and (seconds or 0) < 0 else name


def time_share(seconds: float | None, base: float) -> str:
    """`12.5 %`; a dash of what was not timed, and of an overhead, which is no part of the time."""
    return units.DASH if seconds is None or seconds < 0 else units.percent(seconds, base)
