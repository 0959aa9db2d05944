"""Every column that is exported, held against a value worked out by hand.

Two ways. A row made up so that no two of its fields are equal shows that no column is another's. A small spec, whose
every number is worked out here, shows that the figures are right: six tokens and one special token, a mixture of
experts (of whose parameters a token uses some), two blocks, two samples; a text of the same block decodes.
"""

import json

import msgspec
import pytest

import xfcost
from helpers import PLAIN, report_text, stdout_of, table_of
from strategies import stack, stored
from xfcost.ledger.accounts import AccountFigures, Cached, Traffic, TrainingFigures, WeightsRead
from xfcost.ledger.json_objects import grouped, records
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrices import AttentionCore, Matrix
from xfcost.ledger.metadata import Metadata
from xfcost.ledger.operation import Operation
from xfcost.parts.training.result import Training, TrainingStep
from xfcost.report.document import to_csv

# ── no column is another's ───────────────────────────────────────────────────────────────────────────────────────────

ROW = Operation(
    path="stage.block.scores", component="stage.block", title="Title", mixing="local", content_dependent=True,
    reads="W²", reads_tokens=2, order="O(N)", times=3, params=1050, idle_params=50, macs=5, flops=6,
    attention_entries=7, comparisons=8, moved=9, cache=Cached(10, per_token=11),
    weights_read=WeightsRead(12, at_most=13), bound=False, core=AttentionCore(1, 2, 3, 4),
    traffic=Traffic(plain=14, tiled=15), backward_macs=16,
    training=TrainingFigures(saved_macs=17, traced_backward_macs=26, kept_bytes=27), heads=18, pairs=19, stage="Stage",
    block="Block", shared="table",
    traced=AccountFigures(params=20, macs=21, flops=22, comparisons=23, moved=24, cached=25), seconds=28.5,
    matrix=Matrix(entries=31, alive=32, saved=33, statistics=34),
    dispatched=AccountFigures(macs=35, flops=36, comparisons=37, moved=38),
)  # fmt: skip
COLUMNS = {
    "path": "stage.block.scores", "operation": "scores", "title": "Title", "mixing": "local", "content_dependent": True,
    "reads": "W²", "reads_tokens": 2, "order": "O(N)", "stage": "Stage", "block": "Block", "times": 3, "params": 1050,
    "active_params": 1000,  # 1050 - 50
    "bound": False, "macs": 5, "flops": 6, "attention_entries": 7, "matrix_entries": 31, "matrix_statistics": 34,
    "matrices_alive": 32, "matrix_kept": 33, "comparisons": 8, "moved": 9, "cached": 10, "cached_per_token": 11,
    "read": 12, "plain_traffic_bytes": 14, "tiled_traffic_bytes": 15, "heads": 18, "pairs": 19, "shared": "table",
    "traced_params": 20, "traced_macs": 21, "traced_flops": 22, "traced_comparisons": 23, "traced_moved": 24,
    "traced_cached": 25, "dispatched_macs": 35, "dispatched_flops": 36, "dispatched_comparisons": 37,
    "dispatched_moved": 38, "seconds": 28.5,
}  # fmt: skip
LEARNING = {"backward_macs": 16, "traced_backward_macs": 26, "kept_bytes": 27, "backward_saved": 17}
STEP = TrainingStep(
    optimizer="adamw", tokens=1, forward_macs=2, backward_macs=3, recomputed_macs=4, model_flops=5, update_flops=6,
    trained_params=13, params_bytes=7, gradients_bytes=8, master_bytes=9, optimizer_bytes=10, kept_bytes=11,
    attention_kept_bytes=12,
)  # fmt: skip


def made_up(*rows, training=False):
    metadata = Metadata(name="x", tokens="1", grid_tokens=1)
    return Ledger(metadata=metadata, rows=rows, training=Training(step=STEP) if training else None)


