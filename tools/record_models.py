"""Writes `src/xfcost/models/NAME.counts.json`: what runs of a published model count, as forms in N and B.

    python tools/record_models.py qwen3-32b gemma-3-27b …     those; without names all that have no counts yet

The config stands beside, as `NAME.json`. Every mode is run on `meta` at five pairs of N and batch of each piece of N
(below a window, above it), which determine every number that varies, and check it: a form has at most three terms. A
sixth run, far from the others, must give the evaluated ledger. Ends of pieces are found by runs around the window.
How rows mix tokens is found from a small build of the class, narrow and of few layers; `--kinds` does that alone.
Models whose config a spec is made of need no counts, and get none.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import itertools
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from xfcost.api.systems import module_run, named_module
from xfcost.counting.recorded import RecordedCounts, filled, form_value, letters_at, placed
from xfcost.importing import loaded_config
from xfcost.ledger.errors import SpecError, UsageError, XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.module_rows import ALL
from xfcost.ledger.operation import Mixing
from xfcost.spec.models import config_of, models
from xfcost.spec.targets import ModuleTarget
from xfcost.torch_models.any_model.inputs import Lengths, text_tokens
from xfcost.torch_models.any_model.ledger import How
from xfcost.torch_models.any_model.run import cache_parameter
from xfcost.torch_models.any_model.targets import NamedModule
from xfcost.torch_models.shared.environment import collector_paused

MODES: Final = ("decode", "prefill", "forward")
Point = tuple[int, int]
"""(N, batch)"""
LedgerAt = Callable[[int, int], Ledger]

_NUMBER: Final = re.compile(r"\d{1,3}(?:,\d{3})+|\d+")
_LAYERS: Final = re.compile(r"(?:[^\W\d]\w*\.)+(?:\*|\d[\d,:-]*)(?=\.)")
_MOST_TERMS: Final = 3
# N of a piece without end, beyond its first; of one that ends, shares of its length. The last is the check.
_OPEN: Final = (0, 1021, 30011, 2085, 50021)
_SHARES: Final = (Fraction(0), Fraction(3, 7), Fraction(6, 7), Fraction(2, 7), Fraction(5, 7))
# With these batches: experts are chosen by few tokens and by many.
_BATCHES: Final = (1, 3, 64, 150, 11)
_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERTS_OF_A_TOKEN: Final = ("num_experts_per_tok", "top_k_experts", "moe_topk")
# Tokens that a decoder behind an encoder of images or speech is given.
_DECODED: Final = 512
# Tokens of a chunk of the gated delta rule in transformers.
_CHUNK: Final = 64
# Fields of an attention's window or chunk in configs.
_WINDOWS: Final = ("sliding_window", "attention_chunk_size", "index_topk")
# N so near to a window are each run; between windows that are less far apart nothing is fitted.
_NEAR: Final = 2
_SHORT: Final = 16


class UnfitError(Exception):
    """No form of few terms passes through the numbers, or the rows differ."""


# ── a ledger as plain data, and its numbers as forms ──


# Metadata that are the list's, or those of the versions with which it was recorded.
_OF_THE_LIST = ("versions", "source", "paper", "published")
# Of rows, what is made of the others.
_NAMES = ("title", "symbol", "role")


def plain(ledger: Ledger) -> dict[str, Any]:
    """A ledger without what evaluation gives it: defaults, names of a path and of the list, versions, the step."""
    rows = []
    for row in ledger.rows:
        usual = placed(row.path)
        values = _plain(row)
        if ran := values.get("ran"):
            values["ran"] = [ran.pop(name) for name in ("aten", "input_shapes", "output_shapes")]
            own = {name: value for name, value in ran.items() if name not in ("adds", "adds_to")}
            values["ran"] += [own] if own else []
        if row.stage == ledger.metadata.name:  # operations of the model itself, in no module
            usual |= {"stage": row.stage, "block": row.block}
        rows.append({k: v for k, v in values.items() if usual.get(k) != v and k not in _NAMES})
    values = _plain(msgspec.structs.replace(ledger, rows=(), step=None))
    values["metadata"] = {k: v for k, v in values["metadata"].items() if k not in _OF_THE_LIST}
    values["metadata"]["batch"] = ledger.metadata.batch  # also where it is 1
    return values | {"rows": rows}


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        pairs = ((name, getattr(value, name), default) for name, default in _defaults(type(value)).items())
        return {name: _plain(one) for name, one, default in pairs if one != default}
    return msgspec.to_builtins(value)


@cache
def _defaults(of: type[msgspec.Struct]) -> dict[str, Any]:
    """Field -> its default; NODEFAULT of one that has none."""
    names, given = of.__struct_fields__, of.__struct_defaults__
    given = (msgspec.NODEFAULT,) * (len(names) - len(given)) + given
    needed = {name: None for name, default in zip(names, given, strict=True) if default is msgspec.NODEFAULT}
    made = of(**needed)
    return {name: msgspec.NODEFAULT if name in needed else getattr(made, name) for name in names}


def with_forms(ledgers: Mapping[Point, Any], fit: Forms) -> Any:
    """One plain ledger whose numbers are forms where they vary."""
    first, *others = values = list(ledgers.values())
    if all(other == first for other in others):
        return first
    if isinstance(first, dict):
        ledgers = _with_defaults(ledgers)
        first, *others = ledgers.values()
        if any(other.keys() != first.keys() for other in others):
            raise UnfitError(f"fields {sorted(first.keys() ^ others[-1].keys())}")
        return {key: with_forms({at: one[key] for at, one in ledgers.items()}, fit) for key in first}
    if isinstance(first, list | tuple):
        if any(len(other) != len(first) for other in others):
            raise UnfitError(f"lists of {sorted({len(one) for one in values})}")
        return [with_forms({at: one[place] for at, one in ledgers.items()}, fit) for place in range(len(first))]
    if type(first) is int:
        return f"«{fit.form(ledgers)}»"
    if not isinstance(first, str) or len({_NUMBER.sub("", one) for one in values}) > 1:
        raise UnfitError(f"values {values}")
    found = {at: list(_NUMBER.finditer(one)) for at, one in ledgers.items()}
    text, end = "", 0
    for place, hole in enumerate(found[next(iter(ledgers))]):
        here = {at: int(all_[place][0].replace(",", "")) for at, all_ in found.items()}
        text, end = text + first[end : hole.start()], hole.end()
        commas = ":," if text.endswith("N = ") else ":"
        text += hole[0] if len(set(here.values())) == 1 else f"«{fit.form(here)}{commas}»"
    return text + first[end:]


def _with_defaults(rows: Mapping[Point, dict[str, Any]]) -> dict[Point, dict[str, Any]]:
    """One row at all points, each with the fields that it has at some: a table that is all read, a single call."""
    some_read = any("weights_read" in row for row in rows.values())
    several = len({len(row.get("ran", ())) for row in rows.values()}) > 1

    def whole(row: dict[str, Any]) -> dict[str, Any]:
        if some_read and "weights_read" not in row:
            row = row | {"weights_read": {"elements": row.get("params", 0), "at_most": row.get("params", 0)}}
        if several:
            *texts, more = row["ran"] if isinstance(row["ran"][-1], dict) else (*row["ran"], {})
            row = row | {"ran": [*texts, {"calls": 1, **more}]}
        return row

    return {at: whole(row) for at, row in rows.items()}


class Letters(NamedTuple):
    """What forms may have beside N and B."""

    chunks: Mapping[str, int]
    logs: Mapping[str, str]
    caps: Mapping[str, tuple[str, int]]


class Forms:
    """The forms of few terms through numbers at some points."""

    def __init__(self, points: Sequence[Point], letters: Letters) -> None:
        self.points, chunks = list(points), letters.chunks
        lengths = ["", "N", "N^2", *chunks, *(f"{one}^2" for one in chunks), *(f"N*{one}" for one in chunks)]
        lengths += [f"{one}P" for one in chunks]
        names = [f"{one}*{batch}".strip("*") for one in lengths for batch in ("B", "")]
        names += [name for one in letters.logs for name in (f"{one}*B", f"{one}*N*B")]
        names += [f"{one}*N^2*B" for one, form in letters.logs.items() if form == "N"]
        names += [*letters.caps, "B^2"]
        at = [letters_at(*point, *letters) for point in self.points]
        self.terms = {name or "1": [form_value(name or "1", one) for one in at] for name in names}
        self.known: dict[tuple[int, ...], str] = {}

    def form(self, numbers: Mapping[Point, int]) -> str:
        """The form with the fewest terms; an UnfitError where none has few enough."""
        key = tuple(numbers[at] for at in self.points)
        if key not in self.known:
            sizes = range(1, _MOST_TERMS + 1)
            subsets = itertools.chain.from_iterable(itertools.combinations(self.terms, size) for size in sizes)
            self.known[key] = next((text for one in subsets if (text := self._through(one, key))), "")
        if not self.known[key]:
            raise UnfitError(f"no form through {dict(zip(self.points, key, strict=True))}")
        return self.known[key]

    def _through(self, names: Sequence[str], numbers: Sequence[int]) -> str | None:
        columns = [self.terms[name] for name in names]
        rows = [[Fraction(column[place]) for column in columns] + [Fraction(number)]
                for place, number in enumerate(numbers)]  # fmt: skip
        for place in range(len(names)):  # Gauss; what is left of the rows below must be 0
            pivot = next((row for row in rows[place:] if row[place]), None)
            if pivot is None:
                return None
            rows.remove(pivot)
            rows.insert(place, [one / pivot[place] for one in pivot])
            for other in (*range(place), *range(place + 1, len(rows))):
                factor = rows[other][place]
                if factor:
                    rows[other] = [a - factor * b for a, b in zip(rows[other], rows[place], strict=True)]
        if any(any(row) for row in rows[len(names) :]):
            return None
        parts = [(rows[place][-1], name) for place, name in enumerate(names)]
        if any(not number or number.denominator not in (1, 2) for number, _ in parts):
            return None
        texts = (f"{'+' * (number > 0)}{number}*{name}".removesuffix("*1") for number, name in parts)
        return re.sub(r"(^|[+-])1\*", r"\1", "".join(texts).removeprefix("+"))


# ── the pieces of a mode ──


def pieces(
    at: LedgerAt, first: int, windows: Sequence[int], letters: Letters, batches: Sequence[int] = _BATCHES,
    last: int | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """The pieces from N = `first` to `last`: fitted between the windows, then held against the N at their ends."""
    short = max((window for window in windows if window <= first + _SHORT), default=first)
    found = [piece(at, first, short - 1, letters, batches)] if short > first else []
    first = max(first, short)
    inside = (window for window in windows if window > first + _SHORT)
    ends = sorted({window for window in inside if last is None or window < last - _SHORT})
    starts = [first, *(end + _NEAR for end in ends)]
    fitted = [piece(at, start, end - _NEAR, letters, batches) for start, end in zip(starts, ends, strict=False)]
    fitted.append(piece(at, starts[-1], last, letters, batches))
    found.append(fitted[0])
    for end, upper in zip(ends, fitted[1:], strict=True):
        for tokens in range(end - _NEAR + 1, end + _NEAR):
            if _is_at(found[-1], at, tokens, batches[-1]):
                found[-1]["last"] = tokens
            elif _is_at(upper, at, tokens, batches[-1]):
                upper["first"] = min(upper["first"], tokens)
            else:
                single = piece(at, tokens, tokens, letters, batches)
                for other in (found[-1], upper):
                    single["rows"] = _as_in(other, single, single["points"])
                found.append(single)
        lower = found[-1]
        if upper["first"] == lower["last"] + 1 and all(
            _is_at(upper, at, *point) for point in lower["points"]
        ):  # a window makes no difference
            upper["first"] = found.pop()["first"]
        found.append(upper)
    return found


def _pieces_by_batch(
    at: LedgerAt, first: int, windows: Sequence[int], letters: Letters, last: int | None, *, alone: bool
) -> list[dict[str, Any]]:  # fmt: skip
    """The pieces of every batch; where a single sample runs something else (or `alone` says so) its own beside."""
    if not alone:
        with suppress(UnfitError):
            return pieces(at, first, windows, letters, last=last)
    single = pieces(at, first, windows, letters, (1,) * len(_BATCHES), last)
    several = pieces(at, first, windows, letters, (2, *_BATCHES[1:]), last)
    for one, other in itertools.product(single, several):
        one["rows"] = _as_in(other, one, one["points"])
    return [one | {"batches": (1, 1)} for one in single] + [one | {"batches": (2, None)} for one in several]


def _as_in(other: Mapping[str, Any], own: Mapping[str, Any], points: Sequence[Point]) -> list[dict[str, Any]]:
    """The rows of a piece, those of another in their place where these are the same at some points."""
    if len(other["rows"]) != len(own["rows"]):
        return list(own["rows"])
    at = [letters_at(*point, own["chunks"], own["logs"], own["caps"]) for point in points]

    def values(row: dict[str, Any]) -> list[str]:
        return [filled(json.dumps(row, ensure_ascii=False), letters) for letters in at]

    pairs = zip(other["rows"], own["rows"], strict=True)
    return [theirs if values(theirs) == values(ours) else ours for theirs, ours in pairs]


def piece(at: LedgerAt, first: int, last: int | None, letters: Letters, batches: Sequence[int]) -> dict[str, Any]:
    """One piece, its forms checked at a further point, and where chunks are full."""
    beyond = _OPEN if last is None else [round((last - first) * share) for share in _SHARES]
    points = [(first + tokens, batch) for tokens, batch in zip(beyond, batches, strict=True)]
    *points, check = points
    forms = with_forms({point: plain(at(*point)) for point in points}, Forms(points, letters))
    made = {"first": first, "last": last, **letters._asdict(), "rows": forms.pop("rows"), "ledger": forms,
            "points": points}  # fmt: skip
    full = [(size * 3, batches[-1]) for size in letters.chunks.values() if first <= size * 3 <= (last or size * 3)]
    for tokens, batch in (check, *full):
        if not _is_at(made, at, tokens, batch):
            raise UnfitError(f"the forms don't hold at N = {tokens:,}, batch {batch}")
    return made


def _is_at(made: Mapping[str, Any], at: LedgerAt, tokens: int, batch: int) -> bool:
    """Are the counts those of the forms?"""
    mode = made["ledger"]["metadata"].get("mode", "forward")
    file = shared_rows({"tokens": tokens, "modes": {mode: [made | {"first": 0, "last": None}]}})
    evaluated = msgspec.json.decode(msgspec.json.encode(file), type=RecordedCounts).ledger(mode, tokens, batch)
    return same(evaluated, at(tokens, batch))


def shared_rows(file: Mapping[str, Any]) -> dict[str, Any]:
    """A file of counts whose pieces have the places of their rows, each of which stands in it once."""
    places: dict[str, int] = {}

    def without(made: Mapping[str, Any]) -> dict[str, Any]:
        texts = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in made["rows"]]
        kept = {name: value for name, value in made.items() if name != "points"}
        return {**kept, "rows": _ranges([places.setdefault(text, len(places)) for text in texts])}

    modes = {mode: [without(one) for one in found] for mode, found in file["modes"].items()}
    return {**file, "modes": modes, "rows": [msgspec.Raw(text.encode()) for text in places]}


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    starts = [place for place, one in enumerate(numbers) if not place or one != numbers[place - 1] + 1]
    return [(numbers[start], numbers[end - 1] + 1) for start, end in itertools.pairwise([*starts, len(numbers)])]


def same(evaluated: Ledger, counted: Ledger) -> bool:
    """Are they the same but for the versions of libraries and the name?"""
    ours, theirs = (plain(one) | {"step": one.step} for one in (evaluated, counted))
    for one in (ours, theirs):
        del one["metadata"]["name"]
        # which call is the first may follow the order of a set (kinds of layers of Gemma 4)
        one["rows"] = [
            row | {"ran": row["ran"][0]} if "(first call)" in str(row.get("ran")) else row for row in one["rows"]
        ]
        for row in one["rows"]:  # of a small build
            row.pop("mixing", None)
            row.pop("content_dependent", None)
    return bool(ours == theirs)


# ── how rows mix tokens ──

# Fields of configs, and what a small build has in their place, or less.
_SMALL: Final[dict[str, int]] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd"), 64),
    **dict.fromkeys((
        "intermediate_size", "intermediate_size_mlp", "moe_intermediate_size", "shared_expert_intermediate_size",
        "encoder_ffn_dim", "decoder_ffn_dim", "q_lora_rank", "kv_lora_rank", "linear_key_head_dim",
        "linear_value_head_dim",
    ), 32),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), 128),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "local_attention", "index_topk", "rotary_dim"), 16),
    **dict.fromkeys(_EXPERTS, 8),
    **dict.fromkeys((
        *_EXPERTS_OF_A_TOKEN, "n_group", "linear_num_key_heads", "num_key_value_heads", "num_global_key_value_heads",
    ), 2),
    **dict.fromkeys((
        "num_attention_heads", "encoder_attention_heads", "decoder_attention_heads", "linear_num_value_heads",
        "index_n_heads", "n_head",
    ), 4),
    "topk_group": 1,
}  # fmt: skip
_DEPTHS: Final = ("num_hidden_layers", "encoder_layers", "decoder_layers", "max_window_layers", "n_layer")
_LOOKED_AT: Final = 96
# Three runs of it have as many chunks, and more.
_LOOKED_AT_IN_CHUNKS: Final = 288
# Of layers that a row stands for while no window is full, the widest decides.
_WIDENING: Final[tuple[Mixing, ...]] = ("per-token", "local", "global")
Kinds = Mapping[tuple[str, int, str], tuple[Mixing, bool]]
"""A row of one layer (the path before it, its number, the path behind) -> its kind, and whether content decides."""


def small(values: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """The config of a small build: heads as wide as before, fewer of them; layers of the same kinds, the first ones."""
    heads, layers = values.get("num_attention_heads"), next((values[one] for one in _DEPTHS if one in values), None)
    made: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            made[name] = small(value, depth)
        elif isinstance(value, list) and len(value) == layers:
            made[name] = value[:depth]
        elif type(value) is int and name in (*_SMALL, *_DEPTHS):
            made[name] = min(value, _SMALL.get(name, depth))
        else:
            made[name] = 0 if name.endswith("token_id") else value
    if heads is not None and heads == values.get("num_key_value_heads", heads):
        made["num_key_value_heads"] = made["num_attention_heads"]
    if "num_key_value_heads" in values:
        made.setdefault("head_dim", values["hidden_size"] // heads)
    return made | ({"pad_token_id": 0} if "vocab_size" in values else {})


def _split(path: str) -> tuple[str, str, str]:
    """`model.layers`, `0-2`, `.mlp.mm`."""
    found = _LAYERS.match(path)
    if found is None:
        return path, "", ""
    before, _, layers = found[0].rpartition(".")
    return before, layers, path[found.end() :]


def _members(layers: str, depth: int) -> list[int]:
    """`3-47:4` of the first few layers."""
    if layers in ("", ALL):
        return list(range(depth)) if layers else [0]
    found: list[int] = []
    for part in layers.split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return [one for one in found if one < depth]


@cache
def kinds_of(config: str, mode: str, depth: int) -> Kinds:
    """The kinds of the rows of a small build of a config, its text, by layer; none where it does not run."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(config, encoding="utf-8")
        run = module_run({"mode": mode}, "config")
        module = named_module(ModuleTarget("config", str(path), "", "small"), (), (), 1, run)
        how = How(trace=False, closed_form=False, mode=mode, mixing=inf)
        tokens = (
            _LOOKED_AT_IN_CHUNKS if "linear_attention" in config else min(_LOOKED_AT, module.positions or _LOOKED_AT)
        )
        try:
            ledger = module.ledger(Lengths(text_tokens(_model_of(module), Lengths(tokens))), how)
        except XfcostError as error:
            print(f"no kinds in the mode {mode}: {error}", file=sys.stderr)
            return {}
    found = {}
    for row in ledger.rows:
        before, layers, behind = _split(row.path)
        found.update({(before, one, behind): (row.mixing, row.content_dependent) for one in _members(layers, depth)})
    return found


