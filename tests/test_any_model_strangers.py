"""Awkward code of users: it prints, exits, parses a command line, stands in a package, has lazy modules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import xfcost
from helpers import xf
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.report.export import ledger_text
from xfcost.report.table import share_cell
from xfcost.spec.targets import module_target
from xfcost.torch_models.any_model.inputs import Given, inputs_from
from xfcost.torch_models.any_model.targets import built

CODE = """
import argparse
import sys
import torch
from torch import nn

print("printed at import")
WIDTH = vars(argparse.ArgumentParser().parse_known_args()[0]).get("width", 8)
assert sys.argv[1:] == []

class Größe(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        print("printed in forward")
        return self.fc(x)

class Lazy(nn.Sequential):
    def __init__(self):
        super().__init__(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.LazyLinear(3))

class ExitsAtOnce(nn.Module):
    def __init__(self):
        sys.exit(3)

class ExitsLater(nn.Module):
    def forward(self, x):
        sys.exit("bye")
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "strange.py").write_text(CODE, encoding="utf-8")
    return tmp_path / "strange.py"


def test_what_code_prints_stays_out_of_the_report(code: Path) -> None:
    told = xf("analyze", f"{code}:Größe", "--input", "2x8", "--format", "json")
    assert json.loads(told.stdout)["totals"]["macs"] == 2 * 8 * 8
    assert "printed at import\nprinted in forward" in told.stderr


def test_lazy_modules_take_their_shapes_from_the_inputs(code: Path) -> None:
    ledger = xfcost.analyze(f"{code}:Lazy", inputs=["2x8"], trace=False)
    assert ledger.total("macs") == 2 * (8 * 5 + 5 * 3)
    assert ledger.total("params") == 8 * 5 + 5 + 2 * 5 + 5 * 3 + 3
    with pytest.raises(UsageError, match="Lazy does not run on these inputs"):
        xfcost.analyze(f"{code}:Lazy", inputs=["2x8x3x3x3"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ExitsAtOnce", "making it raised SystemExit: 3"),
        ("ExitsLater", "does not run on these inputs: SystemExit: bye"),
    ],
)
def test_code_that_exits_is_an_error_and_not_the_end(code: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        xfcost.analyze(f"{code}:{name}", inputs=["2x8"])


def test_example_inputs_that_raise_are_an_error_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def example_inputs():\n    return 1 / 0\n\nNet = None\n")
    with pytest.raises(UsageError, match=r"its example_inputs raised ZeroDivisionError.*model\.py:2"):
        xfcost.analyze(f"{tmp_path}/model.py:Net")


def test_a_file_inside_a_package_may_import_its_neighbours(tmp_path: Path) -> None:
    inner = tmp_path / "strange_package" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner.parent / "sizes.py").write_text("WIDTH = 6\n")
    lines = "from torch import nn\nfrom ..sizes import WIDTH\n\ndef net():\n    return nn.Linear(WIDTH, WIDTH)\n"
    (inner / "net.py").write_text(lines)
    assert xfcost.analyze(f"{inner}/net.py:net", inputs=["1x6"], trace=False).total("macs") == 36


def test_names_may_be_of_any_alphabet() -> None:
    assert module_target("größen.модель:Größe") is not None


@pytest.mark.parametrize("text", ["model.py:", "model.py:1st", "model.py:Net()"])
def test_a_python_file_wants_a_name_in_it(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected a name in the file, as in model\.py:Net"):
        module_target(text)


def test_each_of_many_positional_inputs_has_its_place_as_name() -> None:
    class Sums(nn.Module):
        def forward(self, first: torch.Tensor, *more: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
            return first + sum(more)

    tensors = tuple(torch.zeros(2) for _ in range(3))
    assert [name for name, _ in Given(tensors, {}).named(Sums())] == ["first", "more[0]", "more[1]"]


def test_a_quoted_text_is_a_plain_input() -> None:
    assert inputs_from(["mode='fast'"], {}, "meta").kwargs == {"mode": "fast"}
    with pytest.raises(UsageError, match="expected a shape"):
        inputs_from(["mode=fast"], {}, "meta")


def test_a_share_of_everything_fits_its_column() -> None:
    ledger = xfcost.analyze(nn.Linear(4, 4), example_inputs=torch.zeros(1, 4), trace=False)
    assert share_cell(ledger.rows[0], 16) == "100 %"
    assert share_cell(ledger.rows[0], 17) == "94.1 %"


def test_a_model_on_meta_has_no_parameters_to_change(recwarn: pytest.WarningsRecorder) -> None:
    class Rescales(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.div_(2)
            return super().forward(x)

    model = Rescales(4, 4, device="meta")
    assert xfcost.analyze(model, example_inputs=torch.zeros(1, 4)).total("macs") == 16
    assert not recwarn.list


QWEN = {
    "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 12, "vocab_size": 11,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
}  # fmt: skip


def config_refused(folder: Path, text: str) -> str:
    (folder / "config.json").write_text(text, encoding="utf-8")
    told: list[str] = []
    with pytest.raises(XfcostError) as caught:
        xfcost.analyze(str(folder / "config.json"), trace=False, progress=told.append)
    return "\n".join([*told, str(caught.value)])


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"model_type": 3}'])
def test_what_is_no_config_is_refused_once_and_not_run(tmp_path: Path, text: str) -> None:
    assert "transformers is run" not in config_refused(tmp_path, text)


@pytest.mark.parametrize("architectures", [["logging"], ["Qwen3Config"], ["Nope"], [3], {"a": 1}])
def test_architectures_name_a_model(tmp_path: Path, architectures: object) -> None:
    pytest.importorskip("transformers")
    assert "has no model " in config_refused(tmp_path, json.dumps(QWEN | {"architectures": architectures}))


def test_what_transformers_refuses_is_told_whole(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    refusal = config_refused(tmp_path, json.dumps(QWEN | {"hidden_size": "wide"}))
    assert "field 'hidden_size': TypeError: Field 'hidden_size' expected int" in refusal


@pytest.mark.rest
def test_a_config_with_a_byte_order_mark_and_one_architecture(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    text = json.dumps(QWEN | {"architectures": "Qwen3ForCausalLM"})
    (tmp_path / "config.json").write_text(text, encoding="utf-8-sig")
    ledger = xfcost.analyze(str(tmp_path / "config.json"), N=5, trace=False)
    # a token: Q and its projection 2·8·8, K and V 2·8·4, three maps of the MLP 3·8·12; 5² pairs of 2 heads of 4, twice
    assert ledger.total("macs") == 2 * (5 * (2 * 64 + 2 * 32 + 3 * 96) + 2 * 25 * 2 * 4) + 5 * 8 * 11


def test_a_constructor_that_forgets_torch_s_own() -> None:
    class Forgets(nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(UsageError, match=r"Forgets: its __init__ does not call super\(\).__init__\(\)"):
        xfcost.analyze(Forgets(), example_inputs=torch.zeros(1, 4))
    with pytest.raises(UsageError, match="Forgets: its __init__ does not call"):
        built(Forgets, {}, "meta", "it")


def test_the_report_says_why_a_model_does_not_run_on_meta() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.eye(4).to_sparse())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(self.table, x)

    ledger = xfcost.analyze(Sparse(), example_inputs=torch.zeros(4, 4), trace=False)
    assert "on real tensors, for it does not run on meta (tensors are sparse_coo)" in " ".join(
        ledger_text(ledger, "table", None).split()
    )
