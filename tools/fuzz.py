"""Fuzzing: mutated specs, configs, saved files, TOML and command lines through load, count and report.

    python tools/fuzz.py --items 100000 --processes 2
    python tools/fuzz.py --item spec:1234      # repeats one item, with its traceback

An item depends on its number alone, so that a finding can be repeated. A finding is an exception other than XfcostError
(or typer's errors for arguments), more than 5 s, or more than 500 MB of resident memory.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from xfcost.api.analysis import analyze
from xfcost.api.runs import make_run
from xfcost.counting.forward import count
from xfcost.counting.system import AccountOptions
from xfcost.importing import import_config
from xfcost.ledger.errors import XfcostError
from xfcost.ledger.measurements import Header, Machine
from xfcost.spec.load import load, preset_files
from xfcost.spec.placement import place
from xfcost.systems.spec import SpecSystem
from xfcost.views.analyze import document

ROOT: Final = Path(__file__).parents[1]
KINDS: Final = ("spec", "config", "saved", "runs", "toml", "arguments")
MAX_SECONDS: Final = 5.0
MAX_BYTES: Final = 500_000_000
# Fractions of items: mutated in numbers only, and with broken text.
NUMBERS_ONLY: Final = 0.5
BROKEN_TEXT: Final = 0.1
FORMS: Final = ("table", "json", "csv", "markdown", "latex")
UNUSUAL_VALUES: Final[tuple[Any, ...]] = (
    0, 1, 2, 3, 7, 64, 100_000, 2**16, 2**20, 2**31, 2**32, 2**63, 2**64, 10**40, -1, 0.5, -0.0, 1e-30, 1e30,
    float("nan"), float("inf"), True, False, None, "", "none", "x", "\x1b[2J", "\u202e", "=1+1", "é" * 300, [], {},
    [[]], [1, 2], {"kind": "full"}, {"kind": "mlp"}, "full", "vit", "./x.yaml", "..", "**", [None], {"": 1}, "$", "a|b",
    "1e5",
)  # fmt: skip


class Finding(NamedTuple):
    """A failure of an item."""

    item: str
    failure: str


class SlowError(BaseException):
    """An item takes too long. `except Exception` does not catch it."""


@cache
def specs() -> list[dict[str, Any]]:
    """The presets' YAML."""
    return [yaml.safe_load(file.read_text("utf-8")) for file in preset_files().values()]


@cache
def configs() -> list[dict[str, Any]]:
    """The configs of transformers in the tests' data."""
    return [json.loads(file.read_text("utf-8")) for file in sorted((ROOT / "tests/data/configs").glob("*.json"))]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in `value`."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _mutate(data: dict[str, Any], others: list[dict[str, Any]], rng: random.Random) -> None:
    """One random change of `data`, in place."""
    places = list(_places(data))
    if not places:
        return
    container, key = rng.choice(places)
    other, name = rng.choice(list(_places(rng.choice(others))))
    mutation = rng.randrange(7)
    mutations: dict[int, Callable[[], None]] = {
        0: lambda: container.pop(key) and None,
        1: lambda: _put(container, rng.choice(_KEYS), rng.choice(UNUSUAL_VALUES)),
        2: lambda: _repeat(container, key, rng.choice((1, 2, 40))),
        3: lambda: _put(container, str(name), copy.deepcopy(other[name])),
        4: lambda: container.__setitem__(key, copy.deepcopy(other[name])),
    }
    mutations.get(mutation, lambda: container.__setitem__(key, copy.deepcopy(rng.choice(UNUSUAL_VALUES))))()


_KEYS: Final = ("set", "extends", "foo", "kind", "size", "\x1b", "N", "heads", "depth")


