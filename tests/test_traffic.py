"""Main-memory traffic of attention, plain and tiled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import PLAIN
from xfcost.api.analysis import analyze
from xfcost.api.runs import make_run
from xfcost.counting import sums
from xfcost.counting.forward import plain, tiled
from xfcost.counting.system import AccountOptions
from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import with_operand_bytes
from xfcost.ledger.matrices import AttentionCore
from xfcost.ledger.option_readers import byte_number
from xfcost.spec.load import load
from xfcost.systems.spec import SpecSystem
from xfcost.torch_models.timing.systems import SystemOnDevice


def test_by_hand() -> None:
    # 8 queries and keys of width 4. Plain: Q, K, V, O of 32 elements, and S written, read, P written, read: 4·64.
    core = AttentionCore(1, 8, 8, 4)
    assert plain(core) == 4 * 32 + 4 * 64 == 384
    # 32 elements on chip: blocks of ⌈32/16⌉ = 2 keys, 4 of them; each reads Q and O and writes O (3·32) and reads and
    # writes two statistics of 8 queries (4·8); keys and values once: 2·32 + 4·128.
    assert tiled(core, 32) == 64 + 4 * 128 == 576
    # Everything fits: one pass.
    assert tiled(core, 8 * 16) == 64 + 128
    assert plain(AttentionCore(3, 8, 8, 4)) == 3 * 384


def counted_by_loops(core: AttentionCore, on_chip: int) -> int:
    """Algorithm 1 with a counter at every load and store."""
    n, m, d, v = core.queries, core.keys, core.width, core.values
    keys_per_block = -(-on_chip // (2 * d + 2 * v))
    queries_per_block = min(keys_per_block, d)
    moved = 0
    for start in range(0, m, keys_per_block):
        keys = min(keys_per_block, m - start)
        moved += keys * (d + v)  # line 6: K_j, V_j
        for first in range(0, n, queries_per_block):
            queries = min(queries_per_block, n - first)
            moved += queries * (d + v) + 2 * queries  # line 8: Q_i, O_i, ℓ_i, m_i
            moved += queries * v + 2 * queries  # lines 12 and 13: O_i, ℓ_i, m_i
    return core.times * moved


@given(*[st.integers(1, 40)] * 3, st.integers(1, 30), st.none() | st.integers(1, 30), st.integers(0, 2000))
def test_the_closed_form_is_the_loops_count(times: int, n: int, m: int, d: int, v: int | None, more: int) -> None:
    core = AttentionCore(times, n, m, d, v)
    assert tiled(core, core.least_on_chip + more) == counted_by_loops(core, core.least_on_chip + more)


def test_the_orders_of_the_paper() -> None:
    # Theorem 2: Θ(N²d²/M) while d ≤ M ≤ N·d: twice the tokens, four times the traffic; twice the memory, half of it.
    core, twice = (AttentionCore(1, n, n, 64) for n in (2**20, 2**21))
    assert tiled(twice, 2**16) / tiled(core, 2**16) == pytest.approx(4, rel=1e-3)
    assert tiled(core, 2**16) / tiled(core, 2**17) == pytest.approx(2, rel=1e-3)


def test_execution_changes_neither_macs_nor_traffic_formulas() -> None:
    eager, fused = (analyze("gpt2", attention=how, memory_level="192KiB", trace=False) for how in ("eager", "fused"))
    for quantity in ("macs", "plain_traffic_bytes", "tiled_traffic_bytes"):
        assert eager.total(quantity) == fused.total(quantity)
    # 12 layers of 12 heads, N = 1024, d_k = 64, 4 bytes.
    assert eager.total("plain_traffic_bytes") == 4 * 144 * plain(AttentionCore(1, 1024, 1024, 64))
    assert eager.total("tiled_traffic_bytes") == 4 * 144 * tiled(AttentionCore(1, 1024, 1024, 64), 192 * 1024 // 4)
    # Attention memory: h·N² entries kept, or h·N statistics.
    assert (eager.total("attention_entries"), fused.total("attention_entries")) == (144 * 1024**2, 144 * 1024)
    assert analyze("gpt2", trace=False).total("plain_traffic_bytes") is None
    batch = analyze("gpt2", batch=3, memory_level=2**20, trace=False)
    assert batch.total("plain_traffic_bytes") == 3 * (eager.total("plain_traffic_bytes") or 0)
    half = analyze("gpt2", dtype="bfloat16", memory_level="192KiB", trace=False)
    assert half.total("tiled_traffic_bytes") == 2 * 144 * tiled(AttentionCore(1, 1024, 1024, 64), 192 * 1024 // 2)


def test_sizes_are_read() -> None:
    assert [byte_number("--memory-level", text) for text in ("192KiB", "100 kb", 4096)] == [196608, 100_000, 4096]


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1.1KiB", "3TiB", True, "9" * 30])
def test_other_sizes_are_refused(text: object) -> None:
    with pytest.raises(UsageError, match="--memory-level"):
        byte_number("--memory-level", text)


def test_a_memory_that_holds_no_tile_is_refused() -> None:
    # Swin's heads are 32 wide: 4·32·4 bytes.
    with pytest.raises(UsageError, match="takes 512 bytes"):
        analyze("swin", memory_level=511, trace=False)
    assert analyze("swin", memory_level=512, trace=False).total("tiled_traffic_bytes")


def held(name: str, most: int = sums.MAX_EVALUATIONS, **options: object) -> dict[str, int | None]:
    """The bytes of operands of each row on a device; sums over decode steps look at no more of them than `most`."""
    run = make_run(**PLAIN, **options)
    found = SpecSystem(load(name, ("stages.0.depth=1",))).ready(run, AccountOptions(orders=False), "cpu")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sums, "MAX_EVALUATIONS", most)
        room = SystemOnDevice(found, "cpu")
    return {row.path: row.operand_bytes for row in with_operand_bytes(found.ledger, room.row_bytes).rows}


def test_a_step_of_training_moves_gradients_and_what_was_saved() -> None:
    found = held("vit-ti32", mode="train")
    tokens, width, hidden = 50, 192, 768
    ends, weights = tokens * width + tokens * hidden, width * hidden
    # forward: ends and weights; backward: gradients of the ends, of weights and biases; the input and the weights again
    expected = ends + (weights + hidden) + ends + (weights + hidden) + tokens * width + weights
    assert found["stages.0.block.1.fc1"] == 4 * expected
    # QKᵀ: Q and K in, 3 heads of 50² scores out; their gradients; Q and K again
    ends = 2 * tokens * width + 3 * tokens * tokens
    assert found["stages.0.block.0.scores"] == 4 * (2 * ends + 2 * tokens * width)
    assert None not in found.values()


def test_a_shared_table_has_its_gradient() -> None:
    found = held("gpt2", mode="train", N=8)
    # and the weights that a forward reads are those of the rows that read it
    assert found["shared.embedding"] == 4 * 50257 * 768
    assert None not in found.values()


def test_a_generation_moves_the_bytes_of_all_its_steps() -> None:
    # a prompt of 8, then 4 steps of 9 to 12 tokens
    found = held("gpt2", mode="generate", N=8, new_tokens=5)
    read = sum(range(9, 13))
    # a query, the keys of all tokens, and 12 heads of scores
    assert found["decode.stages.0.block.0.scores"] == 4 * (4 * 768 + read * 768 + read * 12)
    assert found["decode.stages.0.block.1.fc1"] == 4 * 4 * (768 + 3072 + 768 * 3072 + 3072)
    # the index of a token is of 8 bytes; a row of the table, read and written
    assert found["decode.embed.0.lookup"] == 4 * (8 + 2 * 4 * 768)
    assert found["decode.head.linear"] == 4 * 4 * (768 + 50257 + 50257 * 768)
    assert found["prefill.stages.0.block.1.fc1"] == 4 * (8 * 768 + 8 * 3072 + 768 * 3072 + 3072)
    # the table that two rows share runs nothing itself
    assert [path for path, spent in found.items() if spent is None] == ["prefill.shared.embedding"]


def test_a_long_generation_is_summed_from_a_few_steps() -> None:
    found = held("gpt2", 40, mode="generate", N=8, new_tokens=501)
    read = sum(range(9, 509))
    assert found["decode.stages.0.block.0.scores"] == 4 * (500 * 768 + read * 768 + read * 12)


def test_steps_that_can_t_be_summed_have_no_bytes() -> None:
    found = held("gpt2", 2, mode="generate", N=8, new_tokens=5)
    without = {path for path, spent in found.items() if spent is None}
    assert without - {"prefill.shared.embedding"} == {path for path in found if path.startswith("decode.")}
