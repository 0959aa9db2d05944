"""Records what every command reports, so that a redesign can be compared with what was before.

`python tools/record_reports.py record before.json` runs commands on every preset, on configs of transformers and on the
tests' networks; on one preset of each family also the other formats, the probe, and its module without the spec. It
writes one JSON object: command -> exit code, stdout and stderr. `compare before.json after.json` lists each difference
by its place. Nothing is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_THIS: Final = Path(__file__).resolve().relative_to(ROOT)
_ON_EVERY_PRESET: Final = (
    "analyze {}",
    "analyze {} --attention fused --dtype bfloat16 --batch 2",
    "analyze {} --mode train --trace",
    "analyze {} --mode decode --trace",
    "analyze {} --mode prefill --no-trace",
    "analyze {} --no-trace --on a100-sxm-80 --mfu 40%",
    "roofline {} --on h100-sxm",
)
_ON_ONE_OF_A_FAMILY: Final = (
    "analyze {} --mode generate --new-tokens 3 --trace",
    "analyze {} --mode train --tokens 1B --on h100-sxmx8 --zero 3 --no-trace",
    "analyze {} --probe",
    "analyze {} --memory-level 192KiB --no-trace",
    "analyze {} --format table",
    "analyze {} --no-trace --format markdown",
    "analyze {} --no-trace --format latex",
    "analyze {} --no-trace --format csv",
    "compare {} vit",
    "compare {} vit --format table",
    "check {} --max-macs 1G",
    "diff vit {}",
    "reach {}",
    "stream {}",
    "diagram {}",
    "glance {}",
)
_ON_CONFIGS: Final = ("analyze {}", "analyze {} --mode decode", "import {}")
_WITHOUT_FORMATS: Final = ("schema", "import", "diagram", "roofline")
_ALONE: Final = ("list", "survey", "layers --N 784", "devices", "schema", "find vit --vary stages.0.dim=96:384:96")


def preset(name: str) -> Any:
    """The torch model of a preset, as a module that has no spec."""
    import xfcost

    return xfcost.build(name, device="meta").model


def network(name: str) -> Any:
    """One of the tests' small networks."""
    return _networks()[name].module()


def _given(tensors: Iterable[Any], keywords: Mapping[str, Any]) -> str:
    """Inputs, as the command line takes them."""
    shapes = (f"{'x'.join(map(str, one.shape)) or 'scalar'}:{str(one.dtype).partition('.')[2]}" for one in tensors)
    return " ".join(f"--input {shlex.quote(one)}" for one in (*shapes, *(f"{k}={v}" for k, v in keywords.items())))


def _networks() -> Any:
    sys.path.insert(0, str(ROOT / "tests"))
    from small_networks import NETWORKS

    return NETWORKS


def _commands(every: int) -> Iterator[str]:
    """The commands, without the program's name; of every `every`-th preset."""
    import torch

    import xfcost
    from xfcost.spec.load import preset_files

    yield from _ALONE
    families: set[str] = set()
    for number, (name, path) in enumerate(sorted(preset_files().items())):
        if number % every == 0:
            yield from (command.format(name) for command in _ON_EVERY_PRESET)
            if path.parent.name not in families:
                families.add(path.parent.name)
                yield from (command.format(name) for command in _ON_ONE_OF_A_FAMILY)
                inputs = _given(xfcost.build(name, device="meta").inputs, {})
                target = f"analyze {_THIS}:preset --build name={name} {inputs}"
                yield from (f"{target} --mixing", f"{target} --mode train --format table")
    for config in sorted((ROOT / "tests/data/configs").glob("*.json"))[::every]:
        yield from (command.format(config.relative_to(ROOT)) for command in _ON_CONFIGS)
    for name, one in sorted(_networks().items())[::every]:
        inputs = _given((torch.empty(shape, device="meta") for shape in one.shapes), one.keywords)
        target = f"analyze {_THIS}:network --build {shlex.quote(f'name={name}')} {inputs}"
        yield from (target, f"{target} --mixing", f"{target} --mode train")


def _reported(command: str) -> tuple[str, dict[str, Any]]:
    """What one command wrote, in this process: its JSON where it has one."""
    from xfcost import cli

    words = shlex.split(command)
    has_format = words[0] in _WITHOUT_FORMATS or "--format" in words
    sys.argv = ["xfcost", *words, *(() if has_format else ("--format", "json"))]
    out, err, code = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    out.flush()
    text = out.buffer.getvalue().decode()
    try:
        answer = json.loads(text)
    except ValueError:
        answer = text.splitlines()
    return command, {
        "exit": code,
        "stdout": answer,
        "stderr": _FREE_MEMORY.sub("leaves …", err.getvalue()).splitlines(),
    }


# The one figure of the machine that messages of commands hold which time nothing.
_FREE_MEMORY: Final = re.compile(r"leaves [\d,]+ bytes \([^)]*\)")


def record(path: Path, every: int, jobs: int) -> None:
    """Runs every command, `jobs` at a time, and writes `path` at the end."""
    os.environ.update(COLUMNS="100", NO_COLOR="1")
    commands = list(_commands(every))
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=200) as pool:
        reports = {}
        for number, (command, report) in enumerate(pool.imap_unordered(_reported, commands), 1):
            reports[command] = report
            print(f"\r{number} of {len(commands)}", end="", file=sys.stderr, flush=True)
    path.write_text(json.dumps(dict(sorted(reports.items())), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    print(f"\n{len(reports)} reports; exit codes {dict(Counter(one['exit'] for one in reports.values()))}")


def _differences(before: Any, after: Any, place: str) -> Iterator[str]:
    if type(before) is type(after) is dict:
        for key in {**before, **after}:
            yield from _differences(before.get(key, _MISSING), after.get(key, _MISSING), f"{place}.{key}")
    elif type(before) is type(after) is list and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{place}[{number}]")
    elif before != after:
        yield f"{place}: {str(before)[:_LONGEST]} -> {str(after)[:_LONGEST]}"


_MISSING: Final = "(missing)"
_LONGEST: Final = 200


def compare(before: Path, after: Path, most: int) -> int:
    """Prints the differences, at most `most` of a command; 1 where there are any."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    differ = 0
    for command in sorted({**old, **new}):
        found = list(_differences(old.get(command, _MISSING), new.get(command, _MISSING), ""))
        differ += bool(found)
        if found:
            print(f"{command}: {len(found)}", *(f"    {line}" for line in found[:most]), sep="\n")
    print(f"{differ} of {len({**old, **new})} reports differ")
    return int(differ > 0)


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    one = verbs.add_parser("record")
    one.add_argument("path", type=Path)
    one.add_argument("--every", type=int, default=1, help="take every n-th preset, config and network")
    one.add_argument("--jobs", type=int, default=os.cpu_count())
    two = verbs.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--most", type=int, default=8, help="differences listed of one command")
    given = parser.parse_args()
    if given.verb == "compare":
        return compare(given.before, given.after, given.most)
    record(given.path, given.every, given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
