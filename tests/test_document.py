"""A document in every format, nothing written twice; colours of figures that readers with deuteranopia tell apart."""

import math
from itertools import combinations

import pytest

from helpers import screen_of
from pages import linear
from xfcost.report.document import DataTable, Document, Gap, Items, TableColumn, TextLines, fitting, notes
from xfcost.report.style import FIGURE, SYSTEMS
from xfcost.views.plot import STYLES

COLUMNS = [TableColumn("name", fold=6), TableColumn("a", right=True, rank=1), TableColumn("bb", right=True, rank=0)]
COLUMNS += [TableColumn("", named="c")]
TABLE = DataTable(COLUMNS, [["first one", "1", "22", "x"], ["second", "10", "2", "*y"]])


def document(*parts, prose=False):
    return Document(parts=lambda: parts, records=lambda: [{"a": 1, "b": None}], json=lambda: "{}\n", prose=prose)


@pytest.mark.parametrize(("width", "shown"), [(20, [0, 1, 2, 3]), (15, [0, 1, 3]), (12, [0, 3]), (1, [0, 3])])
def test_the_lowest_ranks_are_left_out_first_and_those_without_never(width, shown):
    # 6, 2, 2 and 1 characters, two blanks between: 17, 13 without the third, 9 without both.
    assert fitting(COLUMNS, [6, 2, 2, 1], width) == shown


@pytest.mark.parametrize("width", range(9, 60))
def test_a_table_is_no_wider_than_the_terminal_and_names_what_it_hides(width):
    lines = screen_of(document(TABLE), width)
    assert max(map(len, lines)) <= width
    told = " ".join(lines).partition("Columns left out to fit: ")[2].removesuffix(".").split(", ")
    assert sorted([*lines[0].split(), *filter(None, told)]) == ["a", "bb", "name"]


@pytest.mark.parametrize("width", range(14, 60))
def test_a_table_of_columns_that_must_be_there_is_divided_and_no_number_is_cut(width):
    columns = [TableColumn("name"), *(TableColumn(head, right=True) for head in ("one", "two", "three"))]
    numbers = [["1.50 GiB", "22.4 G", "7 B"], ["24 B", "0", "384 GiB"]]
    lines = screen_of(document(DataTable(columns, [["vit", *numbers[0]], ["swin", *numbers[1]]])), width)
    assert max(map(len, lines)) <= width
    assert all(cell in "\n".join(lines) for row in numbers for cell in row)
    # every part has the names: 4 + 8 + 6 + 7 characters and three gaps fit in 31
    assert sum(line.startswith("name") for line in lines) == sum(line.startswith("swin") for line in lines)
    assert (sum(line.startswith("vit") for line in lines) == 1) == (width >= 31)


def test_a_word_that_is_too_wide_is_broken_behind_a_hyphen():
    table = DataTable([TableColumn("name", fold=8), TableColumn("n", right=True)], [["axial-transformer x", "1"]])
    assert screen_of(document(table), 11) == ["name      n", "axial-    1", "transfor", "mer x"]


def test_a_table_that_does_not_fit_gives_way_to_its_narrow_form():
    wide = TABLE._replace(narrow=[TextLines(["narrow"])])
    assert screen_of(document(wide), 21) == screen_of(document(TABLE), 21)
    assert screen_of(document(wide), 19) == ["narrow"]


def test_lines_stay_together_in_markdown_and_are_comments_in_latex():
    text = document(TextLines(["   b   c: d", "after:  e"], head="A", strong=True), Gap(), TABLE)
    assert text.text("markdown").splitlines()[:4] == [
        "**A, b, c: d**  ", "after: e", "", "| name      | a   | bb   | c   |",
    ]  # fmt: skip
    assert text.text("latex").splitlines()[:3] == ["% A, b, c: d", "% after: e", ""]
    assert text.text("table").splitlines()[:3] == ["A   b   c: d", "after:  e", ""]
    assert document(TextLines(["a,  b   c"])).text("markdown") == "a, b, c\n"  # no comma is doubled


def test_lines_of_prose_are_paragraphs_and_sentences_end():
    text = document(TextLines(["a", "* b."], ended=True), Items([("n", "why")]), prose=True)
    assert text.text("markdown") == "a.\n\n\\* b.\n\n- **n:** why\n"
    assert text.text("latex") == "a.\n\n* b.\n\nn: why\n"
    assert text.text("table") == "a\n* b.\nn: why\n"


def test_notes_beyond_a_few_are_counted_on_a_terminal_and_all_in_papers():
    text = document(*notes(["1", "2", "3"], verbose=False))
    assert text.text("table") == "note: 1\nnote: 2\n1 more note: --verbose\n"
    assert text.text("markdown") == "note: 1  \nnote: 2  \nnote: 3\n"
    assert document(*notes(["1", "2", "3"], verbose=True)).text("table") == "note: 1\nnote: 2\nnote: 3\n"


def test_programs_get_the_records():
    assert document(TABLE).text("csv") == "a,b\n1,\n"
    assert document(TABLE).text("json") == "{}\n"


# Deuteranopia, severity 1, over linear RGB (Machado, Oliveira and Fernandes 2009, table 1).
DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881))
# Linear sRGB to XYZ under D65 (IEC 61966-2-1), and its white.
XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE = (0.9505, 1.0, 1.089)


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def lab(rgb):
    def f(t):
        return t ** (1 / 3) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29

    x, y, z = (f(part / white) for part, white in zip(times(XYZ, rgb), WHITE, strict=True))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(colour):
    """As a reader with deuteranopia sees it, in CIELAB."""
    return lab([min(max(part, 0.0), 1.0) for part in times(DEUTERANOPIA, linear(colour))])


def difference(one, other):
    """ΔE of CIE76 under deuteranopia."""
    return math.dist(seen(one), seen(other))


def test_the_measure_knows_red_from_blue_and_confuses_red_with_green():
    assert lab(linear("#ffffff")) == pytest.approx((100, 0, 0), abs=0.05)
    assert math.dist(lab(linear("#a52a2a")), lab(linear("#556b2f"))) > 40
    assert difference("#a52a2a", "#556b2f") < 20 < difference("#a52a2a", "#0000ff")


@pytest.mark.parametrize(("one", "other"), [*combinations(SYSTEMS, 2), *combinations(FIGURE.values(), 2)])
def test_colours_of_systems_and_of_mixing_kinds_are_apart(one, other):
    assert difference(one, other) >= 20


@pytest.mark.parametrize("kind", ["per-token", "local", "global"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_system_has_the_colour_of_a_mixing_kind(system, kind):
    assert difference(system, FIGURE[kind]) >= 12
    assert math.dist(lab(linear(system)), lab(linear(FIGURE[kind]))) >= 35


def test_every_colour_has_its_own_line_style():
    assert len(set(STYLES)) == len(STYLES) == len(SYSTEMS)
