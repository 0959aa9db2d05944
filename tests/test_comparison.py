"""What a comparison says: growth, scores, and where costs cross."""

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import xfcost
from helpers import stdout_of
from specs import architecture_of
from strategies import as_yaml, stack
from xfcost.comparing.crossovers import QUICK, THOROUGH, SearchLine, SearchPoints, search, token_crossovers
from xfcost.comparing.sweep import PossibleSizes, SizedSystem
from xfcost.counting.forward import count
from xfcost.counting.system import CURVES
from xfcost.ledger.errors import UsageError
from xfcost.spec.run import Run

# Growth, crossovers and score counts of a comparison, on systems whose answer is known ────────────────────────────────


def test_growth_of_two_streams_scales_each_by_its_own_length():
    # Source 25 and target 400 both double: mixing costs are products of two lengths, so the exponent is 2 exactly.
    comparison = xfcost.compare("transformer-base", "transformer-big", N="25,400")
    for growth in comparison.growth.values():
        assert growth["factor"] == 2
        assert growth["mixing_macs"] == pytest.approx(2)
        assert 1 < growth["macs"] < 2


def test_growth_is_that_without_padding_and_names_its_range():
    # windows of 7 fill 56×56 and 112×112 tokens in all stages, and not 32×32
    comparison = xfcost.compare("vit", "swin", N=1024)
    growth = comparison.growth["Swin-T"]
    assert (growth["N"], growth["factor"], growth["padded"]) == (3136, 4, False)
    assert growth["macs"] == pytest.approx(1.0, abs=0.01)


def test_growth_looks_back_where_positions_end():
    # GPT-2 has 1024 positions: the exponent is that between 512 and 1024.
    comparison = xfcost.compare("gpt2", "gpt2-medium")
    assert comparison.growth["GPT-2 (124M)"]["factor"] == 0.5
    assert comparison.growth["GPT-2 (124M)"]["mixing_macs"] == pytest.approx(2)


def test_growth_is_unknown_where_nothing_else_fits():
    # 1023 positions taken up by 1023 tokens: twice as many don't fit, and 1023 is odd.
    settings = ["embed.1.length=1023", "input.length=1023"]
    growth = xfcost.compare("gpt2", "gpt2", settings=settings).growth["GPT-2 (124M)"]
    assert set(growth.values()) == {None}


# Crossovers: where a quadratic solved by hand has them, at points that were counted, and nothing said of others ───────


def text(name, *block, positions=None):
    """A spec of one block of width 6 over token numbers."""
    tables = [{"kind": "position", "length": positions}] if positions else []
    return as_yaml(stack(*block, dim=6, length=64, vocabulary=10, name=name, embed=[{"kind": "token"}, *tables]))


def pair(tmp_path, hidden, positions=None):
    """Two layers of attention beside one MLP.

    Attention takes N·(4·6² + 2·N·6) MACs, the MLP N·2·6·hidden: equal where 2·(144 + 12·N) = 12·hidden, at
    N = (hidden - 24) / 2.
    """
    full = {"kind": "full", "heads": 2}
    (tmp_path / "quadratic.yaml").write_text(text("Quadratic", full, full, positions=positions))
    (tmp_path / "linear.yaml").write_text(text("Linear", {"kind": "mlp", "hidden": hidden}))
    return xfcost.compare(tmp_path / "quadratic.yaml", tmp_path / "linear.yaml")


def of_macs(comparison):
    keys = ("last_below", "N", "cheaper_below", "cheaper_above")
    return [tuple(one[key] for key in keys) for one in comparison.crossovers if one["quantity"] == "macs"]


def test_texts_cross_at_any_n_and_not_on_squares(tmp_path):
    # (1797 - 24) / 2 = 886.5, between the squares 841 and 900
    comparison = pair(tmp_path, 1797)
    assert of_macs(comparison) == [(886, 887, "Quadratic", "Linear")]
    (searched,) = comparison.searches
    assert (searched.kind, searched.first, searched.last, searched.grain) == ("lengths", 1, 2**20, 1)
    assert searched.every == 128


