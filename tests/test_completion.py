"""The shell's completion: commands, options and presets, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import environment, stdout_of
from xfcost.spec.load import preset_names

# The shell is named, and not looked for among the parents of the process.
NAMED = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

ASK = """
import sys
sys.argv = ["xfcost"]
from xfcost.__main__ import main
try:
    main()
finally:
    heavy = {"torch", "fvcore", "pandas", "matplotlib", "numpy"} & set(sys.modules)
    assert not heavy, heavy
"""


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    asked = {"_XFCOST_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment() | asked, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("command", ["analyze", "compare", "plot", "diagram", "glance", "reach", "show"])
def test_presets_complete_where_a_spec_is_expected(command: str) -> None:
    expected = [name for name in preset_names() if name.startswith("swin-")]
    assert completed("xfcost", command, "swin-") == expected
    assert "swin-t" in expected


def test_the_second_spec_completes_too_and_a_path_is_left_to_the_shell() -> None:
    assert completed("xfcost", "compare", "vit", "mixer-s") == ["mixer-s16", "mixer-s32"]
    assert completed("xfcost", "analyze", "./mixer-s") == []


def test_commands_and_options_complete() -> None:
    assert completed("xfcost", "ana") == ["analyze"]
    assert completed("xfcost", "analyze", "--att") == ["--attention"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("analyze", "vit", "--on", "a100-sxm-"), ["a100-sxm-40", "a100-sxm-80"]),
        (("analyze", "vit", "--device", "c"), ["cpu", "cuda"]),
        (("measure", "vit", "--device", "m"), ["mps"]),
        (("compare", "vit", "--mode", "de"), ["decode"]),
        (("analyze", "vit", "--by", "mod"), ["module"]),
    ],
    ids=" ".join,
)
def test_devices_and_words_of_options_complete(words: tuple[str, ...], offered: list[str]) -> None:
    assert completed("xfcost", *words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_shown(shell: str) -> None:
    assert "COMPLETE" in stdout_of("--show-completion", shell, **NAMED)


def test_it_is_installed_into_the_home_folder(tmp_path: Path) -> None:
    stdout_of("--install-completion", "bash", HOME=str(tmp_path), **NAMED)
    written = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*") if file.is_file()]
    assert any("COMPLETE" in text for text in written)
