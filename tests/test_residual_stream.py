"""`xfcost stream`: a block by hand, every kind of residual connection, errors, bounds of rounding, reports."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import xfcost
from helpers import table_of
from residual_blocks import BLOCKS, FULL, IMAGE, MLP, WORDS, spec_file, stage
from specs import architecture_of
from xfcost.cli import app
from xfcost.layers.feed_forward import Mlp
from xfcost.ledger.residual_stream import ResidualStream, records
from xfcost.program import functions
from xfcost.questions.stream.figure import depth_figure, matrix_figure, stream_bytes
from xfcost.questions.stream.text import document, panels, sentences
from xfcost.report.figure import look
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.shortage import Limit
from xfcost.torch_models.program import FunctionLeaf, ProgramModule
from xfcost.torch_models.residual_stream import rounding
from xfcost.torch_models.shared.norms import Affine, BatchNorm, GroupNorm, LayerNorm, RmsNorm


@pytest.fixture(scope="module")
def tiny() -> ResidualStream:
    return xfcost.stream("tiny")


def text_of(found: ResidualStream) -> str:
    return document(found).text("table")


def by_hand(x: list[list[float]], weights: dict[str, Any]) -> dict[str, list[list[float]]]:
    """The block of `tiny` on four tokens, in plain Python."""

    def linear(rows: list[list[float]], name: str) -> list[list[float]]:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return [
            [sum(a * b for a, b in zip(row, line, strict=True)) + c for line, c in zip(weight, bias, strict=True)]
            for row in rows
        ]

    def normed(rows: list[list[float]]) -> list[list[float]]:
        found = []
        for row in rows:
            mean = sum(row) / len(row)
            deviation = math.sqrt(sum((one - mean) ** 2 for one in row) / len(row) + 1e-5)
            found.append([(one - mean) / deviation for one in row])
        return found

    def plus(rows: list[list[float]], others: list[list[float]]) -> list[list[float]]:
        return [[a + b for a, b in zip(row, other, strict=True)] for row, other in zip(rows, others, strict=True)]

    packed = linear(normed(x), "0.inner.qkv")
    q, k, v = ([row[start : start + 4] for row in packed] for start in (0, 4, 8))
    mixed = []
    for query in q:
        exps = [math.exp(sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(4)) for key in k]
        mixed.append([sum(e * value[j] for e, value in zip(exps, v, strict=True)) / sum(exps) for j in range(4)])
    attention = linear(mixed, "0.inner.out")
    x1 = plus(x, attention)
    hidden = [[u * 0.5 * (1 + math.erf(u / math.sqrt(2))) for u in row] for row in linear(normed(x1), "1.inner.fc1")]
    network = linear(hidden, "1.inner.fc2")
    return {"X": x, "ΔA": attention, "X₁": x1, "ΔF": network, "X₂": plus(x1, network)}


def mean_norm(rows: list[list[float]]) -> float:
    return sum(math.sqrt(sum(one * one for one in row)) for row in rows) / len(rows)


def mean_cosine(rows: list[list[float]], others: list[list[float]]) -> float:
    cosines = [
        sum(a * b for a, b in zip(row, other, strict=True)) / math.hypot(*row) / math.hypot(*other)
        for row, other in zip(rows, others, strict=True)
    ]
    return sum(cosines) / len(cosines)


@pytest.fixture(scope="module")
def hand() -> dict[str, list[list[float]]]:
    torch.manual_seed(0)
    live = build(architecture_of("tiny"), "cpu")
    before = "streams.0.stages.0.run.0."
    weights = {name.removeprefix(before): one.tolist() for name, one in live.model.named_parameters()}
    return by_hand(live.inputs[0][0].tolist(), weights)


def test_the_matrices_of_tiny_are_those_of_a_block_by_hand(tiny, hand):
    attention, network = tiny.steps
    seen = {"X": attention.matrices.x, "ΔA": attention.matrices.delta, "X₁": attention.matrices.out}
    seen |= {"ΔF": network.matrices.delta, "X₂": network.matrices.out}
    assert network.matrices.x == attention.matrices.out
    for name, rows in hand.items():
        assert [list(row) for row in seen[name]] == [pytest.approx(row, abs=2e-6) for row in rows], name


def test_norms_shares_and_cosines_are_those_by_hand(tiny, hand):
    attention, network = tiny.steps
    for step, (x, delta, out) in ((attention, ("X", "ΔA", "X₁")), (network, ("X₁", "ΔF", "X₂"))):
        assert step.norm_x == pytest.approx(mean_norm(hand[x]), rel=1e-5)
        assert step.norm_delta == pytest.approx(mean_norm(hand[delta]), rel=1e-5)
        assert step.norm_out == step.norm_sum == pytest.approx(mean_norm(hand[out]), rel=1e-5)
        assert step.cosine == pytest.approx(mean_cosine(hand[delta], hand[x]), abs=1e-5)
        products = sum(
            a * b for row, other in zip(hand[delta], hand[out], strict=True) for a, b in zip(row, other, strict=True)
        )
        squares = sum(one * one for row in hand[out] for one in row)
        assert step.share == pytest.approx(products / squares, abs=1e-5)
    assert network.cosines == (pytest.approx(mean_cosine(hand["ΔF"], hand["ΔA"]), abs=1e-5),)


def test_a_token_without_a_delta_is_no_part_of_a_mean_cosine(monkeypatch, hand):
    def first_left_out(module: nn.Module, y_BND: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros_like(y_BND[:, :1]), y_BND[:, 1:]], 1)

    broken_network(first_left_out, monkeypatch)
    step = xfcost.stream("tiny").steps[1]
    assert step.matrices.delta[0] == (0.0,) * 4
    assert step.cosine == pytest.approx(mean_cosine(hand["ΔF"][1:], hand["X₁"][1:]), abs=1e-5)


def test_only_attention_moves_information_in_tiny(tiny):
    attention, network = tiny.steps
    assert (attention.changed.token, attention.changed.rows, attention.changed.others) == (2, 4, 3)
    assert (network.changed.token, network.changed.rows, network.changed.others) == (2, 1, 0)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_shown_as_what_it_is(name, tmp_path):
    text, expected = BLOCKS[name]
    found = xfcost.stream(spec_file(tmp_path, text))
    block = found.blocks[0]
    assert [(step.symbol, step.joins, step.changed.rows) for step in block] == expected
    assert list(found.contradictions) == []
    for step in found.steps:
        assert (step.check is None) == (step.joins == "none") == (step.norm_delta is None)
        assert step.check is None or 0 <= step.check.difference <= step.check.bound
    assert any(step.check and step.check.bound for step in found.steps) == any(symbol for symbol, *_ in expected)
    assert text_of(found)


@pytest.mark.parametrize("name", ["pre-norm", "post-norm", "reversible", "shortcut", "Conformer"])
def test_formulas_say_what_leaves_a_block(name, tmp_path):
    found = xfcost.stream(spec_file(tmp_path, BLOCKS[name][0]))
    assert [step.formula for step in found.blocks[0]] == {
        "pre-norm": ["X₁ = X + ΔA(X)", "X₂ = X₁ + ΔF(X₁)"],
        "post-norm": ["X₁ = norm(X + ΔA(X))", "X₂ = norm(X₁ + ΔF(X₁))"],
        "reversible": ["Y₁ = X₁ + ΔA(X₂)", "Y₂ = X₂ + ΔF(Y₁)"],
        "shortcut": ["X₁ = relu(S(X) + ΔA(X))"],
        "Conformer": [
            "X₁ = X + ΔF₁(X)", "X₂ = X₁ + ΔA₁(X₁)", "X₃ = X₂ + ΔA₂(X₂)", "X₄ = X₃ + ΔF₂(X₃)", "X₅ = f(X₄)",
        ],
    }[name]  # fmt: skip


def test_reversible_blocks_have_two_streams(tmp_path):
    found = xfcost.stream(spec_file(tmp_path, BLOCKS["reversible"][0]))
    first, second, third, fourth = found.steps
    assert [step.adds_to for step in found.steps] == [1, 2, 1, 2]
    assert first.norm_x == second.norm_x  # both streams are the stage's input at first
    assert (third.norm_x, fourth.norm_x) == (first.norm_out, second.norm_out)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PoolFormer", "MLP moves information too, by: Group norm."),
        ("post-norm over all tokens", "Behind the sum information moves too, by: Group norm."),
    ],
)
def test_a_norm_over_all_tokens_moves_information_and_is_named(name, words, tmp_path):
    said = " ".join(sentences(xfcost.stream(spec_file(tmp_path, BLOCKS[name][0]))))
    assert words in said
    assert "only ΔA" not in said


def test_cross_attention_brings_information_from_the_encoder(tmp_path):
    text = f"""\
