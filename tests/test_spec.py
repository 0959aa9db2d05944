"""The reader, `extends`, `--set`, the schedule of blocks, the lines in messages, and grids."""

import json
from itertools import pairwise
from math import isqrt
from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers import stdout_of
from specs import architecture_of, counted
from xfcost.counting.forward import count
from xfcost.formulas.component import Residual, tag_of
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.ledger.errors import SpecError, UsageError
from xfcost.ledger.grid import MOST_TOKENS, WIDEST_ASPECT, Grid, image_sides, near_square
from xfcost.mechanisms import MECHANISMS
from xfcost.spec.load import lineage, load
from xfcost.spec.placement import place
from xfcost.spec.reader import Source, read, read_value
from xfcost.spec.run import Run
from xfcost.spec.schema import json_schema


def write(name: str, text: str) -> None:
    Path(name).write_text(dedent(text), encoding="utf-8")


class TestReader:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("4", 4), ("-4", -4), ("+4", 4), ("010", 10),
            ("1e-5", 1e-5), ("1.0e-5", 1e-5), ("1E3", 1000.0), (".5", 0.5), ("4.", 4.0), ("37e3", 37000.0),
            ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
            # what YAML 1.1 would have made something else of
            ("no", "no"), ("on", "on"), ("y", "y"), ("12:30", "12:30"), ("2020-01-01", "2020-01-01"),
            ("0x1F", "0x1F"), (".inf", ".inf"), (".nan", ".nan"), ("=", "="),
            # text
            ("'4'", "4"), ('"true"', "true"), ("|\n  4\n", "4\n"), ("1e", "1e"), ("e5", "e5"), ("1-2", "1-2"),
            ("[1, no, {a: ~}]", [1, "no", {"a": None}]),
        ],
    )  # fmt: skip
    def test_scalars_of_yaml_1_2(self, text, value):
        got = read_value(text)
        assert got == value
        assert type(got) is type(value)

    def test_half_a_character_is_refused(self):
        with pytest.raises(SpecError, match="expected UTF-8 text"):
            read_value("\udcff")
        with pytest.raises((SpecError, UsageError), match="unknown key"):
            load("vit", ("a\udcff=1",))

    def test_keys_are_words_whatever_they_look_like(self):
        assert read("1: a\nno: b\n~: c\n", "x")[0] == {"1": "a", "no": "b", "~": "c"}

    def test_aliases_are_copies(self):
        data, _ = read("a: &a {b: [1]}\nc: *a\n", "x")
        data["a"]["b"].append(2)
        assert data["c"] == {"b": [1]}

    def test_a_byte_order_mark_and_line_ends_of_windows_are_no_part_of_keys_and_values(self, here):
        Path("x.yaml").write_bytes(b"\xef\xbb\xbfextends: vit\r\nname: mine\r\n")
        assert (load("x.yaml").spec.name, load("x.yaml").spec.stages) == ("mine", load("vit").spec.stages)

    def test_every_value_knows_its_line(self):
        _, source = read("a: 1\nb:\n  - c\n  - {d: 2,\n     e: 3}\n", "x.yaml")
        where = {(): 1, ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 1): 4, ("b", 1, "d"): 4, ("b", 1, "e"): 5}
        # what isn't there stands where the thing around it stands
        where |= {("b", 1, "f"): 4, ("b", 9, "f"): 2, ("z",): 1}
        assert {path: source.where(path) for path in where} == {path: f"x.yaml:{n}" for path, n in where.items()}
        assert Source("x.yaml").where(("a",)) == "x.yaml:1"

    @given(
        data=st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1), inner, max_size=4),
            max_leaves=15,
        )
    )
    @settings(deadline=None)
    def test_what_is_dumped_is_read(self, data):
        """Whatever a YAML writer writes of plain data is read as the same data (but for texts it leaves unquoted)."""
        text = yaml.safe_dump({"data": data}, default_style='"', allow_unicode=True)
        assume("!!" not in text)  # quoted numbers are written with a tag
        assert read(text, "x")[0] == {"data": data}


