"""Checkpoints on the disk: what the headers of safetensors files say of their tensors. Weights are never read.

A checkpoint is a folder with a config.json and its shards, a snapshot of a Hugging Face cache, one `.safetensors` with
a config.json beside it, or one `.gguf`, which has its own metadata (`importing/gguf.py`).

The header of a safetensors file is eight bytes, its length, and JSON: `{name: {dtype, shape, data_offsets}}`. It is
read here and not by the package of that name, which maps the whole file, gives no offsets, and reads no header that
comes without its file. Every length and offset is compared with the size of the file before anything
of that size is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import IO, Annotated, Any, Final, NamedTuple

import msgspec

from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.files import Expected, check_regular, read_bytes
from xfcost.ledger.units import size


class StoredTensor(NamedTuple):
    """A tensor of a file, by its header."""

    name: str
    dtype: str
    """As the file calls it: `BF16`, `F8_E4M3`, `Q4_K`."""
    shape: tuple[int, ...]
    bytes: int
    file: str
    """The name of the file that has it, without folders."""


class Checkpoint(NamedTuple):
    """All tensors of a model as stored, and the fields of its config."""

    place: str
    """As the user named it."""
    config: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]
    files: int
    """How many have them."""
    format: str | None = None
    """What the file says of its quantisation as a whole (`Q4_K_M`)."""
    module_name: Callable[[str], str] = str
    """What transformers calls a tensor."""
    unread: str = ""
    """Which files of the folder are not read, and why."""

    @property
    def bytes(self) -> int:
        """Of all tensors, without headers."""
        return sum(one.bytes for one in self.tensors)

    @property
    def dtypes(self) -> dict[str, int]:
        """Type -> bytes of its tensors, the one with most bytes first."""
        found: dict[str, int] = {}
        for one in self.tensors:
            found[one.dtype] = found.get(one.dtype, 0) + one.bytes
        return dict(sorted(found.items(), key=lambda item: -item[1]))


class BadHeaderError(Exception):
    """What is wrong with a header."""


@contextmanager
def header_of(path: str, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """The open file at `path` and its size; `name` is that of messages.

    Raises:
        UsageError: it is missing, no regular file or not readable, or its header is found to be bad.
    """
    check_regular(Path(path), name, "the file of a checkpoint", "expected the file of a checkpoint")
    try:
        with open(path, "rb") as stream:
            yield stream, os.fstat(stream.fileno()).st_size
    except BadHeaderError as error:
        raise UsageError(f"{name}: {error}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: can't be read: {getattr(error, 'strerror', None) or error}") from None


def stamp(path: str) -> tuple[int, int]:
    """Size and time of a file, which differ where its content does; zeros where it is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


# ── safetensors ──

# The types of the format -> bits of an element.
DTYPE_BITS: Final = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I8": 8, "U8": 8,
    "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
# The limit of the format.
MOST_HEADER_BYTES: Final = 100_000_000
_LENGTH_BYTES: Final = 8
# Of one file; the largest checkpoints of experts have 200,000 in hundreds of files.
MOST_TENSORS: Final = 500_000
_MOST_DIMENSIONS: Final = 16
_MOST_ELEMENTS: Final = 2**63

_Size = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[_Size]
    data_offsets: tuple[_Size, _Size]


_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY: Final = msgspec.json.Decoder(_Entry)


def header_length(first: bytes, file_bytes: int) -> int:
    """The length of the header of a safetensors file, by its first eight bytes.

    Raises:
        BadHeaderError: the file has no such header.
    """
    if len(first) < _LENGTH_BYTES:
        raise BadHeaderError(f"is no safetensors file: it has {len(first)} bytes, and the header's length alone has 8")
    length = int.from_bytes(first[:_LENGTH_BYTES], "little")
    if length > MOST_HEADER_BYTES:
        raise BadHeaderError(
            f"is no safetensors file: its first eight bytes would be a header of {length:,} bytes, and the format has "
            f"at most {MOST_HEADER_BYTES:,}"
        )
    if length + _LENGTH_BYTES > file_bytes:
        raise BadHeaderError(
            f"is truncated: its header would end at byte {length + _LENGTH_BYTES:,}, and the file at {file_bytes:,}"
        )
    return length


