"""Matrix products: A (b, m, k) · B (b, k, n) -> (b, m, n), by who owns the numbers along the contracted axis.

A's line along k    B's line along k    what it is                         an output belongs to
one token           nobody's            linear map                         the token
several tokens      nobody's            merge of a group, or static map    a new place
one token           one token           scores (query, key)                the query, about the key
one query, keys     tokens              weighted sum of values             the query
several tokens      several tokens      state, a sum of outer products     a new place
one token           several tokens      weights from the query only       the query
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from xfcost.torch_models.mixing.call import GATED, MOST_STATES, PER_TOKEN, Call, Finding, Outcome, ids, reads
from xfcost.torch_models.mixing.owners import (
    CONSTANT,
    along,
    any_learned,
    any_owned,
    any_weights,
    are_pairs,
    at,
    content,
    distinct,
    distinct_pairs,
    everywhere,
    home,
    masked,
    narrowed,
    repetitions,
    swapped,
    varies,
    vectors,
    with_masked,
)
from xfcost.torch_models.mixing.places import pair
from xfcost.torch_models.mixing.pointwise import NEGLIGIBLE, masking

# A line of two numbers may be the weights of two keys.
_TWO_KEYS: Final = 2

# ── several tokens in one line of numbers: new tokens, summaries, or static mixing ──


def _is_summary(call: Call, youngest: Tensor, rows: int) -> bool:
    """Is one place next to every token of a sample, as no coarser map's does?"""
    found = set(youngest.unique().tolist()) - {-1}
    return rows > 1 and len(found) == len({call.places.samples[place] for place in found}) > 0


def merged_lines(
    call: Call, lines_bmk: Tensor, outputs: int, *, channels: bool = False, overlapping: bool = False
) -> tuple[Tensor, Finding]:
    """Lines along k of several homes, to `outputs` numbers each: (b, m, k) -> (b, m, n).

    Where all lines of a sample hold the same tokens, the lines are channels and the outputs new places. `channels`
    says that outputs are channels all the same, `overlapping` that groups make new places even where they overlap.
    """
    batch, rows, _ = lines_bmk.shape
    homes = call.places.without_learned(home(lines_bmk))
    groups = call.places.groups(homes.reshape(batch * rows, -1))
    several = set(filter(None, groups))
    for group in several:
        call.places.check_acquainted(group)
    counts, youngest = distinct(homes, -1), homes.amax(-1, keepdim=True)
    if _is_summary(call, youngest, rows):
        call.places.meet(youngest.expand(homes.shape), homes)
        sizes = {group: len(call.places.with_members(group)) for group in several}
        counts = torch.tensor([sizes.get(group, 0) for group in groups])
    finding = Finding(mixes=True, computed=counts[counts > 0], places=ids(homes), sums=True)
    alike = all(len(set(filter(None, groups[at * rows : (at + 1) * rows]))) <= 1 for at in range(batch))
    if alike and rows > 1 and outputs >= 1 and not channels:
        return vectors(call.made(groups, outputs)).reshape(batch, rows, outputs), finding
    disjoint = sum(map(len, several)) == len(frozenset[int]().union(*several))
    if disjoint or overlapping:
        owners = vectors(call.one_place_each(groups)).reshape(batch, rows, 1).expand(batch, rows, outputs)
        return owners, finding._replace(merges=disjoint)
    homes_bm = complete_tap(home(lines_bmk))
    return vectors(homes_bm).unsqueeze(-1).expand(batch, rows, outputs), finding


def complete_tap(taps: Tensor) -> Tensor:
    """The home of each line of overlapping groups (…, taps): the middle one of those that no padding hides.

    A centred kernel has paddings on both sides, and all middles; a causal one has them before, and all last taps.
    """
    owned = (taps >= 0).flatten(0, -2).sum(0)
    best = (owned == owned.max()).nonzero().flatten()
    middle = best[(best.to(torch.float64) - (taps.shape[-1] - 1) / 2).abs().argmin()]
    return taps[..., int(middle)]


