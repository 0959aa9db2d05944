"""Presets and files, placed and counted."""

import csv
from pathlib import Path
from typing import Any

import msgspec

from xfcost.counting.forward import count
from xfcost.ledger.ledger import Ledger
from xfcost.spec.architecture import Architecture, BlockOrder, Stage
from xfcost.spec.load import load, preset_files
from xfcost.spec.placement import place
from xfcost.spec.run import Run


def architecture_of(name: str, *settings: str, **run: Any) -> Architecture:
    """The spec of this name with `--set` options, and the options of a run."""
    return place(load(name, settings), Run(**run))


def counted(name: str, *settings: str, **run: Any) -> Ledger:
    """Its counted account."""
    return count(architecture_of(name, *settings, **run))


# preset -> reference, out of all files data/exact*.csv.
EXACT: dict[str, dict[str, str]] = {}
for _file in sorted(Path(__file__).with_name("data").glob("exact*.csv")):
    with _file.open(encoding="utf-8") as _stream:
        EXACT |= {row["preset"]: row for row in csv.DictReader(_stream)}


def thinned(architecture: Architecture) -> Architecture:
    """Every block twice at most: a trace of all that a deep model repeats finds the same again, and takes minutes."""

    def thin(stage: Stage) -> Stage:
        every = tuple(stage.order)
        order = tuple(block for at, block in enumerate(every) if every[:at].count(block) < 2)
        blocks = [
            msgspec.structs.replace(block, times=order.count(number)) for number, block in enumerate(stage.blocks)
        ]
        return msgspec.structs.replace(stage, order=BlockOrder(order), blocks=tuple(blocks))

    streams = [
        msgspec.structs.replace(stream, stages=tuple(map(thin, stream.stages))) for stream in architecture.streams
    ]
    return msgspec.structs.replace(architecture, streams=tuple(streams))


# Of every family one is traced whole, as deep as it is.
WHOLE = {file.parent: name for name, file in reversed(preset_files().items())}.values()
