"""Convolutions and pools of stems: what they read; norms, scales of residuals, sub-layers that widen."""

import msgspec
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cases.base import Case
from cases.layers import CONVS, NORMS, POOLS, stands
from compared import options_of
from contract import example, joined, make
from places import on, rows_of
from references.layers import windows
from strategies import both_accounts, counted_spec, exact, loaded, placed, stack
from whole_probe import kind_of, probe
from xfcost.formulas.component import Residual
from xfcost.formulas.conv_kernel import ConvKernel, kernel_of
from xfcost.layers.feed_forward import Mlp, Norm, NormSubLayer
from xfcost.layers.stems import ConvEmbed
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import ModuleMaker, SubLayerModel, build

# Per element, and learned vectors: as docs/how-it-counts.md prints them.
NORM_COSTS = {"layer_norm": (5, 2), "rms_norm": (4, 1), "batch_norm": (2, 2), "group_norm": (5, 2), "affine": (2, 2)}
# One token, one row and column, grids as small as a kernel, odd ones under a stride, oblong ones, a volume.
GRIDS = tuple(Grid(sides) for sides in [(3,), (8,), (3, 3), (1, 5), (7, 9), (6, 4), (13, 13), (3, 5, 4)])
DIM = 6


CASES = [(component, grid) for component in (*CONVS, *POOLS) for grid in GRIDS if stands(component, grid)]
every_case = pytest.mark.parametrize(("component", "grid"), CASES, ids=str)


def stirred(module):
    """Running statistics and scales that are no ones and zeros."""
    noise = torch.Generator().manual_seed(5)
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point() and tensor.ndim == 1 and not tensor.is_meta:
            tensor.data.copy_(torch.rand(tensor.shape, generator=noise, dtype=tensor.dtype) + 0.5)
    return module


@every_case
def test_the_probed_pattern_is_the_kernel_s(component, grid):
    # without rectifiers, which hide what they cut off, and with many channels, of which some has each token's maximum
    component = msgspec.structs.replace(component, act="none") if isinstance(component, ConvEmbed) else component
    where = on(grid, 96)
    seen = probe(stirred(make(Case(component, where))), example(where, 1))
    listed = tuple(
        frozenset(token for _, token in window if token is not None)
        for window in windows(options_of(component), grid.sides)
    )
    if isinstance(component, ConvEmbed) and component.norm == "group_norm":
        read = frozenset().union(*listed)
        assert seen.reads == (read,) * len(listed)
        return
    assert seen.reads == listed
    kernel = component.kernel(where)
    assert [frozenset(kernel.reads(grid.sides, output)) for output in range(len(listed))] == list(listed)
    assert kernel.pairs(grid.sides) == sum(map(len, listed))


@pytest.mark.parametrize("component", [*CONVS, *POOLS], ids=str)
def test_the_probed_kind_is_the_declared_one(component):
    component = msgspec.structs.replace(component, act="none") if isinstance(component, ConvEmbed) else component
    small, large = (on(Grid((side, 6)), 24) for side in (12, 24))
    probes = [probe(stirred(make(Case(component, where))), example(where, 2)) for where in (small, large)]
    declared = {row.mixing for row in component_rows(component, large)}
    widest = max(declared, key=("per-token", "local", "global").index)
    assert kind_of(*probes) == widest
    # a stride that is no less than the kernel makes disjoint groups, and those are new tokens
    assert isinstance(component.size, int)
    assert isinstance(component.stride, int)
    if widest != "global":
        assert (widest == "local") == (component.stride < component.size)


@st.composite
def kernels(draw):
    """A convolution, and the sides of a grid that it can stand on."""
    sides = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    each = st.lists(st.integers(1, 7), min_size=len(sides), max_size=len(sides))
    padding = st.lists(st.integers(0, 4), min_size=len(sides), max_size=len(sides))
    size, stride = draw(st.integers(1, 7) | each), draw(st.integers(1, 7) | each)
    component = ConvEmbed(size=size, stride=stride, padding=draw(st.none() | st.integers(0, 4) | padding))
    assume(stands(component, Grid(sides)))
    return component, sides