# ── matrix products: A (b, m, k) · B (b, k, n) -> (b, m, n), by who owns the numbers along the contracted axis ──


def product(call: Call, left_bmk: Tensor, right_bkn: Tensor) -> Outcome:
    """Owners and finding of a batched matrix product."""
    left_bmk, right_bnk = normal(left_bmk), normal(right_bkn.transpose(-2, -1))
    owned = any_owned(left_bmk), any_owned(right_bnk)
    if owned == (False, False):
        return _of_parameters(call, left_bmk, right_bnk)
    shape = (left_bmk.shape[0], left_bmk.shape[1], right_bnk.shape[1])
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
    """A line of one query, where masked entries (…, k) of other queries' rows are in it too."""
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
        return owners, _step(call, owners, lines_bmk, finding)
    one = along(lines_bmk, -1).unsqueeze(-1)
    contents = call.places.without_learned(content(lines_bmk))
    if not varies(contents, -1):
        if varies(content(lines_bmk), -1):
            one = vectors(home(one))
        return one.expand(shape), masking(call, one.expand(shape)) if are_pairs(one) else PER_TOKEN
    others = torch.where(contents == home(lines_bmk), -1, contents)
    if lines_bmk.shape[-1] > _TWO_KEYS and not varies(others, -1):  # a query's own vector next to that of one key
        key = others.amax(-1, keepdim=True)
        pairs = pair(home(one), torch.where(key >= 0, key, home(one))).expand(shape)
        return pairs, masking(call, pairs)
    counts = distinct(contents, -1)
    alive = torch.where(masked(lines_bmk), -1, contents)
    finding = Finding(mixes=True, computed=counts, kept=distinct(alive, -1), places=ids(contents))
    return vectors(home(one)).expand(shape), finding


def _step(call: Call, owners: Tensor, lines_bmk: Tensor, finding: Finding) -> Finding:
    """Of a few lines that hold a token and a state, which a recurrence puts side by side."""
    made = home(owners[..., :1]).expand(lines_bmk.shape)
    known = (made >= 0) & (home(lines_bmk) >= 0)
    pairs = distinct_pairs(made[known], home(lines_bmk)[known]).T.tolist()
    if not 0 < len(pairs) <= MOST_STATES:
        return finding
    histories = [call.run.history(value) for value in call.args if isinstance(value, Tensor)]
    steps = call.run.step(call.packet, pairs, {place: past for one in histories for place, past in one.items()})
    if not any(steps):
        return finding._replace(step=True)
    return finding._replace(computed=torch.tensor(steps), sums=False, merges=False, step=True, recurs=True)


def _of_two(call: Call, left_bmk: Tensor, right_bnk: Tensor) -> tuple[Tensor, Finding]:
    shape = (*left_bmk.shape[:2], right_bnk.shape[1])
    turned = (shape[0], shape[2], shape[1])
    left_varies, right_varies = varies(home(left_bmk), -1), varies(home(right_bnk), -1)
    if left_varies and right_varies:
        return _state(call, left_bmk, right_bnk, shape)
    if not left_varies and varies(content(left_bmk), -1):
        return _weighted_sum(call, left_bmk, content(left_bmk), shape, right_bnk)
    if not right_varies and varies(content(right_bnk), -1):
        owners, finding = _weighted_sum(call, right_bnk, content(right_bnk), turned, left_bmk)
        return owners.transpose(-2, -1), finding
    if right_varies and not ids(home(right_bnk)) <= call.places.rows:
        read = home(right_bnk[:, :1]).expand(left_bmk.shape)
        return _weights_by_position(call, 0, *_weighted_sum(call, left_bmk, read, shape, right_bnk))
    if left_varies:
        read = home(left_bmk[:, :1]).expand(right_bnk.shape)
        owners, finding = _weighted_sum(call, right_bnk, read, turned, left_bmk)
        return _weights_by_position(call, 1, owners.transpose(-2, -1), finding)
    return _scores(call, along(left_bmk, -1), along(right_bnk, -1), shape)


