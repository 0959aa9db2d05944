"""The systems that a command names: specs, torch modules in Python code, configs of transformers.

And the texts that belong to one module of several: shapes of inputs (`2:1xNx768`), arguments of a class.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from xfcost.ledger.errors import SpecError, UsageError, printable
from xfcost.ledger.execution import WITH_CACHE, Mode
from xfcost.ledger.files import Expected
from xfcost.spec.models import PublishedModel, config_of, listed_name, models
from xfcost.spec.presets import is_preset
from xfcost.spec.reader import read, read_file

# The names of 21,841 classes, twice, are two megabytes.
CONFIG: Final = Expected(
    what="a config.json of transformers",
    missing="expected a local file; nothing is fetched",
    large="a config is a page of JSON",
    most_bytes=16_000_000,
)
_PYTHON_FILE: Final = re.compile(r"(?P<place>.+\.py)(:|\Z)", re.DOTALL)
_IN_FILE: Final = re.compile(r"(?P<place>.+\.py):(?P<name>[^\W\d][\w.]*)\Z", re.DOTALL)
_IN_PACKAGE: Final = re.compile(r"(?P<place>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<name>[^\W\d][\w.]*)\Z")


class ModuleTarget(msgspec.Struct, frozen=True):
    """A torch module, or a graph, that has no spec."""

    kind: Literal["file", "package", "config", "program", "onnx"]
    place: str
    """The Python file, the dotted name of the package's module, the config.json, the .pt2 or the .onnx file."""
    name: str
    """The name in it; empty of a config, of a program and of an ONNX file."""
    text: str
    """As it was given."""
    checkpoint: str | None = None
    """The folder or the file with the tensors, where it names them too."""

    @property
    def config(self) -> str | None:
        """The path of the config.json."""
        return self.place if self.kind == "config" else None

    @property
    def named_by(self) -> str:
        """The path whose last part is its name: of a checkpoint's folder that, and not the config.json in it."""
        is_folder = self.checkpoint is not None and os.path.basename(self.place) == "config.json"
        return folder_name(Path(self.place)) if is_folder else self.place

    @property
    def published(self) -> PublishedModel | None:
        """The model of the list whose config it is; None of others."""
        path = Path(self.place)
        listed = self.kind == "config" and path.stem in models() and path.resolve() == config_of(path.stem).resolve()
        return models()[path.stem] if listed else None

    @property
    def absolute(self) -> str:
        """The text with the whole path of its file."""
        place = self.place if self.kind == "package" else os.path.abspath(self.place)
        return f"{place}:{self.name}" if self.name else place


def module_target(text: str) -> ModuleTarget | None:
    """The module, or the graph, that `text` names; None of a spec.

    `model.py:Net`, `package.module:Net`, `config.json`, `net.pt2`, `net.onnx`, `qwen3-32b`.

    A checkpoint is a folder with a config.json or with tensors, a safetensors file or a GGUF.

    Raises:
        UsageError: a Python file without a name in it; or weights as a pickle.
    """
    kinds: tuple[tuple[Literal["file", "package"], re.Pattern[str]], ...] = (
        ("file", _IN_FILE),
        ("package", _IN_PACKAGE),
    )
    for kind, pattern in kinds:
        if found := pattern.match(text):
            return ModuleTarget(kind, found["place"], found["name"], text)
    if found := _PYTHON_FILE.match(text):
        return _only_module(found["place"], text)
    if (name := listed_name(text)) is not None:
        return ModuleTarget("config", str(config_of(name)), "", name)
    if os.path.splitext(text)[1].lower() in _PICKLES:
        raise UsageError(
            f"{printable(text, 200)}: a pickle of torch; opening one may run its code, so xfcost doesn't; give the "
            "model's config.json, or save its weights beside that as safetensors: "
            "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')"
        )
    if (graph := _GRAPHS.get(os.path.splitext(text)[1])) is not None:
        return ModuleTarget(graph, text, "", text)
    # a folder of a checkpoint that has a preset's name is named by its path, ./vit
    bare = os.path.basename(text) == text and not is_preset(text)
    place = f"./{text}" if bare and is_checkpoint(f"./{text}") else text
    if place.endswith((".safetensors", ".gguf")) or is_checkpoint(place):
        return ModuleTarget("config", place, "", text, place)
    return ModuleTarget("config", text, "", text) if text.endswith(".json") or _is_config_as_yaml(text) else None


def is_yaml(place: str) -> bool:
    """Is it the path of a YAML file?"""
    return place.endswith((".yaml", ".yml"))


def _is_config_as_yaml(text: str) -> bool:
    """Has a YAML file the words of a config.json of transformers?"""
    if not is_yaml(text):
        return False
    try:
        written = read_file(Path(text), text)
    except SpecError:
        return False
    return all(re.search(rf"^{words}\s*:", written, re.MULTILINE) for words in ("model_type", "(hidden_size|n_embd)"))


_NAMED: Final[dict[Literal["file", "package"], re.Pattern[str]]] = {"file": _IN_FILE, "package": _IN_PACKAGE}
_MOST_NAMED: Final = 4


def _only_module(place: str, text: str) -> ModuleTarget:
    """The module of a Python file that has one.

    Raises:
        UsageError: it has none, or several.
    """
    names = _modules_in(place)
    if len(names) == 1:
        return ModuleTarget("file", place, names[0], f"{text}:{names[0]}")
    shown = " or ".join(f"{printable(os.path.basename(place), 80)}:{name}" for name in names[:_MOST_NAMED] or ["Net"])
    raise UsageError(
        f"{printable(text, 200)}: expected a name in the file, as in {shown} "
        "(a module, or a class or function that makes one)"
    )


