"""Before a command counts: imports, completion, encodings, memory."""

import functools
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from helpers import environment, error_of, stdout_of, words_of, xf
from selection import TESTS, imports_of, modules_of_tests
from specs import architecture_of
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.ledger.errors import DeviceError
from xfcost.ledger.visible import HANDLER, csv_cell, json_written, plain, written_columns
from xfcost.mechanisms import MECHANISMS
from xfcost.torch_models.build import build
from xfcost.torch_models.memory import peak as memory
from xfcost.torch_models.memory import shortage
from xfcost.torch_models.memory.shortage import Limit, cgroup_limits
from xfcost.torch_models.running.recorder import Recorder

# What a fresh process imports: counting needs none of the heavy libraries, and importing xfcost none at all ───────────

HEAVY = (
    "torch",
    "fvcore",
    "numpy",
    "pandas",
    "sympy",
    "matplotlib",
    "transformers",
    "psutil",
    "joblib",
    "distributed",
    "pydantic",
)

_PAGE = os.path.join(tempfile.gettempdir(), "xfcost-imports-report.html")
COUNTING = [
    ["analyze", "vit", "--no-trace"], ["analyze", "swin", "--no-trace", "--by", "mixing"],
    ["analyze", "gpt3", "--no-trace", "--format", "json"], ["analyze", "vit", "--no-trace", "--format", "csv"],
    ["analyze", "vit", "--no-trace", "--format", "markdown"],
    ["analyze", "gpt3-xl", "--mode", "train", "--tokens", "300B", "--on", "a100-sxm-80x8", "--dtype", "bf16"],
    ["compare", "vit", "swin", "--N", "784"], ["compare", "vit", "swin", "--N", "784", "--format", "json"], ["list"],
    ["list", "--totals"], ["list", "--models"],
    ["analyze", "qwen3-32b", "--mode", "decode", "--on", "h100-sxmx2", "--N", "32k", "--batch", "16"],
    ["compare", "qwen3-0.6b", "llama3-8b", "--mode", "generate", "--N", "8k", "--new-tokens", "20"], ["show", "vit"],
    ["show", "vit", "--full"], ["schema"], ["import", "tests/data/configs/llama-2-7b.json"], ["diagram", "vit", "swin"],
    ["glance", "vit", "swin"], ["report", "vit", "swin", "--N", "784", "-f", "-o", _PAGE], ["--help"],
    ["analyze", "--help"], ["plot", "--help"], ["measure", "--help"], ["--version"],
]  # fmt: skip

_RUN = """
import sys
sys.argv = ["xfcost", *{arguments!r}]
from xfcost.cli import main
try:
    main()
except SystemExit as leaving:
    assert not leaving.code, leaving.code
"""
_PROBE = (
    _RUN
    + """
print("HEAVY:", *sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
"""
)


def imported(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1].removeprefix("HEAVY:").split()


def test_counting_imports_no_heavy_library():
    # one process: what a command imports stays
    runs = "".join(_PROBE.format(arguments=arguments, heavy=HEAVY) for arguments in COUNTING)
    assert imported(runs) == []


def test_files_of_tests_import_no_torch_where_none_of_their_modules_names_it():
    light = [test for test in modules_of_tests() if not any(one.startswith(_TORCH) for one in imports_of(test))]
    assert len(light) > 10
    probe = "print('HEAVY:', *({'torch'} & set(sys.modules)), file=sys.stderr)"
    names = ", ".join(light)
    paths = [str(TESTS), str(TESTS.parent / "tools")]
    assert imported(f"import sys\nsys.path[:0] = {paths}\nimport {names}\n{probe}") == []


_TORCH = ("torch", "xfcost.torch_models", "transformers", "xfcost.cli")


LAYER = ["torch.nn:Linear", "--build", "in_features=3", "--build", "out_features=4", "--input", "2x3"]


@pytest.mark.parametrize("words", [["vit"], LAYER], ids=["traced", "module"])
def test_an_answer_of_torch_leaves_its_compiler_alone(words):
    # torch imports it, over a second, to keep it out of its own shape formulas and dispatch modes.
    probe = _PROBE.format(arguments=["analyze", *words], heavy=("torch._dynamo", "torch._meta_registrations"))
    assert imported(probe) == ["torch._meta_registrations"]


