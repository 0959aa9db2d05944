"""Torch modules beside specs in compare, plot, glance and diagram, and as systems in Python."""

import json
import math
import shutil
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

import xfcost
from any_models import WIDTH
from helpers import error_of, stdout_of, table_of
from xfcost.comparing.comparison import compared
from xfcost.counting.system import AccountOptions
from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.load import load
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.spec.targets import ModuleTexts, texts_by_place
from xfcost.systems.module import ModuleSystem
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.any_model import mixing
from xfcost.torch_models.any_model.inputs import Given, Lengths
from xfcost.torch_models.any_model.ledger import How, module_ledger
from xfcost.torch_models.build import build
from xfcost.views.figures import figure_lines

# Torch modules beside specs, in `compare`, `plot`, `glance` and `diagram` ─────────────────────────────────────────────

FILES = Path(__file__).with_name("golden") / "files"


@pytest.fixture
def compared_folder(tmp_path):
    """A module beside two specs."""
    for name, copy in (("blocks.py", "model.py"), ("full.yaml", "full.yaml"), ("near.yaml", "near.yaml")):
        shutil.copy(FILES / name, tmp_path / copy)
    return tmp_path


def told(compared_folder, *words):
    return json.loads(stdout_of(*words, "--format", "json", cwd=compared_folder))


def test_inputs_of_one_of_several(compared_folder):
    words = (
        "model.py:Net", "full.yaml", "model.py:Net", "--build", "3:width=4", "--input", "1xNx8", "--input", "3:2xNx4",
    )  # fmt: skip
    found = told(compared_folder, "compare", *words, "--N", 16)
    inputs = [system["module"]["inputs"] for system in found["systems"] if "module" in system]
    assert inputs == [["x: 1×16×8 float32"], ["x: 2×16×4 float32"]]


def test_texts_for_one_system():
    given = ModuleTexts(("1:int64", "x=1xN", "3:1", "3:y=2xN"), ("depth=1", "3:depth=2"))
    assert texts_by_place(given, {1: "a:A", 3: "b:B"}, 3) == {
        1: ModuleTexts(("1:int64", "x=1xN"), ("depth=1",)),
        3: ModuleTexts(("1", "y=2xN"), ("depth=2",)),
    }
    with pytest.raises(UsageError):
        texts_by_place(ModuleTexts(("2:1xN",)), {1: "a:A", 3: "b:B"}, 3)


