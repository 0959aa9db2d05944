"""The record of a tape and of the running model: MACs, saved activations and operands, row by row, to the byte."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import yaml
from torch.profiler import profile

import tier
from cases import CASES
from saved import saved_bytes
from specs import architecture_of, thinned
from strategies import as_yaml, examples, placed, same_rows, spec_of
from tiers import covering_presets, of_presets, tiered_examples
from xfcost.counting.forward import count
from xfcost.counting.model_record import training_record
from xfcost.formulas.component import Mixer
from xfcost.mechanisms.low_rank import Nystrom
from xfcost.mechanisms.sliding import GlobalLocal
from xfcost.spec.architecture import Architecture
from xfcost.torch_models.build import build
from xfcost.torch_models.running.by_row import dispatch, leaf_rows, trained_rows
from xfcost.torch_models.shared.private_torch import no_compiler
from xfcost.torch_models.timing.rows import row_bytes


class Folds(NamedTuple):
    """MACs and bytes by row, and bytes saved in all."""

    macs: dict[str, int]
    saved: dict[str, int]
    operands: dict[str, int]
    total: int


def in_training(name: str, **options) -> Architecture:
    return thinned(architecture_of(name, mode="train", **options))


def of_torch(architecture: Architecture) -> Folds:
    with no_compiler():
        live = build(architecture)
        operands = row_bytes(live)
        live.model.train().requires_grad_()
        found = dispatch(live.model, live.inputs, backward=True)
    _, saved, _ = trained_rows(live.model, found, live.rows)
    costs, macs = found.costs_by_module(), Counter[str]()
    for name, path in leaf_rows(live.model, live.rows).items():
        macs[path] += costs[name]["macs"] if name in costs else 0
    paths = [row.path for row in count(architecture, orders=False).rows]
    each = ({path: of_row.get(path, 0) for path in paths} for of_row in (macs, saved, operands))
    return Folds(*each, found.saved_by_module().total())


def declared(architecture: Architecture) -> Folds:
    found, rows = training_record(architecture), count(architecture, orders=False).rows
    assert found is not None
    saved = found.saved_by_module()
    macs = Counter({path: costs["macs"] for path, costs in found.costs_by_module().items()})
    each = ({row.path: of_row[row.path] for row in rows} for of_row in (macs, saved, found.operands))
    return Folds(*each, saved.total())


OPTIONS = [
    {"attention": attention, "dtype": dtype, "batch": batch}
    for attention, dtype, batch in (("eager", "float32", 1), ("fused", "bfloat16", 2))
]


# Each of its 4096 steps would save what the others do.
FEW_STEPS = {"common-lstm": {"tokens": (64,)}}


def in_turns():
    """Every fourth preset, eager and fused in turns: `test_every_option_of_a_mechanism` takes each mechanism both ways.

    Of a selection all: a kind's contract has one with the kind, whichever these are.
    """
    for number, preset in enumerate(of_presets(covering_presets())):
        if number % 4 and not tier.selected:
            continue
        for options in OPTIONS if tier.spec else [OPTIONS[number // 4 % 2]]:
            yield pytest.param(*preset.values, options, id=f"{preset.values[0]}-{options['attention']}")


@pytest.mark.parametrize(("name", "options"), list(in_turns()))
def test_what_is_declared_is_what_torch_saves_reads_and_writes(name, options):
    agree(in_training(name, **options, **FEW_STEPS.get(name, {})))


def test_a_product_with_a_constant_saves_only_the_constant():
    agree(in_training("retnet-1.3b", **OPTIONS[0]))  # decays of a buffer times the scores


# Saved activations and operands in closed form where no preset goes: every option, other ranks, odd grids ─────────────


def agree(architecture: Architecture) -> None:
    """Declared and found in the running model, row by row."""
    ours, theirs = declared(architecture), of_torch(architecture)
    same_rows(ours.macs, theirs.macs, "MACs")
    same_rows(ours.saved, theirs.saved, "saved bytes")
    same_rows(ours.operands, theirs.operands, "bytes of operands")
    assert ours.total == theirs.total, "saved bytes in all"


def agree_of(folder: Path, text: str, **options) -> None:
    """The same of a spec."""
    file = folder / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    agree(architecture_of(str(file), mode="train", **options))


@pytest.mark.parametrize(("component", "fused"), tiered_examples(), ids=str)
def test_every_option_of_a_mechanism(component: Mixer, fused: bool, tmp_path):
    options = {"attention": "fused", "dtype": "bfloat16"} if fused else {"attention": "eager", "dtype": "float32"}
    agree_of(tmp_path, as_yaml(spec_of(component)), batch=2, **options)


@pytest.mark.parametrize("attention", ["eager", "fused"])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(
    ("component", "length"),
    [
        (Nystrom(heads=1, landmarks=4, conv=None), 9),  # padded to 12
        (Nystrom(heads=1, landmarks=4, conv=None), 4),  # exact attention
        (GlobalLocal(heads=1, radius=2), 7),  # queries padded to 9
    ],
    ids=["nystrom", "nystrom-exact", "global_local"],
)
def test_joined_heads_of_tokens_without_their_padding(component: Mixer, length: int, heads: int, attention, tmp_path):
    # one head of one sample is cropped as a view; several heads, or several samples, are copied
    spec = spec_of(msgspec.structs.replace(component, heads=heads))
    spec["input"]["length"] = length
    for batch in (1, 2):
        agree_of(tmp_path, as_yaml(spec), batch=batch, attention=attention, dtype="float32")


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("after", ["{kind: mlp, residual: none}", "{kind: mlp}"])
@pytest.mark.parametrize(
    "mixer",
    [
        "kind: window, size: 3, heads: 1, bias: none",
        "kind: window, size: 3, heads: 1, shift: 1",
        "kind: sliding, heads: 1, window: 4",
        "kind: block_sparse, heads: 1, block: 2, random_blocks: 1",
        "kind: lsh, heads: 1, bucket: 2",
    ],
)
def test_tokens_that_no_residual_copies_keep_their_padding(mixer: str, after: str, batch: int, tmp_path):
    # a norm saves the padded storage, a map that of one sample alone
    mixer, length = f"{{{mixer}, residual: none}}", 13 if "block" in mixer else 5
    text = f"name: s\ninput: {{kind: tokens, vocabulary: 11, length: {length}}}\nembed: [{{kind: token}}]\n"
    text += f"stages: [{{dim: 12, depth: 1, block: [{mixer}, {after}]}}]\n"
    agree_of(tmp_path, text, batch=batch, attention="eager", dtype="float32")


# The first example of every kind of an image.
OF_IMAGES = {type(one): one for one, _ in reversed([*examples(fused=(False,))]) if CASES[type(one)].image}


@pytest.mark.parametrize("embed", ["kind: patch, size: 1", "kind: conv, size: 3"])
@pytest.mark.parametrize("component", OF_IMAGES.values(), ids=str)
def test_a_grid_that_no_residual_copies_lies_channel_by_channel(component: Mixer, embed: str, tmp_path):
    # every linear map of several such samples copies them, a convolution reads them as they lie
    spec = spec_of(component)
    spec["embed"] = [yaml.safe_load(f"{{{embed}}}")]
    [stage] = spec["stages"]
    stage["block"][0] |= {"residual": "none"}
    agree_of(tmp_path, as_yaml(spec | {"stages": [stage | {"depth": 1}]}), batch=2, attention="eager", dtype="float32")


def with_kernels(live) -> bool:
    """Does the CPU run every fused attention as one kernel? Learned biases and values of another width have none."""
    with profile(acc_events=True) as ran:
        live.model(*live.inputs)
    names = {event.key for event in ran.key_averages()}
    return "aten::_scaled_dot_product_attention_math" not in names


@pytest.mark.parametrize(("component", "fused"), tiered_examples(), ids=str)
def test_every_option_saves_what_autograd_saves_of_real_tensors(component: Mixer, fused: bool, tmp_path):
    run = {"attention": "fused" if fused else "eager", "dtype": "float32", "batch": 2}
    architecture = placed(spec_of(component), tmp_path, mode="train", **run)
    live = build(architecture, "cpu")
    live.model.train().requires_grad_()
    if not with_kernels(live):
        pytest.skip("torch runs its plain formula for this attention on the CPU")
    assert declared(architecture).total == saved_bytes(live.model, live.inputs)


def test_fused_attention_of_gpt2_saves_what_autograd_saves():
    # autograd's own hooks on the CPU, float32, N = 128; heads lie beside each other, so that W_O's input is no copy
    architecture = architecture_of("gpt2", tokens=(128,), mode="train", attention="fused", dtype="float32")
    assert declared(architecture).total == 76_384_256


FULL = "{kind: full, heads: 2}"
SPECS = {
    "sequence": """
        input: {kind: vectors, length: 40, channels: 3}
        embed: [{kind: conv, size: 3, stride: 2, norm: group_norm, act: relu}, {kind: pool, size: 3, stride: 2}]
        stages:
          - {dim: 16, depth: 1, block: [{kind: full, heads: 2, residual: none}, {kind: mlp}]}
          - {dim: 24, depth: 1, enter: [{kind: conv, size: 1}], block: [{kind: conv, form: separable, act: glu}]}
        head: {kind: flatten_classifier, pooled: 3, hidden: [64, 32], classes: 10}
        """,
    "volume": """
        input: {kind: video, frames: 8, size: 24, channels: 3}
        embed:
          - {kind: conv, size: 3, stride: 2, norm: layer_norm, act: gelu_quick}
          - {kind: pool, size: 3, stride: 2}
          - {kind: pool, size: [1, 2, 2], stride: [1, 2, 2], form: mean}
        stages: [{dim: 16, depth: 1, block: [{kind: bottleneck, width: 8, groups: 2}]}]
        head: {kind: flatten_classifier, pooled: 1, hidden: [5], classes: 10}
        """,
    "a grid averaged to one vector": """
        input: {kind: image, size: 24, channels: 3}
        embed: [{kind: patch, size: 4}]
        stages: [{dim: 16, depth: 1, block: [{kind: mlp}]}]
        head: {kind: flatten_classifier, pooled: 1, hidden: [5], classes: 10}
        """,
    "merged patches of an odd grid": f"""
        input: {{kind: image, size: 36}}
        embed: [{{kind: patch, size: 4}}]
        stages:
          - {{dim: 8, depth: 1, block: [{FULL}]}}
          - {{dim: 16, depth: 1, enter: [{{kind: patch_merging}}], block: [{FULL}]}}
          - {{dim: 16, depth: 1, enter: [{{kind: patch_merging, norm: post}}], block: [{FULL}]}}
        """,
    "earlier stages": f"""
        input: {{kind: tokens, vocabulary: 100, length: 32}}
        embed: [{{kind: token}}]
        stages:
          - {{dim: 8, depth: 1, block: [{FULL}]}}
          - {{dim: 8, depth: 1, enter: [{{kind: pool, form: mean}}], block: [{FULL}]}}
          - {{dim: 8, depth: 1, enter: [{{kind: upsample, factor: 3}}], block: [{FULL}]}}
          - {{dim: 16, depth: 1, enter: [{{kind: concatenate, stage: 1}}], block: [{FULL}]}}
        """,
    "experts": """
        input: {kind: tokens, vocabulary: 100, length: 12}
        embed: [{kind: token}, {kind: token_type}, {kind: position, form: axial, shape: [4, 4], widths: [6, 10]}]
        stages:
          - dim: 16
            blocks:
              - [{kind: moe, experts: 4, active: 2, capacity: 1.5, normalize: false, expert: {kind: mlp}, shared: {}}]
              - [{kind: moe, experts: 4, active: 1, router: sigmoid, correction: true, scale: 2, expert: {kind: mlp}}]
              - [{kind: moe, experts: 6, active: 2, groups: {count: 3, active: 2}, expert: {kind: mlp, bias: false}}]
              - [{kind: moe, router: sigmoid, groups: {count: 2, active: 1, score: top_two}, expert: {kind: mlp}}]
        head: {kind: masked_language_model, act: silu, norm: rms_norm, next_sentence: true}
        """,
    "extra tokens": f"""
        input: {{kind: image, size: 16}}
        embed:
          - {{kind: patch, size: 4}}
          - {{kind: class_token}}
          - {{kind: distillation_token}}
          - {{kind: position, form: separate}}
        stages: [{{dim: 16, depth: 1, block: [{FULL}, {{kind: class_attention, heads: 2}}]}}]
        head: {{kind: pooler, norm: layer_norm, width: 8, classes: 3}}
        """,
    "a norm behind the embeddings": """
        input: {kind: tokens, vocabulary: 100, length: 12}
        embed: [{kind: token, scale: sqrt_dim}, {kind: position, form: sinusoidal}, {kind: norm}]
        stages: [{dim: 16, depth: 1, block: [{kind: mlp}]}]
        head: {kind: language_model, norm: none, bias: true, scale: rsqrt_dim}
        """,
    "a single local head": """
        input: {kind: tokens, vocabulary: 100, length: 13}
        embed: [{kind: token}]
        stages:
          - {dim: 16, depth: 1, block: [{kind: routing, heads: 4, window: 5, local_heads: 1, local_window: 3}]}
          - {dim: 16, depth: 1, block: [{kind: routing, heads: 2, clusters: 2, local_heads: 1, local_window: 13}]}
        """,
    "strides": """
        input: {kind: image, size: 33}
        embed:
          - {kind: conv, size: 3, stride: 2, norm: batch_norm, act: silu}
          - {kind: local_relation, share: 5, stride: 2, norm: batch_norm, act: relu}
        stages:
          - dim: 16
            blocks:
              - [{kind: bottleneck, expansion: 2, spatial: {kind: local_attention, heads: 2, size: 5}}]
              - [{kind: bottleneck, expansion: 2, stride: 2, spatial: {kind: local_relation, share: 5, size: 5}}]
              - [{kind: local_attention, heads: 2, size: 3, stride: 2}]
        """,
}


def streams(encoder: str, decoder: str, *, depth: int, width: int = 12) -> str:
    """An encoder and a decoder of these blocks."""
    return f"""
        residual: none
        input: {{kind: tokens, vocabulary: 100, length: 9}}
        encoder:
          input: {{kind: tokens, vocabulary: 100, length: 7}}
          embed: [{{kind: token}}]
          stages: [{{dim: 12, depth: {depth}, block: [{encoder}]}}]
        decoder:
          embed: [{{kind: token, dim: 10}}]
          stages: [{{dim: {width}, depth: {depth}, block: [{decoder}]}}]
        head: {{kind: language_model, norm: none}}
        """


def handed_over(layer: str, others: str = "") -> str:
    """A decoder of two blocks whose layers start from the encoder's."""
    return streams(f"{{{layer}}}", f"{{{layer}, start: encoder}}{others}", depth=2)


