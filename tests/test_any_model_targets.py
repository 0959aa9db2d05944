"""Torch modules by name: Python code, configs of transformers, and inputs as texts."""

import json
import shutil
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

import xfcost
from any_models import GEMMA
from helpers import command, error_of, stdout_of
from hugging_face import write
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.spec.targets import module_target
from xfcost.torch_models.any_model.inputs import Lengths, inputs_from
from xfcost.torch_models.any_model.ledger import How
from xfcost.torch_models.any_model.offline import offline, without_hub
from xfcost.torch_models.any_model.targets import NamedModule, configured
from xfcost.torch_models.memory import peak
from xfcost.torch_models.memory.shortage import Limit

FILES = Path(__file__).with_name("golden") / "files" / "nets"


@pytest.fixture
def code(tmp_path):
    for name in ("beside.py", "model.py"):
        shutil.copy(FILES / name, tmp_path)
    return tmp_path / "model.py"


def macs(*words):
    told = stdout_of("analyze", *words, "--format", "json")
    return json.loads(told)["totals"]["macs"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vit", None),
        ("toy.yaml", None),
        ("../a b/model.py:Net", ("file", "../a b/model.py", "Net")),
        ("model.py:zoo.small", ("file", "model.py", "zoo.small")),
        ("timm.models:ViT", ("package", "timm.models", "ViT")),
        ("C:\\specs\\toy.yaml", None),
        ("folder/config.json", ("config", "folder/config.json", "")),
    ],
)
def test_a_target_is_told_by_its_text(text, expected):
    found = module_target(text)
    assert (found and (found.kind, found.place, found.name)) == expected


def test_a_class_a_function_and_a_module_of_a_file(code):
    # 5 tokens of width 4, d² each: 2, 1 and 3 layers
    assert macs(f"{code}:Net") == 2 * 5 * 16
    assert macs(f"{code}:Net", "--build", "depth=7") == 7 * 5 * 16
    assert macs(f"{code}:made", "--build", "width=4") == 5 * 16
    assert macs(f"{code}:ready") == 3 * 5 * 16
    assert macs(f"{code}:Looks", "--input", "6x3") == 6 * 3 * 2, "its constructor looks at numbers: no meta tensors"


@pytest.mark.parametrize("sibling", ["layers.py", "layers/__init__.py", "layers/linear.py"])
def test_modules_of_two_folders_import_their_own_siblings_of_one_name(tmp_path, sibling):
    """A linear layer of 8 -> width on 5 rows: 5·8·width MACs."""
    name = "layers.linear" if sibling.endswith("linear.py") else "layers"
    for width in (16, 24):
        place = tmp_path / str(width) / sibling
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"from torch import nn\n\ndef Layer(): return nn.Linear(8, {width})\n")
        (tmp_path / str(width) / "model.py").write_text(f"from {name} import Layer\n\ndef build(): return Layer()\n")
    before = set(sys.modules)
    targets = [str(tmp_path / str(width) / "model.py") + ":build" for width in (16, 24, 16)]
    found = [xfcost.analyze(target, inputs=("5x8",), mixing=False).total("macs") for target in targets]
    assert found == [640, 960, 640]
    for module in set(sys.modules) - before:
        if module.partition(".")[0] == "layers":
            del sys.modules[module]


def test_h_and_w_are_the_height_and_the_width():
    build = ["in_channels=3", "out_channels=4", "kernel_size=1"]
    ledger = xfcost.analyze("torch.nn:Conv2d", inputs=["1x3xHxW"], build=build, size=(6, 8))
    assert ledger.total("macs") == 6 * 8 * 3 * 4
    assert ledger.module.inputs == ("input: 1×3×6×8 float32",)


def test_n_and_batch_are_letters_in_shapes(code):
    assert macs(f"{code}:Net", "--input", "BxNx4", "--N", "100", "--batch", "3") == 2 * 300 * 16
    assert xfcost.analyze(f"{code}:Net", inputs=["1xNx4"], N=7).total("macs") == 2 * 7 * 16


@pytest.mark.parametrize(
    ("words", "line"), [((":fails",), 33), ((":Net", "--input", "1x5x3"), 15)], ids=["made", "run"]
)
def test_an_error_of_the_code_has_its_line(code, words, line):
    assert f"model.py:{line})" in error_of("analyze", f"{code}{words[0]}", *words[1:]).replace("\n", "")


def test_a_module_that_is_a_part_of_a_part_is_refused(tmp_path):
    text = (FILES / "own.py").read_text(encoding="utf-8")
    (tmp_path / "own.py").write_text(text.replace("self.parent", "self.child.parent"), encoding="utf-8")
    assert "parent (Net)" in error_of("analyze", tmp_path / "own.py:Net", "--input", "1x4")