def _sums_up(call: Call, left_bm: Tensor, right: Tensor) -> bool:
    """Is every place on the left a sum over tokens, which those on the right read?

    It is one if they are among its own; or if it is the only row, or a running sum, and they are no sums.
    """
    lefts, rights = ids(home(left_bm)), ids(home(right))
    if not lefts or lefts & rights or not lefts <= call.places.makers.keys():
        return False
    alone = left_bm.shape[1] == 1 or lefts <= call.places.states
    among = all(call.places.members.get(place, frozenset()) & rights for place in lefts)
    return among or (alone and not rights <= call.places.makers.keys())


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
        return owners, GATED
    counts = distinct(read, -1)
    single = int(counts.max()) == 1
    if single:
        call.places.check_acquainted(ids(homes) | ids(read))
        owners = vectors(torch.where(known, homes, contents))
        call.places.has_read(call.sequence, homes, ids(read))
        call.run.queries.meet(homes, read)
    call.places.meet(homes, read)
    return owners, Finding(
        mixes=True, computed=counts[known.any(-1)], places=ids(read), content_dependent=True, single=single
    )


def _weights_by_position(call: Call, operand: int, owners: Tensor, finding: Finding) -> tuple[Tensor, Finding]:
    """Weights from the query only, or learned ones: what made them out of the vector mixes by position."""
    if finding.mixes:
        factors = [value for value in call.args if isinstance(value, Tensor)][-2:]
        call.run.by_position(factors[operand], finding, with_product=False)
    return owners, finding


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
    if not are_pairs(values_bnk) and varies(home(values_bnk), -2):
        return _mixtures(call, weights_bmk, shape, values_bnk)
    kept = torch.where(masked(weights_bmk), -1, read)
    wide = homes.unsqueeze(-1).expand(kept.shape)
    call.places.meet(wide, kept)
    call.places.meet(wide, home(values_bnk[:, :1]).expand(kept.shape))
    learned = not (call.places.without_learned(homes) >= 0).any()
    call.places.has_read(call.sequence, homes, ids(kept))
    dependent = not learned or bool((content(weights_bmk) != home(weights_bmk)).any())
    finding = reads(read, kept, homes >= 0, content_dependent=dependent)
    return owners, finding


def _mixtures(call: Call, weights_bmk: Tensor, shape: tuple[int, ...], values_bnk: Tensor) -> tuple[Tensor, Finding]:
    """Values that are rows of several tokens each, summed row by row: a new place for each token of each sum."""
    lines = call.places.without_learned(home(values_bnk))
    made = call.made(call.places.groups(lines.flatten(0, 1)), shape[1])
    owners = vectors(made).reshape(*lines.shape[:2], shape[1]).transpose(1, 2)
    call.places.meet(
        content(weights_bmk[:, :1]).expand(lines.shape), lines
    )  # what was weighed stands for what is summed
    kept = torch.where(masked(weights_bmk), -1, content(weights_bmk))
    return owners, reads(content(weights_bmk), kept, content_dependent=True)


def _state(call: Call, left_bmk: Tensor, right_bnk: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Finding]:
    """A sum over tokens of outer products: one place for each set of tokens.

    Where one of the factors is a softmax over the tokens, each line of it gives a latent vector, as a learned query
    does.
    """
    lines = call.places.without_learned(home(left_bmk)).reshape(shape[0], -1)
    groups = call.places.groups(lines)
    finding = Finding(mixes=True, computed=distinct(lines, -1), places=ids(lines), content_dependent=True)
    for axis, weights in ((1, left_bmk), (2, right_bnk)):
        if any_weights(weights):
            made = call.made(groups, shape[axis])
            call.places.rows |= ids(made)
            call.places.latents |= ids(made)
            return vectors(made).unsqueeze(3 - axis).expand(shape), finding
    made = call.made(groups)
    call.places.states |= ids(made)
    return vectors(made).reshape(-1, 1, 1).expand(shape), finding


