"""Image sizes: --size, costs as images grow, stages side by side, and weights that are bound to the input's size."""

import json
import math
from collections.abc import Iterable

import pytest

import xfcost
from helpers import report_text, table_of
from specs import counted
from strategies import exact
from tiers import of_distinct_presets
from xfcost.api.runs import make_run
from xfcost.comparing.sweep import PIXELS, default_span, size_list, sweep
from xfcost.counting.forward import count
from xfcost.counting.system import CURVES
from xfcost.ledger.errors import SpecError, UsageError, XfcostError
from xfcost.ledger.operation import KINDS, Operation
from xfcost.questions.report.sizes import BY_KIND, OWN_OPERATIONS, TOTAL, counted_sizes
from xfcost.spec.inputs import image_size_for_grid
from xfcost.spec.load import Loaded, load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.systems.spec import SpecSystem


def test_a_size_is_the_image_s_height_and_width():
    # 224/4 × 320/4
    assert xfcost.analyze("swin-t", size="224x320", trace=False).metadata.tokens == "4,480 (56×80)"
    for given in (384, "384", (384, 384), "384x384"):
        ledger = xfcost.analyze("vit-b16", size=given, trace=False)
        assert ledger.metadata.tokens == "576 (24×24) + 1"
        assert ledger.total("macs") == counted("vit-b16-384").total("macs")


@pytest.mark.parametrize("given", [0, -1, True, 2.5, "a", "224x", "1x2x3", 2**17, ()])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(UsageError, match="expected the image's side in pixels"):
        xfcost.analyze("vit", size=given, trace=False)


def test_a_traced_model_of_another_size_agrees():
    ledger = xfcost.analyze("swin-t", size=(224, 320))
    exact(ledger)


def test_the_input_for_a_grid():
    assert image_size_for_grid(load("vit-b16"), Run(), (14, 20)) == (224, 320)
    assert image_size_for_grid(load("swin-t"), Run(), (1, 1)) == (4, 4)


