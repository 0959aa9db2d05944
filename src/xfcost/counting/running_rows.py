"""The rows of a component, run one after the other on storages: what each saves, reads and writes."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final, NamedTuple

from xfcost.counting.storage import Held, Storage
from xfcost.ledger.operation import Operation
from xfcost.ledger.tensors import BEFORE, INPUT, OUTPUT, ByChannel, Copy, Repeated, Saved, Tensor, Widened, width_of

_WIDENED: Final = 4


class Run(NamedTuple):
    """A component run once: bytes that each of its rows saves, and reads and writes; and its output."""

    saved: dict[str, int]
    operands: dict[str, int]
    output: Storage


class Undeclared(Exception):  # noqa: N818 - no error: the count is not known
    """A row that does not declare its tensors."""


def run_rows(rows: Iterable[Operation], scope: dict[str, Storage], batch: int, element: int) -> Run:
    """The rows of a component in order; `scope` holds the tensors by name, `INPUT` the first.

    Raises:
        Undeclared: a row does not declare its tensors.
    """
    saved, operands = {}, {}
    scope[BEFORE] = scope[INPUT]
    for row in rows:
        step = _Row(row, scope, batch, element)
        saved[row.path], operands[row.path] = step.saved(), step.operands()
        step.leave()
    return Run(saved, operands, scope[BEFORE])


class _Row:
    """One row that runs."""

    def __init__(self, row: Operation, scope: dict[str, Storage], batch: int, element: int) -> None:
        if row.tensors is None:
            raise Undeclared(row.path)
        self.tensors, self.scope, self.element = row.tensors, scope, element
        self.name, self.batch, self.once = row.operation, batch, row.once
        for each in self.tensors.between:
            scope[each.name] = Storage(Held(each.elements, width_of(each.type, element), gradient=not each.constant))
        missing = next((each.name for each in self.tensors.reads if not (each.held or each.name in scope)), None)
        if missing is not None:
            raise Undeclared(f"{row.path} reads {missing!r}, which no row before it writes")
        read = [scope[each.name] for each in self.tensors.reads if each.name in scope]
        self.gradient = bool(row.params or row.shared) or any(each.gradient for each in read)
        self.written = [self._new(each) for each in self.tensors.writes]
        if self.written:
            scope[OUTPUT] = self.written[0]

    def _new(self, tensor: Tensor) -> Storage:
        if tensor.view_of is not None:
            source = self.scope[tensor.view_of]
            if not (tensor.token_by_token and source.by_channel):
                return source
        once = tensor.once or self.once
        gradient = self.gradient and not tensor.constant
        width = width_of(tensor.type, self.element)
        like = self.scope.get(tensor.like) if tensor.like else None
        by_channel = tensor.by_channel if like is None else like.by_channel
        elements = tensor.elements if tensor.storage is None else tensor.storage
        return Storage(Held(elements, width, gradient, saved=tensor.held, by_channel=by_channel), once=once)

    def saved(self) -> int:
        """Bytes that it saves and no row before it did."""
        if not self.gradient:
            return 0
        made = sum(self._bytes(self._new(each)) for each in self.tensors.makes)
        return made + sum(self._save(each) for each in self.tensors.saves)

    def _save(self, one: Saved) -> int:
        wanted = one.when is None or (one.when in self.scope and self.scope[one.when].gradient)
        storage = self.scope.get(one.name) or self._held(one.name)
        if storage is None or not wanted:
            return 0
        copy = self._copied(one.copied, storage)
        if copy is not None:
            return copy
        if storage.saved:
            return 0
        storage.saved = True
        return self._bytes(storage)

    def _copied(self, copied: Copy | ByChannel | Widened | None, storage: Storage) -> int | None:
        """Bytes of the copy that is saved in the storage's place; None where none is made."""
        if isinstance(copied, Widened):
            elements = self._bytes(storage, prod(copied.shape)) // storage.width
            return elements * _WIDENED if storage.width < _WIDENED else None
        if isinstance(copied, ByChannel):
            return self._bytes(storage, prod(copied.shape)) if storage.by_channel and self.batch > 1 else None
        if isinstance(copied, Repeated):
            return prod(copied.shape) * storage.width * self.batch if copied.copies(self.batch) else None
        if copied is None or not copied.copies(1 if storage.once else self.batch, storage.elements):
            return None
        return self._bytes(storage, prod(copied.shape))

    def _held(self, name: str) -> Storage | None:
        """A parameter or a buffer that no row wrote."""
        held = next((each for each in self.tensors.reads if each.name == name and each.held), None)
        return None if held is None else self._new(held)

    def _bytes(self, storage: Storage, elements: int | None = None) -> int:
        own = storage.elements if elements is None else elements
        return own * storage.width * (1 if storage.once else self.batch)

    def operands(self) -> int:
        """Bytes of the tensors that it reads and writes."""
        read = sum(
            self._bytes(
                self.scope[each.name] if each.name in self.scope else self._new(each),
                each.elements * (self.batch if each.expanded else 1),
            )
            for each in self.tensors.reads
        )
        written = zip(self.tensors.writes, self.written, strict=True)
        return read + sum(self._bytes(storage, tensor.elements) for tensor, storage in written)

    def leave(self) -> None:
        """Name what it has written."""
        if not self.written:
            return
        order = self.tensors.rearranged
        if order is not None and order.copies(self.batch, 0):
            copy = self.written[0].held._replace(elements=prod(order.shape), saved=False, by_channel=False)
            self.written[0] = Storage(copy, once=self.written[0].once)
        for tensor, storage in zip(self.tensors.writes, self.written, strict=True):
            self.scope[self.name if tensor.name == OUTPUT else tensor.name] = storage
        if not self.tensors.beside:
            self.scope[BEFORE] = self.written[0]
        if self.tensors.becomes_input:
            self.scope[INPUT] = self.written[0]
