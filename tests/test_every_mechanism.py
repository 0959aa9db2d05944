"""The contract that every component which mixes tokens keeps, on awkward grids: eight points, over the written list."""

import itertools
import math
import re
from pathlib import Path

import msgspec
import pytest
import sympy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils.flop_counter import FlopCounterMode

from cases import CASES
from cases.base import DIM, MEMORY, SPEC_DIM, Case
from cases.local import kept
from compared import answers_of, scattered
from contract import LargestTensor, OneStage, example, in_order, joined, make
from growth import exponent, orders_at
from modules import counted_by_torch
from strategies import answers, as_yaml, exact, examples, place_for, placed, same_rows, spec_of, stored
from tiers import covering_cases, distinct_examples, tiered_cases, tiered_examples
from whole_probe import kind_of, probe
from xfcost.counting.forward import batched
from xfcost.formulas.component import Mixer, Residual, tag_of
from xfcost.layers import SUBLAYERS
from xfcost.layers.feed_forward import Mlp, Swiglu
from xfcost.layers.moe import Moe
from xfcost.ledger.errors import SpecError
from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import MIXINGS
from xfcost.mechanisms import MECHANISMS
from xfcost.mechanisms.blockwise import Blockwise
from xfcost.mechanisms.full import Full
from xfcost.mechanisms.kernel import Kernel
from xfcost.mechanisms.mamba import Mamba2
from xfcost.mechanisms.pooling import Pooling
from xfcost.mechanisms.retention import Retention
from xfcost.mechanisms.window import Window
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.spec.load import load
from xfcost.torch_models.build import ModuleMaker, SubLayerModel, build
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.running.by_row import row_path

EXAMPLES = [component for component, _ in examples(fused=(False,))]
every_case = pytest.mark.parametrize("case", tiered_cases(), ids=str)
every_covering_case = pytest.mark.parametrize("case", covering_cases(), ids=str)
every_eager_case = pytest.mark.parametrize("case", tiered_cases(fused=(False,)), ids=str)
every_mechanism = pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
every_example = pytest.mark.parametrize("component", EXAMPLES, ids=str)
every_example_either_way = pytest.mark.parametrize(
    ("component", "fused"),
    tiered_examples(),
    ids=lambda value: str(value) if isinstance(value, Mixer) else f"fused={value}",
)
# torch 2.11 makes numbers of symbols where 2.13 keeps them.
OLD_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
in_one_folder = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@every_mechanism
def test_every_mechanism_is_tried(mechanism):
    case = CASES[mechanism]
    assert {type(component) for component in case.examples} == {mechanism}
    assert (case.frozen is not None) == mechanism.content_selects_tokens
    assert any(component.reads_memory for component in case.examples) == case.memory


def total(rows, quantity="macs"):
    return sum(getattr(row, quantity) for row in rows)


# 1 ── YAML → model → YAML ────────────────────────────────────────────────────────────────────────────────────────────


@every_mechanism
@given(data=st.data())
@in_one_folder
def test_yaml_to_model_to_yaml_is_the_identity(mechanism, data, tmp_path):
    component = data.draw(CASES[mechanism].components)
    file = Path(stored(spec_of(component), tmp_path))
    first = load(str(file)).spec
    stages = (first.decoder.stages if first.decoder else first.stages) or []
    assert stages[0].block == [component]
    written = as_yaml(msgspec.to_builtins(first))
    file.write_text(written, encoding="utf-8")
    assert load(str(file)).spec == first
    assert as_yaml(msgspec.to_builtins(load(str(file)).spec)) == written


def bad_fields(mechanism):
    """(field, values) that no component takes, by the type of each field."""
    yield "kind", ["no such kind"]
    yield "no_such_key", [1]
    for field in msgspec.structs.fields(mechanism):
        if field.name == "residual":
            continue
        info = msgspec.inspect.type_info(field.type)
        kinds = {type(one) for one in getattr(info, "types", (info,))}
        values = [[1]]
        if msgspec.inspect.IntType in kinds:
            values += [-1, 1.5, "x", "3", 2**40, True]
        if msgspec.inspect.BoolType in kinds or msgspec.inspect.LiteralType in kinds:
            values += [7, "x", "true"]
        yield field.name, values


