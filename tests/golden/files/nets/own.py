"""A module that is a part of itself."""

from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = nn.Linear(4, 4)
        self.parent = self
