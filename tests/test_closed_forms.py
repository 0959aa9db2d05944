"""The closed forms of the reference files: read out of their prose or of closed-forms.csv, and worked out."""

import csv
import re
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest

import written
from specs import EXACT, counted
from xfcost.spec.load import preset_names

# Closed forms as papers print them (`12·(12·N·d² + 2N²d)`), worked out exactly ────────────────────────────────────────


class UnreadableError(ValueError):
    """No closed form: prose, or a letter that nobody declared."""


def value(formula, letters, known=None):
    """`formula` in numbers. `2Nd` is a product of declared letters; `[preset]` is what `known` says of it."""

    def product(found):
        return found[0] if found[0] in letters else "·".join(re.findall(r"[A-Za-z]'?", found[0]))

    plain = re.sub(r"(?<=\d),(?=\d{3})", "", formula.strip())
    plain = re.sub(r"\[([a-z0-9.-]+)\]", lambda preset: str(known(preset[1])), plain) if known else plain
    try:
        return written.value(re.sub(r"[A-Za-z]+'?", product, plain), letters)
    except (written.MalformedError, KeyError) as wrong:
        raise UnreadableError(f"no formula: {formula!r}") from wrong


# The closed forms of the reference files: read out of their prose or of closed-forms.csv, and worked out ──────────────

DATA = Path(__file__).with_name("data")
QUANTITIES = {"parameters": "params", "MACs": "macs", "entries": "attention_entries"}
# A product or a power: what makes a closed form of a sentence.
MARK = re.compile(r"[·²³]|\b[A-Z]\(")
BETWEEN = re.compile(r"; |: |, | and (?=\d)|(?<=MACs) and ")
NAMED = re.compile(
    r"(?:closed form )?(?:(?P<first>parameters|MACs|entries) (?P<after>.*)"
    r"|(?P<before>.*?) (?P<last>parameters|MACs|entries)\b(?: \(.*\)|[^·²³]*))"
)

# Sentences with formulas in them that give no number of the row by themselves. A row may not join them unread, and one
# that has come to be read must leave.
UNREAD = {
    "convs2s-en-de": "sums over layers in letters of their own; closed-forms.csv has them written out",
    "common-bigbird": "explains its own 622, which closed-forms.csv has in its place",
    "common-funnel": "letters that differ from layer to layer; closed-forms.csv has them written out",
    "bytenet-lm": "a function b(D) of its own; closed-forms.csv has it put in",
    "bytenet-translation": "a function b(D) of its own; closed-forms.csv has it put in",
    "deformable-detr-encoder": "the source of the counts says what they are: heads, tokens and points",
    "deformable-detr-encoder-single-scale": "the source of the counts says what they are: heads, tokens and points",
    "gated-deltanet-1.3b": "letters that widths of heads share: its docstring has each row's formula",
    "gpt3-175b-banded": "tells the keys per query too",
    "linear-transformer-mnist": "tells how many tokens the padding makes",
    "longformer-char-small": "sums over windows; closed-forms.csv has them written out",
    "lr-net-26": "letters that differ from stage to stage: worked out block by block in test_residual_networks.py",
    "mistral-7b-sliding": "tells the keys per query too",
    "sasa-26": "letters that differ from stage to stage: worked out block by block in test_residual_networks.py",
    **{
        f"sasa-50-k{size}": "per layer, beside sasa-50: worked out block by block in test_residual_networks.py"
        for size in (3, 5, 9, 11)
    },
    "switch-base-128-capacity": "tells the slots alone",
    "t5-v1.1-small": "beside a tied model that is no preset",
    "transformer-xl-enwik8": "beside what transformers' model costs, which is not printed",
    "transformer-xl-wt103": "beside what transformers' model costs, which is not printed",
}


class Form(NamedTuple):
    """A closed form of one quantity of a preset."""

    preset: str
    quantity: str
    formula: str
    letters: dict[str, int]

    def __str__(self) -> str:
        return f"{self.preset}-{self.quantity}"

    def value(self) -> Fraction:
        """Other presets' numbers are those of the same quantity."""
        return value(self.formula, self.letters, lambda preset: int(EXACT[preset][self.quantity]))


