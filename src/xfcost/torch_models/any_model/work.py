"""The operations of a run, its calls by module and place in the source, with their backward passes; and their rows.

What runs with gradients enabled during the backward pass is a forward that runs again (checkpointing, reversible
residuals).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any, Final, NamedTuple

import msgspec
import torch

from xfcost.formulas.arithmetic import causal_pairs, ceil_div
from xfcost.formulas.operation_names import named_rows
from xfcost.ledger.accounts import RUN, TrainingFigures, WeightsRead
from xfcost.ledger.matrices import AttentionCore, Matrix
from xfcost.ledger.module_rows import ModuleRow, block_of, collapsed, parts_of, with_parameters, with_trace
from xfcost.ledger.operation import Mixing, Operation
from xfcost.ledger.quantization import WeightMatrix
from xfcost.ledger.ran import RanOperation
from xfcost.ledger.record import costs_by_module
from xfcost.torch_models.any_model.residuals import ResidualAdd, ResidualAdds
from xfcost.torch_models.running.costs import does_work
from xfcost.torch_models.running.on_meta import attention_operands
from xfcost.torch_models.running.record import ATTENTION, Lineage, NodeOwners, RecordedCall, RunRecord, TensorRecord
from xfcost.torch_models.shared.private_torch import aten_operations

Shapes = tuple[tuple[int, ...], ...]
# A module, the name of an operation, and the call in the source.
Key = tuple[Any, ...]
_MOST_SHAPES: Final = 4
# Products of experts, of rows sorted by the expert that they chose.
_GROUPED: Final = ("_grouped_mm", "_scaled_grouped_mm")
_PRODUCTS: Final = (*_GROUPED, "mm", "addmm", "bmm", "baddbmm")
# Of a table, the rows that whole numbers name.
_LOOK_UPS: Final = ("embedding", "index", "_unsafe_index", "index_select", "gather", "take", "_embedding_bag")
# Which of each list is the largest, or is drawn.
_CHOICES: Final = ("topk", "argmax", "argmin", "max", "min", "sort", "argsort", "multinomial")


class Read(NamedTuple):
    """Elements of a parameter that are read."""

    elements: int
    looked_up: bool = False
    """Are they rows of a table, of which more samples may read others?"""


@dataclass(eq=False, slots=True)
class Work:
    """An operation, a call in the source of a module: what all its repetitions cost, on what shapes, which weights."""

    path: str
    operation: str
    place: Key | None = None
    """Its module, its name and the call in the source: the same in every run of the module in this process."""
    costs: Counter[str] = field(default_factory=Counter)
    uncounted: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    sequence: list[int] = field(default_factory=list)
    """The numbers of its ATen operations in the order in which the run's operations ran, from 0."""
    inputs: Shapes = ()
    outputs: Shapes = ()
    """Of the first call."""
    varied: bool = False
    """Did a later call have other shapes than the first?"""
    weights: dict[str, None] = field(default_factory=dict)
    """The parameters that it takes, in order, or what was computed from them alone."""
    reads: dict[tuple[str, Hashable], Read] = field(default_factory=dict)
    """What it reads itself: a parameter, and a view of it or a look-up in it."""
    choices: dict[int, int] = field(default_factory=dict)
    """The calls that chose what it looks up, or the experts that it multiplies with -> in how many lists each chose."""
    rows: Counter[str] = field(default_factory=Counter)
    """How many rows of each parameter they chose."""
    matrices: dict[str, WeightMatrix] = field(default_factory=dict)
    """Those of the parameters that it multiplies by activations: linear maps, and experts."""
    entries: int = 0
    """Attention scores that it makes, of all calls."""
    fused_entries: int = 0
    """Scores that a fused kernel never writes."""
    fused_statistics: int = 0
    """Log-sum-exps that a fused kernel would write instead of this softmax."""
    matrix: Matrix | None = None
    core: AttentionCore | None = None
    heads: int | None = None
    pairs: int | None = None
    """Query-key pairs of a head that a causal kernel keeps."""
    masked: bool = False
    """Is a fused kernel given a mask? Its values are not known."""
    backward_macs: int = 0
    """MACs of its backward pass; those that run its forward again are `recomputed_macs`."""
    recomputed_macs: int = 0
    recomputed: bool = False
    """Does the backward pass run it again?"""
    kept_bytes: int = 0
    """Activations that it is the first to save for the backward pass."""
    seconds: float | None = None
    predicted_seconds: float | None = None
    operand_bytes: int = 0
    """Bytes that its calls move: inputs, outputs and weights, each tensor of a call once."""
    mixing: Mixing = "unknown"
    """Its kind, if somebody finds it."""
    content_dependent: bool = False
    reads_tokens: int | None = None
    computed_tokens: int | None = None
    """Tokens that it computes for each token, where a mask keeps fewer."""
    kept_tokens: int | None = None
    """What the mask keeps of them: the median."""
    kind_missing: str | None = None
    """Why its kind is not known, if somebody looked."""
    merges_all: bool = False
    """Does it merge all tokens into one vector, and is per-token for that?"""
    residual: ResidualAdd | None = None
    """What its first call adds, if every call is the add at the end of a residual path."""
    adds_to: Key | None = None
    """The operation whose result that adds back; None of the run's input."""

    def elements_read(self) -> dict[str, Read]:
        """Of each parameter that it reads."""
        found: dict[str, Read] = {}
        for (name, _), (elements, looked_up) in self.reads.items():
            before = found.get(name, Read(0))
            found[name] = Read(before.elements + elements, before.looked_up or looked_up)
        return found

    @property
    def call(self) -> Hashable:
        """Its module and the call in the source, which may run other operations on other devices."""
        return None if self.place is None else (self.place[0], *self.place[2:])

    @property
    def site(self) -> Hashable:
        """The call in the source, in whichever module."""
        return None if self.place is None else self.place[1:]

    @property
    def name(self) -> str:
        return self.operation.removeprefix("aten::")