@given(case=kernels())
@settings(max_examples=200, deadline=None)
def test_what_no_input_gives_is_refused(case):
    """Either an input gives the grid, or the entry says that none does."""
    component, wanted = case
    least = component.out(on(Grid((1,) * len(wanted))))[0].sides
    if any(side < few for side, few in zip(wanted, least, strict=True)):
        with pytest.raises(ComponentError, match="no input gives a grid of") as refused:
            component.input_sides(wanted)
        assert refused.value.field == "padding"
    else:
        assert component.out(on(Grid(component.input_sides(wanted))))[0].sides == wanted


def stem(entry, **more):
    stage = {"dim": 6, "depth": 1, "block": [{"kind": "full", "heads": 2}], **more}
    return stack(input={"kind": "image", "size": 24}, embed=[entry], stages=[stage])


def test_n_goes_back_through_a_stem(tmp_path):
    pool = {"kind": "pool", "size": 3, "stride": 2}
    one = loaded(stem({"kind": "conv", "size": 7, "stride": 2}, enter=[pool]), tmp_path)
    for tokens, image in ((36, [24, 24]), (8, [8, 16]), (1, [4, 4])):
        architecture = place(one, Run(tokens=(tokens,)))
        assert architecture.grid.tokens == tokens
        assert list(architecture.streams[0].input.sides) == image


@given(case=kernels())
@settings(max_examples=200, deadline=None)
def test_a_note_stands_where_positions_go_into_no_output(case):
    component, sides = case
    kernel = kernel_of(Grid(sides), component.size, component.stride, component.padding)
    outputs = kernel.out(sides)
    for axis, side in enumerate(sides):
        alone = ConvKernel((kernel.sides[axis],), (kernel.stride[axis],), (kernel.padding[axis],))
        read = {token for output in range(outputs[axis]) for token in alone.reads((side,), output)}
        if len(read) < side:
            assert list(component.notes(on(Grid(sides))))
            return
    assert not list(component.notes(on(Grid(sides))))


@pytest.mark.parametrize("kind", NORMS)
def test_a_norm_costs_the_same_wherever_it_stands(kind):
    per_element, vectors = NORM_COSTS[kind]
    where = on(Grid((3, 5)))
    rows = {
        "entry": rows_of(Norm(norm=kind), where)["norm"],
        "sub-layer": rows_of(NormSubLayer(norm=kind), where)["norm"],
        "behind a convolution": rows_of(ConvEmbed(size=1, norm=kind), where)["norm"],
    }
    for at in ("pre", "post", "res_post"):
        ledger = joined(Mlp(), where, 1, Residual(norm=kind, place=at))
        exact(ledger)
        (rows[at],) = [row for row in ledger.rows if row.path == "it.residual_norm"]
    for at, row in rows.items():
        assert (row.flops, row.params) == (15 * DIM * per_element, DIM * vectors), at
        assert (row.mixing, row.reads_tokens) == (("global", 15) if kind == "group_norm" else ("per-token", None)), at


def sublayer(component, where, residual):
    torch.manual_seed(0)
    model = SubLayerModel(Part("it", component, where, residual), ModuleMaker({})).double().eval()
    return stirred(model).requires_grad_(requires_grad=False)


SCALES = [
    Residual(place=at, layer_scale=scale, factor=factor)
    for at in ("pre", "post", "res_post")
    for scale, factor in ((1e-5, None), (None, 0.5), (0.1, 2.0), (None, None))
]


