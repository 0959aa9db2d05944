"""The report of `compare` as a document: who costs less, growth, crossovers; then figures, stages, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from xfcost.comparing.comparison import Comparison
from xfcost.comparing.crossovers import MOST_PAIRED, NamedOrder
from xfcost.comparing.quantities import QUANTITIES, figure_text, unit_of
from xfcost.ledger import units
from xfcost.ledger.grid import Grid
from xfcost.ledger.least_work import by_chance
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.metadata import Timing
from xfcost.ledger.statistics import TimeRatio
from xfcost.parts.prediction.text import compared_prediction_texts
from xfcost.parts.serving.text import EXPECTED, cache_name, fit_advice, fit_words, no_estimate
from xfcost.parts.timing.text import lane_text, share_text, spread_text, where_text
from xfcost.parts.training.text import run_texts
from xfcost.report.accounts import COUNTED_ONLY, NOT_TRACED, agreement_texts
from xfcost.report.document import DataTable, Document, Gap, Part, TableColumn, TextLines, line, notes
from xfcost.report.input_description import (
    circumstances,
    common_input_text,
    common_tokens,
    default_notes,
    image_cell,
    input_text,
    input_warnings,
    names_text,
    run_text,
)
from xfcost.report.output import is_chosen
from xfcost.views.analyze import CONVENTION, preamble
from xfcost.views.crossovers import (
    CURVE_WORDS,
    crossover_texts,
    forward_part,
    range_text,
    search_text,
    size_crossover_texts,
)
from xfcost.views.figures import PAIRS, bounded, differs, figures_table, recurs


def document(comparison: Comparison, *, verbose: bool = False) -> Document:
    """The inputs, the answer, then what differs; with `verbose` every figure, crossover and note."""
    many = len(comparison.names) > MOST_PAIRED
    parts = _overview if many else _parts
    return Document(
        parts=lambda: parts(comparison, verbose=verbose),
        records=lambda: _records(comparison),
        json=comparison.to_json,
        paper=lambda _: [preamble(comparison.ledgers), paper_table(comparison)],
    )


def _parts(comparison: Comparison, *, verbose: bool) -> Iterator[Part]:
    yield from header(comparison)
    yield Gap()
    yield from cost_texts(comparison)
    yield from growth_texts(comparison)
    yield from compared_prediction_texts(comparison.by_name)
    yield from crossover_texts(comparison, verbose=verbose)
    yield from size_crossover_texts(comparison, verbose=verbose)
    yield from (Gap(), figures_table(comparison, verbose=verbose))
    yield from stage_parts(comparison)
    yield from size_parts(comparison)
    yield Gap()
    yield from _endnotes(comparison, verbose=verbose)


def header(comparison: Comparison) -> Iterator[Part]:
    """A row per system, then the run, and a warning where inputs differ."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    yield _named_rows(
        {
            name: input_text(one) if one.inputs is None else circumstances(one)
            for name, one in zip(comparison.names, metadata, strict=True)
        },
        TableColumn("", style="bold"),
        gap=3,
    )
    specs = [one for one in metadata if one.inputs is None]
    of_specs = "specs: " if len(specs) < len(metadata) else ""
    run = f"{of_specs}{run_text(specs)}".split("\n") if specs else []
    yield TextLines(run)
    if all(ledger.agreement is None for ledger in comparison.ledgers):
        yield line(COUNTED_ONLY, "dim")
    if any(one.weight_format is not None and one.weight_format.published for one in metadata):
        yield line("; ".join(map(_weights_of, comparison.names, comparison.ledgers)), head="weights: ")
    warnings = input_warnings(dict(zip(comparison.names, metadata, strict=True)))
    yield TextLines(list(warnings), "bold yellow")


def _weights_of(name: str, ledger: Ledger) -> str:
    """`gpt-oss 20B 12.82 GiB in MXFP4, as published`."""
    form, dtype = ledger.metadata.weight_format, ledger.metadata.dtype
    origin = "" if form is None or not form.published else ", as published" if form.words else ", as stored"
    words = dtype if form is None else form.name + origin
    words += f", the cache in {ledger.metadata.cache_format}" if ledger.metadata.published_cache else ""
    return f"{name} {units.size(ledger.held_bytes)} in {words}"


def _named_rows(rows: Mapping[str, str], first: TableColumn, gap: int = 2) -> DataTable:
    """Systems and the notes of each, side by side without headings."""
    return DataTable([first, TableColumn("", fold=20)], list(rows.items()), headed=False, gap=gap)


