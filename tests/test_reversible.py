"""Reversible residuals, and the Reformer that is made of them."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

import places
from calibrated import Ticks
from modules import counted_by_torch
from saved import saved_bytes
from specs import counted
from strategies import both_accounts, exact, placed, stack
from transformers_models import TheirWeights, parameters, transformers
from xfcost.counting.forward import count
from xfcost.formulas.component import Place, Residual
from xfcost.layers.feed_forward import Mlp
from xfcost.ledger.errors import SpecError
from xfcost.ledger.grid import Grid
from xfcost.spec.architecture import Architecture, Part
from xfcost.spec.checks import check_block
from xfcost.spec.reader import Source
from xfcost.torch_models.build import BuiltModel, StageModel, build
from xfcost.torch_models.memory.peak import peak_bytes
from xfcost.torch_models.program import ProgramModule
from xfcost.torch_models.shared.reversible import ReversibleRun
from xfcost.torch_models.timing.rows import row_seconds

# Reversible residuals ─────────────────────────────────────────────────────────────────────────────────────────────────

REVERSIBLE_TOKENS, REVERSIBLE_DIM = 6, 12
FULL = {"kind": "full", "heads": 3}
MLP = {"kind": "mlp", "ratio": 2}


def reversible_spec(*, depth: int = 3, block: Sequence[Any] = (FULL, MLP), **residual: Any):
    over = {"residual": {"form": "reversible"} | residual, "head": {"kind": "language_model"}}
    return stack(*block, dim=REVERSIBLE_DIM, depth=depth, length=REVERSIBLE_TOKENS, **over)


def learning(architecture: Architecture, device: str = "cpu") -> BuiltModel:
    torch.manual_seed(0)
    live = build(architecture, device)
    return live._replace(model=live.model.double().requires_grad_())


def stage_of(live: BuiltModel, stream: int = 0) -> StageModel:
    return live.model.streams[stream].stages[0]


def plainly(stage: StageModel, x_BND: Tensor, memory_BMD: Tensor | None = None) -> Tensor:
    """y₁ = x₁ + f(norm(x₂)), y₂ = x₂ + g(norm(y₁)), written out."""
    x1, x2 = x_BND, x_BND
    for f, g in stage.run:
        x1 = x1 + f.branch(x2, memory_BMD)
        x2 = x2 + g.branch(x1, memory_BMD)
    return torch.cat([x1, x2], -1) if stage.exit.config.join == "concatenate" else (x1 + x2) / 2


def alike_gradients(answers: tuple[Tensor, Tensor], learned: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of the second, after they were held against those of the first."""
    ours, plain = (torch.autograd.grad(answer.sin().sum(), learned) for answer in answers)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    return plain


@pytest.mark.parametrize("how", ["concatenate", "mean"])
@pytest.mark.parametrize("where", ["pre", "res_post"])
def test_outputs_and_gradients_are_those_of_the_formula(how, where, tmp_path):
    data = reversible_spec(
        place=where, join=how, block=[FULL, {"kind": "mlp", "residual": {"form": "reversible", "norm": "none"}}]
    )
    stage = stage_of(learning(placed(data, tmp_path)))
    x = torch.randn(2, REVERSIBLE_TOKENS, REVERSIBLE_DIM, dtype=torch.float64, requires_grad=True)
    answers = stage(x, None), plainly(stage, x)
    torch.testing.assert_close(*answers, rtol=0, atol=0)
    assert all(plain.abs().max() > 0 for plain in alike_gradients(answers, [x, *stage.parameters()]))
    with torch.no_grad():
        assert torch.equal(stage(x, None), answers[1])


def test_gradients_reach_shared_tables(tmp_path):
    block = [{"kind": "relative", "heads": 3, "share": "biases"}, MLP]
    live = learning(placed(reversible_spec(block=block), tmp_path))
    stage, x = stage_of(live), torch.randn(2, REVERSIBLE_TOKENS, REVERSIBLE_DIM, dtype=torch.float64)
    learned = [*stage.parameters(), *live.model.shared.parameters()]
    assert live.model.shared["biases"].weight.shape == (2, REVERSIBLE_DIM)
    gradients = alike_gradients((stage(x, None), plainly(stage, x)), learned)
    assert gradients[-1].abs().max() > 0