def test_no_column_of_a_row_is_another():
    assert records(made_up(ROW)) == [COLUMNS]
    assert records(made_up(ROW, training=True)) == [COLUMNS | LEARNING]
    assert len({str(value) for value in (COLUMNS | LEARNING).values()}) == len(COLUMNS | LEARNING)
    other = records(made_up(msgspec.structs.replace(ROW, content_dependent=False, bound=True)))[0]
    assert (other["content_dependent"], other["bound"]) == (False, True)


def test_the_csv_is_those_columns():
    text = report_text(made_up(ROW, training=True), "csv")
    (row,) = table_of(text)
    assert row == {name: str(value) for name, value in (COLUMNS | LEARNING).items()}
    # missing is empty and zero is 0
    bare = Operation(path="a", title="b")
    (row,) = table_of(to_csv(records(made_up(bare))))
    assert (row["macs"], row["traced_macs"], row["heads"]) == ("0", "", "")


# Three blocks each: 3·value; what autograd keeps is of all blocks already; the first block's backward saves 17.
SUMMED = ("params", "macs", "flops", "attention_entries", "comparisons", "moved", "cached", "active_params")
SUMMED += tuple(name for name in COLUMNS if name.startswith(("traced_", "dispatched_")))
# 3·16 - 17 and 3·26 - 17
LEARNT = {"backward_macs": 31, "traced_backward_macs": 61, "kept_bytes": 27}
TOTALS = {name: 3 * COLUMNS[name] for name in SUMMED} | LEARNT


def test_no_total_is_another():
    (group,) = [one for one in grouped(made_up(ROW, training=True), "mixing") if one["mixing"] == "local"]
    assert group == {"mixing": "local"} | TOTALS
    for name, label in (("stage", "Stage"), ("block", "Block"), ("operation", "scores")):
        assert [one[name] for one in grouped(made_up(ROW), name)] == [label]
    totals = json.loads(made_up(ROW, training=True).to_json())["totals"]
    # 4 bytes each of 3150 parameters; 4 bytes an entry and a statistic: 3·(33 + 34) are kept, 32 + 34 are alive
    more = {"held_bytes": 12_600, "attention_bytes": 804, "attention_peak_bytes": 264, "bound_params": 0}
    more |= {name: 3 * COLUMNS[name] for name in ("plain_traffic_bytes", "tiled_traffic_bytes") if name in totals}
    assert totals == TOTALS | more
    bound = made_up(msgspec.structs.replace(ROW, bound=True))
    assert json.loads(bound.to_json())["totals"]["bound_params"] == 3150


# ── the figures of a small spec ──────────────────────────────────────────────────────────────────────────────────────

# d = 4, 2 heads of d_k = 2, E = 3 experts of which a token uses A = 2, of hidden width 5.
BLOCK = [
    {"kind": "full", "heads": 2},
    {"kind": "moe", "experts": 3, "active": 2, "expert": {"kind": "mlp", "hidden": 5}},
]


@pytest.fixture
def image(tmp_path):
    """Patches of 2×2 of an image of 4×6: N = 6 tokens, with [CLS] 7. B = 2 samples are asked for."""
    over = {
        "name": "Image",
        "input": {"kind": "image", "size": [4, 6], "channels": 1},
        "embed": [{"kind": "patch", "size": 2}, {"kind": "class_token"}, {"kind": "position"}],
        "head": {"kind": "classifier", "pool": "class_token", "classes": 3},
    }
    return stored(stack(*BLOCK, dim=4, depth=2, **over), tmp_path, "image.yaml")


@pytest.fixture
def text(tmp_path):
    """The same block over 6 token numbers of 11; the scores over the vocabulary use the table's rows."""
    head = {"kind": "language_model"}
    causal = BLOCK[0] | {"causal": True}
    return stored(stack(causal, BLOCK[1], dim=4, depth=2, length=6, name="Text", head=head), tmp_path, "text.yaml")