def test_at_equal_costs_neither_costs_less(tmp_path):
    # (1796 - 24) / 2 = 886: as much for both there
    comparison = pair(tmp_path, 1796)
    assert of_macs(comparison) == [(885, 887, "Quadratic", "Linear")]
    # (1048 - 24) / 2 = 512, which is one of the points that are looked at first
    assert of_macs(pair(tmp_path, 1048)) == [(511, 513, "Quadratic", "Linear")]


def test_the_range_ends_where_positions_do(tmp_path):
    comparison = pair(tmp_path, 1797, positions=1000)
    (searched,) = comparison.searches
    assert (searched.first, searched.last) == (1, 1000)
    assert of_macs(comparison) == [(886, 887, "Quadratic", "Linear")]
    # One position too few for the crossover
    comparison = pair(tmp_path, 1797, positions=886)
    assert comparison.searches[0].last == 886
    assert of_macs(comparison) == []


def test_a_text_in_chunks_is_looked_at_in_chunks():
    # Its decoder has 1,024 positions, of which N is one number for both streams.
    comparison = xfcost.compare("led-base-16384", "transformer-base")
    assert comparison.searches[0].last == 1024


def test_what_was_looked_at_is_in_the_data():
    told = json.loads(xfcost.compare("vit-s16", "swin-t").to_json())["crossovers_searched"]
    assert told["N"] == [1, 2**20]
    (pair_,) = told["pairs"]
    assert (pair_["systems"], pair_["kind"], pair_["every"]) == (["ViT-S/16", "Swin-T"], "grids", 64**2)
    (size,) = told["sizes"]
    # Patches of 16 and of 4: images in steps of 16, every one up to 64·16 pixels
    assert (size["kind"], size["grain"], size["first"], size["every"], size["last"]) == ("sizes", 16, 16, 1024, 2048)


def test_a_text_beside_an_image_is_looked_at_on_grids():
    (searched,) = xfcost.compare("vit", "gpt2", N=784).searches
    # 1,024 positions are 32×32
    assert (searched.kind, searched.first, searched.last) == ("grids", 1, 1024)


# ── the search by itself ─────────────────────────────────────────────────────────────────────────────────────────────

EVERY = SearchPoints(16, 4096, 2**0.25)
LINE = SearchLine("lengths", PossibleSizes(), EVERY)
SYSTEMS = ("first", "second")


@given(st.integers(1, 4096), st.integers(1, 50))
def test_a_crossing_of_two_lines_is_found_to_the_point(at, grain):
    # x against the constant at - 1/2, on multiples of a grain
    def costs(which, point):
        if point % grain:
            return None
        return {"cost": 2 * point if which == 0 else 2 * at - 1}

    searched = search(costs, LINE, SYSTEMS)
    points = [point for point in range(1, 4097) if point % grain == 0]
    usable = [point for point in EVERY.numbers() if point % grain == 0]
    if searched is None:
        assert not usable
        return
    below = [point for point in points if point < at]
    above = [point for point in points if point >= at]
    inside = searched.first < at <= searched.last
    found = [("cost", below[-1], above[0], "first", "second")] if inside else []
    keys = ("quantity", "last_below", "N", "cheaper_below", "cheaper_above")
    assert [tuple(one[key] for key in keys) for one in searched.crossovers()] == found


