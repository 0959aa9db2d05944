"""Orders in letters: none is missing, and as many more tokens cost what the order says, row by row."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import partial

import pytest

import places
from cases import CASES
from cases.layers import POOLING_ATTENTION
from growth import exponent, orders_at
from specs import architecture_of
from strategies import place_for
from xfcost.counting.forward import count
from xfcost.formulas.component import Place, Residual, SubLayer
from xfcost.formulas.letters import LetteredInt, costs, lettered, order, orders
from xfcost.layers.feed_forward import Mlp, Swiglu
from xfcost.layers.moe import Moe
from xfcost.ledger.errors import ComponentError, SpecError, UsageError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation
from xfcost.mechanisms.blockwise import BlockSparse
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.low_rank import Nystrom
from xfcost.mechanisms.mamba import Mamba2
from xfcost.mechanisms.pooling import Pooling, WindowPooling
from xfcost.mechanisms.spatial_reduction import SpatialReduction
from xfcost.mechanisms.window import Axial, Window
from xfcost.program.residual import component_rows
from xfcost.report.style import letters_text
from xfcost.spec.load import preset_files, preset_names

ENLARGED = 2**30


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("mode", ["forward", "decode"])
def test_every_costly_row_of_every_preset_has_an_order(mode: str, attention: str) -> None:
    counted = 0
    for preset in preset_names():
        with contextlib.suppress(SpecError, UsageError):  # many have no step
            architecture = architecture_of(preset, mode=mode, attention=attention)  # type: ignore[arg-type]
            for row in count(architecture).rows:
                assert (row.order is not None) == costs(row), (preset, row.path)
            counted += 1
    assert counted > {"forward": 400, "decode": 120}[mode]


def rows_of(component: SubLayer, spot: Place, mode: str) -> Sequence[Operation]:
    """Its own rows and what joins the stream, of all tokens or of one more."""
    return component_rows(component, spot, Residual(norm="none"), decodes=mode == "decode")


def enlarged(component: SubLayer, grid: Grid, times: int) -> Grid:
    """`grid` with its sides so many times as long; a video keeps its frames, but for attention along its axes."""
    kept = 1 if len(grid.sides) > 2 and not isinstance(component, Axial) else 0
    return grid._replace(sides=(*grid.sides[:kept], *(side * times for side in grid.sides[kept:])))


EXAMPLES = [*(component for case in CASES.values() for component in case.examples), Mlp(), Swiglu(), Moe()]
EXAMPLES += POOLING_ATTENTION
LAYERS = [Grid(sides) for sides in ((6,), (2, 3), (2, 3, 4))]


def stands(component: SubLayer) -> Iterator[tuple[Grid, bool]]:
    """The grids of its case, where it grows evenly first; eager, and fused where that changes something."""
    case = CASES.get(type(component))  # type: ignore[call-overload]
    grids = dict.fromkeys((case.growth(component)[0], *case.grids)) if case else LAYERS
    for fused in (False, True) if not case or case.fused else (False,):
        yield from ((grid, fused) for grid in grids)


def several(component: SubLayer) -> Iterator[tuple[Grid, bool, str]]:
    """Those, of all tokens and of one more where there is a form of that."""
    for grid, fused in stands(component):
        yield grid, fused, "forward"
        with contextlib.suppress(ComponentError):
            list(component_rows(component, place_for(component, grid, fused=fused), decodes=True))
            yield grid, fused, "decode"


def ordered(row: Operation, text: str) -> int:
    """What of a row the order is the order of."""
    kept = {"parameters": row.params, "comparisons": row.comparisons}
    return kept.get(text.rpartition(" ")[2], row.macs or row.flops)


@pytest.mark.parametrize("component", EXAMPLES, ids=str)
def test_more_tokens_cost_what_the_order_says(component: SubLayer) -> None:
    # Closed forms take any N: where N is huge, what is not the leading term has vanished. √(4N) is as whole as √N.
    tried = 0
    for grid, fused, mode in several(component):
        places = [place_for(component, enlarged(component, grid, ENLARGED * more), fused=fused) for more in (1, 4)]
        small, large = ({row.path: row for row in rows_of(component, spot, mode) if costs(row)} for spot in places)
        known = orders(rows_of(*component.in_letters(places[0]), mode))
        more, tokens = places[1].grid.total / places[0].grid.total, [spot.grid.total for spot in places]
        assert known.keys() == small.keys() == large.keys()
        for path, text in known.items():
            before, after = small[path], large[path]
            logarithm = math.log(tokens[1], tokens[0]) if "log N" in text else 1
            spent = ordered(after, text) / ordered(before, text)
            grown = pytest.approx(more ** exponent(text) * logarithm, rel=1e-2 if logarithm > 1 else 1e-3)
            assert spent == grown, (grid, mode, path, text)
            assert text.endswith("parameters") == (not (before.macs or before.flops or before.comparisons))
            tried += 1
    assert tried > 1


@pytest.mark.parametrize("component", EXAMPLES, ids=str)
def test_rows_in_letters_are_the_rows(component: SubLayer) -> None:
    for grid, fused, mode in several(component):
        spot = place_for(component, grid, fused=fused)
        rows, in_letters = list(rows_of(component, spot, mode)), list(rows_of(*component.in_letters(spot), mode))
        assert in_letters == rows
        assert set(orders(in_letters)) == {row.path for row in rows if costs(row)}


at = partial(places.at, dim=96)


# What mixes in a preset by multiplying, as the papers' formulas have it (docs/vision.md). Of the survey's presets
# golden/survey.txt has it.
MIXING = {
    "swin-t": "O(N·W²·d)",
    "pvt-tiny": "O(N²·d), O(N²·d/R²), O(N·d²)",
    "pvt-v2-b2-li": "O(N·W²·C·d), O(N·W²·d), O(N·W²·d²), O(N·k·d)",
    "mvitv2-t": "O(N²·d), O(N²·d/l²), O(N·W²·C·d), O(N·W²·d), O(N·W²·d/l²), O(N√N·d), O(N√N·d/l)",
    "mvitv2-b-hwin": "O(N²·d), O(N²·d/l²), O(N·K²·C·d), O(N·K²·d), O(N·K²·d/l²), O(N·W²·d), O(N·W·d), O(N√N·d), "
    "O(N√N·d/l)",
    "twins-svt-s": "O(N²·d), O(N²·d/R²), O(N·K²·d), O(N·W²·d), O(N·d²)",
    "cvt-13": "O(N²·d/R²), O(N·W²·C·d), O(N·W²·d), O(N·W²·d/R²), O(N·W²·d²)",
    "convnext-t": "O(N·W²·d)",
    "mixer-b16": "O(N·k·d)",
    "gmlp-s": "O(N²·d)",
    "poolformer-s12": "O(N·W²·C·d), O(N·W²·d²)",
    "sagan": "O(N²·d/W²)",
    "non-local-res4": "O(N²·d)",
    "lr-net-26": "O(N·W²·d)",
    "mobilevit-s": "O(N²·d/P²), O(N·W²·C·d), O(N·W²·d), O(N·W²·d²)",
    "mamba-130m": "O(N·W·E·d), O(N·k·E·d)",
    "mamba2-130m": "O(N²·k·E·d/b²), O(N·W·k + N·W·E·d), O(N·b·E·d), O(N·k·E·d), O(h·N·b·k)",
    "retnet-1.3b-chunkwise": "O(N·b·d), O(N·d·dₖ)",
    "hyena-153m": "O(N·W·o·d)",
    "conformer-l": "O(N²·d), O(N·W²·C·d), O(N·W²·d²), O(N·W·d)",
    "regnety-4.0gf": "O(N·W²·C·d), O(N·d·dₖ)",
    "efficientnet-b0": "O(N·W²·C·d), O(N·W²·d)",
    "vgg-16": "O(N·d²)",
    "deepseek-v2": "O(N²·d)",
}


@pytest.mark.parametrize("preset", MIXING)
def test_what_mixes_has_the_letters_of_its_paper(preset: str) -> None:
    rows = count(architecture_of(preset)).rows
    assert ", ".join(sorted({str(row.order) for row in rows if row.mixes and row.macs})) == MIXING[preset]


def test_a_window_of_the_whole_grid_is_a_window_for_more_tokens() -> None:
    assert orders_at(Window(heads=6, size=7), at(4, 4))["scores"] == "O(N·W²·d)"


def test_a_formula_takes_the_branch_of_its_numbers() -> None:
    # BigBird runs full attention up to (5 + 2r)·b = 11·4 = 44 tokens, Nyströmformer up to as many as landmarks.
    sparse = BlockSparse(heads=6, block=4)
    assert orders_at(sparse, at(44))["scores"] == "O(N²·d)"
    assert orders_at(sparse, at(45))["scores"] == "O(N·b·r·d)"
    assert orders_at(Nystrom(heads=6, landmarks=64), at(64))["scores"] == "O(N²·d)"
    assert "O(N·k·d)" in orders_at(Nystrom(heads=6, landmarks=64), at(65)).values()


def test_one_step_and_one_token_keep_their_letters() -> None:
    # Of two tokens the second alone reads a state, and the sums of a chunk of one token have one number per head.
    assert orders_at(Kernel(heads=6, causal=True, form="recurrent"), at(2))["state"] == "O(N·d·dₖ)"
    assert orders_at(Mamba2(head_dim=24, chunk=1), at(4))["local_decays"] == "O(h·N·b)"


def test_options_are_in_the_order_as_they_are_given() -> None:
    # A stride of 1 is none; an adaptive pool of 7×7 leaves k = 49 keys.
    rows = (Pooling(heads=6, kv_stride=stride) for stride in (1, [1, 2], 4))
    assert [orders_at(component, at(28, 28))["scores"] for component in rows] == ["O(N²·d)", "O(N²·d/l)", "O(N²·d/l²)"]
    assert orders_at(SpatialReduction(heads=6, pooled=7), at(28, 28))["scores"] == "O(N·k·d)"
    assert orders_at(SpatialReduction(heads=6, reduction=4), at(28, 28))["scores"] == "O(N²·d/R²)"


def test_letters_may_be_bound_to_each_other() -> None:
    # A window of l·W tokens along each side has l²·W² queries and, keys being every l-th, W² keys: N·W²·d.
    component = WindowPooling(heads=6, window=14, kv_stride=2)
    assert orders_at(component, at(28, 28))["scores"] == "O(N·W²·d)"


def test_axes_of_a_video() -> None:
    assert orders_at(Axial(axis="depth", heads=6), at(4, 8, 8))["scores"] == "O(N∛N·d)"
    assert orders_at(Window(heads=6, size=7), at(8, 28, 28))["scores"] == "O(N·W³·d)"


def test_shared_tables_and_streams_that_do_not_run_have_orders() -> None:
    found = {row.path: row.order for row in count(architecture_of("t5-small", mode="decode")).rows}
    assert found["shared.embedding"] == "O(V·d) parameters"
    assert found["shared.decoder_bias"] == "O(h·k) parameters"
    # The encoder is idle: its parameters are there, and no work.
    assert found["encoder.stages.0.blocks.0.blocks.0.0.qkv"] == "O(d²) parameters"


def test_many_ledgers_are_counted_without_orders() -> None:
    architecture = architecture_of("vit-b16")
    with_orders, without = count(architecture), count(architecture, orders=False)
    assert all(row.order is None for row in without.rows)
    assert with_orders.total("macs") == without.total("macs")
    assert not any(
        isinstance(getattr(row, name), LetteredInt) for row in with_orders.rows for name in ("macs", "params")
    )


def test_a_cost_that_is_none_for_many_tokens_is_an_error() -> None:
    n = lettered(8, "N")
    with pytest.raises(ArithmeticError, match=r"lost: 8 is 0 in letters"):
        order(Operation(path="lost", title="Lost", macs=n - n + 0 * n + LetteredInt(8, lambda: (n - n).form)))
    with pytest.raises(ArithmeticError, match="no cost"):
        order(Operation(path="less", title="Less", flops=1000 - 3 * n))


def test_comparisons_stand_where_they_outgrow_the_rest() -> None:
    n, d = lettered(64, "N"), lettered(16, "d")
    row = Operation(path="row", title="Row", flops=n * d, comparisons=n)
    assert order(row) == "O(N·d)"
    assert order(Operation(path="row", title="Row", flops=n, comparisons=n * d)) == "O(N·d) comparisons"
    assert order(Operation(path="row", title="Row", comparisons=n)) == "O(N) comparisons"
    assert order(Operation(path="row", title="Row", macs=n, comparisons=n * d)) == "O(N)"


WINDOWED = {"Window", "LocalAttention", "LocalRelation", "LocalRelationEmbed", "WindowPooling", "Blockwise"}


@pytest.mark.parametrize("preset", preset_files())
def test_a_letter_of_a_table_means_one_thing_and_a_thing_has_one_letter(preset: str) -> None:
    """W, K and Y: sides of windows, sides of kernels, classes. Which a row has is told by its component and title."""
    architecture = architecture_of(preset)
    components = {part.path: part.component for part, *_ in architecture.parts()}
    found: dict[str, set[str]] = {}
    for row in count(architecture).rows:
        component = components.get(row.component)
        names = {type(component).__name__, type(getattr(component, "spatial", None)).__name__}
        thing = "window" if names & WINDOWED and not row.title.startswith("Pool ") else "kernel"
        thing = "classes" if names & {"Classifier", "FlattenClassifier"} else thing
        for letter in {"W", "K", "Y"} & set(f"{row.order} {row.reads}"):
            found.setdefault(letter, set()).add(thing)
    assert all(len(things) == 1 for things in found.values()), found
    assert len({min(things) for things in found.values()}) == len(found), found


def test_the_legend_names_what_a_letter_is_in_its_table() -> None:
    assert letters_text(["O(N·W²·d)"]) == "N tokens, W side of a window or of a kernel, d width"
    assert letters_text(["O(N·W²·d)", "K²"]) == "N tokens, W side of a window, K side of a kernel, d width"
