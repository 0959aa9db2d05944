"""Writes the published runs that reports compare a run with, and says how far such comparisons hold.

    python tools/evidence.py        the table of docs/serving.md
    python tools/evidence.py write  src/xfcost/parts/{serving,training}/published_runs.csv

What is published stands in tests/data/serving.csv and tests/data/training-runs/; here each measured run gets the share
of the bound that it reaches. The bound is that of a report: a prefill and its steps one after the other, whereas
docs/serving.md, which looks for figures that are impossible, allows a prefill to use the weights that steps read.
"""

from __future__ import annotations

import csv
import io
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import serving
import training_runs

import xfcost
from xfcost.counting.devices import device
from xfcost.parts.serving import evidence as of_serving
from xfcost.parts.serving.evidence import Collection, Feature, PublishedRun
from xfcost.parts.training import evidence as of_training

_PARTS = Path(of_serving.__file__).parents[1]
FILES = {"serving": _PARTS / "serving" / "published_runs.csv", "training": _PARTS / "training" / "published_runs.csv"}
_SIXTEEN = 16
_TERA = 1e12
# Beginning of an id -> the inference engine or the training framework; where that isn't stated, who published it.
_ENGINES = {
    "gptfast": "gpt-fast",
    "trtllm": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
    "mosaic": "MosaicML",
    "llamacpp": "llama.cpp",
    "foundry": "llm-foundry",
    "megatron21": "Megatron-LM",
    "korthikanti22": "Megatron-LM",
    "mtnlg": "Megatron-LM",
    "palm-t3-mtnlg": "Megatron-LM",
    "opt": "metaseq",
    "nemotron4": "NVIDIA",
    "tinyllama": "TinyLlama",
}
# Devices as the collection of training runs calls them; others are no GPUs, or of a peak that differs.
_DEVICES = {"A100-80GB": "a100-sxm-80", "A100-40GB": "a100-sxm-40", "H100-80GB": "h100-sxm"}


def serving_runs() -> Iterator[PublishedRun]:
    """Measured runs of inference whose batch is published: without it a bound has FLOPs alone."""
    for one in serving.served():
        line = one.line
        if line["what"] == "measured" and not line["compute_only"]:
            yield PublishedRun(
                id=line["id"], phase=line["mode"], engine=_engine(line["id"]), model=line["model"],
                device=line["device"], devices=int(line["devices"]), generation=device(line["device"]).generation or "",
                bits=int(line["bits"]), batch=int(line["batch"]), tokens=int(line["N"]),
                new_tokens=int(line["new_tokens"] or 0), share=_rounded(_least(one) / _measured(one)),
                pass_seconds=_rounded(_least(one) / int(line["new_tokens"] or 1)),
                source=line["source"],
            )  # fmt: skip


def _measured(one: serving.Served) -> float:
    """Seconds of the run."""
    return one.value if one.line["unit"] == "ms" else one.on.outputs / one.value


def _least(one: serving.Served) -> float:
    """The bound of a report, with bytes and peak of the published bits."""
    peak, share = one.on.on.peak(one.line["peak"]), int(one.line["bits"]) / _SIXTEEN
    return sum(max(part.flops / peak, share * part.bytes / part.bandwidth) for part in one.on.parts)


def training_runs_measured() -> Iterator[PublishedRun]:
    """Measured speeds of training on GPUs; not hours of whole runs, which have restarts and evaluation in them."""
    for row in (*training_runs.rows("runs.csv"), *training_runs.rows("throughput.csv")):
        line, speed = row.published, _speed(row)
        if line["kind"] == "prediction" or line["device"] not in _DEVICES or not speed:
            continue
        gpu, peak = device(_DEVICES[line["device"]]), (row.number("peak") or 0) * _TERA
        yield PublishedRun(
            id=line["id"], phase="train", engine=_engine(line["id"]), model=line["model"], device=gpu.name,
            devices=int(line["devices"]), generation=gpu.generation or "",
            bits=16 if peak < 1.5 * gpu.peak("bfloat16") else 8,  # of FP8 twice the peak is stated
            tokens=int(line["N"]), recomputation=line["recompute"], params=row.counts.params,
            share=_rounded(_least_per_token(line["preset"], line["set"], line["N"]) * speed / peak),
            source=line["source"],
        )  # fmt: skip


def _speed(row: training_runs.Row) -> float:
    """Tokens per second of a device: as published, or by the FLOP/s that count full recomputation; 0: neither."""
    if row.published["speed"] in ("device-hours", "days x devices"):
        return 0.0
    if (speed := row.number("tokens_per_second")) is not None:
        return speed
    hfu, peak = row.number("hfu"), row.number("peak")
    return 0.0 if hfu is None or peak is None else hfu / 100 * peak * _TERA / row.counts.exact / (1 + row.counts.again)


