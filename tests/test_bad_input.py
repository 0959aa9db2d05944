"""Whatever a user writes, the loader answers with an XfcostError that says where, what was expected and how to mend."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import xfcost
from helpers import stdout_of
from specs import counted
from xfcost.importing import import_config
from xfcost.layers import EMBEDS, HEADS, SUBLAYERS
from xfcost.ledger.errors import SpecError, UsageError, XfcostError
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.load import lineage, load
from xfcost.spec.other_names import OWN_KEYS, OWN_KINDS
from xfcost.spec.reader import allow_outside
from xfcost.spec.schema import places

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


def refusal(text):
    """What is said about a file toy.yaml with this text."""
    Path("toy.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return refused("toy.yaml")


def refused(name, error=SpecError, **run):
    with pytest.raises(error) as caught:
        counted(name, **run)
    said = str(caught.value)
    # one line for each thing that is wrong
    assert all(len(line) < 1000 and line.isprintable() for line in said.split("\n"))
    assert caught.value.exit_code == 2
    return said


def changed(old, new, text=TOY):
    assert old in text
    return text.replace(old, new, 1)


def test_what_can_not_be_read(here):
    Path("loop.yaml").symlink_to("loop.yaml")
    Path("large.yaml").write_text("#" * 1_000_001)
    Path("shut.yaml").write_text(TOY)
    Path("shut.yaml").chmod(0)
    for name in ("loop.yaml", "large.yaml", f"{'x' * 5000}.yaml", *(["shut.yaml"] if os.geteuid() else [])):
        assert refused(name)
    assert refused("x" * 5000, error=UsageError)


class TestYaml:
    @pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!int", "!!str", "!!binary", "!mine", "!"])
    def test_tags(self, here, tag):
        value = '["touch hacked"]' if "python" in tag else "4"
        for text in (
            changed("heads: 4", f"heads: {tag} {value}"),
            changed("size: 32", f"{tag} size: 32"),
            f"{tag} 4\n",
        ):
            assert f"the tag {tag} is not read" in refusal(text)
        assert os.listdir() == ["toy.yaml"]

    def test_an_alias_bomb(self, here):
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
        for old, new in zip("abcdefghijkl", "bcdefghijklm", strict=True):
            bomb += f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
        assert "aliases repeat more than 2,000 values" in refusal(bomb)

    def test_a_short_list_of_aliases_that_makes_thousands_of_rows(self, here):
        def text(aliases):
            return (
                "name: toy\ninput: {kind: tokens, vocabulary: 9, length: 4}\nembed: [{kind: token}]\n"
                "stages:\n  - dim: 8\n    blocks:\n      - &a [{kind: full, heads: 2}, {kind: mlp, ratio: 4}]\n"
                + "      - *a\n" * aliases
                + "head: {kind: classifier, pool: mean, classes: 2}\n"
            )

        Path("toy.yaml").write_text(text(285))  # seven values each: a list, two mappings, and what is in them
        assert counted("toy.yaml").total("macs") > 0
        assert "stages[0].blocks[286][1].kind: aliases repeat more than 2,000 values" in refusal(text(286))

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
        assert done.stdout.startswith("SpecError toy.yaml:1 is nested deeper than 60 levels")

    def test_too_many_values(self, here):
        assert "write a smaller spec" in refusal("a: [" + "1," * 100_000 + "]\n")


def test_sizes_whose_product_is_absurd_are_counted_and_not_allocated(here):
    """Each size is inside its bounds; the product is beyond any machine, yet a count is only arithmetic."""
    text = changed("dim: 64", "dim: 1048576").replace("size: 32", "size: 65536").replace("depth: 2", "depth: 100000")
    Path("toy.yaml").write_text(text.replace("ratio: 4", "ratio: 1024").replace("size: 8", "size: 1"))
    assert counted("toy.yaml").total("attention_entries") == 100_000 * 4 * (65_536**2 + 1) ** 2


class TestExtends:
    def test_each_other_by_other_paths(self, here):
        Path("sub").mkdir()
        Path("a.yaml").write_text("# one\nextends: sub/b.yaml\n")
        Path("sub/b.yaml").write_text("extends: ../sub/../a.yaml\n")
        Path("link.yaml").symlink_to("toy.yaml")
        assert "a.yaml -> b.yaml -> a.yaml" in refused("./a.yaml")
        assert "circular extends" in refusal("extends: ./link.yaml\n")
        with pytest.raises(SpecError, match="circular extends"):
            lineage("a.yaml")

    def test_a_long_chain(self, here):
        for number in range(30):
            Path(f"s{number}.yaml").write_text(f"extends: ./s{number + 1}.yaml\n")
        assert "more than 16 specs" in refused("s0.yaml")


@pytest.mark.parametrize("tokens", [10**400, 10**5000, -(10**5000)], ids=["400", "5000", "minus 5000"])
def test_numbers_too_long_to_print(tokens):
    assert len(refused("vit", tokens=(tokens,), error=UsageError)) < 100
    assert len(refused("gpt2", tokens=(tokens,), error=UsageError)) < 100
    assert len(refused("gpt2", tokens=(tokens, tokens), error=UsageError)) < 150


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


def survives(text, folder):
    """Load, place and count `text`: all is well or it is an XfcostError; a message is one line and not endless."""
    file = folder / "fuzz.yaml"
    with contextlib.suppress(UnicodeEncodeError):  # lone surrogates are no text that a file can hold
        file.write_text(text, encoding="utf-8", newline="")
        try:
            counted(str(file))
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
        counted(name, f"{key}={value}")


@FUZZ
@given(name=st.text(max_size=20) | st.sampled_from(["../", "/", "~", "vit\n", "swin ", "C:\\x", "/dev/null"]))
def test_fuzz_names(name):
    with contextlib.suppress(XfcostError, UnicodeEncodeError):
        counted(name)


def test_of_very_many_twenty_are_told(here):
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

    def test_a_config_of_transformers_points_to_import(self, here):
        Path("config.json").write_text('{"model_type": "bert"}')
        said = refused("config.json")
        assert said.startswith("config.json:1 model_type: ")
        assert "`xfcost import config.json -o model.yaml`" in said


def test_tokens_beyond_learned_positions_are_counted_with_a_longer_table():
    # 600 rows for 512 of 768 columns: 88·768 = 67,584 parameters more
    longer, own = xfcost.analyze("bert-base", N=600), xfcost.analyze("bert-base", trace=False)
    assert longer.params - own.params == 67_584
    assert longer.agreement.exact  # the torch model has the rows too
    assert longer.metadata.settings == ("embed.1.length=600",)
    [warning] = longer.metadata.warnings
    assert warning.startswith("N = 600 is beyond the model's 512 learned positions: counted with a longer table")
    assert not own.metadata.warnings
    # a class token has a row too, of which the number in the file had one
    vit = xfcost.analyze("vit-s8", N=900, settings=["embed.2.length=785"], trace=False)
    assert vit.metadata.settings == ("embed.2.length=785", "embed.2.length=901")
    # generated tokens have positions: 1,000 and 100 more
    generated = xfcost.analyze("gpt2", N=1000, new_tokens=100, trace=False)
    assert generated.metadata.settings == ("embed.1.length=1100",)
    said = stdout_of("compare", "bert-base", "gpt2", "--N", "512", "4096")
    assert said.count("learned positions: counted with a longer table") == 2


BLOCK = "stages: [{dim: 64, depth: 2, block: [{kind: full, heads: 4}, {kind: mlp}]}]"


@pytest.mark.parametrize(
    ("old", "new", "mend"),
    [
        # keys of another place
        ("name: toy", "name: toy\nheads: 4", "its place is stages[].block[].heads"),
        ("name: toy", "name: toy\npattern: []", "its place is stages[].pattern"),
        ("dim: 64,", "dim: 64, heads: 4,", "its place is stages[].block[].heads"),
        ("dim: 64,", "dim: 64, paper: a,", "its place is paper at the top of the file"),
        ("{kind: mlp}", "{kind: mlp, dim: 4}", "its place is stages[].dim"),
        # words of other frameworks
        ("name: toy", "name: toy\nd_model: 64", "it is stages[].dim here"),
        ("name: toy", "name: toy\npatch_size: 4", "it is embed[].size of {kind: patch} here"),
        ("dim: 64,", "dim: 64, n_heads: 4,", "it is stages[].block[].heads here"),
        ("depth: 2,", "num_layers: 2,", "did you mean 'depth'?"),
        ("heads: 4", "n_heads: 4", "did you mean 'heads'?"),
        ("{kind: mlp}", "{kind: mlp, intermediate_size: 4}", "did you mean 'hidden'?"),
        ("kind: full", "kind: atention", "did you mean 'full'?"),
        # misspelt here
        ("heads: 4", "head: 4", "did you mean 'heads' or 'kv_heads' or 'head_dim'?"),
        ("depth: 2,", "dept: 2,", "did you mean 'depth'?"),
        ("kind: mlp", "kind: mpl", "did you mean 'mlp' or 'mla'?"),
    ],
)
def test_keys_of_other_places_and_words_of_other_frameworks_are_named_with_their_place(old, new, mend, tmp_path):
    text = f"name: toy\ninput: {{kind: image, size: 32}}\nembed: [{{kind: patch, size: 8}}]\n{BLOCK}"
    file = tmp_path / "toy.yaml"
    file.write_text(text)
    load(str(file))
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecError) as refused:
        load(str(file))
    assert f"; {mend}" in str(refused.value)


def test_words_of_other_frameworks_are_keys_and_kinds_of_the_grammar():
    known = places()
    for own in set(OWN_KEYS.values()):
        kinds = known[own.key][own.place]
        assert own.kind in kinds if own.kind else True
    assert not OWN_KEYS.keys() & known.keys()
    assert set(OWN_KINDS.values()) <= {*MECHANISMS, *SUBLAYERS, *EMBEDS, *HEADS, "tokens"}
