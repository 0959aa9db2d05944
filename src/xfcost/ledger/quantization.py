"""Quantised weights and caches, as models are served: bytes with their scales, exact by the shapes of the matrices.

int4   4 bits; each output has a 16-bit scale and a 4-bit zero point for every 128 inputs (AWQ, Lin et al. 2024, in the
       files of AutoAWQ; those of GPTQ have the same scales and zero points)
mxfp4  4 bits; each output has an 8-bit scale for every 32 inputs (OCP Microscaling Formats 1.0, §5.2; gpt-oss)
nvfp4  4 bits; each output has an 8-bit scale for every 16 inputs, each matrix a float32 (NVIDIA's checkpoints)
fp8    8 bits; a float32 scale for every block of 128×128 (DeepSeek-V3, §3.3.2, and its checkpoint)
int8   8 bits; a float32 scale for each output (LLM.int8(), Dettmers et al. 2022, §2.1)
nf4    4 bits; an 8-bit scale for every 64 elements, and a float32 for every 256 scales (QLoRA with double quantization,
       Dettmers et al. 2023, §3; bitsandbytes)

Quantised are the matrices of linear layers and experts inside the blocks. Embeddings, norms, biases, routers and the
head stay in the run's dtype; with mxfp4, as in gpt-oss, attention too where there are experts. A checkpoint's own
format (`spec/checkpoints.py`) has the bits, groups and left-out modules of its config.

Keys and values have 8 bits each, in both formats of the cache, and one scale for all keys of a layer and one for its
values, which are parameters of the model (vLLM, TensorRT-LLM): 8 bytes a layer, which are not counted. Recurrent states
stay in the run's dtype.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from xfcost.ledger.errors import printable
from xfcost.ledger.patterns import wrong_pattern
from xfcost.ledger.stored import StoredWeights
from xfcost.ledger.units import Number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from xfcost.ledger.device import Device
    from xfcost.ledger.modes import CacheBytes
    from xfcost.ledger.operation import Operation

_BYTE: Final = 8


class WeightMatrix(msgspec.Struct, frozen=True, gc=False):
    """The matrices of a linear map; of experts one each."""

    inputs: Number
    outputs: Number
    count: Number = 1

    @property
    def elements(self) -> int:
        """Weights of all of them, without biases."""
        return int(self.count * self.inputs * self.outputs)


class Override(NamedTuple):
    """The format of modules whose names a regular expression matches from their start (`dynamic` of GPTQModel)."""

    pattern: str
    form: WeightFormat | None
    """None: they stay in the model's dtype."""