@given(st.integers(1, 300), st.integers(0, 4000))
def test_the_ends_are_the_least_and_the_largest_that_fit(first, more):
    last = min(first + more, 4096)
    searched = search(lambda which, point: {"cost": which} if first <= point <= last else None, LINE, SYSTEMS)
    if searched is not None:
        assert list(searched.crossovers()) == []
        assert all(order.cheaper == "first" for order in searched.orders)
        assert (searched.first, searched.last) == (first, last)
    else:
        assert not any(first <= point <= last for point in EVERY.numbers())


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=200))
def test_every_order_is_that_of_its_points(signs):
    points = SearchPoints(8, len(signs), 2**0.25, blocks=(32, 64, 128))
    line = SearchLine("lengths", PossibleSizes(), points)
    searched = search(lambda which, point: {"cost": which * signs[point - 1]}, line, SYSTEMS)
    orders = searched.orders
    # The second costs more by the sign: where it is 1 the first costs less, where it is -1 the second.
    sign = {"first": 1, "second": -1, None: 0}
    for order in orders:
        assert signs[order.first - 1] == signs[order.last - 1] == sign[order.cheaper]
        assert order.first <= order.last
        if order.last <= searched.every:
            assert set(signs[order.first - 1 : order.last]) == {sign[order.cheaper]}
            assert order.points == order.last - order.first + 1
        else:
            assert order.first > searched.every
    for before, after in pairwise(orders):
        assert before.cheaper != after.cheaper or before.last == searched.every
        # A change beyond the range of which every point was counted is narrowed down to two neighbours, or seen on
        # the way of another: either way nothing between the two was counted.
        assert before.last < after.first
    assert sum(order.points for order in orders) >= len(points.numbers())
    told = [order for order in orders if order.cheaper is not None]
    assert [(one["last_below"], one["N"]) for one in searched.crossovers()] == [
        (before.last, after.first) for before, after in pairwise(told) if before.cheaper != after.cheaper
    ]


class Text:
    """A system of texts with given costs."""

    has_tokens, has_images = True, False

    def __init__(self, cost: Callable[[int], int]) -> None:
        self.cost = cost

    def axes(self, _run: Run) -> int:
        return 1

    def time_steps(self) -> int:
        return 1

    def input_key(self, run: Run) -> object:
        return run.tokens

    def prepare(self, _runs: object) -> None: ...

    def costs(self, run: Run) -> tuple[int, dict[str, int]]:
        (n,) = run.tokens or (0,)
        return n, {"macs": self.cost(n)}


def crossed(costs, density):
    """The crossovers of two texts with these costs, of 960 tokens."""
    systems = [SizedSystem(Text(cost), Run()) for cost in costs]
    ledgers = [SimpleNamespace(metadata=SimpleNamespace(grid_tokens=960))] * 2
    return token_crossovers(SYSTEMS, systems, ledgers, density)


