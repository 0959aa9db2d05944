"""`reach` of torch modules, by changing one token at a time, and of the running models of specs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xfcost
from modules import Call, Module
from reaching import Steps, composed, running, small
from xfcost.ledger.errors import UsageError
from xfcost.questions.reach.text import answers
from xfcost.torch_models.any_model.inputs import Given
from xfcost.torch_models.reach import any_reach
from xfcost.torch_models.reach.any_reach import Output, blocks_of, grid_of, position_axes, reach_of_module


class Block(nn.Module):
    """Attention over all tokens, or over earlier ones."""

    def __init__(self, width: int, *, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(width, 3 * width), nn.Linear(width, width), causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))


def neighbours() -> nn.Module:
    """A kernel of three along a sequence, behind a gate that is zero at the start."""
    parts = {"conv": nn.Conv1d(8, 8, 3, padding=1), "gate": nn.Parameter(torch.zeros(1))}
    return Module(lambda self, x: x + self.gate * self.conv(x.mT).mT, **parts)


class Text(nn.Module):
    def __init__(self, block: Callable[[], nn.Module], depth: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.h = nn.ModuleList(block() for _ in range(depth))
        self.head = nn.Linear(8, 20)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.h:
            x = block(x)
        return self.head(x)


def words(n: int) -> Tensor:
    return torch.arange(n)[None] % 20


def test_a_causal_text():
    found = xfcost.reach(Text(lambda: Block(8, causal=True)), example_inputs=words(12))
    assert (found.causal, found.path_length, len(found.blocks)) == (True, 1, 3)
    first = found.steps[0]
    assert (first.path, first.label, first.kinds) == ("h.0", "h · block 1", ("Block",))
    assert (first.met[0].smallest, first.met[0].largest) == (1, 12)


def test_a_field_that_grows_and_a_gate_of_zero_hides_nothing_and_one_later_token_is_not_causal():
    found = xfcost.reach(Text(neighbours), example_inputs=words(16))
    assert [step.met[0].largest for step in found.steps] == [3, 5, 7]
    assert (found.path_length, found.causal) == (None, False)
    assert not xfcost.reach(Text(neighbours, depth=1), example_inputs=words(12)).causal
    assert found.maps[0].first.tolist()[4:13] == [-1, 3, 2, 1, 0, 1, 2, 3, -1]


def picture() -> nn.Module:
    """Two 3×3 convolutions in a list, the second with stride 2, and a linear map of the mean."""
    first, second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, stride=2, padding=1)
    layers = nn.Sequential(first, nn.GELU(), second, nn.GELU())
    return Module(lambda self, x: self.head(self.layers(x).mean((2, 3))), layers=layers, head=nn.Linear(6, 2))


def test_an_image_in_pixels_without_the_pooled_vector():
    found = xfcost.reach(picture(), example_inputs=torch.randn(1, 3, 12, 12))
    assert found.inputs[0].unit == "pixel"
    assert [(step.path, step.tokens, step.met[0].smallest, step.met[0].largest) for step in found.steps] == [
        ("layers.0", 144, 4, 9), ("layers.2", 36, 9, 25),
    ]  # fmt: skip
    assert found.notes[0] == "after its last block the module mixes tokens: its output depends on 144 of 144 pixels"


def tokens_first(self: Any, x: Tensor) -> Tensor:
    """Its blocks take (N, B, D), as torch's own transformers do."""
    x = x.transpose(0, 1)
    for block in self.blocks:
        x = block(x)
    return x.transpose(0, 1)


def encoders() -> nn.ModuleList:
    return nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0) for _ in range(2))


@pytest.mark.parametrize(
    ("model", "shape", "met"),
    [  # of the first, a linear map says along which axis tokens lie; the second's input has no batch
        (nn.Sequential(nn.Linear(16, 16), nn.Conv1d(64, 64, 3, padding=1)), (1, 64, 16), [(64, 1), (64, 64)]),
        (nn.Sequential(nn.Linear(16, 16)), (12, 16), [(12, 1)]),
        (Module(tokens_first, blocks=encoders()), (1, 24, 8), [(24, 24), (24, 24)]),
    ],
    ids=["linear", "no batch", "before_the_batch"],
)
def test_positions_of_inputs(model: nn.Module, shape: tuple[int, ...], met: list[tuple[int, int]]) -> None:
    found = xfcost.reach(model, example_inputs=torch.randn(shape))
    assert [(step.tokens, step.met[0].smallest) for step in found.steps] == met
    assert all(step.met[0].smallest == step.met[0].largest for step in found.steps)


def above(self: Any, x: Tensor) -> Tensor:
    """Gives the numbers above zero alone, as many as there are."""
    x = self.map(x)
    return x[x > 0][None]


def test_an_output_whose_shape_depends_on_content_is_left_out():
    found = xfcost.reach(Module(above, map=nn.Linear(4, 4)), example_inputs=torch.randn(1, 9, 4))
    assert [(step.path, step.met[0].largest) for step in found.steps] == [("map", 1)]
    assert not any("after its last block" in note for note in found.notes)


