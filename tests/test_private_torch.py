"""torch's private names: one file has them, and a command says what it can't do where one is missing."""

import ast
import gc
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import xfcost
from helpers import environment
from modules import Call
from xfcost.ledger.errors import UsageError, VersionError
from xfcost.torch_models.running import on_meta
from xfcost.torch_models.running.costs import is_composite
from xfcost.torch_models.running.surroundings import plain_branches
from xfcost.torch_models.shared import private_torch
from xfcost.torch_models.shared.private_torch import no_compiler

PACKAGE = Path(xfcost.__file__).parent
FILE = Path(private_torch.__file__)
# Not torch's: methods of named tuples, and a frame, a process and a struct of Python's own library.
PYTHONS = frozenset(("_replace", "_fields", "_asdict", "_getframe", "_exit"))


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _own(node: ast.expr) -> bool:
    """`self`, `cls`, `super()`: the class's own names."""
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in {"self", "cls", "super"}


# Attributes that instances of torch's classes have, and torch's private packages.
TORCHS = {
    *(
        name
        for one in (
            nn.Module(), torch.eye(1), torch.eye(1).untyped_storage(), torch.ops.aten.mm,
            private_torch.TorchDispatchMode,
        )
        for name in dir(one)
    ),
    *(path.name for path in Path(torch.__file__).parent.iterdir()),
    *(path.rpartition(".")[2] for path in private_torch.NAMES if not hasattr(torch.ops.aten, path.rpartition(".")[2])),
}  # fmt: skip


def _named(text: str) -> bool:
    """Is a string a private name of torch? Names of ATen operations are torch's serialised format, and stay."""
    return text.startswith("torch._") or (_private(text) and text in TORCHS)


def private_names(source: str) -> list[str]:
    """Each private name of torch that a file takes: by an import, an attribute, a string, or a method of that name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            parts = [*str(node.module).split("."), *(one.name for one in node.names)]
            found += [f"{node.lineno}: {'.'.join(parts)}"] if any(map(_private, parts)) else []
        elif isinstance(node, ast.Import):
            found += [f"{node.lineno}: {one.name}" for one in node.names if "torch._" in one.name]
        elif isinstance(node, ast.Attribute) and _private(node.attr) and node.attr not in PYTHONS:
            found += [] if _own(node.value) else [f"{node.lineno}: {ast.unparse(node)}"]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _named(node.value):
            found.append(f"{node.lineno}: {node.value!r}")
        elif isinstance(node, ast.ClassDef) and node.bases:
            own = (one for one in node.body if isinstance(one, ast.FunctionDef) and _private(one.name))
            found += [f"{one.lineno}: def {one.name}" for one in own if one.name in TORCHS]
    return found


def test_the_scan_sees_every_way_to_take_a_private_name() -> None:
    source = """
import torch._dynamo
from torch._ops import OpOverload
from torch.utils import _pytree
torch._C.f()
aten._softmax
tensor._base
sys.modules["torch._dynamo"]
vars(module)["_parameters"]
{"_forward_hooks": 1}
getattr(tensor, "_base")
names = {"_inductor"}
compiled, "_orig_mod"
aten, "_softmax"
class Mode(Other):
    def _should_skip_dynamo(cls): ...
