"""The contract that every page which mixes tokens keeps, on awkward grids: eight points, over the written list."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sympy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from strategies import (
    DIM,
    EXAMPLES,
    GROWTH,
    MEMORY,
    PAGES,
    SIDES,
    SPEC_DIM,
    Case,
    as_yaml,
    cases,
    grids_for,
    place_for,
    spec_of,
)
from xfcost.counted import count
from xfcost.errors import PageError, SpecError
from xfcost.grid import Grid
from xfcost.layers import SUBLAYERS
from xfcost.layers.mlp import Mlp
from xfcost.layers.residual import wrapped
from xfcost.ledger import Facts, Ledger, Operation, join
from xfcost.live.build import TWINS, SubLayerModel, build
from xfcost.live.probe import kind_of, probe
from xfcost.live.trace import traced_rows
from xfcost.mechanisms import MECHANISMS, Cross, Full, Window
from xfcost.mechanisms.base import Mixer, Place, Residual, SubLayer, tag_of
from xfcost.mechanisms.orders import ORDERS
from xfcost.spec.architecture import Part, Run, place
from xfcost.spec.load import load

PAGES_SMALL = [page for mechanism in MECHANISMS for page in EXAMPLES.get(mechanism, ())]
every_case = pytest.mark.parametrize("case", list(cases()), ids=str)
every_eager_case = pytest.mark.parametrize("case", list(cases(fused=(False,))), ids=str)
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=tag_of)
every_example = pytest.mark.parametrize("page", PAGES_SMALL, ids=str)
in_one_folder = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@every_mechanism
def test_every_mechanism_is_tried(mechanism: type[Mixer]) -> None:
    for table in (EXAMPLES, GROWTH, PAGES, REFERENCES, TWINS):
        assert mechanism in table, f"{mechanism.__name__} has no entry"


def make(case: Case, device: str = "cpu") -> nn.Module:
    """The twin at its place, in float64."""
    torch.manual_seed(0)
    with torch.device(device):
        return TWINS[type(case.page)](case.page, case.place).double().eval()


def example(place: Place, batch: int, device: str = "cpu") -> tuple[Tensor, ...]:
    """x, and the memory where there is one."""
    noise = torch.Generator().manual_seed(1)
    shapes = [(batch, place.grid.total, place.dim)]
    if place.memory:
        shapes.append((batch, place.memory.total, place.memory_dim))
    return tuple(torch.randn(shape, generator=noise, dtype=torch.float64).to(device) for shape in shapes)


def total(rows: Iterator[Operation], quantity: str = "macs") -> int:
    return sum(getattr(row, quantity) for row in rows)


# 1 ── YAML → model → YAML ────────────────────────────────────────────────────────────────────────────────────────────


@every_mechanism
@given(data=st.data())
@in_one_folder
def test_yaml_to_model_to_yaml_is_the_identity(mechanism: type[Mixer], data: st.DataObject, tmp_path: Path) -> None:
    page = data.draw(PAGES[mechanism])
    file = tmp_path / "one.yaml"
    file.write_text(as_yaml(spec_of(page)), encoding="utf-8")
    first = load(str(file)).spec
    stages = (first.decoder.stages if first.decoder else first.stages) or []
    assert stages[0].block == [page]
    written = as_yaml(msgspec.to_builtins(first))
    file.write_text(written, encoding="utf-8")
    assert load(str(file)).spec == first
    assert as_yaml(msgspec.to_builtins(load(str(file)).spec)) == written


def bad_fields(mechanism: type[Mixer]) -> Iterator[tuple[str, Any]]:
    """(field, value) that no page takes, by the type of each field."""
    yield "kind", "no such kind"
    yield "no_such_key", 1
    for field in msgspec.structs.fields(mechanism):
        if field.name == "residual":
            continue
        info = msgspec.inspect.type_info(field.type)
        kinds = {type(one) for one in getattr(info, "types", (info,))}
        yield field.name, [1]
        if msgspec.inspect.IntType in kinds:
            yield from ((field.name, value) for value in (-1, 1.5, "x", "3", 2**40, True))
        if msgspec.inspect.BoolType in kinds or msgspec.inspect.LiteralType in kinds:
            yield from ((field.name, value) for value in (7, "x", "true"))


BAD = [(mechanism, *bad) for mechanism in MECHANISMS for bad in bad_fields(mechanism)]


@pytest.mark.parametrize(("mechanism", "field", "value"), BAD, ids=str)
def test_a_bad_key_or_value_is_refused_with_its_line(
    mechanism: type[Mixer], field: str, value: Any, tmp_path: Path
) -> None:
    data = spec_of(EXAMPLES[mechanism][0])
    stages = (data.get("decoder") or data)["stages"]
    stages[0]["block"][0][field] = value
    text = as_yaml(data)
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    # The key stands alone on its line; a page's own keys are the last of their name in the file.
    line = max(number for number, words in enumerate(text.splitlines(), 1) if re.match(rf"\s*(- )*{field}:", words))
    with pytest.raises(SpecError) as refused:
        load(str(file))
    assert str(refused.value).startswith(f"{file}:{line} "), (str(refused.value), line, text)
    assert field in str(refused.value)


@every_mechanism
def test_heads_that_do_not_divide_the_width_are_refused_with_their_line(mechanism: type[Mixer], tmp_path: Path) -> None:
    data = spec_of(EXAMPLES[mechanism][0])
    (data.get("decoder") or data)["stages"][0]["block"][0]["heads"] = 5
    file = tmp_path / "bad.yaml"
    file.write_text(as_yaml(data), encoding="utf-8")
    with pytest.raises(SpecError, match=r"bad\.yaml:\d+ .*heads: 5 does not divide the width 12; it could be 1, 2, 3"):
        place(load(str(file)), Run())


# 2 ── pairs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_eager_case
def test_pairs_in_closed_form_are_those_that_reads_lists(case: Case) -> None:
    grid, memory = case.place.grid, case.place.memory
    listed = [case.page.reads(grid, token, memory) for token in range(grid.total)]
    readable = (memory or grid).total
    assert all(len(set(tokens)) == len(tokens) and set(tokens) <= set(range(readable)) for tokens in listed)
    assert sum(map(len, listed)) == case.page.pairs(grid, memory)


@every_mechanism
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_pairs_in_closed_form_on_any_grid(mechanism: type[Mixer], data: st.DataObject) -> None:
    page, grid = data.draw(PAGES[mechanism]), Grid(data.draw(SIDES))
    listed = [page.reads(grid, token, MEMORY) for token in range(min(grid.total, 200))]
    if grid.total <= 200:
        assert sum(map(len, listed)) == page.pairs(grid, MEMORY)
    (row,) = [row for row in page.operations(place_for(page, grid)) if row.path == "scores"]
    assert row.pairs == page.pairs(grid, MEMORY)
    assert row.pairs <= row.attention_entries // page.heads


def test_pairs_of_a_shifted_window_by_hand() -> None:
    # A row of 6 tokens, windows of 3 shifted by 2: runs of 2, 3 and 1 tokens, 4 + 9 + 1 = 14 pairs.
    page, row = Window(heads=1, size=3, shift=2), Grid((6,))
    assert [list(page.reads(row, token)) for token in range(6)] == [[0, 1]] * 2 + [[2, 3, 4]] * 3 + [[5]]
    assert page.pairs(row) == 14
    # On 6×6 a window is a product of two runs: 14² pairs.
    assert page.pairs(Grid((6, 6))) == 196


# 3, 4 ── parameters and MACs, row by row ─────────────────────────────────────────────────────────────────────────────


class Holder(nn.Module):
    """A module with a name to be found by."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.it = part

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.it(*inputs)


