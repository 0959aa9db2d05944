"""Laws of totals: what holds of every ledger, at random systems, sizes and modes, whatever its mechanisms are.

Systems are the presets, the published models, a spec around every example of every mechanism, and random decoders.
"""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

import xfcost
from cases import CASES
from helpers import report_text, table_of
from strategies import as_yaml, spec_of, stack
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.load import preset_names
from xfcost.spec.models import models
from xfcost.systems.published import published_system

COUNTS = ("params", "active_params", "macs", "flops", "attention_entries", "comparisons", "moved", "cached")
CACHED = ("prefill", "decode", "generate")
FORMATS = st.sampled_from([None, "int8", "fp8", "int4", "mxfp4"])
DEVICE = "h100-sxm"
SMALL = st.integers(1, 6)


def examined(examples):
    """The same examples on every machine, however slow; the first that fails is short enough."""
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        max_examples=examples,
    )


# Systems ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def decoders(draw):
    """Grouped queries, over all tokens or a window; a gated MLP, or experts."""
    groups, heads_of_group, width = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3])), 2 * draw(SMALL)
    span = draw(st.sampled_from([{"kind": "full"}, {"kind": "sliding", "window": draw(st.integers(1, 20))}]))
    heads = {"heads": groups * heads_of_group, "kv_heads": groups, "head_dim": width, "causal": True}
    mlp = {"kind": "swiglu", "hidden": 8 * draw(SMALL)}
    experts = draw(st.integers(2, 12))
    several = {"kind": "moe", "experts": experts, "active": draw(st.integers(1, experts)), "expert": mlp}
    block = (span | heads, draw(st.sampled_from([mlp, several])))
    sizes = {"dim": 4 * draw(SMALL), "depth": 4 * draw(SMALL), "vocabulary": 12 * draw(SMALL)}
    return stack(*block, length=4096, head={"kind": "language_model"}, **sizes)


EXAMPLES = [spec_of(one) for kind in MECHANISMS.values() for one in CASES[kind].examples]
SYSTEMS = st.one_of(
    st.sampled_from(preset_names()), st.sampled_from(list(models())), st.sampled_from(EXAMPLES), decoders()
)


class Questions:
    """Asks the same of one system again and again."""

    def __init__(self, system: str | dict[str, Any], folder: Path) -> None:
        self.system = system if isinstance(system, str) else str(folder / "system.yaml")
        if not isinstance(system, str):
            Path(self.system).write_text(as_yaml({"name": "a system"} | system), encoding="utf-8")
        found = published_system(system) if isinstance(system, str) and system in models() else None
        stored = set(found.counts.modes) if found else {"forward", "prefill", "decode", "train"}
        self.modes = sorted(stored | ({"generate"} if "decode" in stored else set()))

    def __call__(self, **options: Any) -> Ledger:
        """Its ledger; what it can't be is another example's question."""
        if options.get("mode") == "generate":
            options = {"new_tokens": 5} | options
        try:
            return xfcost.analyze(self.system, trace=False, **options)
        except XfcostError:
            reject()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laws")


def sums(ledger):
    return {name: sum((getattr(row, name) or 0) * row.times for row in ledger.rows) for name in COUNTS}


def grows(less, more, names=COUNTS):
    below, above = sums(less), sums(more)
    assert {name: below[name] for name in names if below[name] > above[name]} == {}


# Laws ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@examined(60)
@given(system=SYSTEMS, data=st.data())
def test_counts_are_of_parts_and_grow_with_the_batch(system, data, folder):
    ask = Questions(system, folder)
    mode, batch, more = data.draw(st.sampled_from(ask.modes)), data.draw(SMALL), data.draw(SMALL)
    one, other = ask(mode=mode, batch=batch), ask(mode=mode, batch=batch + more)
    for row in one.rows:
        assert all(type(value) is int and value >= 0 for value in (getattr(row, name) for name in COUNTS))
        assert row.active_params + row.idle_params == row.params
    totals = sums(one)
    assert totals == {name: one.total(name) for name in COUNTS}
    by_kind = [one.part(rows) for rows in one.by("mixing").values()]
    assert totals == {name: sum(part.total(name) for part in by_kind) for name in COUNTS}
    assert 0 <= totals["active_params"] <= totals["params"]
    assert 2 * totals["macs"] <= totals["flops"]
    grows(one, other)
    assert all(totals[name] == sums(other)[name] for name in ("params", "active_params"))
    for ledger in (one, other):
        memory = ledger.attention_memory()
        assert memory["peak"] >= 0
        if ledger.cache is not None:
            assert 0 <= ledger.cache.recurrent_bytes <= ledger.cache.bytes
            assert ledger.cache.bytes == ledger.cached_bytes or not ledger.cached_bytes
    if one.cache is not None and other.cache is not None:
        assert one.cache.bytes * (batch + more) == other.cache.bytes * batch
        assert one.cache.bytes_per_token == other.cache.bytes_per_token


