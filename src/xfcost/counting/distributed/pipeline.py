"""Which blocks and layers each pipeline stage holds: equal numbers of consecutive blocks (Huang et al. 2019)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from xfcost.spec.architecture import Architecture, Block, Part


class PipelineStage(NamedTuple):
    """Consecutive blocks, and layers before, between and behind them."""

    number: int
    """From 0."""
    blocks: tuple[tuple[Block, int], ...]
    """Each block, and how often this stage has it."""
    layers: tuple[Part, ...]
    """Embeddings, stage entries and exits, the head."""


def pipeline_stages(architecture: Architecture, pipeline: int) -> Iterator[PipelineStage]:
    """The stages in order; of stages that hold the same, only the first."""
    blocks, layers = _placed(architecture)
    length, seen = len(blocks) // pipeline, set()
    for number in range(pipeline):
        first, last = number * length, (number + 1) * length
        counts = Counter(id(block) for block in blocks[first:last])
        held = {id(block): block for block in blocks[first:last]}
        own = tuple(part for place, part in layers if place // max(length, 1) == number)
        key = (tuple(counts.items()), tuple(part.path for part in own))
        if key not in seen:
            seen.add(key)
            yield PipelineStage(number, tuple((held[one], times) for one, times in counts.items()), own)


def _placed(architecture: Architecture) -> tuple[list[Block], list[tuple[int, Part]]]:
    """All blocks in the order in which they run; the other layers, each with the number of the block next to it."""
    blocks: list[Block] = []
    layers: list[tuple[int, Part]] = []
    for stream in architecture.streams:
        layers += [(len(blocks), part) for part in stream.embed]
        for stage in stream.stages:
            layers += [(len(blocks), part) for part in stage.enter]
            blocks += [stage.blocks[number] for number in stage.order]
            if stage.exit:
                layers.append((len(blocks), stage.exit))
    if architecture.head:
        layers.append((len(blocks), architecture.head))
    last = max(len(blocks) - 1, 0)
    return blocks, [(min(number, last), part) for number, part in layers]
