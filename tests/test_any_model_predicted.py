"""Torch modules predicted without a run: `--predict`, from a small calibration; and the bytes that operations move."""

import json

import pytest
import torch
from torch import nn

import xfcost
from any_models import TOKENS, Model, two_blocks
from calibrated import calibration, keep_calibration
from helpers import report_text, table_of, xf
from modules import Call
from xfcost.api.runs import make_run
from xfcost.ledger.calibration import Overhead
from xfcost.ledger.errors import UsageError
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.build import build
from xfcost.torch_models.predicting.predict import Predictor

FREE = Overhead(call=0.0, view=0.0, module=0.0)


def predicted(model, *inputs, overhead=FREE):
    predictor = Predictor(calibration(overhead=overhead))
    return module_ledger(model, inputs, trace=False, predict=lambda dtype: predictor)


def product(rows, inner, columns):
    """Seconds of a product that was never measured: 1 µs + MACs/10⁹ + bytes/10⁹."""
    moved = 4 * (rows * inner + inner * columns + rows * columns)
    return 1e-6 + (rows * inner * columns + moved) / 1e9


def test_every_operation_takes_its_own_calls():
    twice = Call(lambda x: twice.map(twice.map(x)) @ x.mT)
    twice.map = nn.Linear(64, 64, bias=False)
    ledger = predicted(twice, torch.ones(10, 64))
    assert {row.path: row.predicted_seconds for row in ledger.rows} == {
        "map.mm": pytest.approx(2 * product(10, 64, 64)), "mm": pytest.approx(product(10, 64, 10))
    }  # fmt: skip
    assert ledger.prediction.seconds == pytest.approx(ledger.total("predicted_seconds"))
    assert ledger.prediction.unknown == ("aten.mm",)
    assert ledger.timing is None


def test_views_and_calls_of_modules_are_not_attributed():
    overhead = Overhead(call=1e-3, view=2e-3, module=4e-3)
    ledger = predicted(nn.Sequential(nn.Linear(8, 8, bias=False)), torch.ones(2, 8), overhead=overhead)
    # a product; the weight transposed is a view; the linear map and the model around it are called
    assert ledger.rows[0].predicted_seconds == pytest.approx(1e-3, rel=1e-2)
    assert ledger.prediction.not_attributed == pytest.approx(2e-3 + 2 * 4e-3)


def test_repeated_blocks_share_their_seconds():
    ledger = predicted(Model().eval(), TOKENS)
    row = next(row for row in ledger.rows if row.path == "blocks.*.qkv.mm")
    assert (row.times, row.predicted_seconds) == (4, pytest.approx(product(5, 8, 24)))


REBUILT = {
    "attention": ("vit-ti32", {}),
    "fused": ("vit-ti32", {"attention": "fused"}),
    "windows": ("swin-t", {"N": 196}),
    "a long loop": ("common-lstm", {"N": 100, "settings": ("stages.0.depth=1",)}),
    "a short loop": ("common-lstm", {"N": 32, "settings": ("stages.0.depth=1",)}),
}


@pytest.mark.parametrize(("name", "options"), REBUILT.values(), ids=REBUILT)
def test_a_spec_that_is_given_as_a_module_is_predicted_alike(name, options):
    options = dict(options)
    loaded = load(name, options.pop("settings", ()))
    live = build(place(loaded, make_run(**options)))
    overhead = Overhead(call=1e-6, view=2e-6, module=3e-6)
    as_spec = Predictor(calibration(overhead=overhead)).seconds(lambda: live)
    as_module = predicted(live.model, *live.inputs, overhead=overhead)
    assert as_module.prediction.seconds == pytest.approx(as_spec.whole, rel=1e-9)
    assert set(as_module.prediction.unknown) == set(as_spec.unknown)
    # but for views and calls of modules, everything has a row
    rest = as_module.prediction.not_attributed
    assert 0 < rest < 0.2 * as_module.prediction.seconds