def test_processes_do_not_double_where_every_forward_forks(tmp_path):
    (tmp_path / "forks.py").write_text(
        "import os\nfrom torch import nn\nclass Net(nn.Linear):\n    def __init__(self): super().__init__(4, 4)\n"
        "    def forward(self, x):\n        open('ran', 'a').write('x')\n        os.fork()\n"
        "        return super().forward(x)\n"
    )
    done = command("analyze", tmp_path / "forks.py:Net", "--input", "1x4", "--mixing-limit", "0", cwd=tmp_path)
    assert done.stdout.count("20 parameters") == 1
    # a few runs of the first process, and of each child the rest of one
    assert len((tmp_path / "ran").read_text()) < 40


def test_a_file_that_is_not_there_or_raises(tmp_path):
    (tmp_path / "bad.py").write_text("x = 1\ny = (\n")
    with Path(tmp_path, "huge.py").open("wb") as file:
        file.truncate(2**25)
    assert error_of("analyze", tmp_path / "huge.py:Net")
    assert "bad.py:2" in error_of("analyze", tmp_path / "bad.py:Net").replace("\n", "")


def test_inputs_out_of_texts():
    texts = ["2x3", "ids=1xN:int64", "mask=BxN:bool", "use_cache=false", "past.0.1=1x2", "past.0.0=3", "past.1=null"]
    given = inputs_from(texts, {"N": 5, "B": 2}, "cpu")
    assert [tuple(one.shape) for one in given.args] == [(2, 3)]
    kwargs = given.kwargs
    assert (kwargs["ids"].shape, kwargs["ids"].dtype, int(kwargs["ids"].sum())) == ((1, 5), torch.int64, 0)
    assert (kwargs["mask"].shape, bool(kwargs["mask"].all())) == ((2, 5), True)
    assert kwargs["use_cache"] is False
    (first, second), nothing = kwargs["past"]
    assert (first.shape, second.shape, nothing) == ((3,), (1, 2), None)


def test_a_config_that_no_importer_knows_is_built_by_transformers(tmp_path):
    pytest.importorskip("transformers")
    ledger = xfcost.analyze(str(write(tmp_path, GEMMA)), N=5)
    # a token: Q and its projection 2·8·8, K and V 2·8·4, three maps of the MLP 3·8·12; 5² pairs of 2 heads of 4, twice
    layer = 5 * (2 * 64 + 2 * 32 + 3 * 96) + 2 * 25 * 2 * 4
    assert ledger.total("macs") == 2 * layer + 5 * 8 * 11
    assert ledger.module.tensors == "meta"


LOOKS = """
import torch
from torch import nn

class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(100, 100, bias=False)
    def forward(self, x):
        return self.map(x) if x.sum().item() > -1e9 else x

class Wrong(Looks):
    def forward(self, x):
        raise ValueError("my own")

class LooksInside(Looks):
    def __init__(self):
        super().__init__()
        self.scale = self.map.weight.abs().max().item()
"""


def named(file, name):
    module = NamedModule(module_target(f"{file}:{name}"), ["3x100"], [], 1)
    module.ledger(Lengths(None, None), How())


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        # 100² weights of 4 bytes
        ("Looks", r"needs 40,000 bytes \(39.06 KiB\)"),
        ("LooksInside", r"needs 40,000 bytes \(39.06 KiB\)"),
        # an error of the code itself makes no real weights
        ("Wrong", r"^Wrong does not run on these inputs: ValueError: my own \(.*net.py:14\)$"),
    ],
)
def test_real_weights_that_do_not_fit_are_not_made(tmp_path, monkeypatch, name, refused):
    monkeypatch.setattr(peak, "tightest", lambda: Limit(39_999, "a small limit"))
    (tmp_path / "net.py").write_text(LOOKS, encoding="utf-8")
    with pytest.raises(XfcostError, match=refused):
        named(tmp_path / "net.py", name)


ELSEWHERE = {"backbone": "facebook/dinov2-small", "use_pretrained_backbone": True, "backbone_config": None}
DEPTH = {"model_type": "depth_anything", "architectures": ["DepthAnythingForDepthEstimation"]}
POSE = {"model_type": "vitpose", "architectures": ["VitPoseForPoseEstimation"]}
SIZES = {"hidden_size": 16, "embedding_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32}
TINY = {"model_type": "electra", "architectures": ["ElectraModel"], **SIZES}
KERNELS = {"_attn_implementation": "kernels-community/flash-attn2", "auto_map": {"AutoModel": "a/b--modeling.Model"}}


@pytest.fixture
def opened(monkeypatch):
    """The connections that were tried."""
    found = []
    for of, name in ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket, "getaddrinfo")):
        monkeypatch.setattr(of, name, lambda *given: found.append(given))
    return found