BAD = [(mechanism, *bad) for mechanism in MECHANISMS.values() for bad in bad_fields(mechanism)]


def column(line, key):
    """Where `key` begins in a line of YAML, after list dashes."""
    found = re.match(rf"([\s-]*){key}:", line)
    return found and found.end(1)


@pytest.mark.parametrize(("mechanism", "field", "values"), BAD)
def test_a_bad_key_or_value_is_refused_with_its_line(mechanism, field, values, tmp_path):
    data = spec_of(CASES[mechanism].examples[0])
    file = tmp_path / "bad.yaml"
    for value in values:
        stages = (data.get("decoder") or data)["stages"]
        stages[0]["block"][0][field] = value
        text = as_yaml(data)
        file.write_text(text, encoding="utf-8")
        # The key stands alone on its line, in the block, further left than those of anything nested in the component.
        lines = list(enumerate(text.splitlines(), 1))
        stages = max(number for number, words in lines if words.endswith("stages:"))
        block = min(number for number, words in lines if words.endswith(" block:") and number > stages)
        found = [(at, number) for number, words in lines if (at := column(words, field)) is not None and number > block]
        line = min(found)[1]
        with pytest.raises(SpecError) as refused:
            load(str(file))
        # a list's items stand below its key, a line each
        item = re.search(rf"\b{field}\[(\d+)\]: ", str(refused.value))
        line += int(item[1]) + 1 if item else 0
        assert str(refused.value).startswith(f"{file}:{line} "), (str(refused.value), line, text)
        assert field in str(refused.value)


@pytest.mark.parametrize(
    "mechanism", [component for component in MECHANISMS.values() if "heads" in component.__struct_fields__], ids=tag_of
)
def test_heads_that_do_not_divide_the_width_are_refused_with_their_line(mechanism, tmp_path):
    data = spec_of(CASES[mechanism].examples[0])
    (data.get("decoder") or data)["stages"][0]["block"][0]["heads"] = 5
    with pytest.raises(SpecError, match=r"spec\.yaml:\d+ .*heads: 5 does not divide the width 12; it could be 1, 2, 3"):
        placed(data, tmp_path)


# 2 ── pairs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_eager_case
def test_pairs_in_closed_form_are_those_that_reads_lists(case):
    grid, memory = case.place.grid, case.place.memory
    outputs = case.component.out(case.place)[0].total
    listed = [case.component.reads(grid, token, memory) for token in range(outputs)]
    readable = (memory or grid).total
    assert all(len(set(tokens)) == len(tokens) and set(tokens) <= set(range(readable)) for tokens in listed)
    assert sum(map(len, listed)) == case.component.pairs(grid, memory), "tokens that reads lists, and pairs"


@every_mechanism
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_pairs_in_closed_form_on_any_grid(mechanism, data):
    component, grid = data.draw(CASES[mechanism].components), Grid(data.draw(CASES[mechanism].sides))
    place = place_for(component, grid)
    outputs = component.out(place)[0].total
    listed = [component.reads(grid, token, MEMORY) for token in range(min(outputs, 200))]
    if outputs <= 200:
        assert sum(map(len, listed)) == component.pairs(grid, MEMORY), "tokens that reads lists, and pairs"


def test_pairs_of_a_shifted_window_by_hand():
    # A row of 6 tokens, windows of 3 shifted by 2: runs of 2, 3 and 1 tokens, 4 + 9 + 1 = 14 pairs.
    component, row = Window(heads=1, size=3, shift=2), Grid((6,))
    assert [list(component.reads(row, token)) for token in range(6)] == [[0, 1]] * 2 + [[2, 3, 4]] * 3 + [[5]]
    assert component.pairs(row) == 14
    # On 6×6 a window is a product of two runs: 14² pairs.
    assert component.pairs(Grid((6, 6))) == 196


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 10, 16])
@pytest.mark.parametrize(
    "component",
    [Retention(heads=2, form="chunkwise", chunk=4), Mamba2(head_dim=2, chunk=4), Kernel(heads=2, causal=True, chunk=4)],
    ids=tag_of,
)
def test_pairs_of_chunks_are_those_of_every_token_with_its_chunk_so_far(component, tokens):
    rows = component_rows(component, place_for(component, Grid((tokens,))))
    assert {row.pairs for row in rows if row.pairs} == {sum(token % 4 + 1 for token in range(tokens))}