# What the dispatched account sees of a row.
RUN = ("macs", "flops", "comparisons", "moved")
NOTHING = {
    "content_dependent": False, "reads": None, "reads_tokens": None, "params": 0, "active_params": 0, "bound": False,
    "macs": 0, "flops": 0, "comparisons": 0, "moved": 0, "cached": 0, "cached_per_token": 0,
    "plain_traffic_bytes": None, "tiled_traffic_bytes": None, "heads": None, "pairs": None, "shared": None,
    "seconds": None,
}  # fmt: skip
OF_SCORES = {"mixing": "global", "content_dependent": True, "reads": "N", "reads_tokens": 7, "heads": 2}
STAGE = {"times": 2, "stage": "stage 1"}
# path -> what of its row is not nothing; 7·2 = 14 tokens with [CLS] and both samples.
IMAGE_ROWS = {
    # 12 tokens · 4 pixels · 4; twice that and 12·4 biases; 4·4 weights and 4 biases
    "embed.0.projection": {"macs": 192, "flops": 432, "params": 20, "active_params": 20},
    # 14·4 elements written
    "embed.1.prepend": {"params": 4, "active_params": 4, "moved": 56},
    # 7·4, a row per token
    "embed.2.table": {"params": 28, "active_params": 28, "bound": True},
    # 14·4·12 MACs, and biases 14·12; 4·12 + 12 parameters
    "stages.0.block.0.qkv": STAGE | {"macs": 672, "flops": 1512, "params": 60, "active_params": 60},
    # 2·7·7·4 MACs; per head 2·7·7 scores and per sample 49 pairs. In bytes, of 2·2 cores each: (7 + 7)·(2 + 2) + 4·49
    # = 252 numbers, tiled in one block of keys 7·4 + 7·(4 + 2) + 4·7 = 98.
    "stages.0.block.0.scores": STAGE
    | OF_SCORES
    | {"macs": 392, "flops": 784, "pairs": 49, "plain_traffic_bytes": 4032, "tiled_traffic_bytes": 1568},
    # 5 FLOPs for each of 2·2·49 scores
    "stages.0.block.0.softmax": STAGE | OF_SCORES | {"flops": 980},
    "stages.0.block.0.weighted_sum": STAGE | OF_SCORES | {"macs": 392, "flops": 784},
    # 14·4·3; no biases
    "stages.0.block.1.router": STAGE | {"macs": 168, "flops": 336, "params": 12, "active_params": 12},
    # 14 tokens · 3 experts · ⌈log₂ 3⌉
    "stages.0.block.1.choose": STAGE | {"comparisons": 84},
    # 14·2·4 elements written
    "stages.0.block.1.gather": STAGE | {"moved": 112},
    # 14·2 pairs of token and expert · 4·5, and biases 28·5; 3·(4·5 + 5) parameters, of which a token uses 2/3
    "stages.0.block.1.experts_fc1": STAGE | {"macs": 560, "flops": 1260, "params": 75, "active_params": 50},
    # the same, and biases 28·4; 3·(5·4 + 4) parameters
    "stages.0.block.1.experts_fc2": STAGE | {"macs": 560, "flops": 1232, "params": 72, "active_params": 48},
    # [CLS] alone: 2·4·3, and biases 2·3; 4·3 + 3 parameters
    "head.linear": {"macs": 24, "flops": 54, "params": 15, "active_params": 15},
}


