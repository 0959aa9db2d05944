"""Options of a run, declared once for the command line, the API and the checked run; none without effect."""

import inspect
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import xfcost
from helpers import environment, stdout_of, words_of
from xfcost.api.options import EVERY, OPTIONS, flag_of, read_option
from xfcost.api.refusals import WITHOUT_EFFECT
from xfcost.api.runs import make_run
from xfcost.cli import command
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.ledger.json_objects import json_text
from xfcost.questions.diff.answer import diff


def flags(name: str) -> list[str]:
    return [option for parameter in command(name).params for option in parameter.opts]


@pytest.mark.parametrize("name", ["analyze", "compare"])
def test_commands_and_functions_have_every_option_in_its_order(name: str) -> None:
    declared = [flag_of(option) for option in OPTIONS]
    assert [flag for flag in flags(name) if flag in declared] == declared
    parameters = inspect.signature(getattr(xfcost, name)).parameters
    assert [parameter for parameter in parameters if parameter in OPTIONS] == [*OPTIONS]
    assert {option: parameters[option].default for option in OPTIONS} == {
        option: declared.default for option, declared in OPTIONS.items()
    }
    assert "options" not in parameters


def test_the_documentation_says_what_the_help_says() -> None:
    text = xfcost.analyze.__doc__ or ""
    for name, option in OPTIONS.items():
        assert f"        {name}: {option.help}" in text


def test_the_defaults_make_the_default_run() -> None:
    assert make_run() == make_run(**{name: option.default for name, option in OPTIONS.items()})


def test_none_is_not_given_where_that_is_the_default() -> None:
    assert read_option("N", None) is None
    assert read_option("N", "1k") == (1000,)


@pytest.mark.parametrize("function", [make_run, lambda **options: xfcost.analyze("vit", trace=False, **options)])
def test_an_unknown_keyword_is_a_type_error(function) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'tokns'"):
        function(tokns=5)


def test_words_of_other_tools_are_arguments_too() -> None:
    own = xfcost.analyze("gpt2", trace=False, N=64, batch=2, weights="int8", mode="decode")
    assert xfcost.analyze(
        "gpt2", trace=False, seq_len=64, batch_size=2, weights_dtype="int8", mode="decode"
    ).to_json() == own.to_json()  # fmt: skip
    with pytest.raises(TypeError, match="unexpected keyword argument 'seq_len'"):
        xfcost.analyze("gpt2", trace=False, N=64, seq_len=64)


def test_a_shape_of_numbers_is_an_input() -> None:
    module = torch.nn.Linear(8, 4)
    for ledger in (
        xfcost.analyze(module, input_size=(2, 3, 8), trace=False), xfcost.analyze(module, (2, 3, 8), trace=False),
        xfcost.analyze("torch.nn:Linear", build=["in_features=8", "out_features=4"], input_size=(2, 3, 8), trace=False),
    ):  # fmt: skip
        assert ledger.total("macs") == 2 * 3 * 8 * 4


# Options that no figure of theirs depends on -> with what they are given.
DEVICES: dict[str, dict[str, Any]] = {
    name: {"on": "h100-sxmx8"} | more
    for name, more in {
        "on": {}, "zero": {"zero": 3}, "checkpoint": {"checkpoint": "full"}, "tensor_parallel": {"tensor_parallel": 2},
        "sequence_parallel": {"tensor_parallel": 2, "sequence_parallel": True}, "pipeline": {"pipeline": 2},
        "gradients": {"gradients": "float32"}, "global_batch": {"global_batch": "1M"}, "mfu": {"mfu": "40%"},
        "flops": {"flops": "kept"},
        "mbu": {"mbu": "60%"}, "expert_parallel": {"expert_parallel": 8},
        "offload": {"offload": 8}, "host": {"offload": 8, "host": "epyc-9654"},
        "host_memory": {"offload": 8, "host_memory": "64GiB"},
        "memory_share": {"memory_share": "90%"}, "cache_blocks": {"cache_blocks": 16},
    }.items()
}  # fmt: skip
RATES: dict[str, dict[str, Any]] = {
    name: {"tokens": "1B"} | more
    for name, more in {
        "tokens": {}, "peak": {"peak": "312T", "mfu": "40%"}, "sustained": {"sustained": "1T"},
        "devices": {"sustained": "1T", "devices": 8},
    }.items()
}  # fmt: skip
# Those that change figures of both commands.
OF_COUNTS = {
    "N", "size", "batch", "dtype", "attention", "mode", "new_tokens", "logits", "optimizer", "memory_level",
    "cached_prefix", "lora", "lora_on",
}  # fmt: skip
# Those that change bytes of `check`; `diff` refuses them.
OF_BYTES = {"weights": "int8", "cache": "fp8"}