# ── attention in one kernel: softmax(QKᵀ·scale + mask)V, as `scaled_dot_product_attention` runs it ──


def fused(call: Call) -> Outcome:
    """Queries (…, N, K), keys (…, M, K), values (…, M, V) -> (…, N, V) and statistics."""
    outcome, mask = _attended(call, lambda shape: _hidden(call, shape)), _mask(call)
    if mask is not None and any_owned(call.owners(mask)) and outcome.finding is not None:
        call.run.by_position(mask, outcome.finding, with_product=True)
    return outcome


def by_blocks(call: Call) -> Outcome:
    """FlexAttention: the pairs that its mask function leaves out, in whichever blocks, have no weight."""
    blocks, function = call.args[4][2], call.args[4][-1]  # how many of each row of blocks, (B, H, rows); the mask

    def hidden(shape: tuple[int, ...]) -> Tensor:
        batch, heads, queries, keys = shape
        numbers = [torch.arange(size) for size in (blocks.shape[0], blocks.shape[1], queries, keys)]
        kept = function
        for axis in range(3, -1, -1):
            kept = torch.vmap(kept, in_dims=tuple(0 if at == axis else None for at in range(4)))
        return ~kept(*numbers).expand(batch, heads, queries, keys)

    return _attended(call, hidden)


def _attended(call: Call, hidden_in: Callable[[tuple[int, ...]], Tensor]) -> Outcome:
    query, key, value = (along(call.owners(one), -1) for one in call.args[:3])
    if not any_owned(query) and (any_owned(key) or any_owned(value)):  # learned ones, as they are
        first = call.places.add_learned(query.shape[-1], call.sequence)
        query = vectors(torch.arange(first, first + query.shape[-1])).expand(query.shape)
    homes = home(query)
    rest = [everywhere(CONSTANT, out.shape) for out in call.results[1:]]
    if not any_owned(key) and not any_owned(value):
        owners = query.unsqueeze(-1).expand(call.result.shape)
        return Outcome([owners, *rest], PER_TOKEN if any_owned(query) else None)
    groups = (*key.shape[:2], homes.shape[1] // key.shape[1], *key.shape[2:])  # queries that share a key
    read = call.places.read_by(homes, content(key)).unsqueeze(2).expand(groups).flatten(1, 2)
    hidden = hidden_in((*homes.shape, key.shape[-1]))
    wide = homes.unsqueeze(-1).expand(hidden.shape)
    read = _without(wide < 0, read.unsqueeze(-2).expand(hidden.shape))
    kept = _without(hidden, read)
    call.places.meet(wide, kept)
    call.places.has_read(call.sequence, homes, ids(kept))
    finding = reads(read, kept, homes >= 0, content_dependent=True)
    return Outcome([vectors(homes).unsqueeze(-1).expand(call.result.shape), *rest], finding)


def _without(hidden: Tensor, read: Tensor) -> Tensor:
    """`read` with -1 for what is hidden; as it is laid out where nothing is."""
    few, one = narrowed(hidden, read)
    return torch.where(few, -1, one).expand(read.shape) if bool(few.any()) else read


def _mask(call: Call) -> Tensor | None:
    mask = call.argument("attn_mask")
    mask = call.argument("attn_bias") if mask is None else mask
    return mask if isinstance(mask, Tensor) else None


def _hidden(call: Call, shape: tuple[int, ...]) -> Tensor:
    """The pairs that a mask leaves out: (B, H, N, M)."""
    hidden = torch.zeros(shape[-2:], dtype=torch.bool)
    if call.argument("is_causal"):
        hidden = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    mask = _mask(call)
    if mask is not None:
        hidden = hidden | (~mask if mask.dtype == torch.bool else mask <= NEGLIGIBLE)
    return hidden.expand(shape)
