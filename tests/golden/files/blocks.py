"""Modules for the commands of golden texts."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, depth=2, width=8):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True, norm_first=True) for _ in range(depth)
        )

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.net = Net()

    def forward(self, x):
        return self.net(self.patch(x).flatten(2).transpose(1, 2))


class Short(Net):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(100, 8))

    def forward(self, x):
        return super().forward(x + self.positions[: x.shape[1]])


class Two(Net):
    def forward(self, x, y):
        return super().forward(x + y)


class Custom(nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x @ x.transpose(1, 2))[1]
