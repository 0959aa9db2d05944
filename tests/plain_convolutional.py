"""MobileNetV2, EfficientNet and VGG out of their papers' tables, plainly, in torchvision's layout: for the presets.

Sandler et al. 2018, Table 2; Tan and Le 2019, Table 1 and §3.3; Simonyan and Zisserman 2015, Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Act = Callable[[], nn.Module]
# Of every stage: expansion, kernel, stride of its first block, width, blocks.
Stages = list[tuple[int, int, int, int, int]]
EFFICIENTNET: Stages = [
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
]  # fmt: skip
MOBILENET_V2: Stages = [
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 3, 2, 32, 3), (6, 3, 2, 64, 4), (6, 3, 1, 96, 3), (6, 3, 2, 160, 3),
    (6, 3, 1, 320, 1),
]  # fmt: skip
# Width and depth times so much, image size.
SCALES = {
    "efficientnet-b0": (1.0, 1.0, 224),
    "efficientnet-b1": (1.0, 1.1, 240),
    "efficientnet-b2": (1.1, 1.2, 260),
    "efficientnet-b3": (1.2, 1.4, 300),
    "efficientnet-b4": (1.4, 1.8, 380),
    "efficientnet-b5": (1.6, 2.2, 456),
    "efficientnet-b6": (1.8, 2.6, 528),
    "efficientnet-b7": (2.0, 3.1, 600),
}
# Convolutions of each of the five stages, whose widths are 64 to 512.
VGG = {"vgg-11": (1, 1, 2, 2, 2), "vgg-13": (2, 2, 2, 2, 2), "vgg-16": (2, 2, 3, 3, 3), "vgg-19": (2, 2, 4, 4, 4)}


def conv_norm(width: int, out_width: int, kernel: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution without bias, and a batch norm."""
    conv = nn.Conv2d(width, out_width, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out_width)]


class Squeeze(nn.Module):
    """Every channel times a gate, worked out of all channels' means."""

    def __init__(self, width: int, inside: int, act: Act) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Conv2d(width, inside, 1), act(), nn.Conv2d(inside, width, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x.mean((2, 3), keepdim=True))


class Block(nn.Module):
    """Expansion, depthwise convolution, squeeze if any, projection."""

    def __init__(self, width: int, out_width: int, expansion: int, kernel: int, stride: int, act: Act, squeeze: bool):
        super().__init__()
        inside, self.adds = expansion * width, stride == 1 and width == out_width
        layers = [] if expansion == 1 else [*conv_norm(width, inside, 1), act()]
        layers += [*conv_norm(inside, inside, kernel, stride=stride, groups=inside), act()]
        layers += [Squeeze(inside, width // 4, act)] if squeeze else []
        self.layers = nn.Sequential(*layers, *conv_norm(inside, out_width, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


def of_blocks(stem: int, stages: Stages, last: int, act: Act, *, squeeze: bool, classes: int) -> nn.Module:
    """Stem, blocks, a 1×1 convolution to `last`, the mean of all positions, classes."""
    layers, width = [*conv_norm(3, stem, 3, stride=2), act()], stem
    for expansion, kernel, stride, out_width, blocks in stages:
        for number in range(blocks):
            step = stride if number == 0 else 1
            layers.append(Block(width, out_width, expansion, kernel, step, act, squeeze))
            width = out_width
    layers += [*conv_norm(width, last, 1), act(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(last, classes))


def rounded(width: float) -> int:
    """The nearest multiple of 8, or the next where that is more than a tenth less."""
    near = max(8, int(width + 4) // 8 * 8)
    return near + 8 if near < 0.9 * width else near


def plain(name: str, classes: int = 1000, hidden: int = 4096) -> nn.Module:
    """The network of a preset's name."""
    if name == "mobilenetv2-1.0":
        return of_blocks(32, MOBILENET_V2, 1280, nn.ReLU6, squeeze=False, classes=classes)
    if name in SCALES:
        width, depth, _ = SCALES[name]
        stages = [
            (*block, rounded(width * channels), math.ceil(depth * blocks)) for *block, channels, blocks in EFFICIENTNET
        ]
        last = 4 * stages[-1][3]
        return of_blocks(rounded(32 * width), stages, last, nn.SiLU, squeeze=True, classes=classes)
    convs, width, layers = VGG[name.removesuffix("-bn")], 3, []
    for out_width, count in zip((64, 128, 256, 512, 512), convs, strict=True):
        for _ in range(count):
            norm = [nn.BatchNorm2d(out_width)] if name.endswith("-bn") else []
            layers += [nn.Conv2d(width, out_width, 3, padding=1), *norm, nn.ReLU()]
            width = out_width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(49 * width, hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def noisy(model: nn.Module) -> nn.Module:
    """Weights of a size that keeps the signal's, and running statistics that are not those of a fresh norm."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.8)
            nn.init.normal_(module.bias, std=0.1)
        elif isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return model