def test_rows_of_a_forward(image):
    ledger = xfcost.analyze(image, batch=2, memory_level="1KiB")
    rows = {row["path"]: row for row in table_of(report_text(ledger, "csv"))}
    for path, given in IMAGE_ROWS.items():
        place = path.split(".")[0]
        expected = NOTHING | {"mixing": "per-token", "times": 1, "stage": place} | given
        expected |= {
            f"traced_{name}": expected[name] for name in ("params", "macs", "flops", "comparisons", "moved", "cached")
        }
        expected |= {f"dispatched_{name}": expected[name] for name in RUN}
        told = {name: rows[path][name] for name in expected}
        assert told == {name: "" if value is None else str(value) for name, value in expected.items()}, path
        assert rows[path]["operation"] == path.rpartition(".")[2]
    assert rows["stages.0.block.1.experts_fc1"]["read"] == "75"
    assert rows["stages.0.block.0.scores"]["attention_entries"] == "196"  # 2·2·49
    # scores and their softmax give 196 each and are alive together; training keeps the softmax
    names = ("matrix_entries", "matrix_statistics", "matrices_alive", "matrix_kept")
    assert [rows["stages.0.block.0.scores"][name] for name in names] == ["196", "0", "196", "0"]
    assert [rows["stages.0.block.0.softmax"][name] for name in names] == ["196", "0", "392", "196"]
    named = {name for name, value in NOTHING.items()} | {"path", "operation", "mixing", "times", "stage"}
    named |= {f"traced_{name}" for name in ("params", "macs", "flops", "comparisons", "moved", "cached")}
    named |= {f"dispatched_{name}" for name in RUN} | {*names}
    # `title`, `order` and `block` are words; the other two are above
    assert {*COLUMNS} - named == {"title", "order", "block", "read", "attention_entries"}


# Of a block: layer norms 2·8, Q, K, V 60, output projection 20, router 12, experts 75 + 72. Of all: 2·255, the
# projection 20, [CLS] 4, positions 28, the last norm 8, the classifier 15. A token uses one expert less: 25 + 24.
PARAMS, ACTIVE = 585, 585 - 2 * 49
# 192 + 2·(672 + 2·392 + 224 + 168 + 2·560) + 24, of which the scores and the weighted sums 2·2·392
MACS, MIXING = 6152, 1568
# 432 + 56 + 2·(280 + 1512 + 56 + 784 + 980 + 784 + 504 + 56) + 2·(280 + 336 + 210 + 56 + 1260 + 700 + 1232 + 112 + 112
# + 56) + 280 + 54
FLOPS, MIXING_FLOPS = 19442, 2 * (784 + 980 + 784)


def test_the_object_of_a_forward(image):
    told = json.loads(xfcost.analyze(image, batch=2).to_json())
    totals = told["totals"]
    for before in ("", "traced_"):
        # moved: 56 + 2·(28 + 112 + 112); compared: 2·84
        names = ("params", "macs", "flops", "comparisons", "moved", "cached")
        assert [totals[before + name] for name in names] == [PARAMS, MACS, FLOPS, 168, 560, 0]
    assert (totals["active_params"], totals["bound_params"]) == (ACTIVE, 28)
    assert totals["attention_entries"] == 392
    assert (totals["plain_traffic_bytes"], totals["tiled_traffic_bytes"]) == (None, None)
    mixing = told["by_mixing"]
    assert [mixing["global"][name] for name in ("params", "macs", "flops")] == [0, MIXING, MIXING_FLOPS]
    own = mixing["per-token"]
    assert [own[name] for name in ("params", "active_params", "macs", "flops", "comparisons", "moved")] == [
        PARAMS, ACTIVE, MACS - MIXING, FLOPS - MIXING_FLOPS, 168, 560,
    ]  # fmt: skip
    assert set(mixing["local"].values()) == {0}
    size = {"tokens": 6, "extra_tokens": 1}
    # 2·255 parameters; 2·2968 MACs
    stage = {"stage": "stage 1", "width": 4, "blocks": 2, "params": 510, "macs": 5936, "grid": [2, 3]}
    assert told["by_stage"] == [stage | size]
    assert told["streams"] == [{"name": None, "grid": [2, 3]} | size]
    named = {"name": "Image", "image": [4, 6], "batch": 2, "sequential_steps": 2, "parallel_width": 7.0} | size
    named |= {"dtype": "float32", "attention": "eager", "mode": "forward", "memory_level": None}
    assert {name: told[name] for name in named} == named


# Twice the forward, but the pixels want no gradient: 2·6152 - 192
BACKWARD = 12112


