"""Published memory of training beside ours: tables of docs/training-runs.md, which tests check.

ZeRO's table 1 and its largest models come out of `ModelStates`; Korthikanti et al.'s figures come out of their
formulas, which stand here, and ours of the training plan stand beside them.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import xfcost
from xfcost.parts.training.plan import ModelStates
from xfcost.parts.training.result import TrainingPlan

_DATA = Path(__file__).parents[1] / "tests" / "data" / "training-runs" / "memory.csv"
GIB: Final = 2**30
# Bytes of parameters, gradients, master copy and Adam's states per parameter.
_ADAM: Final = (2, 2, 4, 8)
MAIN_GRADIENTS: Final = (2, 4, 4, 8)


class Shape(NamedTuple):
    """A model of Korthikanti et al. 2022, table 3: a heads, h wide, L blocks; how its devices share it."""

    a: int
    h: int
    L: int
    p: int
    m: int
    """Interleaved stages of a device."""
    b: int
    """Samples of a micro-batch."""
    s: int = 2048
    t: int = 8

    @property
    def settings(self) -> list[str]:
        """The spec, as overrides of gpt2; v is 51,200."""
        position = f"{{kind: position, form: learned, length: {self.s}}}"
        return [
            f"stages.0.dim={self.h}", f"stages.0.depth={self.L}", f"**.heads={self.a}", "input.vocabulary=51200",
            f"input.length={self.s}", f"embed=[{{kind: token, share: embedding}}, {position}]",
        ]  # fmt: skip

    @property
    def interleaving(self) -> float:
        """What interleaving multiplies the first stage's activations by."""
        return 1 + (self.p - 1) / (self.p * self.m) if self.m > 1 else 1.0


SHAPES: Final[dict[str, Shape]] = {
    "22B": Shape(64, 6144, 48, 1, 1, 4),
    "175B": Shape(96, 12288, 96, 8, 3, 1),
    "530B": Shape(128, 20480, 105, 35, 3, 1),
    "1T": Shape(160, 25600, 128, 64, 1, 1),
}


@cache
def printed() -> tuple[dict[str, str], ...]:
    """The published figures."""
    with _DATA.open(encoding="utf-8") as stream:
        return tuple(csv.DictReader(stream))


def states(params: float, replicas: int, zero: int, parts: tuple[int, ...] = _ADAM) -> float:
    """Bytes of model states on a device."""
    held = ModelStates(*(int(part * params) for part in parts)).among(replicas, zero)
    return float(sum(part or 0 for part in held))


class Cell(NamedTuple):
    """A cell of a table: published and ours."""

    id: str
    printed: float
    ours: float
    digits: int
    """Digits after the point as published."""


def zero_cells() -> list[Cell]:
    """Rajbhandari et al. 2020, table 1: GB of model states on a device."""
    found = []
    for row in printed():
        match = re.fullmatch(r"zero-t1-([\d.]+)([BT])-dp(\d+)-s(\d)", row["id"])
        if match:
            params = float(match[1]) * {"B": 1e9, "T": 1e12}[match[2]]
            ours = states(params, int(match[3]), int(match[4])) / 1e9
            found.append(Cell(row["id"], float(row["value"]), ours, len(row["value"].partition(".")[2])))
    return found


def largest_cells() -> list[Cell]:
    """The same, table 2: billions of parameters whose states fill V100s of 32 GB, with 64 replicas."""
    found = []
    for row in printed():
        match = re.fullmatch(r"zero-t2-mp(\d+)-(?:(baseline)|stage-(\d))", row["id"])
        if match:
            per_parameter = states(1e9, 64, int(match[3] or 0)) / 1e9
            value, unit = row["value"][:-1], row["value"][-1]
            scale = {"B": 1.0, "T": 1000.0}[unit]
            digits = len(value.partition(".")[2]) - (3 if unit == "T" else 0)
            found.append(Cell(row["id"], float(value) * scale, 32 * int(match[1]) / per_parameter, digits))
    return found


def activation_bytes(shape: Shape, kind: str) -> float:
    """Korthikanti et al. 2022, table 2: bytes of one block's activations on a device, dropout included."""
    a, h, s, t, sbh = shape.a, shape.h, shape.s, shape.t, shape.s * shape.b * shape.h
    return {
        "none": sbh * (10 + 24 / t + 5 * a * s / (h * t)),
        "sequence": sbh / t * (34 + 5 * a * s / h),
        "selective": sbh * (10 + 24 / t),
        "sequence-selective": sbh * 34 / t,
        "full": 2.0 * sbh,
    }[kind]


# The words of figure 7 -> our options and their formula.
_SHARES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "tensorparallelonly": ("none", {}),
    "sequenceparallel": ("sequence", {"sequence_parallel": True}),
    "selective": ("selective", {"checkpoint": "selective"}),
    "sequence-selective": ("sequence-selective", {"sequence_parallel": True, "checkpoint": "selective"}),
    "fullrecompute": ("full", {"checkpoint": "full"}),
}


