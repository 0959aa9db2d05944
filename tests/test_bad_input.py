"""Whatever a user writes, the loader answers with an XfcostError that says where, what was expected and how to mend."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xfcost.counting.forward import count
from xfcost.importing import import_config
from xfcost.ledger.errors import SpecError, UsageError, XfcostError
from xfcost.ledger.ledger import Ledger
from xfcost.spec import schema
from xfcost.spec.grammar_errors import spec_error
from xfcost.spec.load import lineage, load
from xfcost.spec.placement import place
from xfcost.spec.reader import Source, allow_outside
from xfcost.spec.run import Run

TOY = """\
name: toy
paper: nobody 2020
input: {kind: image, size: 32, channels: 3}
embed: [{kind: patch, size: 8}, {kind: class_token}, {kind: position}]
stages:
  - dim: 64
    depth: 2
    block: [{kind: full, heads: 4}, {kind: mlp, ratio: 4}]
head: {kind: classifier, pool: class_token}
"""

TALKER = """\
name: talker
input: {kind: tokens, vocabulary: 100, length: 16}
encoder:
  embed: [{kind: token, share: table}, {kind: position, form: sinusoidal}]
  stages: [{dim: 8, depth: 1, block: [{kind: full, heads: 2}]}]
decoder:
  embed: [{kind: token, share: table}, {kind: position, length: 20}]
  stages: [{dim: 8, depth: 1, block: [{kind: full, heads: 2}, {kind: cross, heads: 2}]}]
