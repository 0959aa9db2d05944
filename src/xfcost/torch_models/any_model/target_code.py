"""A torch module out of Python code: `model.py:Net`, `package.module:Net`. The code is executed."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from xfcost.ledger.errors import UsageError, XfcostError, nearest, printable
from xfcost.ledger.process_end import refuse_sudden_ends
from xfcost.spec.targets import ModuleTarget
from xfcost.torch_models.any_model.user_errors import check_initialised, is_own, own_line, raised
from xfcost.torch_models.build import MOST_BLOCKS


class Found(NamedTuple):
    """What a target's name stands for, and the example inputs that stand beside it."""

    value: Any
    inputs: Any
    """The code's `example_inputs`, called where it is a function of nothing; None where there are none."""


def found(target: ModuleTarget) -> Found:
    """Execute the target's code and look its name up."""
    shown = printable(target.text, 200)
    if target.kind == "file" and not os.path.isfile(target.place):
        raise UsageError(f"{shown}: there is no file {printable(target.place, 200)}")
    folder, dotted = _imported_as(target)
    with _raising(f"{shown}: importing it", missing=f"{shown}: there is no module {target.place}", of=target.place):
        sys.path.insert(0, folder)  # code may import what stands beside it
        try:
            code = importlib.import_module(dotted) if dotted else _from_file(target.place)
        finally:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)
    value: Any = code
    for part in target.name.split("."):
        with _raising(f"{shown}: importing {part}"):  # a package may import it only now
            has = hasattr(value, part)
        if not has:
            raise UsageError(f"{shown}: {nearest(part, [name for name in vars(value) if not name.startswith('_')])}")
        value = getattr(value, part)
    inputs = getattr(code, "example_inputs", None)
    if callable(inputs) and not signature(inputs).parameters:
        with _raising(f"{shown}: its example_inputs"):
            inputs = inputs()
    return Found(value, inputs)


@contextlib.contextmanager
def _raising(what: str, more: str = "", *, missing: str = "", of: str = "") -> Iterator[None]:
    """Say that `what` raised whatever is raised inside; or that the package `of` is `missing`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if of and isinstance(error, ModuleNotFoundError) and error.name == of.partition(".")[0]:
            raise UsageError(f"{missing} here or in this environment") from None
        raise UsageError(f"{what} raised {_told(error)}{more}") from error


def _imported_as(target: ModuleTarget) -> tuple[str, str | None]:
    """The folder to import from, and the dotted name there; none of a file that is in no package."""
    if target.kind == "package":
        return os.getcwd(), target.place
    path = Path(os.path.abspath(target.place))
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    inside = len(names) > 1 and path.stem.isidentifier()
    return (str(folder), ".".join(names)) if inside else (str(path.parent), None)


def _from_file(path: str) -> ModuleType:
    name = f"xfcost_target_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"Python can't import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def as_a_script(target: ModuleTarget) -> Iterator[None]:
    """Let the target's code run as a script without arguments; what it prints goes to stderr, and not into a report.

    Raises:
        UsageError: its code raises what nothing else turned into an error, SystemExit and the like too.
    """
    arguments, errors = sys.argv, sys.stderr
    sys.argv = [target.place]
    undo = refuse_sudden_ends()
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was deleted
        folder = ""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (KeyboardInterrupt, XfcostError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, Exception) and not is_own(error):
            raise
        raise UsageError(f"{printable(target.text, 200)}: its code raised {_told(error)}") from error
    finally:
        undo()
        sys.argv, sys.stderr = arguments, errors
        with contextlib.suppress(OSError):
            os.chdir(folder)


def built(value: Any, arguments: Mapping[str, Any], device: str, shown: str) -> nn.Module:
    """The module: `value` itself, or what the class or function makes of `arguments` on `device`, to evaluate."""
    if isinstance(value, nn.Module):
        if arguments:
            raise UsageError(f"{shown}: --build passes arguments to a class or function, and this is a module already")
        return value
    if not callable(value):
        raise UsageError(
            f"{shown}: expected a torch module, or a class or function that makes one, got {type(value).__name__}"
        )
    with _raising(f"{shown}: making it", "; --build key=value passes arguments"), torch.device(device):
        made = value(**arguments)
    if not isinstance(made, nn.Module):
        raise UsageError(f"{shown}: expected a torch module from it, got {type(made).__name__}")
    check_initialised(made)
    return made.eval()


def _told(error: BaseException) -> str:
    line = own_line(error)
    return f"{raised(error)} ({line})" if line else raised(error)


def configured(path: str, device: str) -> nn.Module:
    """The model of the config at `path`, which has a model_type, without weights."""
    shown = printable(path, 200)
    try:
        import transformers
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "transformers":
            raise UsageError(
                f"{shown}: no spec can be made of it, and its own code is in transformers, which is not installed: "
                "pip install transformers"
            ) from None
        raise UsageError(f"{shown}: importing transformers raised {raised(error)}") from error
    values = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    _check_depth(values, shown)
    try:
        make = _class(values.get("architectures"), shown, transformers) or transformers.AutoModel.from_config
        config = transformers.AutoConfig.for_model(**values)
        with torch.device(device):
            return make(config).eval()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{shown}: transformers refuses it: {raised(error)}") from error


def _check_depth(values: Any, shown: str, place: str = "") -> None:
    """Refuse numbers of layers that would be built without end."""
    for key, value in values.items() if isinstance(values, dict) else ():
        _check_depth(value, shown, f"{place}{key}.")
        counts = [one for one in (value if isinstance(value, list) else [value]) if type(one) is int]
        if ("layer" in key or "depth" in key) and max(counts, default=0) > MOST_BLOCKS:
            raise UsageError(
                f"{shown}: {place}{key}: expected at most {MOST_BLOCKS:,} layers, which are built one by one, got "
                f"{max(counts):,}"
            )


def _class(architectures: Any, shown: str, transformers: Any) -> Callable[[Any], nn.Module] | None:
    """The class that the config names first; None where it names none."""
    names = [architectures] if isinstance(architectures, str) else architectures
    if not names:
        return None
    name = names[0] if isinstance(names, list) else None
    cls = getattr(transformers, name, None) if isinstance(name, str) else None
    if not isinstance(cls, type) or not issubclass(cls, nn.Module):
        raise UsageError(
            f"{shown}: transformers {transformers.__version__} has no model {printable(str(name or names), 80)}; "
            "architectures names the class to look at"
        )
    return cls


def fingerprint(target: ModuleTarget, model: nn.Module, texts: Sequence[str]) -> str:
    """16 hexadecimal digits. Comments and the layout of the code do not change them, and what it imports neither.

    `texts` say how it is made and called. Of parameters and buffers names, shapes and dtypes count; of a config also
    the version of transformers.
    """
    is_path = target.kind in ("file", "config")
    place = target.place if is_path else getattr(sys.modules.get(target.place), "__file__", None)
    code = str(place)  # of a compiled module
    if place is not None and (target.kind == "config" or place.endswith(".py")):
        text = Path(place).read_bytes().decode("utf-8", "replace")
        code = version("transformers") + text if target.kind == "config" else ast.dump(ast.parse(text))
    found = hashlib.sha256(code.encode())
    found.update(repr(tuple(texts)).encode())
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        shape = "lazy" if is_lazy(tensor) else "x".join(map(str, tensor.shape))
        found.update(f"{name} {shape} {tensor.dtype}\n".encode())
    return found.hexdigest()[:16]
