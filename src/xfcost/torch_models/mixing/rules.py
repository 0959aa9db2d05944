"""Which rule an ATen operation follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from xfcost.torch_models.mixing import movement
from xfcost.torch_models.mixing.call import Call, Outcome, unknown
from xfcost.torch_models.mixing.contraction import by_blocks, fused, product
from xfcost.torch_models.mixing.movement import ordered, sampled
from xfcost.torch_models.mixing.owners import CONSTANT, LEARNED, any_owned, everywhere
from xfcost.torch_models.mixing.pointwise import pointwise
from xfcost.torch_models.mixing.reductions import accumulated, normalised, recurrent, reduced, softmax, spectrum
from xfcost.torch_models.mixing.windows import TapKernel, adaptively_pooled, convolved, pooled
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
            raise NotImplementedError("a factor is sparse, and its tokens read those of its nonzero entries alone")
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


def _spectrum(*, back: bool) -> Rule:
    def rule(call: Call) -> Outcome:
        return spectrum(call, call.owners(call.args[0]), list(call.args[1]), call.result.shape, back=back)

    return rule


def _convolution(call: Call) -> Outcome:
    x, weight = call.args[0], call.args[1]
    if any_owned(call.owners(weight)):
        return Outcome([everywhere(CONSTANT, call.result.shape)], unknown("a convolution by computed weights"))
    names = ("stride", "padding", "dilation")
    kernel = TapKernel(list(weight.shape[2:]), *(list(call.argument(name)) for name in names))
    transposed, groups = bool(call.argument("transposed", False)), call.argument("groups")
    return convolved(call, call.owners(x), kernel, transposed=transposed, groups=groups)


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


RULES: Final[dict[Any, Rule]] = {
    **dict.fromkeys(aten_operations("mm bmm mv dot vdot"), _product(0, 1)),
    **dict.fromkeys(aten_operations("_cdist_forward _euclidean_dist"), _distances),
    **dict.fromkeys(aten_operations("_grouped_mm"), _grouped_product),
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
    **dict.fromkeys(aten_operations("amax amin argmax argmin logsumexp"), _reduced(dependent=True)),
    **dict.fromkeys(aten_operations("max min"), _either),
    **dict.fromkeys(aten_operations("cumsum cumprod cummax cummin logcumsumexp"), _accumulated),
    **dict.fromkeys(aten_operations("mkldnn_rnn_layer"), _recurrent),
    **dict.fromkeys(aten_operations("_fft_r2c _fft_c2c"), _spectrum(back=False)),
    aten_operation("_fft_c2r"): _spectrum(back=True),
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
    aten.hardswish: pointwise,
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