head: {kind: language_model, share: table}
"""


def counted(name: str, run: Run | None = None, settings: tuple[str, ...] = ()) -> Ledger:
    return count(place(load(name, settings), run or Run()))


def refusal(text: str | bytes, run: Run | None = None, settings: tuple[str, ...] = (), error=SpecError) -> str:
    """What is said about a file toy.yaml with this text."""
    Path("toy.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return refused("toy.yaml", run, settings, error)


def refused(name: str, run: Run | None = None, settings: tuple[str, ...] = (), error=SpecError) -> str:
    with pytest.raises(error) as caught:
        counted(name, run, settings)
    said = str(caught.value)
    # one line for each thing that is wrong
    assert all(len(line) < 1000 and line.isprintable() for line in said.split("\n"))
    assert caught.value.exit_code == 2
    return said


def changed(old: str, new: str, text: str = TOY) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_the_toys_themselves_are_good(here):
    for text in (TOY, TALKER):
        Path("toy.yaml").write_text(text)
        assert counted("toy.yaml").total("macs") > 0


class TestFiles:
    def test_missing(self, here):
        assert refused("none.yaml").startswith("none.yaml: no such file; `xfcost list` shows the presets")

    @pytest.mark.parametrize("name", [".", "..", "folder/"])
    def test_a_directory(self, here, name):
        Path("folder").mkdir()
        assert refused(name) == f"{name}: is a directory; expected a YAML file"
        assert refused("folder") == "folder: is a directory; expected a YAML file in it, or the name of a preset"

    @pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\n\n", "\ufeff"])
    def test_empty(self, here, text):
        assert refusal(text) == "toy.yaml:1 is empty; expected a mapping with `input`, `embed`, `stages` and `head`"

    def test_binary(self, here):
        assert refusal(b"\x7fELF\x02\xff\xfe") == "toy.yaml: is not UTF-8 text (byte 5); expected a YAML file"
        assert refusal(b"name: \0\n") == "toy.yaml:1 is not valid YAML: control characters are not allowed"

    def test_too_large(self, here):
        assert refusal("#" * 1_000_001) == "toy.yaml: is larger than 1,000,000 bytes; a spec is a page of YAML"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_unreadable(self, here):
        Path("toy.yaml").write_text(TOY)
        Path("toy.yaml").chmod(0)
        assert refused("toy.yaml") == "toy.yaml: can't be read: Permission denied"

    def test_a_link_to_itself(self, here):
        Path("toy.yaml").symlink_to("toy.yaml")
        assert "toy.yaml: can't be read: Too many levels of symbolic links" in refused("toy.yaml")

    @pytest.mark.parametrize("name", ["", "a\0b.yaml"])
    def test_names_that_no_file_has(self, here, name):
        assert refused(name, error=UsageError) == f"expected the name of a preset or a path, got {name!r}"

    def test_a_name_too_long_for_a_file(self, here):
        assert "File name too long" in refused("x" * 5000 + ".yaml")
        assert "there is no preset 'xxx" in refused("x" * 5000, error=UsageError)

    def test_an_unknown_preset_has_near_names(self, here):
        assert refused("swinn", error=UsageError) == (
            "there is no preset 'swinn'; did you mean 'swin' or 'swin-t' or 'swin-s'? (`xfcost list` and `xfcost list "
            "--models` show all)"
        )
        Path("mine").touch()
        assert "to name a file, give its path: ./mine" in refused("mine", error=UsageError)


class TestYaml:
    @pytest.mark.parametrize(
        ("text", "line", "problem"),
        [
            ("name: [1, 2", 1, "this `[` is not closed (did not find expected ',' or ']')"),
            ("embed: [\n  {kind: token},\nstages:\n  - a\n", 4, "node content; is a `[` or `{` above not closed?"),
            ("name: toy\nembed: [\n  {kind: token,\nstages: 1\n", 3, "this `{` is not closed"),
            ("name: toy\nembed: [\n  {kind: token}\nstages: 1\n", 2, "this `[` is not closed"),
            ("name: toy\nstages:\n\t- dim: 3\n", 3, "cannot start any token"),
            ("name: *toy\n", 1, "undefined alias"),
            ("a: 1\n b: 2\n", 2, "mapping values are not allowed"),
            (TOY + "---\n" + TOY, 10, "expected a single document in the stream, but found another document"),
            ('name: "\\q"\n', 1, "unknown escape character"),
        ],
    )
    def test_invalid(self, here, text, line, problem):
        said = refusal(text)
        assert said.startswith(f"toy.yaml:{line} is not valid YAML: ")
        assert problem in said

    @pytest.mark.parametrize(("text", "what"), [("\n- a\n- b\n", "a list"), ("\nhello\n", "a single value")])
    def test_no_mapping_at_top_level(self, here, text, what):
        assert refusal(text) == (
            f"toy.yaml:2 {what} at top level; expected a mapping with `input`, `embed`, `stages`, `head`"
        )

    def test_duplicate_keys(self, here):
        assert refusal(TOY + "name: again\n") == (
            "toy.yaml:10 name: duplicate key (first at toy.yaml:1); keep one of them"
        )
        assert refusal(changed("heads: 4", "heads: 4, heads: 4")).startswith(
            "toy.yaml:8 stages[0].block[0].heads: duplicate key"
        )

    @pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!int", "!!str", "!!binary", "!mine", "!"])
    def test_tags(self, here, tag):
        value = '["touch hacked"]' if "python" in tag else "4"
        assert refusal(changed("heads: 4", f"heads: {tag} {value}")) == (
            f"toy.yaml:8 stages[0].block[0].heads: the tag {tag} is not read: "
            "a spec is plain data and can't run code; leave it out"
        )
        assert f"the tag {tag} is not read" in refusal(f"{tag} {value}\n")
        assert refusal(changed("size: 32", f"{tag} size: 32")).startswith(
            f"toy.yaml:3 input.size: the tag {tag} is not"
        )
        assert os.listdir() == ["toy.yaml"]

    def test_merge_keys(self, here):
        assert refusal("a: &a {b: 1}\nc:\n  <<: *a\n") == (
            "toy.yaml:3 c.<<: merge keys are not read; write the keys out, or use `extends`"
        )

    def test_keys_that_are_no_words(self, here):
        assert refusal("[a, b]: 1\n") == "toy.yaml:1 ?: a key must be a word"
        assert "unknown key ''" in refusal("? \n: 1\n")
        said = refusal('"a\\nb\\e[31m": 1\n').split("\n")[1]  # beside it name and input are missing
        assert said.startswith("  toy.yaml:1 'a\\nb\\x1b[31m': unknown key 'a\\nb\\x1b[31m'; ")

    def test_an_alias_bomb(self, here):
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
        for old, new in zip("abcdefghijkl", "bcdefghijklm", strict=True):
            bomb += f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
        assert "aliases repeat more than 2,000 values; expected no more" in refusal(bomb)

    def test_a_short_list_of_aliases_that_makes_thousands_of_rows(self, here):
        def text(aliases: int) -> str:
            return (
                "name: toy\ninput: {kind: tokens, vocabulary: 9, length: 4}\nembed: [{kind: token}]\n"
                "stages:\n  - dim: 8\n    blocks:\n      - &a [{kind: full, heads: 2}, {kind: mlp, ratio: 4}]\n"
                + "      - *a\n" * aliases
                + "head: {kind: classifier, pool: mean, classes: 2}\n"
            )

        Path("toy.yaml").write_text(text(285))  # seven values each: a list, two mappings, and what is in them
        assert counted("toy.yaml").total("macs") > 0
        assert refusal(text(286)) == (
            "toy.yaml:7 stages[0].blocks[286][1].kind: aliases repeat more than 2,000 values; expected no more; "
            "`depth`, or `repeat` in `blocks`, repeats blocks without aliases"
        )

    @pytest.mark.parametrize("text", ["a: &a [*a]\n", "&x {a: *x}\n", "a: &a {b: [1, *a]}\n"])
    def test_aliases_to_themselves(self, here, text):
        assert "nested deeper than 60 levels (an alias to itself?)" in refusal(text)

    @pytest.mark.parametrize("start", ["[", "{a: ", "- ", "? ", "a: [", "[&a "])
    def test_nesting_that_would_overflow_the_parsers_stack(self, here, start):
        """libyaml's composer recurses in C: a file of brackets ended the process. In a process of its own, for that."""
        Path("toy.yaml").write_text(start * 150_000)
        script = """if True:
            from xfcost.spec.load import load
            try:
                load("toy.yaml")
            except Exception as error:
                print(type(error).__name__, error)
        """
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("SpecError toy.yaml:1 is nested deeper than 60 levels; write a flatter spec")

    def test_too_many_values(self, here):
        assert "write a smaller spec" in refusal("a: [" + "1," * 100_000 + "]\n")