# Mode -> the quantities that answer its question, in order, with their words; a cache's are those of its kind.
_QUESTIONS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "forward": (
        ("macs", "MACs"),
        (PAIRS, "query-key pairs per head, first layer"),
        ("attention_bytes", "attention memory"),
    ),
    "prefill": (("macs", "MACs"), ("cache_bytes", "")),
    "decode": (("read_bytes", "bytes read per step"), ("cache_bytes", ""), ("macs", "MACs")),
    "generate": (("macs", "MACs"), ("cache_bytes", "")),
    "train": (
        ("step_flops", "FLOPs of a step"),
        ("step_bytes", "memory of a step, without the loss"),
        ("run_days", "time of the run"),
    ),
}


def cost_texts(comparison: Comparison) -> Iterator[TextLines]:
    """One line per quantity that the mode asks for, then the devices of `--on` and the times."""
    for quantity, told in _QUESTIONS[comparison.ledgers[0].metadata.mode]:
        words = told or _cache_words(comparison.ledgers)
        experts = quantity == "read_bytes" and any(map(by_chance, comparison.ledgers))
        yield from _least_texts(comparison, quantity, f"{words} {EXPECTED}" if experts else words)
    yield from _on_devices(comparison)
    yield from _plans_that_do_not_fit(comparison)
    yield from time_texts(comparison)


def _on_devices(comparison: Comparison) -> Iterator[TextLines]:
    """Which system the devices of `--on` could run fastest, and which fit."""
    ledgers = comparison.by_name
    found = {name: ledger.on for name, ledger in ledgers.items() if ledger.on is not None}
    if not found:
        return
    title = next(iter(found.values())).where
    experts = f" {EXPECTED}" if any(map(by_chance, comparison.ledgers)) else ""
    for quantity, words in (("least_seconds", f"lower bound{experts}"), ("estimated_seconds", "estimate")):
        yield from _least_texts(comparison, quantity, f"{words} on {title}")
    fitting = [one for one in found.values() if one.no_time is None]
    if len(fitting) < 2:  # noqa: PLR2004 - no line above names the devices
        yield line(f"on {title}:")
    yield from no_estimates(comparison)
    width = max(map(len, ledgers))
    for name, one in found.items():
        bound = f"{one.time.bound} {EXPECTED}" if by_chance(ledgers[name]) else one.time.bound
        words = fit_words(one) if one.no_time is not None else f"{bound}; {fit_words(one)}"
        reached = {key.upper(): comparison.figures[name].get(key) for key in ("mfu", "mbu")}
        shares = [f"{share_text(share)} {key}" for key, share in reached.items() if share is not None]
        text = f"  {name:<{width}}  {words}{'; reached ' if shares else ''}{' and '.join(shares)}"
        yield TextLines([text], advice=fit_advice(one))


def _plans_that_do_not_fit(comparison: Comparison) -> Iterator[TextLines]:
    """A line of each, whose time is that of its FLOPs."""
    for name, ledger in comparison.by_name.items():
        plan = None if ledger.training is None else ledger.training.plan
        if plan is not None and plan.shortage is not None:
            yield line(plan.shortage, head=f"{name}: ")


def no_estimates(comparison: Comparison) -> list[TextLines]:
    """How to get an estimate, and of which systems where others have one."""
    reasons: dict[str, list[str]] = {}
    systems = [(name, ledger.on) for name, ledger in comparison.by_name.items() if ledger.prediction is None]
    bounded = [(name, on) for name, on in systems if on is not None and on.no_time is None]
    for name, on in bounded:
        if on.estimate is None:
            reasons.setdefault(no_estimate(on), []).append(name)
    return [
        TextLines(
            ["No run takes less time" if len(names) == len(bounded) else f"{names_text(names)}: no estimate"],
            advice=advice,
        )
        for advice, names in reasons.items()
    ]


def on_text(comparison: Comparison) -> str:
    """The devices of `--on`, and how many of the systems fit; empty without them."""
    found = [ledger.on for ledger in comparison.ledgers if ledger.on is not None]
    if not found:
        return ""
    fitting = sum(one.no_time is None for one in found)
    experts = f" {EXPECTED}" if any(map(by_chance, comparison.ledgers)) else ""
    return f"lower bound on {found[0].where}{experts}; {fitting} of {len(found)} fit"


