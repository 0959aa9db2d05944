"""The join of a checkpoint's tensors with the rows of a ledger: bytes of each operation, and bytes that none has.

Where a module of a class of transformers has parameters, its rows have its name. Linear maps of a spec have the names
that such classes give them, and so have tables of the vocabulary. What is left of a layer (norms, biases, names of
families that are not known) is divided among its other rows by their parameters: the bytes of a layer are exact, and
those of its matrices where their names are known.

A model whose layers are not one sequence (an encoder and a decoder, stages of images) is divided as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, NamedTuple

from xfcost.ledger.errors import UsageError, printable
from xfcost.ledger.operation import Operation
from xfcost.ledger.quantization import (
    WeightFormat,
    WeightMatrix,
    checkpoint_modules,
    config_warnings,
    module_name,
    of_classes,
    row_layers,
)
from xfcost.ledger.stored import ModuleKey, StoredModule, StoredWeights, module_key, params_of


class JoinedWeights(NamedTuple):
    """What the operations of a ledger have of a checkpoint."""

    held: Mapping[str, int]
    """Path of a row -> bytes of its weights in all blocks."""
    bytes: int
    """Those of operations that run."""
    others: Mapping[str, int]
    """Why -> the other bytes."""
    warnings: tuple[str, ...]


class _Unit(NamedTuple):
    """Rows that share modules: one of a spec, or all that have parameters of one module."""

    rows: tuple[Operation, ...]
    names: tuple[str, ...]
    """Of its modules in a layer, or outside of layers; a module of the checkpoint may be a part of one."""
    matrices: Mapping[str, WeightMatrix]
    """Those of its names that are linear maps."""

    @property
    def vocabulary(self) -> bool:
        """Is it a table of the vocabulary or a head, which have one of its names each?"""
        return self.rows[0].vocabulary

    @property
    def params(self) -> int:
        """Of one block."""
        return sum(row.params for row in self.rows)


# What checkpoints call the table of the vocabulary, and the head.
_TABLES: Final = (
    "embed_tokens", "wte", "word_embeddings", "embeddings.word_embeddings", "tok_embeddings", "embeddings", "embed_in",
    "tokens_embed", "shared",
)  # fmt: skip
_HEADS: Final = ("lm_head", "embed_out", "output")
_COPY: Final = "a copy of the table that the head shares"
_NO_HEAD: Final = "a head that the counted model does not have"
_UNREAD: Final = "not read in this pass"
_NO_NAME: Final = "no operation of these names"


def joined(rows: Sequence[Operation], stored: StoredWeights, fused: str | None = None) -> JoinedWeights:
    """The join; `fused` is what the checkpoint calls its one map to queries, keys and values.

    Raises:
        UsageError: the tensors have other layers, or a matrix of another shape, than the rows.
    """
    return _known(_Rows(rows), stored, fused)


class _Rows:
    """Rows of a model, which are joined as those of its runs at other sizes with these names and parameters."""

    def __init__(self, rows: Sequence[Operation]) -> None:
        self.rows = rows
        self.key = tuple((row.path, row.times, row.params, bool(row.macs)) for row in rows)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rows) and self.key == other.key


@lru_cache(16)
def _known(rows: _Rows, stored: StoredWeights, fused: str | None) -> JoinedWeights:
    return _Join(rows.rows, stored, fused).result()


# Types of safetensors for numbers that are not quantised -> bytes.
_FLOATS: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def checkpoint_warnings(
    rows: Sequence[Operation], weights: WeightFormat | None, stored: StoredWeights | None, element: int
) -> tuple[str, ...]:
    """Warnings of what a checkpoint's config says without effect, and of tensors that differ from the counts.

    An `element` of the run's dtype has so many bytes.

    Raises:
        UsageError: the tensors have other shapes or layers.
    """
    found = config_warnings(rows, weights)
    if stored is None:
        return found
    found += joined(rows, stored, None if weights is None else weights.fused).warnings
    found += (stored.unread,) if stored.unread else ()
    kind = next(iter(stored.dtypes), "")
    if weights is not None and weights.tensors is not None and _FLOATS.get(kind, element) != element:
        found += (f"weights are counted as stored, in {kind}; --weights none counts them as loaded in the run's dtype",)
    return found


class _Join:
    def __init__(self, rows: Sequence[Operation], stored: StoredWeights, fused: str | None) -> None:
        self.rows, self.stored = [row for row in rows if row.params and not row.adapter], stored
        self.scores = any(row.macs and (row.vocabulary or row.shared is not None) for row in rows)
        self.numbers = row_layers(rows)
        # modules with a parameter that operations elsewhere read
        self.shared = {row.shared.rpartition(".")[0] for row in rows if row.shared is not None}
        self.held: dict[str, int] = dict.fromkeys((row.path for row in self.rows), 0)
        self.others: dict[str, int] = defaultdict(int)
        self.unnamed: list[str] = []
        self.differences: list[tuple[str, int, int]] = []
        words = {word for row in self.rows for word in row.component.split(".")}
        self.modules: dict[ModuleKey, StoredModule] = {}
        for key, module in stored.modules.items():
            if module.reason is not None and module.reason.parts.isdisjoint(words):
                self.others[module.reason.words] += module.bytes
            else:
                self.modules[key] = module
        self.of_class = of_classes(rows)
        self.layers, self.outside = _units(rows, fused)

    def result(self) -> JoinedWeights:
        stored = {key.stack for key in self.modules if key.layer is not None}
        counted = {stack for stack, _ in self.layers}
        one = len(stored) == len(counted) == 1
        if not any(row.vocabulary for row in self.rows) or not (one or stored == counted):
            self._as_a_whole()
        else:
            of_layers: dict[tuple[str, int], dict[str, StoredModule]] = defaultdict(dict)
            outside: dict[str, StoredModule] = {}
            (only,) = counted if one else ("",)
            for key, module in self.modules.items():
                place = (only if one else key.stack, key.layer or 0)
                (outside if key.layer is None else of_layers[place])[key.name] = module
            self._check_layers(of_layers.keys(), self.layers.keys())
            for (stack, number), modules in sorted(of_layers.items()):
                where = f"layer {number} of {stack}" if stack and not one else f"layer {number}"
                self._divide(self.layers[stack, number], modules, where)
            self._divide(self.outside, self._without_heads(outside), "what is outside of layers")
        unused = self._unused()
        held = sum(self.held.values()) - unused
        return JoinedWeights(self.held, held, dict(self.others), tuple(self._warnings()))

    def _unused(self) -> int:
        """Bytes of parameters that no operation of this pass reads, as those of a tower for images beside text."""
        total = 0
        reasons = {module.reason for module in self.modules.values() if module.reason is not None}
        for row in self.rows:
            if row.ran is not None or not self.of_class or row.weights_read is None or row.weights_read.elements:
                continue
            if module_name(row, self.numbers[row.path][0]) in self.shared:
                continue
            words = row.component.split(".")
            why = next((one.words for one in reasons if not one.parts.isdisjoint(words)), _UNREAD)
            self.others[why] += self.held[row.path]
            total += self.held[row.path]
        return total

    def _as_a_whole(self) -> None:
        """Bytes by parameters; what the counted pass lacks of the model's parameters belongs to no operation."""
        nbytes = sum(one.bytes for one in self.modules.values())
        stored = params_of(self.modules.values())
        counted = sum(row.times * row.params for row in self.rows)
        if stored is not None and stored != counted:
            self.differences.append(("the model", stored, counted))
            if stored > counted:
                self.others["parameters that the counted pass does not have"] += nbytes - nbytes * counted // stored
                nbytes = nbytes * counted // stored
        self._share(nbytes, {row.path: row.times * row.params for row in self.rows})

    def _check_layers(self, stored: AbstractSet[tuple[str, int]], counted: AbstractSet[tuple[str, int]]) -> None:
        if missing := sorted(counted - stored):
            raise UsageError(
                f"{self.stored.place}: has no tensor of layer {missing[0][1]}; it has {len(stored)} layers, "
                f"{self.stored.config} has {len(counted)}"
            )
        if more := sorted(stored - counted):
            tensor = next(one.tensor for key, one in self.modules.items() if key.layer == more[0][1])
            raise UsageError(
                f"{printable(tensor, 120)}: is of layer {more[0][1]} in {self.stored.place}, whose tensors are of "
                f"{len(stored)} layers; {self.stored.config} has {len(counted)}"
            )

    def _without_heads(self, outside: dict[str, StoredModule]) -> dict[str, StoredModule]:
        """The modules outside of layers without a head that shares its table, or that the model does not have."""
        if any(row.vocabulary and row.macs for row in self.rows):
            return outside
        heads = {name: one for name, one in outside.items() if name in _HEADS}
        for one in heads.values():
            self.others[_COPY if self.scores else _NO_HEAD] += one.bytes
        return {name: one for name, one in outside.items() if name not in heads}

    def _divide(self, units: Sequence[_Unit], modules: Mapping[str, StoredModule], where: str) -> None:
        """The bytes of `modules` among the units of a layer."""
        owners = _Names(units)
        found: dict[int, list[tuple[str, StoredModule]]] = defaultdict(list)
        rest: dict[str, StoredModule] = {}
        for name, module in modules.items():
            owner = owners.of(name)
            if owner is None:
                rest[name] = module
            else:
                found[owner].append((name, module))
        spare = params_of(rest.values())
        left: dict[str, int] = {}
        for number, unit in enumerate(units):
            mine = found.get(number, [])
            self._share(sum(one.bytes for _, one in mine), {row.path: row.params for row in unit.rows})
            if self._complete(unit, mine, where):
                continue
            missing = unit.params - sum(one.params or 0 for _, one in mine)
            if spare is not None and spare < missing:
                self._check_missing(unit, mine, where)
            left |= {row.path: missing * row.params // unit.params for row in unit.rows}
        self._divide_rest(rest, {path: params for path, params in left.items() if params}, where)

    def _check_missing(self, unit: _Unit, mine: Sequence[tuple[str, StoredModule]], where: str) -> None:
        """A matrix that no tensor of its layer can be is an error."""
        if unit.vocabulary:
            raise UsageError(
                f"{self.stored.place}: has no tensor of {unit.names[0]}; {unit.params:,} parameters by "
                f"{self.stored.config}"
            )
        lacking = unit.matrices.keys() - {name for name, _ in mine}
        for name in sorted(lacking):
            matrix = unit.matrices[name]
            raise UsageError(
                f"{where}: {self.stored.place} has no tensor of {name}; {_shape(matrix.outputs, matrix.inputs)} by "
                f"{self.stored.config}"
            )

    def _complete(self, unit: _Unit, mine: Sequence[tuple[str, StoredModule]], where: str) -> bool:
        """Are all parameters of a unit stored, under its names, or as many as its packing shows?

        Raises:
            UsageError: one of its matrices has another shape.
        """
        for name, module in mine:
            self._check_shape(unit.matrices.get(name), module)
        if not mine or any(one.params is None for _, one in mine):
            return bool(mine)
        stored = sum(one.params or 0 for _, one in mine)
        if stored == unit.params:
            return True
        if unit.vocabulary or (unit.matrices and {name for name, _ in mine} >= {*unit.names}):
            tensor, file = printable(mine[0][1].tensor, 120), mine[0][1].file
            others = f" and {', '.join(name for name, _ in mine[1:])}" if mine[1:] else ""
            raise UsageError(
                f"{tensor}{others}: {stored:,} parameters in {file}, {unit.params:,} by {self.stored.config}"
            )
        if stored > unit.params:
            self.differences.append((where, stored, unit.params))
            return True
        return False

    def _check_shape(self, counted: WeightMatrix | None, module: StoredModule) -> None:
        if counted is None or module.matrix is None:
            return
        tensor = f"{printable(module.tensor, 120)}: "
        inputs, outputs = int(counted.inputs), int(counted.outputs)
        if sorted(module.matrix) != sorted((inputs, outputs)):
            raise UsageError(
                f"{tensor}{_shape(*module.matrix)} in {module.file}, {_shape(outputs, inputs)} by {self.stored.config}"
            )
        if module.count != counted.count:
            raise UsageError(
                f"{tensor}one of {module.count:,} experts in {module.file}, of {int(counted.count):,} by "
                f"{self.stored.config}"
            )

    def _divide_rest(self, rest: Mapping[str, StoredModule], left: Mapping[str, int], where: str) -> None:
        """What no name belongs to, among the rows of whose parameters some are `left`."""
        nbytes = sum(one.bytes for one in rest.values())
        if rest and not left:
            self.others[_NO_NAME] += nbytes
            self.unnamed += [one.tensor for one in rest.values()]
            return
        known, counted = [one.params for one in rest.values()], sum(left.values())
        if None not in known and (stored := sum(one or 0 for one in known)) != counted:
            self.differences.append((where, stored, counted))
            if stored > counted and not self._same_in_all():
                self.others[_NO_NAME] += nbytes - nbytes * counted // stored
                nbytes = nbytes * counted // stored
        self._share(nbytes, left)

    def _same_in_all(self) -> bool:
        """Are as many parameters stored as counted? Then what a layer has too many of is missing in another one."""
        known = [one.params or 0 for one in self.modules.values()]
        return sum(known) == sum(row.times * row.params for row in self.rows)

    def _share(self, nbytes: int, parts: Mapping[str, int]) -> None:
        """Divide bytes by `parts`, to whole bytes whose sum is theirs."""
        total, before, given = sum(parts.values()), 0, 0
        for path, part in parts.items():
            before += part
            upto = nbytes * before // total if total else 0
            self.held[path] += upto - given
            given = upto

    def _warnings(self) -> Iterator[str]:
        if sum(stored - counted for _, stored, counted in self.differences):  # else they are in another layer
            where, stored, counted = self.differences[0]
            more = f", and {len(self.differences) - 1:,} more differences" if self.differences[1:] else ""
            yield (
                f"{self.stored.place}: of {where} its tensors have {stored:,} parameters, {self.stored.config} has "
                f"{counted:,}{more}; bytes are those of the tensors"
            )
        if self.unnamed:
            names = ", ".join(printable(one, 80) for one in self.unnamed[:_SHOWN])
            more = f" and {len(self.unnamed) - _SHOWN:,} more" if self.unnamed[_SHOWN:] else ""
            yield f"{self.stored.place}: no operation has the tensors {names}{more}"


_SHOWN: Final = 3


class _Names:
    """The units by the names of their modules, of which a module of a checkpoint may be a part."""

    def __init__(self, units: Sequence[_Unit]) -> None:
        self._whole = {name: number for number, unit in enumerate(units) for name in unit.names}
        self._around = {name: number for name, number in self._whole.items() if not units[number].vocabulary}

    def of(self, name: str) -> int | None:
        """The unit with this name, or with the longest one that `name` begins with; of a table with this name alone."""
        found, around = self._whole.get(name), name.rpartition(".")[0]
        while found is None and around:
            found, around = self._around.get(around), around.rpartition(".")[0]
        return found


def _shape(rows: float, columns: float) -> str:
    return f"{int(rows)}×{int(columns)}"


def _units(
    rows: Sequence[Operation], fused: str | None
) -> tuple[dict[tuple[str, int], list[_Unit]], list[_Unit]]:  # fmt: skip
    """The units of each layer, by its stack of layers and its number, and those outside.

    Of a spec with an encoder and a decoder no layers: what both share is in one of them in a checkpoint.
    """
    modules, numbers, of_class = checkpoint_modules(rows, fused), row_layers(rows), of_classes(rows)
    groups: dict[str, list[Operation]] = defaultdict(list)
    for row in rows:
        if row.params:
            groups[row.component if of_class else row.path].append(row)
    layers: dict[tuple[str, int], list[_Unit]] = defaultdict(list)
    outside: list[_Unit] = []
    for own in groups.values():
        first = own[0]
        names: dict[str, WeightMatrix | None] = {}
        key = module_key(module_name(first, numbers[first.path][0])) if of_class else None
        if key is not None:
            names[key.name] = None
        for row in own:
            for one in modules.get(row.path, ()):
                names[module_key(f"{one.blocks[0]}{one.name}").name] = one.matrix
        if first.path not in numbers if key is None else key.layer is None:
            outside.append(_outside(own, names))
            continue
        stack = key.stack if key is not None else ""
        unit = _Unit(tuple(own), tuple(names), {name: one for name, one in names.items() if one is not None})
        for number in numbers[first.path]:
            layers[stack, number].append(unit)
    return ({} if not of_class and _has_streams(rows) else dict(layers)), outside


def _outside(rows: Sequence[Operation], names: Mapping[str, WeightMatrix | None]) -> _Unit:
    row = rows[0]
    usual: Iterable[str] = (_HEADS if row.macs else _TABLES) if row.vocabulary else ()
    return _Unit(tuple(rows), (*names, *(one for one in usual if one not in names)), {})


def _has_streams(rows: Iterable[Operation]) -> bool:
    """Has the model an encoder and a decoder?"""
    firsts = {row.component.partition(".")[0] for row in rows}
    return {"encoder", "decoder"} <= firsts