def test_rectifiers_and_maxima_hide_nothing():
    # two channels behind rectifiers, and a maximum: with these weights most of it is 0
    first, second = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
    nn.init.constant_(first.bias, -1e3)
    layers = nn.Sequential(first, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), second)
    found = xfcost.reach(layers, example_inputs=torch.randn(1, 1, 12, 12))
    assert [(step.path, step.met[0].smallest, step.met[0].largest) for step in found.steps] == [
        ("0", 4, 9),
        ("2", 9, 25),  # 3×3 places every two, each of 3×3
        ("3", 25, 81),  # 3×3 of these: 9×9
    ]


def test_an_encoder_decoder_is_told_by_its_inputs():
    model = nn.Transformer(8, 2, 2, 2, 16, dropout=0.0, batch_first=True)
    given = {"src": torch.randn(1, 6, 8), "tgt": torch.randn(1, 5, 8)}
    found = xfcost.reach(model, example_inputs=given)
    assert [one.name for one in found.inputs] == ["src", "tgt"]
    assert {step.stream for step in found.steps if step.path.startswith("encoder")} == {"src"}
    last = found.steps[-1]
    assert [(met.input, met.units, met.smallest) for met in last.met] == [("tgt", 5, 5), ("src", 6, 6)]


WEIGHT_READ = Module(lambda self, x: F.linear(x, self.layers[0].weight), layers=nn.ModuleList([nn.Linear(4, 4)]))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    "model", [lambda: Call(torch.sin), lambda: WEIGHT_READ, lambda: nn.Sequential(nn.Linear(4, 0))]
)
def test_a_module_that_runs_no_block_is_refused(model: Callable[[], nn.Module]) -> None:
    with pytest.raises(UsageError, match="runs none of its blocks"):
        xfcost.reach(model(), example_inputs=torch.randn(1, 6, 4))


def test_a_size_that_takes_too_much_work_is_reduced_and_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(any_reach, "_flops", lambda *run: 10)
    monkeypatch.setattr(any_reach, "MOST_FLOPS", 10 * 3 * 63)  # each of 64 tokens is changed three times
    found = reach_of_module(Text(neighbours), Given((words(64),), {}), "Text", None)
    assert found.inputs[0].sides == (36,)
    assert found.notes[0].startswith("reduced: ")


def test_the_module_is_left_as_it_is():
    model = Text(lambda: Block(8, causal=True)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    xfcost.reach(model, example_inputs=words(12))
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_blocks_are_numbered_children_that_are_no_lists():
    inner = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Block(8, causal=True), Block(8, causal=False)))
    assert list(blocks_of(inner)) == ["1.0", "1.1"]
    assert list(blocks_of(Text(lambda: Block(8, causal=True), depth=2))) == ["h.0", "h.1"]
    assert list(blocks_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.MaxPool1d(2)))) == ["0", "2"]


@pytest.mark.parametrize(
    ("shape", "other", "axes"),
    [
        ((1, 4, 9, 9), (1, 4, 6, 6), (2, 3)), ((1, 9, 9, 4), (1, 6, 6, 4), (1, 2)), ((1, 9, 4), None, (1,)),
        ((1, 7, 7, 4), None, (1, 2)), ((1, 4, 7, 7), None, (2, 3)), ((1, 4), None, ()),
    ],
)  # fmt: skip
def test_positions_lie_along_the_axes_that_change_with_the_size(
    shape: tuple[int, ...], other: tuple[int, ...] | None, axes: tuple[int, ...]
):
    one, more = ([Output("a", torch.zeros(size))] if size else [] for size in (shape, other))
    assert position_axes(one, more) == [axes]


def test_grids_of_tokens():
    found = grid_of((197,), (224, 224))
    assert (found.sides, found.special) == ((14, 14), 1)
    assert grid_of((12,), (12,)).sides == (12,)


def routed(self: Any, x: Tensor) -> Tensor:
    """Each token goes to the linear map that it chooses."""
    chosen, out = self.gate(x).argmax(-1), torch.zeros_like(x)
    for number, expert in enumerate(self.experts):
        rows = (chosen == number).nonzero(as_tuple=True)
        out[rows] = expert(x[rows])
    return out


def test_blocks_of_tokens_that_are_chosen_are_refused() -> None:
    torch.manual_seed(0)
    model = Module(routed, gate=nn.Linear(8, 2), experts=nn.ModuleList(nn.Linear(8, 8) for _ in range(2)))
    with pytest.raises(UsageError, match=r"experts\.\d gives \d+×8 numbers, and \d+×8 where one token is"):
        xfcost.reach(model, example_inputs=torch.randn(1, 24, 8))


def summed_edges(self: Any, x: Tensor, edges: Tensor) -> Tensor:
    """Every node adds up the nodes that edges lead from."""
    x = self.map(x)
    return self.out(x.index_add(0, edges[1], x[edges[0]]))