def test_the_object_of_a_training_step(image):
    ledger = xfcost.analyze(image, batch=2, mode="train", tokens=100, sustained="1k", devices=2)
    training = json.loads(ledger.to_json())["training"]
    step = training["step"]
    kept = step.pop("kept_bytes"), step.pop("attention_kept_bytes"), step.pop("total_bytes")
    # of all rows, and with the fixed bytes
    assert kept[0] == sum(int(row["kept_bytes"] or 0) for row in records(ledger))
    assert kept[2] == kept[0] + 16 * PARAMS
    assert step == {
        # [CLS] is no token of the data: 2·6
        "optimizer": "adamw", "tokens": 12, "forward_macs": MACS, "backward_macs": BACKWARD, "recomputed_macs": 0,
        "model_flops": 36528, "update_flops": 8775,  # 2·(6152 + 12112); 15 a parameter
        "trained_params": 585,
        # 4·585; two numbers of 4 bytes a parameter; a loss over classes has no logits kept
        "params_bytes": 2340, "gradients_bytes": 2340, "master_bytes": 0, "optimizer_bytes": 4680,
        "recomputed_bytes": 0, "loss_logits_bytes": 0, "fixed_bytes": 9360,
    }  # fmt: skip
    assert training["run"] == {
        "tokens": 100, "steps": 9, "step_tokens": 12,  # ⌈100/12⌉
        "flops": 328752, "estimate": 292200,  # 9·36528; 6·487·100
        "kept_flops": 328752, "convention": "dense",  # it has no mask
        "without_params_flops": 84672, "with_params_flops": 244080,  # 9·2·3·1568, and the rest
        "recomputed_flops": 0, "recomputed_without_params": 0,
        # 328752 - 6·487·108; 54 = 9·2·3 FLOPs for each multiply-add of a forward of 12 tokens, or of 14 with [CLS]
        "beside_estimate": {
            "attention": 84672, "without_params": 0, "recomputed": 0,
            "repeated": 54 * 2 * 2 * (60 + 20 + 12 + 50 + 48),  # [CLS] twice, in two blocks
            "fewer_tokens": -54 * (12 * 15 - 2 * 12),  # the head sees [CLS]
            "tables": -54 * 12 * (4 + 28 + 2 * 2 * 8 + 8),
            "biases": -54 * (12 * 4 + 14 * 2 * (12 + 4 + 10 + 8)),
            "input_gradient": -9 * 2 * 192,  # of pixels
            "frozen": 0,
        },
        "rate": 1000.0, "peak": None, "mfu": None, "devices": 2,
        "seconds": 164.376, "days": 164.376 / 86400, "device_days": 2 * 164.376 / 86400,  # 328752 / 2000
    }  # fmt: skip
    rows = {row["path"]: row for row in table_of(report_text(ledger, "csv"))}
    # path -> MACs of the backward, and bytes that autograd keeps in both blocks: its input, 4·14·4 bytes each
    held = {
        "embed.0.projection": (192, 192),  # the weights' gradient alone; 12·4 pixels
        "stages.0.block.0.qkv": (1344, 448),
        "stages.0.block.0.out": (448, 448),
        "stages.0.block.1.router": (336, 448),
        "stages.0.block.1.experts_fc2": (1120, 1120),  # 28·5 numbers a block
    }
    for path, (macs, kept_bytes) in held.items():
        names = ("backward_macs", "traced_backward_macs", "kept_bytes", "backward_saved")
        assert [rows[path][name] for name in names] == [str(macs), str(macs), str(kept_bytes), "0"], path


# Decoding the sixth token of two samples, its past cached: 2 tokens wherever 14 stood, and [CLS] is none.
DECODE_ROWS = {
    # two rows of the table are read, and written
    "embed.0.lookup": {"params": 44, "active_params": 44, "moved": 8, "read": 8},
    # 2·4·12, and biases 24
    "stages.0.block.0.qkv": STAGE | {"macs": 96, "flops": 216, "params": 60, "active_params": 60},
    # keys and values of 2·6 tokens, 4 wide, of which 2·2·4 are new; a token of a sample adds 8
    "stages.0.block.0.cache": STAGE | {"cached": 96, "cached_per_token": 8, "moved": 16},
    # 2 queries · 6 keys · 4
    "stages.0.block.0.scores": STAGE | OF_SCORES | {"reads_tokens": 6, "macs": 48, "flops": 96, "pairs": 6},
    # 2 tokens · 2 experts · 4·5; two samples may ask for all 3 experts
    "stages.0.block.1.experts_fc1": STAGE | {"macs": 80, "flops": 180, "params": 75, "active_params": 50, "read": 75},
    # 2·4·11; its own weights are read whole
    "head.linear": {"macs": 88, "flops": 176, "params": 44, "active_params": 44, "read": 44},
}


