"""The Python face: the same ledgers, frames, notebooks, and any torch module."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch

import xfcost
from helpers import report_text
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.option_readers import token_numbers


def test_the_public_names():
    assert xfcost.__all__ == [
        "Ledger", "Operation", "ResidualStream", "XfcostError", "analyze", "build", "calibrate", "check", "compare",
        "diagram", "diff", "find", "glance", "layer_types", "measure", "plot", "reach", "register", "roofline",
        "stream", "summary", "survey", "trace", "write_report",
    ]  # fmt: skip
    for name in xfcost.__all__:
        assert getattr(xfcost, name) is not None
    with pytest.raises(AttributeError, match="public names"):
        _ = xfcost.analyse
    with pytest.raises(AttributeError, match=r"did you mean xfcost\.analyze\(module, x\)"):
        _ = xfcost.profile


def test_a_result_is_a_report_in_every_format(tmp_path):
    compared = xfcost.compare(["vit", "swin"])
    assert compared.to_dict()["figures"]["Swin-T"]["macs"] == 4_490_566_656
    assert [*compared.to_pandas()["macs"]] == [22_405_742_592, 4_490_566_656]
    assert compared.to_csv().splitlines()[1].startswith("ViT-S/8,784,")
    assert "\\begin{tabular}" in compared.to_latex()
    assert "| Swin-T" in compared.to_markdown()
    for ending, written in ((".csv", compared.to_csv()), (".md", compared.to_markdown()), (".txt", str(compared))):
        compared.save(file := tmp_path / f"report{ending}")
        assert file.read_text() == (written if written.endswith("\n") else written + "\n")
        with pytest.raises(XfcostError, match="already exists"):
            compared.save(file)
    compared.to_csv(tmp_path / "data")  # any name, as pandas does
    assert (tmp_path / "data").read_text() == compared.to_csv()
    with pytest.raises(UsageError, match=r"expected one of \.json, \.csv"):
        compared.save(tmp_path / "report.docx")
    with pytest.raises(AttributeError, match="did you mean 'to_csv'"):
        _ = compared.to_csvs


def test_a_check_is_true_within_the_budgets():
    # 22,055,272 parameters
    assert xfcost.check("vit", max_params="23M")
    assert not xfcost.check("vit", max_params="22M")


def test_an_option_of_one_mode_brings_it():
    assert xfcost.analyze("gpt2", cache="fp8").metadata.mode == "decode"
    assert xfcost.analyze("gpt2", N=16, new_tokens=8).metadata.mode == "generate"
    with pytest.raises(UsageError, match="--mode forward has no cache"):
        xfcost.analyze("gpt2", cache="fp8", mode="forward")


def test_inputs_of_a_module_by_the_names_of_other_tools():
    layer, x = torch.nn.Linear(8, 4), torch.randn(2, 8)
    for options in ({"inputs": (x,)}, {"input_data": x}, {"input_size": (2, 8)}, {"example_inputs": x}):
        assert xfcost.analyze(layer, **options).macs == 2 * 8 * 4
    assert xfcost.analyze("llama3-8b", gpu="l4", mode="decode").on.on.name == "l4"


def test_a_ledger_becomes_a_frame():
    frame = xfcost.analyze("swin", trace=False).to_frame()
    assert int((frame["macs"] * frame["times"]).sum()) == 4_490_566_656
    assert int((frame["params"] * frame["times"]).sum()) == 28_288_354
    assert frame["traced_macs"].isna().all()
    assert set(frame["mixing"]) == {"per-token", "local"}


def bars(result):
    """Of the chart in a notebook: texts in order, and bars as (colour, width)."""
    html = result._repr_html_()
    chart = ET.fromstring(html[html.index("<svg") :])  # noqa: S314 - our own text
    rectangles = [(one.get("fill"), float(one.get("width"))) for one in chart if one.tag == "rect"]
    return [one.text for one in chart if one.tag == "text"], [one for one in rectangles if one[1] != 10.0]


def test_a_notebook_shows_a_bar_of_each_operation_as_long_as_its_macs():
    ledger = xfcost.analyze("swin", trace=False)
    texts, drawn = bars(ledger)
    frame = ledger.to_frame()
    macs = (
        (frame["macs"] * frame["times"])
        .groupby(frame["title"], sort=False)
        .sum()
        .sort_values(ascending=False, kind="stable")
    )
    assert texts[:3] == ["MACs", "per-token", "local mixing"]
    assert texts[3::2] == [*macs.index[:8], "1 other"]
    assert [width for _, width in drawn[:8]] == pytest.approx([360 * one / macs.max() for one in macs[:8]], abs=0.06)
    local = [title for title, (colour, _) in zip(macs.index, drawn, strict=False) if "green" in colour]
    assert local == ["Attention scores QKᵀ", "Weighted sum AV"]


def test_build_gives_the_running_model_of_a_spec():
    built = xfcost.build("common-full", N=8, settings=["stages.0.depth=1"], dtype="float64")
    output = built.model(*built.inputs)
    assert (output.shape, output.dtype) == ((1, 8, 768), torch.float64)
    assert sum(one.numel() for one in built.model.parameters()) == 30522 * 768 + 12 * 768**2 + 13 * 768
    assert built.rows["streams.0.stages.0.run.0.0"] == "stages.0.block.0"


def test_a_model_that_does_not_fit_is_not_built():
    for name in ("vitt", "gpt3"):
        with pytest.raises(xfcost.XfcostError):
            xfcost.build(name)
    assert xfcost.build("gpt2", N=4, device="meta").inputs[0].is_meta


@pytest.mark.parametrize("given", ["", "a", "1,,2", (None,), (), True, 784.0, object()])
def test_token_numbers_refused(given):
    with pytest.raises(UsageError, match="whole number"):
        token_numbers("--N", given)


BAD = [{"batch": True}, {"batch": 1.5}, {"dtype": "int8"}, {"dtype": 32}, {"N": 3.5}, {"N": -1}, {"attention": "x"}]


@pytest.mark.parametrize("more", [*BAD, *({"spec": spec} for spec in (5, None, {"name": "x"}, b"vit"))])
def test_bad_arguments_are_xfcost_errors(more):
    with pytest.raises(XfcostError):
        xfcost.analyze(**{"spec": "vit", "trace": False, **more})


def test_a_spec_can_be_a_path(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: vit-ti16\nname: Mine\n")
    assert xfcost.analyze(tmp_path / "mine.yaml", trace=False).metadata.name == "Mine"


def test_torch_dtypes_and_numpy_numbers_are_taken():
    metadata = xfcost.analyze("vit", dtype=torch.float16, batch=np.int64(2), settings=None, trace=False).metadata
    assert (metadata.dtype, metadata.batch) == ("float16", 2)


def test_a_device_that_is_not_there_is_refused_before_the_trace(monkeypatch):
    monkeypatch.setattr("xfcost.torch_models.accounts.traced", lambda *given: pytest.fail("traced first"))
    with pytest.raises(XfcostError, match="--device tpu"):
        xfcost.analyze("vit", device="tpu")


def test_published_figures_belong_to_the_spec_as_it_is_written():
    as_written, at_own_size, smaller, other = (
        xfcost.analyze("vit-b16", trace=False, **more)
        for more in ({}, {"N": 196}, {"N": 49}, {"settings": ["stages.0.depth=1"]})
    )
    assert as_written.published_beside_ours()
    assert at_own_size.published_beside_ours()
    assert not smaller.published_beside_ours()
    assert not other.published_beside_ours()
    assert other.metadata.settings == ("stages.0.depth=1",)
    assert (as_written.metadata.published_left_out, other.metadata.published_left_out) == (0, 2)


def test_a_printed_result_is_its_report():
    ledger, compared = xfcost.analyze("gpt2", trace=False), xfcost.compare("vit", "swin")
    assert str(ledger) == report_text(ledger).rstrip("\n")
    assert str(compared).startswith("ViT-S/8")
    assert repr(ledger).startswith("<Ledger GPT-2")