input: {{kind: tokens, vocabulary: 50, length: 10}}
encoder: {{embed: [{{kind: token}}], {stage(FULL, MLP)}}}
decoder: {{embed: [{{kind: token}}], {stage(FULL, "{kind: cross, heads: 2}", MLP)}}}
head: {{kind: language_model}}
"""
    found = xfcost.stream(spec_file(tmp_path, text))
    assert found.exact
    cross = next(step for step in found.steps if step.title == "Cross-attention")
    assert (cross.symbol, cross.changed.rows, cross.changed.others) == ("ΔA₂", 1, 0)
    assert cross.changed_by_memory.rows == 10


def test_matrices_of_which_one_is_large_are_not_listed(tmp_path):
    # 16 tokens of width 8 come in, and 4 leave
    (step,) = xfcost.stream(spec_file(tmp_path, f"{IMAGE}\n{stage('{kind: vgg}', dim=8)}")).steps
    assert (step.tokens, step.width) == (4, 8)
    assert step.matrices is None


def test_a_class_token_alone_is_updated(tmp_path):
    text = """\
input: {kind: image, size: 32, channels: 3}
embed: [{kind: patch, size: 8}, {kind: class_token}]
stages: [{dim: 16, depth: 1, block: [{kind: class_attention, heads: 2}, {kind: mlp, tokens: class_token}]}]
"""
    found = xfcost.stream(spec_file(tmp_path, text))
    attention, network = found.steps
    assert found.exact
    assert (attention.tokens, network.tokens) == (1, 1)
    assert (attention.changed.rows, attention.changed.others) == (1, 1)
    assert (network.changed.token, network.changed.rows, network.changed.others) == (0, 1, 0)
    assert attention.formula == "X₁ = X + ΔA(X) only on the special tokens"


def test_the_token_in_the_middle_stands_behind_the_special_ones(tmp_path):
    # 4×4 patches behind a class token: row 2, column 2
    text = "input: {kind: image, size: 32, channels: 3}\nembed: [{kind: patch, size: 8}, {kind: class_token}]\n"
    found = xfcost.stream(spec_file(tmp_path, text + stage(FULL, MLP)))
    assert {step.changed.token for step in found.steps} == {1 + 2 * 4 + 2}


def test_a_token_that_pushes_another_out_of_an_expert_contradicts_nothing(tmp_path):
    # 24 tokens, ⌈24/4⌉ = 6 slots an expert; of eight seeds some make a token that comes to an expert push one out
    experts = "{kind: moe, experts: 4, active: 1, capacity: 1.0, expert: {kind: mlp, ratio: 1}}"
    file = spec_file(tmp_path, f"{WORDS}\n{stage(FULL, experts, dim=8)}")
    found = [xfcost.stream(file, seed=seed) for seed in range(8)]
    pushed = [one for one in found if any(step.tokens_compete and step.changed.others for step in one.steps)]
    assert pushed
    assert [text for one in found for text in one.contradictions] == []


def test_a_token_that_no_other_reads_contradicts_nothing(tmp_path):
    found = xfcost.stream(spec_file(tmp_path, BLOCKS["causal"][0]), N=2)  # the middle token of two is the last
    assert (found.steps[0].changed.token, found.steps[0].changed.others) == (1, 0)
    assert found.exact


def test_shared_tables_and_states_of_an_encoder_are_those_of_the_model(tmp_path):
    shared = "{kind: full, heads: 2, bias: {kind: buckets, share: table}}"
    assert xfcost.stream(spec_file(tmp_path, f"{WORDS}\n{stage(shared, MLP, depth=2)}")).exact
    text = """\
