"""How far information travels: worked out by hand, and the engine's representations against plain sets."""

from typing import Any

import numpy as np
import pytest

import xfcost
from reaching import composed, small
from strategies import stack, stored
from xfcost.counting.reach import composed as composing
from xfcost.counting.reach import reached
from xfcost.counting.reach.composed import reach
from xfcost.counting.reach.reached import DependenceSets, Intervals, along_axes, part_reads, read_sets
from xfcost.counting.reach.result import Reach
from xfcost.formulas.component import tag_of
from xfcost.ledger.errors import UsageError
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def figures(found: Reach, count: int) -> list[tuple[str, int, float, int]]:
    return [(step.label, step.met[0].smallest, step.met[0].median, step.met[0].largest) for step in found.steps[:count]]


def test_swin_relays_from_window_to_shifted_window_to_merged_patches():
    found = xfcost.reach("swin-t")
    assert figures(found, 5) == [
        ("stage 1 · block 1", 49, 49.0, 49),  # a 7×7 window
        ("stage 1 · block 2", 49, 196.0, 196),  # a shifted one touches four of them; at a corner it is one of its own
        ("stage 2 · enter", 49, 196.0, 441),  # 2×2 tokens of up to four shifted windows: 21×21
        ("stage 2 · block 1", 441, 588.0, 784),  # a window is 14×14 of the first stage's tokens, and what they have met
        ("stage 2 · block 2", 441, 1225.0, 1764),
    ]
    assert (found.path_length, len(found.blocks)) == (7, 12)
    assert found.receptive_field is None  # a window is not around its token


@pytest.mark.parametrize(("preset", "field"), [("resnet-50", 427), ("resnet-50-v1", 483), ("resnet-18", 435)])
def test_the_receptive_field_of_a_residual_network(preset: str, field: int):
    # 1 + Σ (kernel - 1)·jump; of ResNet-50 7×7 and 3×3 in the stem, then 3, 4, 6 and 3 of 3×3, a stage's first at the
    # jump of the stage before where its stride is on the 3×3 (torchvision), at its own where it is on the 1×1
    stem = 1 + 6 + 2 * 2
    before = {"resnet-50": (4, 4, 8, 16), "resnet-50-v1": (4, 8, 16, 32)}.get(preset)
    if before:
        jumps = zip((3, 4, 6, 3), before, (4, 8, 16, 32), strict=True)
        assert stem + sum(2 * (first + (blocks - 1) * own) for blocks, first, own in jumps) == field
    found = xfcost.reach(preset, size=1024)
    assert (found.receptive_field, found.inputs[0].unit) == ((field, field), "pixel")
    # a large image shows the whole field
    assert (found.steps[-1].met[0].largest, found.path_length) == (field**2, None)


def test_the_receptive_field_of_convnext_counts_the_patches_between_its_stages():
    # in the stem's 4×4 patches: 7×7 in 3, 3, 9 and 3 blocks at jumps of 1, 2, 4 and 8, and 2×2 before each later stage
    field = 1 + 6 * (3 * 1 + 3 * 2 + 9 * 4 + 3 * 8) + 1 * (1 + 2 + 4)
    assert xfcost.reach("convnext-t", size=64).receptive_field == (field, field) == (422, 422)


def test_reversible_blocks_read_what_the_other_stream_has_met(tmp_path):
    # windows of a token on each side: y₁ = x₁ + f(x₂), y₂ = x₂ + g(y₁). After a block y₁ has met 1 and y₂ 2 on each
    # side, after the next 1 + 2 and 2 + 2, and so on; both streams are joined.
    window = {"kind": "sliding", "heads": 2, "window": 2}
    spec = stack(window, window, depth=3, length=40, residual={"form": "reversible", "join": "mean"})
    assert [step.met[0].largest for step in xfcost.reach(stored(spec, tmp_path)).steps] == [5, 9, 13]


def test_a_token_of_a_coarser_grid_is_the_one_that_holds_the_place(tmp_path):
    # 2×2 tokens are merged: (5, 5) stands in the group of rows and columns 4 and 5
    stage = {"dim": 8, "depth": 1, "block": [{"kind": "mlp"}]}
    stages = [stage, stage | {"enter": [{"kind": "patch_merging"}]}]
    spec = stack(input={"kind": "image", "size": 24}, embed=[{"kind": "patch", "size": 1}], stages=stages)
    first = xfcost.reach(stored(spec, tmp_path), token=(5, 5)).maps[0].first.reshape(24, 24)
    assert np.argwhere(first >= 0).tolist() == [[4, 4], [4, 5], [5, 4], [5, 5]]


def test_causal_models_meet_the_past_alone():
    found = xfcost.reach("gpt2", N=100)
    assert figures(found, 1) == [("stage 1 · block 1", 1, 50.5, 100)]
    assert (found.causal, found.path_length, found.sequential) == (True, 1, 1)
    assert found.maps[0].first.tolist() == [1] * 50 + [0] + [-1] * 49


