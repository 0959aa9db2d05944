"""MViT and MViTv2 out of the numbers of their public configurations, plainly: what the presets are held to.

Fan et al. 2021, §3; Li et al. 2022, §4. Written after the papers; blocks are numbered from 0, as the configurations do.
B batch, N tokens, H heads, K head width, D width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Grids = tuple[tuple[int, ...], tuple[int, ...]]
"""The queries' and the keys'."""


class Config(NamedTuple):
    """What a configuration says."""

    depth: int
    opens: tuple[int, ...]
    """Blocks that open a stage: strides of 2, twice the width and the heads."""
    width: int = 96
    heads: int = 1
    input: tuple[int, ...] = (224, 224)
    classes: int = 1000
    kv_stride: int = 4
    """Of keys and values in the first stage; halved where a stage opens."""
    class_token: bool = True
    positions: str = "absolute"
    """absolute, separate or relative."""
    residual_pooling: str = "none"
    """none, grid or all."""
    in_attention: bool = False
    """Does the width grow in a stage's first attention, not in the last MLP before?"""
    pool_all_queries: bool = False
    window: int | None = None
    """Hwin: the first stage's; it halves behind a stage's first block. The last blocks of other stages have none."""
    maxima: bool = False
    """Max-pooling, with kernels of 5, 3 and 1 at strides of 4, 2 and 1, for convolutions of 3."""


def strides(config: Config, stride: int) -> tuple[int, ...]:
    """Of height and width; frames have none."""
    return (*[1] * (len(config.input) - 2), stride, stride)