self._own, cls._own, super()._own, struct._replace(a=1), torch.public, torch.__version__
"""
    assert {int(one.partition(": ")[0]) for one in private_names(source)} == {*range(2, 14), 16}


@pytest.mark.rest
def test_one_file_has_every_private_name() -> None:
    files = [file for file in PACKAGE.rglob("*.py") if file != FILE]
    found = {
        str(file.relative_to(PACKAGE)): names for file in files if (names := private_names(file.read_text("utf-8")))
    }
    assert found == {}
    assert len(private_names(FILE.read_text("utf-8"))) > len(private_torch.NAMES) // 2


@pytest.mark.rest
def test_a_compiled_module_has_its_original() -> None:
    layer = nn.Linear(1, 1)
    assert private_torch.original(torch.compile(layer)) is layer
    assert private_torch.is_compiled(torch.compile(layer))
    assert not private_torch.is_compiled(layer)


MACS = 5 * (2 * 3 + 3 * 4)  # 5 places; 2·3 weights of the convolution, 3·4 of the map


def _net() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 3, 1), nn.Flatten(1), nn.Unflatten(1, (5, 3)), nn.Linear(3, 4))


def _analyzed(**how) -> xfcost.Ledger:
    return xfcost.analyze(_net(), example_inputs=torch.empty(1, 2, 5), **how)


_traced = partial(xfcost.analyze, "resnet-50", size=32)
_trained = partial(_analyzed, mode="train")


def _recomputed() -> xfcost.Ledger:
    net = Call(lambda x: checkpoint(net.inner, x, use_reentrant=False))
    net.inner = _net()
    return xfcost.analyze(net, example_inputs=torch.empty(1, 2, 5), mode="train")


def _sparse(**how) -> xfcost.Ledger:
    module = Call(lambda x: torch.sparse.mm(module.weight, x.mT))
    module.weight = nn.Parameter(torch.eye(5).to_sparse())
    return xfcost.analyze(module, example_inputs=torch.ones(2, 5), **how)


def _without_numbers() -> xfcost.Ledger:
    return xfcost.analyze(Call(lambda x: x * int(x[0])), example_inputs=torch.ones(2))


def _view() -> torch.Tensor | None:
    return private_torch.base_of(torch.eye(2)[0])


def _compiled() -> xfcost.Ledger:
    return xfcost.analyze(torch.compile(_net()), example_inputs=torch.empty(1, 2, 5))


# What ends without each name. Without those of None figures are the same; a test of its own says what differs.
COMMANDS = {
    "torch._ops.OpOverload._can_decompose": _analyzed, "torch._ops.OpOverload._schema": _analyzed,
    "torch._subclasses.fake_tensor.FakeTensorMode": _without_numbers, "torch._C._get_tracing_state": _traced,
    "torch._C._get_value_trace": _traced, "torch._convolution": _traced, "torch._meta_registrations.meta_conv": _traced,
    "torch.library.Library._destroy": _traced, "torch._C._current_autograd_node": _trained,
    "torch._C._autograd._get_sequence_nr": _trained, "torch.autograd.graph.Node._sequence_nr": _trained,
    "torch.autograd.graph._engine_run_backward": _trained, "torch._disable_dynamo": None,
    "torch.utils.checkpoint._checkpoint_without_reentrant_generator": _recomputed,
    "torch.utils._python_dispatch.TorchDispatchMode._should_skip_dynamo": None, "torch.UntypedStorage._cdata": _trained,
    "torch.Tensor._base": _view, "torch.Tensor._is_view": _view, "torch.Tensor._version": _analyzed,
    "torch.Tensor._indices": partial(_sparse, mode="train"), "torch.Tensor._values": partial(_sparse, mode="train"),
    "torch.Tensor._nnz": _sparse, "torch.nn.Module._modules": _analyzed, "torch.nn.Module._compiled_call_impl": _traced,
    "torch._dynamo.eval_frame.OptimizedModule._orig_mod": _compiled,
}  # fmt: skip
# Without these private_torch itself can't be imported.
AT_IMPORT = (
    "torch.utils._pytree",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._python_dispatch._disable_current_modes",
)


def test_every_name_is_missing_in_a_test() -> None:
    assert {*COMMANDS, *AT_IMPORT} == set(private_torch.NAMES)


def _hide(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a name from private_torch, which takes each by `getattr`; torch would not run without most of them."""
    missing = path.rpartition(".")[2]

    def lacks_it(value: object, name: str, *default: object) -> object:
        return getattr(object() if name == missing else value, name, *default)

    monkeypatch.setattr(private_torch, "getattr", lacks_it, raising=False)
    private_torch._private.cache_clear()


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if command])
def test_a_missing_name_is_told_with_what_it_is_for(path: str, monkeypatch) -> None:
    _hide(path, monkeypatch)
    is_composite.cache_clear()
    on_meta._makes_tensors.cache_clear()
    with pytest.raises((VersionError, UsageError)) as raised:
        COMMANDS[path]()
    told = str(raised.value)
    assert f"torch {torch.__version__} has no {path}, " in told
    assert private_torch.NAMES[path].without in told


@pytest.mark.parametrize("path", AT_IMPORT)
def test_without_a_name_that_every_run_needs_the_import_is_refused(path: str, monkeypatch) -> None:
    owner, _, missing = path.rpartition(".")
    monkeypatch.delattr(sys.modules[owner], missing)
    if path in sys.modules:
        monkeypatch.setitem(sys.modules, path, None)
    with pytest.raises(VersionError, match=missing):
        runpy.run_path(str(FILE))