class OneStage(Holder):
    """A stage without a memory."""

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.it(x_BND, None)


def joined(page: SubLayer, place: Place, batch: int, residual: Residual | str) -> Ledger:
    """Closed form and trace of `page` inside its residual, row by row."""
    rows = [
        msgspec.structs.replace(row, path=f"it.{row.path}", macs=row.macs * batch, flops=row.flops * batch)
        for row in wrapped(page, residual, place)
    ]
    counted = Ledger(facts=Facts(name="one", tokens="", grid_tokens=place.grid.tokens), rows=tuple(rows))
    with torch.device("meta"):
        model = Holder(SubLayerModel(Part("it", page, place, residual), {})).requires_grad_(requires_grad=False)
    inputs = tuple(tensor.float() for tensor in example(place, batch, "meta"))
    return join(counted, *traced_rows(model, inputs, {"it": "it"}))


@every_case
def test_params_of_every_row_are_those_of_its_leaf(case: Case) -> None:
    leaves = {
        name.rpartition(".")[2]: sum(parameter.numel() for parameter in leaf.parameters())
        for name, leaf in make(case, "meta").named_modules()
        if next(leaf.children(), None) is None
    }
    rows = {row.path: row.params for row in case.page.operations(case.place)}
    assert rows == leaves


@every_case
def test_macs_and_flops_of_every_row_are_the_trace_s(case: Case) -> None:
    for batch, residual in ((1, "none"), (2, Residual(place="post"))):
        ledger = joined(case.page, case.place, batch, residual)
        assert ledger.agreement is not None
        assert ledger.agreement.exact, (ledger.agreement.differences, ledger.agreement.uncounted)
    assert ledger.total("traced_macs") == 2 * total(case.page.operations(case.place)) > 0


