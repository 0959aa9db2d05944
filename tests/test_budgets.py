"""Budgets: how they are read, and what memory they limit."""

from __future__ import annotations

import pytest

import xfcost
from xfcost.ledger.budgets import Budget, inference_memory, read_budgets
from xfcost.ledger.errors import UsageError


@pytest.mark.parametrize(
    ("quantity", "given", "limit"),
    [
        ("macs", "25G", 25 * 10**9),
        ("macs", "25 GMACs", 25 * 10**9),
        ("macs", 25e9, 25 * 10**9),
        ("macs", "1e9", 10**9),
        ("params", "30M", 30 * 10**6),
        ("params", "7B", 7 * 10**9),
        ("params", "30M params", 30 * 10**6),
        ("memory", "2GiB", 2 * 1024**3),
        ("memory", "500 MB", 500 * 10**6),
        ("memory", "0.5 GiB", 2**29),
        ("memory", "1024B", 1024),
        ("memory", 2**31, 2**31),
    ],
)
def test_a_budget_is_read_in_its_unit(quantity: str, given: object, limit: int) -> None:
    assert read_budgets({quantity: given}) == (Budget(quantity, limit),)


@pytest.mark.parametrize(
    ("quantity", "given", "words"),
    [
        ("memory", "2G", "has no unit"),
        ("memory", "2048", "has no unit"),
        ("memory", "5GMACs", "expected bytes with their unit"),
        ("memory", "-2GiB", "expected bytes with their unit"),
        ("memory", "B", "expected bytes with their unit"),
        ("memory", 0, "expected bytes with their unit"),
        ("macs", "2GiB", "expected a number of MACs"),
        ("macs", "5GFLOPs", "expected a number of MACs"),
        ("macs", True, "expected a number of MACs"),
        ("params", "1.5", "expected a number of parameters"),
        ("params", "30MB", "expected a number of parameters"),
    ],
)
def test_no_unit_or_the_wrong_one_is_refused(quantity: str, given: object, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        read_budgets({quantity: given})
    assert str(error.value).startswith(f"--max-{quantity} {given}: ")


def test_what_is_not_given_is_no_budget() -> None:
    assert read_budgets({"macs": None, "memory": None}) == ()


def test_a_budget_says_what_is_over_it() -> None:
    budget = Budget("memory", 2**31)
    assert budget.text() == "--max-memory 2 GiB"
    assert Budget("memory", 80 * 10**9).text() == "--max-memory 80 GB"
    assert Budget("memory", 3 * 2**29).text() == "--max-memory 1.500 GiB"
    assert Budget("macs", 25 * 10**9).text() == "--max-macs 25 G"
    assert [budget.allows(value) for value in (2**31, 2**31 + 1)] == [True, False]
    assert budget.excess(3 * 2**30) == 0.5


def test_memory_is_weights_attention_and_cache() -> None:
    forward = inference_memory(xfcost.analyze("vit", trace=False))
    assert forward.weights == 22055272 * 4
    # scores and their softmax: 6 heads, 785 × 785 tokens, float32
    assert forward.attention == 2 * 6 * 785 * 785 * 4
    assert forward.cache == 0
    step = inference_memory(xfcost.analyze("gpt2", N=1024, batch=2, mode="decode", dtype="bfloat16", trace=False))
    # 12 layers of keys and values, 768 wide, of 2 · 1024 tokens
    assert step.cache == 12 * 2 * 768 * 2 * 1024 * 2
    assert step.total == step.weights + step.attention + step.cache
