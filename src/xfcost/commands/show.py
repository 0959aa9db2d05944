"""`xfcost show`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def run(
    spec: Annotated[str, typer.Argument(help="A preset or a path to a YAML file.")],
    full: Annotated[
        bool, typer.Option("--full", help="With `extends` followed and every default written out.")
    ] = False,
) -> None:
    """The YAML of a spec.

    As written, with what it extends; or with `--full` as one spec with every default: a start for one of your own.
    """
    from xfcost.spec.show import full_yaml, texts

    if full:
        sys.stdout.write(full_yaml(spec))
        return
    parts = list(texts(spec))
    for number, (name, text) in enumerate(parts):
        if number:
            sys.stdout.write(f"\n# --- {name}, which it extends ---\n")
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
