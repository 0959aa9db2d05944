"""A module as a system of a comparison: a spec's module is equal to the spec, and modules given in Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import xfcost
from any_models import WIDTH, two_blocks
from xfcost.counting.comparison import Comparison, compared
from xfcost.counting.system import SpecSystem, System
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.report.compare import paper_table
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.any_model.inputs import Given, Lengths
from xfcost.torch_models.any_model.ledger import How, module_ledger
from xfcost.torch_models.any_model.system import ModuleSystem
from xfcost.torch_models.build import build


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two specs."""
    (tmp_path / "full.yaml").write_text(two_blocks("Full", {"kind": "full", "heads": 2}))
    (tmp_path / "near.yaml").write_text(two_blocks("Near", {"kind": "sliding", "heads": 4, "window": 40}))
    return tmp_path


class Rebuilt:
    """A spec's module, without its spec."""

    def __init__(self, path: str) -> None:
        self.loaded, self.title = load(path), "Rebuilt"
        self.sizes: list[int] = []

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        assert lengths.tokens is not None
        self.sizes.append(lengths.tokens)
        placed = place(self.loaded, Run(tokens=(lengths.tokens,)))
        live, on_cpu = build(placed), None
        if how.mixing:
            real = build(placed, "cpu")
            on_cpu = lambda: [(real.model, given_of(real.inputs))]  # noqa: E731 - the type wants a function
        ledger = module_ledger(
            live.model, tuple(live.inputs), trace=False, name=self.title, mixing=how.mixing, on_cpu=on_cpu
        )
        metadata = msgspec.structs.replace(ledger.metadata, grid_tokens=lengths.tokens)
        return msgspec.structs.replace(ledger, metadata=metadata)


def given_of(inputs: Any) -> Any:
    return Given(tuple(inputs), {})


def beside(first: System, second: System, N: int) -> Comparison:
    """Both compared at N."""
    run = Run(tokens=(N,))
    ledgers = [
        one.account(run, How(trace=False, closed_form=False, mixing=math.inf))
        if isinstance(one, ModuleSystem)
        else one.ledger(run)
        for one in (first, second)
    ]
    return compared([first, second], ledgers, run, thorough=False)


SAME = ("tokens", "params", "macs", "flops", "mixing_macs", "macs_global", "macs_per-token", "attention_bytes")


def test_a_spec_and_its_module_without_the_spec_are_equal(folder: Path) -> None:
    path = str(folder / "full.yaml")
    same = beside(SpecSystem(load(path)), ModuleSystem(Rebuilt(path)), 16)
    assert {name: same.ratios["Rebuilt"][name] for name in SAME} == dict.fromkeys(SAME, 1)
    for curve in ("macs", "mixing_macs", "attention_bytes", "factor"):
        assert same.growth["Rebuilt"][curve] == same.growth["Full"][curve] is not None
    assert same.crossovers == ()
    assert {(one.quantity, one.cheaper) for one in same.searches[0].orders} == {
        (curve, None) for curve in ("macs", "mixing_macs", "attention_bytes")
    }


def test_its_crossovers_are_those_of_the_spec(folder: Path) -> None:
    path, near = str(folder / "full.yaml"), SpecSystem(load(str(folder / "near.yaml")))
    rebuilt = Rebuilt(path)
    of_spec, of_module = beside(SpecSystem(load(path)), near, 16), beside(ModuleSystem(rebuilt), near, 16)
    crossings = [one | {"systems": None, "cheaper_below": None} for one in of_spec.crossovers]
    assert crossings != []
    assert [one | {"systems": None, "cheaper_below": None} for one in of_module.crossovers] == crossings
    assert of_module.searches[0].points == of_spec.searches[0].points
    assert len(set(rebuilt.sizes)) < 20  # the others are evaluated


def net(width: int = WIDTH) -> nn.Module:
    return nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True).eval()


def test_modules_in_python_each_with_its_inputs() -> None:
    found = xfcost.compare(
        net(), (net(4), lambda N: torch.zeros(1, N, 4)), "vit-ti16",
        example_inputs=lambda N: torch.zeros(1, N, WIDTH), N=16, thorough=False,
    )  # fmt: skip
    assert found.names[:2] == ("TransformerEncoderLayer", "TransformerEncoderLayer #2")
    assert found.figures["TransformerEncoderLayer"]["macs"] == 16 * 8 * 8 * 4 + 2 * 16 * 16 * 8 + 2 * 16 * 8 * 16
    assert found.figures["TransformerEncoderLayer #2"]["macs"] == 16 * 4 * 4 * 4 + 2 * 16 * 16 * 4 + 2 * 16 * 4 * 8


def test_scores_with_special_tokens_alone_say_what_they_are() -> None:
    found = xfcost.compare(net(), net(), example_inputs=torch.zeros(1, 16, WIDTH), thorough=False)
    words = [row[0] for row in paper_table(found).rows]
    assert "score dot products, with special tokens" in words
    assert "  with special tokens" not in words


def test_a_module_with_inputs_of_one_size_has_no_growth() -> None:
    found = xfcost.compare(net(), "vit-ti16", example_inputs=torch.zeros(1, 16, WIDTH), N=16, thorough=False)
    assert found.growth["TransformerEncoderLayer"]["macs"] is None
    assert found.searches == ()
    assert "its inputs have no letter N, H or W" in found.ledgers[0].metadata.notes[0]


def test_functions_of_h_and_w_in_python() -> None:
    module = nn.Conv2d(3, 4, 3, padding=1)
    ledger = xfcost.analyze(module, example_inputs=lambda H, W: torch.zeros(1, 3, H, W), size=(6, 8))
    assert ledger.total("macs") == 6 * 8 * 27 * 4
    assert ledger.metadata.image == (6, 8)
    with pytest.raises(UsageError, match="it is a function of H and W; give --size"):
        xfcost.analyze(module, example_inputs=lambda H, W: torch.zeros(1, 3, H, W))
    with pytest.raises(UsageError, match="of a module H and W are the arguments of example_inputs"):
        xfcost.analyze(module, example_inputs=torch.zeros(1, 3, 6, 6), size=6)


def test_inputs_without_a_module_are_refused() -> None:
    with pytest.raises(UsageError, match="example_inputs: they are of a torch module"):
        xfcost.compare("vit", "swin", example_inputs=torch.zeros(1))
