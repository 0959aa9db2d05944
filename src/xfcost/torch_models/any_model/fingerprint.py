"""A named module in 16 digits: its code, how it is made and called, and what parameters and buffers it has."""

from __future__ import annotations

import ast
import hashlib
import itertools
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from xfcost.spec.targets import ModuleTarget


def fingerprint(target: ModuleTarget, model: nn.Module, texts: Sequence[str]) -> str:
    """16 hexadecimal digits. Comments and the layout of the code do not change them, and what it imports neither.

    `texts` say how it is made and called. Of parameters and buffers names, shapes and dtypes count.
    """
    found = hashlib.sha256(_code(target).encode())
    found.update(repr(tuple(texts)).encode())
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        found.update(f"{name} {_shape(tensor)} {tensor.dtype}\n".encode())
    return found.hexdigest()[:16]


def _shape(tensor: Tensor) -> str:
    return "lazy" if is_lazy(tensor) else "x".join(map(str, tensor.shape))


def _code(target: ModuleTarget) -> str:
    """What the target's file says; of a config also the version of transformers."""
    if target.kind == "config":
        return version("transformers") + _text(target.place)
    place = target.place if target.kind == "file" else getattr(sys.modules.get(target.place), "__file__", None)
    if place is None or not place.endswith(".py"):  # compiled
        return str(place)
    return ast.dump(ast.parse(_text(place)))


def _text(place: str) -> str:
    return Path(place).read_bytes().decode("utf-8", "replace")
