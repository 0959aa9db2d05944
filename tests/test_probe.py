"""The probed account: of modules whose pattern is known beforehand, and of whole models of the gallery."""

from collections import defaultdict
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

import whole_probe as probe_module
from followed import run_followed
from modules import Call
from whole_probe import Probed, kind_of, probe
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import PatchMerging
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import KINDS
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build
from xfcost.torch_models.layers.stage_entries import PatchMergingLayer
from xfcost.torch_models.mixing.verdict import FoundOperation, verdicts
from xfcost.torch_models.probing.account import prepared
from xfcost.torch_models.running.by_row import row_path


def tokens(n: int, width: int = 4) -> tuple[Tensor]:
    return (torch.zeros(1, n, width),)


def sets(*lists: list[int]) -> tuple[frozenset[int], ...]:
    return tuple(map(frozenset, lists))


def test_a_convolution_reads_its_neighbours() -> None:
    layer = nn.Conv1d(4, 3, 3, padding=1)
    seen = probe(layer, (torch.zeros(1, 4, 5),), tokens=(2,))
    assert seen.reads == sets([0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4])
    assert (seen.most, seen.pairs, seen.inputs) == (3, 13, 5)  # 2 + 3·3 + 2
    assert kind_of(seen, probe(layer, (torch.zeros(1, 4, 10),), tokens=(2,))) == "local"


def test_tokens_on_two_axes_are_numbered_in_raster_order() -> None:
    # A 1×2 kernel on 2×3 pixels: output (y, x) reads (y, x) and (y, x+1), and there are 2×2 of them.
    seen = probe(nn.Conv2d(2, 2, (1, 2)), (torch.zeros(1, 2, 2, 3),), tokens=(2, 3))
    assert seen.reads == sets([0, 1], [1, 2], [3, 4], [4, 5])
    # With the axes the other way round, columns come first.
    turned = probe(nn.Conv2d(2, 2, (1, 2)), (torch.zeros(1, 2, 2, 3),), tokens=(3, 2))
    assert turned.reads == sets([0, 2], [1, 3], [2, 4], [3, 5])


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda n: nn.Linear(4, 3), "per-token"),
        (lambda n: nn.LayerNorm(4), "per-token"),
        (lambda n: nn.Sequential(nn.Linear(4, 9), nn.GELU(), nn.Linear(9, 4)), "per-token"),
        (lambda n: Call(lambda x: x.roll(1, dims=1)), "per-token"),  # tokens move and aren't mixed
        (lambda n: Call(lambda x: x + x.roll(1, dims=1)), "local"),
        (lambda n: Call(lambda x: x.cumsum(1)), "global"),
        (lambda n: Call(lambda x: x.mean(1, keepdim=True)), "global"),
        (lambda n: Call(lambda x: x - x.mean(1, keepdim=True)), "global"),
        (lambda n: nn.LSTM(4, 3, batch_first=True), "global"),
        (lambda n: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), "global"),
        (lambda n: PatchMergingLayer(PatchMerging(), Place(grid=Grid((2, n // 2)), dim=4, out_dim=8)), "per-token"),
    ],
    ids=["linear", "norm", "mlp", "roll", "roll and add", "cumsum", "mean", "centre", "lstm", "encoder", "merging"],
)
def test_kinds(make, kind: str) -> None:
    small, large = (probe(make(n), tokens(n)) for n in (8, 16))
    assert kind_of(small, large) == kind


def test_a_causal_pattern() -> None:
    seen = probe(Call(lambda x: x.cumsum(1)), tokens(4))
    assert seen.reads == sets([0], [0, 1], [0, 1, 2], [0, 1, 2, 3])


def test_a_tiny_influence_is_no_rounding_error() -> None:
    # Token 0 goes into the others with a weight of 1e-9, and nothing goes into token 0.
    seen = probe(Call(lambda x: x + 1e-9 * x[:, :1]), tokens(3))
    assert seen.reads == sets([0], [0, 1], [0, 2])


def test_rounding_is_told_from_reading_where_that_is_asked() -> None:
    faint = Call(lambda x: x + 1e-14 * x[:, :1])
    assert probe(faint, tokens(3)).reads == sets([0], [0, 1], [0, 2])
    assert probe(faint, tokens(3), rounding=1e-12).reads == sets([0], [1], [2])
    assert probe(Call(lambda x: x + 1e-9 * x[:, :1]), tokens(3), rounding=1e-12).reads == sets([0], [0, 1], [0, 2])


def test_what_an_initialisation_hides_is_seen_with_fresh_weights() -> None:
    class Gate(nn.Module):
        """x + gate · mean of all, the gate being 0 at first."""

        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.gate * x.mean(1, keepdim=True)

    assert probe(Gate(), tokens(3)).most == 3
    assert probe(Gate(), tokens(3), fresh_weights=False).most == 1


def test_the_other_inputs_are_left_alone() -> None:
    module = Call(lambda x, memory, bias: x + memory.mean(1, keepdim=True) + bias)
    inputs = (torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), torch.zeros(3, 4))
    assert probe(module, inputs).reads == sets([0], [1], [2])
    assert probe(module, inputs, which=1).reads == sets(*[list(range(5))] * 3)
    assert probe(module, inputs, which=1).inputs == 5


def test_an_output_of_another_shape() -> None:
    # (1, 6, 4) -> (1, 4, 3): pairs of tokens on the last axis.
    module = Call(lambda x: x.unflatten(1, (3, 2)).sum(2).transpose(1, 2))
    assert probe(module, tokens(6), out_tokens=(2,)).reads == sets([0, 1], [2, 3], [4, 5])
    # With no axis but batch and token left, and in a tuple as recurrent layers answer.
    scalar = Call(lambda x: (x.sum(-1), None))
    assert probe(scalar, tokens(2)).reads == sets([0], [1])


def test_chunks_give_the_same_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Conv1d(4, 3, 3, padding=1)
    whole = probe(layer, (torch.zeros(1, 4, 7),), tokens=(2,))
    sizes = []
    module = nn.Sequential(layer)
    module.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[0]))
    monkeypatch.setattr(probe_module, "MOST_NUMBERS", 3 * 28)  # three samples of 4·7 numbers at once
    assert probe(module, (torch.zeros(1, 4, 7),), tokens=(2,)) == whole
    assert sizes == [3, 3, 3, 1, 1]  # unchanged, changed, changed; and for the rest of one: unchanged, changed