def test_rows_of_a_decode_step(text):
    ledger = xfcost.analyze(text, batch=2, mode="decode", **PLAIN)
    rows = {row["path"]: row for row in table_of(report_text(ledger, "csv"))}
    for path, given in DECODE_ROWS.items():
        expected = NOTHING | {"read": None, "mixing": "per-token", "times": 1, "stage": path.split(".")[0]} | given
        told = {name: rows[path][name] for name in expected}
        assert told == {name: "" if value is None else str(value) for name, value in expected.items()}, path
    told = json.loads(ledger.to_json())
    # 4 bytes · 2 blocks · 96; 4 · 2 · 8
    constant = dict.fromkeys(("state_bytes", "recurrent_bytes", "cross_attention_bytes"), 0)
    assert told["cache"] == {"bytes": 768, "bytes_per_token": 64} | constant
    # 4·(8 + 2·block + 8 + 44), a block has 108 and of experts 147, of which one token uses 98. Two tokens that each
    # leave out one of 3 experts use all 3, or with chance 1/3 the same 2: 8/3 are expected, 131 whole numbers.
    # 2772 FLOPs are 2·(40 + 216 + 8 + 96 + 120 + 96 + 72 + 8 + 40 + 48 + 30 + 8 + 180 + 100 + 176 + 16 + 16 + 8) + 40 +
    # 176
    weights = 4 * (60 + 2 * (108 + 131))
    read = {"bytes_read": weights + 768, "intensity": pytest.approx(2772 / (weights + 768))}
    step = {"weight_bytes": weights}
    assert told["step"] == step | {"cache_bytes": 768, "flops": 2772} | read
    # 44 + 510 + 8 + 44; a token uses 2·49 less
    assert (told["totals"]["params"], told["totals"]["active_params"]) == (606, 508)


# ── comparisons, plots, components ────────────────────────────────────────────────────────────────────────────────

COMPARED = {
    "system": "Image", "N": 6, "image": "4x6", "batch": 2, "dtype": "float32", "attention": "eager", "mode": "train",
    "tokens": 6, "token_pairs": 36, "params": PARAMS, "active_params": ACTIVE,
    "macs": MACS, "macs_per-token": MACS - MIXING, "macs_local": 0, "macs_global": MIXING, "mixing_macs": MIXING,
    "flops": FLOPS, "traced_macs": MACS,
    # of the first block, per head and sample, on the grid: 6·6; and 7·7
    "score_dot_products": 36, "score_dot_products_with_extra_tokens": 49,
    "plain_traffic_bytes": 8064, "tiled_traffic_bytes": 3136,  # 2·4032 and 2·1568
    "sequential_steps": 2, "parallel_width": 7.0,
    "backward_macs": BACKWARD, "step_flops": 36528, "update_flops": 8775, "gradients_bytes": 2340,
    "optimizer_bytes": 4680, "run_flops": 328752, "estimated_flops": 292200, "run_days": 164.376 / 86400,
    **dict.fromkeys(
        (
            "cache_bytes", "cache_bytes_per_token", "cross_attention_bytes", "read_bytes", "intensity",
            "generation_macs", "generation_macs_without_cache", "seconds",
        )
    ),
}  # fmt: skip
# Held by other tests, whose definitions they are: here, that each is the one of its name.
OF_THE_LEDGER = {"attention_bytes", "attention_peak_bytes", "kept_bytes", "step_bytes"}


