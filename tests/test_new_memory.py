"""New memory: bytes that every run obtains from the system again, and what they add to predicted seconds."""

import subprocess
import sys

import msgspec
import pytest
import torch
from torch import nn

import xfcost
from calibrated import BASELINE, keep_calibration
from xfcost.torch_models.memory.heap import Heap
from xfcost.torch_models.memory.kept_memory import memory_is_kept
from xfcost.torch_models.memory.new_memory import NewBytes, new_bytes

MIB = 2**20


class Doubled(nn.Module):
    """Two tensors of so many bytes each, one after the other."""

    def __init__(self, held):
        super().__init__()
        self.x = nn.Buffer(torch.zeros(held // 4, device="meta"))
        self.inner = nn.ReLU()

    def forward(self):
        self.x + 1
        return self.inner(self.x).sum()


def test_a_heap_obtains_each_mapping_and_each_growth_and_nothing_for_what_it_has():
    heap = Heap()
    block = heap.take(2 * MIB)
    # a mapping of its own: 2 MiB, a header of 16 bytes, 96 for the alignment and 8 of the mapping
    assert heap.obtained == 513 * 4096
    heap.give(block)
    # now below the threshold: the heap grows by the block and 128 KiB
    block = heap.take(2 * MIB - 4096)
    assert heap.obtained == (513 + 512 + 32) * 4096
    heap.give(block)
    heap.take(MIB)
    assert heap.obtained == (513 + 512 + 32) * 4096


def test_a_heap_that_never_shrank_obtained_what_is_resident():
    heap = Heap()
    for _ in range(3):
        heap.take(MIB)
        assert heap.obtained == heap.resident


def test_blocks_above_the_greatest_threshold_are_new_in_every_run():
    model = Doubled(40 * MIB)
    found = new_bytes(model, model, NewBytes())
    # 40 MiB and a page, by the model itself and by its ReLU
    assert found == {"": 40 * MIB + 4096, "inner": 40 * MIB + 4096}


def test_blocks_that_the_heap_keeps_are_obtained_in_the_first_run_alone():
    model = Doubled(MIB)
    assert new_bytes(model, model, NewBytes()) == {}


def test_memory_is_kept_and_found_again():
    # the pages of 64 MiB are filled once: of a second such tensor, hardly any
    code = """if True:
        import ctypes, resource, torch
        from xfcost.torch_models.memory.kept_memory import memory_is_kept
        if hasattr(ctypes.CDLL(None), "prctl"):  # pages of 4 KiB, also where the system would take huge ones
            ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
        faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        def filled():
            before = faults()
            torch.ones(2**24)
            return faults() - before
        print(filled(), filled())
        with memory_is_kept() as kept:
            # the thread's cache holds edges of the first freed blocks, which are then too small for the next one
            print(kept, min(filled() for _ in range(24)))
        filled()
        print(filled())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plain, kept, after = done.stdout.splitlines()
    if kept.split()[0] == "False":
        pytest.skip("not glibc: memory can't be kept")
    pages = 2**26 // 4096
    assert min(map(int, plain.split())) > 0.9 * pages
    assert int(kept.split()[1]) < 0.1 * pages
    assert int(after) > 0.9 * pages


def test_without_glibc_memory_is_not_kept(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    with memory_is_kept() as kept:
        assert kept is False


SLOW_PAGES = {"baseline": msgspec.structs.replace(BASELINE, new_byte_seconds=1e-6)}


def test_new_memory_adds_to_the_rows_that_obtain_it(tmp_path, monkeypatch):
    # scores of 3·3136² numbers are 118 MB, above the greatest threshold: new in each block, as their softmax
    options = {"N": 3136, "trace": False, "predict": True, "threads": 1}
    keep_calibration(tmp_path, monkeypatch)
    without = xfcost.analyze("vit-ti16", **options)
    keep_calibration(tmp_path, monkeypatch, **SLOW_PAGES)
    found = xfcost.analyze("vit-ti16", **options)
    more = found.prediction.seconds - without.prediction.seconds
    assert more > 0
    rows = found.total("predicted_seconds") - without.total("predicted_seconds")
    assert rows == pytest.approx(more - found.prediction.not_attributed + without.prediction.not_attributed)
    scores = 4 * 3 * 3137**2
    each = {row.operation: row.predicted_seconds for row in found.rows if row.mixing == "global"}
    before = {row.operation: row.predicted_seconds for row in without.rows if row.mixing == "global"}
    for operation in ("scores", "softmax"):
        assert each[operation] - before[operation] == pytest.approx(1e-6 * scores, rel=1e-3)


class Large(nn.Module):
    """40 MiB, twice."""

    def forward(self, x):
        return torch.relu(x.expand(2**20, 10) + 1).sum()


def test_new_memory_of_a_module_stands_in_its_operations(tmp_path, monkeypatch):
    keep_calibration(tmp_path, monkeypatch)
    given = {"example_inputs": (torch.zeros(2**20, 1),), "predict": True, "threads": 1}
    without = xfcost.analyze(Large(), **given)
    keep_calibration(tmp_path, monkeypatch, **SLOW_PAGES)
    found = xfcost.analyze(Large(), **given)
    before = {row.path: row.predicted_seconds for row in without.rows}
    more = {row.path: row.predicted_seconds - before[row.path] for row in found.rows}
    page = 1e-6 * (40 * MIB + 4096)
    assert sorted(more.values(), reverse=True)[:2] == [pytest.approx(page), pytest.approx(page)]
    assert found.prediction.seconds - without.prediction.seconds == pytest.approx(2 * page)