def test_the_module_stays_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    before = module[0].weight.clone()
    assert probe(module, tokens(3)).reads == sets([0], [1], [2])
    assert module.training
    assert module[0].weight.requires_grad
    assert torch.equal(module[0].weight, before)


def test_a_choice_by_content_is_seen_and_is_the_same_for_the_same_seed() -> None:
    # Every token takes the token nearest to it in its first number, and nothing of the others.
    module = Call(lambda x: x.gather(1, (x[..., :1] @ x[..., :1].mT).argmax(-1, keepdim=True).expand_as(x)))
    seen = [probe(module, tokens(6), seed=seed) for seed in (3, 3, 4)]
    assert seen[0] == seen[1] != seen[2]


def test_what_can_not_be_probed_is_refused() -> None:
    with pytest.raises(ValueError, match="on `meta` has no numbers"):
        probe(nn.Linear(4, 4, device="meta"), tokens(2))
    with pytest.raises(ValueError, match="probe what follows their embedding"):
        probe(nn.Embedding(5, 4), (torch.zeros(1, 3, dtype=torch.long),))
    with pytest.raises(ValueError, match="NaN"):
        probe(Call(lambda x: x / 0 * 0), tokens(2))
    small = Probed(sets([0]), 1)
    with pytest.raises(ValueError, match="1 tokens are not more than 1"):
        kind_of(small, small)


SHALLOW: Final = ["stages.*.depth=1"]
FEW_WORDS: Final = ["stages.0.depth=1", "input.vocabulary=50"]
WHOLE: Final = {
    "vit": (SHALLOW, Run(size=(64, 64)), Run(size=(96, 96))),
    "mixer-s16": (SHALLOW, Run(size=(64, 64)), Run(size=(96, 96))),
    "pvt-tiny": (SHALLOW, Run(size=(64, 64)), Run(size=(96, 96))),
    "gpt2": (FEW_WORDS, Run(tokens=(8,)), Run(tokens=(12,))),
    "common-linformer": (FEW_WORDS, Run(tokens=(8,)), Run(tokens=(12,))),
    "common-longformer": ([*FEW_WORDS, "**.window=4"], Run(tokens=(16,)), Run(tokens=(24,))),
}


def found_in(preset: str, settings: list[str], run: Run) -> tuple[dict[str, str | None], Any]:
    """Module -> its row, and the run of the whole model."""
    live = build(place(load(preset, settings), run), "cpu")
    names = {name: row_path(name, live.rows) for name, _ in live.model.named_modules() if name}
    inputs = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in live.inputs)
    return names, run_followed(prepared(live.model), inputs, {})


@pytest.mark.parametrize("preset", WHOLE)
def test_the_rows_of_a_whole_model_agree_from_pixels_or_words_to_the_head(preset: str) -> None:
    settings, *runs = WHOLE[preset]
    (names, small), (_, large) = (found_in(preset, settings, run) for run in runs)
    by_row: defaultdict[str | None, list[FoundOperation]] = defaultdict(list)
    for one in verdicts(small, large):
        by_row[names.get(one.module)] += [one] if one.kind is not None else []
    compared = 0
    for row in count(place(load(preset, settings), runs[0]), orders=False).rows:
        if operations := by_row[row.path]:
            kind = max((one.kind or "per-token" for one in operations), key=KINDS.index)
            assert kind == row.mixing, row.path
            deciding = [one for one in operations if one.kind == kind]
            seen = [reads.largest for one in deciding for reads in (one.reads, one.computed) if reads]
            numbers = {*seen, *(one.represents for one in deciding)}
            if row.mixes:
                compared += 1
                assert row.reads_tokens in numbers, row.path
                assert row.content_dependent in {one.content_dependent for one in deciding}, row.path
    assert compared > 0
