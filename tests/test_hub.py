"""Models on the Hugging Face Hub, against a server on the loopback; and that nothing is opened without `--fetch`."""

from __future__ import annotations

import json
import math
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from helpers import command, error_of, stdout_of, xf
from hub_server import COMMIT, COMMITS, REFUSED, TOKEN, Hub, safetensors
from xfcost.api.analysis import analyze
from xfcost.importing import hub as module
from xfcost.importing.hub import StoredHeader, config_file, headers
from xfcost.ledger.errors import NotFetchedError, UsageError
from xfcost.ledger.tested import TESTED
from xfcost.spec.hub import HubName, hub_name, hub_source
from xfcost.spec.models import config_of

pytest.importorskip("huggingface_hub", minversion=TESTED["huggingface_hub"].oldest)
constants = pytest.importorskip("huggingface_hub.constants")

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip
QWEN = {**LLAMA, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 8}
REMOTE = {"model_type": "odd", "auto_map": {"AutoModel": "modeling_odd.Odd"}, "hidden_size": 16}
# Of 3 MB of weights only headers may be fetched; that of the second shard is longer than the first 100 kB.
SHARDS = {
    "model-1.safetensors": safetensors({"a": ("BF16", [1000, 1000], 2_000_000), "b": ("F32", [], 4)}),
    "model-2.safetensors": safetensors({"c": ("F8_E4M3", [1000, 1000], 1_000_000)}, pad=200_000),
}
INDEX = {"metadata": {"total_size": 3_000_004}, "weight_map": {"a": "model-1.safetensors", "c": "model-2.safetensors"}}
MODELS = {
    **dict.fromkeys(("org/small", "org/cut", "org/closed", "org/large", "org/slow", *REFUSED), LLAMA),
    "org/qwen": QWEN, "org/remote": REMOTE, "org/listed": json.loads(config_of("qwen3-8b").read_bytes()),
}  # fmt: skip
# As transformers names the tensors of `LLAMA`: 2 layers of width 16, 2 heads of 8, 1 of keys and values.
LAYER = {
    "self_attn.q_proj": [16, 16], "self_attn.k_proj": [8, 16], "self_attn.v_proj": [8, 16],
    "self_attn.o_proj": [16, 16], "mlp.gate_proj": [24, 16], "mlp.up_proj": [24, 16], "mlp.down_proj": [16, 24],
    "input_layernorm": [16], "post_attention_layernorm": [16],
}  # fmt: skip
SHAPES = {
    "model.embed_tokens.weight": [100, 16], "model.norm.weight": [16], "lm_head.weight": [100, 16],
    "model.layers.0.self_attn.rotary_emb.inv_freq": [4],
    **{f"model.layers.{layer}.{name}.weight": shape for layer in (0, 1) for name, shape in LAYER.items()},
}  # fmt: skip
STORED = safetensors({name: ("BF16", shape, 2 * math.prod(shape)) for name, shape in SHAPES.items()})
FILES = {name: {"config.json": json.dumps(values).encode()} for name, values in MODELS.items()} | {
    "org/page": {"config.json": b"<html>"},
    "org/gguf": {"model.gguf": b""},
    "org/single": {"model.safetensors": SHARDS["model-1.safetensors"]},
    "org/shards": {"model.safetensors.index.json": json.dumps(INDEX).encode(), **SHARDS},
    "org/stored": {"config.json": json.dumps(LLAMA).encode(), "model.safetensors": STORED},
    "org/other": {"config.json": json.dumps(LLAMA | {"hidden_size": 32}).encode(), "model.safetensors": STORED},
    "org/torn": {
        "model.safetensors.index.json": json.dumps(INDEX).encode(),
        "model-1.safetensors": SHARDS["model-1.safetensors"],
    },
    "org/lying": {"model.safetensors": (10**12).to_bytes(8, "little") + b"{}"},
    "org/untrue": {"model.safetensors": b"\x0b" + bytes(7) + b'{"a": [1]} '},
}


@pytest.fixture(scope="module")
def served() -> Iterator[Hub]:
    with Hub(FILES).serving() as one:
        yield one