BASE = """\
    name: base
    paper: nobody 2020
    notes: a note
    input: {kind: image, size: 32, channels: 3}
    embed: [{kind: patch, size: 8}]
    stages:
      - {dim: 64, depth: 2, block: [{kind: full, heads: 4}, {kind: mlp}]}
    head: {kind: classifier, classes: 10}
    published: [{params: 3, source: here}]
"""


class TestExtends:
    def test_mappings_are_merged_and_lists_are_replaced(self, here):
        write("base.yaml", BASE)
        changes = "input: {size: 64}\nembed: [{kind: patch, size: 16}]\nhead: {kind: classifier, norm: none}\n"
        write("child.yaml", f"extends: ./base.yaml\n{changes}")
        spec, base = load("child.yaml").spec, load("base.yaml").spec
        assert (spec.input.size, spec.input.channels) == (64, 3)
        assert (spec.head.classes, spec.head.norm) == (10, "none")  # the same kind said again
        assert [msgspec.to_builtins(component) for component in spec.embed] != [
            msgspec.to_builtins(component) for component in base.embed
        ]
        assert (spec.name, spec.paper, spec.stages) == (base.name, base.paper, base.stages)

    def test_another_kind_replaces_the_mapping_whole(self, here):
        write("base.yaml", BASE)
        write(
            "child.yaml",
            """\
            extends: ./base.yaml
            input: {kind: tokens, vocabulary: 9}
            embed: [{kind: token}]
            head: {kind: language_model}
            """,
        )
        spec = load("child.yaml").spec
        assert msgspec.to_builtins(spec.input) == {"kind": "tokens", "vocabulary": 9, "length": 512, "positions": None}
        assert counted("child.yaml").total("macs") > 0

    def test_figures_and_notes_are_of_a_file_itself(self, here):
        write("base.yaml", BASE)
        write("child.yaml", "extends: ./base.yaml\nname: child\n")
        write("alias.yaml", "extends: ./base.yaml\n")
        child, alias, base = (load(name).spec for name in ("child.yaml", "alias.yaml", "base.yaml"))
        assert (child.published, child.notes) == ([], None)
        assert (alias.published, alias.notes) == (base.published, "a note")

    def test_a_chain_and_the_paths_in_it_are_relative_to_their_file(self, here):
        Path("sub").mkdir()
        write("base.yaml", BASE)
        write("sub/middle.yaml", "extends: ../base.yaml\nname: middle\ninput: {size: 64}\n")
        write("top.yaml", "extends: sub/middle.yaml\nname: top\nhead: {classes: 7}\n")
        spec = load("top.yaml").spec
        assert (spec.name, spec.input.size, spec.head.classes, spec.paper) == ("top", 64, 7, "nobody 2020")
        assert [one.shown for one in lineage("top.yaml")] == ["top.yaml", "sub/middle.yaml", "sub/../base.yaml"]

    def test_a_value_can_be_taken_away_by_null(self, here):
        write("base.yaml", BASE)
        write("child.yaml", "extends: ./base.yaml\npaper: null\nhead: null\n")
        assert load("child.yaml").spec.paper is None
        assert architecture_of("child.yaml").head is None


class TestLines:
    """A value's place is where it was written, whichever file that is; golden/refusals_specs.txt has them in errors."""

    def test_a_mapping_of_both_is_the_child_s_and_values_beside_it_the_parent_s(self, here):
        write("base.yaml", BASE)
        write("child.yaml", "extends: ./base.yaml\n\ninput: {size: 64, channels: 3}\n")
        source = load("child.yaml").source
        assert [source.where(path) for path in ((), ("input",), ("input", "kind"), ("head",))] == [
            "child.yaml:1", "child.yaml:3", "base.yaml:4", "base.yaml:8",
        ]  # fmt: skip

    def test_a_replaced_list_leaves_no_lines_behind(self, here):
        """What the parent alone had there is nowhere, and so is told by the line of the child's sub-layer."""
        block = "  embed: [{kind: token}]\n  stages: [{dim: 6, depth: 1, block: [{kind: mlp,\n  ratio: 4}]}]\n"
        write("base.yaml", "name: a\ninput: {kind: tokens, vocabulary: 9}\nencoder:\n" + block)
        write("child.yaml", "extends: ./base.yaml\nencoder:\n  stages: [{dim: 6, depth: 1, block: [{kind: mlp}]}]\n")
        source = load("child.yaml").source
        assert source.where(("encoder", "stages", 0, "block", 0, "ratio")) == "child.yaml:3"
        assert source.where(("encoder", "embed", 0)) == "base.yaml:4"


