"""Matrix products: A (b, m, k) · B (b, k, n) -> (b, m, n), by who owns the numbers along the contracted axis.

A's line along k    B's line along k    what it is                         an output belongs to
one token           nobody's            linear map                         the token
several tokens      nobody's            merge of a group, or static map    a new place
one token           one token           scores (query, key)                the query, about the key
one query, keys     tokens              weighted sum of values             the query
several tokens      several tokens      state, a sum of outer products     a new place
one token           several tokens      weights from the query alone       the query
"""

from __future__ import annotations

import torch
from torch import Tensor

from xfcost.torch_models.ownership.call import PER_TOKEN, Call, Finding, Outcome, ids, reads
from xfcost.torch_models.ownership.merging import merged_lines
from xfcost.torch_models.ownership.owners import (
    CONSTANT,
    along,
    any_learned,
    any_owned,
    are_pairs,
    at,
    content,
    distinct,
    everywhere,
    home,
    masked,
    repetitions,
    swapped,
    varies,
    vectors,
    with_masked,
)
from xfcost.torch_models.ownership.places import pair


def product(call: Call, left_bmk: Tensor, right_bkn: Tensor) -> Outcome:
    """Owners and finding of a batched matrix product."""
    left_bmk, right_bnk = normal(left_bmk), normal(right_bkn.transpose(-2, -1))
    owned = any_owned(left_bmk), any_owned(right_bnk)
    if owned == (False, False):
        return _of_parameters(call, left_bmk, right_bnk)
    shape = (left_bmk.shape[0], left_bmk.shape[1], right_bnk.shape[1])
    if not left_bmk.stride(0) and not right_bnk.stride(0):  # the same in every sample, or head
        left_bmk, right_bnk = left_bmk[:1], right_bnk[:1]
    repeated = repetitions(left_bmk, right_bnk)
    if repeated is not None:
        left_bmk, right_bnk = at(left_bmk, repeated[0]), at(right_bnk, repeated[0])
    if owned == (True, False):
        owners, finding = _by_weights(call, left_bmk, right_bnk.shape[1])
    elif owned == (False, True):
        owners, finding = _by_weights(call, right_bnk, left_bmk.shape[1])
        _weights_by_position(call, 0, owners, finding)
        owners = owners.transpose(-2, -1)
    else:
        owners, finding = _of_two(call, left_bmk, right_bnk)
    if repeated is not None:
        owners = at(owners, repeated[1])
    return Outcome([owners.expand(shape)], finding)


def normal(owners: Tensor) -> Tensor:
    """Owners with the query as home, where pairs lie along the last axis the other way round."""
    if not any_owned(owners):
        return owners
    owners = _without_strangers(owners)
    if are_pairs(owners) and varies(home(owners), -1) and not varies(content(owners), -1):
        return swapped(owners)
    return owners


def _without_strangers(owners: Tensor) -> Tensor:
    """A line of one query, where masked entries (…, k) of other queries' rows stand in it too."""
    gone = masked(owners)
    if not gone.any():
        return owners
    alive = torch.where(gone, CONSTANT, owners)
    if varies(home(alive), -1):
        return owners
    one = home(along(alive, -1)).unsqueeze(-1).expand(owners.shape)
    return torch.where(gone & (one >= 0), with_masked(pair(one, content(owners)), gone), owners)


def _of_parameters(call: Call, left_bmk: Tensor, right_bnk: Tensor) -> Outcome:
    """Learned vectors, one per row: learned queries, positions."""
    batch, rows, columns = left_bmk.shape[0], left_bmk.shape[1], right_bnk.shape[1]
    if not any_learned(left_bmk) and not any_learned(right_bnk):
        return Outcome([everywhere(CONSTANT, (batch, rows, columns))], None)
    first = call.places.add_learned(batch * rows, call.sequence)
    numbers = torch.arange(first, first + batch * rows).reshape(batch, rows, 1)
    return Outcome([vectors(numbers.expand(batch, rows, columns))], None)


def _by_weights(call: Call, lines_bmk: Tensor, outputs: int) -> tuple[Tensor, Finding]:
    """Lines of tokens times learned weights: (b, m, k) -> (b, m, n)."""
    shape = (*lines_bmk.shape[:2], outputs)
    lines_bmk = call.run.settled(lines_bmk)
    if varies(home(lines_bmk), -1):
        owners, finding = merged_lines(call, lines_bmk, outputs)
        call.run.settle(lines_bmk, owners[..., 0])
        return owners, finding
    one = along(lines_bmk, -1).unsqueeze(-1)
    contents = call.places.without_learned(content(lines_bmk))
    if not varies(contents, -1):
        if varies(content(lines_bmk), -1):
            one = vectors(home(one))
        return one.expand(shape), PER_TOKEN
    counts = distinct(contents, -1)
    alive = torch.where(masked(lines_bmk), -1, contents)
    finding = Finding(mixes=True, computed=counts, kept=distinct(alive, -1), places=ids(contents))
    return vectors(home(one)).expand(shape), finding


