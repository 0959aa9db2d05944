"""Modules that commands name."""

import torch
from beside import WIDTH
from torch import nn


class Net(nn.Module):
    def __init__(self, depth=2, width=WIDTH):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(int(torch.tensor([3.0]).sum().item()), 2)

    def forward(self, x):
        return self.fc(x)


def made(width):
    return Net(1, width)


def fails():
    return {}["no such key"]


ready = Net(3)
number = 3


def example_inputs():
    return torch.zeros(1, 5, WIDTH)