def test_the_edges_of_a_graph_are_no_tokens() -> None:
    edges = torch.stack([torch.arange(9), torch.arange(1, 10)])  # a path of 10 nodes: each reads the one before
    model = Module(summed_edges, map=nn.Linear(4, 4), out=nn.Linear(4, 4))
    found = xfcost.reach(model, example_inputs=(torch.randn(10, 4), edges))
    assert [(step.met[0].smallest, step.met[0].largest) for step in found.steps] == [(1, 1), (1, 2)]


class Translator(nn.TransformerDecoder):
    """A class of one's own, which may take any axes."""


def test_the_letter_of_an_input_says_where_its_tokens_are():
    # (N, B, D), as torch's attention takes it by default; of inputs without the letter the batch comes second too, here
    # of as many samples as the memory has tokens
    model = Translator(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), 2, norm=None)
    inputs = lambda n: {"tgt": torch.randn(n, 5, 8), "memory": torch.randn(5, 5, 8)}  # noqa: E731 - one line
    found = xfcost.reach(model, example_inputs=inputs, N=12)
    assert [(one.name, one.units) for one in found.inputs] == [("tgt", 12), ("memory", 5)]
    assert [(step.stream, step.tokens) for step in found.steps] == [("tgt", 12), ("tgt", 12)]
    assert {(met.input, met.smallest) for step in found.steps for met in step.met} == {("tgt", 12), ("memory", 5)}


class Reader(nn.Module):
    """Cross-attention alone: each token reads the memory, and no other token."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.attention(x, memory, memory)[0]


@pytest.mark.parametrize("tokens", [6, 9])
def test_the_answer_of_cross_attention_names_what_is_not_met(tokens: int):
    found = xfcost.reach(Reader(), example_inputs=(torch.randn(1, 9, 8), torch.randn(1, tokens, 8)))
    answer = "not every token depends on every other and all memory tokens: after its one block a token depends on "
    assert answers(found) == [answer + "1 of 9 tokens"]


class Case(NamedTuple):
    """A preset made small: its width alone where its depth can stay."""

    preset: str
    settings: tuple[str, ...] = ()
    tokens: int | None = None
    size: tuple[int, int] | None = None
    seeds: int = 2


DILATED = tuple(
    f"stages.0.blocks.{n}.blocks.0.0.{key}" for n in range(5) for key in ("window=4", f"dilation={n + 1}", "heads=2")
)
CASES = [
    Case("swin-t", ("stages.each.dim=[8, 8, 8, 8]", "**.heads=1"), size=(56, 56)),
    Case(
        "resnet-50", ("stages.each.dim=[16, 16, 16, 16]", "**.width=8", "embed.0.channels=16"), size=(20, 18), seeds=5
    ),
    Case("longformer-char-small", (*DILATED, "stages.0.dim=8", "**.hidden=16"), tokens=50),
    Case(
        "bigbird-base",
        ("stages.0.dim=8", "stages.0.block.0.block=2", "stages.0.block.0.heads=2", "stages.0.block.1.hidden=16"),
        tokens=30,
    ),
    Case("gpt2", ("stages.0.dim=8", "**.heads=2", "**.vocabulary=20"), tokens=14),
    Case("mamba-130m", ("stages.0.dim=8", "**.state=4", "**.vocabulary=20"), tokens=14),
    Case("mixer-s32", ("stages.0.dim=16", "**.hidden=16"), size=(64, 96)),
    Case("t5-small", ("**.dim=16", "**.vocabulary=20", "**.hidden=16"), tokens=7),
    Case("seq2seq-lstm", ("**.dim=8", "**.vocabulary=20"), tokens=5),
    Case("cait-xxs24", ("**.dim=8", "**.heads=2", "stages.0.depth=3"), size=(48, 64)),
    Case("common-axial", ("stages.0.dim=24", "stages.0.depth=3", "**.vocabulary=20"), tokens=32),
    Case("common-set-transformer", ("stages.0.dim=24", "**.vocabulary=20"), tokens=12),
    # what its compressed keys leave out is handed on by the residual
    Case("t-dmca", ("stages.0.dim=8", "**.heads=2", "**.block=3", "**.hidden=16", "**.vocabulary=20"), tokens=14),
    Case("poolformer-s12", ("stages.each.dim=[8, 8, 8, 8]", "stages.each.depth=[1, 1, 1, 1]"), size=(32, 32)),
]  # fmt: skip


def differing(one: Steps, other: Steps) -> list[str]:
    """The steps at which any token's set is another."""
    found = []
    for (label, mine), (other_label, others) in zip(one, other, strict=True):
        assert label == other_label
        for name, seen in others.items():
            if not np.array_equal(mine.get(name, np.zeros_like(seen)), seen):
                found.append(f"{label}: {name}")
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.preset)
def test_the_composed_sets_are_those_of_the_running_model(case: Case) -> None:
    architecture = small(case.preset, case.settings, tokens=case.tokens, size=case.size)
    assert differing(composed(architecture), running(architecture, range(case.seeds))) == []