def _modules_in(place: str) -> list[str]:
    """The classes of modules in a Python file that no other class in it makes, found without running it."""
    try:
        with open(place, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return []
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    modules: dict[str, ast.ClassDef] = {}
    for one in classes:
        bases = {ast.unparse(base).rpartition(".")[2] for base in one.bases}
        if any(base.endswith("Module") or base in modules for base in bases):
            modules[one.name] = one
    inside = {
        name.id
        for owner in modules.values()
        for name in ast.walk(owner)
        if isinstance(name, ast.Name) and name.id in modules and name.id != owner.name
    }
    return [name for name in modules if name not in inside]


_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt")
_GRAPHS: Final[dict[str, Literal["program", "onnx"]]] = {".pt2": "program", ".onnx": "onnx"}


def folder_name(file: Path) -> str:
    """The name of the folder of a file; of a snapshot in the cache of Hugging Face that of the model."""
    folder = Path(os.path.abspath(file)).parent
    cached = re.fullmatch(r"models--(?:.+--)?(?P<name>.+)", folder.parent.parent.name)
    return cached["name"] if cached and folder.parent.name == "snapshots" else folder.name


def is_gguf(place: str) -> bool:
    """Has the file a config in its metadata?"""
    return place.endswith(".gguf")


def is_checkpoint(text: str) -> bool:
    """Is it the path of a folder with a config.json of transformers, or with tensors?"""
    if not ("/" in text or os.sep in text or text in (".", "..")) or "\0" in text:
        return False
    try:
        names = os.listdir(text)
    except OSError:
        return False
    return any(name == "config.json" or name.endswith((".safetensors", ".gguf")) for name in names)


SHAPE: Final = re.compile(r"(?P<sides>(?:\d+|[A-Z])(?:[x,](?:\d+|[A-Z]))*)(?::(?P<dtype>\w+))?\Z")
SIDES: Final = re.compile("[x,]")
"""What is between the sides of a shape."""
SUPPOSED: Final = "the input is taken from the first layer"
"""The note on a module whose input nobody gives."""
NO_MODULE: Final = "--input and --build: only for torch modules; a spec has its inputs (--N, --size, --batch)"
_NUMBERED: Final = re.compile(r"(?P<place>\d+):(?P<text>.+)\Z", re.DOTALL)


class ModuleTexts(NamedTuple):
    """The texts after `--input` and `--build`."""

    inputs: tuple[str, ...] = ()
    build: tuple[str, ...] = ()


def texts_by_place(given: ModuleTexts, modules: Mapping[int, str], systems: int) -> dict[int, ModuleTexts]:
    """The texts of every module of a command, by its place among the systems, which are counted from 1.

    A text without a number is of every module that has none with its own; a shape without a name is of no ONNX graph
    beside a module.

    Args:
        given: all texts.
        modules: place -> the module's name.
        systems: how many there are.

    Raises:
        UsageError: there is no module, or a number is of none.
    """
    if (given.inputs or given.build) and not modules:
        raise UsageError(NO_MODULE)
    inputs = _by_place("--input", given.inputs, modules, systems)
    build = _by_place("--build", given.build, modules, systems)
    return {place: ModuleTexts(inputs[place], build[place]) for place in modules}


def _by_place(
    option: str, texts: Sequence[str], modules: Mapping[int, str], systems: int
) -> dict[int, tuple[str, ...]]:
    common: list[str] = []
    own: dict[int, list[str]] = {}
    for text in texts:
        found = _NUMBERED.match(text)
        # behind the number an input or an argument begins; `1:int64` is a shape and its dtype
        if found is None or not (option == "--build" or "=" in found["text"] or SHAPE.match(found["text"])):
            common.append(text)
            continue
        place = int(found["place"])
        if place not in modules:
            known = ", ".join(f"{number} is {printable(name, 80)}" for number, name in modules.items())
            raise UsageError(
                f"{option} {printable(text, 200)}: {place} is not a torch module among the {systems} systems; {known}"
            )
        own.setdefault(place, []).append(found["text"])
    graphs = {place for place, name in modules.items() if option == "--input" and name.lower().endswith(".onnx")}
    graphs = graphs if len(graphs) < len(modules) else set()  # which have shapes: one without a name is of the others
    return {
        place: tuple(own.get(place, [text for text in common if place not in graphs or "=" in text]))
        for place in modules
    }


def config_values(path: str) -> dict[str, Any] | None:
    """The values of a config.json; None where the file has none."""
    import json  # specs and modules need none

    try:
        text = read_file(Path(path), path, CONFIG)
        values = read(text, path)[0] if is_yaml(path) else json.loads(text)
    except (SpecError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def writes_text(config: str | None, mode: Mode) -> bool:
    """Is a module, of a config or without one, a language model?

    What takes a cache is one, and so are the known architectures of GGUF. A config without a class is made with the
    head of one, where it has words.
    """
    if config is None or mode in WITH_CACHE:
        return mode in WITH_CACHE
    if is_gguf(config):
        return True
    values = config_values(config) or {}
    named = values.get("architectures")
    if not named:
        return mode == "train" and ("vocab_size" in values or "text_config" in values)
    return re.search("LM|ForConditionalGeneration", str(named)) is not None