class TestSettings:
    def test_a_key_of_several_kinds_is_noted(self):
        # the patches of the embedding have a size too
        warnings = place(load("swin-t", ("**.size=14", "input.size=224")), Run()).warnings
        assert warnings == ("**.size=14 changes image (1×), patch (1×), window (8×)",)
        assert place(load("swin-t", ("stages.**.size=14",)), Run()).warnings == ()

    def test_values_are_yaml_and_a_last_word_may_be_new(self):
        spec = load("vit-s16", ("input.size=[224, 320]", "name='7'", "stages.0.block.1={kind: mlp, hidden: 5}")).spec
        assert (spec.input.sides, spec.name) == ((224, 320), "7")
        assert msgspec.to_builtins(spec.stages[0].block[1])["hidden"] == 5
        assert load("vit", ("stages.0.block.0.head_dim=8",)).spec.stages[0].block[0].head_dim == 8
        assert load("vit", ("residual.layer_scale=1e-5",)).spec.residual == Residual(layer_scale=1e-5)

    def test_later_settings_see_earlier_ones_and_touch_nothing_but_this_load(self):
        settings = ("embed=[{kind: patch, size: 7}]", "embed.0.size=14", "head.pool=mean")
        assert load("vit", settings).spec.embed[0].size == 14
        assert load("vit").spec.embed[0].size == 8

    def test_a_star_is_every_item_of_a_list(self):
        spec = load("swin-t", ("stages.*.pattern.*.0.size=12", "stages[*].pattern[1].0.shift=6")).spec
        windows = [block[0] for stage in spec.stages for block in stage.pattern]
        assert {(one.size, one.shift) for one in windows[::2]} == {(12, 0)}
        assert {(one.size, one.shift) for one in windows[1::2]} == {(12, 6)}
        assert spec.stages == load("swin-t-384").spec.stages

    def test_two_stars_are_any_way_down_to_where_the_rest_is_written(self):
        # in blocks and in groups of them; the convolution and the pool at the entry keep their sizes
        spec = load("sasa-50", ("**.spatial.size=3",)).spec
        assert [page.size for page in spec.embed] == [7, 3]
        for stage in spec.stages:
            first, group = stage.blocks
            assert (first[0].spatial.size, group.blocks[0][0].spatial.size) == (3, 3)
        spec = load("swin-t", ("**.heads=2",)).spec
        assert {block[0].heads for stage in spec.stages for block in stage.pattern} == {2}
        # the last word, too, has to be written: a stage has no `size`, and gets none
        assert load("sasa-50", ("stages.**.size=5",)).spec.stages == load("sasa-50", ("**.spatial.size=5",)).spec.stages

    @pytest.mark.parametrize("key", ["stages.each.depth", "stages[each].depth"])
    def test_each_is_every_item_with_a_value_of_its_own(self, key):
        assert [stage.depth for stage in load("swin-t", (f"{key}=[1, 2, 3, 4]",)).spec.stages] == [1, 2, 3, 4]

    def test_the_path_goes_on_after_each(self):
        settings = ("stages.each.**.heads=[1, 2, 4, 8]", "stages.2.pattern.each.0.shift=[5, 6]")
        stages = load("swin-t", settings).spec.stages
        assert [[block[0].heads for block in stage.pattern] for stage in stages] == [[1, 1], [2, 2], [4, 4], [8, 8]]
        assert [block[0].shift for block in stages[2].pattern] == [5, 6]

    def test_places_of_one_setting_share_nothing(self):
        spec = load("swin-t", ("stages.*.enter=[{kind: patch_merging}]", "stages.1.enter.0.norm=post")).spec
        assert [stage.enter[0].norm for stage in spec.stages] == ["pre", "post", "pre", "pre"]