class TestGrammar:
    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("heads", "head",
             "8 stages[0].block[0].head: unknown key 'head'; did you mean 'heads' or 'kv_heads' or 'head_dim'?"),
            ("depth", "depht", "7 stages[0].depht: unknown key 'depht'; did you mean 'depth'?"),
            ("head:", "haed:", "9 haed: unknown key 'haed'; did you mean 'head'?"),
            ("kind: full", "kind: ful",
             "8 stages[0].block[0].kind: unknown kind 'ful'; did you mean 'full' or 'funnel'?"),
            ("kind: patch", "kind: path", "4 embed[0].kind: unknown kind 'path'; did you mean 'patch'?"),
            ("kind: image", "kind: picture",
             "3 input.kind: unknown kind 'picture'; expected one of feature_maps, image, tokens"),
            ("kind: classifier", "kind: clasifier",
             "9 head.kind: unknown kind 'clasifier'; did you mean 'classifier' or 'flatten_classifier'?"),
            ("kind: full", "kind: [full]", "8 stages[0].block[0].kind: unknown kind ['full']; "),
            ("kind: full, ", "", "8 stages[0].block[0]: the key 'kind' is missing"),
            (", heads: 4", "", "8 stages[0].block[0]: the key 'heads' is missing"),
            ("name: toy\n", "", "1 the key 'name' is missing"),
            ("name: toy", "name: 3", "1 name: expected text (put it in quotes), got 3"),
            ("name: toy", "name: ''", "1 name: expected text of at least 1 character, got ''"),
            ("heads: 4", "heads: four", "8 stages[0].block[0].heads: expected a whole number, got 'four'"),
            ("heads: 4", "heads: 4.5", "8 stages[0].block[0].heads: expected a whole number, got 4.5"),
            ("heads: 4", "heads: true", "8 stages[0].block[0].heads: expected a whole number, got true"),
            ("heads: 4", "heads: null", "8 stages[0].block[0].heads: expected a whole number, got null"),
            ("heads: 4", "heads: 0", "8 stages[0].block[0].heads: expected a whole number of at least 1, got 0"),
            ("heads: 4", "heads: -4", "8 stages[0].block[0].heads: expected a whole number of at least 1, got -4"),
            ("heads: 4", "heads: 99999999",
             "8 stages[0].block[0].heads: expected a whole number of at most 65,536, got "),
            ("heads: 4", "heads: " + "9" * 30, "8 stages[0].block[0].heads: expected a whole number of at most 65,536"),
            ("heads: 4", "heads: " + "9" * 4000,
             "8 stages[0].block[0].heads: expected a whole number of at most 65,536"),
            ("heads: 4", "heads: " + "9" * 5001, "8 stages[0].block[0].heads: a number of 5001 digits is too large"),
            ("dim: 64", "dim: 2000000", "6 stages[0].dim: expected a whole number of at most 1,048,576, got 2000000"),
            ("depth: 2", "depth: 1000000",
             "7 stages[0].depth: expected a whole number of at most 100,000, got 1000000"),
            ("size: 32", "size: 65537", "3 input.size: expected a whole number of at most 65,536, got 65537"),
            ("size: 32", "size: [32]", "3 input.size: expected a list of at least 2 items, got [32]"),
            ("size: 32", "size: [32, 32, 32]", "3 input.size: expected a list of at most 2 items, got [32, 32, 32]"),
            ("size: 32", "size: [32, -32]", "3 input.size[1]: expected a whole number of at least 1, got -32"),
            ("size: 32", "size: big", "3 input.size: expected a whole number or a list, got 'big'"),
            ("ratio: 4", "ratio: 1e308", "8 stages[0].block[1].ratio: expected a number of at most 1,024, got 1e+308"),
            ("ratio: 4", "ratio: 1e400", "8 stages[0].block[1].ratio: expected a number of at most 1,024, got inf"),
            ("ratio: 4", "ratio: .inf", "8 stages[0].block[1].ratio: expected a number, got '.inf'"),
            ("ratio: 4", "ratio: .nan", "8 stages[0].block[1].ratio: expected a number, got '.nan'"),
            ("ratio: 4", "ratio: nan", "8 stages[0].block[1].ratio: expected a number, got 'nan'"),
            ("ratio: 4", "ratio: 0", "8 stages[0].block[1].ratio: expected a number of more than 0, got 0"),
            ("ratio: 4", "ratio: " + "9" * 400,
             "8 stages[0].block[1].ratio: expected a number of a sensible size, got 9"),
            ("ratio: 4", "act: gelo", "8 stages[0].block[1].act: got 'gelo'; did you mean 'gelu'?"),
            ("{kind: mlp, ratio: 4}", "mlp", "8 stages[0].block[1]: expected a mapping, got 'mlp'"),
            ("block: [", "block: [[", "8 "),
            ("stages:", "stages: []\nhead:", "5 stages: expected a list of at least 1 item, got []"),
        ],
    )  # fmt: skip
    def test_what_is_refused_and_how(self, here, old, new, said):
        text = changed(old, new)
        if new.startswith("block: [["):
            text = text.replace("}]\nhead", "}]]\nhead")
            said = "8 stages[0].block[0]: expected a mapping, got "
        if new.startswith("stages: []"):
            text = text.partition("head:")[0].partition("\nhead")[0]
            text = text.partition("stages: []")[0] + "stages: []\n"
        assert refusal(text).startswith(f"toy.yaml:{said}")

    def test_published_figures_are_sensible(self, here):
        for figure in ("1e400", "0", "-1", "9" * 400, "many"):
            said = refusal(TOY + f"published:\n  - {{params: {figure}, source: x}}\n")
            assert said.startswith("toy.yaml:11 published[0].params: expected a number")
        said = refusal(TOY + "published: [{params: 3}]\n")
        assert said.startswith(
            "toy.yaml:10 published[0]: the key 'source' is missing (where the figures were published"
        )


class Tanh(msgspec.Struct, tag_field="kind", tag="tanh", forbid_unknown_fields=True):
    slope: float = 1.0


class Sine(msgspec.Struct, tag_field="kind", tag="sine", forbid_unknown_fields=True):
    period: int = 1
    phase: Literal["zero", "half"] = "zero"


class Routed(msgspec.Struct, tag_field="kind", tag="routed", forbid_unknown_fields=True):
    expert: Tanh | Sine
    bias: Literal["none"] | Sine = "none"


class Plain(msgspec.Struct, tag_field="kind", tag="plain", forbid_unknown_fields=True):
    bias: Tanh | None = None


class Nest(msgspec.Struct, forbid_unknown_fields=True):
    stages: list[list[Routed | Plain]]
    inner: Nest | None = None


