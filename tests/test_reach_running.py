"""What is composed of the operations of a spec is what its running model is influenced by, token by token."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from reaching import Steps, composed, running, small
from xfcost.formulas.component import Grid
from xfcost.mechanisms.window import Window


class Case(NamedTuple):
    """A preset made small: its width alone where its depth can stay."""

    preset: str
    settings: tuple[str, ...] = ()
    tokens: int | None = None
    size: tuple[int, int] | None = None
    seeds: int = 2

    @property
    def name(self) -> str:
        return self.preset


STAGES = "stages.each.dim=[8, 8, 8, 8]"
DILATED = tuple(
    f"stages.0.blocks.{n}.blocks.0.0.{key}" for n in range(5) for key in ("window=4", f"dilation={n + 1}", "heads=2")
)
CASES = [
    Case("swin-t", (STAGES, "**.heads=1"), size=(56, 56)),
    Case(
        "resnet-50", ("stages.each.dim=[16, 16, 16, 16]", "**.width=8", "embed.0.channels=16"), size=(20, 18), seeds=5
    ),
    Case("longformer-char-small", (*DILATED, "stages.0.dim=8", "**.hidden=16"), tokens=50),
    Case(
        "bigbird-base",
        ("stages.0.dim=8", "stages.0.block.0.block=2", "stages.0.block.0.heads=2", "stages.0.block.1.hidden=16"),
        tokens=30,
    ),
    Case("gpt2", ("stages.0.dim=8", "**.heads=2", "**.vocabulary=20"), tokens=14),
    Case("mamba-130m", ("stages.0.dim=8", "**.state=4", "**.vocabulary=20"), tokens=14),
    Case("mixer-s32", ("stages.0.dim=16", "**.hidden=16"), size=(64, 96)),
    Case("t5-small", ("**.dim=16", "**.vocabulary=20", "**.hidden=16"), tokens=7),
    Case("seq2seq-lstm", ("**.dim=8", "**.vocabulary=20"), tokens=5),
    Case("cait-xxs24", ("**.dim=8", "**.heads=2", "stages.0.depth=3"), size=(48, 64)),
    Case("common-axial", ("stages.0.dim=24", "stages.0.depth=3", "**.vocabulary=20"), tokens=32),
    Case("common-set-transformer", ("stages.0.dim=24", "**.vocabulary=20"), tokens=12),
    Case("poolformer-s12", ("stages.each.dim=[8, 8, 8, 8]", "stages.each.depth=[1, 1, 1, 1]"), size=(32, 32)),
]


def differing(one: Steps, other: Steps) -> list[str]:
    """The steps at which any token's set is another."""
    found = []
    for (label, mine), (other_label, others) in zip(one, other, strict=True):
        assert label == other_label
        for name, seen in others.items():
            if not np.array_equal(mine.get(name, np.zeros_like(seen)), seen):
                found.append(f"{label}: {name}")
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_composed_sets_are_those_of_the_running_model(case: Case) -> None:
    architecture = small(case.preset, case.settings, tokens=case.tokens, size=case.size)
    assert differing(composed(architecture), running(architecture, range(case.seeds))) == []


# Queries and keys that skip tokens: only the shortcut, a pool of three, reads these.
POOLED = """\
name: Pools that skip tokens
input: {kind: image, size: [6, 8]}
embed: [{kind: patch, size: 1}]
stages: [{dim: 8, depth: 1, block: [{kind: pooling, heads: 2, q_size: 1, q_stride: 2, kv_size: 1, kv_stride: 2}]}]
"""


def test_what_pools_skip_is_handed_on_by_the_residual(tmp_path: Path) -> None:
    (tmp_path / "pooled.yaml").write_text(POOLED)
    architecture = small(str(tmp_path / "pooled.yaml"))
    steps = composed(architecture)
    assert sorted({int(count) for count in steps[0][1]["input"].sum(1)}) == [15, 17, 20]
    assert differing(steps, running(architecture, range(2))) == []


def test_what_compressed_keys_leave_out_is_handed_on_by_the_residual() -> None:
    settings = ("stages.0.dim=8", "**.heads=2", "**.block=3", "**.hidden=16", "**.vocabulary=20")
    architecture = small("t-dmca", settings, tokens=14)
    assert differing(composed(architecture), running(architecture, range(2))) == []


@pytest.mark.rest
def test_a_window_off_its_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Window.reads

    def wrong(self: Window, grid: Grid, token: int, memory: Grid | None = None) -> list[int]:
        read = list(reads(self, grid, token, memory))
        return read[1:] if token == grid.total - 1 else read

    architecture = small("swin-t", (STAGES, "**.heads=1"), size=(56, 56))
    seen = running(architecture, seeds=(0, 1))
    assert differing(composed(architecture), seen) == []
    monkeypatch.setattr(Window, "reads", wrong)
    assert differing(composed(architecture), seen)[0] == "stage 1 · block 1: input"
