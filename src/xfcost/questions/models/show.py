"""`xfcost show`."""

from __future__ import annotations

from typing import Annotated, Any

from xfcost.commands import options as shared


@shared.options("fetch")
def run(
    spec: Annotated[
        str, shared.spec_argument("A preset, the path of a YAML file, a published model, or a model on the Hub.")
    ],
    file: Annotated[
        bool, shared.option("--file", None, "Print the file as written, and the files that it extends.")
    ] = False,
    full: Annotated[bool, shared.option("--full", None, "Write out every default.")] = False,
    **given: Any,
) -> None:
    """Print the YAML of a spec or the config.json of a model.

    The spec is printed as one file, with `extends` and `set` applied. `--file` prints the files that it comes from,
    with their comments. For a published model, the source of its config.json is printed to stderr.

    Example: xfcost show swin --full
    """
    from xfcost.importing.hub import config_file
    from xfcost.ledger.errors import UsageError
    from xfcost.ledger.visible import visible
    from xfcost.report.messages import say
    from xfcost.spec.hub import config_label, hub_name
    from xfcost.spec.load import lineage
    from xfcost.spec.models import config_of, listed_name, models
    from xfcost.spec.reader import read_file
    from xfcost.spec.show import expanded_yaml, full_yaml
    from xfcost.spec.targets import CONFIG

    if file and full:
        raise UsageError("--file and --full: --file shows the file as it is written; give one of them")
    name, model, config = listed_name(spec), hub_name(spec), None
    if full and (name or model):
        raise UsageError(f"--full: {spec} is a config.json, which has the defaults of its class; leave it out")
    if name is not None:
        config, source = config_of(name), f"{models()[name].title}, the config.json of {models()[name].config}"
    elif model is not None:
        config = config_file(model, fetch=given["fetch"], say=say)
        source = f"the config.json of {config_label(str(config))}"
    if config is not None:
        say(f"{name or spec}: {source}")
        shared.deliver(read_file(config, str(config), CONFIG), None, force=False)
        return
    if not file:
        shared.deliver(full_yaml(spec) if full else expanded_yaml(spec), None, force=False)
        return
    for number, written in enumerate(lineage(spec)):
        lead = f"\n# --- {visible(written.shown)}, which it extends ---\n" if number else ""
        shared.deliver(lead + written.text, None, force=False)