class TestSet:
    """`set:` in a file: the same keys as after `--set`, over what the file extends."""

    def test_it_reaches_into_lists(self, here):
        write(
            "r.yaml",
            "extends: resnet-50\nname: mine\nset: {stages.1.blocks.1.repeat: 7, stages.2.blocks.1.repeat: 35}\n",
        )
        ours, theirs = load("r.yaml").spec, load("resnet-152").spec
        assert ours.stages == theirs.stages
        assert ours.published == []  # those are the parent's

    def test_it_comes_after_what_the_file_writes_and_before_those_that_extend_it(self, here):
        write("base.yaml", BASE + "    set: {stages.0.depth: 3, input.size: 64}\n")
        assert load("base.yaml").spec.stages[0].depth == 3
        write("child.yaml", "extends: ./base.yaml\ninput: {size: 96}\n")
        write("other.yaml", "extends: ./base.yaml\n")
        spec = load("child.yaml").spec
        assert (spec.stages[0].depth, spec.input.size, spec.set) == (3, 96, {})
        assert load("other.yaml").spec.input.size == 64
        assert load("child.yaml", ("input.size=128",)).spec.input.size == 128

    def test_a_value_that_a_parent_sets_keeps_its_line_in_the_parent(self, here):
        write("base.yaml", "extends: vit\nname: base\nset: {stages.0.depth: 2}\n")
        write("x.yaml", "extends: ./base.yaml\n\n\nname: x\n")
        assert load("x.yaml", ("**.heads=4",)).source.where(("stages", 0, "depth")) == "base.yaml:3"

    def test_one_that_grows_without_end_is_refused(self, here):
        letters = "abcdefghijklmnopqrst"
        doubling = "".join(f'  "**.{one}": [{{{two}: 1}}, {{{two}: 1}}]\n' for one, two in pairwise(letters))
        write("x.yaml", f"extends: vit\nnotes: {{a: 1}}\nset:\n{doubling}")
        with pytest.raises(SpecError, match=r"x.yaml:\d+ set.\*\*.\w: more than 20,000 values; write a smaller spec"):
            load("x.yaml")
        deepening = f"{{a: {'[' * 50}{{b: 1}}{']' * 50}}}"
        write(
            "x.yaml",
            f'extends: vit\nnotes: {deepening}\nset: {{"**.b": {"[" * 50 + "{c: 1}" + "]" * 50}, "**.c": 1}}\n',
        )
        with pytest.raises(SpecError, match=r"set.\*\*.c: nested deeper than 60 levels"):
            load("x.yaml")


def scheduled(blocks: str, dim: int = 8) -> tuple[list[str], tuple[int, ...], list[int]]:
    """The labels of a stage's blocks as written, which of them runs when, and how often each stands."""
    settings = (
        f"stages=[{{dim: {dim}, {blocks}}}]",
        "embed=[{kind: token}, {kind: position, form: sinusoidal}]",
        "head=",
    )
    stage = architecture_of("gpt2", *settings, tokens=(4,)).streams[0].stages[0]
    return [block.label for block in stage.blocks], tuple(stage.order), [block.times for block in stage.blocks]


class TestSchedule:
    FULL, MLP = "[{kind: full, heads: 2, causal: false}]", "[{kind: mlp}]"

    def test_a_block_and_a_pattern_are_repeated_and_cut(self):
        both = f"pattern: [{self.FULL}, {self.MLP}]"
        assert scheduled(f"depth: 3, block: {self.MLP}") == (["no mixer"], (0, 0, 0), [3])
        assert scheduled(f"depth: 5, {both}") == (["Self-attention", "no mixer"], (0, 1, 0, 1, 0), [3, 2])
        assert scheduled(f"depth: 1, {both}") == (["Self-attention"], (0,), [1])

    def test_groups_in_groups(self):
        inner = f"{{repeat: 2, blocks: [{self.FULL}]}}"
        blocks = f"blocks: [{self.MLP}, {{repeat: 3, blocks: [{inner}, {self.MLP}]}}, {self.FULL}]"
        labels, order, times = scheduled(blocks)
        assert labels == ["no mixer #1", "Self-attention #1", "no mixer #2", "Self-attention #2"]
        assert order == (0, 1, 1, 2, 1, 1, 2, 1, 1, 2, 3)
        assert times == [1, 6, 3, 1]

    def test_a_group_stands_once_where_it_does_not_say(self):
        assert scheduled(f"blocks: [{{blocks: [{self.MLP}]}}]")[2] == [1]

    @given(
        tree=st.recursive(
            st.just("block"),
            lambda inner: st.tuples(st.integers(1, 3), st.lists(inner, min_size=1, max_size=3)),
            max_leaves=6,
        )
    )
    @settings(deadline=None, max_examples=60)
    def test_any_nesting_unrolls_as_written(self, tree):
        """Against a plain recursive unrolling, and with times that add up to the order's length."""
        numbers = iter(range(1000))

        def written(node):
            if node == "block":
                number = next(numbers)
                return f"[{{kind: mlp, hidden: {number + 1}}}]", [number]
            repeat, inner = node
            parts = [written(part) for part in inner]
            return f"{{repeat: {repeat}, blocks: [{', '.join(text for text, _ in parts)}]}}", [
                number for _ in range(repeat) for _, run in parts for number in run
            ]

        text, expected = written(tree)
        _, order, times = scheduled(f"blocks: [{text}]")
        assert list(order) == expected
        assert times == [expected.count(number) for number in range(len(times))]


