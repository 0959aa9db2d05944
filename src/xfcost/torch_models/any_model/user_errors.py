"""One message for a module that does not run: what was raised, and the line of the user's own code."""

from __future__ import annotations

import inspect
import os
import re
import sysconfig
import traceback
from contextlib import suppress
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy

import xfcost
from xfcost.ledger.errors import UsageError, printable
from xfcost.torch_models.shared.from_fvcore import FILE as FVCORE
from xfcost.torch_models.shared.private_torch import is_compiled
from xfcost.torch_models.shared.private_torch import original as compiled_from

_OURS: Final = tuple(os.path.join(os.path.dirname(one), "") for one in (str(xfcost.__file__), torch.__file__, FVCORE))
_PACKAGE: Final = _OURS[0]
_PYTHON: Final = os.path.join(sysconfig.get_paths()["stdlib"], "")
_PACKAGES: Final = os.path.join(sysconfig.get_paths()["purelib"], "")


def original(model: Any) -> nn.Module:
    """The module to look at: of a compiled one the module that it was compiled from."""
    if isinstance(model, type):
        raise UsageError(f"expected a torch module, got the class {model.__name__}; make a module of it")
    if not isinstance(model, nn.Module):
        raise UsageError(f"expected a torch module, got {type(model).__name__}")
    check_modules(model)
    while is_compiled(model):
        model = compiled_from(model)
    for name, module in model.named_modules():
        place = f"{name or 'the model itself'} ({type(module).__name__})"
        if isinstance(module, torch.jit.ScriptModule):
            raise UsageError(f"{place} is scripted, and its operations can't be told by module; pass the original")
        if any(is_lazy(parameter) for parameter in module.parameters(recurse=False)):
            raise UsageError(f"{place} has no shapes yet; run the model once first")
    return model


def check_modules(model: nn.Module) -> None:
    """Refuse a module whose constructor left torch's own out, or that is a part of itself, where torch recurses."""
    try:
        list(nn.Module.children(model))
    except AttributeError:
        raise UsageError(f"{type(model).__name__}: its __init__ does not call super().__init__()") from None
    _check_tree(model, "", {}, set())


def _check_tree(module: nn.Module, path: str, above: dict[int, str], seen: set[int]) -> None:
    """Refuse a module inside one of those `above` it, which is the same; `seen` ones have been looked through."""
    if id(module) in above:
        raise UsageError(
            f"{path} ({type(module).__name__}) is the module that it is a part of, and torch recurses there without "
            "end; keep it out of the parts, as in self.parent = (parent,)"
        )
    if id(module) not in seen:
        seen.add(id(module))
        for name, part in nn.Module.named_children(module):
            _check_tree(part, f"{path}.{name}".lstrip("."), above | {id(module): path}, seen)


class OwnError(UsageError):
    """What is wrong with a module or its inputs on any device: real numbers would not help."""


# How torch words that an index is no whole number.
_OF_PLACES: Final = re.compile(r"'indices' to have .*Long|tensors used as indices must be|one_hot is only applicable")


def refused(model: nn.Module, error: BaseException, hint: str = "", kind: type[UsageError] = UsageError) -> UsageError:
    """`error`, raised by a run of `model`, as one message with the user's own line.

    Where the call itself failed, it names the inputs that the module takes; where an index is no whole number, the
    dtype of token ids.
    """
    place, takes = own_line(error) or "in its forward", ""
    with suppress(OSError, TypeError, AttributeError):
        if own_line(error) is None:
            forward = type(model).forward
            if not forward.__code__.co_filename.startswith(_PACKAGE):  # the forward of an exported program is ours
                place = f"{inspect.getsourcefile(forward)}:{inspect.getsourcelines(forward)[1]}"
    with suppress(TypeError, ValueError):
        if isinstance(error, TypeError) and "argument" in message(error):
            takes = f"; it takes ({', '.join(map(str, inspect.signature(model.forward).parameters.values()))})"
    if isinstance(error, RuntimeError | IndexError) and _OF_PLACES.search(message(error)):
        takes = "; token ids are whole numbers, as in --input 1x512:int64 (torch.zeros(1, 512, dtype=torch.int64))"
    return kind(f"{type(model).__name__} does not run on these inputs: {raised(error)} ({place}){hint}{takes}")


def raised(error: BaseException) -> str:
    """`ValueError: the first line of its message`, and the second where the first ends in a colon."""
    if isinstance(error, ImportError) and error.__cause__ is not None:
        return _failed_import(error)
    lines = message(error).strip().split("\n")
    ahead = lines[0].endswith(":") and len(lines) > 1
    first = printable(f"{lines[0]} {lines[1].strip()}" if ahead else lines[0], 300)
    name = printable(type(error).__name__, 100)
    return f"{name}: {first}" if first else name


def message(error: BaseException) -> str:
    """Its text; nothing where its class can't write it."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - code of the class, which may raise anything
        return ""


def is_about_meta(error: BaseException) -> bool:
    """Would it not be raised on another device? As torch words it."""
    return "meta" in message(error).lower()


def is_own(error: BaseException) -> bool:
    """Was it raised by the user's own code, or by torch or Python on behalf of it, and not by this package?"""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [number for number, file in enumerate(files) if file.startswith(_PACKAGE)]
    return any(not _is_foreign(file) for file in files[max(ours, default=-1) + 1 :])


def _failed_import(error: ImportError) -> str:
    """An import that failed inside another: the package that was being imported, and what it raised.

    transformers raises an import error of its own for whatever one of its imports raises, torchvision's of operations
    that this torch lacks among them.
    """
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = [frame for frame, _ in traceback.walk_tb(cause.__traceback__) if frame.f_code.co_name == "<module>"]
    package = frames[-1].f_globals.get("__name__", "").partition(".")[0] if frames else ""
    first = printable(str(error).partition("\n")[0].partition(". ")[0], 200)
    if not package or isinstance(cause, ModuleNotFoundError):
        return f"{first}: {raised(cause)}"
    mend = f"install a {package} that fits torch {torch.__version__}, or uninstall it"
    return f"{first}: importing {package} raised {raised(cause)}; {mend}"


def own_line(error: BaseException) -> str | None:
    """`file:line` of the innermost frame outside torch, Python and this package, in no library where there is one."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno or 1))
    own = [f"{file}:{line}" for file, line in frames if not _is_foreign(file)]
    users = [place for place in own if is_users(place)]
    return (users or own)[-1] if own else None


def is_users(file: str) -> bool:
    """Is the file neither of Python, torch or this package, nor of an installed library?"""
    return not _is_foreign(file) and f"-packages{os.sep}" not in file  # site-packages; dist-packages of Debian


def _is_foreign(file: str) -> bool:
    """Is the file torch's, Python's or this package's, and not a library's that is installed next to them?"""
    if file.startswith("<"):
        return True
    return file.startswith(_OURS) or (file.startswith(_PYTHON) and not file.startswith(_PACKAGES))
