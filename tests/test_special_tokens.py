"""Special tokens, pairs, and what every row reads and waits for."""

import copy
import functools
import re
from collections import Counter, defaultdict
from fractions import Fraction
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import written
from cases import CASES
from cases.base import DIM, Case
from cases.layers import LAYER_CASES, LayerCase
from cases.written import letters_of
from compared import scattered
from contract import LAYERS, agree, drawn, example, joined, make
from growth import sequential_steps
from strategies import both_accounts, exact, place_for, placed, stack
from tiers import distinct_examples, of_rows, tiered, tiered_cases
from xfcost.counting.forward import count
from xfcost.formulas.component import Component, Mixer, Place, tag_of
from xfcost.ledger.errors import ComponentError
from xfcost.ledger.grid import Grid
from xfcost.mechanisms import MECHANISMS
from xfcost.mechanisms.blockwise import BlockSparse
from xfcost.mechanisms.low_rank import Nystrom
from xfcost.mechanisms.recurrent import Rnn
from xfcost.mechanisms.sliding import Sliding
from xfcost.parts.mixing.result import ProbedRow
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.torch_models.build import build
from xfcost.torch_models.mixing.follower import Budget
from xfcost.torch_models.probing.account import probed_rows
from xfcost.torch_models.running.by_row import row_path

# How many steps of a running module can only run one after the other ──────────────────────────────────────────────────


class Chain(NamedTuple):
    """The longest chain of ATen operations each of which waits for the one before."""

    length: int
    operations: Counter[str]
    """How often each of them stands in it."""


def longest_chain(module: nn.Module, inputs: tuple[Tensor, ...]) -> Chain:
    """The longest chain of dependent operations that `module(*inputs)` runs. A view is no operation.

    What one operation does inside (a softmax, a cumulative sum) runs at once for all tokens, and is one link.

    Raises:
        ValueError: the module stands on `meta`.
    """
    module = copy.deepcopy(module).cpu().double().eval().requires_grad_(requires_grad=False)
    with torch.no_grad(), _Depth() as seen:
        module(*(tensor.double() for tensor in inputs))
    return seen.longest


def steps_between(small: Chain, large: Chain) -> int:
    """By how many steps the larger chain is longer: each operation of a step stands in it once or more per step.

    Raises:
        ValueError: the chains don't grow alike: the second isn't the first with more steps.
    """
    more = {name: large.operations[name] - small.operations[name] for name in small.operations | large.operations}
    if any(grown < 0 for grown in more.values()):
        raise ValueError(f"the longer chain lacks operations of the shorter one: {more}")
    return gcd(*more.values())