def test_gradients_reach_another_stream(tmp_path):
    data = reversible_spec(block=[{"kind": "full", "heads": 3}, {"kind": "cross", "heads": 3}])
    decoder = {"embed": data.pop("embed"), "stages": data.pop("stages")}
    stage = {"dim": REVERSIBLE_DIM, "depth": 1, "block": [FULL, MLP], "residual": {"form": "ordinary"}}
    encoder = {"embed": [{"kind": "token"}], "stages": [stage]}
    stage = stage_of(learning(placed(data | {"encoder": encoder, "decoder": decoder}, tmp_path)), 1)
    assert isinstance(stage.run, ReversibleRun)
    x, memory = (
        torch.randn(2, REVERSIBLE_TOKENS, REVERSIBLE_DIM, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    gradients = alike_gradients((stage(x, memory), plainly(stage, x, memory)), [x, memory, *stage.parameters()])
    assert gradients[1].abs().max() > 0


def kept(folder: Path, depth: int, *, reversible: bool, device: str) -> int:
    data = reversible_spec(depth=depth)
    data["residual"] = {"form": "reversible" if reversible else "ordinary"}
    stage = stage_of(learning(placed(data, folder), device))
    return saved_bytes(
        stage, (torch.empty(2, REVERSIBLE_TOKENS, REVERSIBLE_DIM, dtype=torch.float64, device=device), None)
    )


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_training_keeps_does_not_grow_with_depth(device, tmp_path):
    # two streams of N·d float64, of two samples
    assert {kept(tmp_path, depth, reversible=True, device=device) for depth in (1, 4, 16)} == {
        2 * 2 * REVERSIBLE_TOKENS * REVERSIBLE_DIM * 8
    }
    one, two, three = (kept(tmp_path, depth, reversible=False, device=device) for depth in (1, 2, 3))
    assert (
        three - two == two - one > 2 * 2 * REVERSIBLE_TOKENS * REVERSIBLE_DIM * 8
    )  # at least the inputs of two sub-layers per block


@pytest.mark.parametrize("how", [None, "concatenate", "mean"])
def test_counted_and_traced_agree_and_the_head_is_wider(how, tmp_path):
    ledger = both_accounts(placed(reversible_spec(join=how), tmp_path, batch=2))
    exact(ledger)
    rows = {row.path: row for row in ledger.rows}
    end = rows["stages.0.residual.join"]
    wide = REVERSIBLE_DIM if how == "mean" else 2 * REVERSIBLE_DIM
    assert rows["head.linear"].macs == 2 * REVERSIBLE_TOKENS * wide * 11
    assert rows["head.norm"].params == 2 * wide
    assert (end.moved, end.flops) == (
        (0, 2 * 2 * REVERSIBLE_TOKENS * REVERSIBLE_DIM)
        if how == "mean"
        else (2 * 2 * REVERSIBLE_TOKENS * REVERSIBLE_DIM, 0)
    )
    assert (end.order, end.block) == ("O(N·d)" if how == "mean" else None, "stage 1 · exit")


def test_blocks_cost_what_they_cost_with_ordinary_residuals(tmp_path):
    reversible = reversible_spec(join="mean")
    ordinary = reversible | {"residual": {}}
    rows = [count(placed(data, tmp_path)).rows for data in (reversible, ordinary)]
    assert all(row.recomputed == row.path.startswith("stages.0.block") for row in rows[0])
    assert not any(row.recomputed for row in rows[1])
    rows[0] = [msgspec.structs.replace(row, recomputed=False) for row in rows[0]]
    ends = [row for row in rows[0] if row.path.startswith("stages.0.residual")]
    assert [row for row in rows[0] if row not in ends] == list(rows[1])
    assert len(ends) == 1


def test_training_keeps_the_attention_matrices_of_one_layer_at_a_time(tmp_path):
    # 5 layers of 3 heads of 6×6 float32, and 2 layers of another stage that keeps its own
    data = reversible_spec(depth=5, join="mean")
    kept = {"dim": REVERSIBLE_DIM, "depth": 2, "block": [FULL, MLP], "residual": {}}
    one, both = (
        count(placed(data | {"stages": stages}, tmp_path, batch=2))
        for stages in (data["stages"], [*data["stages"], kept])
    )
    layer = 2 * 3 * REVERSIBLE_TOKENS**2 * 4
    assert (one.attention_kept_bytes(), one.attention_memory()["all_layers"]) == (layer, 5 * layer)
    assert (both.attention_kept_bytes(), both.attention_memory()["all_layers"]) == (3 * layer, 7 * layer)


class Wider(Mlp, frozen=True, kw_only=True, tag="wider"):
    def out(self, spot: Place) -> tuple[Grid, int]:
        return spot.grid, 2 * spot.dim


def test_a_sub_layer_that_changes_the_width_is_refused():
    spot, residual = (
        Place(grid=Grid((REVERSIBLE_TOKENS,)), dim=REVERSIBLE_DIM, out_dim=REVERSIBLE_DIM),
        Residual(form="reversible"),
    )
    parts = [Part("it", component, spot, residual) for component in (Mlp(), Wider())]
    check_block(("block",), parts[:1] * 2, residual, Source("x.yaml"))
    with pytest.raises(SpecError, match=r"block\[1\].kind: 'wider' changes the grid or the width"):
        check_block(("block",), parts, residual, Source("x.yaml"))


# Reformer as a whole ──────────────────────────────────────────────────────────────────────────────────────────────────

REFORMER_DIM = 12


spot = partial(places.at, dim=REFORMER_DIM)


def feed_forward(chunks: int, tokens: int, dim: int = REFORMER_DIM, device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    with torch.device(device):
        return ProgramModule(Mlp(chunks=chunks), spot(tokens, dim=dim))


def reformer_spec(block: list[Any], tokens: int, **more: Any) -> dict[str, Any]:
    return stack(*block, dim=REFORMER_DIM, depth=2, length=tokens, **more)


def test_the_peak_of_chunks_is_what_is_told():
    tokens, dim = 64, 8
    whole, parts = (
        peak_bytes(feed_forward(chunks, tokens, dim, "meta"), (torch.empty(1, tokens, dim, device="meta"),))
        for chunks in (1, 8)
    )
    weights = 4 * sum(weight.numel() for weight in feed_forward(1, tokens, dim, "meta").parameters())
    hidden, stream = 4 * tokens * 4 * dim, 4 * tokens * dim
    assert whole == weights + stream + 2 * hidden  # before and after the activation
    # the last chunk's hidden elements stand beside the answers of the seven before it; less than joining all takes
    assert parts == weights + stream + 2 * stream
    assert 2 * hidden // 8 + stream * 7 // 8 < 2 * stream


def test_training_keeps_the_hidden_elements_of_chunks_unless_they_are_worked_out_again(tmp_path):
    kept = []
    for chunks, form in ((1, "ordinary"), (8, "ordinary"), (8, "reversible")):
        block = [{"kind": "full", "heads": 3}, {"kind": "mlp", "chunks": chunks}]
        live = build(placed(reformer_spec(block, 64, residual={"form": form}), tmp_path))
        stage = live.model.requires_grad_().streams[0].stages[0]
        kept.append(saved_bytes(stage, (torch.empty(1, 64, REFORMER_DIM, device="meta"), None)))
    assert kept[0] == kept[1]
    assert kept[2] == 4 * 2 * 64 * REFORMER_DIM


def test_a_leaf_that_is_called_for_every_chunk_took_the_sum(tmp_path):
    live = build(placed(reformer_spec([{"kind": "mlp", "chunks": 4}], 8), tmp_path), "cpu")
    seconds = row_seconds(live, lambda: live.model(*live.inputs), Ticks(1.0))
    assert seconds["stages.0.block.0.fc1"] == 2 * 4.0  # in two blocks
    assert seconds["stages.0.block.0.join"] == 2 * 1.0


@pytest.mark.parametrize(
    ("settings", "macs"),
    [
        (["stages.0.pattern.2.0.rounds=1"], 1_286_376_259_584),
        ([], 1_383_013_023_744),
        (["stages.0.pattern.2.0.buckets=[16, 32]"], 1_359_659_139_072),
    ],
)
def test_reformer_enwik8_is_the_public_count_at_8192(settings, macs):
    """transformers 5.23.0, ReformerModelWithLMHead, torch's FlopCounterMode, one input of 8192 characters."""
    ledger = counted("reformer-enwik8", *settings, tokens=(8192,))
    assert ledger.total("macs") == macs
    assert ledger.total("params") == 149_182_722


REFORMER_TOKENS, VOCABULARY = 24, 17


def ours_of(folder: Path, tokens: int) -> Architecture:
    mlp = {"kind": "mlp", "hidden": 20, "act": "relu"}
    local = {"kind": "blockwise", "block": 4, "before": 4, "heads": 3, "causal": True, "projection_bias": False}
    lsh = {"kind": "lsh", "rounds": 2, "bucket": 4, "buckets": [2, 4], "heads": 3, "causal": "approximate"}
    over = {
        "embed": [{"kind": "token"}, {"kind": "position", "form": "axial", "shape": [6, 4], "widths": [5, 7]}],
        "residual": {"form": "reversible"},
        "stages": [{"dim": REFORMER_DIM, "depth": 4, "pattern": [[local, mlp], [lsh, mlp]]}],
        "head": {"kind": "language_model", "bias": True},
    }
    return placed(stack(length=tokens, vocabulary=VOCABULARY, **over), folder, batch=2)


def theirs_of() -> nn.Module:
    config = transformers.ReformerConfig(
        vocab_size=VOCABULARY, hidden_size=REFORMER_DIM, feed_forward_size=20, num_attention_heads=3,
        attention_head_size=4, attn_layers=["local", "lsh"] * 2, axial_pos_shape=(6, 4), axial_pos_embds_dim=(5, 7),
        max_position_embeddings=24, local_attn_chunk_length=4, local_num_chunks_after=0, lsh_attn_chunk_length=4,
        num_buckets=[2, 4], num_hashes=2, is_decoder=True, hash_seed=3, layer_norm_eps=1e-5,
        tie_word_embeddings=False, use_cache=False,
    )  # fmt: skip
    return transformers.ReformerModelWithLMHead(config).double().eval().requires_grad_(requires_grad=False)


def copied(model: nn.Module, theirs: nn.Module) -> None:
    """Their weights, and the rotations that they draw from their seed, into ours."""
    weights, stream = TheirWeights(theirs), model.streams[0]
    weights.put(stream.embed[0].lookup, "reformer.embeddings.word_embeddings")
    for axis, table in enumerate(stream.embed[1].axes.children()):
        table.weight.copy_(weights.take(f"reformer.embeddings.position_embeddings.weights.{axis}").flatten(0, 1))
    for number, (mixer, mlp) in enumerate(stream.stages[0].run):
        layer = f"reformer.encoder.layers.{number}"
        weights.put(mixer.residual_norm, f"{layer}.attention.layer_norm")
        feed = f"{layer}.feed_forward"
        weights.put_mlp(mlp, f"{feed}.dense.dense", f"{feed}.output.dense", f"{feed}.layer_norm")
        weights.put(mixer.inner.out, f"{layer}.attention.output.dense")
        theirs_in = f"{layer}.attention.self_attention"
        if number % 2:
            weights.put(mixer.inner.query_key, f"{theirs_in}.query_key")
            weights.put(mixer.inner.value, f"{theirs_in}.value")
            torch.manual_seed(3)
            drawn = torch.randn(3, 4, 2, 3, dtype=torch.float64)  # heads, head width, rounds, (2 + 4)/2 columns
            mixer.inner.rotate.columns_HKr.copy_(drawn.flatten(2))
        else:
            weights.put_joined(mixer.inner.qkv, *(f"{theirs_in}.{name}" for name in ("query", "key", "value")))
    weights.put(model.head.norm, "reformer.encoder.layer_norm")
    model.head.linear.weight.copy_(weights.take("lm_head.decoder.weight"))
    model.head.linear.bias.copy_(weights.take("lm_head.bias"))


def numbers(tokens: int) -> Tensor:
    return torch.randint(VOCABULARY, (2, tokens), generator=torch.Generator().manual_seed(5))


def test_the_whole_model_is_that_of_transformers(tmp_path):
    theirs, architecture = theirs_of(), ours_of(tmp_path, REFORMER_TOKENS)
    ledger, live = count(architecture), build(architecture, "cpu")
    model = live.model.double()
    copied(model, theirs)
    expected, macs = counted_by_torch(lambda: theirs(numbers(REFORMER_TOKENS)).logits)
    torch.testing.assert_close(model(numbers(REFORMER_TOKENS)), expected, rtol=1e-10, atol=1e-11)
    assert macs == ledger.total("macs")
    # from release 5.24 on they hold the head's bias twice, and read one of them
    head = theirs.lm_head
    twice = 0 if head.bias is head.decoder.bias else head.bias.numel()
    assert parameters(theirs) - twice == ledger.total("params")


@pytest.mark.parametrize("tokens", [5, 11])
def test_padded_inputs_give_the_same_numbers(tokens, tmp_path):
    # They pad the input to whole chunks once, at the entry; ours pads in the mixers. What is read is the same.
    theirs = theirs_of()
    model = build(ours_of(tmp_path, tokens), "cpu").model.double()
    copied(model, theirs)
    torch.testing.assert_close(model(numbers(tokens)), theirs(numbers(tokens)).logits, rtol=1e-10, atol=1e-11)