def with_kinds(modes: Mapping[str, Sequence[dict[str, Any]]], config: Path) -> None:
    """Give the rows of pieces their kinds, where these are not `per-token`."""
    rows = []
    for mode, found in modes.items():
        for one in found:
            one["rows"] = [dict(row) for row in one["rows"]]
            rows += [(mode, one["last"] is None, row, *_split(row["path"])) for row in one["rows"]]
    depth = max(2, *(_members(layers, sys.maxsize)[0] + 1 for *_, layers, _ in rows if layers not in ("", ALL)), 0)
    text = json.dumps(small(json.loads(config.read_text(encoding="utf-8")), depth), sort_keys=True)
    kinds = {mode: kinds_of(text, mode, depth) for mode in modes}
    missing = dict[str, None]()
    for mode, is_open, row, before, layers, behind in rows:
        of_layers = [kinds[mode].get((before, one, behind)) for one in _members(layers, depth)]
        known = [one for one in of_layers if one is not None and one[0] != "unknown"]
        if row.get("macs") and len(known) < len(of_layers):
            missing[row["path"]] = None
        several = len({one[0] for one in known}) > 1
        # among layers that run alike with windows and without, however many tokens there are
        mixing, by_content = max(known, key=lambda one: _WIDENING.index(one[0]), default=("unknown", False))
        mixing = "unknown" if several and is_open else mixing
        for name, value, usual in (("mixing", mixing, "per-token"), ("content_dependent", by_content, False)):
            row.pop(name, None)
            row.update({name: value} if value != usual else {})
    if missing:
        print(f"{config.stem}: the kinds of {', '.join(missing)} are not known", file=sys.stderr)


