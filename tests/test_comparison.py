"""Growth, crossovers and score counts of a comparison, on systems whose answer is known."""

import msgspec
import pytest

import xfcost
from xfcost.counting.forward import count
from xfcost.counting.system import first_scores
from xfcost.mechanisms.window import Window
from xfcost.spec.grammar import converted
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def test_growth_of_two_streams_scales_each_by_its_own_length():
    # Source 25 and target 400 both double: mixing costs are products of two lengths, so the exponent is 2 exactly.
    comparison = xfcost.compare("transformer-base", "transformer-big", N="25,400")
    for growth in comparison.growth.values():
        assert growth["factor"] == 2
        assert growth["mixing_macs"] == pytest.approx(2)
        assert 1 < growth["macs"] < 2


def test_growth_looks_back_where_positions_end():
    # GPT-2 has 1024 positions: the exponent is that between 512 and 1024.
    comparison = xfcost.compare("gpt2", "gpt2-medium")
    assert comparison.growth["GPT-2 (124M)"]["factor"] == 0.5
    assert comparison.growth["GPT-2 (124M)"]["mixing_macs"] == pytest.approx(2)


def test_growth_is_unknown_where_nothing_else_fits():
    # 1023 positions taken up by 1023 tokens: twice as many don't fit, and 1023 is odd.
    settings = ["embed.1.length=1023", "input.length=1023"]
    growth = xfcost.compare("gpt2", "gpt2", settings=settings).growth["GPT-2 (124M)"]
    assert set(growth.values()) == {None}
    assert "–" in xfcost.compare("gpt2", "gpt2", settings=settings)._repr_html_()


def test_growth_of_a_wide_image_keeps_its_shape():
    # 16×368 pixels are 1×23 patches; twice as long in both directions, 2×46: full attention grows as N² but for [CLS].
    growth = xfcost.compare("vit-ti16", "vit-s16", settings=["input.size=[16,368]"]).growth["ViT-Ti/16"]
    assert growth["factor"] == 4
    assert growth["mixing_macs"] == pytest.approx(2, abs=0.06)


def test_scores_are_those_of_the_first_sublayer_that_keeps_any():
    ledger = count(place(load("swin-t"), Run(batch=3)))
    # 64 windows of 49² pairs
    assert first_scores(ledger) == 64 * 49 * 49


def test_a_pattern_on_a_sequence_reads_one_row_of_tokens():
    data = {
        "name": "Local text",
        "input": {"kind": "tokens", "vocabulary": 100, "length": 64},
        "embed": [{"kind": "token"}],
        "stages": [{"dim": 32, "depth": 2, "block": [{"kind": "window", "size": 8, "heads": 4}, {"kind": "mlp"}]}],
    }
    loaded = load("vit-ti16")
    spec = converted(data, type(loaded.spec))
    ledger = count(place(msgspec.structs.replace(loaded, spec=spec), Run()))
    scores = next(row for row in ledger.rows if row.operation == "scores")
    assert (scores.reads, scores.reads_tokens, scores.order) == ("W", 8, "O(N·W·d)")
    # 8 windows of 8² pairs, width 32
    assert scores.macs == 8 * 64 * 32


def test_tokens_are_those_of_the_first_stage_after_its_entry():
    settings = ["stages.0.enter=[{kind: patch_merging}]"]
    ledger = xfcost.analyze("swin-t", N=784, settings=settings, trace=False)
    assert ledger.metadata.grid_tokens == 784


def test_a_block_that_finds_another_grid_is_another_block(monkeypatch):
    # A mixer that halves its sequence stands three times: three blocks, each on its own grid, each once.
    def halved(self, place_):
        return place_.grid._replace(sides=tuple(side // 2 for side in place_.grid.sides)), place_.dim

    monkeypatch.setattr(Window, "out", halved)
    loaded = load(
        "swin-t", ["stages=[{dim: 96, depth: 3, block: [{kind: window, heads: 3, size: 2, residual: none}]}]"]
    )
    architecture = place(loaded, Run())
    (stage,) = architecture.streams[0].stages
    assert [block.path for block in stage.blocks] == ["stages.0.block", "stages.0.block@2", "stages.0.block@3"]
    assert [block.parts[0].place.grid.sides for block in stage.blocks] == [(56, 56), (28, 28), (14, 14)]
    assert tuple(stage.order) == (0, 1, 2)
    assert architecture.head.place.grid.sides == (7, 7)
    assert len({row.path for row in count(architecture).rows}) == len(count(architecture).rows)


def test_two_rows_of_one_name_are_refused(monkeypatch):
    def twice(self, place_):
        rows = list(usual(self, place_))
        return iter([*rows, rows[0]])

    usual = Window.operations
    monkeypatch.setattr(Window, "operations", twice)
    with pytest.raises(ValueError, match="2 rows are called"):
        count(place(load("swin-t"), Run()))
