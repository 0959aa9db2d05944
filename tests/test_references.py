"""References of mechanisms: slow ones that share nothing with the package, and classes of transformers."""

import ast
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import CASES
from cases.base import Case
from compared import answers_of, options_of, reference_of, scattered
from contract import drawn, example, make
from modules import counted_by_torch
from references.plain import Options
from strategies import examples
from tiers import tiered_cases
from transformers_models import parameters, scrambled
from xfcost.formulas.component import Mixer, tag_of
from xfcost.mechanisms import MECHANISMS
from xfcost.program.residual import component_rows

FOLDER = Path(__file__).parent / "references"
FILES = sorted(FOLDER.glob("*.py"))
ALLOWED = {"__future__", "collections", "fractions", "itertools", "math", "references", "torch", "typing"}
# By these a file could come to other code without an import that the test sees.
STEM_LAYERS = {"__import__", "eval", "exec", "compile", "globals", "open", "importlib", "sys", "modules"}


def imported(tree: ast.AST) -> set[str]:
    """The packages that a file imports from, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import hides where it leads"
            found.add(node.module or "")
    return {name.partition(".")[0] for name in found}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_reference_imports_nothing_of_the_package(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert imported(tree) <= ALLOWED
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not (names | attributes) & STEM_LAYERS


@pytest.mark.parametrize(
    "text", ["import xfcost.ledger.grid", "def f():\n    from xfcost import api", "from cases import CASES"]
)
def test_an_import_of_the_package_would_be_seen(text: str) -> None:
    assert not imported(ast.parse(text)) <= ALLOWED


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
def test_every_mechanism_has_a_reference_of_its_own(mechanism: type[Mixer]) -> None:
    assert reference_of(mechanism).__name__ == tag_of(mechanism)


def plain(value: object) -> bool:
    """Is it made of what YAML knows, without a method of the package's?"""
    if isinstance(value, Options):
        return all(map(plain, vars(value).values()))
    if isinstance(value, list | tuple):
        return all(map(plain, value))
    if isinstance(value, dict):
        return all(map(plain, [*value, *value.values()]))
    return value is None or type(value) in (bool, int, float, str)


def test_a_reference_is_told_plain_options() -> None:
    assert [component for component, _ in examples(fused=(False,)) if not plain(options_of(component))] == []


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
@given(data=st.data())
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_configuration_gives_what_its_reference_says(mechanism: type[Mixer], data: st.DataObject) -> None:
    case = drawn(data, mechanism)
    # two samples: of one alone, torch 2.13's batch norm gets its gradients wrong on the CPU
    ours, plain = answers_of(case, scattered(make(case)), example(case.place, 2))
    # tables in single precision may be rounded to the other side
    for one, other in zip((ours[0], *ours[1]), (plain[0], *plain[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6 * max(1.0, *other.abs().flatten().tolist()))


@pytest.mark.parametrize(
    "case", [one for one in tiered_cases(fused=(False,)) if CASES[type(one.values[0].component)].theirs], ids=str
)
def test_outputs_parameters_and_macs_are_those_of_somebody_else_s_class(case: Case) -> None:
    held, rows = CASES[type(case.component)], list(component_rows(case.component, case.place))
    theirs = held.theirs(case.component, case.place)
    module = scrambled(theirs.module.eval().requires_grad_(requires_grad=False))
    given, ours = dict(module.named_parameters()) | theirs.weights(module), make(case).float()
    ours.load_state_dict({name: given[name] for name, _ in ours.named_parameters()}, strict=False)
    x = example(case.place, 2)[0].float()
    expected, macs = counted_by_torch(lambda: module(x))
    expected = expected[0] if isinstance(expected, tuple) else expected
    torch.testing.assert_close(ours(x), expected, rtol=1e-3, atol=1e-4)
    assert parameters(module) == sum(row.params for row in rows)
    seen = theirs.macs
    if seen is None:
        seen = sum(row.macs for row in rows) - held.missed_by_torch(case.component, case.place)
    assert macs == 2 * seen, "MACs that torch sees in theirs, and those of ours that it sees"