def by_hand():
    with (DATA / "closed-forms.csv").open(encoding="utf-8") as stream:
        return [
            Form(
                row["preset"],
                row["quantity"],
                row["formula"],
                {name: int(number) for name, number in (pair.split("=") for pair in row["letters"].split())},
            )
            for row in csv.DictReader(stream)
        ]


class Sentence(NamedTuple):
    """A part of a row's source that has a formula in it: of a quantity, where it names one."""

    preset: str
    quantity: str | None
    formula: str
    letters: dict[str, int]


def sentences(preset):
    source = EXACT[preset]["source"]
    letters = {name: int(number) for name, number in re.findall(r"\b([A-Za-z])\s?=\s?(\d+)\b", source)}
    found = []
    for part in filter(MARK.search, BETWEEN.split(source)):
        named = NAMED.fullmatch(part)
        formula = (named["after"] or named["before"]) if named else part
        found.append(Sentence(preset, QUANTITIES[named["first"] or named["last"]] if named else None, formula, letters))
    return found


def reads(sentence):
    """The sentence as a closed form, where it is no more than one."""
    if sentence.quantity is None:
        return None
    form = Form(sentence.preset, sentence.quantity, sentence.formula, sentence.letters)
    try:
        form.value()
    except UnreadableError:
        return None
    return form


BY_HAND = by_hand()
SENTENCES = [sentence for preset in EXACT for sentence in sentences(preset)]
COVERED = {(form.preset, form.quantity) for form in BY_HAND}
# A sentence may say a part of what closed-forms.csv says in full.
PRINTED = [
    form
    for form in map(reads, SENTENCES)
    if form and ((form.preset, form.quantity) not in COVERED or form.value() == int(EXACT[form.preset][form.quantity]))
]


def bare(text):
    return text.replace(" ", "")


def unread(sentence):
    """Is it neither a number of its row nor, letter by letter, part of a form that was written out by hand?"""
    if any((form.preset, form.formula) == (sentence.preset, sentence.formula) for form in PRINTED):
        return False
    # a word is what stands between formulas
    pieces = re.sub(r"(?<!\S)[A-Za-z][\w'.-]+(?!\S)", "|", sentence.formula).split("|")
    parts = [bare(piece).strip("+") for piece in pieces if MARK.search(piece)]
    mine = [bare(form.formula) for form in BY_HAND if form.preset == sentence.preset]
    return not parts or not all(any(part in formula for formula in mine) for part in parts)


@pytest.mark.parametrize("form", [*PRINTED, *BY_HAND], ids=str)
def test_a_closed_form_gives_the_reference_and_the_count(form):
    assert form.value() == int(EXACT[form.preset][form.quantity]) == counted(form.preset).total(form.quantity)


def test_every_sentence_with_a_formula_is_read_or_listed():
    assert sorted({sentence.preset for sentence in SENTENCES if unread(sentence)}) == sorted(UNREAD)


def test_layers_heads_queries_keys_are_multiplied():
    spoken = {preset for preset, row in EXACT.items() if "layers × heads × queries × keys" in row["source"]}
    assert len(spoken) >= 80
    assert {(preset, "attention_entries") for preset in spoken} <= COVERED


def test_enough_is_read():
    # So that a change of the prose's habits can not empty the test above.
    assert len(PRINTED) >= 150
    assert len(BY_HAND) >= 190
    assert {form.quantity for form in PRINTED} == set(QUANTITIES.values())
    assert {form.preset for form in [*PRINTED, *BY_HAND]} <= set(preset_names())


@pytest.mark.parametrize("formula", ["per layer 4·d", "3·", "2·x", "__import__('os')", "[none]", "2 3)", ""])
def test_what_is_no_formula_is_refused(formula):
    with pytest.raises(UnreadableError):
        value(formula, {"d": 3})
