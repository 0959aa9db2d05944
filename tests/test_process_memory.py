"""What a process may take: the margin over live tensors, limits from files given, one command under a limit."""

import resource
import subprocess
import sys

import pytest
import torch

from specs import architecture_of
from xfcost.ledger.errors import DeviceError
from xfcost.torch_models.build import build
from xfcost.torch_models.memory import peak as memory
from xfcost.torch_models.memory import shortage
from xfcost.torch_models.memory.shortage import Limit, cgroup_limits
from xfcost.torch_models.running.recorder import Recorder

MIB = 2**20


def test_a_run_on_the_cpu_needs_a_margin_over_its_live_tensors():
    # 1,000 bytes, half of them again, 64 MiB; a device's allocator is told apart
    assert memory.bytes_to_run(1000, "cpu") == 1500 + 64 * MIB
    assert memory.bytes_to_run(1000, "cuda:0") == 1000


@pytest.mark.parametrize("mode", ["forward", "decode"])
def test_weights_and_caches_are_made_in_their_type(mode):
    # no tensor of float32 beside them: the peak of building is what stays, but for a few numbers
    with Recorder(calls=False) as live:
        model = build(architecture_of("gpt2", tokens=(16,), dtype="bfloat16", mode=mode), "cpu").model
    kept = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    assert kept >= 2 * 124_439_808
    assert live.run.peak_bytes() < kept + 1024


@pytest.mark.parametrize("name", ["transformer-base", "bloom-560m"])
def test_fixed_tables_of_16_bits_are_those_of_float32_rounded(name):
    wide, narrow = (build(architecture_of(name, dtype=dtype), "cpu").model for dtype in ("float32", "bfloat16"))
    rounded = dict(wide.to(torch.bfloat16).named_buffers())
    assert rounded
    for path, buffer in narrow.named_buffers():
        assert torch.equal(buffer, rounded[path]), path


VERSION_2 = {
    "/proc/self/cgroup": "0::/user/job\n",
    "/proc/self/mounts": "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n",
    "/sys/fs/cgroup/user/job/memory.max": "max\n",
    "/sys/fs/cgroup/user/job/memory.current": "50\n",
    "/sys/fs/cgroup/user/memory.max": "1000\n",
    "/sys/fs/cgroup/user/memory.current": "700\n",
    "/sys/fs/cgroup/user/memory.stat": "anon 500\ninactive_file 100\n",
}
VERSION_1 = {
    "/proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/box/job\n0::/\n",
    "/proc/self/mounts": "cgroup /cg/memory cgroup rw,memory 0 0\ncgroup /cg/cpu cgroup rw,cpu 0 0\n",
    "/cg/memory/box/job/memory.limit_in_bytes": "900\n",
    "/cg/memory/box/job/memory.usage_in_bytes": "950\n",
    "/cg/memory/box/memory.limit_in_bytes": "9223372036854771712\n",
    "/cg/memory/box/memory.usage_in_bytes": "5\n",
    "/cg/memory/memory.limit_in_bytes": "5000\n",
    "/cg/memory/memory.usage_in_bytes": "1000\n",
}


def test_cgroups_of_version_2_own_and_ancestors():
    # the job itself has no limit; its parent's 1,000, 700 of them used, 100 of those reclaimable
    assert list(cgroup_limits(VERSION_2.get)) == [Limit(400, "the memory limit of the cgroup /user (1,000 bytes)")]


def test_cgroups_of_version_1_own_and_ancestors():
    assert [limit.left for limit in cgroup_limits(VERSION_1.get)] == [0, 4000]


@pytest.mark.parametrize("missing", ["/proc/self/cgroup", "/proc/self/mounts"])
def test_a_system_without_cgroups_has_no_such_limit(missing):
    assert list(cgroup_limits({**VERSION_2, missing: None}.get)) == []


def test_the_tightest_limit_decides_and_is_named(monkeypatch):
    monkeypatch.setattr(shortage, "read_text", VERSION_2.get)
    with pytest.raises(DeviceError, match=r"needs 401 bytes .* the cgroup /user \(1,000 bytes\) leaves 400 bytes"):
        memory.check_room(401, "cpu", "Toy")
    memory.check_room(400, "cpu", "Toy")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to "
                      "allocate 25690112 bytes. Error code 12"), r"25,690,112 bytes \(24\.\d+ MiB\) could not be had"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "CUDA out of memory"),
        (MemoryError(), "MemoryError"),
        (RuntimeError("can't start new thread"), "can't start new thread"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "libtorch_cpu.so"),
        (OSError(12, "Cannot allocate memory"), "Cannot allocate memory"),
    ],
)  # fmt: skip
def test_memory_that_runs_out_is_an_error_with_bytes(error, said):
    with (
        pytest.raises(
            DeviceError, match=rf"Toy: memory ran out while tracing it: .*{said}.* leaves [\d,]+ bytes; raise"
        ),
        shortage.memory_may_run_out("Toy", "tracing it"),
    ):
        raise error


def test_another_error_passes():
    with pytest.raises(RuntimeError, match="shapes"), shortage.memory_may_run_out("Toy", "tracing it"):
        raise RuntimeError("shapes cannot be multiplied")


def command_under(limit, *arguments):
    """The command in a process whose address space is limited to so many bytes."""
    return subprocess.run(
        [sys.executable, "-m", "xfcost", "analyze", "vit-ti32", *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't hold a process to this limit")
@pytest.mark.parametrize("arguments", [(), ("--device", "cpu", "--runs", "1")])
@pytest.mark.parametrize("limit", [200 * MIB, 600 * MIB])
def test_a_limited_address_space_is_an_error_and_no_traceback(limit, arguments):
    done = command_under(limit, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    error = done.stderr.splitlines()[-1]
    assert "ulimit -v" in error
    assert f"{limit:,} bytes" in error
    assert "--no-trace" in error


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't hold a process to this limit")
def test_a_wide_limit_lets_torch_load():
    done = command_under(2**36)  # 64 GiB
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't hold a process to this limit")
def test_without_torch_the_same_limit_is_enough():
    assert command_under(200 * MIB, "--no-trace").returncode == 0
