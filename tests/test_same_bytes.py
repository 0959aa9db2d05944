"""The same command gives the same bytes, however busy the machine is."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

import xfcost

SOURCE: Final = Path(xfcost.__file__).parent
# The files that may read a clock, each with its reason.
CLOCKS: Final = {
    "questions/doctor/answer.py": "the age of a calibration",
    "api/measuring/process.py": "measures: the seconds of a row",
    "questions/measure/sweep.py": "measures: when, and how long is left",
    "questions/calibrate/answer.py": "progress of a calibration",
    "questions/find/progress.py": "progress of a search",
    "torch_models/predicting/calibrate.py": "measures kernels, and when",
    "torch_models/timing/devices.py": "the clock of measurements",
    "torch_models/timing/growth.py": "measures memory: passes until the heap has grown",
    "torch_models/timing/turns.py": "measures in turns",
}
CLOCK: Final = re.compile(
    r"^\s*(import (time|timeit|datetime)|from (time|timeit|datetime) import)\b|default_timer|thread_time|\bTimer\(",
    re.MULTILINE,
)


def test_only_what_measures_or_tells_progress_reads_a_clock() -> None:
    found = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if CLOCK.search(path.read_text("utf-8"))}
    assert found == set(CLOCKS)


class Attention(nn.Module):
    """Of two heads; with a window over squares of so many tokens, which every second block shifts."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (map_(x).unflatten(-1, (2, -1)).transpose(-3, -2) for map_ in (self.q, self.k, self.v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return self.out(((scores if mask is None else scores + mask).softmax(-1) @ v).transpose(-3, -2).flatten(-2))


class Block(nn.Module):
    """Swin's with a window, else ViT's."""

    def __init__(self, dim: int, *, window: int = 0, shift: int = 0) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention, self.mlp = Attention(dim), nn.Sequential(nn.Linear(dim, 16), nn.GELU(), nn.Linear(16, dim))
        self.window, self.shift = window, shift

    def mixed(self, x: Tensor) -> Tensor:
        (batch, height, width, dim), w, s = x.shape, self.window, self.shift
        if not w:
            return self.attention(x.flatten(1, 2)).view(x.shape)

        def windows(of: Tensor) -> Tensor:
            parts = of.view(-1, height // w, w, width // w, w, of.shape[-1])
            return parts.permute(0, 1, 3, 2, 4, 5).reshape(batch, -1, w * w, of.shape[-1])

        areas = torch.zeros(1, height, width, 1)
        for row in (slice(-w), slice(-w, -s), slice(-s, None)) if s else ():
            for column in (slice(-w), slice(-w, -s), slice(-s, None)):
                areas[:, row, column] = areas.max() + 1
        of_windows = windows(areas.expand(batch, -1, -1, -1))
        mask = torch.where(of_windows == of_windows.mT, 0.0, -100.0)[:, :, None]
        found = self.attention(windows(x.roll((-s, -s), (1, 2))), mask)
        found = found.view(batch, height // w, width // w, w, w, dim).permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        return found.roll((s, s), (1, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mixed(self.first(x))
        return x + self.mlp(self.second(x))


class Net(nn.Module):
    """Patches, blocks, and the mean of all tokens."""

    def __init__(self, *blocks: dict[str, Any]) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.ModuleList(Block(8, **one) for one in blocks)
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


WINDOWS: Final = [{"window": 4}, {"window": 4, "shift": 2}]
# Model; what its products of queries and keys are, in order.
NETS: Final[dict[str, tuple[nn.Module, list[tuple[str, str]]]]] = {
    "ViT": (Net(*[{}] * 4), [("blocks.*.attention.bmm", "global")]),
    "Swin": (
        Net(*WINDOWS, *WINDOWS),
        [("blocks.0-2:2.attention.bmm", "local"), ("blocks.1-3:2.attention.bmm", "local")],
    ),
}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Other processes that never wait."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


@pytest.mark.parametrize("name", NETS)
def test_a_module_has_the_same_report_on_a_busy_machine(name: str) -> None:
    module, expected = NETS[name]
    ledger = xfcost.analyze(module.eval(), example_inputs=torch.zeros(1, 3, 32, 32), trace=False)
    assert [(row.path, row.mixing) for row in ledger.rows if row.path.endswith("attention.bmm")] == expected
    assert not any(row.mixing == "unknown" for row in ledger.rows)
    with busy(2):
        other = xfcost.analyze(module, example_inputs=torch.zeros(1, 3, 32, 32), trace=False)
    assert other.to_json() == ledger.to_json()


def test_a_probe_has_the_same_report_on_a_busy_machine() -> None:
    def report() -> str:
        return xfcost.analyze("vit-ti32", settings=["stages.0.depth=1"], trace=False, probe=True).to_json()

    alone = report()
    with busy(4):
        assert report() == alone