def test_code_that_looks_at_values_is_recorded_on_real_numbers_and_that_is_said():
    ledger = predicted(Call(lambda x: x @ x.mT if x.sum() > 0 else x), torch.ones(10, 64))
    (mm,) = (row for row in ledger.rows if row.macs)
    assert mm.predicted_seconds == pytest.approx(product(10, 64, 10))
    assert "recorded with real numbers" in report_text(ledger)


def test_timed_operations_have_the_bytes_that_they_move():
    model = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 16))
    ledger = xfcost.analyze(
        model, example_inputs=torch.zeros(1, 5, dtype=torch.int64), trace=False, device="cpu", runs=3, threads=1
    )
    held = {row.operation: row.operand_bytes for row in ledger.rows}
    # 5 indices of 8 bytes, 5 rows of 8 numbers read and written; bias, x, weight, output
    assert held["embedding"] == 5 * 8 + 2 * 4 * 5 * 8
    assert held["addmm"] == 4 * (16 + 5 * 8 + 8 * 16 + 5 * 16)
    shown = json.loads(ledger.to_json())
    assert all(one["bytes_per_second"] > 0 for one in shown["operations"])
    assert "bytes/s" in report_text(ledger)


@pytest.fixture
def calibrated_here(tmp_path, monkeypatch):
    return keep_calibration(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text(
        "from torch import nn\n\ndef Net(): return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Softmax(-1))\n"
    )
    (tmp_path / "full.yaml").write_text(two_blocks("Full", {"kind": "full", "heads": 2}))
    return tmp_path


NET = ("model.py:Net", "--input", "1xNx8", "--threads", "1")


def test_the_commands(calibrated_here, folder):
    words = ("analyze", *NET, "--N", "16", "--predict", "--no-trace")
    found = json.loads(xf(*words, "--format", "json", cwd=folder).stdout)
    rows = {one["path"]: one["predicted_seconds"] for one in found["operations"]}
    assert rows["0.mm"] == pytest.approx(product(16, 8, 8))
    assert found["prediction"]["seconds"] == pytest.approx(sum(rows.values()) + found["prediction"]["not_attributed"])
    shown = xf(*words, cwd=folder).stdout
    assert "predicted: " in shown
    words = ("compare", "full.yaml", *NET, "--N", "16", "--predict")
    both = table_of(xf(*words, "--format", "csv", cwd=folder).stdout)
    assert float(both[1]["predicted_seconds"]) == pytest.approx(found["prediction"]["seconds"])
    assert "Net" in xf(*words, cwd=folder).stdout.partition("predicted time: on cpu")[2]


def test_fake_tensors_and_fused_attention_on_them():
    def shy(x):
        if x.is_meta:
            raise RuntimeError("no meta")
        return nn.functional.scaled_dot_product_attention(x, x, x)

    ledger = predicted(Call(shy), torch.ones(1, 2, 16, 8))
    assert ledger.module.tensors == "fake"
    assert ledger.prediction.unknown == ("xfcost.scaled_dot_product_attention",)
    (row,) = ledger.rows
    # two products of 16 × 16 × 8 in each of 2 heads; three tensors read and one written
    assert row.predicted_seconds == pytest.approx(1e-6 + (2 * 2 * 16 * 16 * 8 + 4 * 4 * 2 * 16 * 8) / 1e9)
    assert "recorded on fake tensors" in report_text(ledger)


def test_sparse_operands_are_predicted_as_dense_ones():
    matrix = torch.eye(8).to_sparse()

    def marked(x):
        with torch.profiler.record_function("a mark"):
            return matrix @ x

    assert predicted(Call(marked), torch.ones(8, 4)).prediction.seconds == pytest.approx(product(8, 8, 4))


@pytest.mark.parametrize("memory", [torch.strided, torch.jagged])
def test_calls_that_have_no_sizes_are_one_error(memory):
    nested = Call(lambda x: torch.relu(torch.nested.nested_tensor([x, x[:2]], layout=memory)))
    with pytest.raises(UsageError, match="a nested tensor has rows of"):
        predicted(nested, torch.ones(3, 4))
