"""`xfcost show`."""

from __future__ import annotations

from typing import Annotated

from xfcost.commands import options as shared


def run(
    spec: Annotated[str, shared.spec_argument("A preset, the path of a YAML file, or a published model.")],
    file: Annotated[
        bool, shared.option("--file", None, "Print the file as written, and the files that it extends.")
    ] = False,
    full: Annotated[bool, shared.option("--full", None, "Write out every default.")] = False,
) -> None:
    """Print the YAML of a spec or the config.json of a model.

    The spec is printed as one file, with `extends` and `set` applied. `--file` prints the files that it comes from,
    with their comments. For a published model, the source of its config.json is printed to stderr.

    Example: xfcost show swin --full
    """
    from xfcost.ledger.errors import UsageError
    from xfcost.ledger.visible import visible
    from xfcost.report.messages import say
    from xfcost.spec.load import lineage
    from xfcost.spec.models import config_of, listed_name, models
    from xfcost.spec.show import expanded_yaml, full_yaml

    if file and full:
        raise UsageError("--file and --full: --file shows the file as it is written; give one of them")
    if (name := listed_name(spec)) is not None:
        if full:
            raise UsageError(f"--full: {name} is a config.json, which has the defaults of its class; leave it out")
        say(f"{name}: {models()[name].title}, the config.json of {models()[name].config}")
        shared.deliver(config_of(name).read_text(encoding="utf-8"), None, force=False)
        return
    if not file:
        shared.deliver(full_yaml(spec) if full else expanded_yaml(spec), None, force=False)
        return
    for number, written in enumerate(lineage(spec)):
        lead = f"\n# --- {visible(written.shown)}, which it extends ---\n" if number else ""
        shared.deliver(lead + written.text, None, force=False)
