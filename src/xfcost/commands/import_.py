"""`xfcost import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError, shown
from xfcost.report.messages import say

ENDINGS: Final = (".yaml", ".yml")


@shared.options("force")
def run(
    config: Annotated[Path, typer.Argument(help="A config.json of transformers, on this machine.")],
    architecture: Annotated[
        str | None,
        typer.Option(
            "--architecture",
            metavar="NAME",
            help="The class to count, in place of the config's own: BertForMaskedLM.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="FIELD", help="Leave a field that isn't known unread. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None, shared.output_option("Write the spec to a file (.yaml) in place of printing it.")
    ] = None,
    **given: Any,
) -> None:
    """A spec from a config.json of transformers.

    Nothing is fetched, and neither torch nor transformers is imported. What a spec can't carry is refused by the
    field's name. A missing field takes transformers' default; a message says so, and the spec's comments list it.

    Example: xfcost import config.json -o mine.yaml
    """
    from xfcost.importing import import_config
    from xfcost.report.output import check_target

    if output is not None and output.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"-o {shown(output, 200)}: a spec is YAML; expected a name that ends in {' or '.join(ENDINGS)}"
        )
    check_target(output, force=given["force"])
    spec = import_config(config, architecture, ignore or ())
    for remark in spec.remarks:
        say(remark)
    shared.deliver(spec.text, output, force=given["force"])