# The kinds that ViT's spec names; `enter`, windows and experts stay unread.
VIT = ["layers.feed_forward", "layers.heads", "layers.stems", "layers.tokens", "mechanisms.full"]
_KINDS = (
    _RUN
    + """
kinds = (one for one in sys.modules if one.startswith(("xfcost.layers.", "xfcost.mechanisms.")))
print("HEAVY:", *sorted(one.removeprefix("xfcost.") for one in kinds), file=sys.stderr)
"""
)


@pytest.mark.parametrize(
    ("arguments", "kinds"), [(["analyze", "vit", "--no-trace"], VIT), (["--help"], []), (["list"], [])], ids=" ".join
)
def test_only_the_kinds_that_a_spec_names_are_imported(arguments, kinds):
    assert imported(_KINDS.format(arguments=arguments)) == kinds


def test_the_schema_imports_every_kind():
    lists = (MECHANISMS, EMBEDS, ENTERS, SUBLAYERS, HEADS)
    written = {f"{kinds.package}.{name.partition(':')[0]}" for kinds in lists for name in kinds.names.values()}
    found = imported(_KINDS.format(arguments=["schema"]))
    assert {f"xfcost.{one}" for one in found} == written


@pytest.mark.parametrize(
    "call",
    ["", "xfcost.analyze('vit', N=784, trace=False); xfcost.compare('vit', 'swin', N=784)"],
    ids=["no", "counts"],
)
def test_xfcost_imports_no_heavy_library_into_python(call):
    code = f"import sys, xfcost\n{call}\nprint('HEAVY:', *sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)"
    assert imported(code) == []


# The shell's completion: commands, options and presets, without torch ─────────────────────────────────────────────────

# The shell is named, and not looked for among the parents of the process.
NAMED = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}

ASK = """
import sys
sys.argv = ["xfcost"]
from xfcost.__main__ import main
try:
    main()
finally:
    heavy = {"torch", "fvcore", "pandas", "matplotlib", "numpy"} & set(sys.modules)
    assert not heavy, heavy
"""


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    asked = {"_XFCOST_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment() | asked, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("compare", "vit", "mixer-s"), ["mixer-s16", "mixer-s32"]),
        (("analyze", "./mixer-s"), []),  # a path is left to the shell
        (("ana",), ["analyze"]),
        (("analyze", "--att"), ["--attention"]),
        (("analyze", "vit", "--on", "a100-sxm-"), ["a100-sxm-40", "a100-sxm-80"]),
        (("analyze", "vit", "--device", "c"), ["cpu", "cuda"]),
        (("measure", "vit", "--device", "m"), ["mps"]),
        (("compare", "vit", "--mode", "de"), ["decode"]),
        (("analyze", "vit", "--by", "mod"), ["module"]),
        (("analyze", "vit", "--on", "l40s,a100-sxm-"), ["l40s,a100-sxm-40", "l40s,a100-sxm-80"]),
        (("analyze", "qwen3-32"), ["qwen3-32b"]),
        (("find", "--sort", "cache"), ["cache-bytes"]),
        (("plot", "vit", "--metric", "thr"), ["throughput"]),
        (("calibrate", "--device", "c"), ["cpu", "cuda"]),
    ],
    ids=" ".join,
)
def test_words_complete(words: tuple[str, ...], offered: list[str]) -> None:
    assert completed("xfcost", *words) == offered


def test_it_is_installed_into_the_home_folder(tmp_path: Path) -> None:
    stdout_of("--install-completion", "bash", HOME=str(tmp_path), **NAMED)
    written = [file.read_text(encoding="utf-8") for file in tmp_path.rglob("*") if file.is_file()]
    assert any("COMPLETE" in text for text in written)


# Output to a stream whose encoding lacks characters of the reports: ASCII, and cp1252 of Windows ──────────────────────

ROOT = Path(__file__).parents[1]