def _least_texts(comparison: Comparison, quantity: str, words: str) -> Iterator[TextLines]:
    """The line of a quantity that two systems or more have; none where it is zero throughout."""
    values = {name: comparison.figures[name].get(quantity) for name in comparison.names}
    known = {name: value for name, value in values.items() if value is not None}
    if len(known) > 1 and any(known.values()):
        tokens = common_tokens(ledger.metadata for ledger in comparison.ledgers)
        at = f"{',' if ', ' in words else ''} at N = {tokens:,}" if tokens and all(known.values()) else ""
        yield line(_least(comparison, quantity, known), head=f"{words}{at}: ")


def _least(comparison: Comparison, quantity: str, values: dict[str, int | float]) -> str:
    """`Swin-T 1.180 G, ViT-S/8 22.41 G (19× as many)`, from the least on; `none in ResNet-50; …`."""
    ledgers = comparison.by_name
    figures = {
        name: f"{bounded(ledgers[name], quantity)}{figure_text(quantity, value)}" for name, value in values.items()
    }
    if not all(values.values()):
        none = ", ".join(name for name, value in values.items() if not value)
        return f"none in {none}; {', '.join(f'{figures[name]} in {name}' for name in values if values[name])}"
    least, *others = sorted(values, key=lambda name: values[name])
    if len(set(values.values())) == 1:
        return f"the same, {figures[least]}"
    against = (f"{name} {figures[name]} ({_times(values[least], values[name], quantity)})" for name in others)
    return f"{least} {figures[least]}, {', '.join(against)}"


def _times(less: float, more: float, quantity: str) -> str:
    """`16× as many`, `the same`, `hardly more`."""
    if less == more:
        return "the same"
    times = units.ratio(more / less, 3)
    word = {"": "as many", "bytes": "as much"}.get(unit_of(quantity), "as long")
    return "hardly more" if times == "1×" else f"{times} {word}"


def growth_texts(comparison: Comparison) -> Iterator[Part]:
    """How costs grow with N, a row per system."""
    head = f"growth with N{forward_part(comparison)}"
    ranges = {name: growth_range(comparison.growth[name], ledger) for name, ledger in comparison.by_name.items()}
    if set(ranges.values()) == {NO_OTHER_N}:
        yield line(" not known, counted at one size", head=f"{head}:")
        return
    same = len(set(ranges.values())) == 1
    yield line(f"{head} ({next(iter(ranges.values()))}):" if same else f"{head}:", "bold")
    rows = dict[str, str]()
    for name, span in ranges.items():
        words = growth_text(comparison.growth[name], growth_words(comparison.ledgers))
        rows[f"  {name}"] = words if same or span == NO_OTHER_N else f"{words} ({span})"
    yield _named_rows(rows, TableColumn(""))


def growth_words(ledgers: Sequence[Ledger]) -> dict[str, str]:
    """The quantities whose growth is reported of some systems, with their words."""
    words = dict(CURVE_WORDS)
    words |= {"sequential_steps": "sequential steps"} if any(map(recurs, ledgers)) else {}
    return words | ({"cache_bytes": _cache_words(ledgers)} if any(ledger.step for ledger in ledgers) else {})


def _cache_words(ledgers: Sequence[Ledger]) -> str:
    return cache_name(*(ledger.cache for ledger in ledgers))


def growth_text(growth: Mapping[str, float | None], words: Mapping[str, str]) -> str:
    """`MACs ~ N^1.41, mixing MACs ~ N^2.00 (quadratic), attention memory –`; where no other N fits that it can't."""
    if growth["factor"] is None:
        return "not known, counted at one size"
    return ", ".join(
        power_text(word, growth[quantity]) + (_growth_word(growth[quantity]) if quantity == "mixing_macs" else "")
        for quantity, word in words.items()
    )


def _growth_word(exponent: float | None) -> str:
    """` (quadratic)` where it is 2 to two digits; empty between the whole powers."""
    word = None if exponent is None else {0: "constant", 1: "linear", 2: "quadratic"}.get(round(exponent))
    return f" ({word})" if word and exponent is not None and abs(exponent - round(exponent)) < _TWO_DIGITS else ""


_TWO_DIGITS: Final = 0.015


def power_text(word: str, exponent: float | None) -> str:
    """`MACs ~ N^1.41`."""
    return f"{word} {units.DASH}" if exponent is None else f"{word} ~ N^{exponent_text(exponent)}"