def header_tensors(header: bytes, file: str, data_bytes: int) -> list[StoredTensor]:
    """The tensors of a safetensors file, by its header (JSON, without the length) and the bytes that follow that.

    Raises:
        BadHeaderError: it is no header, or its tensors are not the data, each byte once.
    """
    if (count := header.count(b'"data_offsets"')) > MOST_TENSORS:
        raise BadHeaderError(f"has {count:,} tensors; expected at most {MOST_TENSORS:,}")
    try:
        entries = _DECODER.decode(header)
        entries.pop("__metadata__", None)
        found = {name: _ENTRY.decode(raw) for name, raw in entries.items()}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadHeaderError(f"its header is not that of a safetensors file: {printable(str(error), 200)}") from None
    tensors = []
    ends: list[tuple[int, int, str]] = []
    for name, one in found.items():
        shown = printable(name, 120)
        bits = DTYPE_BITS.get(one.dtype)
        if bits is None:
            raise BadHeaderError(f"{shown} has the unknown dtype {printable(one.dtype, 40)}")
        begin, end = one.data_offsets
        elements = _elements(shown, one.shape)
        if end - begin != -(-elements * bits // 8) or elements * bits % 8:
            raise BadHeaderError(
                f"{shown} has {elements:,} elements of {bits} bits, and the offsets of {end - begin:,} bytes"
            )
        ends.append((begin, end, shown))
        tensors.append(StoredTensor(name, one.dtype, tuple(one.shape), end - begin, file))
    check_covered(ends, data_bytes)
    return tensors


def _elements(shown: str, shape: Sequence[int]) -> int:
    elements = prod(shape[:_MOST_DIMENSIONS])
    if len(shape) > _MOST_DIMENSIONS or elements > _MOST_ELEMENTS:
        raise BadHeaderError(f"{shown} has the shape {printable('×'.join(map(str, shape[:8])), 120)}, of no tensor")
    return elements


def check_covered(ends: list[tuple[int, int, str]], data_bytes: int, *, gaps: bool = False) -> None:
    """Tensors (begin, end, name) must lie one behind the other in the data, with `gaps` where the format pads.

    Raises:
        BadHeaderError: two overlap, one ends behind the data, or bytes are of no tensor.
    """
    reached, before = 0, ""
    for begin, end, shown in sorted(ends):
        if begin < reached:
            raise BadHeaderError(f"{shown} begins at byte {begin:,} of the data, inside of {before}")
        if end > data_bytes:
            raise BadHeaderError(
                f"is truncated: {shown} would end at byte {end:,} of the data, which has {data_bytes:,}"
            )
        if begin > reached and not gaps:
            raise BadHeaderError(f"bytes {reached:,} to {begin:,} of its data are of no tensor")
        reached, before = end, shown
    if reached < data_bytes and not gaps:
        raise BadHeaderError(f"bytes {reached:,} to {data_bytes:,} of its data are of no tensor")


def safetensors_file(path: str, name: str) -> list[StoredTensor]:
    """The tensors of the file at `path`; messages call it `name`.

    Raises:
        UsageError: it can't be read, or is no safetensors file.
    """
    with header_of(path, name) as (stream, file_bytes):
        length = header_length(stream.read(_LENGTH_BYTES), file_bytes)
        header = stream.read(length)
        if len(header) < length:
            raise BadHeaderError("is truncated while it is read")
        return header_tensors(header, os.path.basename(path), file_bytes - _LENGTH_BYTES - length)


# ── folders ──

INDEX: Final = "model.safetensors.index.json"
CONFIG_FILE: Final = "config.json"
_WHOLE: Final = "model.safetensors"
_ENDING: Final = ".safetensors"
_SHARD: Final = re.compile(r".+-\d{5}-of-\d{5}\.safetensors")
_MOST_SHARDS: Final = 10_000
# DeepSeek-V3 has 91,991 names in 9 megabytes.
_INDEX_FILE: Final = Expected(
    what="the index of a checkpoint's shards",
    missing="expected the index of a checkpoint's shards",
    large="an index has a line for each tensor",
    most_bytes=100_000_000,
)


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def shards_of(path: str) -> dict[str, list[str]]:
    """Name of each safetensors file of a folder, or of a single file -> the tensors that the index says are in it.

    Of a folder that has both, `model.safetensors` is read and no index, as transformers and huggingface_hub do.

    Raises:
        UsageError: the index is none, or names files outside of the folder; or several files could be meant.
    """
    folder, own = (path, None) if os.path.isdir(path) else os.path.split(path)
    index = os.path.join(folder, INDEX)
    if own is None and os.path.lexists(os.path.join(folder, _WHOLE)):
        return {_WHOLE: []}
    if os.path.lexists(index) and (own is None or _SHARD.fullmatch(own)):
        return _indexed(index, stamp(index))
    if own is not None:
        return {own: []}
    names = sorted(name for name in os.listdir(folder) if name.endswith(_ENDING))
    if len(names) > 1 and not all(map(_SHARD.fullmatch, names)):
        listed = ", ".join(printable(one, 60) for one in names[:4])
        raise UsageError(
            f"{printable(path, 200)}: has {len(names)} safetensors files and no {INDEX}; name one of {listed}"
        )
    return {name: [] for name in names}


@lru_cache(4)  # of 92,000 names it takes 44 ms, and several places ask
def _indexed(index: str, state: tuple[int, int]) -> dict[str, list[str]]:
    shown = printable(index, 200)
    try:
        found = msgspec.json.decode(read_bytes(Path(index), shown, _INDEX_FILE), type=_Index)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown}: is no index of shards: {printable(str(error), 200)}") from None
    shards: dict[str, list[str]] = {}
    for tensor, shard in found.weight_map.items():
        shards.setdefault(shard, []).append(tensor)
    for shard in shards:
        if os.path.basename(shard) != shard or not shard.endswith(_ENDING):
            raise UsageError(
                f"{shown}: {printable(shard, 120)} is no safetensors file of its folder; expected names like "
                "model-00001-of-00002.safetensors"
            )
    if not shards or len(shards) > _MOST_SHARDS:
        raise UsageError(f"{shown}: names {len(shards):,} shards; expected 1 to {_MOST_SHARDS:,}")
    return dict(sorted(shards.items()))