def _of_two(call: Call, left_bmk: Tensor, right_bnk: Tensor) -> tuple[Tensor, Finding]:
    shape = (*left_bmk.shape[:2], right_bnk.shape[1])
    turned = (shape[0], shape[2], shape[1])
    left_varies, right_varies = varies(home(left_bmk), -1), varies(home(right_bnk), -1)
    if left_varies and right_varies:
        return _state(call, left_bmk, shape)
    if not left_varies and varies(content(left_bmk), -1):
        return _weighted_sum(call, left_bmk, content(left_bmk), shape, right_bnk)
    if not right_varies and varies(content(right_bnk), -1):
        owners, finding = _weighted_sum(call, right_bnk, content(right_bnk), turned, left_bmk)
        return owners.transpose(-2, -1), finding
    if right_varies:
        read = home(right_bnk[:, :1]).expand(left_bmk.shape)
        return _weights_by_position(call, 0, *_weighted_sum(call, left_bmk, read, shape, right_bnk))
    if left_varies:
        read = home(left_bmk[:, :1]).expand(right_bnk.shape)
        owners, finding = _weighted_sum(call, right_bnk, read, turned, left_bmk)
        return _weights_by_position(call, 1, owners.transpose(-2, -1), finding)
    return _scores(call, along(left_bmk, -1), along(right_bnk, -1), shape)


def _sums_up(call: Call, left: Tensor, right: Tensor) -> bool:
    """Is every place on the left a sum over places on the right, which read it?"""
    lefts, rights = ids(home(left)), ids(home(right))
    return bool(lefts) and all(call.places.members.get(place, frozenset()) & rights for place in lefts)


def _scores(call: Call, query_bm: Tensor, key_bn: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Finding]:
    """One query and one key for each output; or one sum over tokens, and the token that reads it."""
    if _sums_up(call, query_bm, key_bn):
        owners, finding = _scores(call, key_bn, query_bm, (shape[0], shape[2], shape[1]))
        return owners.transpose(-2, -1), finding
    homes = home(query_bm).unsqueeze(-1).expand(shape)
    contents = content(key_bn).unsqueeze(-2).expand(shape)
    return scored(call, homes, contents)


def scored(call: Call, homes: Tensor, contents: Tensor) -> tuple[Tensor, Finding]:
    """Scores of queries `homes` and keys `contents`, which lie along the last axis."""
    known = homes >= 0
    read = torch.where(known, call.places.read_by(homes, contents), -1)
    others = (read >= 0) & (read != homes)
    owners = pair(homes, contents)
    if not others.any():
        return owners, PER_TOKEN
    counts = distinct(read, -1)
    single = int(counts.max()) == 1
    if single:
        owners = vectors(torch.where(known, homes, contents))
        call.places.has_read(call.sequence, homes, ids(read))
        call.run.queries.meet(homes, read)
    call.places.meet(homes, read)
    finding = Finding(
        mixes=True, computed=_owned(counts, known), places=ids(read), content_dependent=True, single=single
    )
    return owners, finding


def _owned(counts: Tensor, known: Tensor) -> Tensor:
    return counts[known.any(-1)] if known.shape[:-1] == counts.shape else counts


def _weights_by_position(call: Call, operand: int, owners: Tensor, finding: Finding) -> tuple[Tensor, Finding]:
    """Weights from the query alone, or learned ones: what made them out of the vector mixes by position."""
    call.run.by_position(_matrices(call)[operand], finding, with_product=False) if finding.mixes else None
    return owners, finding


def _matrices(call: Call) -> list[Tensor]:
    """The two factors among the arguments."""
    return [value for value in call.args if isinstance(value, Tensor)][-2:]


def _weighted_sum(
    call: Call, weights_bmk: Tensor, read_bmk: Tensor, shape: tuple[int, ...], values_bnk: Tensor
) -> tuple[Tensor, Finding]:
    """Values of several places, summed for one."""
    homes = along(weights_bmk, -1)
    homes = torch.where(homes >= 0, home(homes), -1)
    read = torch.where(weights_bmk >= 0, call.places.read_by(homes, read_bmk), -1)
    owners = vectors(homes).unsqueeze(-1).expand(shape)
    if not (read >= 0).any():
        return owners, PER_TOKEN
    kept = torch.where(masked(weights_bmk), -1, read)
    wide = homes.unsqueeze(-1).expand(kept.shape)
    call.places.meet(wide, kept)
    call.places.meet(wide, home(values_bnk[:, :1]).expand(kept.shape))
    learned = not (call.places.without_learned(homes) >= 0).any()
    call.places.has_read(call.sequence, homes, ids(kept))
    dependent = not learned or bool((content(weights_bmk) != home(weights_bmk)).any())
    finding = reads(read, kept, homes >= 0, content_dependent=dependent)
    return owners, finding


def _state(call: Call, left_bmk: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Finding]:
    """A sum over tokens of outer products: one place for each set of tokens."""
    batch = shape[0]
    lines = call.places.without_learned(home(left_bmk)).reshape(batch, -1)
    groups = call.places.groups(lines)
    made = torch.tensor([call.places.merged(call.sequence, group) if group else -1 for group in groups])
    call.places.states |= ids(made)
    finding = Finding(mixes=True, computed=distinct(lines, -1), places=ids(lines), content_dependent=True)
    return vectors(made).reshape(batch, 1, 1).expand(shape), finding