COMMANDS = [
    line.strip()
    for line in """
    analyze vit --no-trace | analyze vit --N 49 | analyze vit --no-trace --format csv
    analyze vit --no-trace --format markdown | analyze vit --no-trace --format latex | compare vit swin --no-trace
    find vit | diagram vit | glance vit | reach vit --N 49 | stream vit --N 49 | layers --N 1024 --d 512 | survey
    devices | diff vit swin | list | check vit --max-macs 1G | plot vit -o plot.svg --force
    report vit -o report.html --force | show common-nystrom | stream --help
    """.replace("\n", "|").split("|")
    if line.strip()
]


def words(text):
    """Its words; a rule is one sign, however long."""
    return re.sub("--+", "-", text).split()


class TestCharacters:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("22 G → 4 G, 4.99× less, −80 %", "22 G -> 4 G, 4.99x less, -80 %"),
            ("O(N·P²·C·d), N√N, √(N·d), 1/√d_k", "O(N*P^2*C*d), N sqrt N, sqrt(N*d), 1/sqrt d_k"),
            ("⌈N/2⌉ ≤ ⌊N⌋ ≠ ∞", "ceil(N/2) <= floor(N) != inf"),
            ("QKᵀ, A⁽²⁾, 10⁻³, h₁₂, Σᵢ xᵢ", "QK^T, A^(2), 10^-3, h_12, Sigma_i x_i"),
            ("X̃ = φ(x)∘Δ, 2φφ", "X~ = phi(x)oDelta, 2 phi phi"),
            ("Nyström, Łukasz, e\u0301, ¼", "Nystrom, Lukasz, e, 1/4"),
            ("3 µs", "3 us"),
            ("╭─┬─╮ │ ▇■", "+-+-+ | ##"),
            ("中 \udcff", r"\u4e2d \udcff"),
            ("＝1＋1", r"\uff1d1\uff0b1"),  # no sign turns into one that a spreadsheet reads
        ],
    )
    def test_ascii(self, text, expected):
        assert plain(text) == expected

    def test_an_encoding_keeps_what_it_has(self):
        assert plain("N²·d → √N × é …", "cp1252") == "N²·d -> sqrt N × é …"

    def test_every_character_of_the_project_has_a_substitute(self):
        files = [file for folder in ("src", "specs") for file in (ROOT / folder).rglob("*.*")]
        texts = [file.read_text("utf-8") for file in files if file.suffix in {".py", ".yaml", ".j2"}]
        letters = {character for text in texts for character in text if not character.isascii()}
        assert {"→", "√", "é"} <= letters
        assert {one for one in letters if "\\" in plain(one)} == set()

    def test_columns_stay_columns(self):
        # `O(N²)` grows by one in ASCII and takes one of the two blanks behind it; √ grows by four, and takes three.
        stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors=HANDLER)
        assert written_columns("O(N²)  1  a\nO(N)   1  a\n√N     1  a\n╭─ N₁ ──╮\n╰───────╯", stream) == (
            "O(N^2) 1  a\nO(N)   1  a\nsqrt N 1  a\n+- N_1 -+\n+-------+"
        )

    def test_json_takes_its_own_escapes(self):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
        assert json_written('"→ × 😀"', stream) == r'"\u2192 \u00d7 \ud83d\ude00"'
        assert json_written('"×"', stream) == '"×"'

    def test_no_cell_becomes_a_formula(self):
        assert csv_cell("→ x") == "'→ x"  # `-> x` in ASCII
        assert csv_cell("×2") == "×2"


@functools.cache
def in_utf_8(command):
    with tempfile.TemporaryDirectory() as folder:
        return xf(*command.split(), cwd=folder)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
