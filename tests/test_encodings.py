"""Output to a stream whose encoding lacks characters of the reports: ASCII, and cp1252 of Windows."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path

import pytest

from helpers import environment, error_of, words_of, xf
from xfcost.ledger.visible import HANDLER, csv_cell, json_written, plain, written_columns

ROOT = Path(__file__).parents[1]
ENCODINGS = ("ascii", "cp1252")

COMMANDS = {
    "analyze": ["analyze", "vit", "--no-trace"],
    "traced": ["analyze", "vit", "--N", "49"],
    "csv": ["analyze", "vit", "--no-trace", "--format", "csv"],
    "markdown": ["analyze", "vit", "--no-trace", "--format", "markdown"],
    "latex": ["analyze", "vit", "--no-trace", "--format", "latex"],
    "compare": ["compare", "vit", "swin", "--no-trace"],
    "find": ["find", "vit"],
    "diagram": ["diagram", "vit"],
    "glance": ["glance", "vit"],
    "reach": ["reach", "vit", "--N", "49"],
    "stream": ["stream", "vit", "--N", "49"],
    "layers": ["layers", "--N", "1024", "--d", "512"],
    "survey": ["survey"],
    "devices": ["devices"],
    "diff": ["diff", "vit", "swin"],
    "list": ["list"],
    "check": ["check", "vit", "--max-macs", "1G"],
    "plot": ["plot", "vit", "-o", "plot.svg", "--force"],
    "report": ["report", "vit", "-o", "report.html", "--force"],
    "show": ["show", "common-nystrom"],
    "help": ["stream", "--help"],
}


def words(text):
    """Its words; a rule is one sign, however long."""
    return re.sub("--+", "-", text).split()


class TestCharacters:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("22 G → 4 G, 4.99× less, −80 %", "22 G -> 4 G, 4.99x less, -80 %"),
            ("O(N·P²·C·d), N√N, √(N·d), 1/√d_k", "O(N*P^2*C*d), N sqrt N, sqrt(N*d), 1/sqrt d_k"),
            ("⌈N/2⌉ ≤ ⌊N⌋ ≠ ∞", "ceil(N/2) <= floor(N) != inf"),
            ("QKᵀ, A⁽²⁾, 10⁻³, h₁₂, Σᵢ xᵢ", "QK^T, A^(2), 10^-3, h_12, Sigma_i x_i"),
            ("X̃ = φ(x)∘Δ, 2φφ", "X~ = phi(x)oDelta, 2 phi phi"),
            ("Nyström, Łukasz, e\u0301, ¼", "Nystrom, Lukasz, e, 1/4"),
            ("3 µs", "3 us"),
            ("╭─┬─╮ │ ▇■", "+-+-+ | ##"),
            ("中 \udcff", r"\u4e2d \udcff"),
            ("＝1＋1", r"\uff1d1\uff0b1"),  # no sign turns into one that a spreadsheet reads
        ],
    )
    def test_ascii(self, text, expected):
        assert plain(text) == expected

    def test_an_encoding_keeps_what_it_has(self):
        assert plain("N²·d → √N × é …", "cp1252") == "N²·d -> sqrt N × é …"

    def test_every_character_of_the_project_has_a_substitute(self):
        files = [file for folder in ("src", "specs") for file in (ROOT / folder).rglob("*") if file.is_file()]
        texts = [file.read_text("utf-8") for file in files if file.suffix in {".py", ".yaml", ".j2"}]
        letters = {character for text in texts for character in text if not character.isascii()}
        assert {"→", "√", "é"} <= letters
        assert {one for one in letters if "\\" in plain(one)} == set()

    def test_columns_stay_columns(self):
        # `O(N²)` grows by one in ASCII and takes one of the two blanks behind it; √ grows by four, and takes three.
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors=HANDLER)
        assert written_columns("O(N²)  1  a\nO(N)   1  a\n√N     1  a\n╭─ N₁ ──╮\n╰───────╯", stream) == (
            "O(N^2) 1  a\nO(N)   1  a\nsqrt N 1  a\n+- N_1 -+\n+-------+"
        )

    def test_json_takes_its_own_escapes(self):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
        assert json_written('"→ × 😀"', stream) == r'"\u2192 \u00d7 \ud83d\ude00"'
        assert json_written('"×"', stream) == '"×"'

    def test_no_cell_becomes_a_formula(self):
        assert csv_cell("→ x") == "'→ x"  # `-> x` in ASCII
        assert csv_cell("×2") == "×2"


@pytest.mark.parametrize("encoding", ENCODINGS)
class TestCommands:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_the_report_is_whole(self, tmp_path, name, encoding):
        done = xf(*COMMANDS[name], cwd=tmp_path, PYTHONIOENCODING=encoding)
        usual = xf(*COMMANDS[name], cwd=tmp_path)
        assert done.returncode == usual.returncode == (name == "check"), done.stderr
        assert words(done.stdout) == words(plain(usual.stdout, encoding))
        assert not re.search(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}", done.stdout + done.stderr)
        assert usual.stdout.count("\n") == done.stdout.count("\n")

    @pytest.mark.parametrize("given", [["analyze", "vit", "--no-trace", "--format", "json"], ["schema"]])
    def test_json_means_the_same(self, given, encoding):
        done, usual = xf(*given, PYTHONIOENCODING=encoding), xf(*given)
        assert done.returncode == 0, done.stderr
        assert "×" in usual.stdout
        assert json.loads(done.stdout) == json.loads(usual.stdout)

    @pytest.mark.parametrize("ending", ["csv", "json", "md", "txt"])
    def test_a_file_is_utf_8(self, tmp_path, ending, encoding):
        given, usual = tmp_path / f"given.{ending}", tmp_path / f"usual.{ending}"
        done = xf("analyze", "vit", "--no-trace", "-o", given, PYTHONIOENCODING=encoding)
        xf("analyze", "vit", "--no-trace", "-o", usual)
        assert done.returncode == 0, done.stderr
        assert given.read_bytes() == usual.read_bytes()
        assert "·" in given.read_text("utf-8")

    def test_an_error_is_whole(self, encoding):
        assert f"'{plain('→é', encoding)}'" in error_of("analyze", "→é", PYTHONIOENCODING=encoding)


def test_a_choice_of_ones_own_is_kept():
    done = in_a_process("ascii:replace")
    assert done.returncode == 0
    assert b"22.41 G ? 4.491 G" in done.stdout


def test_bytes_are_of_the_encoding():
    done = in_a_process("cp1252")
    assert done.returncode == 0
    assert b"224\xd7224" in done.stdout  # × in cp1252
    assert b"22.41 G -> 4.491 G" in done.stdout


def in_a_process(encoding):
    environ = environment(PYTHONIOENCODING=encoding)
    return subprocess.run(words_of("diff", "vit", "swin"), env=environ, capture_output=True, check=False)