def test_a_comparison_of_training_steps(image):
    comparison = xfcost.compare(
        image, image, batch=2, mode="train", tokens=100, sustained="1k", devices=2, memory_level="1KiB", trace=True
    )
    first, second = table_of(report_text(comparison, "csv"))
    told = {name: value for name, value in first.items() if name not in OF_THE_LEDGER}
    assert told == {name: "" if value is None else str(value) for name, value in COMPARED.items()}
    ledger = comparison.ledgers[0]
    memory, step = ledger.attention_memory(), ledger.training.step
    figures = {"attention_bytes": memory["all_layers"], "attention_peak_bytes": memory["peak"]}
    figures |= {"kept_bytes": step.kept_bytes, "step_bytes": step.total_bytes}
    assert {name: int(first[name]) for name in figures} == figures
    assert second == first | {"system": "Image #2"}
    figures = json.loads(comparison.to_json())["figures"]["Image"]
    told = {name: value for name, value in figures.items() if name not in OF_THE_LEDGER}
    head = ("system", "N", "image", "batch", "dtype", "attention", "mode")
    assert told == {name: value for name, value in COMPARED.items() if name not in head}


def test_a_comparison_of_decode_steps(text):
    comparison = xfcost.compare(text, text, batch=2, mode="decode", **PLAIN)
    first, _ = table_of(report_text(comparison, "csv"))
    expected = {"N": 6, "image": "", "mode": "decode", "params": 606, "active_params": 508}
    # 2·(96 + 2·48 + 32 + 24 + 2·80) + 88, of which the scores and the weighted sums 2·2·48
    expected |= {"macs": 904, "mixing_macs": 192, "macs_global": 192, "macs_per-token": 712, "flops": 2772}
    expected |= {"score_dot_products": 6, "cache_bytes": 768, "cache_bytes_per_token": 64, "sequential_steps": 2}
    expected |= {"parallel_width": 1.0}
    assert {name: first[name] for name in expected} == {name: str(value) for name, value in expected.items()}
    # 8/3 of 3 experts are expected: 768 + 4·(60 + 2·(108 + 131))
    assert int(first["read_bytes"]) == 2920
    assert float(first["intensity"]) == pytest.approx(2772 / 2920)


def test_n_of_a_comparison_is_without_special_tokens():
    # ViT has a [CLS] token beside its 784, Swin has none; of 224 pixels a side they make 784 and 3,136
    comparison = xfcost.compare("vit", "swin", N=784)
    assert json.loads(comparison.to_json())["N"] == 784
    assert [ledger.metadata.extra_tokens for ledger in comparison.ledgers] == [1, 0]
    assert json.loads(xfcost.compare("vit", "swin").to_json())["N"] is None


def test_points_of_a_plot(image, tmp_path):
    stdout_of("plot", image, "--batch", "2", "--N", "4:9", "-o", "a.csv", cwd=tmp_path)
    first, second = table_of(tmp_path / "a.csv")
    expected = {"system": "Image", "spec": str(image), "N": "4", "image": "4x4", "extra_tokens": "1", "batch": "2"}
    expected |= {"dtype": "float32", "attention": "eager", "mode": "forward"}
    # 5 tokens with [CLS]: two rows of positions less, 2·4 parameters; 8·16 + 2·10·(48 + 16 + 12 + 80) + 2·2·2·25·4 + 24
    expected |= {"params": "577", "macs": "4072", "mixing_macs": "800", "cache_bytes": "0"}
    # of one head of one layer, for one input: 5² pairs of tokens
    expected |= {"scores": "25"}
    assert {name: first[name] for name in expected} == expected
    empty = ("traced_params", "traced_macs", "traced_mixing_macs", "seconds", "spread", "runs", "device", "machine")
    empty += ("threads", "noisy", "seconds_low", "seconds_high")
    assert {first[name] for name in empty} == {""}
    assert {*first} == {*expected, *empty, "attention_bytes", "flops"}
    assert (second["N"], second["image"]) == ("9", "6x6")
