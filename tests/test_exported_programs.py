"""Programs of torch.export, given and from files: the counts of the module itself, and nothing in a file runs."""

import io
import json
import pickle
import random
import zipfile

import pytest
import torch
from torch import nn
from torch.export import Dim, export
from torch.nn import functional as F

import xfcost
from any_models import Attention
from helpers import error_of, stdout_of
from modules import Call, Module
from xfcost.ledger.errors import UsageError
from xfcost.spec.open_dimensions import open_letters
from xfcost.torch_models.any_model import program_archive
from xfcost.torch_models.any_model.exported import exported_module
from xfcost.torch_models.any_model.inputs import Lengths
from xfcost.torch_models.any_model.program_archive import program_of

# torch warns of its own modules while it exports them.
pytestmark = pytest.mark.filterwarnings("ignore:.*assigned during export", "ignore:.*LeafSpec")
QUANTITIES = ("params", "macs", "flops", "moved", "comparisons", "attention_entries")


class Block(nn.Module):
    """Fused attention of 4 heads, and an MLP."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(x)


class Net(nn.Module):
    """A convolution along tokens, two blocks, a product per head, and a head; a buffer scales."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(16, 32, 3, padding=1), nn.Linear(32, 5)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.turn = nn.Parameter(torch.ones(4, 8, 8))
        self.register_buffer("scale", torch.full((32,), 2.0))

    def forward(self, x):
        x = self.conv(x.transpose(1, 2)).transpose(1, 2) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(torch.einsum("bnhd,hde->bnhe", x.unflatten(-1, (4, 8)), self.turn).flatten(2))


INPUT = torch.randn(1, 10, 16)
OPEN = ({0: Dim("batch", min=1, max=64), 1: Dim("tokens", min=2, max=4096)},)


def exported(module, *inputs, shapes=None):
    return export(module.eval(), inputs, dynamic_shapes=shapes)


@pytest.fixture(scope="module")
def net():
    return Net().eval()


@pytest.fixture(scope="module")
def program(net):
    return exported(net, torch.cat([INPUT, INPUT]), shapes=OPEN)


@pytest.fixture(scope="module")
def file(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "net.pt2"
    torch.export.save(program, path)
    return path


def rows(ledger):
    return [(row.path, row.times, row.mixing, *(row.figure(one) for one in QUANTITIES)) for row in ledger.rows]


def test_counts_of_a_program_by_hand(program):
    # 10 tokens: the convolution 3·16·32 MACs of each; a block 32·96 + 32·32 + 2·32·64, and 2·10·32 of attention; the
    # turn 32·8; the head 32·5
    by_hand = 10 * (3 * 16 * 32 + 2 * (32 * 96 + 32 * 32 + 2 * 32 * 64 + 2 * 10 * 32) + 32 * 8 + 32 * 5)
    assert xfcost.analyze(program, mixing=False).total("macs") == by_hand


def test_rows_and_kinds_of_a_program_and_of_its_file_are_those_of_its_module(net, program, file):
    of_module = xfcost.analyze(net, example_inputs=lambda N: torch.zeros(1, N, 16), N=10)
    found = [xfcost.analyze(program), xfcost.analyze(str(file))]
    for ledger in found:
        assert rows(ledger) == rows(of_module)
        assert ledger.module.tensors == "meta"
        assert ledger.closed_form == of_module.closed_form
        assert ledger.agreement.exact
        assert ledger.metadata.name == "Net"
    assert {row.mixing for row in found[0].rows} == {"per-token", "local", "global"}


def test_a_program_returns_what_its_module_does(net, program, file):
    x = torch.randn(3, 7, 16)
    torch.testing.assert_close(exported_module(program)(x), net(x))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True), nn.GRU(32, 8, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


def image_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 4), nn.BatchNorm2d(8), nn.SELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )


def keyed(module, x, past):
    return {"y": (module.layer(x) @ past["k"].mT).softmax(-1) @ past["v"], "x": x}