aten: Final = torch.ops.aten
# A contraction whose first operand is an added term.
_ADDED_FIRST: Final = frozenset((aten.addmm, aten.baddbmm, aten.addbmm, aten.addmv))
SOFTMAXES: Final = frozenset(aten_operations("_softmax _safe_softmax"))


class Lineages:
    """The lineage of every tensor of a run, call by call."""

    def __init__(self) -> None:
        self._known: dict[int, Lineage] = {}

    def __getitem__(self, tensor: TensorRecord) -> Lineage:
        return self._known.get(tensor.tensor) or tensor.source or Lineage()

    def note(self, call: RecordedCall, lineage: Lineage) -> None:
        self._known.update((tensor.tensor, lineage) for tensor in call.outputs)

    def inherited(self, call: RecordedCall) -> Lineage:
        """The lineage of a call's results. Views and element-wise work keep scores."""
        known = [self[tensor] for tensor in call.inputs]
        varies = any(one.varies for one in known)
        weights = frozenset() if varies else frozenset[str]().union(*(one.weights for one in known))
        size = call.outputs[0].numel if call.outputs else 0
        kept = [one for one, tensor in zip(known, call.inputs, strict=True) if one.scores and tensor.numel <= size]
        # a copy without a row of its own is read where it is used
        costs = bool(call.costs and any(call.costs.values()))
        computed = costs or any(one.computed for one in known)
        copies = 1
        if not costs and len(call.inputs) == len(call.outputs) == 1:  # a view or a copy
            before, after = call.inputs[0], call.outputs[0]
            if before.stored and (before.stored == after.stored or before.numel == after.numel):
                copies = known[0].copies * after.stored // before.stored
        alone = known[0] if len(known) == 1 and not costs else Lineage()
        first = kept[0] if varies and kept else Lineage()
        numbers = (one.choice for one, of in zip(known, call.inputs, strict=True) if not of.dtype.is_floating_point)
        chosen = next((one for one in numbers if one is not None), None)
        if call.operation.removeprefix("aten::") in _CHOICES and call.inputs and call.inputs[0].dtype.is_floating_point:
            chosen = call.number, _lists(call)
        return first._replace(
            varies=varies, weights=weights, computed=computed, copies=copies, choice=chosen,
            rows_of=alone.rows_of,
        )  # fmt: skip

    def after_contraction(self, found: Lineage, call: RecordedCall, operation: Any) -> Lineage:
        """The lineage of a contraction's result: `operation`, if it multiplies activations.

        A learned map of the same size keeps the scores that it is given.
        """
        first = 1 if getattr(call.func, "overloadpacket", None) in _ADDED_FIRST else 0
        operands = [one for one in call.args[first : first + 2] if isinstance(one, TensorRecord) and self[one].varies]
        if len(operands) == 2:  # noqa: PLR2004
            return found._replace(scores=operation, mapped=False)
        size = call.outputs[0].numel
        same_size = any(self[one].scores is found.scores and one.numel == size for one in call.inputs)
        return found._replace(scores=found.scores if same_size else None, mapped=True)


