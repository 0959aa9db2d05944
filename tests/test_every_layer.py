"""The contract of layers, over the written lists: stems, embeddings, stage entries, feed-forward networks, heads."""

import msgspec
import pytest
import torch
import yaml

from cases.layers import LAYER_CASES
from compared import given, options_of, scattered
from contract import LAYERS, agree, driven_back, in_order, on_meta
from growth import orders_at
from modules import counted_by_torch
from places import at
from references import layers
from references.plain import Place as Stand
from strategies import as_yaml, exact
from xfcost.counting.forward import batched
from xfcost.formulas.component import tag_of
from xfcost.formulas.letters import costs
from xfcost.layers import HEADS
from xfcost.layers.feed_forward import Swiglu
from xfcost.layers.heads import Classifier, LanguageModel
from xfcost.layers.moe import Moe
from xfcost.layers.stems import Patch, Pixels
from xfcost.ledger.errors import ComponentError
from xfcost.program.residual import component_rows
from xfcost.spec.architecture import Part
from xfcost.torch_models.program import ProgramModule

every_case = pytest.mark.parametrize("case", LAYER_CASES, ids=str)
every_layer = pytest.mark.parametrize("layer", LAYERS, ids=tag_of)


@every_layer
def test_every_layer_is_tried(layer):
    assert any(type(case.layer) is layer for case in LAYER_CASES)


# YAML ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_case
def test_yaml_to_layer_to_yaml_is_the_identity(case):
    written = as_yaml(msgspec.to_builtins(case.layer))
    read = msgspec.convert(yaml.safe_load(written), type(case.layer))
    assert read == case.layer
    assert as_yaml(msgspec.to_builtins(read)) == written


@every_layer
def test_an_unknown_key_and_a_list_for_a_value_are_refused(layer):
    case = next(case for case in LAYER_CASES if type(case.layer) is layer)
    plain = msgspec.to_builtins(case.layer)
    bad = [("no_such_key", 1), ("kind", "no_such_kind"), *((name, {"x": [[]]}) for name in plain if name != "kind")]
    for name, value in bad:
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.convert(plain | {name: value}, layer)


# Rows ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_case
def test_every_row_is_a_leaf_and_costs_what_its_trace_says(case):
    agree(case)


@every_case
def test_rows_stand_in_the_order_in_which_their_leaves_run(case):
    module, inputs = on_meta(case, 2)
    in_order(component_rows(case.layer, case.place), module.it, inputs)


@every_case
def test_macs_are_half_of_what_torch_s_own_counter_says(case):
    module, inputs = on_meta(case, 2)
    _, macs = counted_by_torch(lambda: module(*inputs))
    assert macs == sum(batched(row, 2).macs for row in component_rows(case.layer, case.place))


@pytest.mark.parametrize("input_learns", [True, False])
@every_case
def test_backward_macs_of_every_row_are_the_walk_s(case, *, input_learns):
    with torch.device("meta"):
        module = ProgramModule(case.layer, case.place)
    inputs = tuple(
        one.float().to("meta").requires_grad_(input_learns) if one.is_floating_point() else one.to("meta")
        for one in case.inputs(2)
    )
    part = Part("it", case.layer, case.place, "none")
    exact(driven_back(part, component_rows(case.layer, case.place), module, inputs, learned=input_learns))


@every_case
def test_every_costly_row_has_an_order(case):
    rows = list(component_rows(case.layer, case.place))
    assert set(orders_at(case.layer, case.place)) >= {row.path for row in rows if costs(row)}


@every_case
def test_what_leaves_has_the_shape_that_is_said(case):
    module, inputs = on_meta(case, 2)
    with torch.no_grad():
        given_out = module(*inputs)
    grid, width = case.layer.out(case.place)
    if type(case.layer) not in HEADS.values():
        assert given_out.shape == (2, grid.total, width)


# The same numbers as a reference that shares nothing ────────────────────────────────────────────────────────────────


# The reference of mixtures of experts stands in test_moe.py.
REFERRED = [case for case in LAYER_CASES if not isinstance(case.layer, Moe)]


@pytest.mark.parametrize("case", REFERRED, ids=str)
def test_a_layer_gives_what_its_reference_says(case):
    torch.manual_seed(0)
    place, inputs = case.place, case.inputs()
    module = scattered(ProgramModule(case.layer, place).double().eval())
    weights, stand = given(module), Stand(place.grid.sides, place.grid.special, place.dim, place.out_dim)
    copies = [one.clone() for one in inputs]
    smooth = [one for one in (*inputs, *copies) if one.is_floating_point()]
    for one in smooth:
        one.requires_grad_()
    ours = module(*inputs)
    plain = getattr(layers, tag_of(type(case.layer)))(options_of(case.layer), stand, weights, *copies)
    if isinstance(ours, tuple):
        ours, plain = (torch.cat([part.flatten(1) for part in parts], dim=1) for parts in (ours, plain))
    # tables of waves are worked out in single precision
    waves = tag_of(type(case.layer)) == "fourier" or getattr(case.layer, "form", None) == "sinusoidal"
    torch.testing.assert_close(ours, plain, rtol=1e-11, atol=1e-6 if waves else 1e-11)
    sways = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    named = [weights.tensors[name] for name, _ in module.named_parameters()]
    half = len(smooth) // 2
    leaves = ([*smooth[:half], *module.parameters()], [*smooth[half:], *named])
    first, second = (
        torch.autograd.grad((answer * sways).sum(), mine, materialize_grads=True)
        for answer, mine in zip((ours, plain), leaves, strict=True)
    )
    assert first
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_the_only_logits_of_a_prompt_are_those_of_its_last_position():
    place, x_BND = at(7, vocabulary=11), torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(1))
    whole, last = (
        ProgramModule(LanguageModel(), msgspec.structs.replace(place, logits=logits)) for logits in ("all", "last")
    )
    last.load_state_dict(whole.state_dict())
    torch.testing.assert_close(last(x_BND), whole(x_BND)[:, 6:])


@every_case
def test_a_case_stands_where_its_layer_may(case):
    if not isinstance(case.layer, Patch | Pixels):  # their place is what the tokens of pixels make
        case.layer.check(case.place)


# Places where a layer refuses to stand ───────────────────────────────────────────────────────────────────────────────


def test_a_width_that_three_does_not_divide_is_refused():
    with pytest.raises(
        ComponentError, match=r"8·512/3 is not a whole width; give `hidden`, such as 1365 or 1366"
    ) as no:
        Swiglu().check(at(3, dim=512))
    assert no.value.field == "hidden"
    Swiglu(hidden=1376).check(at(3, dim=512))


def test_a_classifier_of_every_token_has_no_pooled_vector_to_normalise():
    with pytest.raises(ComponentError, match="classifies every token"):
        Classifier(pool="none", norm_after_pool=True).check(at(7))


def test_without_extra_tokens_every_token_is_classified_as_before():
    component = Classifier(pool="none")
    component.check(at(7))
    assert component.without_extra_tokens() == component
