"""Awkward code of users: it prints, exits, raises, forks, parses a command line, stands in a package."""

import itertools
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import xfcost
from helpers import command, environment, error_of, report_text, stdout_of, words_of, xf
from hugging_face import TEXT
from xfcost.ledger.errors import UsageError, XfcostError
from xfcost.spec.targets import module_target
from xfcost.torch_models.any_model.inputs import Given, inputs_from
from xfcost.torch_models.any_model.targets import built
from xfcost.views.analyze import share_cell

# Awkward code of users: it prints, exits, parses a command line, stands in a package, has lazy modules ────────────────

STRANGERS_CODE = """
import argparse
import sys
import torch
from torch import nn

print("printed at import")
WIDTH = vars(argparse.ArgumentParser().parse_known_args()[0]).get("width", 8)
assert sys.argv[1:] == []

class Größe(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        print("printed in forward")
        return self.fc(x)

class Lazy(nn.Sequential):
    def __init__(self):
        super().__init__(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.LazyLinear(3))

class ExitsAtOnce(nn.Module):
    def __init__(self):
        sys.exit(3)

class ExitsLater(nn.Module):
    def forward(self, x):
        sys.exit("bye")
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "strange.py").write_text(STRANGERS_CODE, encoding="utf-8")
    return tmp_path / "strange.py"


def test_what_code_prints_stays_out_of_the_report(code):
    told = xf("analyze", f"{code}:Größe", "--input", "2x8", "--format", "json")
    assert json.loads(told.stdout)["totals"]["macs"] == 2 * 8 * 8
    assert "printed at import\nprinted in forward" in told.stderr


def test_lazy_modules_take_their_shapes_from_the_inputs(code):
    ledger = xfcost.analyze(f"{code}:Lazy", inputs=["2x8"], trace=False)
    assert ledger.total("macs") == 2 * (8 * 5 + 5 * 3)
    assert ledger.total("params") == 8 * 5 + 5 + 2 * 5 + 5 * 3 + 3
    with pytest.raises(UsageError, match="Lazy does not run on these inputs"):
        xfcost.analyze(f"{code}:Lazy", inputs=["2x8x3x3x3"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ExitsAtOnce", "making it raised SystemExit: 3"),
        ("ExitsLater", "does not run on these inputs: SystemExit: bye"),
    ],
)
def test_code_that_exits_is_an_error_and_not_the_end(code, name, message):
    with pytest.raises(UsageError, match=message):
        xfcost.analyze(f"{code}:{name}", inputs=["2x8"])


def test_example_inputs_that_raise_are_an_error_of_the_code(tmp_path):
    (tmp_path / "model.py").write_text("def example_inputs():\n    return 1 / 0\n\nNet = None\n")
    with pytest.raises(UsageError, match=r"its example_inputs raised ZeroDivisionError.*model\.py:2"):
        xfcost.analyze(f"{tmp_path}/model.py:Net")


def test_a_file_inside_a_package_may_import_its_neighbours(tmp_path):
    inner = tmp_path / "strange_package" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner.parent / "sizes.py").write_text("WIDTH = 6\n")
    lines = "from torch import nn\nfrom ..sizes import WIDTH\n\ndef net():\n    return nn.Linear(WIDTH, WIDTH)\n"
    (inner / "net.py").write_text(lines)
    assert xfcost.analyze(f"{inner}/net.py:net", inputs=["1x6"], trace=False).total("macs") == 36


@pytest.mark.parametrize("text", ["model.py:", "model.py:1st", "model.py:Net()"])
def test_a_python_file_wants_a_name_in_it(text):
    with pytest.raises(UsageError, match=r"expected a name in the file, as in model\.py:Net"):
        module_target(text)


def test_the_only_model_of_a_python_file_needs_no_name(tmp_path):
    net = (
        "from torch import nn\n\nclass Block(nn.Module):\n    pass\n\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        self.block = Block()\n"
    )
    file = tmp_path / "net.py"
    file.write_text(net)
    assert module_target(str(file)).name == "Net"
    file.write_text(net + "\nclass Other(nn.Module):\n    pass\n")
    with pytest.raises(UsageError, match=r"as in net\.py:Net or net\.py:Other \("):
        module_target(str(file))


def test_each_of_many_positional_inputs_has_its_place_as_name():
    class Sums(nn.Module):
        def forward(self, first: torch.Tensor, *more: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
            return first + sum(more)

    tensors = tuple(torch.zeros(2) for _ in range(3))
    assert [name for name, _ in Given(tensors, {}).named(Sums())] == ["first", "more[0]", "more[1]"]


def test_a_quoted_text_is_a_plain_input():
    assert inputs_from(["mode='fast'"], {}, "meta").kwargs == {"mode": "fast"}
    with pytest.raises(UsageError, match="expected a shape"):
        inputs_from(["mode=fast"], {}, "meta")


def test_a_share_of_everything_fits_its_column():
    ledger = xfcost.analyze(nn.Linear(4, 4), example_inputs=torch.zeros(1, 4), trace=False)
    assert share_cell(ledger.rows[0], 16) == "100 %"
    assert share_cell(ledger.rows[0], 17) == "94.1 %"


def test_a_model_on_meta_has_no_parameters_to_change(recwarn):
    class Rescales(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.div_(2)
            return super().forward(x)

    model = Rescales(4, 4, device="meta")
    assert xfcost.analyze(model, example_inputs=torch.zeros(1, 4)).total("macs") == 16
    assert not recwarn.list


def config_refused(folder, text):
    (folder / "config.json").write_text(text, encoding="utf-8")
    told = []
    with pytest.raises(XfcostError) as caught:
        xfcost.analyze(str(folder / "config.json"), trace=False, progress=told.append)
    return "\n".join([*told, str(caught.value)])


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"model_type": 3}'])
def test_what_is_no_config_is_refused_once_and_not_run(tmp_path, text):
    assert "transformers is run" not in config_refused(tmp_path, text)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        *(({"architectures": one}, "has no model ") for one in (["logging"], ["Qwen3Config"], ["Nope"], [3], {"a": 1})),
        ({"hidden_size": "wide"}, "field 'hidden_size': TypeError: Field 'hidden_size' expected int"),
    ],
)
def test_fields_of_no_model_are_refused_with_what_transformers_says(tmp_path, fields, told):
    pytest.importorskip("transformers")
    assert told in config_refused(tmp_path, json.dumps(TEXT | {"model_type": "qwen3"} | fields))


def test_a_constructor_that_forgets_torch_s_own():
    class Forgets(nn.Module):
        def __init__(self) -> None:
            pass

    with pytest.raises(UsageError, match=r"Forgets: its __init__ does not call super\(\).__init__\(\)"):
        xfcost.analyze(Forgets(), example_inputs=torch.zeros(1, 4))
    with pytest.raises(UsageError, match="Forgets: its __init__ does not call"):
        built(Forgets, {}, "meta", "it")


def test_the_report_says_why_a_model_does_not_run_on_meta():
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.eye(4).to_sparse())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(self.table, x)

    ledger = xfcost.analyze(Sparse(), example_inputs=torch.zeros(4, 4), trace=False)
    assert "on real tensors, because it does not run on meta (tensors are sparse_coo)" in " ".join(
        report_text(ledger).split()
    )


# Code of users that raises, prints and ends what it should not: a message and exit code 2, and JSON stays JSON ────────

UNRULY_MODULES_CODE = """
import os, sys, torch
from torch import nn

