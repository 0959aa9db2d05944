"""Colours of figures are apart for readers with deuteranopia, and never alone."""

import math
from itertools import combinations, pairwise

import pytest

from pages import linear
from xfcost.report.plot import STYLES
from xfcost.report.style import FIGURE, SYSTEMS

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


@pytest.mark.parametrize(("one", "other"), [*pairwise((*SYSTEMS, SYSTEMS[0])), *combinations(SYSTEMS, 2)])
def test_colours_of_systems_are_apart(one, other):
    assert difference(one, other) >= 20


@pytest.mark.parametrize(("one", "other"), [*combinations(FIGURE.values(), 2)])
def test_colours_of_mixing_kinds_are_apart(one, other):
    assert difference(one, other) >= 20


def test_every_colour_has_its_own_line_style():
    assert len(set(STYLES)) == len(STYLES) == len(SYSTEMS)