@pytest.mark.parametrize("residual", SCALES, ids=str)
def test_scales_are_rows_that_cost_what_the_trace_says(residual):
    where = on(Grid((3, 5), 1))
    ledger = joined(Mlp(), where, 2, residual)
    exact(ledger)
    rows = {row.path.removeprefix("it.residual_"): row for row in ledger.rows}
    assert ("layer_scale" in rows, "factor" in rows) == (residual.layer_scale is not None, residual.factor is not None)
    # two samples of 16 tokens of 6
    if residual.layer_scale is not None:
        assert (rows["layer_scale"].flops, rows["layer_scale"].params) == (192, 6)
    if residual.factor is not None:
        assert (rows["factor"].flops, rows["factor"].params) == (192, 0)


@pytest.mark.parametrize("residual", SCALES, ids=str)
def test_scales_stand_where_the_formula_has_them(residual):
    where = on(Grid((3, 5)))
    model, x_BND = sublayer(Mlp(), where, residual), example(where, 2)[0]

    def scaled(y_BND):
        own = getattr(model, "residual_layer_scale", None)
        return (y_BND if own is None else y_BND * own.weight) * (residual.factor or 1)

    f, norm = model.inner, model.residual_norm
    expected = {
        "pre": lambda: x_BND + scaled(f(norm(x_BND))),
        "post": lambda: norm(x_BND + scaled(f(x_BND))),
        "res_post": lambda: x_BND + scaled(norm(f(x_BND))),
    }[residual.place]()
    torch.testing.assert_close(model(x_BND), expected, rtol=1e-12, atol=1e-12)


def test_the_nearest_residual_wins(tmp_path):
    mlp = {"kind": "mlp"}
    spec = stem({"kind": "patch", "size": 8}) | {
        "residual": {"layer_scale": 1e-5},
        "stages": [
            {"dim": 6, "depth": 1, "block": [mlp, mlp | {"residual": {"factor": 0.5}}, mlp | {"residual": "none"}]},
            {"dim": 6, "depth": 1, "block": [mlp], "residual": {"norm": "affine", "factor": 3}},
        ],
    }
    paths = [row.path.split(".residual_") for row in counted_spec(spec, tmp_path).rows if ".residual_" in row.path]
    told = {"stages.0.block.0": "layer_scale", "stages.0.block.1": "factor", "stages.1.block.0": "factor"}
    assert paths == [[where, name] for where, scale in told.items() for name in ("norm", scale, "add")]


WIDER = {"kind": "dense", "residual": "none"}


def test_a_sub_layer_that_widens_stands_for_a_entry(tmp_path):
    spec = stem({"kind": "patch", "size": 8}, blocks=[[WIDER], [{"kind": "mlp"}]])
    del spec["stages"][0]["block"], spec["stages"][0]["depth"]
    spec["stages"].append({"dim": 10, "blocks": [[WIDER, {"kind": "mlp"}], [WIDER, {"kind": "mlp"}]]})
    architecture = placed(spec, tmp_path, dtype="float64")
    ledger = exact(both_accounts(architecture))
    maps = [(row.path, row.params) for row in ledger.rows if row.operation == "linear"]
    # 6 to 6, then 6 to 10 and, in the second block, 10 to 10
    assert maps == [
        ("stages.0.blocks.0.0.linear", 42),
        ("stages.1.blocks.0.0.linear", 70),
        ("stages.1.blocks.1.0.linear", 110),
    ]
    assert build(architecture, "cpu").model(torch.randn(1, 3, 24, 24, dtype=torch.float64)).shape == (1, 9, 10)


def test_one_block_that_widens_is_two_where_it_is_repeated(tmp_path):
    """The first brings the width, the others find it: other rows, of the same component."""
    spec = stem({"kind": "patch", "size": 8})
    spec["stages"].append({"dim": 10, "depth": 3, "block": [WIDER]})
    rows = [row for row in counted_spec(spec, tmp_path).rows if row.path.startswith("stages.1") and row.params]
    found = [(row.path, row.params, row.times) for row in rows]
    assert found == [("stages.1.block.0.linear", 70, 1), ("stages.1.block@2.0.linear", 110, 2)]