@examined(25)
@given(system=SYSTEMS, data=st.data())
def test_costs_grow_with_n(system, data, folder):
    if re.search("factorized.dense", str(system)):
        reject()  # its weights follow the factors of N: 1 and 41, but 3 and 19 of 57
    ask = Questions(system, folder)
    mode = data.draw(st.sampled_from(ask.modes))
    n = data.draw(st.integers(2, 100))
    other = n + data.draw(st.integers(1, 300))
    one, more = ask(mode=mode, N=n), ask(mode=mode, N=other)
    # an index of fewer tokens may be longer, and chunks that are full have less to read
    grows(one, more, ("params", "macs", "flops"))
    for ledger in (one, more):
        if (cache := ledger.cache) is not None:
            length = ledger.metadata.grid_tokens + ledger.metadata.extra_tokens
            length += 4 * (mode == "generate")  # the last of five tokens is not read
            assert cache.bytes == length * cache.bytes_per_token + cache.state_bytes
    assert (one.cache.bytes if one.cache else 0) <= (more.cache.bytes if more.cache else 0)


@examined(20)
@given(system=SYSTEMS, data=st.data())
def test_a_generation_is_its_prompt_and_its_steps(system, data, folder):
    ask = Questions(system, folder)
    n, batch, new = data.draw(st.integers(2, 60)), data.draw(SMALL), data.draw(SMALL)
    whole = ask(mode="generate", N=n, batch=batch, new_tokens=new)
    if whole.generation is None or whole.generation.with_cache is None or len(whole.metadata.streams) > 1:
        reject()  # it is written anew for every token, or N is the length of another text too
    prompt = ask(mode="prefill", N=n, batch=batch)
    steps = [ask(mode="decode", N=n + number, batch=batch) for number in range(1, new)]
    for name in ("params", "active_params"):
        assert sums(whole)[name] == sums(prompt)[name]
    for name in ("macs", "flops", "comparisons", "moved"):
        assert sums(whole)[name] == sums(prompt)[name] + sum(sums(step)[name] for step in steps)
    assert whole.generation.with_cache.macs == sums(whole)["macs"]
    last = (steps or [prompt])[-1]
    assert (whole.cache and whole.cache.bytes) == (last.cache and last.cache.bytes)


@examined(25)
@given(system=SYSTEMS, data=st.data())
def test_fewer_bits_are_fewer_bytes_and_no_more_time(system, data, folder):
    ask = Questions(system, folder)
    mode = data.draw(st.sampled_from([mode for mode in ask.modes if mode != "train"]))
    run = {"mode": mode, "on": DEVICE, "batch": data.draw(SMALL)}
    formats = [{"cache": "fp8"}, {"cache": "int8"}, {"weights": "int8"}, {"weights": "fp8"}] if mode in CACHED else []
    plain, *fewer = (ask(**run, **one) for one in ({}, *formats))
    for less in fewer:
        assert less.on.memory.needed <= plain.on.memory.needed
        assert less.on.time.bytes <= plain.on.time.bytes
        assert less.on.time.flops == plain.on.time.flops
        assert less.on.seconds <= plain.on.seconds
        assert sums(less) == sums(plain)
    if fewer and plain.cache is not None and plain.cache.bytes == plain.cache.recurrent_bytes:
        assert fewer[0].on.time == fewer[1].on.time == plain.on.time  # a state has no format


