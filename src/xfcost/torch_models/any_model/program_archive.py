"""A .pt2 file of `torch.export.save` -> its program, read so that nothing in the file can run code.

`torch.export.load` alone unpickles, and evaluates and compiles texts of the file. So it gets another archive here, made
in memory of what the file says: pickles are loaded as data alone or refused, every text is held to what the exporter
writes in its place, and the guards, which are Python code, are left out. Parameters are not read: only their shapes
are; buffers and constants, which may be masks and tables, are.
"""

from __future__ import annotations

import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.export import ExportedProgram

from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.files import check_regular
from xfcost.torch_models.any_model.exported import ExportedModule, exported_module

_MODEL: Final = "models/model.json"
_WEIGHTS: Final = "data/weights/"
_CONSTANTS: Final = "data/constants/"
_WEIGHTS_CONFIG: Final = f"{_WEIGHTS}model_weights_config.json"
_CONSTANTS_CONFIG: Final = f"{_CONSTANTS}model_constants_config.json"
_INPUTS: Final = "data/sample_inputs/model.pt"
_COMPILED: Final = "data/aotinductor/"
_IN_PYTHON: Final = "load it with torch where you trust it, and give the program: xfcost.analyze(program)"

_PLAIN: Final = re.compile(r"[\w.@:+\- ]*\Z")
_OPERATION: Final = re.compile(
    r"torch\.ops\.(aten|prims|prim)\.(?!from_file\b)\w+\.\w+\Z"
    r"|torch\.ops\.higher_order\.(cond|while_loop|scan|associative_scan|map_impl|flex_attention"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast)\Z"
    r"|torch\._?sym_\w+\Z"
    r"|math\.(ceil|floor|trunc|sqrt|log2|pow)\Z"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|xor|not_|getitem"
    r"|lshift|rshift)\Z"
)
# A length, as sympy writes it: `Mul(Integer(2), Symbol('s0', positive=True, integer=True))`. Of powers those of symbols
# alone: of numbers they have no end.
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|\d{1,19}|'[a-z]{1,3}\d+'|(?<=Pow)\((?!Symbol)(?P<power>)|[-+*/%(),<>=!&|~])\s*"
)
_NAMES: Final = frozenset((
    "Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "FloorDiv", "FloorToInt", "GreaterThan",
    "Identity", "IntTrueDiv", "Integer", "LessThan", "Max", "Min", "Mod", "ModularIndexing", "Mul", "Ne", "Not", "Or",
    "Pow", "PythonMod", "Rational", "StrictGreaterThan", "StrictLessThan", "Symbol", "True", "False", "TruncToInt",
    "Unequality", "Where", "false", "int_oo", "integer", "negative", "nonnegative", "positive", "true",
))  # fmt: skip
_SYMBOL: Final = re.compile(r"[a-z]{1,3}\d+\Z")
_LONGEST: Final = 4_000
# Their contexts name modules to import.
_IMPORTING: Final = ("__enum__", "default_factory")


def program_of(path: str) -> ExportedModule:
    """The module of a program's file, its parameters on `meta`.

    Raises:
        UsageError: the file is none, or holds what would run code; torch cannot read it.
    """
    name = printable(path, 200)
    content = _Archive(path, name).without_code()
    with _logged() as logged:
        try:
            program: ExportedProgram = torch.export.load(io.BytesIO(content))
            return exported_module(program)
        except (UsageError, MemoryError):
            raise
        except Exception as error:
            reason = logged[0] if logged else error
            first = printable(str(reason).strip().partition("\n")[0], 200)
            raise UsageError(
                f"{name}: torch {torch.__version__} cannot read the program: {type(reason).__name__}: {first}"
            ) from error


def with_numbers(module: ExportedModule) -> ExportedModule:
    """The module with random numbers as its parameters, on the CPU."""
    for owner in module.modules():
        for key, parameter in owner.named_parameters(recurse=False):
            if parameter.is_meta:
                numbers = torch.empty(parameter.shape, dtype=parameter.dtype)
                setattr(owner, key, nn.Parameter(numbers.normal_(std=0.02), requires_grad=parameter.requires_grad))
    return module


