"""Published training runs and memory: what xfcost counts, held to the bars that docs/training-runs.md states."""

from collections import Counter

import pytest
import training_measured as measured
import training_memory as memory
import training_runs as runs

import xfcost

# MFUs in print that no count gives, and those that one of the two counts alone gives.
NO_COUNT = {"nemotron4-340b-bench"}


def by_id():
    return {row.published["id"]: row for row in runs.rows("runs.csv")}


@pytest.mark.parametrize(("row", "digits"), [("palm-8b-token", 4), ("palm-t22-62b", 3), ("palm-540b-token", 2)])
def test_palm_s_flops_of_a_token_to_the_digits_printed(row, digits):
    found = by_id()[row]
    printed = found.number("flops_per_token") / 1e12
    for count in (found.counts.exact, found.counts.by_palm):
        assert round(count / 1e12, digits) == printed


def test_deepseek_v3_s_token_is_250_gflop_with_causal_attention():
    counts = by_id()["isca-t2-deepseek-v3"].counts
    assert round((counts.exact - counts.attention / 2) / 1e9) == 250
    assert counts.active == pytest.approx(37e9, rel=0.02)


def test_gpt_3_s_table_is_six_flops_per_parameter_and_token():
    for name, row in by_id().items():
        if name.startswith("gpt3-d1-gpt-3"):
            rule = 6 * row.counts.active * row.number("tokens")
            assert rule == pytest.approx(row.number("train_flops"), rel=0.005), name


def test_187_throughputs_of_llm_foundry():
    rows = runs.rows("throughput.csv")
    assert len(rows) == 187
    for row in rows:
        assert row.counts.params == row.number("params"), row.published["id"]
        assert abs(runs.off(row, row.counts.by_palm)) < 0.15, row.published["id"]
    exact = [abs(runs.off(row, row.counts.exact)) for row in rows]
    # the others are short models at long inputs, whose table of positions their N counts
    assert sum(one < 0.5 for one in exact) == 159
    assert max(exact) < 2


def test_every_mfu_in_print_with_a_speed_within_half_a_point():
    compared = 0
    for name, row in by_id().items():
        spoken = row.published["speed"] not in ("", "device-hours", "days x devices")
        if row.number("mfu") and spoken and name not in NO_COUNT:
            ours = (row.mfu(row.counts.exact), row.mfu(row.counts.by_palm))
            assert min(abs(one - row.number("mfu")) for one in ours) < 0.5, name
            compared += 1
    assert compared == 10


def test_hfu_of_full_recomputation_within_half_a_point():
    for name in ("mtnlg-530b-2800", "megatron21-readme-175b"):
        row = by_id()[name]
        assert row.mfu(row.counts.exact) * (1 + row.counts.again) == pytest.approx(row.number("hfu"), abs=0.5)


def test_narayanan_s_days():
    table = [row for row in runs.rows("runs.csv") if row.published["id"].startswith("megatron21-t2")]
    assert len(table) == 8
    for row in table:
        assert runs.days(row) == pytest.approx(row.number("days"), abs=1), row.published["id"]


def test_llama_2_s_hours_come_back_from_the_mfu_that_they_imply():
    row = by_id()["llama2-7b"]
    mfu = row.mfu(row.counts.exact) / 100
    assert mfu == pytest.approx(0.445, abs=0.001)
    options = {"dtype": "bfloat16", "on": "a100-sxm-80x8", "zero": 3, "tokens": 2e12, "mfu": mfu}
    plan = xfcost.analyze("llama2-7b", mode="train", trace=False, **options).training.plan
    assert plan.at[0].device_days * 24 == pytest.approx(184_320, rel=1e-4)


def test_sizes_in_print():
    for row in runs.rows("runs.csv"):
        printed = row.number("params")
        if printed and row.published["kind"] in ("benchmark", "config"):
            off = 0.06 if printed < 4e9 else 0.03
            assert row.counts.params == pytest.approx(printed, rel=off), row.published["id"]


def test_zero_s_table_to_the_digits_printed_and_its_largest_models():
    cells = memory.zero_cells()
    assert len(cells) == 48
    for cell in cells:  # some are cut, not rounded
        assert abs(cell.ours - cell.printed) < 10**-cell.digits, cell
    cells = memory.largest_cells()
    assert len(cells) == 17
    for cell in cells:  # multiples of the rounded first line
        assert cell.ours == pytest.approx(cell.printed, rel=0.025), cell


def test_korthikanti_s_figures_by_their_formulas():
    shares, devices = memory.share_cells(), memory.device_cells()
    assert (len(shares), len(devices)) == (17, 11)
    for cell in shares:
        assert cell.ours == pytest.approx(cell.printed, abs=0.2), cell
    for cell in devices:
        assert cell.ours == pytest.approx(cell.printed, rel=1e-4), cell


def test_our_activations_beside_korthikanti_s():
    for name, shape in memory.SHAPES.items():
        few = memory.plan(name, sequence_parallel=True, checkpoint="selective").memory
        theirs = shape.L * memory.activation_bytes(shape, "sequence-selective")
        assert few.activations == pytest.approx(theirs, rel=0.05), name
        # without dropout: five bytes of a score become two, and the causal mask
        all_kept = memory.plan(name).memory.activations
        assert 0.5 < all_kept / (shape.L * memory.activation_bytes(shape, "none")) < 0.75
        assert memory.plan(name, checkpoint="selective").recomputation < shape.s / 18 / shape.h


def test_our_states_hold_what_their_formula_leaves_out():
    for name, shape in memory.SHAPES.items():
        formula = 18 * 12 * shape.L * shape.h**2 / (shape.t * shape.p)
        embedding = 18 * (51200 / shape.t + shape.s) * shape.h
        states = memory.plan(name).memory.states
        assert states == pytest.approx(formula + embedding, rel=0.001), name
        assert memory.plan(name).bytes_per_parameter == 18


def test_no_measured_memory_is_below_our_states():
    found = measured.measured()
    assert len(found) == 13
    assert all(0.15 < own / used < 1 for _, used, own in found)


def test_copies_of_the_hidden_state():
    found = measured.copies()
    assert len(found) == 5
    for row, ours in found:
        assert ours == pytest.approx(float(row["value"]), rel=0.03), row["id"]


def test_conventions_of_bytes_per_parameter():
    for line in measured.bytes_lines():
        if line["ours"] != "–":
            assert float(line["ours"]) == float(line["published"]), line


def test_every_row_has_a_source_and_a_reason_where_it_is_left_out():
    everything = [row.published for name in ("runs.csv", "throughput.csv") for row in runs.rows(name)]
    everything += memory.printed()
    assert all(row["source"] for row in everything)
    left = runs.left_out()
    assert all(row["why"] for row in left)
    twice = Counter([row["id"] for row in everything] + [row["id"] for row in left])
    assert [name for name, times in twice.items() if times > 1] == []
