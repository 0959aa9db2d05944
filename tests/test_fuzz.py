"""A seeded sample of `tools/fuzz.py`: mutated specs, configs and argument lists are answered or refused."""

import random

import fuzz
import pytest

_EACH = 60


@pytest.mark.parametrize("kind", ["spec", "config", "saved", "runs", "toml", "arguments"])
def test_every_item_is_answered_or_refused(kind, tmp_path):
    """Times are the script's to judge: nothing here depends on the machine's speed."""
    for number in range(_EACH):
        lines = refusal(kind, number, tmp_path)
        assert len(lines) <= 22
        for line in lines:
            assert len(line) < 2000
            assert line.isprintable()
            assert "`int`" not in line, "a type of Python is no word of a spec"


def refusal(kind, number, folder):
    """The lines with which an item is refused (20 errors, and two about them, at most); none where it is answered."""
    try:
        fuzz.TESTS[kind](random.Random(f"{kind}:{number}"), folder)  # noqa: S311 - reproducible
    except fuzz.XfcostError as error:
        return str(error).splitlines()
    return []


def test_a_finding_is_found(tmp_path, monkeypatch):
    def broken(rng, folder):
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(fuzz.TESTS, "spec", broken)
    assert fuzz.tried("spec:1", tmp_path).failure.startswith("ZeroDivisionError: planted (test_fuzz.py:")