@pytest.fixture
def hub(served: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The server in the place of the Hub, and an empty cache: huggingface_hub reads its variables once."""
    use(served, tmp_path, monkeypatch)
    return served


def use(one: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one.requests.clear()
    answering_at(one.url, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "XFCOST_FETCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "settings"))
    monkeypatch.chdir(folder)


def answering_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    # releases before 1.0 have its value in a second place
    monkeypatch.setattr("huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is looked up or connected to, which then fails."""
    found: list[object] = []

    def refuse(*given: object, **_: object) -> None:
        found.append(given)
        raise OSError("no connection in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return found


@pytest.mark.parametrize(
    ("text", "repo", "revision"),
    [
        ("org/name", "org/name", None), ("hf:org/name", "org/name", None), ("hf:gpt2@v1.0", "gpt2", "v1.0"),
        ("org/Name-2.5-32B@refs/pr/1", "org/Name-2.5-32B", "refs/pr/1"),
        ("https://huggingface.co/org/name/", "org/name", None), ("https:/hf.co/org/name", "org/name", None),
    ],
)  # fmt: skip
def test_names_of_models_on_the_hub(text: str, repo: str, revision: str | None) -> None:
    assert hub_name(text) == (repo, revision, text)


def test_other_texts_are_no_names_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own/model").mkdir(parents=True)
    others = ["gpt2", "own/model", "./org/name", "/org/name", "a/b/c", "org/x.yaml", "nets/config.json", "m.py:Net",
              "org/x.gguf", "../x", "org/..", "HEAD~1:a/b", "", "org/", "hf:", "x y/z"]  # fmt: skip
    assert [text for text in others if hub_name(text) is not None] == []


def test_a_model_is_fetched_once_and_answered_as_its_config(served: Hub, tmp_path: Path) -> None:
    """As a command with HF_ENDPOINT and HF_HOME; the second time from the cache, and nothing is opened."""
    served.requests.clear()
    home = {"HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    home["XDG_CONFIG_HOME"] = str(tmp_path / "settings")
    words = ("analyze", "org/small", "--N", "64", "--no-trace", "--format", "json")
    (tmp_path / "small.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    done = command(*words, "--fetch", cwd=tmp_path, **home)
    assert done.returncode == 0, done.stderr
    found, asked = json.loads(done.stdout), served.asked()
    headers = {f"/org/small/resolve/{COMMIT}/model.safetensors{end}" for end in ("", ".index.json")}
    assert {path for _, path in asked} == {"/org/small/resolve/main/config.json", *headers}
    assert found["spec"] == f"hf:org/small@{COMMIT}"
    assert found["name"] == "small (LlamaForCausalLM)"
    assert found["notes"][0] == f"org/small of the Hugging Face Hub, at commit {COMMIT}"
    local = json.loads(stdout_of("analyze", "small.json", *words[2:], cwd=tmp_path))
    assert (found["totals"], found["operations"]) == (local["totals"], local["operations"])
    again = command(*words, cwd=tmp_path, **home)
    assert (again.stdout, served.asked()) == (done.stdout, asked)


def test_revisions_redirects_and_models_of_the_list(hub: Hub) -> None:
    old = analyze("hf:org/small@old", N=64, trace=False, fetch=True)
    assert old.metadata.source == f"hf:org/small@{COMMITS['old']}"
    assert analyze("hf:renamed", N=64, trace=False, fetch=True).total("macs") == old.total("macs")
    listed = analyze("org/listed", mode="decode", N=64, fetch=True)
    assert any(f"hf:org/listed@{COMMIT} has the fields of qwen3-8b" in note for note in listed.metadata.notes)
    hub.requests.clear()
    assert analyze(f"hf:org/small@{COMMITS['old']}", N=64, trace=False, fetch=True).metadata == old.metadata
    assert hub.asked() == []  # a commit does not change


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("org/gated", "is gated; accept its terms at"),
        ("org/private", "has no such model"),
        ("Qwen/Qwen3-33B", "has no such model; did you mean 'Qwen/Qwen3-32B'"),
        ("org/forbidden", "may not be read with this token"),
        ("org/limited", "run it again in 300 s"),
        ("org/broken", "answers with status 503"),
        ("hf:org/small@nope", "has no revision nope"),
        ("org/gguf", "has no config.json"),
        ("org/page", f"hf:org/page@{COMMIT}:1:1 is not valid JSON"),
        ("org/large", "1,000,000,000 bytes"),
        ("org/cut", "broke off the download"),
        ("hf:a--b/c", "is no name of a model on the Hub"),
    ],
)
def test_what_fails_is_one_line(hub: Hub, model: str, told: str) -> None:
    errors = [line for line in error_of("analyze", model, "--fetch").splitlines() if not line.startswith("fetching")]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert told in errors[0]


def test_a_download_that_breaks_off_is_tried_again_and_then_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("huggingface_hub.file_download.time", type("Time", (), {"sleep": waited.append}))
    assert "broke off the download" in error_of("analyze", "org/closed", "--fetch")
    assert len([one for one in hub.requests if one.method == "GET"]) == len(waited) + 1
    assert waited or Version(version("huggingface_hub")) < Version("1.31"), "older ones try once"


def test_a_token_opens_a_gated_model(hub: Hub) -> None:
    assert json.loads(stdout_of("show", "org/gated", "--fetch", HF_TOKEN=TOKEN)) == LLAMA
    assert {one.token for one in hub.requests} == {TOKEN}


def test_a_slow_server_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hub(FILES).serving() as slow:
        use(slow, tmp_path, monkeypatch)
        monkeypatch.setattr(module, "MOST_SECONDS", 0.1)
        assert "sent no complete answer in 0.1 s" in error_of("analyze", "org/slow", "--fetch")
        variables = {"HF_ENDPOINT": slow.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1"}
        done = command("analyze", "org/slow", "--fetch", HF_HUB_ETAG_TIMEOUT="1", **variables)
        assert (done.returncode, done.stdout) == (2, "")
        assert "did not answer in time" in done.stderr


def test_a_server_that_is_not_there(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cache has is still answered without asking, and in the offline mode."""
    before = analyze("org/small", N=64, trace=False, fetch=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    answering_at(url, monkeypatch)
    told = error_of("analyze", "org/small", "--fetch")
    assert "can't be reached" in told
    assert "--no-fetch answers from the cache" in told
    assert analyze("org/small", N=64, trace=False).metadata == before.metadata
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert analyze("org/small", N=64, trace=False, fetch=True).metadata == before.metadata
    assert "HF_HUB_OFFLINE is set" in error_of("analyze", "org/qwen", "--fetch")


COMMANDS = (
    "analyze {}", "compare vit {}", "plot {}", "find {} --N 64", "report {}", "check {} --max-macs 1T", "diagram {}",
    "measure {} --N 64 --save x.jsonl", "roofline {} --on h100-sxm", "glance {}", "reach {}", "stream {}", "show {}",
    "diff vit {}", "import {}",
)  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words.split()[0])
def test_nothing_is_opened_without_fetch(hub: Hub, opened: list[object], words: str) -> None:
    """The error says what would be fetched, and the very command that does it."""
    for model in ("org/small", "hf:org/small@old"):
        told = error_of(*words.format(model).split())
        assert told.endswith(f"are fetched from the Hub: xfcost {words.format(model)} --fetch\n")
        assert "its config.json and the index and headers of its weights" in told
    assert (opened, hub.requests) == ([], [])


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words.split()[0])
def test_every_command_fetches(hub: Hub, words: str) -> None:
    """`measure` takes no config; the others answer, `reach` and `stream` on the small model itself."""
    done = xf(*words.format("org/small").split(), "--fetch", "--force" if "import" in words else "--fetch")
    assert ("GET", "/org/small/resolve/main/config.json") in hub.asked()
    assert (done.returncode, "Traceback" in done.stderr) == (2 if "measure" in words else 0, False), done.stderr
    assert "measure" not in words or f"measure: hf:org/small@{COMMIT} is a config" in done.stderr


def test_who_allows_to_fetch(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option goes before the environment, and that before the nearest pyproject.toml with a table of xfcost."""
    model = HubName("org/small", None, "org/small")

    def fetches(fetch: bool | None = None) -> bool:
        hub.requests.clear()
        try:
            config_file(model, fetch=fetch, say=None)
        except NotFetchedError:
            assert hub.requests == []
            return False
        return bool(hub.requests)

    assert not fetches()
    (tmp_path / "pyproject.toml").write_text("[tool.xfcost]\nfetch = true\n", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("XFCOST_FETCH", "0")
    assert not fetches()
    assert fetches(fetch=True)
    monkeypatch.delenv("XFCOST_FETCH")
    assert fetches()
    assert not fetches(fetch=False)  # answered from the cache
    (tmp_path / "pyproject.toml").write_text('[tool.xfcost]\nfetch = "yes"\n', encoding="utf-8")
    with pytest.raises(UsageError, match=r"pyproject.toml: \[tool.xfcost\]: fetch: expected true or false, got yes"):
        config_file(model, fetch=None, say=None)
    monkeypatch.setenv("XFCOST_FETCH", "1")
    assert fetches()
    monkeypatch.setenv("XFCOST_FETCH", "yes")
    with pytest.raises(UsageError, match="XFCOST_FETCH=yes: expected 1"):
        config_file(model, fetch=None, say=None)


def test_check_takes_what_its_pyproject_allows(hub: Hub, tmp_path: Path) -> None:
    table = '[tool.xfcost]\nfetch = true\n[[tool.xfcost.check]]\ntarget = "org/small"\nmax-params = "1M"\nN = 64\n'
    (tmp_path / "pyproject.toml").write_text(table, encoding="utf-8")
    assert "org/small" in stdout_of("check")
    assert hub.asked()


def test_without_huggingface_hub_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'xfcost[hub]'" in error_of("analyze", "org/small", "--fetch")
    assert "are fetched from the Hub (after pip install 'xfcost[hub]')" in error_of("analyze", "org/small")


def test_headers_of_weights_without_the_weights(hub: Hub) -> None:
    one = {"a": StoredHeader("BF16", (1000, 1000), 2_000_000), "b": StoredHeader("F32", (), 4)}
    other = {"c": StoredHeader("F8_E4M3", (1000, 1000), 1_000_000)}
    assert headers(HubName("org/single", None, "org/single")) == {"model.safetensors": one}
    found = headers(HubName("org/shards", COMMIT, "org/shards"))
    assert found == {"model-1.safetensors": one, "model-2.safetensors": other}
    fetched = [request for request in hub.requests if "/cdn/" in request.path and request.method == "GET"]
    assert len(fetched) == 4  # of the long header a second range
    assert all(request.range for request in fetched)
    assert sum(request.sent for request in hub.requests) < 600_000


def test_the_bytes_of_a_model_are_those_of_its_tensors(hub: Hub) -> None:
    """2 bytes for each of 2·1600 + 16 + 2·(2·256 + 2·128 + 3·384 + 32) elements that are read, and 4·2 that are not."""
    words = ("--N", "8", "--mode", "decode", "--no-trace", "--json")
    first = json.loads(stdout_of("analyze", "org/stored", *words, "--fetch"))
    read = 2 * (2 * 1600 + 16 + 2 * (2 * 256 + 2 * 128 + 3 * 384 + 32))
    assert first["totals"]["held_bytes"] == read
    assert first["checkpoint"]["bytes"] == read + 8
    hub.requests.clear()
    assert json.loads(stdout_of("analyze", "org/stored", *words)) == first
    assert hub.requests == []


def test_tensors_that_differ_from_the_config_are_refused(hub: Hub) -> None:
    assert "config.json" in (told := error_of("analyze", "org/other", "--N", "8", "--fetch"))
    assert "16" in told


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("org/lying", "header is too big"),
        ("org/untrue", "can't be fetched from"),
        ("org/limited", "run it again in 300 s"),
        ("org/torn", "org/torn: has no model-2.safetensors, which model.safetensors.index.json names; see http"),
    ],
)
def test_headers_that_can_not_be_read(hub: Hub, model: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        headers(HubName(model, None, model))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_path_in_the_cache_has_its_model(tmp_path: Path) -> None:
    path = tmp_path / f"models--org--small/snapshots/{COMMIT}/config.json"
    assert hub_source(str(path)) == ("org/small", COMMIT, f"hf:org/small@{COMMIT}")
    assert hub_source(str(path.parent)) is None


@pytest.mark.parametrize(
    ("model", "told"), [("org/qwen", f"org/qwen of the Hugging Face Hub, at commit {COMMIT}"), ("org/remote", "odd")]
)
def test_the_class_of_transformers_and_no_code_of_the_repository(hub: Hub, model: str, told: str) -> None:
    done = xf("analyze", model, "--fetch", "--N", "64", "--no-mixing", "--format", "json")
    assert (done.returncode, told in done.stdout + done.stderr) == (2 if model == "org/remote" else 0, True)
    assert len([line for line in done.stderr.splitlines() if line.startswith("error")]) == done.returncode // 2
    assert all("modeling" not in path for _, path in hub.asked())
