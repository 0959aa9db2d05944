"""Deformable attention (Zhu et al. 2021, equations 2 and 3): point by point, cell by cell."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from references.plain import Options, Place, Weights, linear, spots


def reference(options: Options, place: Place, weights: Weights, x: Tensor) -> Tensor:
    """Zeros lie beyond the border; the middle of a cell is at ½ of it, and the border at 0 and at the map's side."""
    maps = list(place.levels) or [place.sides]
    heads, points = options.heads, options.points
    values, asked, weighed = linear(weights.value, x), linear(weights.offsets, x), linear(weights.weights, x)
    width = values.shape[-1] // heads
    first = [sum(math.prod(sides) for sides in maps[:number]) for number in range(len(maps))]
    samples = []
    for sample in range(len(x)):
        tokens = []
        for own, (row, column) in [(sides, spot) for sides in maps for spot in spots(sides)]:
            token, parts = len(tokens), []
            # the same part of every map's height and width, in cells of each
            part_y, part_x = (row + 0.5) / own[0], (column + 0.5) / own[1]
            for head in range(heads):
                mine = values[sample, :, head * width : (head + 1) * width]
                start = head * len(maps) * points
                shares = weighed[sample, token, start : start + len(maps) * points].exp()
                answer = torch.zeros_like(mine[0])
                for number, (height, length) in enumerate(maps):
                    for point in range(points):
                        at = start + number * points + point
                        right, down = asked[sample, token, 2 * at], asked[sample, token, 2 * at + 1]
                        where = part_y * height + down, part_x * length + right
                        read = between(mine[first[number] :], (height, length), where)
                        answer = answer + shares[number * points + point] / shares.sum() * read
                parts.append(answer)
            tokens.append(torch.cat(parts))
        samples.append(torch.stack(tokens))
    return linear(weights.out, torch.stack(samples))


def between(cells: Tensor, sides: tuple[int, int], where: tuple[Tensor, Tensor]) -> Tensor:
    """A map's value at (y, x): its cells around, each by how near its middle is along both axes."""
    height, length = sides
    y, x = where
    answer = torch.zeros_like(cells[0])
    above, left = math.floor(y.item() - 0.5), math.floor(x.item() - 0.5)
    for row in (above, above + 1):
        for column in (left, left + 1):
            if 0 <= row < height and 0 <= column < length:
                near = (1 - (y - row - 0.5).abs()) * (1 - (x - column - 0.5).abs())
                answer = answer + near * cells[row * length + column]
    return answer