@cache
def _least_per_token(preset: str, settings: str, length: str) -> float:
    """FLOPs of training that no implementation avoids: of attention with a mask only pairs that it keeps."""
    options: dict[str, Any] = {"mode": "train", "on": "h100-sxm", "dtype": "bfloat16", "trace": False}
    overrides = [text for text in settings.split("; ") if text]
    ledger = xfcost.analyze(preset, settings=overrides, N=length, **options)
    plan = ledger.training and ledger.training.plan
    if plan is None:
        raise TypeError(f"{preset}: training on a device has a plan")
    return plan.least_step_flops / plan.step_tokens


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _engine(name: str) -> str:
    return next(engine for begin, engine in _ENGINES.items() if name.startswith(begin))


def text(runs: Sequence[PublishedRun]) -> str:
    """The runs as CSV; a column that has its default in all of them is left out."""
    fields = msgspec.structs.fields(PublishedRun)
    names = [one.name for one in fields if any(getattr(run, one.name) != one.default for run in runs)]
    stream = io.StringIO()
    lines = csv.DictWriter(stream, sorted(names, key=lambda name: name != "id"), lineterminator="\n")
    lines.writeheader()
    for run in runs:
        cells = {name: getattr(run, name) for name in names}
        lines.writerow({name: f"{cell:g}" if isinstance(cell, float) else cell for name, cell in cells.items()})
    return stream.getvalue()


def written(part: str) -> str:
    """The text of the file of inference (`serving`) or of `training`."""
    return text(tuple({"serving": serving_runs, "training": training_runs_measured}[part]()))


class LeftOut(NamedTuple):
    """Runs of an engine, each compared with published runs of the others."""

    part: str
    engine: str
    shares: list[tuple[PublishedRun, list[float]]]
    """A run, and the shares that runs like it reach; only where there are enough."""
    runs: int
    """Of the engine."""

    @property
    def inside(self) -> int:
        """Runs whose share is in the range of the others."""
        return sum(min(shares) <= run.share <= max(shares) for run, shares in self.shares)

    @property
    def between_quartiles(self) -> int:
        """Runs whose share is between the quartiles of the others."""
        quartiles = [(run.share, statistics.quantiles(shares, n=4, method="inclusive")) for run, shares in self.shares]
        return sum(first <= share <= third for share, (first, _, third) in quartiles)

    @property
    def errors(self) -> list[float]:
        """How far the time by the median share of the others is from the measured one."""
        return [abs(run.share / statistics.median(shares) - 1) for run, shares in self.shares]


def left_out(part: str, runs: Sequence[PublishedRun], levels: Sequence[Sequence[Feature]]) -> list[LeftOut]:
    """Each engine left out, with all its sources."""
    found = []
    for engine in dict.fromkeys(run.engine for run in runs):
        own, others = ([run for run in runs if (run.engine == engine) is mine] for mine in (True, False))
        collection = Collection(others, levels)
        like = [(run, collection.like(run)[0]) for run in own]
        shares = [(run, [one.share for one in alike]) for run, alike in like if of_serving.enough(alike)]
        found.append(LeftOut(part, engine, shares, len(own)))
    return found


def left_out_lines() -> list[dict[str, str]]:
    """The table of docs/serving.md."""
    serving_part = left_out("inference", of_serving.published_runs().runs, of_serving.LEVELS)
    training_part = left_out("training", of_training.published_training().runs, of_training.LEVELS)
    lines = []
    for part in (serving_part, training_part):
        together = LeftOut(
            part[0].part, "all", [one for each in part for one in each.shares], sum(one.runs for one in part)
        )
        lines += [_line(one) for one in (*part, together)]
    return lines


def _line(one: LeftOut) -> dict[str, str]:
    with_range = len(one.shares)
    return {
        "runs": one.part,
        "left out": one.engine,
        "number": str(one.runs),
        "with a range": str(with_range),
        "inside the range": f"{100 * one.inside / with_range:.0f} %" if with_range else "–",
        "between the quartiles": f"{100 * one.between_quartiles / with_range:.0f} %" if with_range else "–",
        "median error of the median": f"{100 * statistics.median(one.errors):.0f} %" if with_range else "–",
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        for part, file in FILES.items():
            file.write_text(written(part), encoding="utf-8")
    else:
        from xfcost.report.document import table_of, to_markup

        print(to_markup(table_of(left_out_lines()), "markdown"))