def attending(layer: str, width: int) -> str:
    """A decoder whose layer attends in every step."""
    return streams("{kind: gru, bidirectional: true}", f"{{{layer}}}", depth=1, width=width)


GATED = "attend: {kind: additive, hidden: 5, gate: true}"
RECURRENT = {
    "both directions handed over": handed_over("kind: lstm, bidirectional: true"),
    "handed over, then read": handed_over("kind: gru", ", {kind: cross, heads: 2}, {kind: mlp}"),
    "reset before its map": handed_over("kind: gru, reset: before"),
    "one gate": handed_over("kind: rnn, act: relu"),
    "attends from zeros": attending(f"kind: lstm, {GATED}", 14),
    "maxout from zeros": attending(f"kind: lstm, hidden: 14, {GATED}, readout: {{kind: maxout, hidden: 6}}", 6),
    "sum from a mean": attending(f"kind: rnn, hidden: 14, start: mean, {GATED}, readout: {{kind: sum}}", 10),
}


@pytest.mark.parametrize("options", OPTIONS, ids=["eager", "fused"])
@pytest.mark.parametrize("spec", (SPECS | RECURRENT).values(), ids=SPECS | RECURRENT)
def test_what_no_preset_has(spec, options, tmp_path):
    agree_of(tmp_path, f"        name: toy{spec}", **options)


def test_states_of_a_reversible_stage_are_not_followed(tmp_path):
    embed = "embed: [{kind: token, dim: 8}]"
    spec = f"""
        name: toy
        residual: {{form: reversible}}
        input: {{kind: tokens, vocabulary: 100, length: 9}}
        encoder: {{{embed}, stages: [{{dim: 8, depth: 1, block: [{{kind: lstm}}, {{kind: mlp}}]}}]}}
        decoder: {{{embed}, stages: [{{dim: 8, depth: 1, block: [{{kind: lstm, start: encoder}}, {{kind: mlp}}]}}]}}
        """
    file = tmp_path / "spec.yaml"
    file.write_text(spec, encoding="utf-8")
    architecture = architecture_of(str(file), mode="train")
    assert training_record(architecture) is None
