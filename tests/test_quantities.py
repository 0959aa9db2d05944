"""Numbers as people write them: one reader for every option, and no option whose text is echoed whole."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from helpers import error_of
from xfcost.api.axes import axis_of
from xfcost.api.runs import make_plan, make_run
from xfcost.cli import COMMANDS, app, command
from xfcost.ledger.errors import UsageError
from xfcost.ledger.option_readers import image_size, token_numbers
from xfcost.ledger.read_numbers import read_number, whole, whole_numbers
from xfcost.report.output import is_chosen

# 128·1000; 128·1024; 2·10⁶; 1.5·1000; 0.5·1024²
WRITTEN = {
    "784": 784, " 784 ": 784, "1_000": 1000, "131,072": 131072, "1,048,576": 1048576, "128k": 128000, "128K": 128000,
    "128Ki": 131072, "128ki": 131072, "2M": 2_000_000, "2 M": 2_000_000, "1.5k": 1500, ".5Mi": 524288,
    "300B": 300 * 10**9, "300G": 300 * 10**9, "3e11": 300 * 10**9, "1e3k": 10**6, "1,5": None, "12,34": None,
    "1000,000": None, "1__0": None, "_1": None, "": None, "k": None, "1Bi": None, "300e": None, "0x10": None,
    "1.5": None, "७": None, "1" * 61: None, "1e9999": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "number"), WRITTEN.items())
def test_a_number_is_read(text: str, number: int | None) -> None:
    assert whole(text) == number


def test_a_number_that_is_not_whole_is_one_all_the_same() -> None:
    assert read_number("1.5") == Fraction(3, 2)
    assert read_number("-2k") == -2000


@given(st.integers(-(10**15), 10**15))
def test_every_way_of_writing_reads_the_same(number: int) -> None:
    for text in (f"{number}", f"{number:_}", f"{number:,}", f"{number}e0"):
        assert whole(text) == number
    assert whole(f"{number}k") == whole(f"{number}e3") == 1000 * number
    assert whole(f"{number}Ki") == 1024 * number


@given(st.text(max_size=80))
def test_any_other_text_is_no_number(text: str) -> None:
    try:
        read_number(text)
    except ValueError:
        return


def test_every_option_reads_the_same_numbers() -> None:
    assert make_run(N="128k", batch="1_000").tokens == (128000,)
    assert make_run(N="1k", batch="1_000").batch == 1000
    assert make_run(mode="generate", new_tokens="2Ki").new_tokens == 2048
    assert make_plan("train", tokens="300B").tokens == 300 * 10**9
    assert make_plan("train", tokens=3e11).tokens == 3 * 10**11
    assert make_plan("train", tokens=1, sustained="300 GFLOP/s").rate == 3 * 10**11
    assert image_size("--size", "1Ki") == (1024, 1024)
    assert axis_of("1k:128Ki", None)[1] == (1000, 131072)
    assert axis_of("49:12,544", None)[1] == (49, 12544)
    assert axis_of(None, "224:1k")[1] == (224, 1000)


def test_a_comma_separates_two_numbers_and_groups_thousands_where_no_one_writes_two() -> None:
    assert token_numbers("--N", "512,128") == (512, 128)
    assert token_numbers("--N", "25,40") == (25, 40)
    assert token_numbers("--N", "131,072") == (131072,)
    assert token_numbers("--N", "1,048,576") == (1048576,)
    assert token_numbers("--N", "1k,2k") == (1000, 2000)
    assert whole_numbers("1,,2") == ()
    with pytest.raises(UsageError, match="thousands: 1_000"):
        xf_in_process("diff", "gpt2", "gpt1", "--N", "131,172")


def xf_in_process(*words: str) -> None:
    """`xfcost WORDS`, its own errors raised."""
    CliRunner().invoke(app, [*words], catch_exceptions=False, standalone_mode=False)


# (command, option) of everything that takes a value
OPTIONS = [
    (name, option.opts[0])
    for name in COMMANDS
    for option in command(name).params
    if option.opts[0].startswith("-") and not getattr(option, "is_flag", False)
]
# digits where an option first stands: each command refuses letters by itself
FIRST = {option: name for name, option in reversed(OPTIONS)}
TEXTS = {"letters": "x" * 5000, "digits": "1" * 5000}


@pytest.mark.parametrize(
    ("name", "option", "text"),
    [
        pytest.param(name, option, TEXTS[text], id=f"{text}-{name}-{option}")
        for text in TEXTS
        for name, option in OPTIONS
        if text == "letters" or FIRST[option] == name
    ],
)
def test_nothing_given_to_an_option_is_echoed_whole(name: str, option: str, text: str) -> None:
    where = {"list": [], "survey": [], "layers": ["--N", "16", "--d", "8"], "diff": ["vit", "vit"]}.get(name, ["vit"])
    where += ["--N", "16", "--save", "/dev/null/runs.jsonl"] if name == "measure" else []
    more = ["--mode", "generate"] if option == "--new-tokens" else []
    more += ["--mode", "train"] if option in {"--optimizer", "--tokens", "--peak", "--mfu", "--sustained"} else []
    more += ["--tokens", "1e9"] if option in {"--peak", "--mfu", "--sustained", "--devices"} else []
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever it is, its text is what counts
        xf_in_process(name, *where, option, text, *more)
    assert len(str(caught.value)) < 500
    assert not is_chosen()


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "x" * 5000),
        ("analyze", "vit", "--" + "x" * 5000),
        ("x" * 5000,),
        ("compare", "vit", "x*" * 2500),
        ("analyze", "vit", "y" * 5000),
    ],
    ids=["spec", "option", "command", "pattern", "extra"],
)
def test_no_name_is_echoed_whole(words: tuple[str, ...]) -> None:
    said = error_of(*words)
    assert 0 < len(said) < 800