def test_beside_whole_blocks_every_change_of_order_is_found():
    """Whole blocks of 64 tokens cost more than N + 60 at the first three tokens of each, and as much at the fourth."""
    texts = (lambda n: 64 * -(-n // 64), lambda n: n + 60)
    thorough, quick = (crossed(texts, density) for density in (THOROUGH, QUICK))
    changes = [5, *(block + after for block in range(64, 1024, 64) for after in (1, 5))]
    assert [one["N"] for one in thorough.crossovers if one["N"] < 1024] == changes
    # of a quick search eight points, 2⁴ to 2¹⁹ and the last one
    assert [one.points for one in quick.searches] == [8 + 16 + 1]


@pytest.mark.parametrize(("chunks", "grain"), [((4, 6), 12), ((1, 5), 5), ((10, 4), 20)])
def test_texts_of_two_chunks_cross_where_both_can_be(chunks, grain):
    """N·N against 1,000·N: they cross at the first N of whole chunks of both above 1,000."""

    def costs(chunk, cost):
        def of(n):
            if n % chunk:
                raise UsageError(f"{n} tokens are no whole chunks")
            return cost(n)

        return of

    found = crossed((costs(chunks[0], lambda n: n * n), costs(chunks[1], lambda n: 1_000 * n)), THOROUGH)
    assert [one.grain for one in found.searches] == [grain]
    first = next(n for n in range(1_001, 2_000) if n % chunks[0] == n % chunks[1] == 0)
    assert [one["N"] for one in found.crossovers] == [first]


def test_images_of_two_patches_are_compared_where_both_divide_them():
    # patches of 16 and of 14
    searched = json.loads(xfcost.compare("vit-b16", "vit-b14").to_json())["crossovers_searched"]
    assert [one["grain"] for one in searched["sizes"]] == [112]


# The orders of a comparison, held against the count: at every N of a range that was counted whole, and at its ends ────


TEXTS = [
    ("common-full", "common-reformer"),
    ("common-full", "common-longformer"),
    ("common-full", "common-nystrom"),
    ("common-full", "common-bigbird"),
    ("common-full", "common-sliding"),
]
# Windows of 7×7 are padded, so that the order changes again and again: at 56×56 it is not what it is around.
NEIGHBOURS = str(Path(__file__).with_name("golden") / "files" / "neighbours.yaml")
IMAGES = [
    ("resnet-50", "swin-t", "convnext-t"),
    ("swin-t", "swinv2-t-w8-256"),
    (NEIGHBOURS, "swin-t"),
    (NEIGHBOURS, "mobilevit-s"),
]


@cache
def costs(preset, n):
    try:
        ledger = count(architecture_of(preset, tokens=(n,)), orders=False)
    except xfcost.XfcostError:
        return None
    return {name: curve(ledger) for name, curve in CURVES.items()}


@pytest.mark.parametrize("systems", [*TEXTS, *IMAGES], ids=lambda systems: "-".join(Path(one).stem for one in systems))
def test_orders_are_true_of_every_n_that_they_hold_and_leave_none_out(systems):
    comparison = xfcost.compare(*systems, N=None if systems in IMAGES else 4096)
    presets = dict(zip(comparison.names, systems, strict=True))
    for searched in comparison.searches:
        held = {}
        for order in searched.orders:
            for n in {*range(order.first, min(order.last, searched.every) + 1), order.first, order.last}:
                if systems in IMAGES and round(n**0.5) ** 2 != n:
                    continue
                first, second = (costs(presets[name], n) for name in searched.systems)
                if first is None or second is None:
                    continue
                one, other = first[order.quantity], second[order.quantity]
                assert order.cheaper == (None if one == other else searched.systems[one > other]), (order, n)
                held.setdefault(order.quantity, set()).add(n)
        every = {
            n
            for n in range(1, searched.every + 1)
            if (systems not in IMAGES or round(n**0.5) ** 2 == n)
            and all(costs(presets[x], n) for x in searched.systems)
        }
        assert every
        assert all(every <= several for several in held.values())


@pytest.mark.parametrize(
    ("given", "key"), [("params", "params"), ("flops", "flops"), ("attention-memory", "attention_bytes")]
)
def test_systems_stand_in_the_order_of_a_quantity(given, key):
    specs = ("vit-s8", "swin-t", "resnet-50")
    found = xfcost.compare(*specs, sort=given)
    own = {one.metadata.name: one for one in (xfcost.analyze(spec, trace=False) for spec in specs)}
    values = [
        own[name].attention_memory()["all_layers"] if key == "attention_bytes" else own[name].total(key)
        for name in found.names
    ]
    assert values == sorted(values)
    assert [ledger.metadata.name for ledger in found.ledgers] == list(found.names)
    assert found.names != tuple(own)
    rows = json.loads(stdout_of("compare", *specs, "--sort", given, "--format", "json"))["systems"]
    assert [row["name"] for row in rows] == list(found.names)
    assert set(found.ratios[found.names[0]].values()) <= {1.0, None}  # those of the first in that order


@pytest.mark.parametrize(("given", "named"), [("memory", "attention_bytes, attention_peak_bytes"), ("cache", "params")])
def test_a_quantity_that_no_system_has_is_refused_with_those_that_they_have(given, named):
    with pytest.raises(UsageError, match=f"--sort {given}: expected one of .*{named}"):
        xfcost.compare("vit-s8", "swin-t", sort=given)
