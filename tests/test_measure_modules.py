"""Torch modules in `xfcost measure`, `plot --from`, `compare --from`, `plot --device` and `roofline`."""

import sys
from pathlib import Path

import msgspec
import pytest

from any_models import two_blocks
from calibrated import keep_calibration
from helpers import stdout_of, table_of
from measured import DESCRIBED, HEADER, HERE, measured, row
from xfcost.api.measuring.plan import PlannedRow, SweptSizes, planned
from xfcost.api.measuring.process import RanRow, RowJob
from xfcost.api.measuring.row import answered
from xfcost.comparing.measured_series import grouped, pairs_of
from xfcost.comparing.sweep import PIXELS, TOKENS
from xfcost.ledger.errors import UsageError
from xfcost.ledger.measurements import OfModule, key_of
from xfcost.ledger.operation import MIXINGS
from xfcost.ledger.runs_file import RunsFile, read_runs
from xfcost.ledger.timing_plan import TimingPlan
from xfcost.questions.measure.sweep import RowSweep
from xfcost.torch_models.memory import peak
from xfcost.torch_models.memory.shortage import Limit
from xfcost.views.measurements import document

CODE = """
from torch import nn
from parts import Mix

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.map, self.mix = nn.Linear(width, width, bias=False), Mix()

    def forward(self, x):
        return self.mix(self.map(x))

def Conv():
    return nn.Conv2d(3, 4, 4, 4, bias=False)
"""
PARTS = """
from torch import nn

class Mix(nn.Module):
    def forward(self, x):
        return (x @ x.mT).softmax(-1) @ x
"""
ONCE = TimingPlan(runs=1, threads=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(CODE)
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "full.yaml").write_text(two_blocks("Full", {"kind": "full", "heads": 2}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*names: str, inputs: tuple[str, ...] = ("BxNx8",), axis=TOKENS, span=(16, 64), mixing=False, **options):
    for name in ("parts", "xfcost_target_model"):  # a process of its own would read them anew
        sys.modules.pop(name, None)
    return planned(names, options | {"inputs": inputs, "mixing": mixing}, SweptSizes(axis, span, 3), ONCE).rows


def test_a_module_and_a_spec_share_their_sizes(folder: Path) -> None:
    found = plan("full.yaml", "model.py:Net")
    assert [(one.configuration.system, one.configuration.N) for one in found] == [
        (name, N) for N in (16, 32, 64) for name in ("Full", "Net")
    ]
    net = found[1]
    assert net.configuration.target == "model.py:Net"
    assert net.configuration.module == OfModule(inputs=("BxNx8",))
    # a map of 8 by 8, and two products of 16 by 16 by 8
    assert net.counted.macs == 16 * 8 * 8 + 2 * 16 * 16 * 8
    assert net.counted.by_mixing == {}
    assert "module" not in msgspec.to_builtins(found[0].configuration)


def test_kinds_are_found_on_demand_and_hold_at_every_size(folder: Path) -> None:
    found = plan("model.py:Net", mixing=True)
    macs = [{kind: one.counted.by_mixing[kind]["macs"] for kind in MIXINGS} for one in found]
    assert macs == [{"per-token": 64 * N, "local": 0, "global": 16 * N * N} for N in (16, 32, 64)]
    # the same row with kinds and without
    (without, *_) = plan("model.py:Net")
    assert key_of(found[0].configuration, None, None) == key_of(without.configuration, None, None)


def test_dtype_and_attention_are_its_own_so_that_it_is_measured_once(folder: Path) -> None:
    found = plan("full.yaml", "model.py:Net", span=(16, 16), attention="eager,fused", dtype="float32,bfloat16")
    systems = [one.configuration.system for one in found]
    assert (systems.count("Full"), systems.count("Net")) == (4, 1)
    (net,) = (one.configuration for one in found if one.configuration.is_module)
    assert (net.dtype, net.attention) == ("float32", "eager")


def test_batches_need_a_letter(folder: Path) -> None:
    one, eight = plan("model.py:Net", span=(16, 16), batch="1,8")
    assert (eight.configuration.batch, eight.counted.macs) == (8, 8 * one.counted.macs)


def test_images_have_sides_and_no_tokens(folder: Path) -> None:
    small, large = plan("model.py:Conv", inputs=("1x3xHxW",), axis=PIXELS, span=(8, 16))[::2]
    assert (small.configuration.N, small.configuration.size) == (0, (8, 8))
    assert large.counted.macs == 4 * small.counted.macs
    of_here = {"machine": HERE, "device_name": "P"}
    rows = [msgspec.structs.replace(row("Conv", **of_here), configuration=small.configuration)]
    assert document(rows).text("table").splitlines()[3].split()[:3] == ["Conv", "8×8", "–"]
    assert table_of(document(rows).text("csv"))[0]["N"] == ""
    file = RunsFile(folder / "runs.jsonl", HEADER, print)
    file.append(rows[0])
    file.close()
    assert read_runs(folder / "runs.jsonl").rows == rows


def test_a_step_of_training(folder: Path) -> None:
    (found,) = plan("model.py:Net", span=(16, 16), mode="train", optimizer="sgd")
    assert found.configuration.run_options == {"optimizer": "sgd"}
    # backward: of the map its weight's gradient, of each product both operands'
    assert found.counted.macs == 2 * 16 * 8 * 8 + 3 * 2 * 16 * 16 * 8


def test_a_step_that_recomputes_is_another_row(folder: Path) -> None:
    plain, again = (
        plan("model.py:Net", span=(16, 16), mode="train", **more)[0] for more in ({}, {"checkpoint": "map,mix"})
    )
    assert again.configuration.run_options == {"checkpoint": "map,mix"}
    # of mix the first product runs again, whose result the second one takes
    assert again.counted.macs - plain.counted.macs == 16 * 16 * 8
    outcomes = [answer(one) for one in (plain, again)]
    assert [one.status for one in outcomes] == ["measured"] * 2
    with pytest.raises(UsageError, match="--recompute full: only for torch modules"):
        plan("full.yaml", "model.py:Net", mode="train", checkpoint="full")


def test_a_changed_module_is_another_one(folder: Path) -> None:
    def hash_of(**more) -> str:
        return plan("model.py:Net", span=(16, 16), **more)[0].configuration.spec_hash

    before = hash_of()
    (folder / "model.py").write_text(f"# a comment\n{CODE}")
    assert hash_of() == before
    assert hash_of(inputs=("2xNx8",)) != before
    (folder / "model.py").write_text(CODE.replace("self.mix(self.map(x))", "self.mix(self.map(x)).relu()"))
    assert hash_of() != before
    (folder / "model.py").write_text(CODE)
    # another width of what it imports
    more = "        self.scale = nn.Parameter(__import__('torch').ones(3))\n"
    (folder / "parts.py").write_text(PARTS + f"\n    def __init__(self):\n        super().__init__()\n{more}")
    assert hash_of() != before


def sweep(one: PlannedRow, path: Path) -> RowSweep:
    file = RunsFile(path, HEADER, print)
    return RowSweep([one], DESCRIBED, file)


class Quiet:
    """No progress."""

    started = running = measured = lambda self, *_: None


def test_rows_of_code_that_counts_otherwise_now_are_not_mixed(folder: Path) -> None:
    (one,) = plan("model.py:Net", span=(16, 16))
    first = sweep(one, folder / "runs.jsonl")
    first.run(lambda rows: ((one, RanRow(measured(), DESCRIBED)) for one in rows), Quiet())
    first._file.close()
    resumed = sweep(one, folder / "runs.jsonl")
    assert len(resumed.rows) == 1
    resumed._file.close()
    (folder / "parts.py").write_text(PARTS.replace("@ x\n", "@ x @ x.mT @ x\n"))
    (other,) = plan("model.py:Net", span=(16, 16))
    assert other.configuration.spec_hash == one.configuration.spec_hash
    with pytest.raises(UsageError, match=r"a row of Net at N = 16 with 5,120 MACs"):
        sweep(other, folder / "runs.jsonl")


def answer(one: PlannedRow, timing: TimingPlan = ONCE):
    return answered(one.job(RowJob(device="cpu", timing=timing))).outcome


def test_a_row_is_timed_with_its_memory_and_kinds(folder: Path) -> None:
    (one,) = plan("model.py:Net", span=(16, 16), mixing=True)
    outcome = answer(one)
    assert outcome.status == "measured", outcome.reason
    assert outcome.timing.seconds > 0
    assert outcome.seconds_by_mixing["global"] > 0
    # weights, input, and what the map makes of it, at least
    assert outcome.memory.predicted >= 4 * (8 * 8 + 2 * 16 * 8)
    assert outcome.memory.measured is None or outcome.memory.measured >= 0
    (without,) = plan("model.py:Net", span=(16, 16))
    assert answer(without).seconds_by_mixing is None


def test_a_file_that_is_changed_or_gone_is_a_failed_row(folder: Path) -> None:
    (one,) = plan("model.py:Net", span=(16, 16))
    (folder / "model.py").write_text(CODE.replace("width=8", "width=8, depth=1"))
    outcome = answer(one)
    assert (outcome.status, "it was changed" in outcome.reason) == ("failed", True)
    (folder / "model.py").unlink()
    assert answer(one).status == "failed"


def test_a_forward_is_predicted_beside_its_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_calibration(folder, monkeypatch)
    checked = ONCE._replace(checks=True)
    (one,) = plan("model.py:Net", span=(16, 16))
    # at least its MACs at 10⁹ per second
    assert answer(one, checked).predicted_seconds > one.counted.macs / 1e9
    (step,) = plan("model.py:Net", span=(16, 16), mode="train", optimizer="sgd")
    outcome = answer(step, checked)
    assert (outcome.status, outcome.predicted_seconds) == ("measured", None)


def test_what_does_not_fit_is_skipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = plan("model.py:Net", span=(16, 16))
    monkeypatch.setattr(peak, "limit_on", lambda device: Limit(50, "a small limit"))
    outcome = answer(one)
    assert (outcome.status, outcome.left_bytes) == ("skipped", 50)


def test_a_process_in_another_folder_finds_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = plan("model.py:Net", span=(16, 16))
    job = one.job(RowJob(device="cpu", timing=ONCE))
    assert job.configuration.target == f"{folder / 'model.py'}:Net"
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert answered(job).outcome.status == "measured"


def test_a_module_is_compared_with_every_spec_that_is_run_alike() -> None:
    def of(system: str, attention: str, *, module: bool = False):
        found = row(system)
        own = {"module": OfModule()} if module else {}
        return msgspec.structs.replace(
            found, configuration=msgspec.structs.replace(found.configuration, attention=attention, **own)
        )

    rows = [of("A", "eager"), of("A", "fused"), of("B", "eager"), of("Net", "no", module=True)]
    series = grouped(rows, TOKENS).series
    names = [one.configuration.system + one.configuration.attention for one in series]
    # never two specs that differ in two things
    assert [(names[first], names[second]) for first, second in pairs_of(series, 9)] == [
        ("Aeager", "Afused"), ("Aeager", "Beager"), ("Aeager", "Netno"), ("Afused", "Netno"), ("Beager", "Netno"),
    ]  # fmt: skip


NET = ("model.py:Net", "--input", "1xNx8")


def test_points_of_a_module_over_its_line(folder: Path) -> None:
    timed = ("-o", "plot.csv", "--device", "cpu", "--metric", "time", "--runs", "1", "--threads", "1")
    stdout_of("plot", "model.py:Conv", "--input", "1x3xHxW", "--size", "8:64", *timed, cwd=folder)
    points = [one["size"] for one in table_of(folder / "plot.csv") if one["seconds"]]
    assert (len(points), [points[0], points[-1]]) == (5, ["8", "64"])


def test_the_roofline_of_a_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_calibration(folder, monkeypatch)
    words = ("roofline", *NET, "--N", "64", "--device", "cpu", "--runs", "1")
    stdout_of(*words, "--threads", "1", "-o", "roofline.csv", cwd=folder)
    points = {one["operation"]: one for one in table_of(folder / "roofline.csv")}
    assert {name: one["mixing"] for name, one in points.items()} == {
        "map.mm": "per-token", "mix.bmm": "global", "mix._softmax": "global", "mix.bmm_2": "global"
    }  # fmt: skip
    assert int(points["map.mm"]["operand_bytes"]) == 4 * (2 * 64 * 8 + 8 * 8)
