"""`analyze --filter`: rows by a text in their path or title, in every format, with their sum and share."""

import csv
import io
import json

import pytest

import xfcost
from helpers import xf
from xfcost.ledger.errors import UsageError
from xfcost.views.analyze import document


@pytest.fixture(scope="module")
def vit():
    return xfcost.analyze("vit-b", trace=False)


def listed(ledger, only, **options):
    """The rows of the CSV."""
    return list(csv.DictReader(io.StringIO(document(ledger, only=only, **options).text("csv"))))


def test_rows_have_a_text_in_their_path_or_title_in_any_case(vit):
    assert [row["operation"] for row in listed(vit, ["MLP"])] == ["fc1", "act", "fc2"]
    assert [row["operation"] for row in listed(vit, ["block.1.FC"])] == ["fc1", "fc2"]
    assert {row["operation"] for row in listed(vit, ["fc1", "Patch Proj"])} == {"fc1", "projection"}


def test_their_sum_is_a_share_of_the_model(vit):
    found = json.loads(document(vit, only=["fc1", "fc2"]).text("json"))
    # 12 blocks, 768 wide, with 3072 in the middle, and their biases; 197 tokens
    assert found["filter"]["params"] == 12 * (2 * 768 * 3072 + 3072 + 768)
    assert found["filter"]["macs"] == 12 * 2 * 768 * 3072 * 197
    assert found["filter"]["macs_share"] == pytest.approx(found["filter"]["macs"] / found["macs"])
    assert [row["operation"] for row in found["operations"]] == ["fc1", "fc2"]
    assert found["macs"] == vit.macs
    assert "filter" not in json.loads(document(vit).text("json"))


@pytest.mark.parametrize("form", ["table", "markdown", "latex"])
def test_shares_in_a_table_are_of_the_model(vit, form):
    text = document(vit, only=["fc1"]).text(form).replace("\\", "").replace(",%", " %")
    assert "31.8 %" in text  # 12·768·3072·197 of 17,563,828,224
    assert "Patch projection" not in text.partition("published")[0]


def test_groups_and_an_order_are_of_these_rows(vit):
    assert [row["block"] for row in listed(vit, ["fc1"], by="block")] == ["stage 1 · Self-attention"]
    tree = listed(vit, ["fc1"], by="module")
    assert [row["module"] for row in tree][-1] == "stages.0.block.1"


def test_rows_of_a_module_are_found_by_its_names(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\nnet = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()\n"
    )
    words = ("analyze", "net.py:net", "--input", "2x4", "--filter", "linear", "--sort", "params", "--format", "csv")
    done = xf(*words, "--no-mixing", cwd=tmp_path)
    assert [row["block"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["0", "2"]


def test_a_text_that_no_row_has_is_refused(vit):
    with pytest.raises(UsageError, match="--filter xyz: no operation"):
        document(vit, only=["xyz"])