def graph_text(path: str) -> str:
    """The text of the graph in a file that was read before."""
    return _Archive(path, printable(path, 200)).text(_MODEL)


class _Archive:
    """The records of a .pt2 file: a zip archive without compression, of one folder."""

    def __init__(self, path: str, name: str) -> None:
        self._name = name
        check_regular(Path(path), name, "a program of torch.export.save")
        try:
            self._zip = zipfile.ZipFile(path)
            infos = self._zip.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, UnicodeError) as error:
            raise self._refused(f"is no archive of torch.export.save ({error})") from None
        self._folder = infos[0].filename.partition("/")[0] + "/" if infos else ""
        self._records = {one.filename.removeprefix(self._folder): one for one in infos}
        packed = next((one.filename for one in infos if one.compress_type != zipfile.ZIP_STORED), None)
        if packed is not None:
            raise self._refused(f"its record {printable(packed)} is compressed; torch.export.save compresses none")
        if "serialized_exported_program.json" in {one.filename for one in infos}:
            raise self._refused("is of torch before 2.8; export it again")
        if _MODEL not in self._records:
            compiled = any(one.startswith(_COMPILED) for one in self._records)
            what = (
                "a compiled package of AOTInductor, without its program" if compiled else "no program of torch.export"
            )
            raise self._refused(f"is {what}; expected a file of torch.export.save")
        if sum(one.startswith("models/") for one in self._records) > 1:
            raise self._refused(f"holds several programs; {_IN_PYTHON}")

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"{self._name}: {why}")

    def _bytes(self, record: str) -> bytes:
        try:
            return self._zip.read(self._records[record])
        except (KeyError, zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError) as error:
            raise self._refused(f"its record {record} can't be read ({error})") from None

    def text(self, record: str) -> str:
        """The text of a record."""
        try:
            return self._bytes(record).decode()
        except UnicodeDecodeError:
            raise self._refused(f"its record {record} is no text") from None

    def _json(self, record: str) -> Any:
        try:
            return json.loads(self.text(record))
        except (ValueError, RecursionError) as error:
            raise self._refused(f"its record {record} is no JSON ({printable(str(error))})") from None

    def without_code(self) -> bytes:
        """The archive without what runs code, and without the numbers of parameters."""
        try:
            model = self._json(_MODEL)
            records = {
                _MODEL: json.dumps({**self._checked(model), "guards_code": []}).encode(),
                _INPUTS: self._inputs(),
                **self._tensors(_WEIGHTS_CONFIG, _WEIGHTS),
                **self._tensors(_CONSTANTS_CONFIG, _CONSTANTS),
                "archive_format": b"pt2",
                **{one: self._bytes(one) for one in ("archive_version", "byteorder", ".data/version")},
            }
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._refused(f"its records are not those of torch.export.save ({type(error).__name__})") from None
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for record, content in records.items():
                archive.writestr(f"model/{record}", content)
        return stream.getvalue()

    def _inputs(self) -> bytes:
        """Its example inputs, on the CPU."""
        try:
            found = torch.load(io.BytesIO(self._bytes(_INPUTS)), map_location="cpu", weights_only=True)
        except UsageError:
            raise
        except Exception:  # noqa: BLE001 - whatever a pickle that is no data raises
            raise self._refused(
                f"its example inputs are not data alone, and unpickling runs code; {_IN_PYTHON}"
            ) from None
        stream = io.BytesIO()
        torch.save(found, stream)
        return stream.getvalue()

    def _tensors(self, config: str, folder: str) -> dict[str, bytes]:
        """Parameters without their numbers, on `meta`; buffers and constants as they are, on the CPU."""
        entries: dict[str, dict[str, Any]] = self._json(config)["config"]
        records: dict[str, bytes] = {}
        for key, entry in entries.items():
            self._plain(key), self._plain(entry["path_name"])
            if entry["use_pickle"] or entry["path_name"].startswith(("custom_obj", "opaque_obj")):
                raise self._refused(f"{printable(key)} is a pickled object, which may run code; {_IN_PYTHON}")
        whole = {entry["path_name"] for entry in entries.values() if not _is_alone(entry)}
        numbers = {entry["path_name"] for entry in entries.values() if not entry["is_param"]}
        for entry in entries.values():
            path = entry["path_name"]
            skips = path not in whole | numbers and _is_float(entry)
            entry["tensor_meta"]["device"] = {"type": "meta" if skips else "cpu", "index": None}
            records[f"{folder}{path}"] = b"" if skips else self._bytes(f"{folder}{path}")
        return {config: json.dumps({"config": entries}).encode(), **records}

    # ── texts ──

    def _plain(self, text: str) -> str:
        if not _PLAIN.match(text):
            raise self._refused(f"{printable(text, 80)!r} is no name that the exporter writes; {_IN_PYTHON}")
        return text

    def _checked(self, value: Any, key: str = "") -> Any:
        """A part of the graph whose texts are all such as the exporter writes, on the CPU.

        Of a node's metadata only the module that it is of is kept.
        """
        if isinstance(value, str):
            self._check_text(value, key)
            return _plain_structure(value) if key == "out_spec" else value
        if isinstance(value, list):
            return [self._checked(one, key) for one in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"type", "index"}:
            return {"type": "cpu", "index": None}
        if key == "metadata":
            stack = value.get("nn_module_stack")
            return {"nn_module_stack": stack} if isinstance(stack, str) and stack.isprintable() else {}
        for one in value:
            self._check_text(one, "expr_str" if key == "range_constraints" else "")
        return {name: self._checked(one, name) for name, one in value.items()}

    def _check_text(self, text: str, key: str) -> None:
        if key in ("target", "as_operator"):
            if not _OPERATION.match(text):
                raise self._refused(f"runs {printable(text, 80)}, which is no operation of ATen; {_IN_PYTHON}")
        elif key == "expr_str":
            if not _is_length(text):
                raise self._refused(f"{printable(text, 80)!r} is no length; {_IN_PYTHON}")
        elif key in ("in_spec", "out_spec"):
            if any(one in text for one in _IMPORTING):
                raise self._refused(f"its inputs or outputs name code to import; {_IN_PYTHON}")
        elif key not in ("as_string", "guards_code", "verifiers"):
            self._plain(text)