# What no forward operation has caused, such as a hook on a parameter's gradient.
_NOBODY: Final[Key] = ("", "backward", None, None)


class RecordedOperations:
    """The operations of `run`, in the order in which each first ran.

    An operation is a call in the source: a loop that runs it again adds to it. With `keeps_free` those without costs
    are kept too, but for views.
    """

    def __init__(self, run: RunRecord, *, keeps_free: bool = False) -> None:
        self.works: dict[Key, Work] = {}
        self.uncounted = Counter(run.missing)
        """What ran outside all operations, or in the backward pass, and that no table knows."""
        self.seconds: dict[Key, float] = {}
        self.keys: dict[int, Key] = {}
        """`id` of a call -> its operation; functions' parts included."""
        self._keeps_free = keeps_free
        self._lineages = Lineages()
        self._owners = NodeOwners()
        self._calls: dict[Key, list[Key]] = defaultdict(list)
        for call in run.calls:
            if call.phase == "forward":
                self._forward(call)
        for key in self.works:
            self._calls[key[2:]].append(key)
        for call in run.calls:
            if call.phase != "forward":
                self._again(call) if call.phase == "again" else self._backward(call)
        for one in run.first_saved():
            self._work(self._saver(one.newest_node)).kept_bytes += one.nbytes

    def find_residuals(self, run: RunRecord) -> None:
        """Note which operations are residual adds, and what they add to."""
        found: dict[Key, list[ResidualAdd]] = defaultdict(list)
        adds = ResidualAdds(run.calls).found()
        for call in run.calls:
            if id(call) in adds:
                found[self.keys[id(call)]].append(adds[id(call)])
        for key, several in found.items():
            if (work := self.works.get(key)) is not None and len(several) == work.calls:
                work.residual, work.adds_to = several[0], self.keys.get(id(several[0].source))

    def _work(self, key: Key) -> Work:
        if key not in self.works:
            self.works[key] = Work(key[0], key[1], key)
        return self.works[key]

    def _charge(self, key: Key, call: RecordedCall) -> None:
        self.keys[id(call)] = key
        if call.seconds and does_work(call.func):
            self.seconds[key] = self.seconds.get(key, 0.0) + call.seconds

    def _forward(self, call: RecordedCall) -> None:
        key = (call.module, call.operation, *call.place)
        self._charge(key, call)
        for part in call.parts:
            self._charge(key, part)
            self._owners.own(part.next_node, key, has_costs=True)
            self._lineages.note(part, self._lineages.inherited(part))
        found = self._lineages.inherited(call)
        counted = call.costs is None or any(call.costs.values()) or bool(call.uncounted)
        kept = counted or (self._keeps_free and (bool(call.parts) if call.is_function else does_work(call.func)))
        if not call.is_function:
            self._owners.own(call.next_node, key, has_costs=kept)
        if not kept:
            if not call.is_function:
                self._lineages.note(call, found)
            return
        work = self._work(key)
        self._add(work, call)
        if call.is_function:
            work.sequence += [part.number for part in call.parts]
            if call.operation == ATTENTION and not any(one.is_nested for one in call.inputs):
                note_fused(work, call, self._lineages)
            return
        if call.func is None:  # a loop over tokens
            self._lineages.note(call, Lineage(varies=True))
            return
        work.sequence.append(call.number)
        self._lineages.note(call, self._result(work, call, found))

    def _result(self, work: Work, call: RecordedCall, found: Lineage) -> Lineage:
        """The lineage of a call's result, `found` but for what its operation makes of it."""
        if getattr(call.func, "overloadpacket", None) in SOFTMAXES:
            scores = call.args[0]
            note_softmax(work, scores, self._lineages[scores], call.args[1])
            return found._replace(scores=None)
        if work.name in _LOOK_UPS and work.choices:
            table = self._lineages[call.inputs[0]].weights
            return found._replace(rows_of=(work, *table, call.inputs[0].stored) if len(table) == 1 else None)
        if call.costs and call.costs["macs"]:
            return self._lineages.after_contraction(found, call, work)
        return found

    def _add(self, work: Work, call: RecordedCall) -> None:
        """Add one call: its costs, its shapes if it is the first, the parameters it takes."""
        if call.costs is None:
            work.uncounted[work.operation] += 1
        else:
            work.costs.update(call.costs)
        work.uncounted.update(call.uncounted)
        inputs, outputs = (tuple(tuple(one.shape) for one in each) for each in (call.inputs, call.outputs))
        if not work.calls:
            work.inputs, work.outputs = inputs, outputs
        work.varied |= (inputs, outputs) != (work.inputs, work.outputs)
        work.calls += 1
        known = [self._lineages[tensor] for tensor in call.inputs]
        looks_up = work.name in _LOOK_UPS and bool(known) and bool(known[0].weights)
        work.operand_bytes += _operand_bytes(call.inputs, call.outputs, looks_up=looks_up)
        for tensor, found in zip(call.inputs, known, strict=True):
            work.weights.update(dict.fromkeys(sorted(found.weights)))
            if found.computed:
                continue
            view: Hashable = (tensor.storage, tensor.shape, tensor.strides, tensor.offset)
            read = Read(tensor.stored)
            if looks_up and tensor is call.inputs[0]:
                view, read = call.number, Read(call.costs["moved"] if call.costs else 0, looked_up=True)
            work.reads.update(dict.fromkeys(((name, view) for name in found.weights), read))
        if looks_up or work.name in _GROUPED:
            chosen = [(one.choice, of) for one, of in zip(known, call.inputs, strict=True) if one.choice is not None]
            work.choices.update(choice for choice, _ in chosen)
            rows = max((tensor.stored for _, tensor in chosen), default=0) if looks_up else call.inputs[0].shape[0]
            work.rows.update(dict.fromkeys(known[0 if looks_up else 1].weights, rows))
        if work.name in _PRODUCTS:
            self._add_matrix(work, call)

    def _add_matrix(self, work: Work, call: RecordedCall) -> None:
        """Add the parameter that is the second operand of a product, of shape (inputs, outputs), of experts each.

        Of operands that are rows of a parameter, each a matrix, the operation that read them has the matrices.
        """
        first = 1 if getattr(call.func, "overloadpacket", None) in _ADDED_FIRST else 0
        for place, axis in ((first, -1), (first + 1, -2)):
            operand = call.args[place]
            rows = self._lineages[operand].rows_of if isinstance(operand, TensorRecord) else None
            if rows is not None and len(operand.shape) > 2:  # noqa: PLR2004 - one matrix for each row
                size = operand.shape[-2:].numel()
                matrix = WeightMatrix(operand.shape[axis], size // operand.shape[axis], rows[2] // size)
                rows[0].matrices.setdefault(rows[1], matrix)
        weight = call.args[first + 1]
        found = self._lineages[weight] if isinstance(weight, TensorRecord) else Lineage(varies=True)
        if found.varies or len(found.weights) != 1 or len(weight.shape) < 2:  # noqa: PLR2004 - no matrix
            return
        inputs, outputs = weight.shape[-2:]
        work.matrices.setdefault(next(iter(found.weights)), WeightMatrix(inputs, outputs, weight.shape[:-2].numel()))

    def _saver(self, node: int) -> Key:
        """The operation that saves with this node; of the inputs that a checkpoint saves the one that ran before it.

        Where none ran before, the first that runs.
        """
        key = self._maker(node)
        if key in self.works or key == _NOBODY:
            return key
        before = (one for one in self._owners.before(node) if one in self.works)
        return next(before, next(iter(self.works), key))

    def _maker(self, node: int | None) -> Key:
        return self._owners.owner(node) or _NOBODY

    def _backward(self, call: RecordedCall) -> None:
        key = self._maker(call.node)
        self._charge(key, call)
        if call.costs is None:
            self.uncounted[f"{call.operation} in the backward pass"] += 1
        elif call.costs["macs"]:
            self._work(key).backward_macs += call.costs["macs"]

    def _again(self, call: RecordedCall) -> None:
        key = self._original(call)
        for part in call.parts or (call,):
            self._charge(key, part)
            self._owners.own(part.next_node, key, has_costs=bool(call.costs and any(call.costs.values())))
        if call.costs is None:
            self.uncounted[f"{call.operation}, recomputed in the backward pass"] += 1
        elif key in self.works or call.costs["macs"]:  # not the parts of a function that costs nothing
            work = self._work(key)
            work.recomputed = True
            work.backward_macs += call.costs["macs"]
            work.recomputed_macs += call.costs["macs"]

    def _original(self, call: RecordedCall) -> Key:
        """The operation that ran first at this call: in the module that runs again, or around the node in need."""
        around = f"{self._maker(call.node)[0]}."
        found = [
            key
            for key in self._calls.get(call.place, ())
            if (key[0] == call.module if call.module else not key[0] or around.startswith(f"{key[0]}."))
        ]
        if not found:
            return (call.module or around[:-1], call.operation, *call.place)
        return max(found, key=lambda key: (len(key[0]), key[1] == call.operation))


def _lists(call: RecordedCall) -> int:
    """In how many lists it chose: of each k numbers (topk, multinomial), all (sort), or one."""
    name, given, chosen = call.operation.removeprefix("aten::"), call.inputs[0], call.outputs[-1]
    if name in ("topk", "multinomial"):
        return chosen.numel // max(call.args[1], 1)
    if name not in ("sort", "argsort"):
        return chosen.numel
    axes = [one for one in (*call.args[1:], call.kwargs.get("dim")) if type(one) is int]
    return given.numel // max(given.shape[axes[0] if axes else -1], 1) if given.shape else 1


def _operand_bytes(given: list[TensorRecord], results: list[TensorRecord], *, looks_up: bool) -> int:
    """Bytes of inputs, outputs and weights, each tensor once; of a table those of its rows that are read."""
    held = {(one.tensor, one.shape, one.strides): one.nbytes for one in (*given, *results)}
    if looks_up and results:
        table, rows = ((one.tensor, one.shape, one.strides) for one in (given[0], results[0]))
        held[table] = min(held[table], held[rows])
    return sum(held.values())


def note_softmax(softmax: Work, scores: TensorRecord, lineage: Lineage, axis: int) -> None:
    """If `scores` are a product of two activations, they are attention scores, and the softmax makes the weights."""
    product: Work | None = lineage.scores
    if product is None or (lineage.mapped and not _same_matrix(product, scores, axis)):
        return
    entries = scores.numel
    keys = scores.shape[axis]
    product.entries += entries
    product.heads = softmax.heads = scores.shape[:-2].numel()
    # of all calls: those saved for training add up, of those alive at once the largest counts
    for work, alive, saved in ((product, entries, 0), (softmax, 2 * entries, entries)):
        before = work.matrix or Matrix(0, 0, 0)
        work.matrix = Matrix(before.entries + entries, max(before.alive, alive), before.saved + saved)
    softmax.fused_statistics += entries // keys if keys else 0


def _same_matrix(product: Work, scores: TensorRecord, axis: int) -> bool:
    """Do `scores` have the product's elements, queries and keys? Otherwise a map has made something else."""
    made = product.outputs[0]
    queries, keys = scores.shape[-2:] if axis in (-1, len(scores.shape) - 1) else (0, 0)
    return prod(made) == scores.numel and {queries, keys} == set(made[-2:])


def note_fused(attention: Work, call: RecordedCall, lineages: Lineages) -> None:
    """A fused kernel of q (…, N, K), k (…, M, K), v (…, M, V): no matrix, a log-sum-exp per head and query.

    Its core runs once for each head of keys and values, which several heads of queries may share.
    """
    operands = attention_operands(call.args, call.kwargs)
    q, k, v = (operands[name] for name in ("query", "key", "value"))
    heads, (queries, width), keys = call.outputs[0].shape[:-2].numel(), q.shape[-2:], k.shape[-2]
    statistics = heads * queries
    before = attention.matrix.statistics if attention.matrix else 0
    attention.matrix = Matrix(0, 0, 0, before + statistics)
    attention.entries += statistics
    attention.heads = heads
    attention.fused_entries += heads * queries * keys
    times = gcd(heads, max(one.stored // max(prod(one.shape[-2:]) * lineages[one].copies, 1) for one in (k, v)))
    attention.core = AttentionCore(times, statistics // max(times, 1), keys, width, v.shape[-1])
    attention.pairs = causal_pairs(queries, keys) if operands.get("is_causal") else None
    attention.masked |= operands.get("attn_mask") is not None


def uncounted(works: Sequence[Work]) -> Counter[str]:
    """The operations that no table knows, with how often they ran."""
    return sum((work.uncounted for work in works), Counter[str]())


def give_seconds(works: Sequence[Work], seconds: Mapping[Key, float], name: str) -> None:
    """Add the seconds that operations took in another run to the field `name` of these.

    A device may run other kernels for the same call; they are that call's.
    """
    by_key, by_call = {work.place: work for work in works}, dict[Hashable, Work]()
    for work in works:
        by_call.setdefault(work.call, work)
    for key, spent in seconds.items():
        owner = by_key.get(key) or by_call.get((key[0], *key[2:]))
        if owner is not None:
            setattr(owner, name, (getattr(owner, name) or 0.0) + spent)


# ── rows of a ledger ──


# What an operation and its row call the same.
_SAME_FIELDS: Final = (
    "mixing", "content_dependent", "reads_tokens", "matrix", "core", "heads", "pairs", "seconds", "predicted_seconds",
)  # fmt: skip


def module_rows(
    works: Sequence[Work], elements: Mapping[str, int], traced: Mapping[str, Mapping[str, int]], name: str, *,
    tokens: int | None = None, training: bool = False,
) -> tuple[list[Operation], list[str]]:  # fmt: skip
    """A row per operation of a module, repeated blocks as one; and the names of parameters that nothing took.

    A parameter lives in the row of the first operation of its own module that takes it, else of the product that a
    module around takes it for; those that none takes have a row of their own. `elements` are theirs by name; `traced`
    has the trace of each module that has one; `tokens` are those of the run, which choose experts; with `training`
    every row has its backward pass.
    """
    home, owners = _homes(works)
    numbers: Counter[int] = Counter()
    loose: Counter[str] = Counter()
    for weight, number in elements.items():
        if weight in home:
            numbers[id(home[weight])] += number
        else:
            loose[weight.rpartition(".")[0]] += number
    matrices = _matrices_of_blocks(works, home)
    # the last matrix outside the blocks scores the words of the vocabulary
    words = next((found for work in reversed(works) if work.matrices and (found := _rows_of_table(work))), None)
    rows, names = list[ModuleRow](), _numbered(works, owners)
    paths = {
        work.place: (*parts_of(owners.get(id(work), work.path)), name)
        for work, name in zip(works, names, strict=True)
    }  # fmt: skip
    for work, title in zip(works, names, strict=True):
        one = _placed(work, title, numbers[id(work)], elements, tokens, training=training)
        of_words = _rows_of_table(work) == words and not matrices.get(id(work)) and words is not None
        held = msgspec.structs.replace(
            one.row, weight_matrices=matrices.get(id(work), ()), vocabulary=of_words, adapter=_is_adapter(work)
        )
        if work.residual is not None and held.ran is not None:
            start, source = block_of(parts_of(work.path)), paths.get(work.adds_to, ())
            inside = ".".join(source[len(start) :]) if source[: len(start)] == start else ""
            ran = msgspec.structs.replace(held.ran, adds_to=inside, adds=work.residual.branch)
            held = msgspec.structs.replace(held, role="add", ran=ran)
        rows.append(one._replace(row=held))
    places = {id(one.row): work for one, work in zip(rows, works, strict=True)}
    placed = with_parameters(rows, loose)
    moved = [owners.get(id(places.get(id(one.row)))) for one in placed]
    traces = with_trace(placed, costs_by_module((one.path, one.costs) for one in works), traced)
    own = [one if owner is None else _of_owner(one, owner) for one, owner in zip(traces, moved, strict=True)]
    taken = {weight for work in works for weight in work.weights}
    return list(named_rows(collapsed(own), name)), [one for one in elements if one not in taken]


def _numbered(works: Sequence[Work], owners: Mapping[int, str]) -> list[str]:
    """The names of operations; those of the same name in a module get numbers: `bmm`, `bmm_2`."""
    seen: Counter[tuple[str, str]] = Counter()
    names = []
    for work in works:
        place = owners.get(id(work), work.path), work.name
        seen[place] += 1
        names.append(work.name if seen[place] == 1 else f"{work.name}_{seen[place]}")
    return names


def _homes(works: Sequence[Work]) -> tuple[dict[str, Work], dict[int, str]]:
    """The operation in whose row each parameter lives; and `id` of a product -> the module inside its own whose it is.

    A module may use the parameters of one inside it and never call that, as attention of torch does with its output
    projection: the product is then the inner module's row.
    """
    home: dict[str, Work] = {}
    for work in works:
        for weight in work.weights:
            if weight.rpartition(".")[0] == work.path:
                home.setdefault(weight, work)
    owners: dict[int, str] = {}
    for work in works:
        modules = {weight.rpartition(".")[0] for weight in work.weights}
        owner = modules.pop() if len(modules) == 1 else ""
        inside = owner.startswith(f"{work.path}.") if work.path else bool(owner)
        # scores may have a learned bias, and are no product with it
        is_product = work.costs["macs"] and not work.entries
        if is_product and inside and not any(weight in home for weight in work.weights):
            owners[id(work)] = owner
            home.update(dict.fromkeys(work.weights, work))
    return home, owners


def _of_owner(one: ModuleRow, owner: str) -> ModuleRow:
    """A row as that of `owner`, a module inside its own."""
    start = f"{owner.removeprefix('.'.join(one.parts)).removeprefix('.')}."
    return one._replace(parts=parts_of(owner), weights=tuple(name.removeprefix(start) for name in one.weights))


def _rows_of_table(work: Work) -> int | None:
    """Rows of a look-up table, or outputs of a matrix, outside the blocks."""
    if any(part.isdecimal() for part in parts_of(work.path)):
        return None
    if work.name == "embedding" and work.inputs:
        return work.inputs[0][0]
    return next((int(one.outputs) for one in work.matrices.values()), None)


def _is_adapter(work: Work) -> bool:
    """Is it of LoRA, by the names that peft gives its maps?"""
    return not {"lora_A", "lora_B"}.isdisjoint(parts_of(work.path))


def _matrices_of_blocks(works: Sequence[Work], home: Mapping[str, Work]) -> dict[int, tuple[WeightMatrix, ...]]:
    """`id` of an operation in a numbered block -> the matrices that live in its row.

    Without a router of experts, and adapters, by the names that peft gives them.
    """
    experts = {
        (work.path.rpartition(".")[0], one.count) for work in works for one in work.matrices.values() if one.count > 1
    }
    found: dict[int, tuple[WeightMatrix, ...]] = {}
    for work in works:
        if any(part.isdecimal() for part in parts_of(work.path)) and not _is_adapter(work):
            around = work.path.rpartition(".")[0]
            own = (one for name, one in work.matrices.items() if home.get(name) is work)
            found[id(work)] = tuple(one for one in own if one.count > 1 or (around, one.outputs) not in experts)
    return found


def shapes_text(shapes: Shapes) -> str:
    """`1×197×768, 768×2304`; a number of one element is `()`; of many tensors the first ones."""
    texts = ["×".join(map(str, shape)) or "()" for shape in shapes[:_MOST_SHAPES]]
    return ", ".join([*texts, *(["…"] if len(shapes) > _MOST_SHAPES else [])])


def _experts(work: Work, params: int, elements: Mapping[str, int], tokens: int | None) -> dict[str, Any]:
    """Of chosen experts, the parameters that a token leaves idle, and those that the run reads.

    A grouped product: rows (P, K) of T tokens meet weights (E, K, M), and each token has chosen k = P/T of the E
    experts. A look-up: P rows of a stacked parameter. T is in how many lists experts were chosen, or else `tokens`.
    """
    grouped = work.name in _GROUPED
    lists = sum(work.choices.values()) or (tokens if grouped else None)
    if not lists or not params or params != sum(elements[name] for name in work.rows):
        return {}
    most = active = 0
    for name, rows in work.rows.items():
        each = elements[name] // work.inputs[1][0] if grouped else work.elements_read()[name].elements // rows
        most += min(rows * each, elements[name])
        active += min(ceil_div(rows, lists) * each, elements[name])
    return {"idle_params": params - active, "weights_read": WeightsRead(most, params, lists)}


def _placed(
    work: Work, title: str, params: int, elements: Mapping[str, int], tokens: int | None, *, training: bool
) -> ModuleRow:
    costs: dict[str, Any] = {quantity: work.costs[quantity] for quantity in RUN}
    costs |= {name: getattr(work, name) for name in _SAME_FIELDS}
    reads = work.elements_read()
    read = sum(min(one.elements, elements[name]) for name, one in reads.items())
    at_most = sum(elements[name] if one.looked_up else min(one.elements, elements[name]) for name, one in reads.items())
    if training:
        figures = TrainingFigures(recomputed_macs=work.recomputed_macs, kept_bytes=work.kept_bytes)
        costs |= {"backward_macs": work.backward_macs, "recomputed": work.recomputed, "training": figures}
    clocked = work.seconds is not None or work.predicted_seconds is not None
    foreign = [name for name in work.weights if name.rpartition(".")[0] != work.path]
    costs |= {"weights_read": None if read == params else WeightsRead(read, at_most)}
    costs |= _experts(work, params, elements, tokens)
    row = Operation(
        path=title,
        title=title,
        reads=None if work.reads_tokens is None else str(work.reads_tokens),
        params=params,
        attention_entries=work.entries,
        fused=bool(work.fused_entries),
        shared=foreign[0] if foreign and not params else None,
        operand_bytes=work.operand_bytes if clocked and not training else None,  # a backward pass's are not known
        ran=RanOperation(
            aten=work.operation,
            input_shapes=shapes_text(work.inputs) + (" (first call)" if work.varied else ""),
            output_shapes=shapes_text(work.outputs),
            calls=work.calls,
            uncounted=sum(work.uncounted.values()),
            kind_missing=work.kind_missing,
            computed_tokens=work.computed_tokens,
            kept_tokens=work.kept_tokens,
            masked=work.masked,
        ),
        **costs,
    )
    here = f"{work.path}." if work.path else ""
    weights = tuple(weight.removeprefix(here) if weight.startswith(here) else "" for weight in work.weights)
    return ModuleRow(parts_of(work.path), row, weights)