def test_every_option_is_looked_at():
    assert {*DEVICES, *RATES, *OF_COUNTS, *OF_BYTES} == set(OPTIONS)


@pytest.mark.parametrize(("name", "given"), OF_BYTES.items())
def test_quantised_bytes_are_of_check_alone(name, given):
    plain, quantised = (
        xfcost.check("gpt2", max_memory="1TiB", mode="decode", N=64, trace=False, **options).checked[0].held[0]
        for options in ({}, {name: given})
    )
    assert quantised.figure.value < plain.figure.value
    with pytest.raises(UsageError, match=f"{flag_of(name)}: diff compares counts .*`xfcost analyze`"):
        diff("gpt2", "gpt2-m", mode="decode", **{name: given})


def test_the_table_names_options():
    for where, rows in WITHOUT_EFFECT.items():
        assert {name for row in rows for name in row.options} <= {*EVERY}, where


@pytest.mark.parametrize(("name", "options"), (DEVICES | RATES).items())
def test_what_changes_no_figure_is_refused(name, options):
    flag = flag_of(name)
    with pytest.raises(UsageError, match=f"{flag}\\b.*: check .*`xfcost analyze"):
        xfcost.check("gpt2", max_params="1G", mode="train", **options)
    with pytest.raises(UsageError, match=f"{flag}\\b.*: diff compares counts .*`xfcost analyze`"):
        diff("gpt2", "gpt2-m", mode="train", **options)


def test_the_memory_of_a_device_is_that_of_its_training_plan():
    """Parameters, gradients, master copy and Adam's moments: 16 bytes a parameter, shared among 8 with ZeRO 3."""
    how = {"mode": "train", "on": "h100-sxmx8", "zero": 3, "checkpoint": "full"}
    [found] = xfcost.check("gpt2", max_memory="400MiB", **how).checked[0].held
    plan = xfcost.analyze("gpt2", trace=False, **how).training.plan
    assert (found.figure.value, found.figure.words) == (plan.memory.known, "memory of a device")
    assert found.figure.parts["parameters, gradients and optimizer"] == 16 * 124_439_808 // 8
    assert sum(found.figure.parts.values()) == plan.memory.known
    assert found.verdict == "over"
    assert sum(weight.share for weight in found.heaviest) < 1


WRONG = (3, 1.5, b"x", object(), [1], {"a": 1}, 10**5000)


@pytest.mark.parametrize("wrong", [*WRONG, None], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", ["sort", "front"])
def test_names_of_quantities(name: str, wrong: object) -> None:
    with pytest.raises(XfcostError, match=f"{name}: expected .*as in 'params.*got |--sort None: expected one of"):
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
        ("cache_in", lambda: xfcost.analyze("vit", mode="decode", cache_in=wrong)),
        ("cache_out", lambda: xfcost.analyze("vit", mode="decode", cache_out=wrong)),
        ("expected a preset's name", lambda: xfcost.find(wrong)),
        ("expected a preset's name", lambda: xfcost.check("vit", max_macs="1", trace=False, against=wrong)),
    ]
    for told, call in calls:
        with pytest.raises(XfcostError, match=f"{told}.*, got "):
            call()


DRAWN = (xfcost.plot, xfcost.diagram, xfcost.glance, partial(xfcost.roofline, on="t4"))


@pytest.mark.parametrize(
    ("said", "call"),
    [
        *(("expected a system", call) for call in DRAWN),
        *(("make a module of it: Linear", partial(call, torch.nn.Linear)) for call in DRAWN),
        *(("a range LOW:HIGH", partial(xfcost.plot, "gpt2", metric="macs", N=one)) for one in (512, (128, 512))),
        ("vary: expected keys of the spec", partial(xfcost.find, "vit", vary=3)),
        (r"--token 1\.5: expected whole numbers", partial(xfcost.reach, "vit", token=1.5)),
        (r"--dtype .a number of thousands of digits", partial(xfcost.analyze, "vit", dtype=10**5000)),
    ],
)
def test_other_arguments_are_refused(said, call) -> None:
    with pytest.raises(XfcostError, match=said):
        call()


def test_one_n_of_a_plot_is_a_number_or_a_text() -> None:
    plots = [xfcost.plot("llama3-8b", metric="throughput", on="h100-sxm", N=one) for one in (4096, "4096")]
    assert plots[0].rows == plots[1].rows
    assert "<svg" in plots[0]._repr_svg_()
    with pytest.raises(XfcostError, match=r"content \.txt: expected .*\.csv"):
        plots[0].content(".txt")


def test_what_fits_is_taken_as_it_is() -> None:
    one = ["stages.0.depth=2"]
    for settings in (one[0], one, tuple(one), iter(one)):
        assert xfcost.analyze("vit", trace=False, settings=settings).metadata.settings == tuple(one)


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