def _plain_structure(text: str) -> str:
    """The structure of outputs, with tuples in the place of classes, which only their own library knows."""

    def plain(spec: Any) -> Any:
        children = [plain(one) for one in spec["children_spec"]]
        leaf = spec["type"] is None
        return spec if leaf else {"type": "builtins.tuple", "context": "null", "children_spec": children}

    version, spec = json.loads(text)
    return json.dumps([version, plain(spec)])


def _is_length(text: str) -> bool:
    """Is it an expression of lengths, of symbols and known functions alone?"""
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None or len(text) > _LONGEST or found["power"] is not None:
            return False
        name = found["name"]
        if name is not None and name not in _NAMES and not _SYMBOL.match(name):
            return False
        place = found.end()
    return "**" not in text


def _is_float(entry: Mapping[str, Any]) -> bool:
    """Is it of float16, float32, float64 or bfloat16, by its number in the exporter's format?"""
    return entry["tensor_meta"]["dtype"] in _FLOATS


_FLOATS: Final = (6, 7, 8, 13)


def _is_alone(entry: Mapping[str, Any]) -> bool:
    """Does it take its record from the beginning?"""
    return entry["tensor_meta"]["storage_offset"] == {"as_int": 0}


@contextmanager
def _logged() -> Iterator[list[BaseException]]:
    """Collects the errors that torch.export logs, and lets it write nothing."""
    found: list[BaseException] = []

    class Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and record.exc_info[1] is not None:
                found.append(record.exc_info[1])

    logger = logging.getLogger("torch.export")
    handler, propagates = Collecting(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
