"""Which adds of a module are residual, what they add, and their paths in its diagram."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from modules import Module
from xfcost.comparing.diagram import diagram
from xfcost.questions.diagram.text import diagram_figure
from xfcost.torch_models.any_model.ledger import module_ledger

D, N = 8, 5
LINEAR = {"f": nn.Linear(D, D), "g": nn.Linear(D, D), "norm": nn.LayerNorm(D)}


def adds(function, **parts):
    """Of every add of a module itself: what it adds, and to what; None of one that is not residual."""
    rows = module_ledger(Module(function, **{**LINEAR, **parts}), (torch.ones(2, N, D),)).rows
    found = [row for row in rows if row.figure("aten") in ("aten::add", "aten::add_") and not row.component]
    assert [row.title.startswith("residual add") for row in found] == [row.role == "add" for row in found]
    return [(row.ran.adds, row.ran.adds_to) if row.role == "add" else None for row in found]


def in_place(self, x):
    y = x.clone()
    y += self.f(y)
    return y


def nested(self, x):
    y = self.f(x)
    return x + self.norm(y + self.g(y))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda self, x: x + self.f(self.norm(x)), [("f", "")], id="pre-norm"),
        pytest.param(lambda self, x: self.norm(x + self.f(x)), [("f", "")], id="post-norm"),
        pytest.param(nested, [("g", "f.addmm"), ("norm", "")], id="nested"),
        pytest.param(in_place, [("f", "")], id="in place"),
        pytest.param(lambda self, x: self.f(x.transpose(0, 1)).transpose(0, 1) + x, [("f", "")], id="views"),
        pytest.param(lambda self, x: x + self.f(x) + self.g(x), [("f", ""), ("g", "")], id="parallel branches"),
        pytest.param(lambda self, x: x + F.avg_pool1d(x, 3, 1, 1) @ x.mT @ x, [("", "")], id="functions alone"),
        pytest.param(lambda self, x: self.f(x) + self.g(x), [None], id="two branches"),
        pytest.param(lambda self, x: self.f(x) + self.table, [None], id="a table of positions"),
        pytest.param(lambda self, x: x + 0.044715 * x**3, [None], id="an approximated GELU"),
        pytest.param(lambda self, x: x + x, [None], id="twice the same"),
        pytest.param(lambda self, x: x + self.f(x).mean(-1, keepdim=True), [None], id="of another shape"),
        pytest.param(lambda self, x: self.f(torch.cat([x, self.g(x)])), [], id="concatenation"),
    ],
)
def test_an_add_is_residual_if_one_operand_is_computed_from_the_other(function, expected):
    assert adds(function, table=nn.Parameter(torch.ones(N, D).expand(2, N, D).clone())) == expected


def test_an_operation_that_is_residual_in_some_calls_alone_is_an_add():
    def run(self, x):
        for other in (x, self.g(x)):
            x = other + self.f(x)
        return x

    assert adds(run) == [None]


def test_blocks_that_differ_in_what_they_add_to_are_one():
    """Figures are the same; the name is that of the first."""
    layers = nn.ModuleList([Module(lambda self, x, y: y + self.f(x), f=nn.Linear(D, D)) for _ in range(2)])

    def run(self, x):
        x = self.layers[0](x, self.g(x))
        return self.layers[1](x, x)

    rows = module_ledger(Module(run, layers=layers, g=nn.Linear(D, D)), (torch.ones(2, N, D),)).rows
    assert [(row.path, row.times) for row in rows if "layers" in row.path] == [
        ("layers.*.f.addmm", 2), ("layers.*.add", 2),
    ]  # fmt: skip


def paths(module, *inputs):
    """The boxes that each residual path of a diagram goes around, and where it ends."""
    ledger = module_ledger(module, inputs or (torch.ones(2, N, D),), mixing=0)
    boxes = diagram([ledger]).columns[0].boxes
    return [
        ([one.name for one in boxes[place - box.around : place]], boxes[place + 1].slot == "output")
        for place, box in enumerate(boxes)
        if box.adds
    ]


class Stack(nn.Module):
    """Some layers, one after the other."""

    def __init__(self, layer):
        super().__init__()
        self.layers = nn.ModuleList([layer() for _ in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("first", [True, False])
def test_residual_paths_of_torch_s_encoder_layer_begin_where_they_do(first):
    """Behind the first add with a norm before each sub-layer; behind the norm that follows it otherwise."""
    layer = lambda: nn.TransformerEncoderLayer(D, 2, 16, batch_first=True, norm_first=first)  # noqa: E731 - one line
    (attention, inner), (mlp, last) = paths(Stack(layer))
    assert ("norm1" in attention, "norm2" in mlp) == (first, first)
    assert [name for name in mlp if name.startswith("linear")] == ["linear1", "linear2"]
    assert (inner, last) == (False, first)


def test_a_residual_path_goes_round_one_inside_it():
    layer = lambda: Module(nested, f=nn.Linear(D, D), g=nn.Linear(D, D), norm=nn.LayerNorm(D))  # noqa: E731 - one line
    assert [names for names, _ in paths(Stack(layer))] == [["g"], ["f", "g", "+ Residual", "norm"]]


def test_a_path_round_another_is_drawn_outside_it():
    layer = lambda: Module(nested, f=nn.Linear(D, D), g=nn.Linear(D, D), norm=nn.LayerNorm(D))  # noqa: E731 - one line
    figure = diagram_figure(diagram([module_ledger(Stack(layer), (torch.ones(2, N, D),))]))
    inner, outer = ([one.get_xdata(), one.get_ydata()] for one in figure.axes[0].lines)
    assert outer[0][1] < inner[0][1]
    assert outer[1][0] > inner[1][0] > inner[1][-1] > outer[1][-1]


def test_an_add_inside_a_child_ends_the_path_of_the_block():
    """As in BERT: the module behind attention adds its input, and norms the sum."""
    out = lambda: Module(lambda self, y, x: self.norm(self.dense(y) + x), dense=nn.Linear(D, D), norm=nn.LayerNorm(D))  # noqa: E731 - one line
    layer = lambda: Module(lambda self, x: self.out(self.inner(x).relu(), x), inner=nn.Linear(D, D), out=out())  # noqa: E731 - one line
    assert [names for names, _ in paths(Stack(layer))] == [["inner", "ReLU", "out"]]


def test_the_input_of_a_block_is_what_its_residual_adds():
    """The largest tensor that its first operation takes may be a weight."""
    parts = {"up": nn.Linear(D, 99), "down": nn.Parameter(torch.ones(99, D))}
    layer = lambda: Module(lambda self, x: x + self.up(x) @ self.down, **parts)  # noqa: E731 - one line
    ledger = module_ledger(Stack(layer), (torch.ones(2, N, D),))
    assert diagram([ledger]).columns[0].boxes[0].detail == f"2×{N}×{D}"