def _put(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value


def _repeat(container: Any, key: Any, times: int) -> None:
    if isinstance(container, list):
        container[key:key] = [container[key]] * times


def _change_number(data: dict[str, Any], rng: random.Random) -> None:
    """Replace one number of `data` by a plausible one, so that not all items are refused."""
    numbers = [(owner, key) for owner, key in _places(data) if type(owner[key]) is int and owner[key] > 0]
    if numbers:
        container, key = rng.choice(numbers)
        number = container[key]
        container[key] = rng.choice((1, 2, 3, 2 * number, 4 * number, max(number // 2, 1), number + 1, 1000 * number))


def _mutated(others: list[dict[str, Any]], rng: random.Random) -> dict[str, Any]:
    data = copy.deepcopy(rng.choice(others))
    if rng.random() < NUMBERS_ONLY:
        for _ in range(rng.randrange(4)):
            _change_number(data, rng)
        return data
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _mutate(data, others, rng)
    return data


def _options(rng: random.Random) -> dict[str, Any]:
    """Random run options."""
    mode = rng.choice(("forward", "forward", "forward", "prefill", "decode", "generate", "train"))
    size = rng.choice(({}, {}, {"N": rng.choice((1, 7, 49, 64, 196, 784, 4096, 2**20, 2**32))}, {"size": 224}))
    new = {"new_tokens": rng.choice((1, 17, 1000, 2**31))} if mode == "generate" else {}
    level = rng.choice(({}, {}, {}, {"memory_level": "192KiB"}))
    execution = {"mode": mode, "attention": rng.choice(("eager", "fused")), "batch": rng.choice((1, 3, 2**24))}
    return execution | size | new | level


def try_spec(rng: random.Random, folder: Path) -> None:
    """A mutated preset, counted with random options and printed in a random format."""
    file = folder / "fuzz.yaml"
    text = yaml.safe_dump(_mutated(specs(), rng), sort_keys=False, allow_unicode=rng.choice((True, False)))
    if rng.random() < BROKEN_TEXT:
        position = rng.randrange(len(text))
        text = (
            text[:position]
            + rng.choice(("\t", "{", "]", "&a ", "*a", "!x ", "\x00", "\x1b", ": ", "- ", '"'))
            + text[position:]
        )
    file.write_text(text, "utf-8")
    run = make_run(**_options(rng))
    loaded = load(str(file))
    ledger = SpecSystem(loaded).account(run, AccountOptions())
    document(ledger, rng.choice((None, None, "operation", "block", "stage", "mixing"))).text(rng.choice(FORMS))  # type: ignore[arg-type]


def try_config(rng: random.Random, folder: Path) -> None:
    """A mutated config, imported; its spec must load."""
    file = folder / "config.json"
    file.write_text(json.dumps(_mutated(configs(), rng)), "utf-8")
    spec = import_config(file)
    made = folder / "made.yaml"
    made.write_text(spec.text, "utf-8")
    document(count(place(load(str(made)), make_run()))).text(rng.choice(FORMS))  # type: ignore[arg-type]


_VALUES: Final = (
    "1", "0", "-1", "784", "196", "49:196", "224", "224x320", "1e5", "x", "", "nan", "inf", "9" * 5000, "4294967297",
    "٣", "²", "1_000", " 7 ", "1,2", "1,2,3", "cpu", "json", "csv", "table", "latex", "markdown", "decode", "train",
    "generate", "stages.0.depth=3", "**.heads=2", "stages.each.depth=[2]", "a=b", "=", "set.x=1", "extends=vit",
    "x" * 3000, "\x1b[2J", "192KiB", "1e400", "adamw", "300B", "312T", "operation", "mixing", "stage", "/dev/null",
    "fused", "float16", "./none.yaml", "\udcff",
)  # fmt: skip
_FLAGS: Final = (
    "--N", "--size", "--batch", "--dtype", "--attention", "--mode", "--new-tokens", "--set", "--by", "--format",
    "--memory-level", "--optimizer", "--tokens", "--rate", "--devices", "--metric", "--mark", "--full", "--totals",
    "--foo",
    "--help", "--architecture", "--ignore",
)  # fmt: skip


@cache
def reports() -> list[dict[str, Any]]:
    """Reports as `analyze -o report.json` saves them."""
    runs: tuple[dict[str, Any], ...] = ({}, {"mode": "train"}, {"mode": "decode"}, {"on": "h100-sxmx8"})
    texts = [analyze("gpt2", trace=False, N=64, **options).to_json() for options in runs]
    return [json.loads(text) for text in texts]


_MACHINE: Final[dict[str, Any]] = {"host": "a", "processor": "P", "cores": 4}
_VERSIONS: Final = {"xfcost": "0.1.0", "torch": "2.7.0", "python": "3.11.0"}


@cache
def measurements() -> list[dict[str, Any]]:
    """Rows as `measure --save` writes them."""
    rows = []
    for name, n, seconds in product(("common-full", "common-performer"), (64, 128, 256), (0.5, 0.7)):
        configuration = {"system": name, "target": name, "spec_hash": "a" * 16, "N": n, "device": "cpu", "threads": 4}
        timing = {"device": "cpu", "machine": "P", "seconds": seconds * n, "spread": 0.1, "runs": 9, "threads": 4}
        timing |= {"interval": [0.9 * seconds * n, 1.1 * seconds * n], "precision": 0.1}
        outcome = {"status": "measured", "timing": timing, "memory": {"predicted": 60, "measured": 64 * n}}
        counted = {"params": 10, "macs": n * n, "flops": 2 * n * n, "attention_entries": 4, "attention_bytes": 16}
        rows.append(
            {"configuration": configuration, "outcome": outcome, "counted": counted | {"by_mixing": {}},
             "machine": _MACHINE, "device_name": "P", "versions": _VERSIONS, "process_seconds": 1.0,
             "ended": "2025-01-31T12:00:01Z"}
        )  # fmt: skip
    return rows


def _broken(text: str, rng: random.Random) -> bytes:
    """The text, of some with something put into it, cut or with a byte changed."""
    place, content = rng.randrange(len(text)), text.encode()
    before, after = content[:place], content[place + 1 :]
    put = rng.choice(("{", "]", "\\ud800", '"', "\x00", "9" * 4400, "1e308", "[" * 3000)).encode()
    changed = (before + put + after, before, before + bytes([rng.randrange(256)]) + after)
    return rng.choice(changed) if rng.random() < 2 * BROKEN_TEXT else content


def try_saved(rng: random.Random, folder: Path) -> None:
    """A mutated report, compared with another and checked against it."""
    file, other = folder / "a.json", folder / "b.json"
    changed = _mutated(reports(), rng)
    file.write_bytes(_broken(json.dumps(changed), rng))
    alike = next((one for one in reports() if one.get("mode") == changed.get("mode")), reports()[0])
    other.write_text(json.dumps(alike), "utf-8")
    pair = rng.sample((str(file), str(other)), 2)
    if rng.random() < NUMBERS_ONLY:
        _invoked(["diff", *pair, "--format", rng.choice(FORMS)])
    else:
        words = ["check", "gpt2", "--N", "64", "--against", str(file), "--max-increase", "5%"]
        mode = changed.get("mode")
        words += ["--mode", mode] if mode in ("train", "decode") else []
        _invoked([*words, "--format", rng.choice(("table", "json"))])


def try_runs(rng: random.Random, folder: Path) -> None:
    """Mutated rows of measurements, compared, drawn and held against others."""
    file, other = folder / "a.jsonl", folder / "b.jsonl"
    header = Header(machine=Machine(**_MACHINE), versions=_VERSIONS, started="2025-01-31T12:00:00Z")
    whole = [json.dumps(one) for one in (msgspec.to_builtins(header), *measurements())]
    rows = [json.dumps(_mutated(measurements(), rng)) for _ in range(rng.choice((1, 2, 4)))]
    before = "".join(f"{one}\n" for one in (whole[0], *rng.sample(whole[1:], rng.randrange(6))))
    file.write_bytes(before.encode() + _broken("".join(f"{one}\n" for one in rows), rng))
    other.write_text("\n".join(whole) + "\n", "utf-8")
    words = rng.choice(
        (["compare", "--from"], ["plot", "--from"], ["roofline", "--from"], ["survey", "--from"], ["diff", str(other)])
    )
    options = {"compare": ["--format", rng.choice(FORMS)], "diff": ["--format", rng.choice(FORMS)]}
    metric = rng.choice(("time", "mixing-time", "memory", "activations"))
    options["plot"] = ["-o", str(folder / rng.choice(("x.csv", "x.svg"))), "--force", "--metric", metric]
    options["roofline"] = ["--on", "h100-sxm", "--format", "json"]
    _invoked([*words, str(file), *options.get(words[0], [])])


_TABLES: Final = (
    {"max-macs": "5G", "batch": 1, "target": "vit"}, {"target": "gpt2", "mode": "decode", "max-kv-cache": "1GiB"},
    {"target": "swin", "max-params": 3e7, "set": ["stages.0.depth=1"], "dtype": "float16", "N": 784},
)  # fmt: skip


def try_toml(rng: random.Random, folder: Path) -> None:
    """A mutated [tool.xfcost] of a pyproject.toml, checked."""
    tables = [{"tool": {"xfcost": {"max-macs": "9G", "check": list(_TABLES)}}}]
    file = folder / "pyproject.toml"
    file.write_bytes(_broken(f"tool = {_toml(_mutated(tables, rng).get('tool', 1))}\n", rng))
    _invoked(["check", "--config", str(file)])


def _toml(value: Any) -> str:
    """As TOML writes it; what it can't write is written as Python does, which is no TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str | bool) else str(value)


def try_arguments(rng: random.Random, folder: Path) -> None:
    """A random command line without tracing, running a model or drawing, which are slow."""
    names = ["vit", "swin-t", "gpt2", "t5-small", "mamba2-130m", "mistral-7b", "common-*", "nothing", "../x"]
    names.append(str(folder))
    command = rng.choice(
        (
            "analyze",
            "analyze",
            "compare",
            "glance",
            "diagram",
            "show",
            "import",
            "list",
            "schema",
            "find",
            "survey",
            "layers",
            "devices",
        )
    )
    words = [command, *rng.choices(names, k=rng.choice((1, 1, 2, 3)))]
    for _ in range(rng.randrange(5)):
        words += [rng.choice(_FLAGS), rng.choice(_VALUES)][: rng.choice((1, 2, 2, 2, 2))]
    if command == "analyze":
        words.append("--no-trace")
    _invoked(words)


def _invoked(words: list[str]) -> None:
    """A command line in this process; what typer refuses, and exit codes, are answers."""
    from xfcost.cli import app

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            app(words, standalone_mode=False)
        except SystemExit:
            pass
        except Exception as error:
            if not type(error).__module__.startswith(("typer", "click")):  # its own usage errors
                raise


TESTS: Final[dict[str, Callable[[random.Random, Path], None]]] = {
    "spec": try_spec,
    "config": try_config,
    "saved": try_saved,
    "runs": try_runs,
    "toml": try_toml,
    "arguments": try_arguments,
}


def _too_slow(*_: object) -> None:
    raise SlowError


def tried(item: str, folder: Path) -> Finding | None:
    """The failure of `item` (`spec:17`), or None."""
    kind = item.partition(":")[0]
    rng = random.Random(item)  # noqa: S311 - reproducible on purpose
    handler = signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, 4 * MAX_SECONDS)
    start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        TESTS[kind](rng, folder)
    except XfcostError:
        pass
    except SlowError:
        return Finding(item, f"took more than {4 * MAX_SECONDS} s")
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Finding(item, f"{type(error).__name__}: {str(error)[:120]} ({Path(where.filename).name}:{where.lineno})")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
    seconds, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if seconds > MAX_SECONDS:
        return Finding(item, f"took {seconds:.1f} s")
    if after * 1024 > MAX_BYTES and after > before:
        return Finding(item, f"took {after // 1024:,} MiB")
    return None


def _chunk(items: list[str]) -> tuple[int, list[Finding]]:
    with tempfile.TemporaryDirectory() as name:
        findings = [finding for item in items if (finding := tried(item, Path(name)))]
    return len(items), findings


def main() -> None:
    """Run items of every kind, or repeat one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=3000, help="of all kinds together")
    parser.add_argument("--start", type=int, default=0, help="number of the first of each kind")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--item", help="one item, as a finding names it")
    options = parser.parse_args()
    if options.item:
        kind = options.item.partition(":")[0]
        with tempfile.TemporaryDirectory() as name:
            TESTS[kind](random.Random(options.item), Path(name))  # noqa: S311
        return
    per_kind = options.items // len(options.kinds)
    items = [f"{kind}:{options.start + number}" for number in range(per_kind) for kind in options.kinds]
    chunks = [items[start : start + 200] for start in range(0, len(items), 200)]
    done, all_findings = 0, []
    with Pool(options.processes, maxtasksperchild=10) as pool:
        for number, findings in pool.imap_unordered(_chunk, chunks):
            done += number
            all_findings += findings
            sys.stderr.write(f"\r{done:,} items")
            for finding in findings:
                sys.stdout.write(f"{finding.item}: {finding.failure}\n")
                sys.stdout.flush()
    kinds = Counter(finding.failure for finding in all_findings)
    sys.stdout.write(f"{done:,} items, {len(all_findings)} findings of {len(kinds)} kinds\n")
    sys.exit(bool(all_findings))


if __name__ == "__main__":
    main()
