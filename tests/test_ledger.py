"""The one table: what a join finds, and what totals add up to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from xfcost.ledger.errors import UsageError
from xfcost.ledger.join import join, with_seconds
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrices import Matrix
from xfcost.ledger.metadata import Metadata, Timing
from xfcost.ledger.operation import MIXINGS, QUANTITIES, Operation

# Two operations. `a` stands 3 times: 3·(10 + 20) MACs with `b`'s: 3·10 + 1·20 = 50; parameters 3·5 + 1·0 = 15.
A = Operation(path="x.a", title="A", times=3, params=5, macs=10, flops=21, stage="one", block="one · x")
B = Operation(
    path="y.b",
    title="B",
    mixing="global",
    macs=20,
    flops=40,
    attention_entries=64,
    matrix=Matrix(64, alive=128, saved=64),
    heads=4,
    stage="two",
    block="two · y",
)


def ledger(*rows, **metadata):
    return Ledger(metadata=Metadata(name="toy", tokens="4", grid_tokens=4, **metadata), rows=rows)


def test_accounts_that_agree_are_joined_exactly():
    both = join(ledger(A, B), [B, A])
    assert both.agreement.exact
    assert both.agreement.differences == ()
    assert [row.path for row in both.rows] == ["x.a", "y.b"]
    assert [(row.traced.params, row.traced.macs, row.traced.flops) for row in both.rows] == [(5, 10, 21), (0, 20, 40)]
    assert (both.total("traced_macs"), both.total("traced_params")) == (50, 15)


@pytest.mark.parametrize("quantity", ["times", "params", "macs", "flops"])
def test_one_wrong_count_is_found(quantity):
    wrong = getattr(A, quantity) + 1
    both = join(ledger(A, B), [replace(A, **{quantity: wrong}), B])
    assert not both.agreement.exact
    assert both.agreement.differences == ({"path": "x.a", "quantity": quantity, "counted": wrong - 1, "traced": wrong},)


@pytest.mark.parametrize(("counted", "found"), [((A, B), (A,)), ((A,), (A, B))], ids=["not traced", "not counted"])
def test_a_row_of_one_account_alone_is_found_and_has_no_traced_figures(counted, found):
    both = join(ledger(*counted), [*found])
    told = {"counted": int(B in counted) or None, "traced": int(B in found) or None}
    assert both.agreement.differences == ({"path": "y.b", "quantity": "operation"} | told,)
    assert [row.traced is None for row in both.rows] == [one not in found for one in counted]
    assert not both.agreement.exact


def test_work_that_no_row_owns_is_no_agreement():
    both = join(ledger(A), [A], ["aten::fft ran 1 time(s), and no handle is known"])
    assert both.agreement.differences == ()
    assert both.agreement.uncounted == ("aten::fft ran 1 time(s), and no handle is known",)
    assert not both.agreement.exact


ROWS = st.builds(
    Operation,
    path=st.sampled_from([f"p{n}.q" for n in range(6)]),
    title=st.just("Q"),
    mixing=st.sampled_from(MIXINGS),
    times=st.integers(1, 5),
    params=st.integers(0, 2**70),
    macs=st.integers(0, 2**70),
    stage=st.sampled_from(["s", "t"]),
    block=st.sampled_from(["s · a", "t · b"]),
)
UNIQUE_ROWS = st.lists(ROWS, unique_by=lambda row: row.path)


@given(rows=UNIQUE_ROWS, others=UNIQUE_ROWS)
def test_a_join_is_exact_only_where_all_four_figures_of_all_rows_agree(rows, others):
    def seen(account):
        return {row.path: (row.times, row.params, row.macs, row.flops) for row in account}

    assert join(ledger(*rows), others).agreement.exact == (seen(rows) == seen(others))
    assert join(ledger(*rows), reversed(rows)).agreement.exact


@given(rows=UNIQUE_ROWS)
def test_groups_add_up_to_the_total(rows):
    whole = ledger(*rows)
    for key in ("mixing", "stage", "block", "operation"):
        groups = whole.by(key)
        assert sorted(row.path for group in groups.values() for row in group) == sorted(row.path for row in rows)
        for quantity in ("params", "macs"):
            assert sum(whole.part(group).total(quantity) or 0 for group in groups.values()) == whole.total(quantity)
    assert list(whole.by("mixing")) == list(MIXINGS)
    assert whole.total("macs") == sum(row.macs * row.times for row in rows)


def test_totals_count_repeated_blocks_and_keep_missing_apart_from_zero():
    totals = ledger(A, B).totals()
    assert (totals["params"], totals["macs"], totals["flops"]) == (15, 50, 103)  # flops 3·21 + 40
    assert totals["traced_macs"] is None
    assert ledger().total("macs") == 0
    assert ledger(A, B).total("macs", lambda row: row.mixing == "global") == 20


def test_attention_memory_by_hand():
    # 64 entries per layer (batch 2 × 4 heads × 8), 12 layers; fp32: 8·4 = 32 bytes per head and sample, 256 per layer;
    # another 64 are alive beside them
    deep = ledger(A, replace(B, times=12), batch=2, dtype="float32")
    assert deep.attention_memory() == {"per_head": 32, "per_layer": 256, "all_layers": 3072, "peak": 512}
    half = ledger(A, replace(B, times=12), batch=2, dtype="bfloat16")
    assert half.attention_memory() == {"per_head": 16, "per_layer": 128, "all_layers": 1536, "peak": 256}
    assert ledger(A).attention_memory()["peak"] == 0
    # a fused kernel's 64 statistics are float32 in bfloat16 too
    fused = ledger(replace(B, times=12, matrix=Matrix(0, 0, statistics=64)), batch=2, dtype="bfloat16")
    assert fused.attention_memory() == {"per_head": 32, "per_layer": 256, "all_layers": 3072, "peak": 256}


def test_published_figures_stand_beside_ours():
    # Ours 15 parameters and 50 MACs; published 16 and 40: -1/16 and +1/4 of the published figure.
    figures = ({"params": 16, "source": "Table 1"}, {"macs": 40, "flops": None, "source": "Table 2", "note": "rounded"})
    params, macs = ledger(A, B, published=figures).published_beside_ours()
    assert (params["quantity"], params["published"], params["ours"], params["difference"]) == (
        "params", 16, 15, -1 / 16,
    )  # fmt: skip
    assert (macs["quantity"], macs["ours"], macs["difference"]) == ("macs", 50, 0.25)
    assert (params["source"], macs["source"], macs["note"]) == ("Table 1", "Table 2", "rounded")


def test_seconds_stand_beside_their_rows():
    timing = Timing(device="cpu", machine="m", seconds=1.0, spread=0.1, runs=3, threads=1)
    timed = with_seconds(ledger(A, B), {"x.a": 0.75}, {}, timing, 0.125)
    assert [row.seconds for row in timed.rows] == [0.25, None]  # three blocks
    assert timed.total("seconds") == 0.75
    assert (timed.timing.update_seconds, timed.timing.not_attributed) == (0.125, 0.125)


def test_without_seconds_of_rows_nothing_is_not_attributed():
    timing = Timing(device="cpu", machine="m", seconds=1.0, spread=0.1, runs=3, threads=1)
    assert with_seconds(ledger(A), {}, {}, timing).timing == timing


@pytest.mark.parametrize(("name", "said"), [("mac", "did you mean 'macs'"), ("foo", "expected one of ")])
def test_a_total_that_rows_have_not_is_refused_by_its_near_names(name, said):
    with pytest.raises(UsageError, match=f"there is no quantity '{name}'; {said}"):
        ledger(A, B).total(name)


def test_every_quantity_has_a_total():
    whole = ledger(A, B)
    for quantity in QUANTITIES:
        whole.total(quantity)
    assert {"macs", "traced_macs", "kept_bytes", "active_params", "seconds"} <= QUANTITIES
