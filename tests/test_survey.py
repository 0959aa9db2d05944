"""`xfcost survey`: orders, decoding, memory and parameters against what is worked out by hand; measured times."""

import json
import re

import msgspec
import pytest

import xfcost
from helpers import csv_of, xf
from measured import THERE, changed, row, runs_file, timed
from xfcost.api.measuring.plan import spec_hash
from xfcost.ledger.errors import UsageError
from xfcost.questions.tables.answer import survey_of
from xfcost.questions.tables.published_survey import growth, mixing_parts, survey_lines, with_keys
from xfcost.questions.tables.survey_text import document
from xfcost.spec.load import load, presets_with
from xfcost.spec.placement import place
from xfcost.spec.run import Run


@pytest.fixture(scope="module")
def lines():
    return {line.preset: line for line in survey_lines(Run())}


@pytest.mark.parametrize(
    ("order", "exponent"),
    [
        ("O(N√N·d)", 1.5),
        ("O(N_c²)", 2),
        ("O(N_g² + N·N_g)", 1),
        ("O(n(k + m))", 1),
        ("O(B²)", 0),
        ("O(h·N·k² + N·w·d)", 1),
        ("O(h·N²·k + N²·d)", 2),
    ],
)
def test_growth_is_that_in_n(order, exponent):
    assert growth(order) == exponent
    assert growth("O(N)") < growth("O(N log N)") < growth("O(N√N)")


def test_keys_that_no_mechanism_has_are_refused():
    with pytest.raises(UsageError, match="got foo"):
        with_keys(mixing_parts(*2 * [place(load("common-axial"), Run())]), {"foo": 1})


def test_every_entry_is_in_the_table_and_full_attention_is_first(lines):
    assert set(lines) == set(presets_with("survey"))
    assert next(iter(lines)) == "common-full"


def test_memory_is_that_of_the_matrices_alive_at_once(lines):
    heads, bytes_ = 12, 4
    # scores and softmax of one layer; a line of a 64×64 and of a 256×256 grid
    assert lines["common-full"].attention_bytes == {n: 2 * heads * n * n * bytes_ for n in (4096, 65536)}
    axial = {4096: 2 * heads * 4096 * 64 * bytes_, 65536: 2 * heads * 65536 * 256 * bytes_}
    assert lines["common-axial"].attention_bytes == axial
    assert lines["common-performer"].attention_bytes == {4096: 0, 65536: 0}


def test_parameters_are_those_beyond_full_attention(lines):
    # two projections of N×256 per layer
    assert lines["common-linformer"].added_params == {n: 12 * 2 * n * 256 for n in (4096, 65536)}
    assert set(lines["common-performer"].added_params.values()) == {0}
    # the seven further experts and the router of every other layer
    assert lines["common-switch"].added_params[4096] == 6 * (7 * (8 * 768**2 + 5 * 768) + 8 * 768)


def test_kinds_and_weights_are_those_of_the_mixing_operations(lines):
    found = {preset: (lines[preset].mixing, lines[preset].content_dependent) for preset in lines}
    assert found["common-full"] == (("global",), True)
    assert found["common-blockwise"] == (("local",), True)
    assert found["common-longformer"] == (("local", "global"), True)
    assert found["common-linformer"] == (("global",), None)
    assert found["common-synthesizer-random"] == (("global",), False)
    assert lines["common-axial"].reads == ("√N",)


def test_a_variant_of_a_system_is_no_line_of_the_survey(tmp_path):
    file = tmp_path / "wide.yaml"
    file.write_text("extends: common-full\nname: wide\nset: {stages.0.dim: 96}\n", encoding="utf-8")
    assert load("common-full").spec.survey is not None
    assert load(str(file)).spec.survey is None


def test_a_line_of_the_survey_does_not_change_what_is_measured():
    spec = load("common-axial").spec
    assert spec_hash(spec) == spec_hash(msgspec.structs.replace(spec, survey=None))