def exponent_text(value: float | None) -> str:
    """`1.41`; a dash where nothing grows."""
    return units.DASH if value is None else f"{round(value, 2) + 0:.2f}"  # no -0.00


NO_OTHER_N: Final = "no other N fits"


def growth_range(growth: Mapping[str, float | None], ledger: Ledger) -> str:
    """Between which N the exponents are taken: `from N to 4·N`, or `N = 3,136 to 12,544, without padding`."""
    factor, n = growth["factor"], growth["N"]
    if factor is None:
        return NO_OTHER_N
    if n != ledger.metadata.grid_tokens:
        low, high = sorted((n or 0, (n or 0) * factor))
        return f"N = {low:,.0f} to {high:,.0f}, without padding"
    other = f"{units.ratio(factor)[:-1]}·N" if factor > 1 else f"N/{units.ratio(1 / factor)[:-1]}"
    span = f"from N to {other}" if factor > 1 else f"from {other} to N"
    return f"{span}, with its steps" if growth["padded"] else span


# Letters of a name that are not broken.
_NAME: Final = 24


class SystemColumn(NamedTuple):
    """A column of figures under systems; on a narrow screen the lowest ranks are hidden first."""

    quantity: str
    width: int = 0
    rank: int | None = None
    what: Literal["figure", "image", "ratio", "growth", "crossover"] = "figure"
    """The quantity itself, over the first system's, its exponent in N, or where it becomes less than the first's.

    `image`: the size of the image, which is no quantity.
    """
    title: str = ""
    """Where it is not that of the quantity."""

    @property
    def head(self) -> str:
        """Its heading."""
        return self.title or QUANTITIES[self.quantity].head

    @property
    def style(self) -> str:
        """Of a figure that of its quantity."""
        return QUANTITIES[self.quantity].style if self.what == "figure" else ""

    def cell(self, comparison: Comparison, name: str) -> str:
        """The text of a system's cell."""
        ledger = comparison.by_name[name]
        if self.what == "image":
            return (image_cell(ledger.metadata) or units.DASH).replace("x", "×")
        if self.what == "crossover":
            return _first_fewer(comparison, name)
        if self.what == "growth":
            return exponent_text(comparison.growth[name][self.quantity])
        if self.what == "ratio":
            return units.ratio(comparison.ratios[name][self.quantity], 3)
        value = comparison.figures[name].get(self.quantity)
        bound = bounded(ledger, self.quantity) if value else ""
        return f"{'≥' if bound else ''}{figure_text(self.quantity, value)}"


COLUMNS: Final = (
    SystemColumn("params", 7, 5),
    SystemColumn("macs", 7, 9),
    SystemColumn("macs", 7, 8, "ratio", "×first"),
    SystemColumn("macs", 7, 6, "growth", "MACs N^"),
    SystemColumn("traced_macs", 7, 6, title="traced"),
    SystemColumn("mixing_macs", 11, 7),
    SystemColumn("mixing_macs", 9, 9, "growth", "mixing N^"),
    SystemColumn("attention_bytes", 16, 6),
    SystemColumn("attention_bytes", 9, 4, "growth", "memory N^"),
    SystemColumn("plain_traffic_bytes", 9, 7),
    SystemColumn("tiled_traffic_bytes", 9, 8),
    SystemColumn("cache_bytes", 9, 9),
    SystemColumn("read_bytes", 9, 7),
    SystemColumn("intensity", 10, 6),
    SystemColumn("generation_macs_without_cache", 13, 8, title="without cache"),
    SystemColumn("backward_macs", 8, 8, title="backward"),
    SystemColumn("optimizer_bytes", 9, 6),
    SystemColumn("step_bytes", 10, 7),
    SystemColumn("run_flops", 9, 8),
    SystemColumn("run_days", 7, 8),
    SystemColumn("bound_days", 10, 7),
    SystemColumn("device_bytes", 10, 9, title="one device"),
    SystemColumn("device_activations_bytes", 15, 6, title="its activations"),
    SystemColumn("least_seconds", 10, 9),
    SystemColumn("estimated_seconds", 9, 8),
    SystemColumn("needed_bytes", 9, 8),
    SystemColumn("predicted_seconds", 9, 8),
    SystemColumn("seconds", 8, 8),
    SystemColumn("macs", 17, 8, "crossover", "fewer MACs\nfirst seen at N"),
)