class TestGrammar:
    # one of a family; `show` reads the text of every preset back

    def test_the_json_schema_knows_every_kind(self):
        schema = json.loads(stdout_of("schema"))
        assert schema == json.loads(json.dumps(json_schema()))
        assert schema["$schema"].startswith("https://json-schema.org/")
        assert schema["title"] == "xfcost spec"
        text = str(schema)
        for component in (one for kinds in (MECHANISMS, EMBEDS, ENTERS, HEADS, SUBLAYERS) for one in kinds.values()):
            assert f"'{tag_of(component)}'" in text


class TestGrids:
    def test_text(self):
        assert Grid((28, 28), 1).shape_text() == "784 (28×28) + 1"
        assert Grid((1024,)).shape_text() == "1,024"
        assert (Grid((28, 28), 1).tokens, Grid((28, 28), 1).total) == (784, 785)

    @given(tokens=st.integers(1, 5000))
    def test_near_square_is_the_best_there_is(self, tokens):
        """Against every divisor: the widest short side, if it is within 2:1."""
        short = max(side for side in range(1, isqrt(tokens) + 1) if tokens % side == 0)
        best = (short, tokens // short)
        assert near_square(tokens) == (best if best[1] <= WIDEST_ASPECT * best[0] else None)

    @given(tokens=st.integers(1, 3000) | st.integers(1, MOST_TOKENS))
    @settings(deadline=None, max_examples=60)
    def test_an_impossible_number_has_its_true_neighbours_named(self, tokens):
        if near_square(tokens):
            assert image_sides(tokens) == near_square(tokens)
            return
        with pytest.raises(UsageError) as caught:
            image_sides(tokens)
        below, above = (
            next(other for other in range(tokens + step, tokens + step * 10_000, step) if near_square(other))
            for step in (-1, 1)
        )
        named = " or ".join("{} ({}×{})".format(other, *near_square(other)) for other in (below, above))
        assert str(caught.value).endswith(f"the nearest that do: {named}")


class TestTokensAskedFor:
    def test_an_image_takes_the_grid_and_patches_of_it(self):
        architecture = architecture_of("vit", tokens=(63,))
        assert architecture.grid == Grid((7, 9), 1)
        assert architecture.streams[0].input.sides == (56, 72)

    def test_one_number_for_both_streams_or_two(self):
        one = architecture_of("transformer-base", tokens=(7,))
        two = architecture_of("transformer-base", tokens=(7, 5))
        assert [stream.input.length for stream in one.streams] == [7, 7]
        assert [stream.input.length for stream in two.streams] == [7, 5]
        scores = {row.path: row.attention_entries for row in count(two).rows if row.operation == "scores"}
        # 8 heads: the encoder 7², the decoder 5², across 5·7
        assert list(scores.values()) == [8 * 49, 8 * 25, 8 * 35]

    def test_without_extra_tokens_the_head_pools_the_mean(self):
        rows = counted("vit", extra_tokens=False).rows
        assert not any(row.operation == "prepend" for row in rows)
        assert next(row for row in rows if row.path == "head.pool").flops == 784 * 384