def measured_rows(seconds, **fields):
    """Rows of presets at some N, as `measure` would write them."""
    return [
        changed(row(preset, n, timed(spent, 0.9 * spent, 1.1 * spent)), target=preset, **fields)
        for (preset, n), spent in seconds.items()
    ]


SECONDS = {("common-full", 1024): 2.0, ("common-full", 4096): 8.0, ("common-linear", 1024): 1.0}


def test_times_are_over_full_attention_s_at_the_largest_n_of_both(tmp_path):
    rows = measured_rows(SECONDS | {("common-axial", 4096): 2.0, ("common-axial", 1024): 1.0})
    runs = runs_file(tmp_path / "runs.jsonl", *rows)
    found = {one["preset"]: one for one in document(survey_of(Run(), (), runs, print)).records()}
    assert (found["common-axial"]["time_ratio"], found["common-axial"]["time_N"]) == (pytest.approx(0.25), 4096)
    assert (found["common-linear"]["time_ratio"], found["common-linear"]["time_N"]) == (pytest.approx(0.5), 1024)
    assert found["common-full"]["time_ratio"] == pytest.approx(1.0)
    assert found["common-etc"]["time_ratio"] is None


def test_times_are_shown_with_their_intervals_and_noisy_rows_are_told(tmp_path):
    rows = measured_rows(SECONDS)
    noisy = msgspec.structs.replace(rows[2].outcome.timing, noisy="busy")
    rows[2] = msgspec.structs.replace(rows[2], outcome=msgspec.structs.replace(rows[2].outcome, timing=noisy))
    text = document(survey_of(Run(), (), runs_file(tmp_path / "runs.jsonl", *rows), print)).text("markdown")
    assert re.search(r"Linear Transformer +\| 0.5× +\| 0.409 to 0.611 +\| 1,024", text)
    assert "Performer" not in text.partition("Measured time")[2].partition("class:")[0]
    assert "noisy: 1 of the file's 3 rows" in text


def test_rows_run_otherwise_than_full_attention_are_not_compared(tmp_path):
    other = [msgspec.structs.replace(one, machine=THERE) for one in measured_rows({("common-axial", 1024): 1.0})]
    rows = [*measured_rows(SECONDS), *other, *measured_rows({("common-etc", 1024): 1.0}, settings=("a=1",))]
    runs = runs_file(tmp_path / "runs.jsonl", *rows)
    found = {one["preset"]: one for one in document(survey_of(Run(), (), runs, print)).records()}
    assert (found["common-axial"]["time_ratio"], found["common-etc"]["time_ratio"]) == (None, None)


def test_a_file_without_one_full_attention_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no measured row"):
        survey_of(Run(), (), runs_file(tmp_path / "runs.jsonl", *measured_rows({("common-axial", 64): 1.0})), print)
    there = [msgspec.structs.replace(one, machine=THERE) for one in measured_rows(SECONDS)]
    with pytest.raises(UsageError, match="2 series"):
        survey_of(Run(), (), runs_file(tmp_path / "runs.jsonl", *measured_rows(SECONDS), *there), print)


def test_formats(tmp_path):
    rows = csv_of("survey")
    assert {one["preset"] for one in rows} == set(presets_with("survey"))
    data = json.loads(xf("survey", "--format", "json", "--dtype", "fp16").stdout)
    assert data["dtype"] == "float16"
    full = data["systems"][0]
    assert (full["preset"], full["attention_bytes_4096"]) == ("common-full", 2 * 12 * 4096**2 * 2)
    assert all(one["note"] for one in data["systems"])
    target = tmp_path / "survey.tex"
    assert xf("survey", "-o", target).returncode == 0
    assert target.read_text(encoding="utf-8").count(r"\begin{tabular}") == 3


def test_the_python_function_gives_the_same_lines_and_a_notebook_s_tables():
    found = xfcost.survey(batch=2)
    assert document(found).records() == document(survey_of(Run(batch=2), (), None, print)).records()
    assert "Linformer" in (found._repr_html_() or "")