def _cheaper_in_macs(comparison: Comparison, name: str) -> list[NamedOrder]:
    """The order of MACs against the first system, at ascending N; nothing where no N fits both."""
    search = next((one for one in comparison.searches if name == one.systems[1]), None)
    return [] if search is None else [one for one in search.orders if one.quantity == "macs"]


def _changes_back(comparison: Comparison, name: str) -> bool:
    """Does it cost more MACs than the first again, above an N at which it costs fewer?"""
    cheaper = [one.cheaper for one in _cheaper_in_macs(comparison, name)]
    return name in cheaper and set(cheaper[cheaper.index(name) :]) != {name}


def _first_fewer(comparison: Comparison, name: str) -> str:
    """The least counted N at which the system costs fewer MACs than the first; `*`: not at all counted N above it."""
    orders = _cheaper_in_macs(comparison, name)
    if not orders:
        return units.DASH
    cheaper = [one.cheaper for one in orders]
    if set(cheaper) == {name}:
        return "at all counted"
    if name not in cheaper:
        return "at none counted" if any(cheaper) else "equal at all"
    first = orders[cheaper.index(name)].first
    return f"at {first:,}{'*' if _changes_back(comparison, name) else ''}"


def _extremes(comparison: Comparison, short: dict[str, str]) -> str:
    """`MACs: least …, most …`; of decode steps the bytes that they read."""
    quantity, words = "macs", "MACs"
    text: Callable[[Any], str] = units.count
    if comparison.ledgers[0].metadata.mode == "decode":
        experts = any(map(by_chance, comparison.ledgers))
        quantity, words, text = "read_bytes", f"bytes read per step{f' {EXPECTED}' if experts else ''}", units.size
    known = {name: value for name in comparison.names if (value := comparison.figures[name][quantity]) is not None}
    if not known:
        return f"{words}: none counted"
    least, most = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
    ledgers = comparison.by_name
    low, high = (f"{bounded(ledgers[name], quantity)}{text(known[name])}" for name in (least, most))
    return f"{words}: from {low} ({short[least]}) to {high} ({short[most]})"