class TestCommands:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_the_report_is_whole(self, tmp_path, command, encoding):
        done = xf(*command.split(), cwd=tmp_path, PYTHONIOENCODING=encoding)
        usual = in_utf_8(command)
        assert done.returncode == usual.returncode == command.startswith("check"), done.stderr
        assert words(done.stdout) == words(plain(usual.stdout, encoding))
        assert not re.search(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}", done.stdout + done.stderr)
        assert usual.stdout.count("\n") == done.stdout.count("\n")

    @pytest.mark.parametrize("given", [["analyze", "vit", "--no-trace", "--format", "json"], ["schema"]])
    def test_json_means_the_same(self, given, encoding):
        done, usual = xf(*given, PYTHONIOENCODING=encoding), xf(*given)
        assert done.returncode == 0, done.stderr
        assert "×" in usual.stdout
        assert json.loads(done.stdout) == json.loads(usual.stdout)

    @pytest.mark.parametrize("ending", ["csv", "json", "md", "txt"])
    def test_a_file_is_utf_8(self, tmp_path, ending, encoding):
        given, usual = tmp_path / f"given.{ending}", tmp_path / f"usual.{ending}"
        done = xf("analyze", "vit", "--no-trace", "-o", given, PYTHONIOENCODING=encoding)
        xf("analyze", "vit", "--no-trace", "-o", usual)
        assert done.returncode == 0, done.stderr
        assert given.read_bytes() == usual.read_bytes()
        assert "·" in given.read_text("utf-8")

    def test_an_error_is_whole(self, encoding):
        assert f"'{plain('→é', encoding)}'" in error_of("analyze", "→é", PYTHONIOENCODING=encoding)


@pytest.mark.parametrize(
    ("encoding", "written"),
    [("ascii:replace", b"22.41 G ? 4.491 G"), ("cp1252", b"22.41 G -> 4.491 G"), ("cp1252", b"224\xd7224")],
)
def test_bytes_are_of_the_encoding_and_a_choice_of_ones_own_is_kept(encoding, written):
    environ = environment(PYTHONIOENCODING=encoding)
    done = subprocess.run(words_of("diff", "vit", "swin"), env=environ, capture_output=True, check=True)
    assert written in done.stdout


# What a process may take: the margin over live tensors, limits from files given, one command under a limit ────────────

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
    small = ("**.dim=32", "input.vocabulary=11")
    wide, narrow = (build(architecture_of(name, *small, dtype=one), "cpu").model for one in ("float32", "bfloat16"))
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


@pytest.mark.parametrize(
    ("files", "left"),
    [
        # the job itself has no limit; its parent's 1,000, 700 of them used, 100 of those reclaimable
        (VERSION_2, [400]),
        (VERSION_1, [0, 4000]),
        (VERSION_2 | {"/proc/self/cgroup": None}, []),
        (VERSION_2 | {"/proc/self/mounts": None}, []),
    ],
)
def test_limits_of_cgroups_own_and_ancestors(files, left):
    assert [limit.left for limit in cgroup_limits(files.get)] == left


def test_the_tightest_limit_decides_and_is_named(monkeypatch):
    monkeypatch.setattr(shortage, "read_text", VERSION_2.get)
    with pytest.raises(DeviceError, match=r"needs 401 bytes .* the cgroup /user \(1,000 bytes\) leaves 400 bytes"):
        memory.check_room(401, "cpu", "Toy")
    memory.check_room(400, "cpu", "Toy")


ALLOCATING = "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate "


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError(f"{ALLOCATING}25690112 bytes. Error code 12"), r"25,690,112 bytes \(24\.\d+ MiB\)"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "CUDA"),
        (MemoryError(), "MemoryError"),
        (RuntimeError("can't start new thread"), "thread"),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "libtorch_cpu.so"),
        (OSError(12, "Cannot allocate memory"), "allocate"),
    ],
)
def test_memory_that_runs_out_is_an_error_with_bytes(error, said):
    refused = pytest.raises(DeviceError, match=rf"Toy: memory ran out while tracing it: .*{said}.* leaves [\d,]+ bytes")
    with refused, shortage.memory_may_run_out("Toy", "tracing it"):
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
    assert f"{limit:,} bytes" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't hold a process to this limit")
@pytest.mark.parametrize(("limit", "arguments"), [(2**36, ()), (200 * MIB, ("--no-trace",))])
def test_a_wide_limit_lets_torch_load_and_without_it_a_small_one_is_enough(limit, arguments):
    assert command_under(limit, *arguments).returncode == 0


def test_torch_that_does_not_load_in_time_is_refused(monkeypatch):
    def endless(*command, timeout, **how):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(shortage, "address_space_left", lambda: Limit(600 * MIB, "ulimit -v"))
    monkeypatch.setattr(shortage.subprocess, "run", endless)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(DeviceError, match=r"torch can't be loaded: ulimit -v leaves .* \(not loaded within 60 s\)"):
        shortage.check_torch_loads()
