"""The Python API's arguments of a wrong type, and numbers that no answer holds."""

import os
import subprocess
from pathlib import Path

import pytest

import xfcost
from helpers import environment, stdout_of, words_of, xf
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.objects import json_text

WRONG = (3, 1.5, b"x", object(), [1], {"a": 1}, 10**5000)


@pytest.mark.parametrize("wrong", [*WRONG, None], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", ["sort", "front"])
def test_names_of_quantities(name: str, wrong: object) -> None:
    with pytest.raises(XfcostError, match=f"{name}: expected .*as in 'params.*got "):
        xfcost.find("vit", **{name: wrong})
    with pytest.raises(XfcostError, match=r"sort: expected .*, got |--sort .*expected one of"):
        xfcost.diff("vit", "swin", sort=wrong)


@pytest.mark.parametrize("wrong", [3, 1.5, b"x", object(), [1], {1: 2}], ids=lambda one: type(one).__name__)
def test_texts_paths_and_functions(wrong: object) -> None:
    texts = {"settings": wrong}
    calls = [
        ("settings", lambda: xfcost.analyze("vit", trace=False, **texts)),
        ("settings", lambda: xfcost.compare("vit", **texts)),
        ("settings", lambda: xfcost.stream("vit", **texts)),
        ("settings", lambda: xfcost.survey(**texts)),
        ("inputs", lambda: xfcost.reach("vit", inputs=wrong)),
        ("build", lambda: xfcost.analyze("vit", build=wrong)),
        ("family", lambda: xfcost.find(family=wrong)),
        ("scheduler", lambda: xfcost.find("vit", vary={"**.heads": [6]}, scheduler=wrong)),
        ("progress", lambda: xfcost.check("vit", max_macs="1G", progress=wrong)),
        ("runs", lambda: xfcost.survey(runs=wrong)),
        ("expected a preset's name", lambda: xfcost.find(wrong)),
        ("expected a preset's name", lambda: xfcost.check("vit", max_macs="1", trace=False, against=wrong)),
    ]
    for told, call in calls:
        with pytest.raises(XfcostError, match=f"{told}.*, got "):
            call()


def test_other_arguments_that_are_no_options() -> None:
    with pytest.raises(XfcostError, match="vary: expected keys of the spec"):
        xfcost.find("vit", vary=3)
    with pytest.raises(XfcostError, match=r"--token 1\.5: expected whole numbers"):
        xfcost.reach("vit", token=1.5)
    with pytest.raises(XfcostError, match=r"--dtype .a number of thousands of digits"):
        xfcost.analyze("vit", dtype=10**5000)


def test_what_fits_is_taken_as_it_is() -> None:
    one = ["stages.0.depth=2"]
    for settings in (one[0], one, tuple(one), iter(one)):
        assert xfcost.analyze("vit", trace=False, settings=settings).metadata.settings == tuple(one)


@pytest.mark.parametrize("option", ["--mfu", "--mbu"])
@pytest.mark.parametrize("given", ["1e-320", "1e-7", "0.00009%", "1.01"])
def test_a_share_has_a_range(option: str, given: str) -> None:
    done = xf("analyze", "gpt2", "--no-trace", "--on", "t4", option, given, "--format", "json")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option} {given}: expected a share of" in done.stderr
    assert "from 0.000001 to 1" in done.stderr


def test_the_least_shares_give_numbers() -> None:
    done = stdout_of(
        "analyze", "gpt2", "--no-trace", "--on", "t4", "--mfu", "1e-6", "--mbu", "1e-6", "--format", "json"
    )
    assert "Infinity" not in done


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
def test_json_has_no_infinity(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"seconds": [number]})


@pytest.mark.skipif(os.name != "posix", reason="limits of a process")
def test_stdout_is_not_blamed_for_another_file(tmp_path: Path) -> None:
    words = words_of("measure", "vit", "--N", "49", "--save", tmp_path / "runs.jsonl")
    limited = ["/bin/sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *words]
    done = subprocess.run(limited, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "operating system refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1