def _overview(comparison: Comparison, *, verbose: bool) -> Iterator[Part]:
    """The report on many systems."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    short = _short(comparison)
    head = [line(f"{len(short)} systems, each against {short[comparison.names[0]]}", "bold")]
    of_specs = [one for one in metadata if one.inputs is None] or metadata[:1]
    head += map(line, f"{common_input_text(metadata)}{run_text(of_specs)}".split("\n"))
    if all(ledger.agreement is None for ledger in comparison.ledgers):
        head.append(line(COUNTED_ONLY, "dim"))
    head.append(line(_extremes(comparison, short)))
    if text := on_text(comparison):
        head += [line(text), *no_estimates(comparison)]
    warnings = input_warnings(dict(zip(short.values(), metadata, strict=True)))
    head += (line(warning, "bold yellow") for warning in warnings)
    filled = [one for one in COLUMNS if any(one.cell(comparison, name) != units.DASH for name in short)]
    rows = [[line, *(column.cell(comparison, name) for column in filled)] for name, line in short.items()]
    typed = [TableColumn(one.head, right=True, rank=one.rank, width=one.width, style=one.style) for one in filled]
    table = DataTable([TableColumn("", fold=_NAME, named="system"), *typed], rows)
    yield from head
    yield Gap()
    yield table
    yield Gap()
    yield from _overview_notes(comparison, short, verbose=verbose)


def _short(comparison: Comparison) -> dict[str, str]:
    """The name of a system's line: its preset; the system's own name where it is of a file or comes twice."""
    metadata = [ledger.metadata for ledger in comparison.ledgers]
    sources = [one.source for one in metadata]
    lines = zip(comparison.names, metadata, strict=True)
    return {name: one.source if one.preset and sources.count(one.source) == 1 else name for name, one in lines}


def _overview_notes(comparison: Comparison, short: dict[str, str], *, verbose: bool) -> Iterator[TextLines]:
    """The counted N, agreement, notes (each once)."""
    searches: dict[str, list[str]] = {}
    for one in comparison.searches:
        where = search_text(one) if verbose else range_text(one).removeprefix("counted ")
        searches.setdefault(where, []).append(short[one.systems[1]])
    for where, names in searches.items():
        of_names = f" ({names_text(names)})" if len(searches) > 1 else ""
        yield line(f"fewer MACs: than {short[comparison.names[0]]} at the same N, counted {where}{of_names}", "dim")
    if any(_changes_back(comparison, name) for name in comparison.names):
        yield line("*: not at every larger N that was counted; json has the order at each", "dim")
    yield from compared_prediction_texts(comparison.by_name, short)
    yield from where_texts(comparison)
    yield from noise_texts(comparison)
    yield from _endnotes(comparison, short, verbose=verbose)


def _endnotes(comparison: Comparison, short: dict[str, str] | None = None, *, verbose: bool) -> Iterator[TextLines]:
    """How the accounts agree; notes, each once, with the names of its systems; the run; the convention.

    In an overview the names are `short`.
    """
    told: dict[str, list[str]] = {}
    for system, ledger in comparison.by_name.items():
        name = short[system] if short else system
        texts = [text for text in agreement_texts(ledger) if text.plain not in (COUNTED_ONLY, NOT_TRACED)]
        yield from (text._replace(texts=[f"{name}: {text.plain}"]) for text in texts)
        for note in ledger.metadata.notes:
            told.setdefault(note, []).append(name)
    yield from notes(default_notes(ledger.metadata for ledger in comparison.ledgers), verbose=verbose)
    yield from notes([f"{', '.join(names)}: {note}" for note, names in told.items()], verbose=verbose)
    yield from run_texts(comparison.ledgers[0])
    if short is None and any(figures["score_dot_products"] is not None for figures in comparison.figures.values()):
        scores = "query-key pairs: dot products QKᵀ of the first layer with scores, without special tokens"
        yield line(scores, "dim")
    yield line(CONVENTION, "dim")


def stage_parts(comparison: Comparison) -> Iterator[Part]:
    """Tokens, width and MACs by stage, where a system has several stages."""
    if all(len(ledger.metadata.stages) < 2 for ledger in comparison.ledgers):  # noqa: PLR2004 - one stage is no hierarchy
        return
    yield Gap()
    yield line("by stage: output tokens × width, share of MACs", "bold")
    columns = [_stages(ledger) for ledger in comparison.ledgers]
    rows = [
        [f"stage {number + 1}", *(cells[number] if number < len(cells) else "" for cells in columns)]
        for number in range(max(map(len, columns)))
    ]
    yield _system_table(comparison, rows)
    for name, ledger in comparison.by_name.items():
        if ledger.metadata.stages:  # a module has none
            yield line(f"  {name}: {shape_text(ledger)}")


def _stages(ledger: Ledger) -> list[str]:
    total = ledger.total("macs") or 0
    return [
        f"{Grid(tuple(stage['grid']), stage['extra_tokens']).total:,} × {stage['width']:,}"
        f"  {units.percent(stage['macs'], total)}"
        for stage in ledger.by_stage()
    ]


def shape_text(ledger: Ledger) -> str:
    """`isotropic, 196 tokens × 768 throughout`; `hierarchical, 3,136 → 49 tokens (64× fewer), 96 → 768 wide`."""
    stages = ledger.metadata.stages
    tokens, widths = [stage["tokens"] for stage in stages], [stage["width"] for stage in stages]
    if len({*zip(tokens, widths, strict=True)}) == 1:
        return f"isotropic, {tokens[0]:,} tokens × {widths[0]:,} throughout"
    fewer = f" ({units.ratio(tokens[0] / tokens[-1])} fewer)" if tokens[-1] < tokens[0] else ""
    wide = f"{widths[0]:,} → {widths[-1]:,} wide" if widths[0] != widths[-1] else f"{widths[0]:,} wide"
    return f"hierarchical, {tokens[0]:,} → {tokens[-1]:,} tokens{fewer}, {wide}"


def size_parts(comparison: Comparison) -> Iterator[Part]:
    """MACs and attention memory at growing image sizes, of systems that take images."""
    if not comparison.by_size:
        return
    yield Gap()
    yield line("by image size: MACs, attention memory of all layers (padding included)", "bold")
    rows = []
    sides = list(comparison.by_size[comparison.names[0]])
    for side in sides:
        every = [comparison.by_size[name][side] for name in comparison.names]
        cells = [
            f"{units.count(one['macs'])}  {units.size(one['attention_bytes'])}" if one else units.DASH for one in every
        ]
        rows.append([f"{side}×{side}", *cells])
    over = (_over(comparison.by_size[name], sides[-1], sides[0]) for name in comparison.names)
    yield _system_table(comparison, [*rows, [f"{sides[-1]} over {sides[0]}", *over]])


def _over(costs: dict[int, dict[str, int] | None], last: int, first: int) -> str:
    """How many times as much the largest image costs as the smallest."""
    small, large = costs[first], costs[last]
    if small is None or large is None:
        return units.DASH
    return "  ".join(
        units.ratio(large[quantity] / small[quantity], 3) if small[quantity] else units.DASH
        for quantity in ("macs", "attention_bytes")
    )


def _system_table(comparison: Comparison, rows: Sequence[Sequence[str]]) -> DataTable:
    names = (TableColumn(name, right=True, fold_head=12) for name in comparison.names)
    return DataTable([TableColumn(""), *names], rows)


def time_texts(comparison: Comparison) -> Iterator[TextLines]:
    """Where and how, then a line per system; nothing where none was timed."""
    timed = _timed(comparison)
    if not timed:
        return
    first, *others = timed
    yield from where_texts(comparison)
    width = max(map(len, timed))
    for name, timing in timed.items():
        against = f"; {ratio_text(comparison.time_ratios[name], first)}" if name in others else ""
        yield line(f"  {name:<{width}}  {units.seconds(timing.seconds)}, {spread_text(timing)}{against}")
    yield from noise_texts(comparison)


def where_texts(comparison: Comparison) -> Iterator[TextLines]:
    """The device, its machine and threads, and whether systems took turns; nothing where none was timed."""
    timings = list(_timed(comparison).values())
    if timings:
        turns = "in turns" if all(timing.in_turns for timing in timings) else "one after the other"
        yield line(f"on {where_text(timings[0])}, {turns}", head=f"time{lane_text(timings[0])}: ")


def _timed(comparison: Comparison) -> dict[str, Timing]:
    ledgers = comparison.by_name.items()
    return {name: ledger.timing for name, ledger in ledgers if ledger.timing is not None}


def noise_texts(comparison: Comparison) -> Iterator[TextLines]:
    """What disturbed the measurements, each once."""
    found: dict[str, list[str]] = {}
    for name, ledger in comparison.by_name.items():
        if ledger.timing is not None and ledger.timing.noisy:
            found.setdefault(ledger.timing.noisy, []).append(name)
    for noisy, names in found.items():
        of_names = f" ({', '.join(names)})" if len(names) < len(comparison.names) else ""
        yield line(f"noisy{of_names}: {noisy}", "bold yellow")


def ratio_text(found: TimeRatio, first: str) -> str:
    """`2.1× as fast as ViT (1.9× to 2.3×)`; that no difference from it is seen, or that it is not decided, and why."""
    low, high = found.between
    if found.interval is None:
        return f"fewer than 6 measurements, not decided: {_span(low, high)} of the time of {first}"
    if not found.seen:
        how = "noisy:" if found.noisy else f"{units.ratio(found.ratio, 3)}, 95 % interval"
        return f"no difference seen from {first} ({how} {units.ratio(low, 3)} to {units.ratio(high, 3)})"
    if found.noisy:
        return f"noisy, not decided: {_span(low, high)} of the time of {first}"
    word, ratio = "long", found.ratio
    if high < 1:
        word, ratio, low, high = "fast", 1 / found.ratio, 1 / high, 1 / low
    return f"{units.ratio(ratio, 3)} as {word} as {first} ({units.ratio(low, 3)} to {units.ratio(high, 3)})"


def _span(low: float, high: float) -> str:
    """`1.2× to 1.5×`, or one value where both are the same."""
    ends = dict.fromkeys((units.ratio(low, 3), units.ratio(high, 3)))
    return " to ".join(ends)


# ── in papers and for programs ───────────────────────────────────────────────────────────────────────────────────────


# Columns of a table that a page has room for, behind the names.
_MOST_FIGURES: Final = 5
# Of these times the first that was found is in a paper's table.
_TIMES: Final = ("seconds", "predicted_seconds", "estimated_seconds", "least_seconds")


def paper_table(comparison: Comparison) -> DataTable:
    """A row per system as papers print them: images that differ, N, parameters, and what answers the mode's question.

    Where columns are chosen, it has all that can be. A unit that all cells share is in the heading.
    """
    every = _paper_columns(comparison)
    shown = every if is_chosen() else _usual(comparison, every)
    columns = [TableColumn("model", named="Model")]
    cells = [list(comparison.names)]
    for one, texts in shown.items():
        unit, plain = _unit_apart(texts) if one.what == "figure" else ("", texts)
        named = f"{one.head[0].upper()}{one.head[1:]}{f' ({unit})' if unit else ''}"
        columns.append(TableColumn(one.head, right=True, key=_key(one), named=named))
        cells.append(plain)
    left_out = [_key(one) for one in every if one not in shown]
    return DataTable(columns, list(zip(*cells, strict=True)), left_out=left_out)


def _key(one: SystemColumn) -> str:
    """What `--columns` calls it."""
    return one.quantity if one.what in ("figure", "image") else f"{one.quantity}_{one.what}"


def _paper_columns(comparison: Comparison) -> dict[SystemColumn, list[str]]:
    """The image, every figure that is not zero throughout, ratios and growth -> the cells of the systems."""
    figures = [SystemColumn(quantity) for quantity in QUANTITIES]
    columns = [
        SystemColumn("image", what="image", title="image"),
        *figures,
        *(one for one in COLUMNS if one.what != "figure"),
    ]
    found = {one: [one.cell(comparison, name) for name in comparison.names] for one in columns}
    return {one: cells for one, cells in found.items() if set(cells) - {units.DASH, "0", "0 B"}}


def _usual(comparison: Comparison, every: Mapping[SystemColumn, list[str]]) -> dict[SystemColumn, list[str]]:
    """Those of a page's width."""
    figures = {one.quantity: one for one in every if one.what in ("figure", "image")}
    active = ["active_params"] if differs(comparison, "active_params") else []
    time = [name for name in _TIMES if name in figures][:1]
    asked = [name for name, _ in _QUESTIONS[comparison.ledgers[0].metadata.mode] if name != PAIRS]
    asked = [other for name in asked for other in ((name, "flops") if name == "macs" else (name,))]
    images = ["image"] if "image" in figures and len(set(every[figures["image"]])) > 1 else []
    wanted = [*images, "tokens", "params", *active, *time, *asked]
    first = [name for name in wanted if name in figures][:_MOST_FIGURES]
    return {one: every[one] for name, one in figures.items() if name in first}