class TestSuggestions:
    """Which names an error suggests follows the types of the fields on the way, whatever the keys are called."""

    def suggested(self, monkeypatch, data):
        monkeypatch.setattr(schema, "Spec", Nest)
        with pytest.raises(msgspec.ValidationError) as caught:
            msgspec.convert(data, Nest)
        return str(spec_error(str(caught.value), data, Source("nest.yaml")))

    @pytest.mark.parametrize(
        ("block", "said"),
        [
            ({"kind": "rooted"}, "stages[0][0].kind: unknown kind 'rooted'; did you mean 'routed'?"),
            ({"kind": "routed", "expert": {"kind": "x"}}, "expert.kind: unknown kind 'x'; expected one of sine, tanh"),
            ({"kind": "routed", "expert": {}}, "the key 'kind' is missing; expected one of sine, tanh"),
            ({"kind": "plain", "bias": {"kind": "tan"}}, "bias.kind: unknown kind 'tan'; did you mean 'tanh'?"),
            ({"kind": "plain", "bias": {"kind": "tanh", "x": 1}}, "unknown key 'x'; expected one of kind, slope"),
            ({"kind": "routed", "expert": {"kind": "sine", "x": 1}}, "'x'; expected one of kind, period, phase"),
            ({"kind": "routed", "expert": {"kind": "sine", "phase": "x"}}, "got 'x'; expected one of half, zero"),
            ({"kind": "routed", "expert": {"kind": "tanh"}, "bias": "x"}, "bias: got 'x'; expected one of none"),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("deep", [0, 2])
    def test_follow_the_types(self, monkeypatch, block, said, deep):
        data = {"stages": [[block]]}
        for _ in range(deep):
            data = {"stages": [], "inner": data}
        assert self.suggested(monkeypatch, data).endswith(said)

    def test_inside_a_residual(self, here):
        said = refusal(changed("{kind: full, heads: 4}", "{kind: full, heads: 4, residual: {nrm: none}}"))
        assert said.endswith("residual.nrm: unknown key 'nrm'; did you mean 'norm'?")
        said = refusal(changed("{kind: full, heads: 4}", "{kind: full, heads: 4, residual: {place: pot}}"))
        assert said.endswith("did you mean 'post'?")


class TestArchitecture:
    def test_heads_that_do_not_divide(self, here):
        assert refusal(changed("heads: 4", "heads: 5")) == (
            "toy.yaml:8 stages[0].block[0].heads: 5 does not divide the width 64; it could be 1, 2, 4, 8, 16, 32, 64"
        )

    def test_a_patch_that_does_not_divide(self, here):
        assert refusal(changed("size: 8", "size: 7")) == (
            "toy.yaml:4 embed[0].size: 7 does not divide the image 32×32; "
            "it could be 1, 2, 4, 8, 16, 32, or the image 28×28 or 35×35"
        )
        assert refusal(changed("size: 8", "size: 64")).endswith("or the image 64×64")
        wide = changed("size: 32", "size: [32, 48]").replace("size: 8", "size: 10")
        assert refusal(wide).endswith("32×48; it could be 1, 2, 4, 8, 16, or the image 30×40 or 40×50")

    @pytest.mark.parametrize(
        ("embed", "said"),
        [
            ("[]", "embed[0]: the input is of kind 'image'; expected {kind: patch, …} or {kind: pixels"),
            ("[{kind: position}, {kind: patch, size: 8}]",
             "embed[0]: the input is of kind 'image', and 'position' comes first; expected {kind: patch, …} or"),
            ("[{kind: token}]",
             "embed[0]: the input is of kind 'image', and 'token' comes first; expected {kind: patch"),
            ("[{kind: patch, size: 4}, {kind: patch, size: 2}]",
             "embed[1]: 'patch' can only be the first step of `embed`"),
        ],
    )  # fmt: skip
    def test_an_entrance_that_does_not_fit(self, here, embed, said):
        text = TOY.partition("embed:")[0] + f"embed: {embed}\n" + TOY[TOY.index("stages:") :]
        assert refusal(text).startswith(f"toy.yaml:4 {said}")

    def test_patches_of_token_numbers(self, here):
        said = refusal(changed("{kind: image, size: 32, channels: 3}", "{kind: tokens, vocabulary: 9}"))
        assert said == (
            "toy.yaml:4 embed[0]: the input is of kind 'tokens', and 'patch' comes first; "
            "expected {kind: token, …} as the first step"
        )

    def test_windows_and_class_tokens(self, here):
        said = refusal(changed("kind: full", "kind: window"))
        assert said.startswith(
            "toy.yaml:8 stages[0].block[0].kind: windows tile a grid: expected no special tokens, got 1"
        )

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("    depth: 2\n", "", "6 stages[0]: the key 'depth' is missing: the number of blocks of `block`"),
            ("    block:", "    pattern: [[{kind: mlp}]]\n    block:",
             "6 stages[0]: expected one of `block`, `pattern` or"),
            ("block: [", "blocks: [[", ("7 stages[0].depth: `blocks` already sets the number of blocks; leave "
            "`depth` out")),
            ("  - dim: 64", "  - dim: 64\n    enter: [{kind: patch_merging}]",
             "7 stages[0].enter[0].kind: 'patch_merging' needs"),
            ("stages:\n", "stages:\n  - {dim: 32, depth: 1, block: [{kind: mlp}]}\n",
             "7 stages[1].dim: the width is 32 here"),
            ("pool: class_token", "kind: language_model", "9 head.kind: "),
            (", {kind: class_token}", "",
             "9 head.pool: there is no class token to pool; add {kind: class_token} to `embed`"),
            ("ratio: 4", "ratio: 0.3",
             "8 stages[0].block[1].ratio: 0.3·64 is not a whole width; give `hidden` instead"),
            ("kind: full", "kind: cross", "8 stages[0].block[0].kind: 'cross' reads an encoder's output"),
            ("kind: position", "kind: position, length: 16",
             "4 embed[2].length: 17 tokens do not fit 16 positions; N can be"),
        ],
    )  # fmt: skip
    def test_components_that_cannot_stand_there(self, here, old, new, said):
        text = changed(old, new)
        if new.startswith("blocks"):
            text = text.replace("}]\nhead", "}]]\nhead")
        if "language_model" in new:
            text = text.replace("kind: classifier, ", "")
        assert refusal(text).startswith(f"toy.yaml:{said}")

    def test_all_keys_that_an_object_misses_are_told_at_once(self, here):
        said = refusal("paper: toy\n")
        for key in ("name", "input", "stages"):
            assert f"toy.yaml:1 the key '{key}' is missing" in said
        stage = TOY.partition("stages")[0] + "stages:\n  - {}\nhead: {kind: classifier, pool: mean, classes: 10}\n"
        said = refusal(stage)
        for key in ("dim", "depth", "block"):
            assert f"stages[0]: the key '{key}' is missing" in said
        nested = refusal(stage.replace("{}", "{blocks: [[{kind: mlp}]]}"))
        assert "the key 'dim' is missing" in nested
        assert "errors" not in nested

    def test_streams_and_stages_exclude_each_other(self, here):
        assert refusal(TALKER + "stages: [{dim: 8, depth: 1, block: [{kind: mlp}]}]\n").startswith(
            "toy.yaml:10 stages: can't be with `encoder`/`decoder`; expected either"
        )
        assert refusal(TALKER + "embed: [{kind: token}]\n").startswith(
            "toy.yaml:10 embed: can't be with `encoder`/`dec"
        )
        assert "the key 'stages' is missing (or `encoder` and `decoder`" in refusal(TOY.partition("stages")[0])

    def test_shared_tables_that_disagree(self, here):
        text = changed(
            "stages: [{dim: 8, depth: 1, block: [{kind: full, heads: 2}, ",
            "stages: [{dim: 4, depth: 1, block: [{kind: full, heads: 2}, ",
            TALKER,
        )
        assert refusal(text) == (
            "toy.yaml:7 decoder.embed[0].share: the table 'table' is 100×8 at toy.yaml:4 and 100×4 here; "
            "shared tables must agree"
        )

    def test_more_blocks_than_any_model_has(self, here):
        group = "{repeat: 1000, blocks: [{repeat: 1000, blocks: [[{kind: mlp}]]}]}"
        text = TOY.partition("    depth")[0] + f"    blocks: [{group}]\n"
        assert refusal(text) == "toy.yaml:7 stages[0].blocks[0].repeat: makes more than 100,000 blocks in one stage"

    def test_sizes_whose_product_is_absurd_are_counted_and_not_allocated(self, here):
        """Each size is inside its bounds; the product is beyond any machine, yet a count is only arithmetic."""
        text = (
            changed("dim: 64", "dim: 1048576").replace("size: 32", "size: 65536").replace("depth: 2", "depth: 100000")
        )
        Path("toy.yaml").write_text(text.replace("ratio: 4", "ratio: 1024").replace("size: 8", "size: 1"))
        assert counted("toy.yaml").total("attention_entries") == 100_000 * 4 * (65_536**2 + 1) ** 2

    def test_many_written_blocks_in_a_long_stage(self, here):
        blocks = ", ".join(["[{kind: mlp}]"] * 4000)
        text = TOY.partition("    depth")[0] + f"    blocks: [{{repeat: 25, blocks: [{blocks}]}}]\n"
        Path("toy.yaml").write_text(text)
        assert len(place(load("toy.yaml"), Run()).streams[0].stages[0].order) == 100_000