@examined(15)
@given(spec=decoders(), data=st.data())
def test_devices_hold_and_read_no_less_than_the_whole(spec, data, folder):
    ask = Questions(spec, folder)
    t, p, replicas = (data.draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    count = t * p * replicas
    e = data.draw(st.sampled_from([number for number in (1, 2, 3, 4) if (count // p) % number == 0]))
    modes = ("forward", "prefill", "decode", "generate")
    run = {"mode": data.draw(st.sampled_from(modes)), "N": data.draw(st.integers(2, 60)), "batch": data.draw(SMALL)}
    run |= {"attention": data.draw(st.sampled_from(["eager", "fused"])), "weights": data.draw(FORMATS)}
    degrees = {"tensor_parallel": t, "pipeline": p, "expert_parallel": e}
    shared, whole = ask(**run, on=f"{DEVICE}x{count}", **degrees).on, ask(**run, on=f"{DEVICE}x{count}").on
    # of every replica the weights, and its part of the samples
    assert shared.memory.weights * count >= whole.memory.weights * max(1, replicas // (e if e > t else 1))
    assert shared.memory.cache * count >= whole.memory.cache
    assert shared.memory.attention * t * replicas >= whole.memory.attention
    for part, perfect in zip(shared.parts, whole.parts, strict=True):
        assert part.bytes >= perfect.bytes
        assert part.flops >= perfect.flops
        assert part.seconds >= perfect.seconds * (1 - 1e-9)
    if count == 1:
        assert (shared.memory.needed, shared.time.bytes) == (whole.memory.needed, whole.time.bytes)


# Formats ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(value):
    """Four significant digits, as reports print counts: 9999, 10.00 k, 1.235 M."""
    if value < 10_000:
        return str(value)
    for power, prefix in enumerate("kMGTPEZ", 1):
        digits = f"{value / 1000**power:#.4g}"
        if float(digits) < 1000:
            return f"{digits} {prefix}"
    raise AssertionError(value)


def cells(line, separator):
    return [cell for cell in re.split(separator, line.strip("| ")) if cell]


@examined(12)
@given(system=SYSTEMS, data=st.data())
def test_every_format_has_the_same_figures(system, data, folder):
    ask = Questions(system, folder)
    ledger = ask(mode=data.draw(st.sampled_from(ask.modes)), batch=data.draw(SMALL))
    totals = sums(ledger)
    found, lines = json.loads(report_text(ledger, "json")), table_of(report_text(ledger, "csv"))
    for name in COUNTS:
        assert found["totals"][name] == totals[name]
        assert sum(int(line[name]) * int(line["times"]) for line in lines) == totals[name]
        assert sum(one[name] * one["times"] for one in found["operations"]) == totals[name]
        assert sum(one[name] or 0 for one in found["by_mixing"].values()) == totals[name]
    for one, line in zip(found["operations"], lines, strict=True):
        assert {name: "" if one[name] is None else str(one[name]) for name in one} == {name: line[name] for name in one}
    # rows of Markdown are those of CSV
    markdown = [
        cells(line, r" *\| *") for line in report_text(ledger, "markdown").splitlines() if line.startswith("| ")
    ]
    heading = next(one for one in markdown if {"times", "params", "MACs"} <= set(one))
    rows = markdown[markdown.index(heading) + 1 :][: len(lines)]
    for row, line in zip(rows, lines, strict=True):
        for column, name in {"times": "times", "params": "params", "MACs": "macs", "FLOPs": "flops"}.items():
            if column in heading:
                assert row[heading.index(column)] == (line[name] if name == "times" else shown(int(line[name])))
    # the total of a terminal and of a notebook
    page = html.unescape(re.sub(r"<[^>]*>", "", ledger._repr_html_() or ""))
    for text in (report_text(ledger), page):
        (total,) = re.findall(r"^all  .*$", text, re.MULTILINE)
        heading = next(cells(line, "  +") for line in text.splitlines() if line.startswith("totals by mixing kind"))
        row = dict(zip(heading, cells(total, "  +"), strict=True))
        expected = {"params": totals["params"], "MACs": totals["macs"], "FLOPs": totals["flops"]}
        assert {name: row[name] for name in expected} == {name: shown(value) for name, value in expected.items()}
