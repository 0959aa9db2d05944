"""Ledger -> the lines below the tables: attention memory, comparisons, data movement, traffic, masks, matmuls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from xfcost.ledger import units
from xfcost.ledger.ledger import Ledger
from xfcost.ledger.matrix_multiplies import matrix_multiplies

# Kinds of blocks that are listed; more of them would fill the screen.
_MOST_BLOCKS: Final = 3


def memory_text(ledger: Ledger) -> Text:
    """Bytes of attention matrices: of a head, saved for training per layer and in all layers, at the peak."""
    memory, metadata = ledger.attention_memory(), ledger.metadata
    if not memory["peak"]:
        return Text("attention matrices: none", style="bold")
    parts = [f"{units.size(memory['per_head'])} per head"]
    if ledger.step is None:  # a decode step is never trained
        parts += [f"{units.size(memory['per_layer'])} per layer (the largest)", _all_layers(ledger)]
    parts.append(f"{units.size(memory['peak'])} peak (alive at once in inference)")
    text = Text.assemble((f"{_held(ledger)}, batch {metadata.batch}: ", "bold"), ", ".join(parts))
    if metadata.extra_tokens:
        several = "s" if metadata.extra_tokens > 1 else ""
        text.append(f"; with {metadata.extra_tokens} special token{several}")
    return text


def _held(ledger: Ledger) -> str:
    """What is held: matrices, or a number per query where a fused kernel runs, or both where only some are fused."""
    matrices = [row.matrix for row in ledger.rows if row.matrix is not None]
    dtype, statistics_dtype = ledger.metadata.dtype, "float64" if ledger.metadata.dtype == "float64" else "float32"
    if not any(matrix.statistics for matrix in matrices):
        return f"attention matrices, {dtype}"
    if any(matrix.entries for matrix in matrices):
        return f"attention matrices, {dtype}, and {statistics_dtype} statistics where fused"
    return f"attention statistics (fused: no matrix is kept), {statistics_dtype}"


def _all_layers(ledger: Ledger) -> str:
    """`… in all layers (saved for training)`; `64 MiB at a time` where a reversible residual saves less."""
    every, saved = ledger.attention_memory()["all_layers"], ledger.attention_kept_bytes()
    how = "saved for training" if saved == every else f"{units.size(saved)} at a time in training"
    return f"{units.size(every)} in all layers ({how})"


def traffic_texts(ledger: Ledger, *, verbose: bool) -> Iterator[Text]:
    """Comparisons; with `verbose` bytes that are only moved; main-memory traffic, where a memory level is given."""
    if comparisons := ledger.total("comparisons"):
        what = "sorting, choosing; neither MACs nor FLOPs"
        yield Text.assemble(("comparisons: ", "bold"), f"{units.exact(comparisons)} ({what})")
    if verbose and (moved := ledger.total("moved")):
        by = "gathers, scatters, rolls, pads, concatenations, look-ups"
        yield Text.assemble(("data moved: ", "bold"), f"{units.size(moved * ledger.bytes_per_element)} written by {by}")
    if ledger.metadata.memory_level is not None:
        level = units.size(ledger.metadata.memory_level)
        plain, tiled = (units.size(ledger.total(f"{how}_traffic_bytes")) for how in ("plain", "tiled"))
        yield Text.assemble(
            ("main-memory traffic of attention: ", "bold"),
            f"{plain} with every matrix kept, {tiled} tiled for {level} on chip "
            "(FlashAttention, Dao et al. 2022, algorithms 0 and 1)",
        )


def mask_texts(ledger: Ledger) -> Iterator[Text]:
    """The share of the computed scores that masks keep; nothing where they keep all."""
    scores = ledger.scores()
    if scores.kept < scores.computed:
        masks = "the causal mask keeps" if scores.causal else "masks keep"
        yield Text.assemble(
            ("masks: ", "bold"),
            f"{masks} {units.percent(scores.kept, scores.computed)} of scores ({units.count(scores.kept)} of "
            f"{units.count(scores.computed)}); MACs count the dense matmul",
        )


def matrix_multiply_texts(ledger: Ledger) -> Iterator[Text]:
    """One line per kind of block: its matrix multiplies in the order they run, sub-layer by sub-layer."""
    blocks = list(matrix_multiplies(ledger))
    if len(blocks) > _MOST_BLOCKS:
        return
    for block in blocks:
        total = f"{block.number} = " if len(block.sublayers) > 1 else ""
        name = f" ({block.block})" if len(blocks) > 1 else ""
        parts = " + ".join(f"{one.number} ({' · '.join(one.titles)})" for one in block.sublayers)
        yield Text.assemble(("matrix multiplies", "bold"), f" of a block{name}: {total}{parts}")
