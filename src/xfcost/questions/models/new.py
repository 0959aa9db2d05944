"""`xfcost new`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError, printable, shown

ENDINGS: Final = (".yaml", ".yml")


@shared.options("force")
def run(
    file: Annotated[Path | None, typer.Argument(help="The .yaml file to write (default: print it).")] = None,
    like: Annotated[
        str,
        shared.option("--like", "PRESET", "The preset to start from.", autocompletion=shared.presets_from),
    ] = "vit",
    **given: Any,
) -> None:
    """Write a commented spec to start from.

    The spec is a copy of a preset, under the name of the file; change what differs. Keys that the preset leaves at
    their defaults are in comments.

    Example: xfcost new mine.yaml --like gpt2
    """
    from xfcost.report.output import check_target
    from xfcost.spec.models import models
    from xfcost.spec.template import template

    if file is not None and file.suffix.lower() not in ENDINGS:
        raise UsageError(f"{shown(file, 200)}: a spec is YAML; expected a name that ends in {' or '.join(ENDINGS)}")
    check_target(file, force=given["force"], option="")
    if like in models():
        raise UsageError(
            f"--like {printable(like)}: expected a preset (`xfcost list`); `xfcost import` converts a config.json"
        )
    named = file or Path("mine.yaml")
    shared.deliver(template(like, printable(named.name, 200), named.stem), file, force=given["force"])
