"""The options of a run are declared once: the command line, the API and the checked run are made of that table."""

import inspect

import pytest

import xfcost
from xfcost.api.options import OPTIONS, read_option
from xfcost.api.runs import make_run
from xfcost.cli import command
from xfcost.commands.options import OF_A_FORWARD


def flags(name: str) -> list[str]:
    return [option for parameter in command(name).params for option in parameter.opts]


@pytest.mark.parametrize("name", ["analyze", "compare"])
def test_commands_and_functions_have_every_option_in_its_order(name: str) -> None:
    declared = [f"--{option.replace('_', '-')}" for option in OPTIONS]
    assert [flag for flag in flags(name) if flag in declared] == declared
    parameters = inspect.signature(getattr(xfcost, name)).parameters
    assert [parameter for parameter in parameters if parameter in OPTIONS] == [*OPTIONS]
    assert {option: parameters[option].default for option in OPTIONS} == {
        option: declared.default for option, declared in OPTIONS.items()
    }
    assert "options" not in parameters


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("glance", ["N", "size", "batch", "dtype", "attention"]),
        ("diagram", ["N", "batch", "attention"]),
        ("plot", ["batch", "dtype", "attention", "mode"]),
    ],
)
def test_other_commands_have_some(name: str, some: list[str]) -> None:
    assert [flag[2:] for flag in flags(name) if flag[2:] in some and flag[2:] not in {"N", "size"} | set()] == [
        option for option in some if option not in {"N", "size"}
    ]
    shown = {parameter.name: parameter for parameter in command(name).params}
    for option in set(some) - {"N", "size"}:
        # plot draws two of the modes alone, and its help lists these; without modes a default is the same for all.
        of_a_forward = OF_A_FORWARD if "mode" not in shown else {}
        own = of_a_forward.get(option, OPTIONS[option].help)
        assert (name, option) == ("plot", "mode") or shown[option].help == own


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