def safetensors_tensors(path: str) -> tuple[tuple[StoredTensor, ...], int]:
    """The tensors of a folder or of one file, and in how many files they are.

    Raises:
        UsageError: a file is missing or bad, or has not the tensors that the index says.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    found: dict[str, StoredTensor] = {}
    shards = shards_of(path)
    for shard, expected in shards.items():
        place = os.path.join(folder, shard)
        shown = printable(place, 200)
        if not os.path.exists(place) and expected:
            raise UsageError(f"{shown}: no such file, and {INDEX} has tensors in it: {printable(expected[0], 120)}")
        for tensor in safetensors_file(place, shown):
            if (before := found.get(tensor.name)) is not None:
                raise UsageError(f"{shown}: {printable(tensor.name, 120)} is in {before.file} too")
            found[tensor.name] = tensor
        for name in expected:
            if name not in found or found[name].file != shard:
                raise UsageError(f"{shown}: has no tensor {printable(name, 120)}, which {INDEX} has in it")
    return tuple(found.values()), len(shards)


# ── what a user names ──


def config_place(place: str) -> str:
    """Where the config of a checkpoint is: of a folder and of a safetensors file a config.json; of a GGUF that file.

    Raises:
        UsageError: there is none, with what the tensors say alone.
    """
    if place.endswith(".gguf"):
        return place
    folder = place if os.path.isdir(place) else os.path.dirname(place)
    config = os.path.join(folder, CONFIG_FILE)
    if os.path.isfile(config) and (not os.path.isdir(place) or shards_of(place)):
        return config
    if os.path.isdir(place):
        ggufs = sorted(name for name in os.listdir(place) if name.endswith(".gguf"))
        if firsts := [one for one in ggufs if not re.search(r"-\d{5}-of-\d{5}\.gguf$", one) or "-00001-of-" in one]:
            if len(firsts) == 1:
                return os.path.join(place, firsts[0])
            listed = ", ".join(printable(one, 60) for one in firsts[:4])
            raise UsageError(f"{printable(place, 200)}: has {len(firsts)} checkpoints; name one of them: {listed}")
    if os.path.isfile(config):
        return config
    shown = printable(place, 200)
    tensors, files = safetensors_tensors(place)
    if not files:
        raise UsageError(f"{shown}: has neither a {CONFIG_FILE} nor a file with tensors")
    elements = sum(prod(one.shape) for one in tensors)
    alone = Checkpoint(place, {}, tensors, files)
    types = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in alone.dtypes.items())
    raise UsageError(
        f"{shown}: {len(tensors):,} tensors of {elements:,} elements, {size(alone.bytes)} ({types}); a "
        f"safetensors file has no architecture: put the model's {CONFIG_FILE} beside it"
    )


def read_checkpoint(place: str, config: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint at `place`, whose config has these fields.

    Raises:
        UsageError: a file is missing or bad.
    """
    tensors, files = _known(place, _state(place))
    both = [os.path.join(place, name) for name in (_WHOLE, INDEX)]  # no paths where `place` is a file
    unread = f"{_WHOLE} is read, as transformers reads it; {INDEX} is not" if all(map(os.path.exists, both)) else ""
    return Checkpoint(place, config, tensors, files, unread=unread)


def _state(place: str) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the files of a checkpoint: others have other tensors."""
    folder = place if os.path.isdir(place) else os.path.dirname(place)
    return tuple((name, *stamp(os.path.join(folder, name))) for name in (INDEX, *shards_of(place)))


@lru_cache(4)
def _known(place: str, state: tuple[tuple[str, int, int], ...]) -> tuple[tuple[StoredTensor, ...], int]:
    return safetensors_tensors(place)