def spectrum(module, x):
    return torch.fft.rfft(module.layer(x) + torch.arange(8, device=x.device), dim=1).real


CASES = {
    "recurrent": (Recurrent(), (torch.randn(1, 6, 8),), None),
    "encoder layer": (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (torch.randn(1, 6, 16),), None),
    "eager attention": (Attention(), (torch.randn(1, 6, 8),), ({1: Dim("n", max=100)},)),
    "dictionaries": (
        Module(keyed, layer=nn.Linear(8, 8)),
        (torch.randn(1, 6, 8), {"k": torch.randn(1, 9, 8), "v": torch.randn(1, 9, 8)}),
        ({1: Dim("n", max=100)}, {"k": None, "v": None}),
    ),
    "a spectrum": (Module(spectrum, layer=nn.Linear(8, 8)), (torch.randn(1, 6, 8),), ({1: Dim("n", max=100)},)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_counts_are_those_of_the_module_itself(name, tmp_path):
    module, inputs, shapes = CASES[name]
    found = (
        exported(module, *inputs, shapes=shapes)
        if not isinstance(module, Module)
        else export(module.eval(), inputs, dynamic_shapes=None if shapes is None else {"inputs": shapes})
    )
    torch.export.save(found, tmp_path / "it.pt2")
    of_module = xfcost.analyze(module, example_inputs=inputs)
    for one in (found, str(tmp_path / "it.pt2")):
        assert rows(xfcost.analyze(one)) == rows(of_module)


@pytest.mark.rest
def test_counts_of_a_transformer_are_those_of_its_class(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, bos_token_id=1, eos_token_id=1, use_cache=False)
    model, ids = GPT2LMHeadModel(config).eval(), torch.ones(1, 12, dtype=torch.int64)
    found = export(model, (), {"input_ids": ids}, dynamic_shapes={"input_ids": {1: Dim("n", max=512)}}, strict=False)
    torch.export.save(found, tmp_path / "gpt.pt2")
    of_module = xfcost.analyze(model, example_inputs={"input_ids": ids}, mixing=False)
    ledger = xfcost.analyze(str(tmp_path / "gpt.pt2"), mixing=False)
    assert rows(ledger) == rows(of_module), "the head shares the table: it is one parameter"
    # 12 tokens, d = 32: a layer 12·d² MACs of each, and 2·12·d of attention; the head 100·d
    assert ledger.total("macs") == 12 * (2 * (12 * 32**2 + 2 * 12 * 32) + 100 * 32)


@pytest.mark.parametrize("way", [lambda x: x + 1, lambda x: -x], ids=["one", "other"])
def test_a_branch_is_the_one_that_is_taken(way):
    def either(module, x):
        return torch.cond(x.sum() > 0, module.a, lambda x: module.b(module.a(x)), (x,))

    x = way(torch.rand(1, 6, 8))
    found = export(Module(either, a=nn.Linear(8, 8), b=nn.Linear(8, 8)).eval(), (x,))
    # 6 tokens · 8² MACs of a layer; the second branch has two
    assert xfcost.analyze(found, mixing=False).total("macs") == (384 if x.sum() > 0 else 768)


def test_an_operation_of_another_library_is_not_taken_for_torch_s():
    @torch.library.custom_op("xfcost_tests::dropout", mutates_args=())
    def dropout(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    dropout.register_fake(torch.empty_like)
    found = export(Call(lambda x: dropout(x) + 1), (torch.randn(2, 6, 8),))
    assert xfcost.analyze(found, mixing=False).module.uncounted == {"xfcost_tests::dropout": 1}


# ── sizes ──


def test_n_and_the_batch_are_open_axes(program, file):
    one, more = xfcost.analyze(program, N=7, mixing=False), xfcost.analyze(program, N=14, batch=3, mixing=False)
    assert more.metadata.inputs == "x: 3×14×16 float32"
    assert xfcost.analyze(program, mixing=False).metadata.inputs == "x: 1×10×16 float32", "N as in its example"
    told = json.loads(stdout_of("analyze", file, "--N", "14", "--batch", "3", "--no-mixing", "--format", "json"))
    assert told["totals"]["macs"] == more.total("macs") > 6 * one.total("macs")


def test_images_are_open_in_multiples(tmp_path):
    side = {letter: Dim(letter, min=1, max=50) for letter in "hw"}
    found = exported(
        image_net(), torch.randn(2, 3, 32, 48), shapes=({0: Dim("b"), 2: 4 * side["h"], 3: 4 * side["w"]},)
    )
    ledger = xfcost.analyze(found, size=(16, 24), mixing=False)
    # 4·6 patches of 3·16 numbers to 8 channels; the head 8·5
    assert (ledger.total("macs"), ledger.metadata.image) == (24 * 48 * 8 + 40, (16, 24))
    with pytest.raises(UsageError, match="axis 2: the program was exported for a multiple of 4, got 18"):
        xfcost.analyze(found, size=(18, 24))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--N", "5000"], "axis 1: the program was exported for lengths from 1 to 4,096, got 5,000"),
        (["--batch", "65"], "axis 0: the program was exported for lengths from 1 to 64, got 65"),
        (["--size", "32"], "--size is of inputs with the letters H and W"),
        (["--build", "depth=2"], "an exported program has none"),
        (["--input", "1x10x17"], "axis 2: the program was exported for a length of 16 there, got 17"),
        (["--input", "10x16"], "x: the program takes a tensor of 3 axes"),
        (["--input", "1x10x16", "--input", "2"], "the program takes the inputs x; got 2"),
        (["--mode", "decode"], ""),
    ],
)  # fmt: skip
def test_what_a_program_cannot_have_is_refused_in_one_line(file, words, message):
    told = " ".join(error_of("analyze", file, *words, COLUMNS="1000").split())
    assert message in told


def test_a_program_for_one_size_has_no_letters(tmp_path, net):
    found = exported(net, INPUT)
    assert found.example_inputs[0][0].shape == (1, 10, 16)
    ledger = xfcost.analyze(found, mixing=False)
    assert ledger.closed_form is None
    with pytest.raises(UsageError, match="the program was exported for one batch"):
        xfcost.analyze(found, batch=3)
    torch.export.save(found, tmp_path / "net.pt2")
    assert "no letter N" in error_of("analyze", tmp_path / "net.pt2", "--input", "1x10x16", "--N", "12")


def test_a_program_is_compared_and_plotted(file, tmp_path):
    words = ("compare", file, "vit-s16", "--N", "196", "--no-mixing", "--format", "json")
    first, _ = json.loads(stdout_of(*words))["systems"]
    assert first["totals"]["macs"] == xfcost.analyze(str(file), N=196, mixing=False).total("macs")
    stdout_of("plot", file, "--N", "16:64", "-o", tmp_path / "it.svg")
    assert (tmp_path / "it.svg").stat().st_size > 1000


def test_reach_needs_blocks_that_are_called(file):
    assert "net.pt2 runs none of its blocks" in error_of("reach", file, "--N", "12")


@pytest.mark.parametrize(
    ("inputs", "letters"),
    [
        ({"ids": ("batch", "sequence")}, {"batch": "B", "sequence": "N"}),
        ({"x": ("s0", "s1", 16)}, {"s0": "B", "s1": "N"}),
        ({"x": ("s0", 16)}, {"s0": "B"}),
        ({"x": (1, "s0", 16)}, {"s0": "N"}),
        ({"x": ("s0", 3, "s1", "s2")}, {"s0": "B", "s1": "H", "s2": "W"}),
        ({"x": (1, "s1", "s1", 3)}, {"s1": "H"}),
        ({"ids": ("b", "n"), "mask": ("b", 1, "n", "n")}, {"b": "B", "n": "N"}),
        ({"ids": ("b", "past_length"), "x": ("b", "sequence_length")}, {"b": "B", "sequence_length": "N"}),
        ({"x": (2, 3, "", "")}, {}),
    ],
)  # fmt: skip
def test_letters_of_open_dimensions(inputs, letters):
    assert open_letters(inputs) == letters


# ── files: nothing in them runs ──


def changed(file, tmp_path, change):
    """The file with other records: `change` gets the bytes of each by its name, and gives those of the new file."""
    with zipfile.ZipFile(file) as archive:
        folder = archive.namelist()[0].partition("/")[0]
        records = {name.removeprefix(f"{folder}/"): archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        for name, content in change(records).items():
            archive.writestr(f"other/{name}", content)
    return tmp_path / "other.pt2"


class Evil:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return open, (str(self.place), "w")


def evil_inputs(records, place):
    stream = io.BytesIO()
    torch.save(((Evil(place),), {}), stream)
    return records | {"data/sample_inputs/model.pt": stream.getvalue()}


def evil_weight(records, place):
    config = json.loads(records["data/weights/model_weights_config.json"])
    first = next(one for one in config["config"].values() if not one["is_param"])  # whose numbers are read
    first["use_pickle"] = True
    return records | {
        "data/weights/model_weights_config.json": json.dumps(config).encode(),
        f"data/weights/{first['path_name']}": pickle.dumps(Evil(place)),
    }


def in_model(change):
    def made(records, place):
        model = json.loads(records["models/model.json"])
        change(model, f"__import__('pathlib').Path({str(place)!r}).touch()")
        return records | {"models/model.json": json.dumps(model).encode()}

    return made


def evil_target(model, code):
    node = model["graph_module"]["graph"]["nodes"][0]
    node["target"] = "torch.os.system"


def evil_length(model, code):
    value = next(iter(model["graph_module"]["graph"]["tensor_values"].values()))
    value["sizes"] = [{"as_expr": {"expr_str": code, "hint": {"as_int": 2}}}]


def evil_name(model, code):
    text = json.dumps(model).replace('"x"', json.dumps(f"x={code}"))
    model.clear()
    model.update(json.loads(text))


def evil_structure(model, code):
    signature = model["graph_module"]["module_call_graph"][0]["signature"]
    signature["in_spec"] = signature["in_spec"].replace('"null"', '"{\\"__enum__\\": true}"')


EVIL = {
    "inputs": evil_inputs, "weight": evil_weight, "target": in_model(evil_target), "length": in_model(evil_length),
    "name": in_model(evil_name), "structure": in_model(evil_structure),
}  # fmt: skip


@pytest.mark.parametrize("name", EVIL)
def test_a_file_that_would_run_code_is_refused(file, tmp_path, name):
    place = tmp_path / "ran"
    path = changed(file, tmp_path, lambda records: EVIL[name](records, place))
    assert "other.pt2" in error_of("analyze", path)
    assert not place.exists()


def test_guards_of_a_file_are_not_run(file, tmp_path):
    place = tmp_path / "ran"

    def guarded(model, code):
        model["guards_code"] = [code]

    path = changed(file, tmp_path, lambda records: in_model(guarded)(records, place))
    assert xfcost.analyze(str(path), mixing=False).total("macs") == xfcost.analyze(str(file), mixing=False).total(
        "macs"
    )
    assert not place.exists()


def test_lengths_are_symbols_numbers_and_known_functions():
    known = "Mul(Integer(2), FloorDiv(Symbol('s0', positive=True, integer=True), Integer(4)))"
    assert program_archive._is_length(known)
    for text in (
        "__import__('os')",
        "Symbol('s0').x",
        "Pow(Integer(9), Integer(9))",
        "9**9",
        "'s0 '",
        "lambda: 1",
        "s0[1]",
    ):
        assert not program_archive._is_length(text), text


def test_parameters_of_a_file_are_not_read(file, monkeypatch):
    read, own = [], program_archive._Archive._bytes
    monkeypatch.setattr(
        program_archive._Archive, "_bytes", lambda self, record: read.append(record) or own(self, record)
    )
    module = program_of(str(file))
    assert all(one.is_meta for one in module.parameters())
    torch.testing.assert_close(module.scale, torch.full((32,), 2.0))
    assert sum("weights/weight_" in one for one in read) == 1, "the buffer alone"


def test_a_program_on_a_device_is_read_onto_the_cpu(file, tmp_path):
    def moved(records):
        return {
            name: content.replace(b'{"type": "cpu"', b'{"type": "cuda"') if name.endswith(".json") else content
            for name, content in records.items()
        }

    path = changed(file, tmp_path, moved)
    assert xfcost.analyze(str(path), mixing=False).total("macs") == xfcost.analyze(str(file), mixing=False).total(
        "macs"
    )


def test_files_that_are_none_end_in_one_line(file, tmp_path):
    content = file.read_bytes()
    for number, text in enumerate((b"", b"PK", content[: len(content) // 2], b"\0" * 100)):
        (tmp_path / f"{number}.pt2").write_bytes(text)
        assert error_of("analyze", tmp_path / f"{number}.pt2").count("\n") <= 3
    assert "no such file" in error_of("analyze", tmp_path / "none.pt2")
    assert "is a directory" in error_of("analyze", (tmp_path / "folder.pt2").mkdir() or tmp_path / "folder.pt2")
    with zipfile.ZipFile(tmp_path / "packed.pt2", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("packed/models/model.json", "{}")
    assert "is compressed" in error_of("analyze", tmp_path / "packed.pt2")
    assert "no program" in error_of("analyze", changed(file, tmp_path, lambda records: {"x": b""}))
    old = changed(file, tmp_path, lambda records: {})
    with zipfile.ZipFile(old, "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
    assert "before 2.8" in error_of("analyze", old)


@pytest.mark.parametrize(
    "missing", ["data/weights/model_weights_config.json", "archive_version", "data/weights/weight_0"]
)
def test_a_file_without_a_record_ends_in_one_line(file, tmp_path, missing):
    def without(records):
        return {name: content for name, content in records.items() if name != missing}

    assert "\n" not in outcome(changed(file, tmp_path, without))


def outcome(path):
    """The message with which a file is refused; nothing where it is counted."""
    try:
        xfcost.analyze(str(path), mixing=False, trace=False)
    except UsageError as error:
        return str(error)
    return ""


@pytest.mark.rest
def test_random_changes_of_a_graph_end_in_one_line_or_in_counts(file, tmp_path):
    choose = random.Random(0)  # noqa: S311 - no secret

    def spots(value):
        inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        for key, one in inner:
            yield value, key
            if isinstance(one, dict | list):
                yield from spots(one)

    for _ in range(40):

        def broken(records):
            model = json.loads(records["models/model.json"])
            owner, key = choose.choice(list(spots(model)))
            owner[key] = choose.choice([None, -1, 10**9, "", "x", [], {}, {"as_int": -5}, True])
            return records | {"models/model.json": json.dumps(model).encode()}

        assert "\n" not in outcome(changed(file, tmp_path, broken))


def test_lengths_of_the_example_stand_where_none_are_given(program):
    inputs = exported_module(program).xfcost_inputs
    assert (inputs.letters, inputs.lengths(Lengths())) == ({"B", "N"}, Lengths(10))
    assert inputs.note == "open in the program: the batch (x, axis 0), N (x, axis 1: 10 in its example)"


def test_a_program_for_one_length_is_counted_at_no_other(tmp_path):
    torch.export.save(torch.export.export(torch.nn.Linear(4, 4), (torch.zeros(1, 10, 4),)), tmp_path / "it.pt2")
    assert "--N 20: the program was exported for one length" in error_of("analyze", tmp_path / "it.pt2", "--N", "20")
