"""Saved activations and operands of every row, as the tape and as torch have them: for the program of a kind.

    python tools/tensors.py gpt2 [vit-b16 …] [--attention fused] [--dtype bfloat16] [--batch 2] [--all]
    python tools/tensors.py --kind window [--attention fused] …

Prints the rows that differ (`--all`: every row): bytes of the tape, then bytes of torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from xfcost.counting.forward import count
from xfcost.counting.saved_activations import saved_activations
from xfcost.formulas.component import tag_of
from xfcost.ledger.errors import XfcostError
from xfcost.spec.architecture import Architecture
from xfcost.spec.load import load, preset_names
from xfcost.spec.placement import place
from xfcost.spec.run import Run
from xfcost.torch_models.build import build
from xfcost.torch_models.memory.shortage import within_torch
from xfcost.torch_models.running.by_row import train, trained_rows
from xfcost.torch_models.shared.private_torch import no_compiler
from xfcost.torch_models.timing.rows import row_bytes


def architectures(options: argparse.Namespace) -> Iterator[Architecture]:
    """The presets that are named, or those with a component of the kind."""
    run = Run(mode="train", attention=options.attention, dtype=options.dtype, batch=options.batch)
    for name in options.presets or preset_names():
        try:
            architecture = place(load(name), run)
        except XfcostError as error:
            print(name, error)
            continue
        kinds = {tag_of(type(part.component)) for part, *_ in architecture.parts()}
        if options.kind is None or options.kind in kinds:
            yield architecture


def compare(architecture: Architecture, *, every: bool) -> None:
    """Print the rows of one preset."""
    ledger = count(architecture, orders=False)
    closed = saved_activations(ledger, architecture)
    if closed is None:
        print(f"{architecture.spec.name}: a reversible stage hands over states, which no tape follows")
        return
    with no_compiler(), within_torch(ledger):
        live = build(architecture)
        moved = row_bytes(live)
        live.model.train().requires_grad_()
        found = train(live.model, live.inputs)
        _, saved, _ = trained_rows(live.model, found, live.rows)
    total = sum(found.saved.values())
    wrong = 0
    for row in ledger.rows:
        figures = (closed.saved[row.path], saved.get(row.path, 0), closed.operands[row.path], moved.get(row.path, 0))
        marks = (" " if figures[0] == figures[1] else "S") + (" " if figures[2] == figures[3] else "O")
        wrong += marks != "  "
        if every or marks != "  ":
            saved_text, moved_text = (f"{one:>19,} {other:>19,}" for one, other in (figures[:2], figures[2:]))
            print(f"  {marks} {row.path:45} saved {saved_text}   operands {moved_text}")
    same = "=" if sum(closed.saved.values()) == total else "≠"
    print(f"{architecture.spec.name}: {sum(closed.saved.values()):,} {same} {total:,} saved, {wrong} rows differ")


def main() -> None:
    """Compare the presets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--kind")
    parser.add_argument("--attention", default="eager")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    for architecture in architectures(options):
        compare(architecture, every=options.all)


if __name__ == "__main__":
    main()
