"""The probed account: of modules whose pattern is known beforehand, and of whole models of the gallery."""

from collections import defaultdict
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

from followed import run_followed
from modules import Call
from whole_probe import kind_of, probe
from xfcost.counting.forward import count
from xfcost.formulas.component import Place
from xfcost.layers.stage_entries import PatchMerging
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import KINDS
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build
from xfcost.torch_models.mixing.verdict import FoundOperation, verdicts
from xfcost.torch_models.probing.account import prepared
from xfcost.torch_models.program import ProgramModule
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
        (lambda n: ProgramModule(PatchMerging(), Place(grid=Grid((2, n // 2)), dim=4, out_dim=8)), "per-token"),
    ],
    ids=["linear", "norm", "mlp", "roll", "roll and add", "cumsum", "mean", "centre", "lstm", "encoder", "merging"],
)
def test_kinds(make, kind: str) -> None:
    small, large = (probe(make(n), tokens(n)) for n in (8, 16))
    assert kind_of(small, large) == kind


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