def test_images_of_any_size(compared_folder):
    found = told(compared_folder, "compare", "model.py:Image", "vit-ti16", "--size", 32, "--input", "1x3xHxW")
    assert found["systems"][0]["image"] == [32, 32]
    macs = {side: cost["macs"] for side, cost in found["by_size"]["Image"].items()}
    own = told(compared_folder, "analyze", "model.py:Image", "--input", "1x3xHxW", "--size", "224")
    assert macs["224"] == own["totals"]["macs"]
    assert found["growth"]["Image"]["factor"] == 4
    crossing = next(one for one in found["size_crossovers"] if one["quantity"] == "macs")
    vit = SpecSystem(load("vit-ti16"))
    for side, cheaper in ((crossing["last_below"], "cheaper_below"), (crossing["size"], "cheaper_above")):
        tokens = (side // 4) ** 2
        image = tokens * 48 * 8 + 2 * (tokens * 8 * 8 * 8 + 2 * tokens * tokens * 8)
        other = vit.costs(Run(size=(side, side)))[1]["macs"]
        assert crossing[cheaper] == ("Image" if image < other else "ViT-Ti/16")
    assert found["crossovers_searched"]["pairs"] == []
    assert found["crossovers_searched"]["sizes"][0]["grain"] == 16


def test_a_plot_counts_a_module_at_every_point(compared_folder):
    words = ("plot", "model.py:Net", "full.yaml", "--input", "1xNx8", "--N", "8:64", "-o", "a.csv")
    stdout_of(*words, cwd=compared_folder)
    rows = table_of(compared_folder / "a.csv")
    macs = {
        name: [(row["N"], row["macs"], row["mixing_macs"]) for row in rows if row["system"] == name]
        for name in ("Net", "Full")
    }
    assert macs["Net"] == macs["Full"] != []


def test_a_plot_ends_where_a_module_does_not_run(compared_folder):
    words = (
        "plot", "model.py:Short", "full.yaml", "--input", "1xNx8", "--N", "8:640", "--metric", "macs", "-o", "a.csv",
    )  # fmt: skip
    stdout_of(*words, cwd=compared_folder)
    rows = table_of(compared_folder / "a.csv")
    # it has 100 positions, and cuts them
    assert max(int(row["N"]) for row in rows if row["system"] == "Short") == 100


def test_kinds_of_a_module_too_large_for_real_numbers(compared_folder, monkeypatch):
    monkeypatch.setattr(mixing, "MOST_BYTES", 1000)
    monkeypatch.chdir(compared_folder)
    said = []
    found = xfcost.glance("model.py:Net", inputs=["1xNx8"], N=16, progress=said.append)
    assert {entry.mixing for entry in found.entries} == {"unknown"}
    assert "left out" in said[-1]
    assert "--metric macs" in error_of("plot", "model.py:Net", "--input", "1xNx8", "--N", "8:64", "-o", "a.svg")


# A module as a system of a comparison: a spec's module is equal to the spec, and modules given in Python ──────────────


class Rebuilt:
    """A spec's module, without its spec."""

    def __init__(self, path: str) -> None:
        self.loaded, self.title, self.weights = load(path), "Rebuilt", None
        self.sizes: list[int] = []

    positions = config = letters = None

    def ledger(self, lengths: Lengths, how: How) -> Ledger:
        assert lengths.tokens is not None
        self.sizes.append(lengths.tokens)
        placed = place(self.loaded, Run(tokens=(lengths.tokens,)))
        live, on_cpu = build(placed), None
        if how.mixing:
            real = build(placed, "cpu")
            on_cpu = lambda: [(real.model, Given(tuple(real.inputs), {}))]  # noqa: E731 - the type wants a function
        ledger = module_ledger(
            live.model, tuple(live.inputs), trace=False, name=self.title, mixing=how.mixing, on_cpu=on_cpu
        )
        metadata = msgspec.structs.replace(ledger.metadata, grid_tokens=lengths.tokens)
        return msgspec.structs.replace(ledger, metadata=metadata)


def beside(first, second, N):
    """Both compared at N."""
    run = Run(tokens=(N,))
    ledgers = [
        one.account(run, AccountOptions(orders=False, mixing=math.inf))
        if isinstance(one, ModuleSystem)
        else one.ledger(run)
        for one in (first, second)
    ]
    return compared([first, second], ledgers, run, thorough=False)


SAME = ("tokens", "params", "macs", "flops", "mixing_macs", "macs_global", "macs_per-token", "attention_bytes")


def test_a_spec_and_its_module_without_the_spec_are_equal(compared_folder):
    path = str(compared_folder / "full.yaml")
    same = beside(SpecSystem(load(path)), ModuleSystem(Rebuilt(path)), 16)
    assert {name: same.ratios["Rebuilt"][name] for name in SAME} == dict.fromkeys(SAME, 1)
    for curve in ("macs", "mixing_macs", "attention_bytes", "factor"):
        assert same.growth["Rebuilt"][curve] == same.growth["Full"][curve] is not None
    assert same.crossovers == ()
    assert {(one.quantity, one.cheaper) for one in same.searches[0].orders} == {
        (curve, None) for curve in ("macs", "mixing_macs", "attention_bytes")
    }


@pytest.mark.rest
def test_its_crossovers_are_those_of_the_spec(compared_folder):
    path, near = str(compared_folder / "full.yaml"), SpecSystem(load(str(compared_folder / "near.yaml")))
    rebuilt = Rebuilt(path)
    of_spec, of_module = beside(SpecSystem(load(path)), near, 16), beside(ModuleSystem(rebuilt), near, 16)
    crossings = [one | {"systems": None, "cheaper_below": None} for one in of_spec.crossovers]
    assert crossings != []
    assert [one | {"systems": None, "cheaper_below": None} for one in of_module.crossovers] == crossings
    assert of_module.searches[0].points == of_spec.searches[0].points
    assert len(set(rebuilt.sizes)) < 20  # the others are evaluated


def net(width=WIDTH):
    return nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True).eval()


def test_modules_in_python_each_with_its_inputs():
    found = xfcost.compare(
        net(), (net(4), lambda N: torch.zeros(1, N, 4)), "vit-ti16",
        example_inputs=lambda N: torch.zeros(1, N, WIDTH), N=16, thorough=False,
    )  # fmt: skip
    assert found.names[:2] == ("TransformerEncoderLayer", "TransformerEncoderLayer #2")
    assert found.figures["TransformerEncoderLayer"]["macs"] == 16 * 8 * 8 * 4 + 2 * 16 * 16 * 8 + 2 * 16 * 8 * 16
    assert found.figures["TransformerEncoderLayer #2"]["macs"] == 16 * 4 * 4 * 4 + 2 * 16 * 16 * 4 + 2 * 16 * 4 * 8


def test_scores_with_special_tokens_alone_say_what_they_are():
    found = xfcost.compare(net(), net(), example_inputs=torch.zeros(1, 16, WIDTH), thorough=False)
    words = [words for _, words, _ in figure_lines(found)]
    assert "query-key pairs per head, with special tokens" in words
    assert "  with special tokens" not in words


def test_a_module_with_inputs_of_one_size_has_no_growth():
    found = xfcost.compare(net(), "vit-ti16", example_inputs=torch.zeros(1, 16, WIDTH), N=16, thorough=False)
    assert found.growth["TransformerEncoderLayer"]["macs"] is None
    assert found.searches == ()
    assert found.ledgers[0].metadata.notes


def test_functions_of_h_and_w_in_python():
    module = nn.Conv2d(3, 4, 3, padding=1)
    ledger = xfcost.analyze(module, example_inputs=lambda H, W: torch.zeros(1, 3, H, W), size=(6, 8))
    assert ledger.total("macs") == 6 * 8 * 27 * 4
    assert ledger.metadata.image == (6, 8)
    with pytest.raises(UsageError):
        xfcost.analyze(module, example_inputs=lambda H, W: torch.zeros(1, 3, H, W))
    with pytest.raises(UsageError):
        xfcost.analyze(module, example_inputs=torch.zeros(1, 3, 6, 6), size=6)
