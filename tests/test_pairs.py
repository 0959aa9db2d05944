"""`pairs` of every row: the scores that the output of the running module depends on, found by their gradients."""

from __future__ import annotations

import re
from collections import defaultdict
from fractions import Fraction
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cases import CASES
from cases.base import Case
from compared import scattered
from contract import drawn, example, make
from strategies import place_for
from tiers import tiered_cases
from xfcost.formulas.component import Mixer, tag_of
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import MECHANISMS
from xfcost.torch_models.running.by_row import row_path


def declared(case: Case) -> dict[str, int]:
    """Path -> pairs, of the rows that have them."""
    return {row.path: row.pairs for row in case.component.operations(case.place) if row.pairs is not None}


def prepared(case: Case) -> nn.Module:
    """Its module, with biases of zero, and no rectifier inside a recurrence, where no hook reaches it."""
    module = scattered(make(case))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    for part in module.modules():
        if getattr(part, "act", None) == "relu":
            part.act = "tanh"
        for buffer in getattr(part, "remembered", ()):
            buffer.zero_()
    return module


def kept_pairs(case: Case) -> dict[str, Fraction]:
    """Path -> pairs per head and sample, of every row with `pairs`.

    What is masked, padded, dropped or overwritten has no gradient. Padding's values are zero, and so are the past's; a
    learned key is no padding. Softmax runs without its division, which would hide the score of a single key. Rectifiers
    and norms, which give a constant of a negative or of a single number, let everything through.
    """
    place, noise = case.place, torch.Generator().manual_seed(0)
    heads = {row.path: row.heads or 1 for row in case.component.operations(place) if row.pairs is not None}
    module = prepared(case)
    outputs: dict[str, list[Tensor]] = defaultdict(list)

    def hook(path: str) -> Any:
        def changed(_: Any, inputs: Any, output: Any) -> Any:
            if path.rpartition("_")[2] == "softmax":
                largest = inputs[0].detach().amax(-1, keepdim=True)
                return (inputs[0] - largest.nan_to_num(neginf=0)).exp()
            # kernel attention divides by the sum of its weights
            if path == "divide" or re.search(r"(act\d?|norm)$", path):
                return inputs[0]
            if path not in heads:
                return None
            output = output if output.requires_grad else output.clone().requires_grad_()
            output.retain_grad()
            outputs[path].append(output)
            return output

        return changed

    for name, leaf in module.named_modules():
        if name and next(leaf.children(), None) is None:
            leaf.register_forward_hook(hook((row_path(f"it.{name}", {"it": "it"}) or "").removeprefix("it.")))
    answer = module(*example(place, 1))
    (answer * torch.randn(answer.shape, generator=noise, dtype=torch.float64)).sum().backward()
    sway = {
        path: sum(int((one.grad != 0).sum()) for one in calls if one.grad is not None)
        for path, calls in outputs.items()
    }
    return {path: Fraction(sway[path], heads[path]) for path in heads if path in sway}


@pytest.mark.parametrize("case", tiered_cases(fused=(False,)), ids=str)
def test_pairs_of_every_row_are_those_that_the_output_depends_on(case: Case) -> None:
    rows = declared(case)
    assert rows == (kept_pairs(case) if rows else {}), "pairs of the row: declared, then found in the running module"


@pytest.mark.parametrize("case", tiered_cases(fused=(True,)), ids=str)
def test_a_fused_row_has_the_pairs_of_the_eager_one(case: Case) -> None:
    eager = Case(case.component, msgspec.structs.replace(case.place, fused=False))
    assert sorted(declared(case).values()) == sorted(declared(eager).values()), "pairs: fused, then eager"


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
@given(data=st.data())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_pairs_of_every_row_on_any_grid(mechanism: type[Mixer], data: st.DataObject) -> None:
    case = drawn(data, mechanism)
    rows = declared(case)
    assert rows == (kept_pairs(case) if rows else {}), "pairs of the row: declared, then found in the running module"


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
def test_only_scores_of_what_is_no_token_have_no_pairs(mechanism: type[Mixer]) -> None:
    without, pooled = [], mechanism.content_selects_tokens
    for component in CASES[mechanism].examples:
        place = place_for(component, CASES[mechanism].growth(component)[1])
        for row in component.operations(place):
            if row.core is None or row.pairs is not None:
                continue
            without.append(f"{row.path} of {component}")
            entries = row.attention_entries // (row.heads or 1)
            # in some example a key stands for several tokens, or a query for several
            pooled |= component.pairs(place.grid, place.memory) > entries or component.out(place)[0] != place.grid
    assert pooled or not without, f"expected pairs, for every key is a token and every query one; None of {without}"


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
def test_decode_steps_have_the_pairs_of_all_tokens_together(mechanism: type[Mixer]) -> None:
    for component in CASES[mechanism].examples:
        tokens = CASES[mechanism].growth(component)[0].total
        places = [place_for(component, Grid((count,))) for count in range(1, tokens + 1)]
        try:
            steps = [{row.path: row.pairs for row in component.decoding(place)} for place in places]
        except ComponentError:  # there is no step
            continue
        for path, pairs in declared(Case(component, places[-1])).items():
            found = sum(step[path] or 0 for step in steps if path in step)
            # a recurrent step has no such row
            assert all(path not in step for step in steps) or found == pairs, (
                f"{path} of {component}: {pairs} pairs of {tokens} tokens, {found} of as many steps"
            )