class TestExtends:
    def test_itself(self, here):
        assert refusal("extends: ./toy.yaml\n") == ("toy.yaml:1 extends: circular extends: toy.yaml -> toy.yaml")

    def test_each_other_by_other_paths(self, here):
        Path("sub").mkdir()
        Path("a.yaml").write_text("# one\nextends: sub/b.yaml\n")
        Path("sub/b.yaml").write_text("extends: ../sub/../a.yaml\n")
        said = refused("./a.yaml")
        assert said == "sub/b.yaml:1 extends: circular extends: a.yaml -> b.yaml -> a.yaml"
        with pytest.raises(SpecError, match="circular extends"):
            lineage("a.yaml")

    def test_through_a_link(self, here):
        Path("b.yaml").symlink_to("toy.yaml")
        assert "circular extends" in refusal("extends: ./b.yaml\n")

    def test_a_long_chain(self, here):
        for number in range(30):
            Path(f"s{number}.yaml").write_text(f"extends: ./s{number + 1}.yaml\n")
        assert "more than 16 specs extend one another: s0.yaml -> " in refused("s0.yaml")

    @pytest.mark.parametrize(
        ("target", "said"),
        [
            ("vit-b61", "there is no preset 'vit-b61'; did you mean 'vit-b16'"),
            ("./none.yaml", "none.yaml: no such file; "),
            (".", "is a directory; expected a YAML file"),
            ('""', "expected the name of a preset or a path, got ''"),
            ('"a\\0b.yaml"', "expected the name of a preset or a path, got 'a\\x00b.yaml'"),
            ("3", "expected the name of a preset or a file, got 3"),
            ("[vit]", "expected the name of a preset or a file, got ['vit']"),
            ("false", "expected the name of a preset or a file, got false"),
        ],
    )
    def test_what_there_is_not(self, here, target, said):
        told = refusal(f"# a variant\nextends: {target}\n")
        assert told.startswith("toy.yaml:2 extends: ")
        assert said in told

    def test_a_parent_with_a_fault_is_told_by_its_own_line(self, here):
        Path("parent.yaml").write_text(changed("heads: 4", "heads: 5"))
        assert refusal("extends: ./parent.yaml\nname: child\n").startswith(
            "parent.yaml:8 stages[0].block[0].heads: 5 does"
        )
        Path("parent.yaml").write_text("a: [")
        assert refusal("extends: ./parent.yaml\n").startswith("parent.yaml:2 is not valid YAML")


