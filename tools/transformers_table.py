"""Writes docs/transformers.csv: models of transformers beside torch's own counter.

Every configuration of tests/data/transformers.yaml is built and analysed as `xfcost analyze config.json` does where no
importer knows it. `FlopCounterMode` runs the same model on the same inputs: on `meta`, and where that raises with real
tensors on the CPU, attention and experts as plain products.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from xfcost.ledger.errors import UsageError
from xfcost.ledger.ledger import Ledger
from xfcost.torch_models.any_model.inputs import Given, Lengths, images_of, usual_inputs
from xfcost.torch_models.any_model.ledger import module_ledger
from xfcost.torch_models.any_model.targets import configured

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "tests" / "data" / "transformers.yaml"
FILE = ROOT / "docs" / "transformers.csv"
TOKENS = 16


@cache
def configurations() -> dict[str, tuple[str, dict[str, Any]]]:
    """Class -> the kind of model, and the fields of its config."""
    kinds = msgspec.yaml.decode(CONFIGS.read_bytes())
    return {name: (kind, fields) for kind, models in kinds.items() for name, fields in models.items()}


@contextmanager
def config(name: str) -> Iterator[str]:
    """The path of the class's config.json."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps({**configurations()[name][1], "architectures": [name]}), encoding="utf-8")
        yield str(path)


def line(name: str) -> dict[str, Any]:
    """The table's line of one class."""
    kind, fields = configurations()[name]
    with config(name) as path:
        ledger, torch_macs = _analysed(path, name), _torch_macs(path)
    if ledger.module is None:
        raise RuntimeError(f"{name}: not a ledger of a module")
    return {
        "kind": kind,
        "class": name,
        "model_type": fields["model_type"],
        **{quantity: ledger.total(quantity) for quantity in ("params", "macs", "flops")},
        "uncounted": sum(ledger.module.uncounted.values()),
        "attention": ledger.metadata.attention,
        "tensors": ledger.module.tensors,
        "trace": ledger.module.traced.partition(";")[0].partition(":")[0],
        **torch_macs,
    }


def made(path: str, device: str) -> tuple[Any, Given]:
    """The model of a config, and its usual inputs, of 16 tokens behind the image where they have tokens."""
    torch.manual_seed(0)
    model = configured(path, device)
    of_sound = getattr(model, "main_input_name", "") == "input_values"
    tokens = TOKENS + images_of(model, 1, device, None)[1]
    return model, usual_inputs(model, Lengths(None if of_sound else tokens), 1, device)


def _analysed(path: str, name: str) -> Ledger:
    try:
        model, given = made(path, "meta")
        return module_ledger(model, given.args, given.kwargs, name=name)
    except UsageError:
        model, given = made(path, "cpu")
        return module_ledger(model, given.args, given.kwargs, name=name)


def _torch_macs(path: str) -> dict[str, int | str]:
    """Half of what torch's counter counts on `meta`; where that raises, why, and its count of plain products."""
    try:
        return {"torch_macs": _counted(*made(path, "meta")), "torch_raises": "", "plain_macs": ""}
    except Exception as error:  # noqa: BLE001 - whatever it raises is told
        raised = str(error).partition("\n")[0][:90] or type(error).__name__
    model, given = made(path, "cpu")
    model.config._experts_implementation = "eager"  # noqa: SLF001 - transformers' name for it
    with sdpa_kernel(SDPBackend.MATH):
        return {"torch_macs": "", "torch_raises": raised, "plain_macs": _counted(model, given)}


def _counted(model: Any, given: Given) -> int:
    model.requires_grad_(requires_grad=False)  # its own hooks refuse modules inside modules that learn
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*given.args, **given.kwargs)
    return counter.get_total_flops() // 2


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


def shown() -> Iterator[dict[str, str]]:
    """The lines as the docs show them."""
    for one in written():
        macs = {name: f"{int(one[name]):,}" if one[name] else "–" for name in ("macs", "torch_macs", "plain_macs")}
        yield {
            "model": f"`{one['class']}`",
            "kind": one["kind"],
            "parameters": f"{int(one['params']):,}",
            "MACs": macs["macs"],
            "torch on `meta`": macs["torch_macs"],
            "torch, plain products": macs["plain_macs"],
            "runs on": one["tensors"],
            "why torch needs the CPU": textwrap.shorten(one["torch_raises"].replace("|", "/"), 56, placeholder=" …"),
        }


def main() -> int:
    """Write the file."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    FILE.write_text(text(line(name) for name in configurations()), encoding="utf-8", newline="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