def test_biases_of_three_axes_are_added_from_the_last_on():
    # 2 heads of 24 queries: 3·4 sums of the last two axes' terms, then 2·3·4 with the first's
    for keys_stride, added in ((1, 12 + 24), ([1, 3, 2], 2 + 4)):
        component = Pooling(heads=2, q_size=1, kv_size=1, kv_stride=keys_stride, bias="decomposed")
        rows = {row.path: row for row in component_rows(component, place_for(component, Grid((2, 3, 4))))}
        assert (rows["spread"].flops, rows["spread"].moved) == (2 * 24 * added, 0)


# 3, 4 ── parameters and MACs, row by row ─────────────────────────────────────────────────────────────────────────────


@every_covering_case
def test_params_of_every_row_are_those_of_its_leaf(case):
    leaves = {
        row_path(f"it.{name}", {"it": "it"}): sum(parameter.numel() for parameter in leaf.parameters())
        for name, leaf in make(case, "meta").named_modules()
        if next(leaf.children(), None) is None
    }
    rows = {f"it.{row.path}": row.params for row in component_rows(case.component, case.place)}
    same_rows(rows, leaves, "parameters")


@every_covering_case
def test_rows_stand_in_the_order_in_which_their_leaves_run(case):
    in_order(component_rows(case.component, case.place), make(case, "meta"), example(case.place, 2, "meta"))


@every_covering_case
def test_macs_and_flops_of_every_row_are_the_trace_s(case):
    agree(case, 2, Residual(place="post") if case.component.residual is None else case.component.residual)


@pytest.mark.parametrize(("component", "fused"), distinct_examples()[::3], ids=str)
def test_macs_and_flops_of_every_row_are_the_trace_s_without_residual_or_batch(component, fused):
    grid = CASES[type(component)].grids[-1]
    agree(Case(component, place_for(component, grid, fused=fused)), 1, "none")


def agree(case, batch, residual):
    ledger = joined(case.component, case.place, batch, residual)
    exact(ledger)
    assert ledger.total("traced_macs") == ledger.total("macs")
    assert ledger.total("traced_flops") == ledger.total("flops") > 0
    assert (ledger.total("macs") > 0) == CASES[type(case.component)].contracts


@every_case
def test_macs_are_half_of_what_torch_s_own_counter_says(case):
    module, inputs = make(case, "meta"), example(case.place, 2, "meta")
    _, seen = counted_by_torch(lambda: module(*inputs))
    ours = sum(batched(row, 2).macs for row in component_rows(case.component, case.place))
    missed = 2 * CASES[type(case.component)].missed_by_torch(case.component, case.place)
    assert seen + missed == ours, "MACs that torch counts or is known to miss, and those of all rows"
    assert (ours > 0) == CASES[type(case.component)].contracts


SYMBOLIC = [component for case in CASES.values() for component in case.examples[: case.symbolic]]
SYMBOLIC += [Mlp(), Swiglu(), Moe()]


@pytest.mark.parametrize(("component", "fused"), [*zip(SYMBOLIC, itertools.cycle((False, True)))], ids=str)
def test_the_closed_form_in_n_is_torch_s(component, *, fused):
    # FlopCounterMode over symbolic shapes gives a polynomial: 4·N²·d + 8·N·d² for full attention.
    n, m = sympy.symbols("n m", integer=True, positive=True)
    place = place_for(component, Grid((11,)), fused=fused)
    letters = {"grid": Grid((n,))} | ({"memory": Grid((m,))} if place.memory else {})
    ours = total(component_rows(component, msgspec.structs.replace(place, **letters)))
    theirs = symbolic_flops(component, place, (n, m))
    assert theirs.free_symbols == ({n, m} if place.memory else {n})
    assert sympy.expand(theirs - 2 * ours) == 0
    if component == Full(heads=2):
        assert sympy.expand(theirs) == 4 * DIM * n**2 + 8 * DIM**2 * n