@pytest.mark.parametrize(("preset", "tokens"), [("mamba-130m", 64), ("seq2seq-lstm", 9)])
def test_a_recurrence_meets_all_earlier_tokens_in_steps(preset: str, tokens: int):
    found = xfcost.reach(preset, N=tokens)
    assert (found.path_length, found.sequential) == (1, tokens)


@pytest.mark.parametrize(("preset", "causal"), [("seq2seq-lstm", ("encoder", "decoder")), ("rnnsearch", ("decoder",))])
def test_a_recurrent_decoder_meets_its_past_and_the_whole_source(preset: str, causal: tuple[str, ...]):
    # Cho's and Bahdanau's encoder reads in both directions, Sutskever's from left to right
    found = xfcost.reach(preset, N=(9, 6))
    assert found.causal_streams == causal
    own, source = found.steps[-1].met
    assert (own.input, own.smallest, own.median, own.largest, own.whole) == ("decoder", 1, 3.5, 6, True)
    assert (source.input, source.smallest, source.largest) == ("encoder", 9, 9)


def test_a_decoder_as_long_as_its_source_meets_its_past_alone():
    own, _ = xfcost.reach("rnnsearch", N=(6, 6)).steps[-1].met  # as many pairs with the source as the grid has in all
    assert (own.input, own.smallest, own.median, own.largest, own.whole) == ("decoder", 1, 3.5, 6, True)


def test_a_shift_hides_a_token_from_itself_and_all_still_meet():
    found = xfcost.reach("igpt-s")
    assert figures(found, 2)[-1] == ("stage 1 · block 1", 0, 511.5, 1023)
    assert found.path_length == 1


@pytest.mark.parametrize(("token", "met"), [((1, 0), []), ((1, 2), [[1, 1]]), ((2, 3), [[2, 2]])])
def test_a_shift_along_a_row_ends_with_the_row(token: tuple[int, int], met: list[list[int]], tmp_path):
    embed = [{"kind": "patch", "size": 1}, {"kind": "shift", "axis": "row"}]
    spec = stack({"kind": "mlp"}, input={"kind": "image", "size": [3, 4]}, embed=embed)
    found = xfcost.reach(stored(spec, tmp_path), token=token)
    assert np.argwhere(found.maps[0].first.reshape(3, 4) > 0).tolist() == met
    assert [step.met[0].smallest for step in found.steps] == [0, 0]


def test_windows_grow_and_global_tokens_are_a_shortcut():
    local = ("**.window=4", "**.global_tokens=0")
    found = xfcost.reach("longformer-base-4096", N=40, settings=local)
    assert figures(found, 3) == [(f"stage 1 · block {n}", 2 * n + 1, 4 * n + 1, 4 * n + 1) for n in (1, 2, 3)]
    assert found.path_length is None
    assert found.receptive_field == (4 * 12 + 1,)
    shortcut = xfcost.reach("longformer-base-4096", N=40, settings=("**.window=4",))
    assert shortcut.path_length == 2
    assert xfcost.reach("bigbird-base").path_length == 2


def test_an_encoder_decoder_meets_both_inputs():
    found = xfcost.reach("transformer-base", N=(10, 6))
    last = found.steps[-1]
    met = [(met.input, met.smallest, met.largest, met.whole) for met in last.met]
    assert met == [("decoder", 1, 6, True), ("encoder", 10, 10, True)]
    ways = [("encoder", "encoder"), ("decoder", "decoder"), ("decoder", "encoder")]
    assert [(one.stream, one.input) for one in found.maps] == ways
    assert (found.path_length_of("encoder"), found.path_length) == (1, 1)


def test_the_map_has_the_block_of_a_token_s_first_influence():
    found = xfcost.reach("swin-t", token=(0, 0))
    first = found.maps[0].first.reshape(56, 56)
    assert first[0, 0] == 0
    assert set(first[:7, :7].ravel()) == {0, 1}
    # at a corner the shifted window is a part of the first one; a window of merged tokens is wider
    assert first[0, 7] == 4
    rows, columns = np.unravel_index(found.maps[0].first.argmax(), (56, 56))
    assert found.steps[first[rows, columns] - 1].label == "stage 3 · block 3"


def test_blocks_alone_without_a_memory_never_meet(tmp_path):
    blocks = {"kind": "blockwise", "heads": 2, "block": 4}
    found = xfcost.reach(stored(stack(blocks, depth=3, length=12), tmp_path))
    assert figures(found, 3) == [(f"stage 1 · block {n}", 4, 4.0, 4) for n in (1, 2, 3)]
    assert found.path_length is None


def test_pixels_that_the_stem_leaves_out_are_no_reason_never_to_meet():
    found = xfcost.reach("conformer-s")  # two convolutions without padding: 1000×80 to 249×19, which read 999×79
    grid = found.inputs[0]
    assert (grid.units, grid.read) == (1000 * 80, 999 * 79)
    assert (found.path_length, found.steps[-1].met[0].largest) == (1, 999 * 79)