@every_case
def test_macs_are_half_of_what_torch_s_own_counter_says(case: Case) -> None:
    module, inputs = make(case, "meta"), example(case.place, 2, "meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs)
    assert counter.get_total_flops() == 2 * 2 * total(case.page.operations(case.place)) > 0


SYMBOLIC: tuple[SubLayer, ...] = (
    Full(heads=2),
    Full(heads=3, causal=True),
    Full(heads=1, head_dim=5),
    Cross(heads=2),
    Cross(heads=2, head_dim=4),
    Mlp(),
)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("page", SYMBOLIC, ids=str)
def test_the_closed_form_in_n_is_torch_s(page: SubLayer, *, fused: bool) -> None:
    # FlopCounterMode over symbolic shapes gives a polynomial: 4·N²·d + 8·N·d² for full attention.
    n, m = sympy.symbols("n m", integer=True, positive=True)
    place = place_for(page, Grid((11,)), fused=fused)
    letters = {"grid": Grid((n,))} | ({"memory": Grid((m,))} if place.memory else {})
    ours = total(page.operations(msgspec.structs.replace(place, **letters)))
    theirs = symbolic_flops(page, place, (n, m))
    assert theirs.free_symbols == ({n, m} if place.memory else {n})
    assert sympy.expand(theirs - 2 * ours) == 0
    if page == Full(heads=2):
        assert sympy.expand(theirs) == 4 * DIM * n**2 + 8 * DIM**2 * n


def symbolic_flops(page: SubLayer, place: Place, letters: tuple[sympy.Symbol, ...]) -> Any:
    """What torch's counter says of the twin where the number of tokens (and of the memory's) is a symbol."""
    with torch.device("meta"):
        module = TWINS[type(page)](page, place)
    context = StatelessSymbolicContext([DimDynamic.STATIC, DimDynamic.DYNAMIC, DimDynamic.STATIC])
    tensors = [tensor.float() for tensor in example(place, 1, "meta")]
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
        inputs = [mode.from_tensor(tensor, symbolic_context=context) for tensor in tensors]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(*inputs)
    names = {tensor.shape[1].node.expr: letter for tensor, letter in zip(inputs, letters, strict=False)}
    return sympy.sympify(counter.get_total_flops().node.expr).subs(names)


# 5 ── what is really read ────────────────────────────────────────────────────────────────────────────────────────────


@every_case
def test_the_probed_pattern_is_reads(case: Case) -> None:
    grid, memory = case.place.grid, case.place.memory
    seen = probe(make(case), example(case.place, 1), which=1 if memory else 0)
    assert seen.reads == tuple(frozenset(case.page.reads(grid, token, memory)) for token in range(grid.total))


@pytest.mark.parametrize("fused", [False, True])
@every_example
def test_the_probed_kind_is_the_declared_kind(page: Mixer, *, fused: bool) -> None:
    small, large = (place_for(page, grid, fused=fused) for grid in GROWTH[type(page)](page))
    if large.memory:  # what is read is the memory: let that grow
        large = msgspec.structs.replace(large, memory=Grid((2 * MEMORY.total,)))
    probes = [
        probe(make(Case(page, place)), example(place, 1), which=1 if place.memory else 0) for place in (small, large)
    ]
    declared = {row.mixing for row in page.operations(large)} - {"per-token"}
    assert declared == {kind_of(*probes)}


@every_example
def test_two_blocks_read_what_is_read_by_what_they_read(page: Mixer, tmp_path: Path) -> None:
    if isinstance(page, Cross) or SPEC_DIM % page.heads:
        return
    file = tmp_path / "two.yaml"
    file.write_text(as_yaml(spec_of(page)), encoding="utf-8")
    architecture = place(load(str(file)), Run())
    grid = architecture.grid
    stage = OneStage(build(architecture, "cpu").model.get_submodule("streams.0.stages.0"))
    seen = probe(stage, (torch.zeros(1, grid.total, SPEC_DIM),))
    once = [frozenset(page.reads(grid, token)) for token in range(grid.total)]
    assert seen.reads == tuple(frozenset().union(*(once[other] for other in tokens)) for tokens in once)


@every_example
def test_cross_attention_reads_no_neighbour(page: Mixer) -> None:
    if not isinstance(page, Cross):
        return
    place = place_for(page, Grid((5,)))
    assert probe(make(Case(page, place)), example(place, 1)).reads == tuple(frozenset({n}) for n in range(5))


@pytest.mark.parametrize("fused", [False, True])
@every_example
def test_rows_that_are_called_per_token_mix_none(page: Mixer, *, fused: bool) -> None:
    grid = GROWTH[type(page)](page)[0]
    case = Case(page, place_for(page, grid, fused=fused))
    module, calls = make(case), {}
    for name, leaf in module.named_modules():
        leaf.register_forward_hook(lambda _, inputs, output, name=name: calls.update({name: (inputs, output)}))
    with torch.no_grad():
        module(*example(case.place, 1))
    named = {name.rpartition(".")[2]: name for name, leaf in module.named_modules() if not list(leaf.children())}
    tried = 0
    for row in page.operations(case.place):
        if row.mixing != "per-token":
            continue
        name = named[row.path]
        inputs, output = calls[name]
        for which, tensor in enumerate(inputs):
            seen = probe(
                module.get_submodule(name),
                inputs,
                which=which,
                tokens=tuple(range(1, tensor.ndim - 1)),  # all axes but batch and width number tokens
                out_tokens=tuple(range(1, output.ndim - 1)),
            )
            assert seen.disjoint, row.path
            assert seen.most == 1, row.path
        tried += 1
    assert tried >= 2  # at least what goes in and what comes out is projected


@pytest.mark.parametrize("fused", [False, True])
@every_example
def test_scores_softmax_and_weighted_sum_are_the_mixing_and_hold_no_parameters(page: Mixer, *, fused: bool) -> None:
    rows = list(page.operations(place_for(page, GROWTH[type(page)](page)[0], fused=fused)))
    core = [row for row in rows if row.path in ("scores", "softmax", "weighted_sum", "attention")]
    assert len(core) in (0, 1 if fused else 3)
    assert all(row.mixing != "per-token" and row.content_dependent and row.params == 0 for row in core)
    assert {row.reads_tokens for row in core} <= {max(row.reads_tokens or 0 for row in rows)}


@pytest.mark.parametrize("layer", SUBLAYERS, ids=tag_of)
def test_sub_layers_that_are_no_mixers_mix_none(layer: type[SubLayer]) -> None:
    page = layer()
    for grid in (Grid((1,)), Grid((7,)), Grid((3, 4), 1)):
        place = place_for(page, grid)
        for residual in ("none", Residual(), Residual(place="post"), Residual(place="res_post")):
            model = SubLayerModel(Part("it", page, place, residual), {})
            seen = probe(model, example(place, 1))
            assert seen.reads == tuple(frozenset({token}) for token in range(grid.total))
    assert {row.mixing for row in page.operations(place)} == {"per-token"}


# 6 ── the same numbers as plain full attention under a mask ──────────────────────────────────────────────────────────


def masked_attention(
    q_BND: Tensor, k_BMD: Tensor, v_BMD: Tensor, heads: int, may_read_NM: Tensor, bias_HNM: Tensor | None = None
) -> Tensor:
    """softmax(QKᵀ/√K + bias)V, with -∞ where nothing may be read, one head after the other."""
    answers = []
    parts = zip(*(part_BXD.chunk(heads, dim=-1) for part_BXD in (q_BND, k_BMD, v_BMD)), strict=True)
    for head, (q_BNK, k_BMK, v_BMK) in enumerate(parts):
        scores_BNM = torch.einsum("bnk,bmk->bnm", q_BNK, k_BMK) / q_BNK.shape[-1] ** 0.5
        if bias_HNM is not None:
            scores_BNM = scores_BNM + bias_HNM[head]
        answers.append(scores_BNM.masked_fill(~may_read_NM, -torch.inf).softmax(-1) @ v_BMK)
    return torch.cat(answers, dim=-1)


def readable(page: Mixer, grid: Grid, memory: Grid | None = None) -> Tensor:
    """(N, M): may token n read token m? Out of `reads` alone."""
    table = torch.zeros(grid.total, (memory or grid).total, dtype=torch.bool)
    for token in range(grid.total):
        table[token, list(page.reads(grid, token, memory))] = True
    return table


def full_reference(page: Full, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    q, k, v = F.linear(x_BND, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    attended = masked_attention(q, k, v, page.heads, readable(page, place.grid))
    return F.linear(attended, twin.out.weight, twin.out.bias)


def cross_reference(page: Cross, place: Place, twin: nn.Module, x_BND: Tensor, memory_BMD: Tensor) -> Tensor:
    q = F.linear(x_BND, twin.q.weight, twin.q.bias)
    k, v = F.linear(memory_BMD, twin.kv.weight, twin.kv.bias).chunk(2, dim=-1)
    attended = masked_attention(q, k, v, page.heads, readable(page, place.grid, place.memory))
    return F.linear(attended, twin.out.weight, twin.out.bias)


def window_reference(page: Window, place: Place, twin: nn.Module, x_BND: Tensor) -> Tensor:
    """On the padded grid, as the public implementations run it: zeros are attended over like tokens, then cropped."""
    grid, padded = place.grid, page.padded(place.grid)
    stands = torch.tensor(kept(grid, padded))
    x_BPD = x_BND.new_zeros(x_BND.shape[0], padded.total, place.dim).index_copy(1, stands, x_BND)
    q, k, v = F.linear(x_BPD, twin.qkv.weight, twin.qkv.bias).chunk(3, dim=-1)
    bias = None if page.bias == "none" else window_bias(page, grid, padded, twin.relative_bias.weight)
    attended = masked_attention(q, k, v, page.heads, readable(page, padded), bias)
    return F.linear(attended, twin.out.weight, twin.out.bias)[:, stands]


def kept(grid: Grid, padded: Grid) -> list[int]:
    """Where the tokens of `grid` stand on `padded`."""
    places = itertools.product(*(range(side) for side in padded.sides))
    return [number for number, place in enumerate(places) if all(a < b for a, b in zip(place, grid.sides, strict=True))]


def window_bias(page: Window, grid: Grid, padded: Grid, table_RH: Tensor) -> Tensor:
    """(H, P, P): the table's row for how far two tokens of a window stand apart (Liu et al. 2021, equation 4)."""
    places = list(itertools.product(*(range(side) for side in padded.sides)))
    window = page.window(grid)
    index = torch.zeros(len(places), len(places), dtype=torch.long)
    for a, query in enumerate(places):
        for b in page.reads(padded, a):
            row = 0
            for here, there, side in zip(query, places[b], window, strict=True):
                row = row * (2 * side - 1) + here - there + side - 1
            index[a, b] = row
    return table_RH[index].permute(2, 0, 1)


REFERENCES: dict[type[Mixer], Callable[..., Tensor]] = {
    Full: full_reference,
    Cross: cross_reference,
    Window: window_reference,
}


@every_case
def test_outputs_and_gradients_are_those_of_full_attention_under_the_mask_of_reads(case: Case) -> None:
    twin, inputs = make(case), example(case.place, 2)
    for tensor in inputs:
        tensor.requires_grad_()
    ours = twin(*inputs)
    plain = REFERENCES[type(case.page)](case.page, case.place, twin, *inputs)
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-12)
    leaves = [*inputs, *twin.parameters()]
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    gradients = [torch.autograd.grad((answer * weights).sum(), leaves) for answer in (ours, plain)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert all(gradient.abs().max() > 0 for gradient in gradients[0][: len(inputs)]) or case.place.grid.total == 1


@every_eager_case
def test_eager_and_fused_give_the_same_numbers_and_cost(case: Case) -> None:
    fused = Case(case.page, msgspec.structs.replace(case.place, fused=True))
    inputs, twins = example(case.place, 2), (make(case), make(fused))
    names = [[name.replace("core.", "") for name, _ in twin.named_parameters()] for twin in twins]
    assert names[0] == names[1]
    with torch.no_grad():
        torch.testing.assert_close(twins[0](*inputs), twins[1](*inputs), rtol=1e-11, atol=1e-12)
    for quantity in ("macs", "params", "flops"):
        eager, other = (total(one.page.operations(one.place), quantity) for one in (case, fused))
        assert eager == other, quantity


@pytest.mark.parametrize("page", EXAMPLES[Window], ids=str)
def test_the_windows_of_a_padded_grid_are_those_of_the_grid_cropped(page: Window) -> None:
    for grid in grids_for(page):
        padded = page.padded(grid)
        stands = kept(grid, padded)
        number = {there: token for token, there in enumerate(stands)}
        for token, there in enumerate(stands):
            cropped = [number[other] for other in page.reads(padded, there) if other in number]
            assert sorted(page.reads(grid, token)) == cropped


# 7 ── twice as many tokens ───────────────────────────────────────────────────────────────────────────────────────────


def exponent(order: str) -> float:
    """How often N stands in an order: `O(h·N²)` -> 2, `O(N√N·d)` -> 1.5, `O(M·d²)` -> 0."""
    (powers,) = re.findall(r"N([²³]?)(√N)?", order) or [("", "") if "N" in order else ("0", "")]
    return {"": 1, "²": 2, "³": 3, "0": 0}[powers[0]] + (0.5 if powers[1] else 0)


def test_exponents_are_read_from_orders() -> None:
    found = [exponent(text) for text in ("O(h·N²)", "O(N·W²·d)", "O(N√N·d)", "O(M·d²)", "O(V·d) parameters")]
    assert found == [2, 1, 1.5, 0, 0]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("page", [*PAGES_SMALL, Mlp()], ids=str)
def test_twice_the_tokens_cost_what_the_order_says(page: SubLayer, *, fused: bool) -> None:
    grids = GROWTH.get(type(page), lambda _: (Grid((6,)), Grid((12,))))(page)
    small, large = (list(page.operations(place_for(page, grid, fused=fused))) for grid in grids)
    orders = 0
    for before, after in zip(small, large, strict=True):
        order = ORDERS.get((tag_of(type(page)), before.path))
        costs = [row.macs or row.flops or row.params for row in (before, after)]
        assert (order is not None) == (costs[0] > 0), before.path
        if order is None:
            continue
        if before.macs or before.flops:
            assert costs[1] == costs[0] * 2 ** exponent(order), (before.path, order)
        else:
            assert order.endswith("parameters")
        orders += 1
    assert orders >= 3


@functools.cache
def derivation() -> Any:
    file = Path(__file__).parents[1] / "tools" / "derive_orders.py"
    spec = importlib.util.spec_from_file_location("derive_orders", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_orders_are_what_the_formulas_give() -> None:
    module = derivation()
    assert module.orders() == ORDERS
    assert module.FILE.read_text(encoding="utf-8") == module.text(), f"stale: run `{module.COMMAND}`"


@every_mechanism
def test_a_mechanism_without_an_example_stops_the_derivation(
    mechanism: type[Mixer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(derivation().EXAMPLES, mechanism)
    with pytest.raises(LookupError, match=mechanism.__name__):
        derivation().orders()


def test_orders_by_hand() -> None:
    # Full attention: N·d·3d, N²·d (twice), h·N² softmax elements. Windows: ⌈√N/W⌉²·W²·W²·d = N·W²·d.
    scores, softmax = ORDERS["full", "scores"], ORDERS["full", "softmax"]
    assert (ORDERS["full", "qkv"], scores, softmax) == ("O(N·d²)", "O(N²·d)", "O(h·N²)")
    assert (ORDERS["window", "scores"], ORDERS["window", "softmax"]) == ("O(N·W²·d)", "O(h·N·W²)")
    assert (ORDERS["cross", "scores"], ORDERS["cross", "kv"]) == ("O(N·M·d)", "O(M·d²)")
    assert (ORDERS["mlp", "fc1"], ORDERS["residual", "residual_norm"]) == ("O(N·d²)", "O(N·d)")
    assert ORDERS["window", "relative_bias"] == "O(h·W²) parameters"
    assert ("window", "partition") not in ORDERS


def test_rows_that_only_move_data_have_no_order() -> None:
    orders = {row.path: row.order for row in count(place(load("vit-b16"), Run())).rows}
    assert orders["head.pool"] is None
    assert orders["stages.0.block.0.scores"] == "O(N²·d)"
    assert orders["stages.0.block.0.residual_norm"] == "O(N·d)"


# Places where a page refuses to stand ────────────────────────────────────────────────────────────────────────────────


def test_pages_refuse_places_that_can_not_be() -> None:
    with pytest.raises(PageError, match="reads an encoder's output"):
        Cross(heads=1).check(Place(grid=Grid((3,)), dim=DIM, out_dim=DIM))
    with pytest.raises(PageError, match="1 extra token"):
        Window(heads=1).check(Place(grid=Grid((3, 3), 1), dim=DIM, out_dim=DIM))
    with pytest.raises(PageError, match="7 is not below the window's size 7"):
        Window(heads=1, size=7, shift=7).check(Place(grid=Grid((9, 9)), dim=DIM, out_dim=DIM))
