"""Writes docs/decoding.csv: which models of transformers have a decode step, type by type.

Every type that writes text (causal models, images and text, speech) is built on `meta` in bfloat16, from its own
default config, with four layers where the config has such a field, or with the fields of tests/data/decoding.yaml. A
decode step is counted at N = 65 with a batch of 2.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import logging
import re
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import transformers
import yaml
from transformers.models.auto import modeling_auto

from xfcost.counting.devices import read_devices
from xfcost.parts.serving.bounds import step_bound
from xfcost.torch_models.any_model.decoding import in_mode
from xfcost.torch_models.any_model.inputs import Given, Lengths, usual_inputs
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.targets import ConfigOptions, configured

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "decoding.csv"
FIELDS = ROOT / "tests" / "data" / "decoding.yaml"
TOKENS, BATCH, LAYERS = 65, 2, 4
KINDS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "image-text": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    "speech": modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
}


def types() -> Iterator[tuple[str, str]]:
    """(kind, model type) of every class that the installed transformers lists."""
    for kind, names in KINDS.items():
        yield from ((kind, name) for name in names)


def config(kind: str, name: str) -> dict[str, Any]:
    """The fields of a type's config."""
    own = (yaml.safe_load(FIELDS.read_text(encoding="utf-8")) or {}).get(name, {})
    made = transformers.CONFIG_MAPPING[name]
    found: Any = None
    if not own:
        with suppress(Exception):  # a list of four layers' kinds may be missing
            found = made(num_hidden_layers=LAYERS)
    found = found or made(**own)
    if hasattr(found, "is_decoder") and not getattr(found, "is_encoder_decoder", False):
        found.is_decoder = True
    fields = json.loads(found.to_json_string(use_diff=False)) | {"model_type": name, "architectures": None}
    named = KINDS[kind][name]
    nested = kind == "causal" and not getattr(found, "is_encoder_decoder", False)
    return fields if nested else fields | {"architectures": [named if isinstance(named, str) else named[0]]}


def line(kind: str, name: str) -> dict[str, Any]:
    """The table's line of a type; why there is no decode step where there is none."""
    known: dict[str, Any] = dict.fromkeys(("params", "active", "macs", "cache", "per_token", "weights", "seconds"), "")
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps(config(kind, name)), encoding="utf-8")
            model = configured(str(path), "meta", ConfigOptions(dtype="bfloat16", has_head=True))

        def built(lengths: Lengths) -> tuple[Any, Given]:
            return model, usual_inputs(model, lengths, BATCH, "meta")

        step, given = in_mode(built, "decode")(Lengths(TOKENS))
        ledger = module_ledger(step, *given, mode="decode", trace=False)
    except Exception as error:  # noqa: BLE001 - whatever a type raises is its reason
        reason = re.sub(r"\S*/(site-packages/|config\.json: )", "", str(error).partition("\n")[0])
        return {"kind": kind, "type": name, "decode": "no"} | known | {"reason": reason[:160]}
    if ledger.cache is None or ledger.step is None:
        raise RuntimeError(f"{name}: a decode step without a cache")
    return {
        "kind": kind,
        "type": name,
        "decode": "yes",
        "params": ledger.total("params"),
        "active": ledger.total("active_params"),
        "macs": ledger.total("macs"),
        "cache": ledger.cache.bytes,
        "per_token": ledger.cache.bytes_per_token,
        "weights": round(ledger.step.weight_bytes),
        "seconds": f"{step_bound(ledger, read_devices('h100-sxm')).seconds:.3g}",
        "reason": "",
    }


def text(lines: Iterable[dict[str, Any]]) -> str:
    """The CSV."""
    out, rows = io.StringIO(), list(lines)
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def written() -> list[dict[str, str]]:
    """The lines of the file as it is."""
    with FILE.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def main() -> None:
    """Write the table, or the lines of the types that are named."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="only these; the others stay as they are")
    only = set(parser.parse_args().types)
    old = {(one["kind"], one["type"]): one for one in written()} if FILE.exists() else {}
    lines = []
    for kind, name in types():
        kept = old.get((kind, name)) if only and name not in only else None
        lines.append(kept or line(kind, name))
        print(kind, name, lines[-1]["decode"], lines[-1]["reason"], file=sys.stderr)
    FILE.write_text(text(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