def symbolic_flops(component, place, letters):
    """What torch's counter says of the torch_module where the number of tokens (and of the memory's) is a symbol."""
    with torch.device("meta"):
        module = ProgramModule(component, place)
    context = StatelessSymbolicContext([DimDynamic.STATIC, DimDynamic.DYNAMIC, DimDynamic.STATIC])
    tensors = [tensor.float() for tensor in example(place, 1, "meta")]
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True) as mode:
        inputs = [mode.from_tensor(tensor, symbolic_context=context) for tensor in tensors]
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(*inputs)
    flops = counter.get_total_flops()
    found = sympy.sympify(flops.node.expr if isinstance(flops, torch.SymInt) else flops)
    if not found.free_symbols and OLD_TORCH:
        pytest.skip("this version of torch makes a number of N in this module's shapes")
    return found.subs({tensor.shape[1].node.expr: letter for tensor, letter in zip(inputs, letters, strict=False)})


# 5 ── what is really read ────────────────────────────────────────────────────────────────────────────────────────────


def probed(case):
    """What the live module is seen to read, and what it should: with its choice held where content decides."""
    component, place = case.component, case.place
    inputs, module = example(place, 1), make(case)
    frozen = CASES[type(component)].frozen
    if frozen is None:
        outputs = range(answers(component, place))
        listed = [component.reads(place.grid, token, place.memory) for token in outputs]
        return probe(module, inputs, which=1 if place.memory else 0, rounding=CASES[type(component)].rounding), listed
    held = frozen(module, inputs)
    return probe(held.module, inputs, fresh_weights=False), held.reads


@every_eager_case  # fused, the answers are the same numbers
def test_the_probed_pattern_is_reads(case):
    seen, listed = probed(case)
    told = tuple(map(frozenset, listed))
    if case.place.memory is None and case.component.out(case.place)[0] == case.place.grid:
        # A token that reads others and not itself still depends on itself: its query chooses among them.
        told = tuple(
            read | ({token} & found if read else set())
            for token, (read, found) in enumerate(zip(told, seen.reads, strict=True))
        )
    assert seen.reads == told, "tokens that the running module reads, and those that reads lists"


@pytest.mark.parametrize(
    "case", [one for one in tiered_cases(fused=(False,)) if one.values[0].component.content_selects_tokens], ids=str
)
def test_what_is_chosen_is_among_what_may_be_read(case):
    held = CASES[type(case.component)].frozen(make(case), example(case.place, 1))
    chosen = held.reads
    may = [set(case.component.reads(case.place.grid, token)) for token in range(case.place.grid.total)]
    # every head chooses for itself
    most = max((row.reads_tokens or 0) * (row.heads or 1) for row in component_rows(case.component, case.place))
    assert all(set(tokens) <= allowed for tokens, allowed in zip(chosen, may, strict=True))
    assert max(len(set(tokens)) for tokens in chosen) <= most * held.lists


@every_example_either_way
def test_the_probed_kind_is_the_declared_kind(component, *, fused):
    small, large = (place_for(component, grid, fused=fused) for grid in CASES[type(component)].growth(component))
    if large.memory:  # what is read is the memory: let that grow
        large = msgspec.structs.replace(large, memory=Grid((2 * MEMORY.total,)))
    probes = [probed(Case(component, place))[0] for place in (small, large)]
    # The widest kind of its rows is the kind of the whole: windows and global tokens together are global.
    declared = {row.mixing for row in component_rows(component, large)}
    assert max(declared, key=MIXINGS.index) == kind_of(*probes)


@every_example
def test_two_blocks_read_what_is_read_by_what_they_read(component, tmp_path):
    if component.reads_memory or component.content_selects_tokens or SPEC_DIM % getattr(component, "heads", 1):
        return
    spec, width = spec_of(component), max(SPEC_DIM, CASES[type(component)].dim)
    spec["stages"][0]["dim"] = width  # wide where a rectifier may hide a token in few channels
    architecture = placed(spec, tmp_path)
    grid = architecture.grid
    if component.out(place_for(component, grid))[0] != grid:
        return
    stage = OneStage(build(architecture, "cpu").model.get_submodule("streams.0.stages.0"))
    seen = probe(stage, (torch.zeros(1, grid.total, width),), rounding=CASES[type(component)].rounding)
    once = [frozenset({token, *component.reads(grid, token)}) for token in range(grid.total)]  # itself, by the shortcut
    assert seen.reads == tuple(frozenset().union(*(once[other] for other in tokens)) for tokens in once)


