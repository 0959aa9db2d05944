"""The names of a module's operations, and the modules whose they are."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from modules import Module
from xfcost.formulas.operation_costs import COSTS
from xfcost.formulas.operation_names import own_name, word_of
from xfcost.importing.onnx_graphs.operations import COSTS as ONNX_COSTS
from xfcost.report.document import DataTable, Document, TableColumn, lines_needed
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.views.analyze import document, operations_table

D, N = 8, 5


def titles(module, *inputs):
    return [row.title for row in module_ledger(module, inputs or (torch.ones(2, N, D),)).rows if not row.only_moves]


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("aten::native_layer_norm", "layer norm"),
        ("aten::_fused_rms_norm", "RMS norm"),
        ("aten::addmm", "matrix multiply"),
        ("aten::gelu_", "GELU"),
        ("scaled_dot_product_attention", "fused attention"),
        ("aten::max_pool2d_with_indices", "max pool"),
        ("aten::_adaptive_avg_pool2d", "adaptive average pool"),
        ("aten::log_sigmoid_forward", "log sigmoid"),
        ("aten::atan2", "atan2"),
        ("xfcost::selective_scan", "selective scan"),
        ("onnx::MatMul", "matrix multiply"),
        ("onnx::LayerNormalization", "layer norm"),
        ("onnx::ReduceL2", "reduce l2"),
        ("torchvision::nms", "torchvision::nms"),
    ],
)
def test_operators_have_words(operator, words):
    assert word_of(operator) == words


def test_no_counted_operator_has_a_name_of_code():
    """Words are spelled as text, the same for what is native, in place or private."""
    words = {name: word_of(name) for name in (*COSTS, *(f"onnx::{name}" for _, name in ONNX_COSTS))}
    assert not [name for name, text in words.items() if not text or "_" in text or "native" in text]
    assert {word_of(f"{name}_") == text for name, text in words.items() if name.startswith("aten::")} == {True}


class TestTitles:
    """What tells the rows of a block apart."""

    def test_a_module_of_one_operation_gives_its_name(self):
        """With parameters, and if that is no number; others say what they do.

        A module with others inside is none of one operation.
        """
        mlp = nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.GELU())
        mlp.add_module("last", nn.Linear(D, D))
        around = Module(lambda self, x: self.part(x) * self.scale, part=mlp, scale=nn.Parameter(torch.ones(D)))
        assert titles(Module(lambda self, x: self.it(x), it=around)) == [
            "part.0 layer norm", "part.1 linear", "part.2 GELU", "part.last", "multiply scale",
        ]  # fmt: skip

    def test_the_parts_of_attention_of_torch(self):
        layer = nn.MultiheadAttention(D, 2, batch_first=True)
        module = Module(lambda self, x: self.layer(x, x, x, need_weights=False)[0], layer=layer)
        assert titles(module) == ["in_proj", "in_proj bias", "fused attention", "out_proj"]
        # other widths of keys and values have projections of their own; with weights the matrices are written
        other = nn.MultiheadAttention(D, 2, kdim=3, vdim=4, batch_first=True)
        inputs = torch.ones(2, N, D), torch.ones(2, 6, 3), torch.ones(2, 6, 4)
        found = titles(other, *inputs)
        assert {*found} > {"q_proj", "k_proj", "v_proj", "in_proj bias"}
        start = found.index("attention scores")
        assert found[start : start + 3] == ["attention scores", "softmax", "weighted sum"]

    def test_operations_of_one_title_have_numbers(self):
        assert titles(Module(lambda self, x: x.cos().sin().cos() + x.sin())) == ["cos", "sin", "cos 2", "sin 2", "add"]

    def test_products_have_the_names_of_their_matrices(self):
        """Of one that several modules gave none, and of a bare `weight` the words."""
        parts = {"w": nn.Parameter(torch.ones(D, D)), "key_weight": nn.Parameter(torch.ones(D, D))}
        module = Module(lambda self, x: torch.relu(F.linear(x @ self.w, self.key_weight)), **parts)
        assert titles(module) == ["w", "key", "ReLU"]
        own = {"weight": parts["w"], "bias": nn.Parameter(torch.ones(D))}
        bare = Module(lambda self, x: (x @ self.weight).relu() + self.bias, **own)
        assert titles(bare) == ["matrix multiply", "ReLU", "bias"]

    def test_scores_have_no_name_of_their_bias(self):
        """A learned bias, added in the kernel, is no matrix of it, and its module is not the kernel's."""

        def run(self, x):
            return F.scaled_dot_product_attention(x, x, x, attn_mask=self.table.weight)

        ledger = module_ledger(Module(run, table=nn.Embedding(N, N)), (torch.ones(2, N, D),))
        assert [(row.title, row.params) for row in ledger.rows] == [("fused attention", 0), ("parameters", N * N)]
        own = Module(lambda self, x: run(self, x) * x, table=Module(None, weight=nn.Parameter(torch.ones(N, N))))
        assert titles(own)[0] == "fused attention"

    def test_a_map_whose_bias_is_added_apart_has_its_name(self):
        """As of tensors that do not lie in order."""
        model = Module(lambda self, x: self.part(x), part=Module(lambda self, x: self.f(x.mT), f=nn.Linear(N, D)))
        assert titles(model) == ["f", "f bias"]

    def test_a_tied_head_has_its_own_name(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                head = nn.Linear(D, 9, bias=False)
                self.table, self.out = nn.Embedding(9, D), Module(lambda self, x: self.head(x), head=head)
                self.out.head.weight = self.table.weight

            def forward(self, x):
                return self.out(self.table(x))

        ledger = module_ledger(Tied(), (torch.ones(2, N, dtype=torch.long),))
        assert [(row.title, row.params) for row in ledger.rows] == [("embedding", 9 * D), ("head", 0)]

    def test_names_below_a_module_leave_its_name_out(self):
        it = nn.MultiheadAttention(D, 2, batch_first=True)
        module = Module(lambda self, x: self.part(x), part=Module(lambda self, x: self.it(x, x, x)[0], it=it))
        rows = module_ledger(module, (torch.ones(2, N, D),)).rows
        assert [row.title for row in rows][:2] == ["it.in_proj", "it.in_proj bias"]
        assert {own_name(row) for row in rows} >= {"in_proj", "in_proj bias", "softmax", "matrix multiply"}


def table_of(ledger, monkeypatch, *, verbose=False):
    monkeypatch.setenv("COLUMNS", "160")
    return document(ledger, verbose=verbose).text("table")


def test_the_name_of_the_operator_stays_in_the_row_and_in_the_verbose_table(monkeypatch):
    ledger = module_ledger(nn.Sequential(nn.LayerNorm(D)), (torch.ones(2, N, D),))
    (row,) = ledger.rows
    assert (row.path, row.title, row.ran.aten) == ("0.native_layer_norm", "layer norm", "aten::native_layer_norm")
    assert "native_layer_norm" in table_of(ledger, monkeypatch, verbose=True)
    assert "native_layer_norm" not in table_of(ledger, monkeypatch)


def test_the_parts_with_most_macs_are_named_as_in_the_code(monkeypatch):
    mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))
    module = Module(lambda self, x: self.mlp(self.attn(x, x, x)[0]), mlp=mlp, attn=nn.MultiheadAttention(D, 2))
    text = table_of(module_ledger(module, (torch.ones(2, N, D),)), monkeypatch)
    (line,) = [line for line in text.splitlines() if "most MACs" in line]
    assert "mlp.0 + mlp.2 linear" in line
    assert "attn.in_proj + out_proj" in line


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("norm", 1),
        ("attn fused", 1),
        ("attn fused x", 2),
        ("attn matrix multiply", 3),
        ("blocks.attention", 2),
        ("blocks.attention sum", 3),
        ("abcdefghijklmnop", 2),
    ],
)
def test_the_lines_that_a_folded_name_takes(text, lines):
    """Those that the table draws."""
    assert lines_needed(text, 10) == lines
    table = DataTable([TableColumn("name", fold=10, width=10)], [[text]])
    drawn = Document(parts=lambda: iter([table]), records=list, json=str).text("table").splitlines()
    assert len([line for line in drawn if line.strip()]) == 1 + lines


@pytest.mark.parametrize(("names", "width"), [(["norm"], 24), (["relative_position_bias", "table"], 28)])
def test_no_name_takes_three_lines(names, width):
    """The column is as wide as that needs; at 80 columns others are left out."""
    module = nn.Linear(D, D)
    for name in ["encoder", "layers", "0", "attention", *names][::-1]:
        module = Module(lambda self, x, name=name: getattr(self, name)(x), **{name: module})
    ledger = module_ledger(module, (torch.ones(2, N, D),))
    column = operations_table(ledger, whole=ledger).columns[0]
    assert column.width == width
    assert max(lines_needed(row.title, column.width) for row in ledger.rows) <= 2
