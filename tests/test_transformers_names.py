"""The names that are read of transformers: a table has them all, and this release has what the table says."""

import ast
import inspect
import re
import sys
from pathlib import Path

import pytest
from packaging.version import Version
from torch import nn

import xfcost
from transformers_models import transformers
from xfcost.torch_models.shared.transformers_names import NAMES

FOLDER = Path(xfcost.__file__).parent / "torch_models" / "any_model"
HERE = Version(Version(transformers.__version__).base_version)


def has(seen_in: str, name: str) -> bool:
    """Has the class, its forward, its config or its own file the name? Of a class that is not there, nothing has."""
    owner = getattr(transformers, seen_in, None) or getattr(transformers.modeling_outputs, seen_in, None)
    if owner is None or name == seen_in or hasattr(owner, name):
        return owner is not None
    if issubclass(owner, nn.Module) and name in inspect.signature(owner.forward).parameters:
        return True
    return re.search(rf"\b{name}\b *[:=]", inspect.getsource(sys.modules[owner.__module__])) is not None


@pytest.mark.rest
@pytest.mark.parametrize("name", [name for name, one in NAMES.items() if one.seen_in])
def test_a_name_is_in_the_releases_that_the_table_says(name: str) -> None:
    one = NAMES[name]
    assert has(one.seen_in, name) is (Version(one.since) <= HERE <= Version(one.until))


def read_in(source: str) -> set[str]:
    """The names that a file reads: as attributes, and as texts."""
    nodes = list(ast.walk(ast.parse(source)))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    attributes = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    return {word for text in (*texts, *attributes) for word in re.findall(r"^\.?(\w+)\.?$", text)}


def test_the_table_has_every_name_that_is_read() -> None:
    """Known names with an underscore, of the classes that the table names, and of a `torch.nn.Module`."""
    read = {word for file in FOLDER.rglob("*.py") for word in read_in(file.read_text("utf-8"))}
    read |= read_in((FOLDER.parents[1] / "counting" / "generation.py").read_text("utf-8"))
    assert NAMES.keys() - read == set()
    known = set[str]()
    for seen_in in {one.seen_in for one in NAMES.values() if hasattr(transformers, one.seen_in)}:
        owner = getattr(transformers, seen_in)
        if isinstance(owner, type) and issubclass(owner, nn.Module):
            known |= inspect.signature(owner.forward).parameters.keys() | set(dir(owner))
        elif isinstance(owner, type) and issubclass(owner, transformers.PretrainedConfig):
            known |= set(dir(owner())) | vars(owner()).keys()
    torchs = set(dir(nn.Module()))
    assert {one for one in read & known if "_" in one.strip("_")} - torchs - NAMES.keys() == set()