@pytest.mark.parametrize(
    ("values", "left_out"),
    [
        (DEPTH | ELSEWHERE, "backbone use_pretrained_backbone"),
        (POSE | ELSEWHERE, "backbone use_pretrained_backbone"),
        (TINY | KERNELS, "_attn_implementation auto_map"),
        (TINY | {"attn_implementation": {"": "flash_attention_3"}}, "attn_implementation"),
        (TINY | {"_experts_implementation": "sonicmoe"}, "_experts_implementation"),
        (TINY | {"_attn_implementation": "sdpa", "_name_or_path": "a/b", "tokenizer_class": "a/b"}, ""),
        (TINY | {"text_config": {"auto_map": {"a": "b"}}}, "text_config.auto_map"),
    ],
)  # fmt: skip
def test_a_config_opens_no_connection(values, left_out, tmp_path, opened):
    path = write(tmp_path, values)
    hub = constants.HF_HUB_OFFLINE
    with offline():
        configured(str(path), "meta")
    assert " ".join(without_hub(values)[1]) == left_out
    assert not opened
    assert constants.HF_HUB_OFFLINE is hub


def test_a_model_that_is_on_the_hub_alone_is_refused(tmp_path, opened):
    path = write(tmp_path, DEPTH | {"backbone": "dinov2"})
    with pytest.raises(UsageError, match="opens no connection"):
        xfcost.analyze(str(path), trace=False)
    assert not opened


def test_a_note_names_the_fields_that_are_left_out(tmp_path):
    path = write(tmp_path, TINY | {"backbone": "a/b"} | KERNELS)
    notes = xfcost.analyze(str(path), N=8, mixing=False, closed_form=False, trace=False).metadata.notes
    assert "backbone, _attn_implementation, auto_map in the config" in notes[-1]


def test_a_refusal_names_the_backbone_that_is_left_out(tmp_path):
    hybrid = {"model_type": "dpt", "architectures": ["DPTForDepthEstimation"], "is_hybrid": True, "backbone": "a/b"}
    path = write(tmp_path, hybrid)
    with pytest.raises(UsageError, match=r"got 256 channels.*; it ran without backbone, as xfcost opens no connection"):
        xfcost.analyze(str(path), mixing=False, trace=False)


def test_no_thread_but_its_own_is_offline():
    with offline(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(socket.getaddrinfo, "127.0.0.1", 80).result()
        with pytest.raises(OSError, match="no connection"):
            socket.create_connection(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("n_layer", {"n_layer": 10**9}),
        ("text_config.num_hidden_layers", {"text_config": {"num_hidden_layers": 10**9}}),
    ],
)
def test_a_config_of_endlessly_many_layers_is_refused(tmp_path, place, values):
    path = write(tmp_path, {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **values})
    with pytest.raises(UsageError, match=f"{place}: expected at most 10,000 layers, .* got 1,000,000,000"):
        configured(str(path), "meta")


FIXED = """
import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self, length=16):
        super().__init__()
        self.mix, self.map = nn.Linear(length, length), nn.Linear(8, 8)

    def forward(self, x):
        return self.map(self.mix(x.transpose(1, 2)).transpose(1, 2))


class Windows(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.patch, self.qkv = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24)
        self.positions = nn.Parameter(torch.zeros(1, (size // 4) ** 2, 8))

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2) + self.positions
        side = image.shape[-1] // 4
        windows = x.view(1, side // 2, 2, side // 2, 2, 8).transpose(2, 3).reshape(-1, 4, 8)
        q, k, v = self.qkv(windows).chunk(3, -1)
        return (q @ k.transpose(1, 2)).softmax(-1) @ v
"""


def test_letters_in_arguments_make_a_module_of_one_size_at_every_size(tmp_path):
    (tmp_path / "fixed.py").write_text(FIXED)
    mixer = f"{tmp_path / 'fixed.py'}:Mixer"
    found = xfcost.analyze(mixer, inputs=["1xNx8"], build=["length=N"], N=64, trace=False)
    assert found.total("macs") == 8 * 64**2 + 64 * 64
    assert found.closed_form.macs == "8·N² + 64·N"
    assert {row.path: row.mixing for row in found.rows if row.macs} == {"mix.mm": "global", "map.mm": "per-token"}
    named = NamedModule(module_target(mixer), ["1xNx8"], ["length=N"], 1)
    prints = set()
    for tokens in (16, 64):  # what is measured at one length is the module that was read at another
        named.ledger(Lengths(tokens), How(trace=False, closed_form=False))
        prints.add(named.fingerprint())
    assert len(prints) == 1
    assert prints != {NamedModule(module_target(mixer), ["1xNx8"], ["length=16"], 1).fingerprint()}
    windows = f"{tmp_path / 'fixed.py'}:Windows"
    found = xfcost.analyze(windows, inputs=["1x3xHxW"], build=["size=H"], size="64x64", trace=False)
    kinds = {row.operation: (row.mixing, row.reads_tokens) for row in found.rows if row.mixing != "per-token"}
    assert kinds == dict.fromkeys(("bmm", "_softmax", "bmm_2"), ("local", 4))
    with pytest.raises(UsageError, match=r"^--build length=N: N has no number; give --N$"):
        xfcost.analyze(mixer, inputs=["1x16x8"], build=["length=N"], trace=False)