class TestTokens:
    @pytest.mark.parametrize(
        ("tokens", "said"),
        [
            (787, "no image grid between 1:1 and 2:1 has as many tokens; the nearest that do: 784 (28×28)"),
            (3, "no image grid between 1:1 and 2:1 has as many tokens; the nearest that do: 2 (1×2) or 4 (2×2)"),
            (0, "expected at least 1 token; try --N 1 or --N 784"),
            (-784, "expected at least 1 token; try --N 1 or --N 784"),
            (2**32 + 1, "expected at most 4,294,967,296 tokens (2³²)"),
            (2**32 - 5, "no image grid between"),
            (2**61 - 1, "expected at most 4,294,967,296 tokens (2³²)"),
        ],
    )
    def test_impossible_on_an_image(self, tokens, said):
        assert refused("vit", Run(tokens=(tokens,)), error=UsageError).startswith(f"--N {tokens}: {said}")

    @pytest.mark.parametrize("tokens", [10**400, 10**5000, -(10**5000)], ids=["400", "5000", "minus 5000"])
    def test_numbers_too_long_to_print(self, tokens):
        assert len(refused("vit", Run(tokens=(tokens,)), error=UsageError)) < 100
        assert len(refused("gpt2", Run(tokens=(tokens,)), error=UsageError)) < 100
        assert len(refused("gpt2", Run(tokens=(tokens, tokens)), error=UsageError)) < 150

    def test_beyond_a_learned_length(self):
        assert refused("gpt2", Run(tokens=(1025,))) == (
            "gpt2.yaml:4 embed[1].length: 1025 tokens do not fit 1024 positions; N can be at most 1024"
        )
        assert counted("gpt2", Run(tokens=(1024,))).total("macs")

    def test_more_numbers_than_streams(self):
        assert refused("vit", Run(tokens=(784, 784)), error=UsageError) == (
            "--N 784,784: ViT-S/8 has one stream of tokens; give one number (a comma separates two; write thousands "
            "as 1_000)"
        )
        assert refused("transformer-base", Run(tokens=(1, 2, 3)), error=UsageError) == (
            "--N 1,2,3: Transformer (base) has two streams of tokens; give one number or two"
        )


class TestSettings:
    @pytest.mark.parametrize(
        ("setting", "said"),
        [
            ("x", "expected key=value, as in --set stages.0.depth=4"),
            ("=3", "expected key=value, as in --set stages.0.depth=4"),
            ("", "expected key=value, as in --set stages.0.depth=4"),
            ("stages.9.depth=3", "stages has items 0 to 0, and no '9'"),
            ("stages.-1.depth=3", "stages has items 0 to 0, and no '-1'"),
            ("stages.²=3", "stages has items 0 to 0, and no '²'"),
            ("stages.x=3", "stages has items 0 to 0, and no 'x'"),
            ("stages.0.depth.x=3", "stages[0].depth is 12 and holds no 'x'"),
            ("stagse.0.depth=3", "the spec has no 'stagse'; did you mean 'stages'?"),
            ("..=3", "the spec has no ''; expected one of embed, head, input, name, paper, stages"),
            ("stages.0.depth=[",
             "--set:2 is not valid YAML: while parsing a flow node, did not find expected node content"),
            ("stages.0.depth=!!python/name:os x",
             "the tag !!python/name:os is not read: a spec is plain data and can't run"),
            ("stages.0.depth=&a [*a]", "[0][0][0]: nested deeper than 60 levels (an alias to itself?)"),
            ("stages.*.size.x=1", "stages[0] has no 'size'; expected one of block, depth, dim"),
            ("stages.0.depth.*=1", "stages[0].depth is 12 and holds no '*'"),
            ("input.*=1", "'*' is every item of a list, and input is a mapping"),
            ("**=1", "'**' may occur once, before the key that it searches for, as in **.heads"),
            ("**.block.**.heads=1", "'**' may occur once, before the key that it searches for, as in **.heads"),
            ("**.shift=1", "nothing in the spec is at **.shift"),
            ("stages.0.pattern.0.0.heads=3", "stages[0] has no 'pattern'; expected one of block, depth, dim"),
            ("set=1", "`set` belongs to a file; name the spec itself"),
            ("extends=swin", "`extends` belongs to a file; name the spec itself instead of the one you set it on"),
        ],
    )  # fmt: skip
    def test_that_lead_nowhere(self, setting, said):
        assert refused("vit-s16", settings=(setting,), error=UsageError).startswith(f"--set {setting}: {said}")

    def test_all_that_lead_nowhere_are_told_at_once(self):
        given = ("a.b=1", "stages.0.depth=3", "stages.9.depth=2", "x", "a.b=1", "c=1")
        first, *rest = refused("vit-s16", settings=given, error=UsageError).split("\n  ")
        assert first == "4 errors:"
        expected = [
            "--set a.b=1: the spec has no 'a'",
            "--set stages.9.depth=2: stages has items 0",
            "--set x: expected key=value",
            "--set c=1: c: unknown key 'c'",
        ]
        assert [line[: len(start)] for line, start in zip(rest, expected, strict=True)] == expected

    def test_endless_ones_are_cut_short(self):
        assert len(refused("vit", settings=("stages." + "9" * 5000 + "=1",), error=UsageError)) < 250
        assert "a number of 5000 digits is too large" in refused(
            "vit", settings=("stages.0.depth=" + "9" * 5000,), error=UsageError
        )

    @pytest.mark.parametrize(
        ("setting", "said"),
        [
            ("stages.0.depht=3", "stages[0].depht: unknown key 'depht'; did you mean 'depth'?"),
            ("stages[0].depth=four", "stages[0].depth: expected a whole number, got 'four'"),
            (
                "stages.0.block.0.heads=5",
                "stages[0].block[0].heads: 5 does not divide the width 384; it could be 1, 2, 3",
            ),
            ("published=", "published: expected a list, got null"),
            ("embed.0=", "embed[0]: expected a mapping, got null"),
        ],
    )
    def test_that_lead_to_a_bad_spec_are_named_as_the_place(self, setting, said):
        assert refused("vit-s16", settings=(setting,)).startswith(f"--set {setting}: {said}")