@cache
def plan(name: str, **options: Any) -> TrainingPlan:
    """Our plan of a model on its devices, with float32 gradients as in Megatron-LM."""
    shape = SHAPES[name]
    mesh = {"tensor_parallel": shape.t, "pipeline": shape.p, "on": f"a100-sxm-80x{shape.t * shape.p}"}
    run = {"dtype": "bfloat16", "attention": "eager", "batch": shape.b, "gradients": "float32"}
    ledger = xfcost.analyze("gpt2", settings=shape.settings, mode="train", trace=False, **mesh, **run, **options)
    if ledger.training is None or ledger.training.plan is None:
        raise AssertionError("a plan was asked for")
    return ledger.training.plan


def share_cells() -> list[Cell]:
    """Figure 7: activations of a block as per cent of those with tensor parallelism alone, by their formulas."""
    found = []
    for row in printed():
        match = re.fullmatch(r"kor-fig7-(\w+?)-(.+)", row["id"])
        if match:
            shape, kind = SHAPES[match[1]], _SHARES[match[2]][0]
            ours = 100 * activation_bytes(shape, kind) / activation_bytes(shape, "none")
            found.append(Cell(row["id"], float(row["value"]), ours, len(row["value"].partition(".")[2])))
    return found


def device_cells() -> list[Cell]:
    """Figure 1: GiB of states and of activations on a device, by their formulas: 18·12·L·h²/(t·p), L blocks' worth."""
    found = []
    for row in printed():
        match = re.fullmatch(r"kor-fig1-(\w+)-(states|none|present)", row["id"])
        if match:
            shape, what = SHAPES[match[1]], match[2]
            if what == "states":
                ours = 18 * 12 * shape.L * shape.h**2 / (shape.t * shape.p)
            else:
                kind = {"none": "none", "present": "sequence-selective"}[what]
                ours = shape.L * activation_bytes(shape, kind) * shape.interleaving
            found.append(Cell(row["id"], float(row["value"]), ours / GIB, len(row["value"].partition(".")[2])))
    return found


def zero_lines() -> list[dict[str, str]]:
    """Table 1 of ZeRO, a line for each model and number of replicas: published / ours."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for cell in zero_cells():
        _, _, model, replicas, stage = cell.id.split("-")
        line = lines.setdefault((model, replicas), {"parameters": model, "replicas": replicas.removeprefix("dp")})
        line[f"stage {stage[1:]}, GB: published / ours"] = f"{cell.printed:g} / {cell.ours:.6g}"
    columns = ["parameters", "replicas", *(f"stage {stage}, GB: published / ours" for stage in (1, 2, 3))]
    return [{column: line.get(column, "–") for column in columns} for line in lines.values()]


def largest_lines() -> list[dict[str, str]]:
    """Table 2 of ZeRO: the largest models by model-parallel size."""
    lines: dict[str, dict[str, str]] = {}
    for cell in largest_cells():
        size, stage = cell.id.removeprefix("zero-t2-mp").split("-", 1)
        line = lines.setdefault(size, {"model-parallel size": size})
        line[stage] = f"{cell.printed:g} / {cell.ours:.5g}"
    columns = ["model-parallel size", "baseline", "stage-1", "stage-2", "stage-3"]
    return [{column: line.get(column, "–") for column in columns} for line in lines.values()]


def activation_lines() -> list[dict[str, str]]:
    """Activations of the first stage of Korthikanti et al.'s models: their formulas, and our plan without dropout."""
    lines = []
    for name, shape in SHAPES.items():
        for kind, options in _SHARES.values():
            theirs, memory = shape.L * activation_bytes(shape, kind) / GIB, plan(name, **options).memory
            lines.append(
                {
                    "model": name,
                    "options": " ".join(f"{key}={value}" for key, value in options.items()) or "tensor parallel alone",
                    "their formula, GiB": f"{theirs:.4g}",
                    "ours, GiB": f"{(memory.activations or 0) / GIB:.4g}",
                    "recomputed at once, GiB": f"{(memory.recomputed or 0) / GIB:.3g}",
                }
            )
    return lines


def overhead_lines() -> list[dict[str, str]]:
    """FLOPs that recomputation adds: published, s/6h; and ours."""
    lines = []
    for name, shape in SHAPES.items():
        selective, full = (plan(name, checkpoint=kind).recomputation for kind in ("selective", "full"))
        print_ = {"175B": "2.7 %", "530B": "1.6 %"}.get(name, "–")
        lines.append(
            {
                "model": name,
                "published selective": print_,
                "s/6h": f"{100 * shape.s / 6 / shape.h:.2f} %",
                "s/18h": f"{100 * shape.s / 18 / shape.h:.2f} %",
                "ours, selective": f"{100 * selective:.2f} %",
                "ours, full": f"{100 * full:.1f} %",
            }
        )
    return lines


def device_lines() -> list[dict[str, str]]:
    """Figure 1 of Korthikanti et al.: published, by their formulas, and our model states."""
    lines = []
    for cell in device_cells():
        name, what = cell.id.split("-")[2:]
        states = plan(name).memory.states or 0
        lines.append(
            {
                "model": name,
                "figure 1": {"states": "states", "none": "activations", "present": "activations, sequence + selective"}[
                    what
                ],
                "published, GiB": f"{cell.printed:g}",
                "their formula": f"{cell.ours:.6g}",
                "our plan's states": f"{states / GIB:.4g}" if what == "states" else "",
            }
        )
    return lines