{at_import}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {at_making}
        self.fc = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        {at_running}
        return self.fc(x)

example_inputs = torch.zeros(1, 4, 8)
"""
PLACES = ("at_import", "at_making", "at_running")
# A budget far above its 4·8·8 = 256 MACs, and one below.
WITHIN, OVER = ("--max-macs", "1G"), ("--max-macs", "1")

RAISES = {
    "a custom BaseException": ("raise type('Stop', (BaseException,), {})('two\\nlines')", "raised Stop: two ("),
    "pytest": ("import pytest; pytest.skip('not here', allow_module_level=True)", "raised Skipped: not here ("),
    "SystemExit": ("sys.exit(0)", "SystemExit: 0 ("),
    "GeneratorExit": ("raise GeneratorExit", "raised GeneratorExit ("),
    "os._exit": ("os._exit(0)", "SystemExit: it called os._exit ("),
    "os.exec": ("os.execvp('true', ['true'])", "SystemExit: it called os.execv ("),
    "the module below os": ("import posix; posix._exit(0)", "SystemExit: it called os._exit ("),
    "an error without a text": ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 / 0})", "Odd ("),
    "an error whose text exits": (
        "raise type('Odd', (Exception,), {'__str__': lambda self: sys.exit(0)})",
        "SystemExit: 0 (",
    ),
    "an error with a name of two lines": ("raise type('A\\n::error::', (Exception,), {})", r"'A\n::error::' ("),
}
PRINTS = {
    "print": "print('SPOILT')",
    "sys.__stdout__": "sys.__stdout__.write('SPOILT\\n')",
    "a descriptor": "os.write(1, b'SPOILT\\n')",
    "a program": "os.system('echo SPOILT')",
    "native code": "import ctypes; ctypes.CDLL(None).printf(b'SPOILT\\n')",
    "at the end": "import atexit; atexit.register(print, 'SPOILT')",
    "no stdout left": "print('SPOILT', file=sys.stderr); sys.stdout = sys.stderr = None",
    "stdout closed": "print('SPOILT', file=sys.stderr); os.close(1)",
}
# What is flushed, or runs, as an interpreter ends: a forked process ends without.
AT_THE_END = {"sys.__stdout__", "at the end"}
posix = pytest.mark.skipif(os.name != "posix", reason="other programs, native code")


def module(folder, **code):
    (folder / "model.py").write_text(
        UNRULY_MODULES_CODE.format(**dict.fromkeys(PLACES, "pass") | code), encoding="utf-8"
    )
    return "model.py:Net"


def fresh(*words, cwd):
    """The command in an interpreter of its own."""
    return subprocess.run(words_of(*words), cwd=cwd, env=environment(), capture_output=True, text=True, check=False)


@posix
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", RAISES)
def test_whatever_it_raises_is_one_line_and_exit_code_2(tmp_path, what, place):
    code, told = RAISES[what]
    said = error_of("check", module(tmp_path, **{place: code}), *WITHIN, "--format", "json", cwd=tmp_path)
    assert told in said
    assert re.search(r"\(\S*model\.py:\d+\)", said)
    assert len(said.splitlines()) == 1


@posix
@pytest.mark.parametrize("command", [["analyze"], ["analyze", "--mixing"], ["compare", "vit"], ["report"]])
def test_other_commands_refuse_alike(tmp_path, command):
    name = module(tmp_path, at_running="os._exit(0)")
    said = error_of(command[0], name, *command[1:], cwd=tmp_path)
    assert "it called os._exit" in said.splitlines()[-1]


@posix
@pytest.mark.parametrize(
    "code",
    [
        "import atexit; atexit.register(lambda: os._exit(0))",
        "import threading; end = threading.Thread(target=os._exit, args=(0,)); end.start(); end.join()",
        "sys.excepthook = lambda *_: os._exit(0)",
    ],
)
def test_no_exit_of_its_own_hides_that_it_is_over_its_budget(tmp_path, code):
    done = fresh("check", module(tmp_path, at_import=code), *OVER, "--format", "json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["within"] is False


@posix
def test_processes_that_it_forks_still_end(tmp_path):
    fork = (
        "pid = os.fork()\nif pid == 0:\n    os._exit(7)\nassert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7"
    )
    stdout_of("check", module(tmp_path, at_import=fork), *WITHIN, cwd=tmp_path)


@posix
@pytest.mark.parametrize(("what", "place"), [*zip(PRINTS, itertools.cycle(PLACES), strict=False)])
def test_whatever_it_prints_goes_to_stderr(tmp_path, what, place):
    words = ("check", module(tmp_path, **{place: PRINTS[what]}), *WITHIN, "--format", "json")
    done = (fresh if what in AT_THE_END else command)(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["within"] is True
    assert "SPOILT" in done.stderr


def test_its_warning_is_shown_once(tmp_path):
    warns = "import warnings; warnings.warn('it is old')"
    done = command("analyze", module(tmp_path, at_running=warns), "--input", "1xNx8", "--N", "32", cwd=tmp_path)
    assert done.stderr.count("UserWarning: it is old") == 1, done.stderr


@posix
@pytest.mark.parametrize("place", PLACES)
def test_an_interrupt_that_the_code_raises_is_an_error_of_it(tmp_path, place):
    done = fresh("check", module(tmp_path, **{place: "raise KeyboardInterrupt"}), *WITHIN, cwd=tmp_path)
    assert (done.returncode, "its code raised KeyboardInterrupt" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        ("raise ValueError('no')", UsageError, r"model.py:Net: its code raised ValueError: no \(.*model.py:4\)"),
        # an error of ours is not the module's
        ("json_objects.json_text(float('inf'))", ValueError, "not JSON compliant"),
    ],
)
def test_methods_that_raise_are_the_code_s_own(tmp_path, code, error, told):
    lines = "from torch import nn; from xfcost.ledger import json_objects\nclass Net(nn.Linear):\n    def eval(self):\n"
    (tmp_path / "model.py").write_text(f"{lines}        {code}\n")
    with pytest.raises(error, match=told):
        xfcost.analyze(f"{tmp_path}/model.py:Net", inputs=["1x8"], build=["in_features=8", "out_features=8"])


def test_the_folder_and_the_process_are_as_they_were(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    end, errors = os._exit, os.sys.stderr
    name = module(tmp_path, at_import="os.chdir('/'); sys.stderr = None")
    assert xfcost.analyze(name, trace=False).total("macs") == 4 * 8 * 8
    assert (Path.cwd(), os._exit, os.sys.stderr) == (tmp_path, end, errors)