class _Depth(TorchDispatchMode):
    """Every tensor's longest chain, by its storage: views share it, and so does what is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = Chain(0, Counter())
        self._chains: dict[int, Chain] = {}
        self._alive: list[Any] = []  # an address isn't given away again while we look

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [self._chains.get(_storage(one)) for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
        before = max(filter(None, given), key=lambda chain: chain.length, default=Chain(0, Counter()))
        for value in tree_iter(result):
            if not isinstance(value, Tensor):
                continue
            self._alive.append(value)
            if func.is_view:
                continue
            chain = Chain(before.length + 1, before.operations + Counter((str(func),)))
            kept = self._chains.get(_storage(value))
            if kept is None or chain.length > kept.length:
                self._chains[_storage(value)] = chain
            self.longest = max(self.longest, chain, key=lambda chain: chain.length)
        return result


def _storage(value: Tensor) -> int:
    return value.untyped_storage().data_ptr()


# Every kind that stands among special tokens ([CLS], distillation) runs with one and with two, or refuses them ────────


def ways(grid: Grid) -> list[Grid]:
    """The grid with a class token, and with a distillation token too."""
    return [grid._replace(special=grid.special + more) for more in (1, 2)]


def refuses(component: Component, place: Place) -> bool:
    """Does it refuse the place, in words that tell of special tokens?"""
    try:
        component.check(place)
    except ComponentError as error:
        refusal = str(error)
    else:
        return False
    special = place.grid.special
    told = re.search(rf"\+ {special}\b|got {special}\b|{place.grid.total} tokens", refusal)
    assert told, f"{component} among {special} special tokens: expected their number in the refusal, got {refusal!r}"
    return True


@pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=tag_of)
def test_a_mechanism_runs_among_special_tokens_or_refuses_them(mechanism: type[Mixer]) -> None:
    for number, component in enumerate(CASES[mechanism].examples):
        # the first example both ways, the others in turns
        grids = ways(CASES[mechanism].growth(component)[0])
        for grid in grids if not number else grids[number % 2 :][:1]:
            place = place_for(component, grid)
            if refuses(component, place):
                continue
            found = joined(component, place, 2, "none").agreement
            assert found is not None
            assert found.exact, (component, grid, found.differences, found.uncounted)
            listed = [component.reads(grid, token, place.memory) for token in range(component.out(place)[0].total)]
            assert sum(map(len, listed)) == component.pairs(grid, place.memory), (component, grid, "pairs")


@pytest.mark.parametrize("layer", LAYERS, ids=tag_of)
def test_a_layer_runs_among_special_tokens_or_refuses_them(layer: type[Component]) -> None:
    # every configuration where it first stands
    configurations = {str(case.layer): case for case in reversed(LAYER_CASES) if type(case.layer) is layer}
    for case in configurations.values():
        for grid in ways(case.grid):
            other = case.other and (case.other[0]._replace(special=grid.special), case.other[1])
            among = LayerCase(case.layer, grid, case.out_dim, other)
            if not refuses(among.layer, among.place):
                agree(among)


# Memory tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────


ENTRY_LAYER = {"kind": "memory_tokens", "count": 3}


def spec(*stem_layers: dict[str, Any], **more: Any) -> dict[str, Any]:
    block = [{"kind": "full", "heads": 2}, {"kind": "mlp", "hidden": 5}]
    more = {"embed": [{"kind": "token"}, *stem_layers]} | more
    return stack(*block, dim=4, depth=2, length=10, vocabulary=7, **more)


def test_every_layer_works_on_the_memory_too(tmp_path: Path) -> None:
    architecture = placed(spec(ENTRY_LAYER), tmp_path, batch=2)
    rows = {row.path: row for row in exact(both_accounts(architecture)).rows}
    assert architecture.grid == Grid((10,), 3)
    # 3 tokens of width 4; 13 tokens are written for each of 2 samples
    assert (rows["embed.1.prepend"].params, rows["embed.1.prepend"].moved) == (12, 2 * 13 * 4)
    assert rows["embed.1.prepend"].order == "O(m·d) parameters"
    assert rows["stages.0.block.0.scores"].macs == 2 * 13 * 13 * 4
    assert rows["stages.0.block.0.scores"].attention_entries == 2 * 2 * 13 * 13
    assert rows["stages.0.block.1.fc1"].macs == 2 * 13 * 4 * 5


def test_the_grid_alone_is_compared_without_them(tmp_path: Path) -> None:
    alone, plain = placed(spec(ENTRY_LAYER), tmp_path, extra_tokens=False), placed(spec(), tmp_path)
    assert count(alone).totals() == count(plain).totals()


def test_memory_and_class_token_add_up_and_the_later_layer_stands_first(tmp_path: Path) -> None:
    head = {"kind": "classifier", "pool": "class_token", "norm": "none", "classes": 2}
    architecture = placed(spec(ENTRY_LAYER, {"kind": "class_token"}, {"kind": "position"}, head=head), tmp_path)
    assert architecture.grid == Grid((10,), 4)
    live = build(architecture, "cpu")
    stem_layers = live.model.get_submodule("streams.0.embed")
    assert isinstance(stem_layers, nn.ModuleList)
    x = live.inputs[0]
    for entry in stem_layers[:3]:
        x = entry(x)
    torch.testing.assert_close(x[0, :1], stem_layers[2].prepend.weight[0])
    torch.testing.assert_close(x[0, 1:4], stem_layers[1].prepend.weight[0])
    # a position for each of the 14
    assert {row.path: row.params for row in count(architecture).rows}["embed.3.table"] == 14 * 4


# `pairs` of every row: the scores that the output of the running module depends on, found by their gradients ──────────


def declared(case: Case) -> dict[str, int]:
    """Path -> pairs, of the rows that have them."""
    return {row.path: row.pairs for row in component_rows(case.component, case.place) if row.pairs is not None}


def prepared(case: Case) -> nn.Module:
    """Its module, with biases of zero, and no rectifier inside a recurrence, where no hook reaches it."""
    if isinstance(case.component, Rnn):
        case = case._replace(component=msgspec.structs.replace(case.component, act="tanh"))
    module = scattered(make(case))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    for part in module.modules():
        for buffer in getattr(part, "remembered", ()):
            buffer.zero_()
    return module


def kept_pairs(case: Case) -> dict[str, Fraction]:
    """Path -> pairs per head and sample, of every row with `pairs`.

    What is masked, padded, dropped or overwritten has no gradient. Padding's values are zero, and so are the past's; a
    learned key is no padding. Softmax runs without its division, which would hide the score of a single key. Rectifiers
    and norms, which give a constant of a negative or of a single number, let everything through.
    """
    place, noise = case.place, torch.Generator().manual_seed(0)
    heads = {row.path: row.heads or 1 for row in component_rows(case.component, place) if row.pairs is not None}
    module = prepared(case)
    outputs: dict[str, list[Tensor]] = defaultdict(list)

    def hook(path: str) -> Any:
        def changed(_: Any, inputs: Any, output: Any) -> Any:
            if path.rpartition("_")[2] == "softmax":
                largest = inputs[0].detach().amax(-1, keepdim=True)
                return (inputs[0] - largest.nan_to_num(neginf=0)).exp()
            # kernel attention divides by the sum of its weights
            if path == "divide" or re.search(r"(act\d?|norm)$", path):
                return inputs[0]
            if path not in heads:
                return None
            output = output if output.requires_grad else output.clone().requires_grad_()
            output.retain_grad()
            outputs[path].append(output)
            return output

        return changed

    for name, leaf in module.named_modules():
        if name and next(leaf.children(), None) is None:
            leaf.register_forward_hook(hook((row_path(f"it.{name}", {"it": "it"}) or "").removeprefix("it.")))
    answer = module(*example(place, 1))
    (answer * torch.randn(answer.shape, generator=noise, dtype=torch.float64)).sum().backward()
    sway = {
        path: sum(int((one.grad != 0).sum()) for one in calls if one.grad is not None)
        for path, calls in outputs.items()
    }
    return {path: Fraction(sway[path], heads[path]) for path in heads if path in sway}


@pytest.mark.parametrize("case", tiered_cases(fused=(False,)), ids=str)
def test_pairs_of_every_row_are_those_that_the_output_depends_on(case: Case) -> None:
    rows = declared(case)
    assert rows == (kept_pairs(case) if rows else {}), "pairs of the row: declared, then found in the running module"


@pytest.mark.parametrize("case", tiered_cases(fused=(True,)), ids=str)
def test_a_fused_row_has_the_pairs_of_the_eager_one(case: Case) -> None:
    eager = Case(case.component, msgspec.structs.replace(case.place, fused=False))
    assert sorted(declared(case).values()) == sorted(declared(eager).values()), "pairs: fused, then eager"


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
@given(data=st.data())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_pairs_of_every_row_on_any_grid(mechanism: type[Mixer], data: st.DataObject) -> None:
    case = drawn(data, mechanism)
    rows = declared(case)
    assert rows == (kept_pairs(case) if rows else {}), "pairs of the row: declared, then found in the running module"


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
def test_only_scores_of_what_is_no_token_have_no_pairs(mechanism: type[Mixer]) -> None:
    without, pooled = [], mechanism.content_selects_tokens
    for component in CASES[mechanism].examples:
        place = place_for(component, CASES[mechanism].growth(component)[1])
        for row in component_rows(component, place):
            if row.core is None or row.pairs is not None:
                continue
            without.append(f"{row.path} of {component}")
            entries = row.attention_entries // (row.heads or 1)
            # in some example a key stands for several tokens, or a query for several
            pooled |= component.pairs(place.grid, place.memory) > entries or component.out(place)[0] != place.grid
    assert pooled or not without, f"expected pairs, for every key is a token and every query one; None of {without}"


@pytest.mark.parametrize("mechanism", list(MECHANISMS.values()), ids=tag_of)
def test_decode_steps_have_the_pairs_of_all_tokens_together(mechanism: type[Mixer]) -> None:
    for component in CASES[mechanism].examples:
        tokens = CASES[mechanism].growth(component)[0].total
        places = [place_for(component, Grid((count,))) for count in range(1, tokens + 1)]
        try:
            steps = [
                {row.path: row.pairs for row in component_rows(component, place, decodes=True)} for place in places
            ]
        except ComponentError:  # there is no step
            continue
        for path, pairs in declared(Case(component, places[-1])).items():
            found = sum(step[path] or 0 for step in steps if path in step)
            # a recurrent step has no such row
            assert all(path not in step for step in steps) or found == pairs, (
                f"{path} of {component}: {pairs} pairs of {tokens} tokens, {found} of as many steps"
            )


# Every row of every mechanism against its running leaf ────────────────────────────────────────────────────────────────


class Example(NamedTuple):
    """An example of a mechanism; by its number what was probed is remembered."""

    number: int
    component: Mixer
    fused: bool

    def __str__(self) -> str:
        return f"{self.component}-fused" if self.fused else str(self.component)


EXAMPLES = [Example(number, *example) for number, example in enumerate(distinct_examples())]
every_example = pytest.mark.parametrize("of", tiered(EXAMPLES, lambda of: of_rows((of.component, of.fused))), ids=str)


def places_of(component: Mixer, *, fused: bool) -> tuple[Place, Place]:
    """Two places, with more tokens at the second; of the memory too where one is read."""
    case = CASES[type(component)]
    small, large = (
        place_for(component, grid, fused=fused, dim=case.rows.dim)
        for grid in (case.rows.grids or case.growth)(component)
    )
    if large.memory:
        large = msgspec.structs.replace(large, memory=Grid((2 * large.memory.total,)))
    return small, large


@functools.cache
def probed(number: int) -> tuple[ProbedRow, ...]:
    """The rows of an example beside what their leaves were seen to read."""
    _, component, fused = EXAMPLES[number]
    return probed_at(component, places_of(component, fused=fused))


def probed_at(component: Mixer, places: tuple[Place, Place]) -> tuple[ProbedRow, ...]:
    small, large = (Part("it", component, place, "none") for place in places)
    return tuple(probed_rows((small, large), Budget()))


@every_example
def test_every_row_reads_what_it_says(of: Example) -> None:
    component = of.component
    wrong = [
        f"{row.path}: declared {row.declared}, found {row.found}" for row in probed(of.number) if row.agrees is False
    ]
    assert not wrong, (
        f"{component}: {'; '.join(wrong)}; of tokens that are never read at a place, the own chunk's say, `observed` "
        "returns Observed(unread={row: how many})"
    )
    known = {"it reads only one token here: a softmax of one number is 1", "it only moves numbers"}
    known |= {*component.observed(places_of(component, fused=False)[0]).left_out.values()}
    not_seen = [row for row in probed(of.number) if row.found is None and row.reason not in known]
    assert [row.path for row in not_seen if row.declared.mixing != "per-token"] == [], (
        "no leaf was seen to run for these"
    )


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    ("component", "tokens", "most"),
    [
        (Nystrom(heads=1, landmarks=4, conv=3), (11, 22), {"key_scores": 22}),  # padded to 12 and 24
        # padded to 18 and 36; a block in the middle reads (5 + 1)·2 keys, one of them padding of the last block
        (BlockSparse(heads=1, block=2, random_blocks=1), (17, 35), {"global_scores": 35, "scores": 11}),
        (Sliding(heads=1, window=4, global_tokens=1), (13, 26), {"global_scores": 26}),  # padded to 16 and 28
    ],
    ids=lambda value: tag_of(type(value)) if isinstance(value, Mixer) else "",
)
def test_padding_is_no_token_that_is_read(
    component: Mixer, tokens: tuple[int, int], most: dict[str, int], heads: int
) -> None:
    component = msgspec.structs.replace(component, heads=heads)
    small, large = (place_for(component, Grid((n,)), dim=DIM) for n in tokens)
    rows = probed_at(component, (small, large))
    wrong = [f"{row.path}: declared {row.declared}, found {row.found}" for row in rows if row.agrees is False]
    assert not wrong, "; ".join(wrong)
    assert {row.path: row.reads_tokens for row in component_rows(component, large) if row.path in most} == most


@every_example
def test_a_row_whose_leaf_shows_no_reading_reads_what_another_row_is_seen_to_read(of: Example) -> None:
    _, component, fused = of
    rows = {row.path: row for row in component_rows(component, places_of(component, fused=fused)[1]) if row.mixes}
    found = {row.path: row for row in probed(of.number)}
    seen = {(row.mixing, row.reads, row.reads_tokens) for path, row in rows.items() if found[path].agrees}
    for path, row in rows.items():
        if found[path].found is None and row.reads_tokens != 1:
            # as many steps are measured below
            steps = ("global", row.sequential) if row.sequential > 1 else None
            reads = (row.mixing, row.reads, row.reads_tokens)
            assert reads in seen or reads[::2] == steps, f"{path} of {component}: no leaf was seen to read {row.reads}"


# The text of `reads` is a formula, and gives the number ───────────────────────────────────────────────────────────────


@every_example
def test_the_text_of_reads_gives_its_number(of: Example) -> None:
    _, component, fused = of
    for place in places_of(component, fused=fused):
        for row in component_rows(component, place):
            assert (row.reads is None) == (row.reads_tokens is None) == (not row.mixes), row.path
            if row.reads is not None:
                letters = letters_of(component, place) | CASES[type(component)].letters_of_reads(component, place)
                letters |= {"√N": place.grid.sides[-1], "∛N": round(place.grid.total ** (1 / 3))}
                numbers = {letter: Fraction(number) for letter, number in letters.items()}
                # an oblong window's `W²` is a letter, for its area is no square
                found = numbers[row.reads] if row.reads in numbers else written.value(row.reads, numbers)
                assert row.reads_tokens == found, f"{row.path}: reads {row.reads} = {found}, reads_tokens differs"


@every_example
def test_steps_are_as_many_as_the_running_module_waits_for(of: Example) -> None:
    _, component, fused = of
    places = places_of(component, fused=fused)
    small, large = (longest_chain(make(Case(component, place)), example(place, 1)) for place in places)
    told = [sequential_steps(component, place) for place in places]
    if told[1] == told[0]:
        # at other sizes torch may take one product for another and a sum, and no step takes fewer operations than two
        assert told == [1, 1]
        grown = {name: (small.operations[name], large.operations[name]) for name in large.operations}
        grown = {name: counts for name, counts in grown.items() if counts[0] != counts[1]}
        assert large.length - small.length <= 2, (
            f"{component}: no row says that steps wait for each other, but these operations run one after the other, "
            f"more of them for more tokens: {grown}; give their row `sequential=`, the number of its steps"
        )
        return
    assert steps_between(small, large) == told[1] - told[0]
    once = [name for name in large.operations if large.operations[name] - small.operations[name] == told[1] - told[0]]
    # what stands in every step once may stand before or behind the steps too, or be spared where a state is zeros
    assert abs(min(small.operations[name] for name in once) - told[0]) <= 2