def test_without_all_other_names_every_file_is_imported(tmp_path: Path) -> None:
    script = """
import pkgutil, importlib
import xfcost.torch_models
from xfcost.torch_models.shared import private_torch

last = {path.rpartition(".")[2] for path in private_torch.NAMES}
private_torch.getattr = lambda value, name, *default: getattr(object() if name in last else value, name, *default)
for one in pkgutil.walk_packages(xfcost.torch_models.__path__, "xfcost.torch_models."):
    importlib.import_module(one.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_its_wrapper_the_compiler_is_imported_and_the_figures_are_the_same(monkeypatch) -> None:
    monkeypatch.delattr(torch, "_disable_dynamo")
    assert private_torch.compiler_wrapper() is None
    monkeypatch.setattr("xfcost.torch_models.shared.private_torch._WRAPPER", None)
    with no_compiler():
        assert _analyzed().total("macs") == MACS


def test_the_collector_passes_over_what_was_there_and_the_compiler_is_still_left_out() -> None:
    gc.unfreeze()
    private_torch._HIDDEN.clear()
    private_torch._wrapped.cache_clear()
    frozen = gc.get_freeze_count()
    with private_torch.collector_passes_over():
        assert gc.get_freeze_count() > frozen
        assert private_torch._wrapped()
    assert gc.get_freeze_count() == 0


def test_what_a_caller_hides_from_the_collector_stays_hidden() -> None:
    gc.freeze()  # as all tests of a session
    frozen = gc.get_freeze_count()
    _analyzed()
    with private_torch.collector_passes_over():
        assert gc.get_freeze_count() <= frozen  # what was freed is left out
    assert 0 < gc.get_freeze_count() <= frozen


def test_an_operation_that_torch_lacks_is_in_no_call() -> None:
    absent = private_torch.aten_operation("_not_in_any_torch")
    assert str(absent) == "aten._not_in_any_torch"
    assert private_torch.aten_operations("mm _not_in_any_torch")[0] is torch.ops.aten.mm
    with pytest.raises(VersionError, match="has no operation aten::_not_in_any_torch"):
        absent(torch.eye(2))


def test_an_operation_that_the_dispatcher_lacks_is_not_made_of_others() -> None:
    """`prim.device` is the interpreter's own; torch 2.11 has `aten.dim` there too, and raises."""
    assert private_torch.can_decompose(torch.ops.aten.linear.default)
    assert not private_torch.can_decompose(torch.ops.prim.device.default)
    assert not private_torch.can_decompose(torch.ops.higher_order.cond)


def test_a_kernel_is_replaced_for_a_while_only_and_again() -> None:
    def ones(x: torch.Tensor, *_: object) -> tuple[torch.Tensor, ...]:
        return x.new_empty(1), x.new_empty(1), x.new_empty(1)

    for _ in range(2):
        with private_torch.replaced_kernels("Meta", {"native_layer_norm": ones}):
            assert nn.LayerNorm(3, device="meta")(torch.empty(2, 3, device="meta")).shape == (1,)
        assert nn.LayerNorm(3, device="meta")(torch.empty(2, 3, device="meta")).shape == (2, 3)


def test_a_replaced_kernel_is_gone_from_fake_tensors_too() -> None:
    """torch calls another table of kernels under a dispatch mode."""
    with private_torch.replaced_kernels("Meta", {"convolution": lambda x, *_: x.new_empty(1)}):
        pass
    with private_torch.fake_tensor_mode():
        assert nn.Conv1d(3, 5, 7)(torch.empty(2, 3, 17)).shape == (2, 5, 11)


def test_branches_run_as_plain_python_and_the_rest_is_compiled() -> None:
    """`torch.compile` is whole again afterwards, and inside it still compiles what it is given."""
    real = torch.compile
    with plain_branches():
        taken = torch.cond(torch.tensor([True]), lambda x: x + 1, lambda x: x - 1, (torch.zeros(2),))
        assert isinstance(torch.compile(nn.Linear(1, 1)), nn.Module)
        assert torch.compile(backend="eager")(torch.sin) is not torch.sin
    assert taken.tolist() == [1, 1]
    assert torch.compile is real


def _run(words: list[str], path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`xfcost WORDS` in a process of its own: what a package raises while it is imported stays in a process."""
    return subprocess.run(
        [sys.executable, *options, "-m", "xfcost", *words],
        capture_output=True, text=True, cwd=path, env=environment(PYTHONPATH=str(path)), check=False,
    )  # fmt: skip


BROKEN = '__version__ = "0.1"\n\nraise RuntimeError("operator torchvision::nms does not exist")\n'
USER = "from transformers import DetrConfig, DetrModel\n\n\ndef build():\n    return DetrModel(DetrConfig())\n"
WHY = "importing torchvision raised RuntimeError: operator torchvision::nms does not exist"


def test_a_torchvision_that_does_not_fit_torch_is_named(tmp_path: Path) -> None:
    """transformers says only that it can't import a class; torchvision's own error is the cause."""
    pytest.importorskip("transformers")
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(BROKEN)
    (tmp_path / "torchvision-0.1.dist-info").mkdir()
    (tmp_path / "torchvision-0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.1\n"
    )
    (tmp_path / "own.py").write_text(USER)
    done = _run(["analyze", "own.py:build", "--input", "1x3x64x64"], tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: own.py:build: ")
    assert WHY in last
    assert "Traceback" not in done.stderr


def test_warnings_as_errors_leave_a_trace_as_it_is(tmp_path: Path) -> None:
    done = _run(["analyze", "vit", "--format", "json"], tmp_path, "-W", "error")
    assert done.returncode == 0, done.stderr
