"""`xfcost import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from xfcost.commands import options as shared
from xfcost.ledger.errors import UsageError, shown
from xfcost.report.messages import say

ENDINGS: Final = (".yaml", ".yml")


@shared.options("fetch", "force")
def run(
    config: Annotated[Path, typer.Argument(help="Path of a config.json of transformers, or a model on the Hub.")],
    architecture: Annotated[
        str | None,
        shared.option("--architecture", "NAME", "Class to count instead of the config's own: BertForMaskedLM."),
    ] = None,
    ignore: Annotated[
        list[str] | None, shared.option("--ignore", "FIELD", "Ignore an unknown field of the config. Repeatable.")
    ] = None,
    output: Annotated[
        Path | None, shared.output_option("Write the spec to this .yaml file instead of printing it.")
    ] = None,
    **given: Any,
) -> None:
    """Convert a config.json of transformers to a spec.

    Neither torch nor transformers is imported. A field that a spec cannot express is an error. A missing field gets the
    default of transformers; a message and the comments of the spec list these fields.

    Example: xfcost import config.json -o mine.yaml
    """
    from xfcost.importing import import_config
    from xfcost.importing.hub import config_file
    from xfcost.report.output import check_target
    from xfcost.spec.hub import hub_name

    if output is not None and output.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"-o {shown(output, 200)}: a spec is YAML; expected a name that ends in {' or '.join(ENDINGS)}"
        )
    check_target(output, force=given["force"])
    if (model := hub_name(str(config))) is not None:
        config = config_file(model, fetch=given["fetch"], say=say)
    spec = import_config(config, architecture, ignore or ())
    for remark in spec.remarks:
        say(remark)
    shared.deliver(spec.text, output, force=given["force"])
