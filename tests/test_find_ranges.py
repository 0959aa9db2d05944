"""`xfcost find SPEC --vary`: every configuration costs what counting it alone says; spaces, samples, progress."""

import json
import math
import random
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xfcost
from helpers import found_memory, least_macs, screen_of
from xfcost.counting.forward import count
from xfcost.ledger.budgets import inference_memory, read_budgets
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.least_work import weight_bytes
from xfcost.questions.find import search, selection
from xfcost.questions.find.costs import Costs, model_costs
from xfcost.questions.find.progress import SearchTime
from xfcost.questions.find.result import Question
from xfcost.questions.find.search import FindProgress, Varied, find_in_ranges, value_text
from xfcost.questions.find.text import document
from xfcost.questions.find.variables import Variable, VariedSpec, read_variables
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem

NOT_COSTS = ("extends", "set", "published", "survey", "name", "paper", "notes", "kind")


def leaves(value, path=()):
    """The words and numbers of a spec's data, with their paths."""
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            if path or step not in NOT_COSTS:
                yield from leaves(item, (*path, step))
    elif isinstance(value, bool | int | str) and path[-1] != "kind":
        yield path, value


def near(value, draw):
    """Other values of a key: valid ones, and some that aren't."""
    if isinstance(value, bool):
        return (True, False)
    if isinstance(value, int):
        return tuple(dict.fromkeys([value, max(value // 2, 0), 2 * value, value + 1, draw.choice([0, 1, 3, 8, 64])]))
    return (value, draw.choice(["layer_norm", "none", "rms_norm", "gelu", "mean"]))


def some_variables(name, draw):
    """A few keys of a spec with a few values each, some with wildcards; never two that set the same place."""
    every = list(leaves(load(name).data))
    every += 3 * [one for one in every if one[0][-1] in ("dim", "depth", "heads", "size", "repeat")]
    found = {}
    for path, value in draw.sample(every, min(len(every), draw.randint(1, 4))):
        starred = draw.random() < 0.3
        key = ".".join("*" if starred and isinstance(step, int) and draw.random() < 0.6 else str(step) for step in path)
        found[key] = Variable(key, near(value, draw))
    return tuple(found.values())


def alone(name, texts, run):
    """The costs of one configuration by the ledger; None where it is refused."""
    try:
        ledger = count(place(load(name, texts), run), orders=False)
    except XfcostError:
        return None
    memory = inference_memory(ledger)
    sums = (ledger.total(one) or 0 for one in ("params", "macs", "flops"))
    cache = ledger.cached_bytes, ledger.unread_cache_bytes
    return Costs(*sums, memory.weights, *cache, memory.attention, least_macs(ledger), 0, 0, weight_bytes(ledger))


def check(name, variables, run, draw, number=6):
    """Configurations drawn from the space, one after another in the same data, are those that are counted alone."""
    spec = VariedSpec(load(name), {}, {one.key: one.values[0] for one in variables})
    for _ in range(number):
        values = {one.key: draw.choice(one.values) for one in variables}
        texts = [f"{key}={json.dumps(value)}" for key, value in values.items()]
        counted = None
        with suppress(XfcostError):
            counted = model_costs(spec.at(values), run)
        assert counted == alone(name, texts, run), texts


RUNS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["forward", "forward", "decode"]),
        "batch": st.sampled_from([1, 3]),
        "attention": st.sampled_from([None, "eager", "fused"]),
        "tokens": st.sampled_from([None, None, (64,)]),
        "dtype": st.sampled_from([None, "float32", "bfloat16"]),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(preset_names()), st.randoms(use_true_random=False), RUNS)
def test_every_configuration_costs_what_counting_it_alone_says(name, draw, run):
    variables = some_variables(name, draw)
    with suppress(UsageError):  # a wildcard that leads nowhere, or two keys of one place
        check(name, variables, Run(**run), draw)


GIVEN = {
    "swin-t": [
        "stages.each.dim=[96,192,384,768],[64,128,256,512],[100,200,400,800]",
        "stages.2.depth=1:18:3",
        "stages.*.pattern.*.0.size=7,8",
        "stages.0.pattern.*.1.ratio=2,3,4",
    ],
    "vit": ["stages.0.dim=192,384,768", "stages.0.depth=1:24", "**.heads=3,4,6,12", "embed.0.size=8,14,16"],
    "mobilenetv2-1.0": ["stages.1.dim=24,32,40", "stages.2.blocks.1.repeat=2,3,4"],
    "gpt2": ["stages.0.dim=768,1024,1000", "**.heads=8,12,16", "input.vocabulary=1000,50257"],
    "t5-small": [
        "decoder.stages.0.dim=512,640",
        "encoder.stages.0.dim=512,640",
        "encoder.stages.0.blocks.0.repeat=2:6",
    ],
    "seq2seq-lstm": ["decoder.stages.0.dim=1000,500", "encoder.stages.0.dim=1000,500", "**.depth=2,4"],
    "funnel-base": ["**.heads=12,16", "stages.0.dim=768,512"],
    "mvit-b-16": ["stages.0.blocks.0.0.kv_stride=2,4", "stages.1.blocks.0.0.q_stride=1,2", "input.size=224,256"],
    "rnnsearch": ["decoder.stages.0.dim=1000,500", "encoder.stages.0.dim=1000,500"],
    "longformer-base-4096": ["stages.0.block.0.window=64,100,512", "stages.0.depth=1:6"],
    "mixtral-8x7b": ["stages.0.depth=1:6", "stages.0.block.1.experts=8,16", "**.active=1,2"],
    "reformer-enwik8": ["stages.0.depth=1:6", "stages.0.dim=512,1024"],
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("mode", ["forward", "decode"])
def test_chosen_spaces(name, mode):
    draw = random.Random(name)  # noqa: S311 - no secret
    check(name, read_variables(GIVEN[name]), Run(mode=mode, batch=2), draw, 25)


def test_tables_that_are_shared_must_agree():
    # the tied embedding of GPT-2 is in both places, and counts once
    found = xfcost.find("gpt2", vary={"input.vocabulary": [1000, 2000]}, descending=False)
    small, large = (row.figures["params"] for row in found.rows)
    assert large - small == 1000 * 768


def test_blocks_that_a_short_depth_cuts_off_cost_nothing_and_refuse_nothing():
    second = "stages.0.pattern.1.0"
    found = xfcost.find("swin-t", vary={"stages.0.depth": [1, 2], f"{second}.size": [7, 28]}, sort="attention_bytes")
    for row in found.rows:
        texts = [f"{key}={value}" for key, value in zip(found.keys, row.values, strict=True)]
        ledger = xfcost.analyze("swin-t", settings=texts, trace=False)
        assert row.figures["attention_bytes"] == inference_memory(ledger).attention
    assert found.rows[0].figures["attention_bytes"] < found.rows[-1].figures["attention_bytes"]
    refused = xfcost.find("swin-t", vary={"stages.0.depth": [1, 2], f"{second}.heads": [5]})
    assert [row.values for row in refused.rows] == [(1, 5)]
    # a block that is no block at all is refused, cut off or not
    assert xfcost.find("swin-t", vary={"stages.0.depth": [1, 2], f"{second}.headz": [5]}).refused == 2


# MACs of each part stay below 2⁶³ and their sum doesn't; then parameters do, and their bytes don't.
@pytest.mark.parametrize("options", [{"N": 1024, "batch": 2**20}, {"N": 7}, {"N": 2, "dtype": "float64"}])
def test_what_passes_int64_is_exact(options):
    vary = {"stages.0.dim": [2**20], "stages.0.depth": [100_000], "**.heads": [16]}
    row = xfcost.find("gpt2", vary=vary, **options).rows[0]
    texts = ["stages.0.dim=1048576", "stages.0.depth=100000", "**.heads=16"]
    ledger = xfcost.analyze("gpt2", settings=texts, trace=False, **options)
    assert row.figures["macs"] == ledger.total("macs")
    assert row.figures["memory"] == inference_memory(ledger).total
    assert max(row.figures.values()) > 2**63


def test_lists_and_blocks_are_values_too():
    vary = {"stages.0.block": [[{"kind": "mlp"}], [{"kind": "full", "heads": 6}, {"kind": "mlp"}]]}
    found = xfcost.find("vit", vary=vary | {"stages.0.depth": [1, 2]}, sort="macs")
    assert found.space == found.fits == 4
    assert [row.values[1] for row in found.rows] == [1, 2, 1, 2]
    by_text = xfcost.find("vit", vary=["input.size=[32,64],[64,64]"])
    assert by_text.fits == 2


def test_a_key_that_leads_nowhere_in_some_lists_refuses_these():
    blocks = [[{"kind": "full", "heads": 6}, {"kind": "mlp"}], [{"kind": "mlp"}]]
    found = xfcost.find("vit", vary={"**.heads": [6, 3], "stages.0.block": blocks, "stages.0.depth": [1, 2]})
    assert (found.fits, found.refused) == (4, 4)
    assert found.left_out[0].reason == "--vary **.heads: nothing in the spec is at **.heads"
    assert blocks[0][0]["heads"] == 6  # the caller's list is as it was
    with pytest.raises(UsageError, match=r"--vary \*\*\.heads: nothing in the spec"):
        xfcost.find("vit", vary={"**.heads": [3, 6], "stages.0.block": blocks[1:]})


def test_a_key_inside_another_is_written_first():
    vary = {"residual.layer_scale": [0.1, 1e-6], "residual": ["none"]}
    found = xfcost.find("vit", vary=vary)
    (without,) = xfcost.find("vit", vary={"residual": ["none"]}).rows
    assert [row.figures for row in found.rows] == [without.figures] * 2


def test_refusals_are_counted_with_their_reasons():
    found = xfcost.find("vit", vary={"**.heads": [5, 6, 7], "stages.0.depth": [0, 1]})
    assert (found.searched, found.fits, found.refused) == (6, 1, 5)
    reasons = {one.reason: one.count for one in found.left_out}
    assert reasons["stages[0].block[0].heads: 5 does not divide the width 384; it could be 1, 2, 3, 4, 6, 8, 12, 16, …"]
    assert any(reason.startswith("stages[0].depth: expected a whole number of at least 1, got 0") for reason in reasons)
    broken = xfcost.find("vit", vary={"stages.0.block": [[{"kind": "windw"}], [{"kind": "mlp"}]]})
    assert (broken.fits, broken.refused) == (1, 1)


def test_a_sample_is_always_the_same_and_of_the_space():
    vary = ["stages.0.dim=64:640:64", "stages.0.depth=1:24", "**.ratio=1:8"]
    one, other = (xfcost.find("vit", vary=vary, limit=200, max_macs="3G") for _ in range(2))
    assert one.rows == other.rows
    assert (one.searched, one.space) == (200, 10 * 24 * 8)
    assert one.fits + one.refused + one.left_out[0].count == 200
    whole = xfcost.find("vit", vary=vary, limit=10**6, max_macs="3G")
    assert whole.searched == whole.space
    assert len({row.name for row in one.rows}) == len(one.rows)


def test_other_processes_and_chunks_find_the_same(monkeypatch):
    opened = lambda name, batch: SpecSystem(load(name))  # noqa: E731 - one line
    varied = Varied(("vit",), read_variables(["stages.0.depth=1:24", "**.ratio=1:8", "**.heads=3,5,6"]), opened)
    question = Question(read_budgets({"macs": "3G", "memory": "90MiB"}), "memory", descending=False, top=1000)
    every = find_in_ranges(varied, Run(), question)
    in_order = sorted(every.rows, key=lambda row: row.values)
    assert every.cloud == tuple((row.figures["params"], row.figures["macs"]) for row in in_order)
    monkeypatch.setattr(selection, "_DRAWN", 7)
    question = question._replace(top=5)
    whole = find_in_ranges(varied, Run(), question)
    assert len(whole.cloud) == 7
    assert set(whole.cloud) < set(every.cloud)
    monkeypatch.setattr(search, "_CHUNK", 37)
    seen = []
    parts = find_in_ranges(
        varied, Run(), question, progress=FindProgress(done=lambda done, total: seen.append((done, total)))
    )
    assert parts == whole
    assert seen[-1] == (576, 576)
    assert len(seen) == math.ceil(576 / 37)
    backwards = find_in_ranges(varied, Run(), question, mapper=lambda work, chunks: map(work, reversed(list(chunks))))
    assert backwards == whole


def test_processes():
    vary = ["stages.0.depth=1:24", "**.ratio=1:8"]
    assert xfcost.find("vit", vary=vary, jobs=2) == xfcost.find("vit", vary=vary)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2:8:2", (2, 4, 6, 8)),
        ("1:3", (1, 2, 3)),
        ("2:9:3", (2, 5, 8)),
        ("1:2:0.5", (1.0, 1.5, 2.0)),
        ("96,2:4,7", (96, 2, 3, 4, 7)),
        ("true,none,layer_norm", (True, "none", "layer_norm")),
        ("[1,2],[3,4]", ([1, 2], [3, 4])),
        ("4,4", (4,)),
    ],
)
def test_values_are_read(text, values):
    assert read_variables([f"stages.0.dim={text}"]) == (Variable("stages.0.dim", values),)


def test_keys_that_do_not_fit_the_terminal_are_one_column():
    found = xfcost.find("swin-t", vary=GIVEN["swin-t"], top=1)
    values = " · ".join(map(value_text, found.rows[0].values))
    narrow, wide = (screen_of(document(found), width) for width in (70, 100))
    assert any(f" {values}  " in line for line in narrow)
    assert "values: dim · depth · size · ratio" in narrow
    assert any(line.split()[:4] == ["dim", "depth", "size", "ratio"] for line in wide)


@pytest.mark.parametrize(
    ("times", "done", "of", "told"),
    [
        ((0.0, 1.0, 3.0, 5.0), (100, 200, 300), 1_000_000, ["about 5.6 h left (50 configurations per second)"]),
        ((0.0, 1.0, 1.1), (50, 100), 100, []),
    ],
)
def test_a_long_search_says_how_long_and_a_short_one_nothing(times, done, of, told):
    said, clock = [], iter(times)
    expected = SearchTime(said.append, lambda: next(clock), None)
    for number in done:
        expected.done(number, of)
    assert said == told


# Dense in bfloat16; a preset; experts in MXFP4; FP8, whose products are faster; INT4; windows, whose keys are fewer.
LISTED = ("qwen3-0.6b", "llama3-8b", "llama-3.1-8b", "gpt-oss-120b", "deepseek-r1", "kimi-k2-thinking", "gemma-3-4b")


@pytest.mark.parametrize("mode", ["forward", "prefill", "decode"])
@pytest.mark.parametrize("weights", [None, "none", "int8"])
def test_weights_are_stored_as_analyze_says(mode, weights):
    given = {"mode": mode, "weights": weights, "N": 4096, "batch": 2, "on": "h100-sxmx64"}
    found = xfcost.find(*LISTED, **given)
    ranges = xfcost.find(*LISTED, **{**given, "N": None}, vary={"N": [4096]})
    assert {one.name for one in found.rows} == {row.values[0] for row in ranges.rows} == set(LISTED)
    ranged = {row.values[0]: row.figures for row in ranges.rows}
    for row in found.rows:
        own = xfcost.analyze(row.name, trace=False, **given)
        assert row.figures == ranged[row.name]
        assert row.figures["weight_bytes"] == own.on.memory.weights == own.held_bytes
        assert row.figures["memory"] == found_memory(own.on.memory)
        assert row.figures["seconds"] == pytest.approx(own.on.seconds, rel=1e-12)
        assert found.weights.get(row.name) == own.metadata.weight_format
    assert (len(found.weights) in (0, 7)) == (weights is not None)


@pytest.mark.parametrize("name", ["qwen3-0.6b", "llama3-8b", "llama-3.1-8b"])
def test_lengths_and_batches_are_those_of_analyze(name):
    given = {"mode": "decode", "on": "h100-sxm"}
    found = xfcost.find(name, vary=["N=2k,64k", "batch=1,5,32"], sort="seconds", **given)
    assert (found.searched, found.keys) == (6, ("N", "batch"))
    (memory,) = found.left_out
    assert found.fits + memory.count == 6
    for row in found.rows:
        tokens, batch = row.values
        own = xfcost.analyze(name, N=tokens, batch=batch, **given)
        assert row.figures["macs"] == own.total("macs")
        assert row.figures["cache_bytes"] == own.cache.bytes
        assert row.figures["memory"] == found_memory(own.on.memory)
        assert row.figures["seconds"] == pytest.approx(own.on.seconds)
    seconds = [row.figures["seconds"] for row in found.rows]
    assert seconds == sorted(seconds)


def test_lengths_of_several_models_and_a_key_of_a_spec():
    several = xfcost.find("qwen3-0.6b", "gpt2", vary={"N": [8, "1k"]}, mode="decode")
    assert {row.values for row in several.rows} == {(one, N) for one in ("qwen3-0.6b", "gpt2") for N in (8, 1000)}
    assert several.keys == ("preset", "N")
    # ViT-S/8: 12 or 6 layers of 12·384² products of each of 785 tokens, and of scores and values
    found = xfcost.find("vit", vary=["stages.0.depth=6,12", "batch=1,3"])
    macs = {row.values: row.figures["macs"] for row in found.rows}
    assert macs[12, 3] == 3 * macs[12, 1]
    assert macs[12, 1] - macs[6, 1] == 6 * (785 * 12 * 384**2 + 2 * 785**2 * 384)
    prefills = xfcost.find("gpt2", vary=["N=100,200"], mode="prefill")
    assert [row.figures["cache_bytes"] for row in prefills.rows] == [2 * 12 * 768 * 2 * N for N in (100, 200)]