residual: none
input: {kind: tokens, vocabulary: 50, length: 6}
encoder: {embed: [{kind: token}], stages: [{dim: 8, depth: 1, block: [{kind: lstm}]}]}
decoder: {embed: [{kind: token}], stages: [{dim: 8, depth: 1, block: [{kind: lstm, start: encoder}]}]}
head: {kind: language_model}
"""
    found = xfcost.stream(spec_file(tmp_path, text))
    assert [step.changed.rows for step in found.steps] == [3, 3]  # the middle token and all later ones


def broken(kind: type[nn.Module], wrong: Callable[[nn.Module, Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant an error in what `kind` returns."""
    right = kind.forward

    def forward(self: nn.Module, *inputs: Any) -> Any:
        return wrong(self, right(self, *inputs))

    monkeypatch.setattr(kind, "forward", forward)


def broken_network(wrong: Callable[[nn.Module, Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in every `mlp`."""
    only = lambda module, out: wrong(module, out) if isinstance(module.config, Mlp) else out  # noqa: E731
    broken(ProgramModule, only, monkeypatch)


def broken_function(function: Any, wrong: Callable[[nn.Module, Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in every leaf of a program that runs `function`."""
    broken(FunctionLeaf, lambda leaf, out: wrong(leaf, out) if leaf.function is function else out, monkeypatch)


@pytest.mark.parametrize("name", ["pre-norm", "post-norm", "SwinV2", "reversible", "ResNet", "shortcut", "MobileNet"])
def test_a_sum_that_is_not_the_sum_is_seen(name, tmp_path, monkeypatch):
    broken_function(functions.added, lambda leaf, out: out * (1 + 2e-5), monkeypatch)
    found = xfcost.stream(spec_file(tmp_path, BLOCKS[name][0]))
    assert not found.exact


@pytest.mark.parametrize(
    "name", ["post-norm", "post-norm of roots", "post-norm over all tokens", "batch norm behind the sum"]
)
def test_a_norm_that_is_not_the_norm_is_seen(name, tmp_path, monkeypatch):
    kinds = {"post-norm": LayerNorm, "post-norm of roots": RmsNorm, "post-norm over all tokens": GroupNorm}
    broken(
        kinds.get(name, BatchNorm),
        lambda leaf, out: out if out.dtype == torch.float64 else out * (1 + 1e-3),
        monkeypatch,
    )
    assert not xfcost.stream(spec_file(tmp_path, BLOCKS[name][0])).exact


def test_deltas_of_zero_are_said(tmp_path, monkeypatch):
    broken_function(functions.multiplied, lambda leaf, out: out * 0, monkeypatch)
    found = xfcost.stream(spec_file(tmp_path, BLOCKS["LayerScale"][0]))
    assert [(step.norm_delta, step.cosine, step.share) for step in found.steps] == [(0, None, 0)] * 2
    assert found.exact


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (lambda patch: broken_network(lambda leaf, out: out + out.roll(1, dims=1), patch),
         "MLP: declared per-token, and 1 row of other tokens changed"),
        (lambda patch: broken_function(functions.product, lambda leaf, out: out * 0 + 1, patch),
         "declared mixing, and no row of another token changed"),
    ],
    ids=["a network mixes", "attention mixes nothing"],
)  # fmt: skip
def test_another_mixing_than_the_declared_one_is_seen(planted, said, tmp_path, monkeypatch):
    planted(monkeypatch)
    assert said in " ".join(xfcost.stream(spec_file(tmp_path, BLOCKS["pre-norm"][0])).contradictions)


def test_disagreement_ends_with_one(monkeypatch):
    broken_network(lambda leaf, out: out + out.mean(1, keepdim=True), monkeypatch)
    assert CliRunner().invoke(app, ["stream", "tiny"]).exit_code == 1


def test_the_terminal_shows_every_number_of_the_panels(tiny):
    text = text_of(tiny)
    for step in tiny.steps:
        for matrix in (step.matrices.x, step.matrices.delta, step.matrices.out):
            for row in matrix:
                assert "".join(f"{one:>6.2f}" for one in row).replace("-0.00", " 0.00") in text
    largest = max(step.check.difference for step in tiny.steps)
    assert f"the largest difference is {largest:.2g}" in " ".join(text.split())


def test_json_csv_and_the_frame_have_every_number(tiny):
    data = json.loads(document(tiny).text("json"))
    assert [step["norm_delta"] for step in data["sublayers"]] == [step.norm_delta for step in tiny.steps]
    assert data["sublayers"][1]["formula"] == "X₂ = X₁ + ΔF(X₁)"
    assert data["exact"] is True
    assert tiny.to_json() == document(tiny).text("json")
    rows = table_of(document(tiny).text("csv"))
    assert [float(row["share"]) for row in rows] == [step.share for step in tiny.steps]
    assert [row["changed_rows"] for row in rows] == ["4", "1"]
    assert list(tiny.to_frame().columns) == list(records(tiny)[0]) == list(rows[0])


def test_the_picture_of_a_small_model_has_every_number(tiny):
    with look():
        figure = matrix_figure(tiny, panels(tiny))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["X", "ΔA(X)", "X₁", "ΔF(X₁)", "X₂"]
    for axes, matrix in zip(figure.axes, [tiny.steps[0].matrices.x, tiny.steps[0].matrices.delta], strict=False):
        assert [one.get_text() for one in axes.texts] == [
            f"{one:.2f}".replace("-0.00", "0.00") for row in matrix for one in row
        ]
        (image,) = axes.images
        assert image.get_array().tolist() == [list(row) for row in matrix]
        assert image.norm.vmin == -image.norm.vmax  # white is zero
    assert stream_bytes(tiny, ".svg") == stream_bytes(tiny, ".svg")


def test_the_picture_of_a_larger_model_has_norms_and_cosines_over_depth(tmp_path):
    found = xfcost.stream(spec_file(tmp_path, BLOCKS["pre-norm"][0]))
    assert panels(found) == []
    with look():
        above, below = depth_figure(found).axes
    (line,) = above.lines
    assert list(line.get_ydata()) == [step.norm_out for step in found.steps]
    drawn = {(round(x), y) for points in below.collections for x, y in points.get_offsets()}
    assert drawn == {(place, step.cosine) for place, step in enumerate(found.steps)}


def test_a_seed_is_a_model_and_leaves_torch_s_own_numbers_alone(tiny):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again, other = xfcost.stream("tiny"), xfcost.stream("tiny", seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert again.steps == tiny.steps
    assert other.steps != tiny.steps
    assert other.seed == 1


def test_the_command_writes_reports_and_pictures(tmp_path):
    for name, start in (("a.svg", b"<?xml"), ("a.png", b"\x89PNG"), ("a.csv", b"system,"), ("a.json", b"{")):
        done = CliRunner().invoke(app, ["stream", "tiny", "-o", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).read_bytes().startswith(start)
        assert ("Self-attention" in done.stdout) == (name in {"a.svg", "a.png"})  # beside a picture, the table
    done = CliRunner().invoke(app, ["stream", "tiny", "-o", str(tmp_path / "b.svg"), "--format", "csv"])
    assert done.stdout.startswith("system,")


def test_what_does_not_fit_is_refused_with_its_bytes(monkeypatch):
    monkeypatch.setattr("xfcost.torch_models.memory.peak.tightest", lambda: Limit(10_000, "free memory"))
    with pytest.raises(xfcost.XfcostError, match=r"Tiny needs [\d,]+ bytes .* leaves 10,000 bytes"):
        xfcost.stream("tiny")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_sums_are_within_their_bound_and_a_little_more_is_not(dtype):
    torch.manual_seed(1)
    unit = rounding.unit_of(dtype)
    x, first, second = (torch.randn(1, 50, 64).to(dtype) for _ in range(3))
    stream = rounding.plus(rounding.plus(rounding.entering(x), first, unit), second, unit)
    out = (x + first) + second
    check = rounding.compared(out, stream)
    assert check.within
    assert 0 < check.bound < 40 * unit
    off = out.double() + 1.01 * stream.bound + (out.double() - stream.value).abs()
    assert not rounding.compared(off, stream).within
    rows = rounding.plus(rounding.entering(x), first[:, :1], unit)
    assert torch.equal(rows.value[:, 1:], x[:, 1:].double())
    assert float(rows.bound[:, 1:].max()) == 0


@pytest.mark.parametrize("kind", [LayerNorm, RmsNorm])
def test_a_norm_s_bound_holds_for_the_worst_that_its_input_may_differ(kind):
    # x_i / sqrt(mean(x^2)) grows most where x_i moves away from 0 and all others towards it
    torch.manual_seed(3)
    module, x = kind(64).double(), torch.randn(1, 1, 64, dtype=torch.float64)
    off = torch.full_like(x, 1e-7)
    with torch.no_grad():
        found = rounding.through(rounding.Worked(x, off), (module,), rounding.unit_of(torch.float64))
        centred = x - x.mean() if kind is LayerNorm else x
        for number in range(64):
            away = -centred.sign() * off
            away[..., number] *= -1
            difference = (module(x + away) - module(x))[..., number].abs()
            assert difference <= found.bound[..., number] * 1.001
            assert kind is LayerNorm or difference >= found.bound[..., number] * 0.9


@pytest.mark.parametrize("kind", [LayerNorm, RmsNorm, GroupNorm, BatchNorm, Affine])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_norms_are_within_their_bound_and_it_is_not_wide(kind, size):
    torch.manual_seed(2)
    module = kind(64)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    x, delta = (size * (1 + torch.randn(1, 30, 64)) for _ in range(2))
    unit = rounding.unit_of(torch.float32)
    with torch.no_grad():
        out = module.eval()(x + delta)
        stream = rounding.through(rounding.plus(rounding.entering(x), delta, unit), (module,), unit)
        assert rounding.compared(out, stream).within
        # of first order, with n roundings in a mean over n numbers
        assert stream.bound.max() < 64 * 30 * 64 * unit * max(1.0, float(out.abs().max()))
        assert not rounding.compared(out + 4 * stream.bound, stream).within
        double = copy.deepcopy(module).double()
        if kind is RmsNorm:
            double.eps = torch.finfo(torch.float32).eps  # what the model's own dtype takes by default
        assert torch.allclose(stream.value, double(x.double() + delta.double()), rtol=1e-12)
