"""`xfcost show`."""

from __future__ import annotations

from typing import Annotated

import typer

from xfcost.commands.options import deliver, spec_argument


def run(
    spec: Annotated[str, spec_argument("A preset or a path to a YAML file.")],
    full: Annotated[
        bool, typer.Option("--full", help="With `extends` followed and every default written out.")
    ] = False,
) -> None:
    """The YAML of a spec.

    As written, with what it extends; or with `--full` as one spec with every default: a start for one of your own.
    """
    from xfcost.ledger.visible import visible
    from xfcost.spec.show import full_yaml, texts

    if full:
        deliver(full_yaml(spec), None, force=False)
        return
    parts = list(texts(spec))
    for number, (name, text) in enumerate(parts):
        lead = f"\n# --- {visible(name)}, which it extends ---\n" if number else ""
        deliver(lead + text, None, force=False)