def test_sets_that_do_not_fit_are_of_a_smaller_input_and_halving_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reached, "MOST_BYTES", 2**16)
    found = xfcost.reach("bigbird-base", N=1024)
    assert found.inputs[0].sides == (512,)
    with pytest.raises(UsageError):
        reach(small("bigbird-base", tokens=1024))
    monkeypatch.setattr(composing, "_MOST_HALVINGS", 1)
    with pytest.raises(UsageError):
        reach(load("bigbird-base"), Run(tokens=(1024,)))


# The engine against plain Python sets.


def plain(reads: list[list[int]], rows: list[set[int]]) -> list[set[int]]:
    return [set().union(*(rows[place] for place in read)) for read in reads]


def as_sets(found: Any) -> list[set[int]]:
    return [set(np.flatnonzero(found.row(number)).tolist()) for number in range(found.rows)]


def patterns(chosen: np.random.Generator, inputs: int) -> list[list[int]]:
    kinds = (
        lambda: sorted(chosen.choice(inputs, chosen.integers(inputs + 1), replace=False).tolist()),
        lambda: [*range(chosen.integers(inputs + 1), inputs)],
        lambda: [*range(chosen.integers(4), inputs, chosen.integers(1, 6))],
        lambda: [0, *range(chosen.integers(inputs + 1), inputs, 2)],
        lambda: [int(chosen.integers(inputs))],
    )
    return [kinds[chosen.integers(len(kinds))]() for _ in range(chosen.integers(1, 30))]


@pytest.mark.parametrize("seed", range(12))
def test_bits_and_intervals_unite_like_plain_sets(seed: int):
    chosen = np.random.default_rng(seed)
    inputs = int(chosen.integers(1, 40))
    reads = patterns(chosen, inputs)
    relation = read_sets(reads)
    expected = plain(reads, [{number} for number in range(inputs)])
    identity = Intervals.identity(inputs)
    assert as_sets(identity.bits().union(relation)) == expected
    assert as_sets(identity.union(relation)) == expected
    again = patterns(chosen, len(reads))
    found = identity.bits().union(relation).union(read_sets(again))
    assert as_sets(found) == plain(again, expected)
    assert found.counts().tolist() == [len(one) for one in plain(again, expected)]


SIZES = {
    "swin-t": (56, 56), "resnet-50": (40, 24), "convnext-t": (64, 32), "cvt-13": (32, 32), "mobilevit-s": (64, 64),
    "mvit-b-16": (64, 64),
}  # fmt: skip


@pytest.mark.parametrize(("preset", "size"), SIZES.items())
def test_sets_along_axes_are_those_of_the_whole_grid(
    preset: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
):
    along = composed(small(preset, size=size))
    monkeypatch.setattr(composing, "along_axes", lambda reading: None)
    whole = composed(small(preset, size=size))
    for (label, mine), (_, others) in zip(along, whole, strict=True):
        assert (mine["input"] == others["input"]).all(), label


def test_products_beside_special_tokens_are_those_of_every_token():
    parts = [part for part, *_ in place(load("mvit-b-16"), Run(size=(64, 64))).parts()]
    reading = part_reads(next(part for part in parts if tag_of(type(part.component)) == "pooling"))
    grid, pattern = reading.grid, along_axes(reading)
    assert grid.special == 1
    assert pattern is not None
    each = DependenceSets.identity((grid.total,))
    found = each.beside_special(grid, pattern, read_sets([reading.reads.own(0)]))
    assert found.axes == each.of_tokens(reading.read_sets()).axes


def test_a_pattern_that_is_no_product_is_not_taken_for_one():
    # axial attention along both axes at once reads a cross
    reading = part_reads(small("common-axial", ["**.axis=all"], tokens=64).streams[0].stages[0].blocks[0].parts[0])
    assert along_axes(reading) is None


def test_a_block_that_changes_nothing_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    for name in ("of_places", "of_tokens"):
        union = getattr(DependenceSets, name)
        monkeypatch.setattr(DependenceSets, name, lambda *given, union=union: calls.append(1) or union(*given))
    found = reach(load("gpt3"), Run(tokens=(64,)))
    assert len(found.steps) == 96
    assert len(calls) <= 4


def test_work_is_bounded_by_counts(monkeypatch):
    """2^32 tokens are reduced to those whose sets fit; a layer whose tokens read too much is refused."""
    found = reach(load("sagan"), Run(size=(65_536, 65_536)))
    assert (found.inputs[0].sides, len(found.notes)) == ((2048, 2048), 1)
    monkeypatch.setattr(reached, "MOST_READ", 100)
    with pytest.raises(reached.TooManyTokens, match="5 tokens read more than 100"):
        reached.read_sets([(0, 2, 4)] * 10)


def test_runs_of_unsorted_and_repeated_tokens():
    found = reached.read_sets([(9, 3, 1, 2, 2), (5,), (), range(2, 4)])
    runs = [(0, 1, 3), (0, 9, 1), (1, 5, 1), (3, 2, 2)]
    assert list(zip(found.owner, found.first, found.length, strict=True)) == runs
