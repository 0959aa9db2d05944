"""A model that is too large to hold, timed by its distinct blocks: each stands once, and counts as often as it runs."""

from __future__ import annotations

import math

import msgspec

from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture, Stage
from xfcost.spec.block_order import BlockOrder
from xfcost.torch_models.timing.room import Room
from xfcost.torch_models.timing.turns import Measured


def with_distinct_blocks(architecture: Architecture, ledger: Ledger) -> Architecture:
    """The architecture with every block once.

    Raises:
        UsageError: the mode runs more than one pass.
    """
    if ledger.training is not None or ledger.generation is not None:
        raise UsageError(f"--composed: of --mode {ledger.metadata.mode}; a forward or a decode step is composed")
    streams = tuple(
        msgspec.structs.replace(stream, stages=tuple(map(_once, stream.stages))) for stream in architecture.streams
    )
    return msgspec.structs.replace(architecture, streams=streams)


def _once(stage: Stage) -> Stage:
    blocks = tuple(msgspec.structs.replace(block, times=1) for block in stage.blocks)
    return msgspec.structs.replace(stage, blocks=blocks, order=BlockOrder(tuple(dict.fromkeys(stage.order))))


def composed(measured: Measured, ledger: Ledger) -> Measured:
    """What was measured of the distinct blocks -> what all blocks take.

    What stands between the rows grows as the rows do.
    """
    times = _times(ledger)
    rows = {path: tuple(spent * times.get(path, 1) for spent in each) for path, each in measured.rows.items()}
    once, whole = (math.fsum(math.fsum(each) for each in one.values()) for one in (measured.rows, rows))
    factor = whole / once if once else 1.0
    phases = {name: tuple(spent * factor for spent in spans) for name, spans in measured.phases.items()}
    return measured._replace(rows=rows, phases=phases)


def composed_room(room: Room, ledger: Ledger) -> Room:
    """The bytes of rows over all blocks; no peak, which was that of the distinct ones."""
    times = _times(ledger)
    row_bytes = {path: held * times.get(path, 1) for path, held in room.row_bytes.items()}
    return room._replace(row_bytes=row_bytes, predicted=None)


def _times(ledger: Ledger) -> dict[str, int]:
    return {row.path: row.times for row in ledger.rows}
