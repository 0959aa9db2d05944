"""Which rule an ATen operation follows; convolutions and pooling, whose outputs read the tokens under a kernel."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from xfcost.torch_models.mixing import movement
from xfcost.torch_models.mixing.call import GATED, PER_TOKEN, Call, Finding, Outcome, ids, unknown
from xfcost.torch_models.mixing.changes import by_changes
from xfcost.torch_models.mixing.contraction import by_blocks, complete_tap, fused, merged_lines, product
from xfcost.torch_models.mixing.movement import ordered, sampled
from xfcost.torch_models.mixing.owners import (
    CONSTANT,
    LEARNED,
    along,
    any_owned,
    content,
    distinct,
    everywhere,
    home,
    reshaped,
    varies,
    vectors,
    with_masked,
)
from xfcost.torch_models.mixing.places import pair
from xfcost.torch_models.mixing.pointwise import pointwise
from xfcost.torch_models.mixing.reductions import accumulated, normalised, recurrent, reduced, softmax, spectrum
from xfcost.torch_models.shared.private_torch import aten_operation, aten_operations

aten: Final = torch.ops.aten
Rule = Callable[[Call], Outcome]


def _matrix(owners: Tensor, *, column: bool = False) -> Tensor:
    """(…) as one batch of matrices; a vector is a row, or a column."""
    if owners.dim() == 1:
        return owners.reshape(1, -1, 1) if column else owners.reshape(1, 1, -1)
    return owners.unsqueeze(0) if owners.dim() == 2 else owners  # noqa: PLR2004 - a matrix


def _product(left: int, right: int) -> Rule:
    def rule(call: Call) -> Outcome:
        if any(value.layout is not torch.strided for value in (call.args[left], call.args[right])):
            raise NotImplementedError("a factor is sparse, and its tokens read only those of its nonzero entries")
        one, other = call.owners(call.args[left]), call.owners(call.args[right])
        outcome = product(call, _matrix(one), _matrix(other, column=True))
        return Outcome([outcome.owners[0].reshape(call.result.shape)], outcome.finding)

    return rule


def _grouped_product(call: Call) -> Outcome:
    """Rows of tokens, sorted by expert, times the weights of their expert."""
    rows, weights = call.owners(call.args[0]), call.owners(call.args[1])
    if any_owned(weights):
        return Outcome([everywhere(CONSTANT, call.result.shape)], unknown("a grouped product of two activations"))
    outcome = product(call, _matrix(rows), everywhere(LEARNED, (1, rows.shape[-1], call.result.shape[-1])))
    return Outcome([outcome.owners[0].reshape(call.result.shape)], outcome.finding)


def _distances(call: Call) -> Outcome:
    """Of every row of the one to every row of the other: read as their products are."""
    shape = call.result.shape
    one, other = (call.owners(x) for x in call.args[:2])
    one, other = (x.expand(*shape[:-2], *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (one, other))
    outcome = product(call, one, other.transpose(1, 2))
    return Outcome([outcome.owners[0].reshape(shape)], outcome.finding)


def _solved(call: Call) -> Outcome:
    """X of A X = B, A a triangle: it depends on the numbers that the triangle times B depends on."""
    system, right = (call.owners(x)[None].flatten(0, -3) for x in call.args[:2])
    if not call.argument("left") or system.shape[0] != right.shape[0]:
        return by_changes(call)
    ones = torch.ones(system.shape[-2:], dtype=torch.bool)
    system = with_masked(system, ones.tril(-1) if call.argument("upper") else ones.triu(1))
    own = pair(home(system), content(system))  # also where a mask left the diagonal out, which is no zero
    system = torch.where(torch.eye(len(ones), dtype=torch.bool), own, system)
    outcome = product(call, system, right)
    return Outcome([outcome.owners[0].reshape(call.result.shape)], outcome.finding)


def _softmax(call: Call) -> Outcome:
    return softmax(call, call.owners(call.args[0]), call.args[1])


def _layer_norm(call: Call) -> Outcome:
    owners = call.owners(call.args[0])
    outcome = normalised(call, owners, list(range(-len(call.args[1]), 0)))
    return _with_statistics(call, outcome)


def _group_norm(call: Call) -> Outcome:
    x, groups = call.args[0], call.argument("group")
    owners = call.owners(x)
    cut = owners.reshape(owners.shape[0], groups, -1)
    outcome = normalised(call, cut, [2])
    return _with_statistics(call, Outcome([outcome.owners[0].reshape(owners.shape)], outcome.finding))


def _batch_norm(call: Call) -> Outcome:
    owners = call.owners(call.args[0])
    training = call.argument("training", False)
    if training:
        axes = [axis for axis in range(owners.dim()) if axis != 1]
        return _with_statistics(call, normalised(call, owners, axes))
    alone = normalised(call, owners.unsqueeze(-1), [-1])
    return _with_statistics(call, Outcome([alone.owners[0].squeeze(-1)], alone.finding))


def _with_statistics(call: Call, outcome: Outcome) -> Outcome:
    rest = [everywhere(CONSTANT, out.shape) for out in call.results[1:]]
    return Outcome([outcome.owners[0], *rest], outcome.finding)


def _reduced(*, dependent: bool) -> Rule:
    def rule(call: Call) -> Outcome:
        owners = call.owners(call.args[0])
        axes = call.argument("dim")
        axes = list(range(owners.dim())) if axes is None else [axes] if isinstance(axes, int) else list(axes)
        keeps = bool(call.argument("keepdim", False))
        outcome = reduced(call, owners, axes, keeps=keeps, dependent=dependent)
        return Outcome([outcome.owners[0] for _ in call.results], outcome.finding)

    return rule


def _either(call: Call) -> Outcome:
    """`max(x)`, `max(x, axis)` and `max(x, y)`."""
    two = len(call.args) > 1 and isinstance(call.args[1], Tensor)
    return pointwise(call) if two else _reduced(dependent=True)(call)


def _accumulated(call: Call) -> Outcome:
    outcome = accumulated(call, call.owners(call.args[0]), call.args[1])
    return Outcome([outcome.owners[0] for _ in call.results], outcome.finding)


def _recurrent(call: Call) -> Outcome:
    return recurrent(call, call.owners(call.args[0]), reverse=bool(call.argument("reverse")))


def _spectrum(call: Call) -> Outcome:
    return spectrum(call, call.owners(call.args[0]), call.args[1], call.result.shape)


def _convolution(call: Call) -> Outcome:
    x, weight = call.args[0], call.args[1]
    names = ("stride", "padding", "dilation")
    kernel = TapKernel(list(weight.shape[2:]), *(list(call.argument(name)) for name in names))
    transposed, groups = bool(call.argument("transposed", False)), call.argument("groups")
    weights = call.places.without_learned(home(call.owners(weight))).reshape(groups, -1)
    if any_owned(weights):
        return _by_weights_of(call, weights, kernel, transposed=transposed)
    outcome = convolved(call, call.owners(x), kernel, transposed=transposed, groups=groups)
    if outcome.finding is None or not call.run.is_given(weight):
        return outcome
    return outcome._replace(finding=outcome.finding._replace(content_dependent=True))


def _pool(*, dependent: bool) -> Rule:
    def rule(call: Call) -> Outcome:
        sides = list(call.argument("kernel_size"))
        rank = int(str(call.packet).rsplit("pool", 1)[1][0])
        sides = sides * rank if len(sides) == 1 else sides
        dilation = list(call.argument("dilation") or [1])
        kernel = TapKernel(
            sides, list(call.argument("stride") or sides), list(call.argument("padding") or [0]), dilation
        )
        return pooled(call, call.owners(call.args[0]), kernel, dependent=dependent)

    return rule


def _adaptive(call: Call) -> Outcome:
    x, out = call.args[0], list(call.args[1])
    if all(size == 1 for size in out):
        return reduced(call, call.owners(x), list(range(-len(out), 0)), keeps=True)
    return adaptively_pooled(call, call.owners(x), out)


def _in_two_parts(call: Call) -> Outcome:
    """Complex numbers as pairs of real ones."""
    return Outcome([call.owners(call.args[0]).unsqueeze(-1).expand(call.result.shape)], None)


def _complex(call: Call) -> Outcome:
    """Pairs of real numbers as complex ones."""
    return Outcome([call.owners(call.args[0]).select(-1, 0)], None)


def _made_anew(call: Call) -> Outcome:
    """A tensor of constants, in the shape of another."""
    return Outcome([everywhere(CONSTANT, result.shape) for result in call.results], None)


_MAXIMUM: Final = 2


def _bags(call: Call) -> Outcome:
    """`embedding_bag`: a sum, mean or maximum of the rows that the numbers of each bag look up."""
    table, numbers, offsets = call.args[:3]
    found = movement.rows_of(call, table, numbers, (numbers.numel(), table.shape[-1]))
    weights, hidden = call.argument("per_sample_weights"), call.argument("padding_idx", -1)
    if weights is not None:
        found = torch.where(found >= 0, found, call.owners(weights).unsqueeze(-1))
    found = torch.where((numbers == hidden).unsqueeze(-1), CONSTANT, found) if hidden >= 0 else found
    ends = [*offsets.tolist(), *([] if call.argument("include_last_offset") else [numbers.numel()])]
    bags = [torch.arange(start, end) for start, end in itertools.pairwise(ends)]
    entries = torch.nn.utils.rnn.pad_sequence(bags, batch_first=True, padding_value=-1)
    lines = torch.where((entries >= 0).unsqueeze(-1), found[entries], CONSTANT)
    outcome = reduced(call, lines, [1], keeps=False, dependent=call.argument("mode") == _MAXIMUM)
    rest = [everywhere(CONSTANT, one.shape) for one in call.results[1:]]
    return Outcome([*outcome.owners, *rest], outcome.finding if any_owned(found) else None)


RULES: Final[dict[Any, Rule]] = {
    **dict.fromkeys(aten_operations("mm bmm mv dot vdot"), _product(0, 1)),
    **dict.fromkeys(aten_operations("_cdist_forward _euclidean_dist"), _distances),
    **dict.fromkeys(aten_operations("_grouped_mm"), _grouped_product),
    **dict.fromkeys(aten_operations("linalg_solve_triangular"), _solved),
    **dict.fromkeys(aten_operations("addmm baddbmm addmv addbmm"), _product(1, 2)),
    **dict.fromkeys(aten_operations("_softmax _log_softmax _safe_softmax"), _softmax),
    **dict.fromkeys(aten_operations("native_layer_norm _fused_rms_norm"), _layer_norm),
    aten.native_group_norm: _group_norm,
    **dict.fromkeys(aten_operations("native_batch_norm _native_batch_norm_legit"), _batch_norm),
    aten_operation("_native_batch_norm_legit_no_training"): _batch_norm,
    **dict.fromkeys(
        aten_operations("mean sum var std prod norm linalg_vector_norm var_mean std_mean any all"),
        _reduced(dependent=False),
    ),
    **dict.fromkeys(aten_operations("amax amin argmax argmin logsumexp kthvalue"), _reduced(dependent=True)),
    **dict.fromkeys(aten_operations("max min"), _either),
    **dict.fromkeys(aten_operations("cumsum cumprod cummax cummin logcumsumexp"), _accumulated),
    **dict.fromkeys(aten_operations("mkldnn_rnn_layer"), _recurrent),
    **dict.fromkeys(aten_operations("_fft_r2c _fft_c2c _fft_c2r"), _spectrum),
    **dict.fromkeys(aten_operations("convolution _convolution mkldnn_convolution"), _convolution),
    **dict.fromkeys(aten_operations("max_pool2d_with_indices max_pool3d_with_indices"), _pool(dependent=True)),
    **dict.fromkeys(aten_operations("avg_pool1d avg_pool2d avg_pool3d"), _pool(dependent=False)),
    **dict.fromkeys(aten_operations("_adaptive_avg_pool2d _adaptive_avg_pool3d"), _adaptive),
    **dict.fromkeys(aten_operations("grid_sampler_2d grid_sampler_3d"), sampled),
    **dict.fromkeys(aten_operations("sort topk"), ordered),
    **dict.fromkeys(
        aten_operations(
            "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
            "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
        ),
        fused,
    ),
    **dict.fromkeys(movement.FIRST, movement.moved),
    **dict.fromkeys(movement.FLOATS, movement.moved),
    **dict.fromkeys(movement.COPIES, movement.copied),
    aten.copy: movement.written_over,
    **dict.fromkeys(aten_operations("cat stack"), movement.put_together),
    **dict.fromkeys(aten_operations("hardswish _conj _neg_view"), pointwise),
    aten.view_as_real: _in_two_parts,
    aten.view_as_complex: _complex,
    aten.where: movement.chosen,
    **dict.fromkeys(aten_operations("masked_fill masked_fill_"), movement.filled),
    **dict.fromkeys(
        aten_operations(
            "new_zeros new_ones new_full new_empty zeros_like ones_like full_like empty_like rand_like randn_like "
            "histc bincount"
        ),
        _made_anew,
    ),
    aten.embedding: movement.looked_up,
    **dict.fromkeys(aten_operations("_embedding_bag _embedding_bag_forward_only"), _bags),
    **dict.fromkeys(
        aten_operations(
            "scatter index_put index_copy slice_scatter select_scatter scatter_add index_add diagonal_scatter "
            "masked_scatter _unsafe_index_put"
        ),
        movement.scattered,
    ),
}


def rule_of(packet: Any, func: Any) -> Rule | None:
    """The rule of an operation, or None."""
    if not hasattr(func, "overloadpacket"):  # a higher-order operator
        return by_blocks if str(func) == "flex_attention" else None
    found = RULES.get(packet)
    if found is None and (func.is_view or getattr(packet, packet.overloads()[0]).is_view):
        return movement.moved
    if found is None and torch.Tag.pointwise in func.tags:
        return pointwise
    return found


_MOVING: Final = frozenset(
    (
        movement.moved,
        movement.copied,
        movement.written_over,
        movement.put_together,
        movement.chosen,
        movement.filled,
        movement.looked_up,
        movement.scattered,
    )
)
# They look like copies, and are views of what has just been made.
_VIEWS: Final = frozenset(aten_operations("_unsafe_view _reshape_alias"))


def is_new(call: Call) -> bool:
    """Has the result nothing of its arguments but their shape?"""
    return RULES.get(call.packet) is _made_anew


def is_movement(call: Call) -> bool:
    """Is the call data movement, or a view?"""
    return rule_of(call.packet, call.func) in _MOVING


def is_pointwise(call: Call) -> bool:
    """Is the call element-wise?"""
    return rule_of(call.packet, call.func) is pointwise


def moves(call: Call) -> bool:
    """Is the call data movement that writes, and not a view?"""
    return is_movement(call) and not call.func.is_view and call.packet not in _VIEWS


# Channels of a convolution that hold different tokens at one position.
_MOST_MAPS: Final = 64


class TapKernel:
    """The geometry of a kernel, one number for each axis."""

    def __init__(self, sides: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> None:
        rank = len(sides)
        self.sides, self.rank = sides, rank
        self.stride, self.padding, self.dilation = (
            list(one) * rank if len(one) == 1 else list(one) for one in (stride or sides, padding, dilation)
        )

    def of_transposed(self) -> TapKernel:
        """The kernel that reads, from an input with gaps, what the transposed convolution adds up."""
        padding = [
            wide * (side - 1) - pad for side, pad, wide in zip(self.sides, self.padding, self.dilation, strict=True)
        ]
        return TapKernel(self.sides, [1] * self.rank, padding, self.dilation)

    def taps(self, places: Tensor, out: tuple[int, ...]) -> Tensor:
        """The places under each tap: (B, *S) -> (B, *out, taps); -1 on paddings."""
        after = [
            max(0, (size - 1) * step + (side - 1) * wide + 1 - length - pad)
            for size, step, side, wide, length, pad in zip(
                out, self.stride, self.sides, self.dilation, places.shape[1:], self.padding, strict=True
            )
        ]
        edges = [one for pair in reversed(list(zip(self.padding, after, strict=True))) for one in pair]
        padded = F.pad(places, edges, value=-1)
        found = []
        for tap in itertools.product(*(range(side) for side in self.sides)):
            cut = tuple(
                slice(at * wide, at * wide + (size - 1) * step + 1, step)
                for at, wide, size, step in zip(tap, self.dilation, out, self.stride, strict=True)
            )
            found.append(padded[(slice(None), *cut)])
        return torch.stack(found, -1)


def convolved(call: Call, owners: Tensor, kernel: TapKernel, *, transposed: bool, groups: int) -> Outcome:
    """Owners (B, C, *S) -> (B, C', *S')."""
    shape, channels = call.result.shape, varies(home(owners), 1)
    if channels and groups > 1:  # samples beside each other, each with a kernel of its own
        owners_of_groups, shape = _groups_apart(owners, groups), _groups_apart(call.result, groups).shape
        channels = varies(home(owners_of_groups), 1)
        owners = owners if channels else owners_of_groups
    if channels:
        return _over_channels(call, owners, kernel, groups, transposed=transposed)
    if transposed:  # an output reads the inputs whose kernels, laid `stride` apart, cover it
        owners, kernel = _spread(owners, kernel.stride), kernel.of_transposed()
    made, finding = _placed(call, owners, kernel, shape)
    made = [reshaped(made[0], call.result.shape)]
    return Outcome(made, None if finding is None else finding._replace(kernel=True))


def _groups_apart(tensor: Tensor, groups: int) -> Tensor:
    """(B, G·C, *S) -> (B·G, C, *S)."""
    return tensor.reshape(tensor.shape[0] * groups, -1, *tensor.shape[2:])


def _by_weights_of(call: Call, weights: Tensor, kernel: TapKernel, *, transposed: bool) -> Outcome:
    """Kernels out of tokens (groups, numbers): an output reads those, and the tokens under its kernel."""
    groups = len(weights)
    owners, shape = (_groups_apart(one, groups) for one in (call.owners(call.args[0]), call.result))
    if transposed:
        owners, kernel = _spread(owners, kernel.stride), kernel.of_transposed()
    if varies(home(owners), 1):
        raise NotImplementedError("its weights are out of tokens, and tokens lie on its channels")
    taps = kernel.taps(call.places.without_learned(home(along(owners, 1))), tuple(shape.shape[2:]))
    read = [sorted(ids(one)) for one in weights] * call.result.shape[0]
    most = max(map(len, read))
    table = torch.tensor([[*one, *[CONSTANT] * (most - len(one))] for one in read]).unsqueeze(1)
    homes = _home_of(taps, kernel).flatten(1)
    homes = torch.where(homes >= 0, homes, table[..., 0])  # the tokens of its weights, where it has no others
    lines = torch.cat([taps.flatten(1, -2), table.expand(-1, homes.shape[1], -1)], -1)
    call.places.meet(homes.unsqueeze(-1).expand(lines.shape), lines)
    found = [call.places.with_members(one) for one in call.places.groups(lines.flatten(0, 1))]
    owners = vectors(homes).reshape(-1, 1, *shape.shape[2:]).expand(shape.shape).reshape(call.result.shape)
    counts = torch.tensor([len(one) for one in found])
    if int(counts.max()) <= 1:
        return Outcome([owners], GATED)
    return Outcome([owners], Finding(mixes=True, computed=counts, places=ids(lines), content_dependent=True))


def _spread(owners: Tensor, stride: list[int]) -> Tensor:
    """Owners with gaps of constants in between, `stride` apart."""
    sides = [(side - 1) * step + 1 for side, step in zip(owners.shape[2:], stride, strict=True)]
    wide = torch.full((*owners.shape[:2], *sides), CONSTANT)
    wide[(slice(None), slice(None), *(slice(None, None, step) for step in stride))] = owners
    return wide


def pooled(call: Call, owners: Tensor, kernel: TapKernel, *, dependent: bool) -> Outcome:
    """Owners (B, C, *S) -> (B, C, *S'), the same for all outputs of the call."""
    if owners.dim() == kernel.rank + 1:
        owners = owners.unsqueeze(0)
    shape = call.result.shape if call.result.dim() == kernel.rank + 2 else (1, *call.result.shape)
    outcome = _placed(call, owners, kernel, torch.Size(shape))
    finding = outcome.finding
    if finding is not None and finding.mixes:
        finding = finding._replace(content_dependent=dependent)
    return Outcome([outcome.owners[0].reshape(out.shape) for out in call.results], finding)


def adaptively_pooled(call: Call, owners: Tensor, out: list[int]) -> Outcome:
    """Means of about equal groups, as many as `out` says: (B, C, *S) -> (B, C, *out)."""
    shape = call.result.shape
    places = home(along(owners, 1))
    for axis, size in enumerate(out, start=1):
        length = owners.shape[axis + 1]
        groups = [range(at * length // size, -((at + 1) * length // -size)) for at in range(size)]
        most = max(map(len, groups))
        table = torch.tensor([[*group, *[group[-1]] * (most - len(group))] for group in groups])
        places = places.index_select(axis, table.flatten()).unflatten(axis, (size, most)).movedim(axis + 1, -1)
    lines = vectors(places.reshape(shape[0], -1, places.shape[1 + len(out) :].numel()))
    made, finding = merged_lines(call, lines, 1, channels=True, overlapping=True)
    return Outcome([made.reshape(shape[0], 1, *out).expand(shape)], finding)


def _placed(call: Call, owners: Tensor, kernel: TapKernel, shape: torch.Size) -> Outcome:
    one = along(owners, 1)
    taps = kernel.taps(call.places.without_learned(home(one)), tuple(shape[2:]))
    counts = distinct(taps, -1)
    if int(counts.max()) <= 1:
        vector = vectors(taps.amax(-1)).unsqueeze(1).expand(shape)
        return Outcome([vector], PER_TOKEN)
    batch = shape[0]
    lines = vectors(taps.reshape(batch, -1, taps.shape[-1]))
    apart = all(
        step >= (side - 1) * wide + 1
        for step, side, wide in zip(kernel.stride, kernel.sides, kernel.dilation, strict=True)
    )
    if apart:
        made, finding = merged_lines(call, lines, 1, channels=True)
        places = made.reshape(batch, *shape[2:])
    else:
        places = vectors(_home_of(taps, kernel))
        finding = Finding(mixes=True, computed=counts.flatten(), places=ids(taps), bounded=True)
    return Outcome([places.unsqueeze(1).expand(shape)], finding._replace(bounded=True))


def _home_of(taps: Tensor, kernel: TapKernel) -> Tensor:
    """The token that an output stands for: the one under the tap at index 0 of the input, as the padding is cut off.

    Without padding it is the tap that no earlier padding hides. Where no token is there, it is any that is read.
    """
    found = complete_tap(taps)
    if any(kernel.padding):
        tap = 0
        for side, pad, wide in zip(kernel.sides, kernel.padding, kernel.dilation, strict=True):
            tap = tap * side + min(pad // wide, side - 1)
        found = taps[..., tap]
    return torch.where(found >= 0, found, taps.amax(-1))


def _over_channels(call: Call, owners: Tensor, kernel: TapKernel, groups: int, *, transposed: bool) -> Outcome:
    """Tokens lie on the channel axis: an output channel reads all tokens of its group."""
    shape = call.result.shape
    if transposed:
        owners, kernel = _spread(owners, kernel.stride), kernel.of_transposed()
    several = groups > 1 or any(side != 1 for side in kernel.sides)
    if several and any(varies(home(owners), axis) for axis in range(2, owners.dim())):
        return _over_several(call, owners, kernel, groups, transposed=transposed)
    made, findings = [], []
    for part in owners.chunk(groups, 1):
        taps = [kernel.taps(places, tuple(shape[2:])).flatten(1, -2) for places in home(part).unbind(1)]
        lines = vectors(torch.cat(taps, -1))
        of_part, finding = merged_lines(call, lines, shape[1] // groups)
        made.append(of_part.transpose(1, 2))
        findings.append(finding)
    return Outcome([torch.cat(made, 1).reshape(shape)], _together(findings))


def _over_several(call: Call, owners: Tensor, kernel: TapKernel, groups: int, *, transposed: bool) -> Outcome:
    """Channels hold different tokens at the same position: a coarser map next to a finer one, pixels of a patch.

    The output's token is the one under the tap at its position, of the channel that tells most tokens apart.
    """
    shape = call.result.shape
    homes = torch.unique(call.places.without_learned(home(owners)), dim=1)
    if transposed or groups > 1 or homes.shape[1] > _MOST_MAPS:
        return Outcome([everywhere(CONSTANT, shape)], unknown("a convolution over two axes of tokens"))
    taps = [kernel.taps(one, tuple(shape[2:])) for one in homes.unbind(1)]
    finest = max(taps, key=lambda one: len(ids(one)))
    counts = distinct(torch.cat(taps, -1), -1)
    finding = Finding(mixes=True, computed=counts.flatten(), places=ids(homes), bounded=True, kernel=True)
    return Outcome([vectors(_home_of(finest, kernel)).unsqueeze(1).expand(shape)], finding)


def _together(findings: list[Finding]) -> Finding:
    """The finding of all groups of channels."""
    first = findings[0]
    if len(findings) == 1:
        return first
    counts = [one.computed for one in findings if one.computed is not None]
    places = frozenset[int]().union(*(one.places for one in findings))
    return first._replace(computed=torch.cat(counts) if counts else None, places=places)
