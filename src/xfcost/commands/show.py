"""`xfcost show`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.commands import options as shared


def run(
    spec: Annotated[str, shared.spec_argument("A preset or a path to a YAML file.")],
    file: Annotated[bool, typer.Option("--file", help="The file as written, with those that it extends.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With every default written out.")] = False,
) -> None:
    """The YAML of a spec.

    One spec, in which `extends` and `set` are applied: a start for one of your own. `--file` prints the files that it
    comes from, with their comments.

    Example: xfcost show swin --full
    """
    from xfcost.ledger.errors import UsageError
    from xfcost.ledger.visible import visible
    from xfcost.spec.load import lineage
    from xfcost.spec.show import expanded_yaml, full_yaml

    if file and full:
        raise UsageError("--file and --full: a file is shown as it is written; give one of them")
    if not file:
        shared.deliver(full_yaml(spec) if full else expanded_yaml(spec), None, force=False)
        return
    for number, written in enumerate(lineage(spec)):
        lead = f"\n# --- {visible(written.shown)}, which it extends ---\n" if number else ""
        shared.deliver(lead + written.text, None, force=False)