def _unit_apart(cells: Sequence[str]) -> tuple[str, list[str]]:
    """`M` and `22.06`, `28.29` of `22.06 M`, `28.29 M`; no unit where cells have different ones."""
    found = {cell.partition(" ")[2] for cell in cells if cell not in (units.DASH, "0", "0 B")}
    unit = found.pop() if len(found) == 1 else ""
    return unit, [cell.removesuffix(f" {unit}" if unit else "") if cell != "0 B" else "0" for cell in cells]


def _records(comparison: Comparison) -> list[dict[str, Any]]:
    inputs = [
        {"system": name, "N": ledger.metadata.grid_tokens or None, "image": image_cell(ledger.metadata)}
        | {name: getattr(ledger.metadata, name) for name in ("batch", "dtype", "attention", "mode")}
        for name, ledger in comparison.by_name.items()
    ]
    on_devices = any(ledger.on for ledger in comparison.ledgers)
    plans = [None if ledger.training is None else ledger.training.plan for ledger in comparison.ledgers]
    reasons = [
        ({"no_time": ledger.no_time} if on_devices else {}) | ({} if plan is None else {"shortage": plan.shortage})
        for ledger, plan in zip(comparison.ledgers, plans, strict=True)
    ]
    return [
        row | comparison.figures[name] | reason | _timing_cells(ledger) | _ratio_cells(comparison, name)
        for name, row, ledger, reason in zip(comparison.names, inputs, comparison.ledgers, reasons, strict=True)
    ]


def _timing_cells(ledger: Ledger) -> dict[str, Any]:
    """Where and how well a system was timed; nothing where it wasn't."""
    timing = ledger.timing
    if timing is None:
        return {}
    low, high = timing.interval or (None, None)
    names = ("device", "machine", "threads", "compiled", "lane", "spread", "runs", "noisy")
    return {name: getattr(timing, name) for name in names} | {"seconds_low": low, "seconds_high": high}


def _ratio_cells(comparison: Comparison, name: str) -> dict[str, Any]:
    """The seconds relative to the first system's: empty for the first; nothing if one was not timed."""
    if not comparison.time_ratios:
        return {}
    found = comparison.time_ratios.get(name)
    low, high = (found and found.interval) or (None, None)
    ratio: dict[str, Any] = {"seconds_ratio": found and found.ratio}
    ratio |= {"seconds_ratio_low": low, "seconds_ratio_high": high}
    return ratio | {"in_turns": found and found.in_turns, "seconds_ratio_noisy": found and found.noisy}