def stored(file: Path) -> dict[str, Any]:
    """A file of counts with the rows of each piece in place."""
    text = file.read_text(encoding="utf-8")
    for place, layers in enumerate(json.loads(text)["layers"]):
        text = text.replace(f"\xab#{place}\xbb", layers)
    values = json.loads(text)
    for one in itertools.chain.from_iterable(values["modes"].values()):
        places = itertools.chain.from_iterable(range(*ends) for ends in one["rows"])
        one["rows"] = [copy.deepcopy(values["rows"][place]) for place in places]
    return values


# ── a model ──


def runs_of(config: Path) -> tuple[Callable[[str], LedgerAt], NamedModule]:
    """Mode -> its ledgers, without the activations of a run, which no polynomial gives; and the model."""

    def of_mode(mode: str) -> LedgerAt:
        run = module_run({"mode": mode}, "config")
        module = named_module(ModuleTarget("config", str(config), "", config.stem), (), (), 1, run)
        how, known = How(trace=False, closed_form=False, mode=mode), dict[Point, Ledger]()

        def at(tokens: int, batch: int) -> Ledger:
            if (tokens, batch) not in known:
                with collector_paused():
                    ledger = module.with_samples(batch).ledger(Lengths(tokens or None), how)
                known[tokens, batch] = msgspec.structs.replace(ledger, activations=None)
            return known[tokens, batch]

        return at

    run = module_run({}, "config")
    module = named_module(ModuleTarget("config", str(config), "", config.stem), (), (), 1, run)
    return of_mode, module


