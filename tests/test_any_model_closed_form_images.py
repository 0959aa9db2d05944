"""The closed form of a module in the pixels P = H·W of its images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xfcost


def image(H: int, W: int) -> Tensor:
    return torch.zeros(1, 3, H, W, device="meta")


class Patches(nn.Module):
    """Patches of 4×4, attention without projections, a linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.out = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        scores = (x @ x.transpose(1, 2)).softmax(-1)
        return self.out(scores @ x)


def form_of(make: Callable[[], nn.Module], side: int, inputs: Any = image) -> Any:
    with torch.device("meta"):
        module = make()
    found = xfcost.analyze(module, example_inputs=inputs, size=side, trace=False, closed_form=True)
    assert found.module is not None
    return found, found.module.closed_form


def test_a_convolution_costs_as_much_for_every_pixel() -> None:
    # 3·3·3 weights of each of 8 outputs: 216 MACs a pixel
    ledger, form = form_of(lambda: nn.Conv2d(3, 8, 3, padding=1), 32)
    assert (form.letter, form.macs, form.period) == ("P", "216·P", 1)
    assert ledger.total("macs") == 216 * 32 * 32
    assert form.growth["macs"] == pytest.approx(1)


def test_borders_are_a_part_of_it() -> None:
    # no padding: (√P - 2)² positions of 216 MACs: 216·P - 864·√P + 864
    _, form = form_of(lambda: nn.Conv2d(3, 8, 3), 32)
    assert form.macs == "216·P - 864·√P + 864"


def test_patches_step_and_their_attention_is_quadratic() -> None:
    # N = P/16 patches: 3·16·8 MACs each, 5·8 of the map, 2·8·N² of the two products: P²/16 + 26.5·P
    ledger, form = form_of(Patches, 32)
    tokens = 64
    assert ledger.total("macs") == tokens * (3 * 16 * 8 + 5 * 8) + 2 * 8 * tokens**2
    assert form.macs == "1/16·P² + 53/2·P"
    assert (form.counted_in, form.period, form.remainder) == ("√P", 4, 0)
    # counted at another size: 28×28
    other, _ = form_of(Patches, 28)
    pixels = 28 * 28
    assert other.total("macs") == pixels**2 / 16 + 53 * pixels / 2


def test_images_that_must_be_whole_patches() -> None:
    class Strict(Patches):
        def forward(self, x: Tensor) -> Tensor:
            if x.shape[-1] % 4:
                raise ValueError("whole patches alone")
            return super().forward(x)

    _, form = form_of(Strict, 32)
    assert form.macs == "1/16·P² + 53/2·P"
    assert form.period == 1


def test_a_period_of_whole_patches_is_one_of_pixels() -> None:
    class Windows(nn.Module):
        """Windows of 2×2 patches of 4×4 pixels, padded up: whole patches alone."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 4, stride=4, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            x = nn.functional.pad(x.unflatten(-1, (-1, 4)).flatten(-2), (0, -x.shape[-1] % 8, 0, -x.shape[-2] % 8))
            return self.stem(x)

    _, form = form_of(Windows, 32)
    # 3·8 MACs a pixel; a side of 8·k + 4 is padded to 8·k + 8
    assert (form.macs, form.counted_in, form.period, form.remainder) == ("24·P", "√P", 8, 0)
    assert form.others == {4: "24·P + 192·√P + 384"}


def test_it_is_printed(tmp_path: Any) -> None:
    from helpers import xf

    (tmp_path / "model.py").write_text(
        "from torch import nn\n\n\ndef Net():\n    return nn.Conv2d(3, 8, 3, padding=1)\n"
    )
    done = xf("analyze", "model.py:Net", "--input", "1x3xHxW", "--size", "32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert "in P = H·W: 216·P MACs counted at P = " in text
    assert "growth, e of cost ~ P^e between P = 1,024 and 4,096: MACs 1.00" in text