@every_example_either_way
def test_rows_that_are_called_per_token_mix_none(component, *, fused):
    grid = CASES[type(component)].growth(component)[0]
    case = Case(component, place_for(component, grid, fused=fused))
    module, calls = make(case), {}
    for name, leaf in module.named_modules():
        leaf.register_forward_hook(lambda _, inputs, output, name=name: calls.update({name: (inputs, output)}))
    with torch.no_grad():
        module(*example(case.place, 1))
    leaves = [name for name, leaf in module.named_modules() if not list(leaf.children())]
    named = {row_path(f"it.{name}", {"it": "it"}): name for name in leaves}
    tried = 0
    for row in component_rows(component, case.place):
        if row.mixing != "per-token":
            continue
        name = named[f"it.{row.path}"]
        if name not in calls:  # kept and not used: then it is parameters and no work
            assert row.params, f"{row.path}: expected its leaf to run, for it has no parameters; it didn't"
            assert not any((row.macs, row.flops, row.comparisons, row.moved)), row.path
            continue
        inputs, output = calls[name]
        for which, tensor in enumerate(inputs):
            if not (isinstance(tensor, Tensor) and tensor.is_floating_point()):
                continue
            assert isinstance(output, Tensor), f"{row.path}: expected a tensor of its leaf, got {type(output).__name__}"
            if (
                not output.is_floating_point() or tensor.ndim <= 2
            ):  # work on weights: it has no axis that numbers tokens
                continue
            # all axes but batch and width number tokens
            first = CASES[type(component)].channels_first(name)
            seen = probe(
                module.get_submodule(name),
                inputs,
                which=which,
                tokens=tuple(range(1, tensor.ndim))[first : tensor.ndim - 2 + first],
                out_tokens=tuple(range(1, output.ndim))[first : output.ndim - 2 + first],
            )
            assert seen.most <= 1 or row.path in CASES[type(component)].rows.own_parts, (
                f"{component}: {row.path} is declared per-token and reads {seen.most} tokens; give it mixing, "
                "reads and reads_tokens"
            )
            assert seen.disjoint or row.only_moves, row.path  # a gather may copy a token to several places
        tried += 1
    # at least what goes in is projected, and what comes out where there is a W_O
    assert tried >= (2 if getattr(component, "output_projection", True) else 1) or not CASES[type(component)].per_token


@every_example_either_way
def test_scores_softmax_and_weighted_sum_are_the_mixing_and_hold_no_parameters(component, *, fused):
    rows = list(
        component_rows(component, place_for(component, CASES[type(component)].growth(component)[0], fused=fused))
    )
    names = ("scores", "softmax", "weighted_sum", "attention")
    core = [row for row in rows if row.path.rpartition("_")[2] in names or row.path.endswith("weighted_sum")]
    assert all(row.mixing != "per-token" and row.params == 0 for row in core)
    assert all(row.reads and row.reads_tokens for row in rows if row.mixes)


@pytest.mark.parametrize("layer", list(SUBLAYERS.values()), ids=tag_of)
def test_sub_layers_that_are_no_mixers_mix_none(layer):
    component = layer()
    for grid in (Grid((1,)), Grid((7,)), Grid((3, 4), 1)):
        place = place_for(component, grid)
        for residual in ("none", Residual(), Residual(place="post"), Residual(place="res_post")):
            model = SubLayerModel(Part("it", component, place, residual), ModuleMaker({}))
            # tokens of one expert share a product, and its size decides how it rounds
            seen = probe(model, example(place, 1), rounding=1e-12 if layer is Moe else 0)
            assert seen.reads == tuple(frozenset({token}) for token in range(grid.total))
    assert {row.mixing for row in component_rows(component, place)} == {"per-token"}


# 6 ── the same numbers as a reference that shares nothing ────────────────────────────────────────────────────────────