def _model_of(module: NamedModule) -> Any:
    return module._model("meta", Lengths())[0]  # noqa: SLF001 - no counts are needed to know it


def sizes_of(model: Any, positions: int | None) -> tuple[int, int, int | None, bool]:
    """N where none is given (0: of images alone), its least and most (None: without end), and whether it generates."""
    takes = inspect.signature(model.forward).parameters
    generates = cache_parameter(model) is not None
    tokens = text_tokens(model, Lengths()) or (
        min(_DECODED, positions or _DECODED) if "decoder_input_ids" in takes else 0
    )
    learned = any("position" in name and one.shape[0] == positions for name, one in model.named_parameters())
    last = 0 if not tokens else positions if learned else None
    return tokens, min(tokens, 2), last, generates


def numbers_of(values: Any, names: Collection[str]) -> Iterator[int]:
    """Every number of a config under one of these names."""
    for key, value in values.items() if isinstance(values, dict) else ():
        if key in names and type(value) is int:
            yield value
        yield from numbers_of(value, names)


def counts(config: Path, modes: Sequence[str] = MODES) -> dict[str, Any]:
    """The file of counts of a config; the rows of its pieces have no kinds."""
    of_mode, module = runs_of(config)
    tokens, first, last, generates = sizes_of(_model_of(module), module.positions)
    values, found = json.loads(config.read_text(encoding="utf-8")), {}
    windows, experts = list(numbers_of(values, _WINDOWS)), set(numbers_of(values, _EXPERTS_OF_A_TOKEN))
    windows += [window // 2 for window in numbers_of(values, ("local_attention",))]  # to both sides
    for mode in modes if generates else ("forward",):
        sorted_ = "B" if mode == "decode" else "B*N"
        logs = {letter: f"{number}*{sorted_}" for letter, number in zip("LM", sorted(experts), strict=False)}
        chunked = "linear_attention" in (values.get("layer_types") or ()) and mode != "decode"
        chunks = {"C": _CHUNK} if chunked else {}
        if mode != "forward":  # that is eager in float32, and a mask leaves its pairs out
            chunks |= dict(zip("K", numbers_of(values, ("attention_chunk_size",)), strict=False))
        kernels = numbers_of(values, ("linear_conv_kernel_dim",)) if chunked else ()  # fewer tokens are padded
        most = max(numbers_of(values, _EXPERTS), default=0)
        caps = {letter: (form, most) for letter, form in zip("XY", logs.values(), strict=False)}
        if mode != "decode":
            for words in numbers_of(values, ("vocab_size",)):
                caps["V"] = ("B*N", words)
        for positions in numbers_of(values, ("max_target_positions",)):  # a table of them is looked up
            caps["T"] = (sorted_, positions)
        if any(numbers_of(values, ("index_topk",))):  # all tokens are sorted, to choose some
            logs["S"] = "N"
        letters = Letters(chunks, logs, caps)
        at = of_mode(mode)
        try:
            alone = bool(experts) and mode == "decode"
            found[mode] = _pieces_by_batch(at, first, [*windows, *kernels], letters, last, alone=alone)
        except (UnfitError, UsageError) as error:
            print(f"{config.stem}: no counts in the mode {mode}: {error}", file=sys.stderr)
    sizes = {"tokens": tokens, "positions": module.positions, "heads": msgspec.to_builtins(module.heads, str_keys=True)}
    return {**sizes, "modes": found}


def written(file: Mapping[str, Any]) -> str:
    """The file as text, with a line for each row and piece; a group of layers stands in it once."""
    text = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # noqa: E731 - one line
    sizes = "".join(f'"{name}":{text(file[name])},\n' for name in ("tokens", "positions", "heads"))
    file = shared_rows(file)
    lines = ",\n"
    modes = lines.join(f'"{mode}":[{lines.join(map(text, found))}]' for mode, found in file["modes"].items())
    rows = lines.join(bytes(row).decode() for row in file["rows"])
    layers = list(dict.fromkeys(_LAYERS.findall(rows)))
    rows = _LAYERS.sub(lambda found: f"\xab#{layers.index(found[0])}\xbb", rows)
    return f'{{{sizes}"layers":{text(layers)},\n"modes":{{\n{modes}}},\n"rows":[\n{rows}]}}\n'


def main() -> None:
    """Write the files of the models that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--modes", default=",".join(MODES), help="only these; the others stay as they are")
    parser.add_argument("--kinds", action="store_true")
    asked = parser.parse_args()
    for name in asked.names or models():
        config = config_of(name)
        file = config.with_suffix(".counts.json")
        try:
            loaded_config(config)
        except SpecError:
            pass
        else:
            print(f"{name}: a spec is made of its config", file=sys.stderr)
            continue
        if file.is_file() and not asked.names:
            continue
        began = perf_counter()
        known = stored(file) if file.is_file() else {"modes": {}}
        found = known if asked.kinds else counts(config, asked.modes.split(","))
        found["modes"] = known["modes"] | found["modes"]
        with_kinds(found["modes"], config)
        file.write_text(written(found), encoding="utf-8")
        print(f"{name}: {file.stat().st_size:,} bytes, {perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
