"""`xfcost glance`: every operation once, and a sentence that says what the counts say."""

import json
import xml.etree.ElementTree as ET

import msgspec
import pytest

from helpers import csv_of, stdout_of, xf
from xfcost.api.analysis import analyze
from xfcost.questions.glance.operations import glance
from xfcost.questions.glance.text import parameter_sentence, stages_text


@pytest.fixture(scope="module")
def ledgers():
    return [analyze(spec, trace=False) for spec in ("vit", "swin", "transformer-base")]


@pytest.fixture(scope="module")
def page(ledgers):
    return glance(ledgers[:2])


def test_every_row_of_the_ledgers_is_on_the_page_once(page, ledgers):
    for ledger in ledgers[:2]:
        name = ledger.metadata.name
        mine = [one for entry in page.entries for one in entry.occurrences if one.system == name]
        assert sum(one.params for one in mine) == ledger.total("params") == page.params[name]
        assert sum(one.macs for one in mine) == ledger.total("macs")
        shown = {entry.title for entry in page.entries} | set(page.moves)
        assert {row.title for row in ledger.rows} <= shown
    keys = [(entry.title, entry.mixing, entry.order) for entry in page.entries]
    assert len(keys) == len(set(keys))


def test_the_sentence_names_the_relative_position_bias_as_the_exception(page, ledgers):
    # Swin-T: 169 entries × heads (3, 6, 12, 24) × blocks (2, 2, 6, 2) = 169·138
    assert 169 * (3 * 2 + 6 * 2 + 12 * 6 + 24 * 2) == 23_322
    assert "Swin-T: 23,322 of 28,288,354, 0.1 %" in parameter_sentence(page)
    assert "ViT" not in parameter_sentence(page).partition(". All")[0]


def holding(ledger, *operations):
    """The ledger with 7 parameters in each of these operations of each block."""
    rows = [msgspec.structs.replace(row, params=7) if row.operation in operations else row for row in ledger.rows]
    metadata = msgspec.structs.replace(ledger.metadata, name="false")
    return glance([msgspec.structs.replace(ledger, rows=tuple(rows), metadata=metadata)])


SOME = "Mixing operations hold no parameters, with "
MOST = "Here mixing operations do hold parameters (false: "


@pytest.mark.parametrize(
    ("preset", "operations", "start", "told"),
    [
        # 12 blocks of 7
        (0, ["scores"], SOME, "one exception: the attention scores QKᵀ (false: 84 of 22,055,356, 0.0 %)."),
        (1, ["scores"], f"{SOME}2 exceptions", "the attention scores QKᵀ (false: 84 of 28,288,438, 0.0 %)."),
        # scores and the weighted sum, not the softmax
        (0, ["scores", "weighted_sum"], MOST, "168 of 22,055,440, 0.0 %), in: Attention scores QKᵀ, Weighted sum AV."),
        # the table, the scores, the bias's addition, the softmax and the weighted sum: 3 of 5, and a mask is none
        (1, ["scores", "weighted_sum"], MOST, ""),
    ],
)
def test_mixing_operations_with_parameters_are_exceptions_or_most(ledgers, preset, operations, start, told):
    sentence = parameter_sentence(holding(ledgers[preset], *operations))
    assert sentence.startswith(start)
    assert told in sentence


def test_a_system_that_mixes_nothing_says_so(ledgers):
    rows = [row for row in ledgers[0].rows if row.mixing == "per-token"]
    assert parameter_sentence(glance([ledgers[0].part(rows)])) == "No operation here mixes tokens."


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (["stage 1"], "stage 1"),
        (["embed", "stage 1", "stage 2", "stage 3", "head"], "embed, stages 1–3, head"),
        (["stage 1", "stage 3"], "stage 1, stage 3"),
        (["encoder", "decoder stage 1", "decoder stage 2"], "encoder, decoder stages 1–2"),
    ],
)
def test_stages_are_told_as_ranges(stages, expected):
    assert stages_text(stages) == expected


@pytest.mark.parametrize("width", ["80", "100", "120"])
def test_no_word_is_cut_and_no_line_too_long(width, page):
    text = xf("glance", "vit", "swin", COLUMNS=width).stdout
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= int(width)
    flat = " ".join(text.split())
    for entry in page.entries:
        assert entry.title in flat
    assert parameter_sentence(page) in flat


def test_json_and_csv(page):
    data = json.loads(xf("glance", "vit", "swin", "--format", "json").stdout)
    assert data["mixing_params"] == {"ViT-S/8": 0, "Swin-T": 23_322}
    assert data["sentence"] == parameter_sentence(page)
    assert sum(int(row["params"]) for row in csv_of("glance", "vit", "swin")) == sum(page.params.values())


def test_a_shared_table_is_of_the_kind_of_what_reads_it():
    page = glance([analyze("t5-small", trace=False)])
    found = {entry.title: (entry.mixing, entry.occurrences[0].params) for entry in page.entries}
    # 32 buckets of 8 heads, shared by the layers of a stream; the embedding mixes nothing
    assert found["Shared table 'encoder_bias'"] == found["Shared table 'decoder_bias'"] == ("global", 32 * 8)
    assert found["Shared table 'embedding'"][0] == "per-token"
    assert page.mixing_params() == {"T5-small": 2 * 32 * 8}


def test_a_report_is_a_picture_that_loads_nothing(tmp_path):
    stdout_of("glance", "vit", "-o", tmp_path / "glance.svg")
    text = (tmp_path / "glance.svg").read_text("utf-8")
    drawn = "".join(ET.fromstring(text).itertext()).replace("\xa0", " ")  # noqa: S314 - our own file
    assert "Operations at a glance: ViT-S/8" in drawn
    assert "Q, K, V projections" in drawn
    assert "url(http" not in text
    assert "@import" not in text
    assert (
        '>Output&#160;projection&#160;W<tspan dy="0.25em" font-size="70%">O</tspan><tspan dy="-0.175em">&#160;<' in text
    )