class PlainPool(nn.Module):
    """Depthwise convolution and norm, or a maximum, on the grid of every head; class tokens are not pooled."""

    def __init__(self, config: Config, head_dim: int, stride: int) -> None:
        super().__init__()
        rank, self.special = len(config.input), int(config.class_token)
        self.stride, self.maxima = strides(config, stride), config.maxima
        size = {4: 5, 2: 3, 1: 1}[stride] if config.maxima else 3
        self.sizes = [size if side > 1 or not config.maxima else 1 for side in self.stride]
        if not config.maxima:
            self.weight = nn.Parameter(torch.empty(head_dim, 1, *[3] * rank))
            self.norm = nn.LayerNorm(head_dim)

    def forward(self, x_BHNK: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        batch, heads, _, width = x_BHNK.shape
        alone, rest = x_BHNK[:, :, : self.special], x_BHNK[:, :, self.special :]
        volume = rest.reshape(batch * heads, *grid, width).movedim(-1, 1)
        padding = [size // 2 for size in self.sizes]
        if self.maxima:
            pool = F.max_pool2d if len(grid) == 2 else F.max_pool3d
            volume = pool(volume, self.sizes, self.stride, padding)
        else:
            convolve = F.conv2d if len(grid) == 2 else F.conv3d
            volume = convolve(volume, self.weight, None, self.stride, padding, groups=width)
        pooled = volume.flatten(2).transpose(1, 2).reshape(batch, heads, -1, width)
        y_BHPK = torch.cat([alone, pooled], dim=2)
        return y_BHPK if self.maxima else self.norm(y_BHPK), tuple(volume.shape[2:])


class PlainBlock(nn.Module):
    """Pooling attention and an MLP: (B, N, D) on a grid -> (B, P, D') on another."""

    def __init__(
        self,
        config: Config,
        index: int,
        width: int,
        heads: int,
        kv_stride: int,
        grid: tuple[int, ...],
        window: int | None,
    ) -> None:
        super().__init__()
        opens, ends = index in config.opens, index + 1 in config.opens
        self.window = window
        self.config, self.heads = config, heads
        inside = 2 * width if opens and config.in_attention else width
        outside = 2 * inside if ends and not config.in_attention else inside
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(inside)
        self.qkv, self.proj = nn.Linear(width, 3 * inside), nn.Linear(inside, inside)
        head_dim = inside // heads
        pooled = {"q": 2 if opens else 1, "k": kv_stride, "v": kv_stride}
        idle = {name for name, stride in pooled.items() if stride == 1 and config.maxima}
        if not (opens or config.pool_all_queries):
            idle.add("q")
        self.pools = nn.ModuleDict(
            {name: PlainPool(config, head_dim, stride) for name, stride in pooled.items() if name not in idle}
        )
        self.stride = strides(config, pooled["q"])
        if config.positions == "relative":
            reach = grid if window is None else (window,) * len(grid)
            queries, keys = (
                [math.ceil(side / step) for side, step in zip(reach, strides(config, pooled[name]), strict=True)]
                for name in "qk"
            )
            sizes = zip(queries, keys, strict=True)
            self.tables = nn.ParameterList(torch.empty(2 * max(pair) - 1, head_dim) for pair in sizes)
        self.up, self.down = nn.Linear(inside, 4 * inside), nn.Linear(4 * inside, outside)
        self.widen = nn.Linear(width, outside) if outside != width else None
        self.width = outside

    def forward(self, x_BND: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        normed = self.norm1(x_BND)
        y_BPD, shorter = self.attention(normed, grid)
        kept = self.widen(normed) if self.widen is not None and self.config.in_attention else x_BND
        x_BPD = self.skip(kept, grid) + y_BPD
        normed = self.norm2(x_BPD)
        if self.widen is not None and not self.config.in_attention:
            x_BPD = self.widen(normed)
        return x_BPD + self.down(F.gelu(self.up(normed))), shorter

    def skip(self, x_BND: Tensor, grid: tuple[int, ...]) -> Tensor:
        """A maximum of stride + 1 positions where queries have strides."""
        if math.prod(self.stride) == 1:
            return x_BND
        sizes = [step + 1 if step > 1 else 1 for step in self.stride]
        pool = F.max_pool2d if len(grid) == 2 else F.max_pool3d
        special = int(self.config.class_token)
        volume = x_BND[:, special:].transpose(1, 2).unflatten(2, grid)
        pooled = pool(volume, sizes, self.stride, [size // 2 for size in sizes])
        return torch.cat([x_BND[:, :special], pooled.flatten(2).transpose(1, 2)], dim=1)

    def attention(self, x_BND: Tensor, grid: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
        parts, grids = [], []
        for name, part in zip("qkv", self.qkv(x_BND).chunk(3, dim=-1), strict=True):
            heads = part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            pooled, there = self.pools[name](heads, grid) if name in self.pools else (heads, grid)
            parts.append(pooled)
            grids.append(there)
        q, k, v = parts
        if self.window is None:
            y = self.attend(q, k, v, (grids[0], grids[1]))
        else:
            y = self.in_windows(q, k, v, (grids[0], grids[1]), grid)
        if self.config.residual_pooling == "all":
            y = y + q
        elif self.config.residual_pooling == "grid":
            special = int(self.config.class_token)
            y = torch.cat([y[:, :, :special], y[:, :, special:] + q[:, :, special:]], dim=2)
        return self.proj(y.transpose(1, 2).flatten(2)), grids[0]

    def in_windows(self, q: Tensor, k: Tensor, v: Tensor, grids: Grids, grid: tuple[int, ...]) -> Tensor:
        """Window after window of the grids, padded by zeros to whole ones."""
        counts = [math.ceil(side / self.window) for side in grid]
        parts, sides = [], []
        for part, there in ((q, grids[0]), (k, grids[1]), (v, grids[1])):
            side = self.window // round(grid[0] / there[0])
            lacking = [count * side - here for count, here in zip(counts, there, strict=True)]
            parts.append(F.pad(part.unflatten(2, there), (0, 0, 0, lacking[1], 0, lacking[0])))
            sides.append(side)
        answer = torch.zeros_like(parts[0])
        for row in range(counts[0]):
            for column in range(counts[1]):
                cut = [
                    part[:, :, row * side : (row + 1) * side, column * side : (column + 1) * side].flatten(2, 3)
                    for part, side in zip(parts, sides, strict=True)
                ]
                mine = sides[0]
                found = self.attend(cut[0], cut[1], cut[2], ((mine, mine), (sides[1], sides[1])))
                rows, columns = slice(row * mine, (row + 1) * mine), slice(column * mine, (column + 1) * mine)
                answer[:, :, rows, columns] = found.unflatten(2, (mine, mine))
        return answer[:, :, : grids[0][0], : grids[0][1]].flatten(2, 3)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, grids: Grids) -> Tensor:
        """softmax(QKᵀ/√K + relative positions)V."""
        scores = torch.einsum("bhnk,bhmk->bhnm", q * q.shape[-1] ** -0.5, k)
        if self.config.positions == "relative":
            scores = scores + self.relative(q, *grids)
        return torch.einsum("bhnm,bhmk->bhnk", scores.softmax(-1), v)

    def relative(self, q: Tensor, queries: tuple[int, ...], keys: tuple[int, ...]) -> Tensor:
        """qᵢ·R[iₐ - jₐ] summed over the axes, 0 for the class token."""
        special, letters = int(self.config.class_token), "tyx"[-len(queries) :]
        on_grid = q[:, :, special:].unflatten(2, queries)
        bias = q.new_zeros(())
        for axis, (letter, table) in enumerate(zip(letters, self.tables, strict=True)):
            ours, theirs = queries[axis], keys[axis]
            apart = [
                [
                    int(i * max(theirs / ours, 1) + (theirs - 1 - j) * max(ours / theirs, 1) + 1e-9)
                    for j in range(theirs)
                ]
                for i in range(ours)
            ]
            rows = table[torch.tensor(apart).flatten()].unflatten(0, (ours, theirs))
            term = torch.einsum(f"bh{letters}k,{letter}mk->bh{letters}m", on_grid, rows)
            shape = [1] * len(keys)
            shape[axis] = theirs
            bias = bias + term.unflatten(-1, shape)
        rank = len(queries)
        return F.pad(bias.flatten(2, 1 + rank).flatten(3), (special, 0, special, 0))


class PlainMViT(nn.Module):
    """Pixels -> (B, classes), or, without classes, the tokens of the last stage."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, width, heads = config, config.width, config.heads
        rank = len(config.input)
        if rank == 2:
            self.entry: nn.Module = nn.Conv2d(3, width, 7, 4, 3)
        else:
            self.entry = nn.Conv3d(3, width, (3, 7, 7), (2, 4, 4), (1, 3, 3))
        self.grid = tuple(
            math.ceil(side / step) for side, step in zip(config.input, (2, 4, 4)[3 - rank :], strict=True)
        )
        if config.class_token:
            self.token = nn.Parameter(torch.empty(1, 1, width))
        sizes = {"absolute": [math.prod(self.grid)], "separate": [self.grid[0], math.prod(self.grid[1:])]}
        shapes = sizes.get(config.positions, [])
        if shapes and config.class_token:
            shapes = [1, *shapes]
        self.positions = nn.ParameterList(torch.empty(rows, width) for rows in shapes)
        blocks, grid, stride, window = [], self.grid, config.kv_stride, config.window
        lasts = {end - 1 for end in (*config.opens[1:], config.depth)} if window else set()
        for index in range(config.depth):
            if index in config.opens:
                heads, stride = 2 * heads, max(stride // 2, 1)
            twice = 2 if index in lasts and index + 1 < config.depth else 1
            reach = None if index in lasts else window
            block = PlainBlock(config, index, width, heads, twice * stride, grid, reach)
            window = window // 2 if window and index in config.opens else window
            grid = tuple(math.ceil(side / step) for side, step in zip(grid, block.stride, strict=True))
            blocks.append(block)
            width = block.width
        self.blocks = nn.ModuleList(blocks)
        if config.classes:
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, config.classes)

    def forward(self, pixels: Tensor) -> Tensor:
        x_BND = self.entry(pixels).flatten(2).transpose(1, 2)
        if self.config.class_token:
            x_BND = torch.cat([self.token.expand(x_BND.shape[0], -1, -1), x_BND], dim=1)
        if self.config.positions != "relative":
            *tables, places = self.positions
            if self.config.positions == "separate":
                places = places.repeat(self.grid[0], 1) + tables.pop().repeat_interleave(places.shape[0], dim=0)
            x_BND = x_BND + torch.cat([*tables, places])
        grid = self.grid
        for block in self.blocks:
            x_BND, grid = block(x_BND, grid)
        if not self.config.classes:
            return x_BND
        x_BND = self.norm(x_BND)
        return self.head(x_BND[:, 0] if self.config.class_token else x_BND.mean(1))


V1 = Config(16, (1, 3, 14))
LONG = V1._replace(depth=24, opens=(2, 5, 21))
VIDEO = V1._replace(input=(16, 224, 224), positions="separate", kv_stride=8, classes=400)
V2 = Config(
    10,
    (1, 3, 8),
    class_token=False,
    positions="relative",
    residual_pooling="all",
    in_attention=True,
    pool_all_queries=True,
)
LARGE = V2._replace(depth=48, opens=(2, 8, 44), width=144, heads=2)
DETECT = V2._replace(window=56, input=(800, 1280), classes=0)
VIDEO2 = V2._replace(
    depth=16,
    opens=(1, 3, 14),
    class_token=True,
    input=(16, 224, 224),
    kv_stride=8,
    classes=400,
    residual_pooling="grid",
)
# As the public configurations have them: SlowFast's configs/ImageNet and configs/Kinetics, mvit's configs; windows
# as in detectron2's projects/MViTv2.
CONFIGS: dict[str, Config] = {
    "mvit-b-16": V1,
    "mvit-b-16-max": V1._replace(maxima=True),
    "mvit-b-24": LONG,
    "mvit-b-24-wide-320": LONG._replace(width=112, input=(320, 320)),
    "mvit-b-16x4": VIDEO,
    "mvit-b-32x3": VIDEO._replace(input=(32, 224, 224)),
    "mvit-b-64x3": VIDEO._replace(input=(64, 224, 224)),
    "mvit-b-24-32x3": VIDEO._replace(input=(32, 224, 224), depth=24, opens=(2, 5, 21), classes=600),
    "mvitv2-t": V2,
    "mvitv2-s": V2._replace(depth=16, opens=(1, 3, 14)),
    "mvitv2-b": V2._replace(depth=24, opens=(2, 5, 21)),
    "mvitv2-l": LARGE._replace(in_attention=False),
    "mvitv2-l-cls": LARGE._replace(class_token=True),
    "mvitv2-h": V2._replace(depth=80, opens=(4, 12, 72), width=192, heads=3, class_token=True),
    "mvitv2-t-hwin": DETECT,
    "mvitv2-s-hwin": DETECT._replace(depth=16, opens=(1, 3, 14)),
    "mvitv2-b-hwin": DETECT._replace(depth=24, opens=(2, 5, 21)),
    "mvitv2-s-16x4": VIDEO2,
    "mvitv2-b-32x3": VIDEO2._replace(depth=24, opens=(2, 5, 21), input=(32, 224, 224)),
    "mvitv2-l-40x3-312": VIDEO2._replace(depth=48, opens=(2, 8, 44), width=144, heads=2, input=(40, 312, 312)),
}