def test_a_sweep_over_sizes_takes_images_that_patches_tile():
    one = sweep("ViT", SpecSystem(load("vit-b14")), Run(), (200, 1000), [384, 518], PIXELS)
    assert (one.xs[0], one.xs[-1]) == (210, 994)
    assert all(x % 14 == 0 for x in one.xs)
    assert 518 in one.xs  # 37·14, which was asked for; 384 is no multiple of 14
    assert 384 not in one.xs
    assert [ledger.metadata.grid_tokens for ledger in one.ledgers] == [(x // 14) ** 2 for x in one.xs]


def test_systems_that_take_images_stand_beside_each_other_at_usual_sizes():
    found = xfcost.compare("vit-b16", "swin-b", "vit-b14")
    assert list(found.by_size["ViT-B/16"]) == [224, 384, 512, 1024]
    for side, name in ((224, "vit-b16"), (384, "vit-b16-384")):
        at = found.by_size["ViT-B/16"][side]
        assert at is not None
        assert at["macs"] == counted(name).total("macs")
    assert found.by_size["ViT-B/14"][512] is None  # 14 · 36.6
    assert xfcost.compare("vit-b16", "gpt2").by_size == {}
    assert json.loads(found.to_json())["by_size"]["Swin-B"]["224"]["tokens"] == 3136


@pytest.mark.parametrize("name", of_distinct_presets())
def test_weights_are_bound_to_the_input_s_size_where_they_say_so(name):
    """A row whose parameters differ at another size is marked, and a marked one differs at some size."""
    loaded = load(name)
    here = {row.path: row for row in count(place(loaded, Run())).rows}
    # Larger inputs, for a smaller one may clip a window that nothing clips here; smaller ones where tables are full.
    larger, smaller = (_differing(loaded, here, scales) for scales in (((2, 1), (3, 1), (3, 2)), ((1, 2),)))
    differing = smaller if larger is None else larger
    if differing is not None:
        assert differing == {path for path, row in here.items() if row.bound}


def _differing(loaded: Loaded, here: dict[str, Operation], scales: Iterable[tuple[int, int]]) -> set[str] | None:
    """Rows with other parameters at another size; None where no size fits."""
    found: set[str] | None = None
    for scale in scales:
        try:
            there = {row.path: row.params for row in count(place(loaded, Run(scale=scale))).rows}
        except XfcostError:  # a learned position table is full, or a side can't be halved
            continue
        found = (found or set()) | {path for path, row in here.items() if there.get(path, 0) != row.params}
    return found


def test_a_rebuilt_model_says_so():
    own = xfcost.analyze("vit-b16", trace=False)
    assert own.bound_params == 197 * 768
    assert not any("rebuilt" in note for note in own.metadata.notes)
    other = xfcost.analyze("vit-b16", N=784, trace=False)
    assert json.loads(other.to_json())["totals"]["bound_params"] == 785 * 768
    swin = xfcost.analyze("swin-t", size=448, trace=False)  # windows cover no map here either
    assert not any("rebuilt" in note for note in swin.metadata.notes)


def test_systems_with_tokens_of_other_sizes_cross_at_equal_images():
    # ViT-Ti/16 costs 1.25 G at 224, Swin-S 8.74 G; global attention overtakes windows as images grow.
    found = xfcost.compare("vit-s16", "swin-t")
    crossings = {one["quantity"]: one for one in found.size_crossovers}
    side = crossings["mixing_macs"]["size"]
    below, above = (
        [counted(name, size=(at, at)).total("macs", lambda row: row.mixes) or 0 for name in ("vit-s16", "swin-t")]
        for at in (side - 16, side)
    )
    assert below[0] < below[1]
    assert above[0] > above[1]
    assert xfcost.compare("vit-s16", "vit-b16").size_crossovers == ()  # N says the same


# The costs at every N of a page's slider, and the closed forms of totals ─────────────────────────────────────────────


# preset: the form of its MACs at its own N, and does it hold at every N of the default range?
BY_HAND = {
    "vit-s8": ("9,216·N² + 21,325,824·N + 21,626,880", True),
    "llama3-8b": ("262,144·N² + 7,504,658,432·N", True),
    "swin-t": ("min(7, s)", True),  # padded windows: ⌈s/min(7, s)⌉
    "gpt2": ("18,432·N² + 123,532,032·N", False),  # beyond 1,024 positions there is none
    "transformer-base": ("18,432·N² + 62,984,192·N", True),
    "mvit-b-16": ("7,680·⌊(s − 1)/4⌋⁴", True),  # convolutions with a stride
    "bigbird-base": ("⌈N/64⌉", False),  # few tokens: other operations
    "common-routing": (None, False),  # √N clusters
    "axial-transformer-imagenet64": (None, False),
}


def found(name, **options):
    system, run = SpecSystem(load(name, ())), make_run(**options)
    own = system.ledger(run)
    tokens = size_list([system], run, [own.metadata.grid_tokens], default_span([own.metadata.grid_tokens]))
    return system, run, tokens, counted_sizes(system, run, tokens, own, tokens.index(own.metadata.grid_tokens))


def ledger_at(system, run, n):
    try:
        return system.ledger(run._replace(tokens=(n,)))
    except (SpecError, UsageError):
        return None


@pytest.mark.parametrize("name", ["hyena-125m", "swinv2-t-w8-256", "deepseek-v2-lite"])
def test_sums_without_rows_are_those_of_the_rows_of_a_batch(name):
    # Hyena's filters and the biases of Swin V2 are computed once for all samples
    run, system = make_run(batch=3), SpecSystem(load(name))
    ledger = system.ledger(run)
    assert any(row.once and row.macs for row in ledger.rows) is (name != "deepseek-v2-lite")
    assert system.costs(run)[1] == {quantity: curve(ledger) for quantity, curve in CURVES.items()}


@pytest.mark.parametrize("name", BY_HAND)
def test_at_every_n_the_figures_are_those_of_a_ledger_there(name):
    system, run, tokens, sizes = found(name)
    assert len(tokens) > 40
    paths = {row.path for row in system.ledger(run).rows}
    for position in range(0, len(tokens), 7):
        ledger = ledger_at(system, run, tokens[position])
        totals = {quantity: sizes.figures[TOTAL, quantity][position] for quantity in CURVES}
        if ledger is None:
            assert set(totals.values()) == {None}
            continue
        assert totals == {quantity: curve(ledger) for quantity, curve in CURVES.items()}
        for kind in KINDS:
            for quantity in BY_KIND:
                counted = ledger.total(quantity, lambda row, kind=kind: row.mixing == kind)
                assert sizes.figures[kind, quantity][position] == (counted or 0)
        same = {row.path: row.mixing for row in ledger.rows}.keys() == paths and sizes.figures[OWN_OPERATIONS][position]
        for row in ledger.rows if same else ():
            if row.macs:
                assert sizes.figures[row.path, "macs"][position] == row.macs * row.times


@pytest.mark.parametrize(("name", "expected"), BY_HAND.items(), ids=BY_HAND)
def test_a_total_has_the_form_of_its_formulas_where_that_gives_the_count(name, expected):
    _, _, tokens, sizes = found(name)
    (text, everywhere), form = expected, sizes.forms.get("macs")
    assert (form is None) == (text is None)
    if form is not None:
        assert text in form.text
        assert ((form.first, form.last) == (0, len(tokens) - 1)) == everywhere


def test_a_form_ends_where_a_divisor_is_zero():
    # BigBird's inner blocks, ⌈N/64⌉ − 3, divide a size; at 192 tokens there are none
    system, run = SpecSystem(load("bigbird-base", ())), make_run(N=1024)
    tokens = [64, 128, 192, 256, 1024, 2048]
    sizes = counted_sizes(system, run, tokens, system.ledger(run), tokens.index(1024))
    totals = [sizes.figures[TOTAL, "macs"][place] for place in range(len(tokens))]
    assert totals == [ledger_at(system, run, n).total("macs") for n in tokens]


def test_where_other_operations_run_the_totals_stand_and_the_operations_do_not():
    system, run, tokens, sizes = found("bigbird-base")
    others = [place for place in range(len(tokens)) if sizes.figures[OWN_OPERATIONS][place] == 0]
    assert others
    scores = next(row.path for row in system.ledger(run).rows if row.macs)
    assert {sizes.figures[scores, "macs"][place] for place in others} == {None}
    assert None not in {sizes.figures[TOTAL, "macs"][place] for place in others}


def test_a_decode_step_has_forms_too():
    system, run, tokens, sizes = found("llama3-8b", mode="decode")
    assert sizes.forms["cache_bytes"].text == "131,072·N"
    ledger = system.ledger(run._replace(tokens=(tokens[-1],)))
    assert sizes.figures[TOTAL, "cache_bytes"][-1] == ledger.cached_bytes


def test_images_have_square_grids_and_texts_round_lengths():
    _, _, tokens, _ = found("vit-s8")
    assert tokens == [side * side for side in range(7, 225)]
    _, _, tokens, _ = found("llama3-8b")
    assert {512, 8192, 524_288} <= set(tokens)
    assert all(n % 32 == 0 for n in tokens)
    both = [SpecSystem(load(name, ())) for name in ("vit-s8", "gpt2")]
    listed = size_list(both, make_run(), [784, 1000], (100, 2000))
    assert 1000 in listed
    assert all(math.isqrt(n) ** 2 == n for n in listed if n != 1000)


# Every report says which image a system sees and where they differ; figures in print stand beside what they are of


def test_the_image_is_that_of_the_run() -> None:
    assert xfcost.analyze("vit", trace=False).metadata.image == (224, 224)
    assert xfcost.analyze("vit", N=196, trace=False).metadata.image == (112, 112)
    assert xfcost.analyze("swin-t", size="224x320", trace=False).metadata.image == (224, 320)
    # 16 frames of 224×224, of which N = 8·28² takes half the side
    assert xfcost.analyze("mvit-b-16x4", trace=False).metadata.image == (16, 224, 224)
    assert xfcost.analyze("mvit-b-16x4", N=8 * 28 * 28, trace=False).metadata.image == (16, 112, 112)
    assert xfcost.analyze("gpt2", trace=False).metadata.image is None


def test_a_comparison_at_one_n_says_that_images_differ() -> None:
    comparison = xfcost.compare("vit", "swin", N=784)
    rows = table_of(report_text(comparison, "csv"))
    assert [row["image"] for row in rows] == ["224x224", "112x112"]
    assert [one["image"] for one in json.loads(comparison.to_json())["systems"]] == [[224, 224], [112, 112]]


def test_figures_in_print_are_of_one_sample_and_one_forward() -> None:
    # Published MACs are per image; eight of them are no +698 %.
    assert xfcost.analyze("swin-t", trace=False).published_beside_ours()
    batch = xfcost.analyze("swin-t", batch=8, trace=False)
    assert batch.published_beside_ours() == []
    assert batch.metadata.published_left_out > 0
    for mode, stays in {"forward": True, "train": True, "prefill": False, "decode": False}.items():
        told = xfcost.analyze("llama2-7b", mode=mode, trace=False).published_beside_ours()  # type: ignore[arg-type]
        assert bool(told) is stays, mode