# Fuzzing -----------------------------------------------------------------------------------------------------------

FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

WORDS = ("full", "window", "cross", "mlp", "patch", "token", "position", "class_token", "patch_merging", "classifier")
KEYS = ("kind", "size", "heads", "head_dim", "shift", "bias", "causal", "depth", "dim", "block", "pattern", "blocks")
MORE = ("repeat", "enter", "embed", "head", "residual", "share", "length", "form", "pool", "norm", "ratio", "hidden")
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.integers(),
    st.sampled_from(
        [2**16, 2**20, 2**31, 2**32, 2**63, 2**64, 10**400, 0.5, 1e308, 1e-308, "layer_norm", "none", "post"]
    ),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from(WORDS),
    st.text(max_size=8),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS + MORE) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


def survives(text: str, folder: Path, run: Run | None = None) -> None:
    """Load, place and count `text`: all is well or it is an XfcostError; a message is one line and not endless."""
    file = folder / "fuzz.yaml"
    with contextlib.suppress(UnicodeEncodeError):  # lone surrogates are no text that a file can hold
        file.write_text(text, encoding="utf-8", newline="")
        try:
            counted(str(file), run)
        except XfcostError as error:
            said = str(error)
            assert said
            # several errors, at most 20 and two lines about them, each of them short
            assert all(len(line) < 2000 for line in said.splitlines())
            assert len(said.splitlines()) <= 22
            assert all(line.isprintable() for line in said.split("\n"))
            assert "`int`" not in said
            assert re.search(r"fuzz\.yaml(:\d+)? |fuzz\.yaml: |--N", said)


PIECES = [
    *KEYS, *WORDS, ": ", "- ", "\n", "\n  ", "{", "}", "[", "]", ", ", "&a ", "*a ", "!t ", "'", '"', "|", ">", "#",
    "? ", "<<", "~", "4", "1e5", "%", "@", "\t", "---\n", "...\n",
]  # fmt: skip


