"""The Python face: the same ledgers, frames, notebooks, and any torch module."""

import numpy as np
import pytest
import torch
from torch import nn

import xfcost
from helpers import report_text
from xfcost.api.option_readers import token_numbers
from xfcost.ledger.errors import UsageError, XfcostError


def test_the_public_names():
    assert xfcost.__all__ == [
        "Ledger", "Operation", "ResidualStream", "XfcostError", "analyze", "build", "calibrate", "check", "compare",
        "diff", "find", "layer_types", "reach", "register", "stream", "summary", "survey", "trace", "write_report",
    ]  # fmt: skip
    for name in xfcost.__all__:
        assert getattr(xfcost, name) is not None
    with pytest.raises(AttributeError, match="public names"):
        _ = xfcost.analyse


def test_analyze_gives_a_joined_ledger():
    ledger = xfcost.analyze("vit", N=784)
    assert isinstance(ledger, xfcost.Ledger)
    assert ledger.agreement.exact
    assert ledger.total("macs") == ledger.total("traced_macs") == 22_405_742_592


def test_a_ledger_becomes_a_frame():
    frame = xfcost.analyze("swin", trace=False).to_frame()
    assert int((frame["macs"] * frame["times"]).sum()) == 4_490_566_656
    assert int((frame["params"] * frame["times"]).sum()) == 28_288_354
    assert frame["traced_macs"].isna().all()
    assert set(frame["mixing"]) == {"per-token", "local"}


def test_a_notebook_shows_tables():
    html = xfcost.analyze("vit", trace=False)._repr_html_()
    assert html.startswith("<style>")
    assert "Attention scores" in html
    html = xfcost.compare("vit", "swin", N=784)._repr_html_()
    assert "614,656" in html


def test_build_gives_the_running_model_of_a_spec():
    built = xfcost.build("common-full", N=8, settings=["stages.0.depth=1"], dtype="float64")
    output = built.model(*built.inputs)
    assert (output.shape, output.dtype) == ((1, 8, 768), torch.float64)
    assert sum(one.numel() for one in built.model.parameters()) == 30522 * 768 + 12 * 768**2 + 13 * 768
    assert built.rows["streams.0.stages.0.run.0.0"] == "stages.0.block.0"


def test_a_model_that_does_not_fit_is_not_built():
    with pytest.raises(xfcost.XfcostError, match="no preset"):
        xfcost.build("vitt")
    with pytest.raises(xfcost.XfcostError, match="the weights alone"):
        xfcost.build("gpt3")
    assert xfcost.build("gpt2", N=4, device="meta").inputs[0].is_meta


def test_compare_in_python():
    comparison = xfcost.compare("vit", "swin", N=784)
    assert comparison.figures["ViT-S/8"]["score_dot_products"] == 784**2
    assert comparison.figures["Swin-T"]["score_dot_products"] == 784 * 49


@pytest.mark.rest
def test_fused_and_eager_cost_the_same_and_keep_different_memory():
    eager, fused = (xfcost.analyze("vit", attention=how) for how in ("eager", "fused"))
    for quantity in ("params", "macs", "flops", "traced_macs", "traced_flops"):
        assert eager.total(quantity) == fused.total(quantity), quantity
    assert eager.total("attention_entries") == 12 * 6 * 785 * 785
    assert fused.total("attention_entries") == 12 * 6 * 785


def test_trace_takes_any_module():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))
    traced = xfcost.trace(model, torch.zeros(5, 8))
    # 5·8·16 + 5·16·4 = 640 + 320
    assert traced.macs == 960
    # 8·16 + 16 + 16·4
    assert traced.params == 208
    assert traced.unsupported == {}


@pytest.mark.parametrize(
    ("given", "expected"),
    [(784, (784,)), (np.int64(784), (784,)), ("784", (784,)), ("25,40", (25, 40)), ((25, 40), (25, 40))],
)
def test_token_numbers(given, expected):
    assert token_numbers("--N", given) == expected


@pytest.mark.parametrize("given", ["", "a", "1,,2", (None,), (), True, 784.0, object()])
def test_token_numbers_refused(given):
    with pytest.raises(UsageError, match="whole number"):
        token_numbers("--N", given)


@pytest.mark.parametrize(
    "more",
    [{"batch": True}, {"batch": 1.5}, {"dtype": "int8"}, {"dtype": 32}, {"N": 3.5}, {"N": -1}, {"attention": "x"}],
)
def test_bad_arguments_are_xfcost_errors(more):
    with pytest.raises(XfcostError):
        xfcost.analyze("vit", trace=False, **more)


def test_a_spec_can_be_a_path(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: vit-ti16\nname: Mine\n")
    assert xfcost.analyze(tmp_path / "mine.yaml", trace=False).metadata.name == "Mine"


def test_torch_dtypes_and_numpy_numbers_are_taken():
    metadata = xfcost.analyze("vit", dtype=torch.float16, batch=np.int64(2), settings=None, trace=False).metadata
    assert (metadata.dtype, metadata.batch) == ("float16", 2)


@pytest.mark.parametrize("spec", [5, None, {"name": "x"}, b"vit"])
def test_a_spec_that_is_neither_name_nor_path(spec):
    with pytest.raises(UsageError, match="preset's name or a path"):
        xfcost.analyze(spec)


def test_a_device_that_is_not_there_is_refused_before_the_trace(monkeypatch):
    monkeypatch.setattr("xfcost.torch_models.accounts.traced", lambda *given: pytest.fail("traced first"))
    with pytest.raises(XfcostError, match="this machine has"):
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
    assert "published figures are not shown" in report_text(other, verbose=True)
    assert "published figures are not shown" not in report_text(as_written, verbose=True)