@every_eager_case
def test_outputs_and_gradients_are_those_of_a_plain_slow_reference(case):
    inputs = example(case.place, 2)
    (ours, our_gradients), (plain, its_gradients) = answers_of(case, scattered(make(case)), inputs)
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-12)
    for one, other in zip(our_gradients, its_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert all(gradient.abs().max() > 0 for gradient in our_gradients[: len(inputs)]) or case.place.grid.total == 1


@every_eager_case
def test_eager_and_fused_give_the_same_numbers_and_cost(case):
    if not CASES[type(case.component)].fused:
        return
    fused = Case(case.component, msgspec.structs.replace(case.place, fused=True))
    inputs, modules = example(case.place, 2), (make(case), make(fused))
    names = [[name.replace("core.", "") for name, _ in torch_module.named_parameters()] for torch_module in modules]
    assert names[0] == names[1]
    for tensor in inputs:
        tensor.requires_grad_()
    answers_ = [one(*inputs) for one in modules]
    torch.testing.assert_close(*answers_, rtol=1e-11, atol=1e-12)
    gradients = [torch.autograd.grad(one.sin().sum(), inputs, materialize_grads=True) for one in answers_]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)
    for quantity in ("macs", "params", "flops"):
        eager, other = (total(component_rows(one.component, one.place), quantity) for one in (case, fused))
        assert eager == other, quantity


@pytest.mark.parametrize("component", CASES[Window].examples, ids=str)
def test_the_windows_of_a_padded_grid_are_those_of_the_grid_cropped(component):
    for grid in CASES[Window].grids:
        padded = component.padded(grid)
        stands = kept(grid, padded)
        number = {there: token for token, there in enumerate(stands)}
        for token, there in enumerate(stands):
            cropped = [number[other] for other in component.reads(padded, there) if other in number]
            assert sorted(component.reads(grid, token)) == cropped


# What no mechanism may do: hold a tensor that grows faster than it claims ────────────────────────────────────────────


@pytest.mark.parametrize("component", [one for case in CASES.values() for one in case.examples[::8]], ids=str)
def test_no_tensor_grows_faster_than_the_mechanism_claims(component):
    # Buffers and parameters count too, and so does what is made while the module is: a mask of N×N is a defect.
    first = CASES[type(component)].growth(component)[0]
    largest = []
    grids = [first._replace(sides=tuple(side * more for side in first.sides)) for more in (64, 128)]
    places = [place_for(component, grid) for grid in grids]
    for spot in places:
        with LargestTensor() as seen:
            module, inputs = make(Case(component, spot), "meta"), example(spot, 1, "meta")
            with torch.no_grad():
                module(*inputs)
        largest.append(seen.elements)
    claimed = max(exponent(order) for order in orders_at(component, places[0]).values() if "parameters" not in order)
    grown = math.log(largest[1] / largest[0]) / math.log(places[1].grid.total / places[0].grid.total)
    assert grown <= claimed + 0.05, (largest, claimed)


# No token learns of the future ───────────────────────────────────────────────────────────────────────────────────────


def turn(component, grid, token):
    """When a token's turn comes where they are generated one by one: as they are numbered, or block after block."""
    return component.blocks(grid).generation_order(token) if isinstance(component, Blockwise) else token


def leaks(component, grid):
    """(token, tokens before the change): where the output changes when later tokens change places or content."""
    place = place_for(component, grid)
    module, inputs = make(Case(component, place)), example(place, 1)
    noise = torch.Generator().manual_seed(3)
    in_turn = torch.tensor(sorted(range(grid.total), key=lambda token: turn(component, grid, token)))
    found = set()
    with torch.no_grad():
        before = module(*inputs)
        for first in range(1, grid.total):
            early, late = in_turn[:first], in_turn[first:]
            x = inputs[0].clone()
            x[:, late] = x[:, late.flip(0)]
            other = inputs[0].clone()
            other[:, late] = torch.randn(other[:, late].shape, generator=noise, dtype=other.dtype) * 3
            for changed in (x, other):
                after = module(changed, *inputs[1:])
                differs = ((after - before).abs() > 1e-9).any(-1)[0, early]
                found |= {(token, first) for token in early[differs].tolist()}
    return found


CAUSAL = [component for component in EXAMPLES if component.causality != "none"]


@pytest.mark.parametrize("component", CAUSAL, ids=str)
def test_causal_means_that_later_tokens_change_nothing(component):
    grids = [grid for grid in CASES[type(component)].grids if grid.total > 1][-4:]
    found = {grid: leaks(component, grid) for grid in grids}
    if component.causality == "exact":
        assert not any(found.values()), found
    else:  # it says that it leaks, and it does
        assert any(found.values())