class WeightFormat(msgspec.Struct, frozen=True):
    """A format of quantised weights."""

    name: str
    bits: int
    outputs: int | None
    """A scale is of so many outputs …"""
    inputs: int | None
    """… and so many inputs; None: of all."""
    scale_bits: int
    """Of a scale, and of its zero point."""
    words: str
    """How a quantised matrix is stored, for reports; empty where its tensors alone show that."""
    products: str | None = None
    """The dtype of products with it, where the device has a peak for it; None: the run's."""
    experts_alone: bool = False
    """Are in models with experts only these quantised?"""
    flat: bool = False
    """Is a scale of so many `inputs` of all elements in their order, across outputs?"""
    nested: int | None = None
    """So many scales share a float32."""
    input_bits: int = 0
    """For each input: of the index of its group."""
    matrix_bits: int = 0
    """For each matrix."""
    left_out: tuple[str, ...] = ()
    """Modules that stay in the model's dtype: parts of their names, with `*`, or regular expressions after `re:`."""
    targets: tuple[str, ...] = ()
    """Modules that alone are quantised; none: all linear layers."""
    groups: tuple[WeightFormat, ...] = ()
    """Formats of a checkpoint that has several, each with its `targets`; this one has their names and words."""
    overrides: tuple[Override, ...] = ()
    """Of modules that have another format; the first that matches has it."""
    head: bool = False
    """Is the head quantised too?"""
    cache: str | None = None
    """The format of the checkpoint's keys and values."""
    remarks: tuple[str, ...] = ()
    """What of the checkpoint's config is not counted."""
    fused: str | None = None
    """What the checkpoint calls its map to queries, keys and values, where it has one for the three."""
    published: bool = False
    """Is it that of the checkpoint, by its config or its tensors?"""
    tensors: StoredWeights | None = None
    """The checkpoint's tensors, where they are known: the bytes are theirs."""

    def bytes(self, matrix: WeightMatrix) -> int:
        """Of the matrices with their scales."""
        inputs, outputs = int(matrix.inputs), int(matrix.outputs)
        if self.flat:
            inputs, outputs = inputs * outputs, 1
        scales = -(-outputs // (self.outputs or outputs)) * -(-inputs // (self.inputs or inputs))
        bits = inputs * outputs * self.bits + scales * self.scale_bits + self.matrix_bits
        bits += -(-scales // self.nested) * 32 if self.nested else 0
        bits += int(matrix.inputs) * self.input_bits
        return int(matrix.count) * -(-bits // _BYTE)


WEIGHT_FORMATS: Final = {
    one.name: one
    for one in (
        WeightFormat(
            "int4", 4, 1, 128, 16 + 4, "4 bits, and of 128 inputs a 16-bit scale and a 4-bit zero point (AWQ)"
        ),
        WeightFormat("fp8", 8, 128, 128, 32, "8 bits, and of 128×128 a float32 scale (DeepSeek-V3)", "float8"),
        WeightFormat("mxfp4", 4, 1, 32, 8, "4 bits, and of 32 inputs an 8-bit scale (OCP MX)", experts_alone=True),
        WeightFormat(
            "nvfp4", 4, 1, 16, 8, "4 bits, and of 16 inputs an 8-bit scale, of a matrix a float32", matrix_bits=32
        ),
        WeightFormat("int8", 8, 1, None, 32, "8 bits, and of an output a float32 scale (LLM.int8())", "int8"),
        WeightFormat(
            "nf4",
            4,
            1,
            64,
            8,
            "4 bits, and of 64 elements an 8-bit scale, of 256 scales a float32 (QLoRA)",
            flat=True,
            nested=256,
        ),
    )
}
# Weights in the run's dtype, whatever the checkpoint has.
UNQUANTISED: Final = "none"
# Format of a cache -> dtype of products with it, where the device has a peak for it. Both have a byte per element.
CACHE_FORMATS: Final = {"fp8": "float8", "int8": "int8"}
CACHE_BYTES: Final = 1


class QuantisedMatrix(NamedTuple):
    """A matrix, or a part of one that is a module of its own in the checkpoint, in the blocks that quantise it."""

    matrix: WeightMatrix
    form: WeightFormat
    blocks: int


class StoredAs(NamedTuple):
    """How the weights and the cache of a run are stored, and which of its products have fewer bits."""

    element: int
    """Bytes of an element of the run's dtype."""
    weights: WeightFormat | None = None
    experts_alone: bool = False
    """Are only experts quantised?"""
    cache_products: str | None = None
    attention: frozenset[str] = frozenset()
    """Components of softmax attention, whose keys and values a cache may quantise; a recurrent state stays as it is."""
    modules: Mapping[str, tuple[QuantisedMatrix, ...]] | None = None
    """Path of a row -> its matrices in the modules of a checkpoint; None: all are in `weights`."""
    held: Mapping[str, int] | None = None
    """Path of a row -> bytes of its weights in all blocks, where a checkpoint's tensors show them."""
    table: Fraction | None = None
    """Bytes of a weight in the table of the vocabulary, by the same tensors."""

    def quantised(self, row: Operation) -> tuple[QuantisedMatrix, ...]:
        """The matrices of an operation that are quantised; none of a table that it shares."""
        if self.weights is None or not row.params:
            return ()
        found = (
            (QuantisedMatrix(one, self.weights, row.times) for one in row.weight_matrices)
            if self.modules is None
            else self.modules.get(row.path, ())
        )
        return tuple(one for one in found if one.matrix.count > 1 or not self.experts_alone)

    def held_in_all(self, row: Operation) -> int:
        """Bytes of the parameters of all blocks of an operation."""
        if self.held is not None and not row.adapter:
            return self.held.get(row.path, 0)
        fewer = sum(
            one.blocks * (one.form.bytes(one.matrix) - one.matrix.elements * self.element)
            for one in self.quantised(row)
        )
        return row.times * row.params * self.element + fewer

    def held_bytes(self, row: Operation) -> int | Fraction:
        """Bytes of the parameters of one block's operation: the mean, where some blocks are quantised and some not."""
        held = Fraction(self.held_in_all(row), row.times)
        return int(held) if held.denominator == 1 else held

    def read_bytes(self, row: Operation, elements: float) -> int | float:
        """Bytes of `elements` of its weights: of experts, which are stored alike, in proportion."""
        if self.table is not None and row.vocabulary and not row.params:
            return int(elements * self.table)
        if not self.quantised(row) and (self.held is None or not row.params):
            return elements * self.element
        held = self.held_bytes(row)
        return int(elements * held // row.params) if isinstance(elements, int) else float(elements / row.params * held)

    def products(self, row: Operation) -> str | None:
        """The dtype of its products with quantised operands; None: the run's."""
        if found := self.quantised(row):
            return next((one.form.products for one in found if one.form.products), None)
        return self.cache_products if row.fused or (row.content_dependent and self._attends(row)) else None

    def peak(self, row: Operation, device: Device, dtype: str) -> float:
        """FLOP/s of its products: of quantised operands in their dtype, where the device is faster there."""
        figure = device.peaks.get(self.products(row) or dtype)
        return device.peak(dtype) if figure is None else max(figure.value, device.peak(dtype))

    def _attends(self, row: Operation) -> bool:
        return any(f"{row.component}.".startswith(f"{one}.") for one in self.attention)


def storage(element: int, rows: Sequence[Operation], weights: WeightFormat | None, cache: str | None) -> StoredAs:
    """How a run with these rows is stored in formats that may be None."""
    experts_alone = weights is not None and weights.experts_alone
    experts_alone = experts_alone and any(one.count > 1 for row in rows for one in row.weight_matrices)
    modules = None
    if weights is not None and weights.published:
        modules = _of_modules(rows, weights, ModuleFormats(weights)) if weights.words else {}
    if cache is None:
        return StoredAs(element, weights, experts_alone, modules=modules)
    softmax = (row for row in rows if row.fused or (row.content_dependent and "softmax" in row.operation))
    attention = frozenset(row.component for row in softmax)
    return StoredAs(element, weights, experts_alone, CACHE_FORMATS[cache], attention, modules)


class ModuleFormats:
    """The format of each module of a checkpoint."""

    def __init__(self, weights: WeightFormat) -> None:
        self._left_out = ModulePatterns(weights.left_out)
        self._groups = [(one, ModulePatterns(one.targets)) for one in weights.groups or (weights,)]
        self._overrides = [(re.compile(one.pattern), one) for one in weights.overrides]
        self._known: dict[str, WeightFormat | None] = {}
        self._head = HEAD if weights.head else None
        named = (*weights.left_out, *(entry for one, _ in self._groups for entry in one.targets))
        self.entries = tuple(dict.fromkeys((*named, *(one.pattern for one in weights.overrides))))
        self.by_name = bool(self.entries)
        self.by_expert = any(_ONE_EXPERT.search(one) for one in self.entries)
        """Does an entry have the number of an expert?"""
        self.matched: set[str] = set()
        """Those of the entries that mean a module that was looked up."""

    def of(self, name: str) -> WeightFormat | None:
        """The format of the module of this name; None: it stays in the model's dtype.

        Of several groups it is the one that has the name, then one with a pattern of it, then one of all linear layers
        (compressed-tensors).
        """
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> WeightFormat | None:
        out = self._left_out.of(name)
        named = [(one, patterns.of(name)) for one, patterns in self._groups]
        override = next((one for pattern, one in self._overrides if pattern.match(name)), None)
        self.matched.update(out, *(entries for _, entries in named), [override.pattern] if override else [])
        known = [(one, entries) for one, entries in named if not one.targets or entries or name == self._head]
        if out or not known:
            return None
        if override is not None:
            return override.form
        return max(known, key=lambda one: max((1 + (entry == name) for entry in one[1]), default=0))[0]

    def of_experts(self, name: str, count: int) -> Counter[WeightFormat | None]:
        """How many of `count` experts have each format; `name` is a module of the first."""
        around, _, inside = name.rpartition(".0.")
        if not self.by_expert or count == 1 or not around:
            return Counter({self.of(name): count})
        return Counter(self.of(f"{around}.{number}.{inside}") for number in range(count))


# What a checkpoint calls its head.
HEAD: Final = "lm_head"
# An entry with the number of an expert, or with a choice of some.
_ONE_EXPERT: Final = re.compile(r"experts[\\.]*[\d(\[]")


def _of_modules(
    rows: Sequence[Operation], weights: WeightFormat, formats: ModuleFormats
) -> dict[str, tuple[QuantisedMatrix, ...]]:
    """Path of a row -> the matrices that the checkpoint quantises, each in its format."""
    found: dict[str, tuple[QuantisedMatrix, ...]] = {}
    for path, modules in checkpoint_modules(rows, weights.fused).items():
        blocks: Counter[tuple[WeightMatrix, WeightFormat]] = Counter()
        for module in modules:
            if not formats.by_name:
                blocks[module.matrix, weights] += len(module.blocks)
                continue
            count = int(module.matrix.count)
            for block in module.blocks:
                for form, number in formats.of_experts(f"{block}{module.name}", count).items():
                    if form is not None:
                        some = {} if number == count else {"count": number}
                        blocks[msgspec.structs.replace(module.matrix, **some), form] += 1
        found[path] = tuple(QuantisedMatrix(*one, count) for one, count in blocks.items())
    head = _head(rows) if weights.head else None
    if head is not None and (form := formats.of(HEAD)) is not None:
        found[head[0]] = (QuantisedMatrix(head[1], form, 1),)
    return found


def _head(rows: Sequence[Operation]) -> tuple[str, WeightMatrix] | None:
    """The path of the head, and its matrix: it reads what most maps inside the blocks read; None of a shared table."""
    row = next((row for row in reversed(rows) if row.vocabulary and row.macs and row.params), None)
    widths = Counter(int(one.inputs) for row in rows for one in row.weight_matrices for _ in range(row.times))
    if row is None or not widths:
        return None
    width = widths.most_common(1)[0][0]
    for columns in (width, width + 1):  # with a bias
        if row.params % columns == 0:
            return row.path, WeightMatrix(width, row.params // columns)
    return None


def config_warnings(rows: Sequence[Operation], weights: WeightFormat | None) -> tuple[str, ...]:
    """Warnings of what a checkpoint's config says that has no effect on the counts of its model."""
    if weights is None or not weights.published:
        return ()
    formats, found = ModuleFormats(weights), []
    _of_modules(rows, weights, formats)
    if unknown := [one for one in formats.entries if one not in formats.matched and not _stays(one)]:
        names = ", ".join(repr(printable(one, 60)) for one in unknown[:_SHOWN])
        names += f" and {len(unknown) - _SHOWN:,} more" if len(unknown) > _SHOWN else ""
        several = len(unknown) > 1
        found.append(
            f"quantization_config: {names} {'name' if several else 'names'} no linear layer or expert that is counted; "
            f"{'they have' if several else 'it has'} no effect"
        )
    if weights.head and _head(rows) is None:
        found.append("quantization_config: lm_head: the model has no head with weights of its own; it has no effect")
    return tuple(found)


_SHOWN: Final = 3
# Last words of names of what no format quantises, and words of parts that may not be counted.
_STAY: Final = ("head", "embed", "wte", "wpe", "norm", "router", "bias", "rotary", "score", "classifier", "conv1d")
_BESIDE: Final = frozenset({"visual", "vision_tower", "vision_model", "audio_tower", "multi_modal_projector", "mtp"})


def _stays(entry: str) -> bool:
    """Does an entry name what no format quantises: the head, embeddings, norms, routers, towers of images?"""
    words = re.findall(r"[a-z]\w*", entry.removeprefix("re:").lower().replace("\\", " ")) or [""]
    last = words[-1]
    return (
        any(one in last for one in _STAY) or last == "gate" or last.endswith("_gate") or not _BESIDE.isdisjoint(words)
    )


class ModulePatterns:
    """Entries of `modules_to_not_convert`, `ignore` or `targets`, by which modules are looked up.

    An entry is a regular expression after `re:`, or else the name of a module, of one around it, or of several, with
    `*`; or a regular expression of a name from its start to a dot (`should_convert_module` of transformers).
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._names: dict[str, list[str]] = {}
        self._ends: dict[str, list[str]] = {}
        self._others: list[tuple[str, re.Pattern[str] | None]] = []
        for entry in entries:
            if entry.startswith("re:"):
                self._others.append((entry, re.compile(entry[3:])))
            elif (name := entry.strip(".")) and _NAME.fullmatch(name):
                self._names.setdefault(name, []).append(entry)
                parts = name.split(".")
                for first in range(len(parts)):
                    self._ends.setdefault(".".join(parts[first:]), []).append(entry)
            elif name:
                regular = wrong_pattern(entry) is None
                self._others.append((entry, re.compile(rf"(?:{entry})((?<=\.)|(?=\.|$))") if regular else None))

    def of(self, name: str) -> list[str]:
        """The entries that mean the module of this name."""
        found = list(self._ends.get(name, ()))
        if self._names:
            parts = name.split(".")
            sizes = range(len(parts) + 1)
            around = {".".join(parts[first:last]) for first in sizes for last in sizes[first + 1 :]}
            found += [entry for one in around for entry in self._names.get(one, ())]
        found += [entry for entry, pattern in self._others if self._means(entry, pattern, name)]
        return found

    @staticmethod
    def _means(entry: str, pattern: re.Pattern[str] | None, name: str) -> bool:
        if pattern is not None and pattern.match(name):
            return True
        return not entry.startswith("re:") and _with_stars(entry.strip("."), name)


_NAME: Final = re.compile(r"[\w.-]+")


def _with_stars(pattern: str, name: str) -> bool:
    """Does the name have parts of which each `*` of the pattern is any text? Read from left to right, in one pass."""
    at, whole = 0, f".{name}."
    for part in f".{pattern}.".split("*"):
        at = whole.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


# The operations of a spec -> what classes of transformers call the modules.
_MODULES: Final = {
    "qkv": ("q_proj", "k_proj", "v_proj"), "q": ("q_proj",), "kv": ("k_proj", "v_proj"), "k": ("k_proj",),
    "v": ("v_proj",), "out": ("o_proj",), "q_down": ("q_a_proj",), "q_up": ("q_b_proj",),
    "kv_down": ("kv_a_proj_with_mqa",), "kv_up": ("kv_b_proj",), "gate": ("gate_proj",), "up": ("up_proj",),
    "down": ("down_proj",), "fc1": ("up_proj",), "fc2": ("down_proj",),
}  # fmt: skip
_GROUP: Final = re.compile(r"(?<=\.)(\*|\d[\d,:-]*)(?=\.|$)")


class CheckpointModule(NamedTuple):
    """A matrix of a row that is a module of its own in a checkpoint."""

    blocks: Sequence[str]
    """Of the row …"""
    name: str
    """… and what transformers calls the module in each; of experts it is the first one's."""
    matrix: WeightMatrix


def checkpoint_modules(rows: Sequence[Operation], fused: str | None = None) -> dict[str, list[CheckpointModule]]:
    """Path of a row with matrices -> the modules that have them; `fused` is one for queries, keys and values."""
    mixers = {row.component for row in rows if row.mixes or row.fused}
    outputs = {row.component: row.weight_matrices[0] for row in rows if row.operation == "out" and row.weight_matrices}
    stacked = _of_experts(rows)
    found: dict[str, list[CheckpointModule]] = {}
    layers = row_layers(rows)
    for row in rows:
        if not row.weight_matrices:
            continue
        if row.ran is not None:
            blocks = [module_name(row, number) for number in layers[row.path]]
            own = stacked.get(row.path) or [("", one) for one in row.weight_matrices]
        else:
            around, _, own_name = (
                row.operation.rpartition("_") if row.operation not in _MODULES else ("", "", row.operation)
            )
            inside = {"experts": "mlp.experts.0", "shared": "mlp.shared_experts"}.get(around)
            inside = inside or ("self_attn" if row.component in mixers else "mlp")
            blocks = [f"model.layers.{number}.{inside}" for number in layers[row.path]]
            names = (fused,) if own_name == "qkv" and fused else _MODULES.get(own_name, (own_name,))
            own = [
                (f".{name}", part)
                for one in row.weight_matrices
                for name, part in zip(names, _columns(one, len(names), outputs.get(row.component)), strict=True)
            ]
        found[row.path] = [CheckpointModule(blocks, name, matrix) for name, matrix in own]
    return found


def of_classes(rows: Iterable[Operation]) -> bool:
    """Are they rows of a class of transformers, whose components are its modules?"""
    return any(row.ran is not None for row in rows)


def row_layers(rows: Sequence[Operation]) -> dict[str, Sequence[int]]:
    """Path of a row in layers -> their numbers; of a class of transformers also of others, as many as its times.

    A layer of a spec is a block with linear maps: a norm may be a block of its own.
    """
    layers: dict[str, int] = {}  # a block of a spec -> the number of its first layer
    reached = 0
    for row in rows:
        block = row.component.rpartition(".")[0]
        if row.ran is None and row.weight_matrices and block not in layers:
            layers[block], reached = reached, reached + row.times
    found: dict[str, Sequence[int]] = {}
    of_class = of_classes(rows)
    for row in rows:
        first = layers.get(row.component.rpartition(".")[0])
        if of_class:
            found[row.path] = _numbers(row)
        elif first is not None:
            found[row.path] = range(first, first + row.times)
    return found


def module_name(row: Operation, number: int) -> str:
    """The module of a row of a class of transformers in the layer of this number."""
    return _GROUP.sub(str(number), row.component, count=1)


def _columns(matrix: WeightMatrix, parts: int, out: WeightMatrix | None) -> list[WeightMatrix]:
    """A matrix cut by its outputs: keys are as wide as values, queries as what the output projection `out` reads."""
    if parts == 1:
        return [matrix]
    outputs = int(matrix.outputs)
    widths = [int(out.inputs)] if parts > 2 and out is not None and out.inputs < outputs else []  # noqa: PLR2004 - Q, K, V
    for left in range(parts - len(widths), 0, -1):
        widths.append((outputs - sum(widths)) // left)
    return [msgspec.structs.replace(matrix, outputs=width) for width in widths]


def _of_experts(rows: Sequence[Operation]) -> dict[str, list[tuple[str, WeightMatrix]]]:
    """Path of a row of a class that stacks its experts -> their modules in a checkpoint, which has each by itself.

    The last matrix of a component is `down_proj`. One before it with twice the outputs is `gate_proj` and `up_proj`.
    """
    components: dict[str, list[tuple[str, WeightMatrix]]] = {}
    for row in rows:
        if row.ran is not None and any(one.count > 1 for one in row.weight_matrices):
            components.setdefault(row.component, []).extend((row.path, one) for one in row.weight_matrices)
    found: dict[str, list[tuple[str, WeightMatrix]]] = {}
    for known in components.values():
        *first, (last, down) = known
        names = iter(("gate_proj", "up_proj") if len(first) > 1 else ("up_proj",))
        for path, one in first:
            if len(first) == 1 and one.outputs == 2 * down.inputs:
                half = msgspec.structs.replace(one, outputs=down.inputs)
                modules = [("gate_proj", half), ("up_proj", half)]
            else:
                modules = [(next(names, "up_proj"), one)]
            found.setdefault(path, []).extend((f".0.{name}", part) for name, part in modules)
        found.setdefault(last, []).append((".0.down_proj" if first else ".0.up_proj", down))
    return found


def _numbers(row: Operation) -> Sequence[int]:
    """The numbers of its blocks: of `*` all from 0, of `1-23:2` every second."""
    group = _GROUP.search(row.component)
    if group is None or group[0] == "*":
        return range(row.times)
    numbers: list[int] = []
    for part in group[0].split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        numbers += range(int(first), int(last or first) + 1, int(step or 1))
    return numbers


def quantised_cache(cache: CacheBytes, element: int) -> CacheBytes:
    """`cache` of elements of `element` bytes, with a byte for each key and value."""

    def of_keys(nbytes: int) -> int:
        return nbytes * CACHE_BYTES // element

    recurrent = cache.recurrent_bytes
    return msgspec.structs.replace(
        cache,
        bytes=of_keys(cache.bytes - recurrent) + recurrent,
        bytes_per_token=of_keys(cache.bytes_per_token),
        state_bytes=of_keys(cache.state_bytes - recurrent) + recurrent,
        cross_attention_bytes=of_keys(cache.cross_attention_bytes),
    )
