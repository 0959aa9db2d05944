"""Probe -> the line of the check of kinds, and with `--probe` the table of rows, declared and found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.parts.mixing.result import Probe, ProbedMixing, ProbedRow
from xfcost.report.document import DataTable, Gap, Part, TableColumn, TextLines, line


def probe_parts(ledger: Ledger) -> Iterator[Part]:
    """The table, the rows that differ, the rows that could not be probed, the sizes; nothing without `--probe`."""
    if ledger.probe is None or not ledger.probe.detailed:
        return
    yield from (Gap(), _table(ledger.probe), Gap())
    yield from _verdict_texts(ledger.probe)
    reasons, sizes = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for row in ledger.probe.left_out:
        reasons[row.reason or ""].append(row.path)
    for path, size in ledger.probe.sizes.items():
        sizes[size].append(path)
    yield from (line(f"not probed, {reason}: {', '.join(paths)}") for reason, paths in reasons.items())
    yield from (line(f"probed {size}: {', '.join(paths)}", "dim") for size, paths in sizes.items())


def _table(probe: Probe) -> DataTable:
    """One line for all rows that are alike."""
    columns = [TableColumn("operation", fold=12), TableColumn("declared"), TableColumn("found")]
    columns += [TableColumn("rows", right=True), TableColumn("agrees")]
    cells, styles = [], []
    alike: dict[tuple[object, ...], list[ProbedRow]] = {}
    for row in probe.rows:
        alike.setdefault((row.title, row.declared, row.found), []).append(row)
    for row, *others in alike.values():
        styles.append("bold red" if row.agrees is False else "dim" if row.found is None else "")
        found = "not probed" if row.found is None else _cell(row.found)
        agrees = {True: "=", False: "≠", None: units.DASH}[row.agrees]
        cells.append([row.title, _cell(row.declared), found, str(1 + len(others)), agrees])
    return DataTable(columns, cells, styles)


def _cell(mixes: ProbedMixing) -> str:
    """`local 49 by content`: the mixing kind, the tokens read per token, and where the weights come from."""
    return " ".join(filter(None, _words(mixes)))


def _words(mixes: ProbedMixing) -> tuple[str, str, str]:
    reads = "" if mixes.reads_tokens is None else str(mixes.reads_tokens)
    return mixes.mixing, reads, {True: "by content", False: "fixed", None: ""}[mixes.content_dependent]


def _sentence(mixes: ProbedMixing) -> str:
    """`local, reads 49, weights by content`."""
    mixing, reads, weights = _words(mixes)
    return ", ".join([mixing, *([f"reads {reads}"] if reads else []), *([f"weights {weights}"] if weights else [])])


def _verdict_texts(probe: Probe) -> Iterator[TextLines]:
    """One line where all rows agree, else every one that differs; then the patterns of mixers."""
    count = len(probe.rows) - len(probe.left_out)
    yield from _difference_texts(
        probe, "probe", f"the running model agrees in all {count} operations that could be probed", count
    )
    yield from _pattern_texts(probe.patterns)


def kinds_texts(probe: Probe) -> Iterator[TextLines]:
    """The check of kinds in a traced run: one line if all agree, otherwise every row that differs."""
    number, count = len(probe.rows), len(probe.rows) - len(probe.left_out)
    operations = units.number_of(number, "operation")
    if not count:
        yield line(f"mixing kinds: none of {operations} checked on the running model (--probe shows why)", "dim")
        return
    every = f"the running model agrees in all {operations}"
    some = f"the running model agrees in {count} of {operations} (--probe lists the {number - count} not checked)"
    yield from _difference_texts(probe, "mixing kinds", every if count == number else some, count)


def _difference_texts(probe: Probe, head: str, agrees: str, count: int) -> Iterator[TextLines]:
    number = len(probe.differences)
    differs = f"the running model DISAGREES in {number} of {units.number_of(count, 'operation')}"
    yield line(f"{head}: {differs if number else agrees}", "bold red" if number else "bold green")
    for row in probe.differences:
        if row.found is not None:
            yield line(f"  {row.path}: declared {_sentence(row.declared)}; found {_sentence(row.found)}", "red")


def _pattern_texts(patterns: dict[str, tuple[str, ...]]) -> Iterator[TextLines]:
    """One line where the tokens and pairs of all mixers are those declared, else every one that differs."""
    different = {path: texts for path, texts in patterns.items() if texts}
    if different:
        number = f"{len(different)} of {len(patterns)}"
        yield line(f"probe: the tokens read DIFFER from those declared in {number} mixers", "bold red")
    elif patterns:
        yield line(f"probe: the tokens and pairs read are the declared ones in all {len(patterns)} mixers", "green")
    for path, texts in different.items():
        yield from (line(f"  {path}: {text}", "red") for text in texts)