@settings(FUZZ, max_examples=300)
@given(text=st.text(max_size=300) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
@example(text="\ud800")
@example(text="a: &a\n  - *a\n")
@example(text="%YAML 9.9\n--- a")
@example(text="%TAG ! tag:x,2000:\n---\n!y a: b")
@example(text="\x85: \u2028")
@example(text="? - a\n: b")
def test_fuzz_any_text(text, tmp_path):
    survives(text, tmp_path)


@FUZZ
@given(raw=st.binary(max_size=200))
def test_fuzz_bytes(raw, tmp_path):
    file = tmp_path / "fuzz.yaml"
    file.write_bytes(raw)
    with contextlib.suppress(XfcostError):
        counted(str(file))


@FUZZ
@given(data=values)
def test_fuzz_any_data(data, tmp_path):
    survives(yaml.safe_dump(data, allow_unicode=True), tmp_path)


@FUZZ
@given(name=st.sampled_from(["vit-s16", "swin-t", "gpt2", "transformer-big"]), data=st.data())
def test_fuzz_settings(name, data):
    words = st.sampled_from([*KEYS, *MORE, "stages", "encoder", "input", "0", "1", "-1", "[0]", ""]) | st.text(
        max_size=4
    )
    key = ".".join(data.draw(st.lists(words, max_size=5)))
    value = data.draw(st.text(max_size=10) | values.map(lambda value: yaml.safe_dump(value, default_flow_style=True)))
    with contextlib.suppress(XfcostError):
        counted(name, settings=(f"{key}={value}",))


@FUZZ
@given(name=st.text(max_size=20) | st.sampled_from(["../", "/", "~", "vit\n", "swin ", "C:\\x", "/dev/null"]))
def test_fuzz_names(name):
    with contextlib.suppress(XfcostError, UnicodeEncodeError):
        counted(name)


class TestSeveralErrors:
    """Whatever is wrong independently is told in one run, in the order of the file, each with its line and path."""

    STAGES = """
name: x
input: {kind: tokens, vocabulary: 100, length: 64}
embed: [{kind: token}]
stages:
- dim: 64
  depth: 3
  block:
  - {kind: full, heads: 5}
  - {kind: mlp, ratoi: 4}
- dim: 64
  depth: 1
  block: [{kind: full, heads: 7}, {kind: mlp, act: no}]
"""

    def test_an_unknown_key_a_bad_value_and_a_bad_divisor(self, here):
        no = "does not divide the width 64; it could be 1, 2, 4, 8, 16, 32, 64"
        fixed = changed("act: no", "act: relu", self.STAGES)
        assert refusal(fixed).split("\n") == [
            "3 errors:",
            "  toy.yaml:9 stages[0].block[0].heads: 5 does not divide the width 64; it could be 1, 2, 4, 8, 16, 32, 64",
            "  toy.yaml:10 stages[0].block[1].ratoi: unknown key 'ratoi'; did you mean 'ratio'?",
            f"  toy.yaml:13 stages[1].block[0].heads: 7 {no}",
        ]
        said = refusal(self.STAGES).split("\n")
        assert said[0] == "2 errors:"
        assert said[2].startswith("  toy.yaml:13 stages[1].block[1].act: got 'no'; ")

    def test_two_bad_divisors_of_a_spec_that_converts(self, here):
        said = refusal(changed("ratoi", "ratio", changed("act: no", "act: relu", self.STAGES)))
        assert [line.split(":")[1] for line in said.split("\n")[1:]] == [
            "9 stages[0].block[0].heads",
            "13 stages[1].block[0].heads",
        ]

    def test_one_thing_is_told_as_it_always_was(self, here):
        said = refusal(changed("heads: 7", "heads: 8", changed("ratoi", "ratio", self.STAGES)))
        assert said.startswith("toy.yaml:13 stages[1].block[1].act: got 'no'; ")

    def test_a_misspelt_key_is_not_missing_too(self, here):
        said = refusal(changed("heads: 5", "haeds: 8", self.STAGES))
        assert "is missing" not in said
        assert "did you mean 'heads'" in said

    def test_of_very_many_twenty_are_told(self, here):
        blocks = "\n".join(f"  - [{{kind: mlp, k{number}: 1}}]" for number in range(100))
        text = "name: x\ninput: {kind: tokens, vocabulary: 9}\nembed: [{kind: token}]\nstages:\n- dim: 8\n  blocks:\n"
        lines = refusal(text + blocks).split("\n")
        assert (lines[0], len(lines), lines[-1]) == ("100 errors:", 22, "  … and 80 more")
        assert lines[1].startswith("  toy.yaml:7 stages[0].blocks[0][0].k0: unknown key 'k0'")


class TestOtherFiles:
    """Pipes, devices, other people's files: what a spec names is read only where it is harmless."""

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes by name")
    @pytest.mark.parametrize("by", ["name", "extends", "import"])
    def test_a_pipe_is_not_waited_for(self, here, by):
        os.mkfifo("pipe.yaml")
        Path("toy.yaml").write_text("extends: ./pipe.yaml\n")
        asked = {"name": lambda: load("pipe.yaml"), "extends": lambda: load("toy.yaml")}
        with pytest.raises(SpecError, match=r"pipe\.yaml: is a pipe or a device"):
            asked.get(by, lambda: import_config(Path("pipe.yaml")))()

    @pytest.mark.parametrize("written", ["{outside}", "../secret.yaml", "./link.yaml"])
    def test_a_file_outside_the_folder_is_not_read(self, here, written):
        """Nor is it told whether there is one."""
        secret = here / "secret.yaml"
        secret.write_text("root:$6$secret:19000\n")
        inner = here / "inner"
        inner.mkdir()
        (inner / "link.yaml").symlink_to(secret)
        (inner / "toy.yaml").write_text(f"# one\nextends: {written.format(outside=secret)}\n")
        said = refused("inner/toy.yaml")
        assert said.startswith("inner/toy.yaml:2 extends: ")
        assert "lies outside the folder of inner/toy.yaml" in said
        assert "$6$" not in said
        secret.unlink()
        assert "lies outside" in refused("inner/toy.yaml")

    def test_it_is_read_where_that_is_asked_for(self, here):
        Path("inner").mkdir()
        Path("toy.yaml").write_text(TOY)
        Path("inner/child.yaml").write_text("extends: ../toy.yaml\nname: child\n")
        with allow_outside():
            assert load("inner/child.yaml").spec.name == "child"
        assert "lies outside" in refused("inner/child.yaml")

    def test_presets_are_read_from_anywhere(self, here):
        Path("toy.yaml").write_text("extends: vit\nname: mine\n")
        assert load("toy.yaml").spec.name == "mine"

    def test_a_config_of_transformers_points_to_import(self, here):
        Path("config.json").write_text('{"model_type": "bert"}')
        said = refused("config.json")
        assert said.startswith("config.json:1 model_type: ")
        assert "`xfcost import config.json -o model.yaml`" in said

    @pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "https://huggingface.co/Qwen/Qwen3-8B"])
    def test_a_model_of_a_hub_is_not_fetched(self, here, name):
        said = refused(name)
        assert "nothing is fetched" in said
        assert "`xfcost import config.json -o model.yaml`" in said


@pytest.mark.parametrize("key", ["set.x", "set", "extends", "extends.x", "set.set.x"])
def test_a_set_does_not_set_itself(here, key):
    said = refusal(f"extends: vit\nset:\n  {key}: 1\n")
    assert said.startswith(f"toy.yaml:3 set.{key}: `{key.partition('.')[0]}` belongs to the file")
    assert "belongs to a file" in refusal("extends: vit\n", settings=(f"{key}=1",), error=UsageError)


@pytest.mark.parametrize("tokens", [None, (64,)])
def test_a_video_at_a_entry_of_images_is_refused_whatever_N(here, tokens):
    text = "name: v\ninput: {kind: video, frames: 2, size: 32}\nembed: [{kind: patch, size: 4}]\nstages:\n"
    said = refusal(text + "- {dim: 64, depth: 1, block: [{kind: mlp}]}\n", Run(tokens=tokens))
    assert said.startswith("toy.yaml:3 embed[0]: the input is of kind 'video', and 'patch' comes first")
