"""A dispatch mode that follows the owners of all numbers through a running module."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

from xfcost.torch_models.mixing.call import (
    MOST_STATES,
    PER_TOKEN,
    Call,
    Finding,
    History,
    Outcome,
    Past,
    Shape,
    Step,
    ids,
    is_unknown,
    unknown,
)
from xfcost.torch_models.mixing.changes import by_changes
from xfcost.torch_models.mixing.owners import (
    CONSTANT,
    LEARNED,
    any_chosen,
    any_learned,
    any_owned,
    are_pairs,
    content,
    everywhere,
    home,
    narrow,
    varies,
    varying,
    vectors,
)
from xfcost.torch_models.mixing.places import Places, Queries
from xfcost.torch_models.mixing.repeats import Effect, Repeats
from xfcost.torch_models.mixing.rules import is_movement, is_new, is_pointwise, moves, rule_of
from xfcost.torch_models.shared.private_torch import DispatchMode, disable_current_modes, pytree

# ── tensors whose owners are lost: what an operation of unknown kind gives, and what is computed from that ──


_IMAGE: Final = 4
BEHIND: Final = "its input is the output of an operation of unknown kind"


def lost(call: Call, reason: str) -> Outcome:
    """The outcome of an operation of unknown kind."""
    return Outcome([everywhere(CONSTANT, result.shape) for result in call.results], unknown(reason))


def _new_tokens(call: Call, given: Sequence[Tensor], result: Tensor) -> Tensor:
    """Of a result of unknown kind, along the axes along which the tokens of an argument lie; CONSTANT without any."""
    for value in given:
        owners, rank = call.owners(value), result.dim()
        axes = varying(owners) if value.dim() == rank and result.is_floating_point() else []
        lengths = {value.shape[axis] for axis in axes}
        others = {size for axis, size in enumerate(result.shape) if axis not in axes}
        kept = all(value.shape[axis] == result.shape[axis] for axis in axes)
        may_be_channels = lengths & others or (axes[-1:] == [rank - 1] and rank < _IMAGE)
        if axes and kept and not may_be_channels and not are_pairs(owners):
            homes = call.places.without_learned(home(owners))
            few = homes[tuple(slice(None) if axis in axes else slice(1) for axis in range(rank))]
            return vectors(call.places.renew(few, call.sequence)).expand(result.shape)
    return everywhere(CONSTANT, result.shape)


# ── one forward pass of a module with a follower: which inputs hold tokens, and which module is running ──


TokenAxes = Mapping[str | int, tuple[int, ...]]


def token_axes_of(tensor: Tensor) -> tuple[int, ...]:
    """The axes along which tokens lie.

    Words (B, N) and vectors (B, N, D) lie along axis 1, pixels of images (B, C, Y, X) and videos along the last axes.
    Of vectors (B, D) each is a token.
    """
    vector = 2
    if tensor.dim() >= _IMAGE and tensor.is_floating_point():
        return tuple(range(2, tensor.dim()))
    if tensor.dim() == vector and tensor.is_floating_point():
        return (0,)
    return (1,) if tensor.dim() >= vector else ()


def own_inputs(
    follower: Follower, args: tuple[Any, ...], kwargs: dict[str, Any], axes: TokenAxes | None = None
) -> None:
    """Give `follower` the tokens of the inputs."""
    named = dict(enumerate(args)) | kwargs
    for name, value in named.items():
        for tensor in pytree.tree_leaves(value):
            if isinstance(tensor, Tensor) and tensor.dtype != torch.bool:
                chosen = (axes or {}).get(name, token_axes_of(tensor))
                if chosen:
                    follower.own(tensor, chosen)
                elif tensor.is_floating_point():
                    follower.condition(tensor)


# ── a dispatch mode that follows the owners of all numbers through a running module ──


aten: Final = torch.ops.aten
PRODUCTS: Final = frozenset(("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm", "aten.convolution"))
_SOFTMAX: Final = frozenset(("aten._softmax", "aten._safe_softmax"))
_NO_PAST: Final = Past(frozenset(), frozenset())
_SORTING: Final = frozenset((aten.sort, aten.topk))
_INDICES: Final = frozenset((aten.argmax, aten.argmin))
# Of parameters they make learned vectors, each a place.
_OF_VECTORS: Final = frozenset((aten.mm, aten.bmm, aten.addmm, aten.baddbmm))
# They write constants.
_ERASING: Final = frozenset((aten.fill_, aten.zero_, aten.normal_, aten.uniform_, aten.bernoulli_))


class Noted(NamedTuple):
    """One operation as it ran."""

    sequence: int
    module: str
    name: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    finding: Finding | None
    moves: bool
    """Is it data movement?"""
    chooses: bool = False
    """Does it sort tokens, or choose among them by what they hold?"""
    site: Hashable = None
    """Where in the source it was called, if that is known."""


class Layout(NamedTuple):
    """The axes along which tokens lay in a tensor of `rank` axes, with their lengths."""

    rank: int
    axes: tuple[tuple[int, int], ...]

    def fits(self, tensor: Tensor) -> bool:
        """Has `tensor` as many axes, and these with the same lengths?"""
        return tensor.dim() == self.rank and all(tensor.shape[axis] == length for axis, length in self.axes)


# What an operation takes of a budget, whatever its size.
_EACH: Final = 10_000


class LimitReached(BaseException):
    """No code of a module catches it.

    More work is needed than there may be. What later operations would say of earlier ones is then not known.
    """


class Budget:
    """The work that may be spent on finding kinds, in elements of tensors that are followed.

    A clock would give other kinds on a busy machine.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self.limit, self.spent = limit, 0

    def spend(self, operations: int, elements: int = 0) -> None:
        """Note work that was done.

        Raises:
            LimitReached: it was too much.
        """
        self.spent += _EACH * operations + elements
        if self.spent > self.limit:
            raise LimitReached

    @property
    def operations(self) -> float:
        """How many may still run."""
        return (self.limit - self.spent) / _EACH


def _spreads(noted: Noted) -> bool:
    """Does it add terms of several axes for all their pairs?"""
    return noted.name == "aten.add" and math.prod(noted.outputs[0]) > max(map(math.prod, noted.inputs))


class Follower(DispatchMode):
    """Notes every operation that runs, and what its outputs read.

    It can stand among other dispatch modes: they see the same operations, and none of its own. `running` holds the
    paths of the running modules; `running_modules` keeps it.
    """

    supports_higher_order_operators = True

    def __init__(self, budget: Budget | None = None) -> None:
        super().__init__()
        self.budget = budget or Budget()
        self.places = Places()
        self.queries = Queries(self.places)
        self.noted: list[Noted] = []
        self.running: list[str] = [""]
        self._owners: Any = WeakTensorKeyDictionary()
        self._depths: Any = WeakTensorKeyDictionary()
        self._pairs: Any = WeakTensorKeyDictionary()
        self._histories: Any = WeakTensorKeyDictionary()
        self._recent: Any = WeakTensorKeyDictionary()
        self._products: Any = WeakTensorKeyDictionary()
        self._lost: Any = WeakTensorKeyDictionary()
        self._tokens_of: dict[frozenset[int], int] = {}
        self._layouts: dict[frozenset[int], set[Layout]] = {}
        """Of places that lay in one tensor, along which axes."""
        self._merging: set[int] = set()
        """Operations that merged disjoint groups."""
        self._mixed: set[int] = set()
        """Places that were read by what mixes."""
        self._made: History = {}
        self._ordered: TensorWeakRef | None = None
        self._given: Any = WeakTensorKeyDictionary()
        self.decayed: Any = WeakTensorKeyDictionary()
        """Of a product of a state and a token, the state's owners: another state may be added to it."""
        self._repeats = Repeats()
        self._operands: Sequence[Tensor] = ()
        self._effects: list[Effect] | None = []

    def own(self, tensor: Tensor, axes: tuple[int, ...]) -> None:
        """Number the tokens of an input: every index of `axes`, and of axis 0, is a token."""
        sides = [tensor.shape[axis] for axis in axes]
        count = 1
        for side in sides:
            count *= side
        batch = tensor.shape[0] if 0 not in axes else 1
        shape = [size if axis in axes else 1 for axis, size in enumerate(tensor.shape)]
        numbers = []
        for _ in range(batch):
            sample = 1 + max(self.places.samples, default=-1)
            first = self.places.add(count, sample)
            numbers.append(torch.arange(first, first + count).reshape(shape))
        places = torch.cat(numbers) if 0 not in axes else numbers[0]
        self._owners[tensor] = vectors(places.expand(tensor.shape))
        self._note_layout(self._owners[tensor])
        self._given[tensor] = True

    def own_as(self, tensor: Tensor, other: Tensor) -> None:
        """The tokens of an input (B, N, D) are those of another, (B, N, D')."""
        self._owners[tensor] = self.owners(other)[..., :1].expand(tensor.shape)

    def condition(self, tensor: Tensor) -> None:
        """An input without tokens is the same for all of them, as a learned vector is."""
        self._owners[tensor] = everywhere(LEARNED, tensor.shape)
        self._given[tensor] = True

    def decays(self, tensor: Tensor, owners: Tensor) -> None:
        """A product with a token made `tensor` of a state; `owners` are those of what may be added to it."""
        self._effects = None  # it is of this tensor alone
        self.decayed[tensor] = owners

    def is_given(self, tensor: Tensor) -> bool:
        """Does it come from the input?"""
        return tensor in self._given

    def owners(self, tensor: Tensor) -> Tensor:
        """The owners of a tensor's numbers, in its shape."""
        found = self._owners.get(tensor)
        if found is None:
            value = LEARNED if isinstance(tensor, nn.Parameter) else CONSTANT
            found = everywhere(value, tensor.shape)
        return found

    def depth(self, tensor: Tensor) -> int:
        """The number of operations behind a tensor."""
        return int(self._depths.get(tensor, 0))

    def history(self, tensor: Tensor) -> History:
        """What the places of a tensor read one after the other."""
        return self._histories.get(tensor, {})

    def settle(self, lines: Tensor, owners: Tensor) -> None:
        """Vectors that are put together of several tokens each, (…, numbers), become tokens: `owners` (…)."""
        groups = self.places.groups(home(lines).flatten(0, -2))
        if len(set(groups)) == len(groups) > len({self.places.samples[min(group)] for group in groups if group}):
            self._tokens_of.update(zip(groups, owners.flatten().tolist(), strict=True))

    def settled(self, owners: Tensor) -> Tensor:
        """`owners`, or those of the tokens that their vectors have become, where a residual connection reads them."""
        for axis in (-1, 1) if self._tokens_of and owners.dim() > 1 else ():  # channels are last, or those of an image
            if varies(home(owners), axis):
                lines = home(owners).movedim(axis, -1)
                first = lines[(slice(1),) * (lines.dim() - 1)].flatten(0, -2)
                if not self._tokens_of.keys() >= set(self.places.groups(first)):
                    continue
                groups = self.places.groups(lines.flatten(0, -2))
                if self._tokens_of.keys() >= set(groups):
                    tokens = torch.tensor([self._tokens_of[group] for group in groups])
                    return tokens.reshape(lines.shape[:-1]).unsqueeze(axis).expand(owners.shape)
        return owners

    def step_of(self, packet: Any) -> Step:
        """What the running operation is called as a step of a recurrence."""
        return self.running[-1], str(packet)

    def step(self, packet: Any, pairs: list[list[int]], history: History) -> list[int]:
        """(home, place that it reads) pairs: of a recurrence, the number of places that each home has read so far."""
        self._effects = None  # it depends on what ran before
        name = self.step_of(packet)
        counts = []
        for place, read in pairs:
            before = history.get(read, _NO_PAST)
            others = self._made.get(place, _NO_PAST).places
            past = Past(before.places | others | {place, read}, before.operations | {name})
            self._made[place] = past
            apart = [one for one in past.places if not self.places.members.get(one, frozenset()) & past.places]
            counts.append(len(apart) if name in before.operations else 0)
        return counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = func(*args, **kwargs)
        with disable_current_modes():
            if getattr(func, "is_view", False):  # what is written to a view of a buffer is the buffer's
                self._owners.setdefault(args[0], self.owners(args[0]))
            self._look(func, args, kwargs, answer)
        return answer

    def _look(self, func: Any, args: Any, kwargs: Any, answer: Any) -> None:
        results = [value for value in pytree.tree_leaves(answer) if isinstance(value, Tensor)]
        given = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        packet = getattr(func, "overloadpacket", func)
        in_place = str(packet).endswith("_") and not str(packet).endswith("__") and bool(args)
        call = Call(len(self.noted), _plain(packet) if in_place else packet, func, args, kwargs, results, self)
        self._made = {}
        self._operands = given
        self.budget.spend(1)
        self._forget_order()
        owned = self._any_owned(given)
        behind = not is_new(call) and packet not in _ERASING and any(value in self._lost for value in given)
        if behind and not (is_movement(call) or (is_pointwise(call) and self._is_of_one(given))):
            outcome = lost(call, BEHIND)
        else:
            outcome = self._outcome(call, given, packet)
        if is_unknown(outcome.finding):
            behind = True
            outcome = outcome._replace(owners=[_new_tokens(call, given, result) for result in results])
        chosen = any(any_chosen(self.owners(value)) for value in given)
        if chosen and outcome.finding is not None and outcome.finding.kept is not None:
            outcome = outcome._replace(finding=outcome.finding._replace(chosen=True))
        outcome = self._among_latents(outcome)
        outcome = outcome if in_place else self._divided(call, given, outcome)
        chooses = packet in _SORTING and varies(home(self.owners(args[0])), call.argument("dim", -1))
        if not _makes_floats(results):  # indices and masks
            chooses = chooses or (outcome.finding is not None and outcome.finding.mixes is not False)
            outcome = outcome if packet in _INDICES else outcome._replace(finding=None)
        mixes = bool(outcome.finding and outcome.finding.mixes)
        self._remember(call, [] if is_new(call) else given, outcome)
        if in_place and outcome.owners:
            self._write(args[0], outcome.owners[0])
        for result, owners in zip(results, outcome.owners, strict=True):
            if not in_place:
                self._owners[result] = owners
            if behind and not (is_unknown(outcome.finding) and any_owned(owners)):
                self._lost[result] = True
        self._link(call, given, results, outcome)
        self.queries.follow(call.sequence, given, results, mixes=mixes)
        inputs, outputs = (tuple(tuple(value.shape) for value in values) for values in (given, results))
        name, chooses = str(packet), chooses and owned
        self.noted.append(
            Noted(call.sequence, self.running[-1], name, inputs, outputs, outcome.finding, moves(call), chooses)
        )
        self._ordered = TensorWeakRef(results[0]) if packet in _SORTING else None

    def _is_of_one(self, given: Sequence[Tensor]) -> bool:
        """Does one operand alone come from the input?"""
        return sum(value in self._lost or any_owned(self.owners(value)) for value in given) == 1

    def _among_latents(self, outcome: Outcome) -> Outcome:
        """Learned queries that read each other are a set that does not grow."""
        finding, latents = outcome.finding, self.places.latents
        if not latents or finding is None or not finding.mixes or not finding.places <= latents:
            return outcome
        return outcome._replace(finding=finding._replace(latents=self.places.all_latent(home(outcome.owners[0]))))

    def _divided(self, call: Call, given: Sequence[Tensor], outcome: Outcome) -> Outcome:
        """`outcome`, with tokens instead of merged places that `call` divides."""
        finding = outcome.finding
        if is_movement(call) or (finding is not None and finding.merges):
            for value in given:
                self._note_layout(self.owners(value))
        if finding is not None and finding.mixes:
            self._mixed |= finding.places
            self._merging |= {call.sequence} if finding.merges else set()
        if not self._merging or not _makes_floats(call.results):
            return outcome
        return outcome._replace(owners=[self._as_tokens(owners, call, given) for owners in outcome.owners])

    def _note_layout(self, owners: Tensor) -> None:
        """Note along which axes tokens lie, if each lies at one index of these."""
        places, axes = ids(home(owners)), varying(owners)
        if places and math.prod(owners.shape[axis] for axis in axes) == len(places):
            layout = Layout(owners.dim(), tuple((axis, owners.shape[axis]) for axis in axes))
            self._layouts.setdefault(places, set()).add(layout)

    def _as_tokens(self, owners: Tensor, call: Call, given: Sequence[Tensor]) -> Tensor:
        """`owners`, with tokens instead of merged places that nothing has read together with others.

        They lie along the axes along which those lay that were merged, or along those of a map that is convolved.
        Copies of a place stay that place: of groups they are a coarser map, of all tokens a summary of them.
        """
        places, axes = ids(home(owners)), set(varying(owners))
        known = not are_pairs(owners) and not bool((narrow(owners) < 0).any())
        if not known or not self._are_merged(places) or places & self._mixed:
            return owners
        single = len({self.places.samples[place] for place in places}) == len(places)
        for layout in self._layouts_behind(places):
            laid = {axis for axis, _ in layout.axes}
            if not layout.fits(owners) or math.prod(length for _, length in layout.axes) == len(places):
                continue
            if axes - laid if single else axes != laid:  # else channels may be as many as the map is wide
                continue
            if _copies(call, given, owners) or (not single and any(map(layout.fits, given))):
                self.places.divided |= {self.places.makers[place] for place in places} if single else set()
                return owners
            return self._divide(owners, laid)
        sides = {axis for axis in range(2, owners.dim()) if owners.shape[axis] > 1}
        is_map = call.packet is aten.convolution and sides and axes <= {0}
        return self._divide(owners, axes | sides) if is_map else owners

    def _layouts_behind(self, places: frozenset[int]) -> Iterator[Layout]:
        """How those lay that `places` were merged of, and those that these were merged of."""
        while self._are_merged(places):
            places = frozenset[int]().union(*(self.places.members[place] for place in places))
            yield from sorted(self._layouts.get(places, ()))

    def _are_merged(self, places: frozenset[int]) -> bool:
        merged = places and places.isdisjoint(self.places.parts)
        return bool(merged) and all(self.places.makers.get(place) in self._merging for place in places)

    def _divide(self, owners: Tensor, axes: set[int]) -> Tensor:
        """`owners`, whose places vary along `axes` alone, with a token for each index of these."""
        few = home(owners)[tuple(slice(None) if axis in axes else slice(1) for axis in range(owners.dim()))]
        for place in ids(few):
            self._tokens_of.pop(self.places.members[place], None)
        return vectors(self.places.divide(few)).expand(owners.shape)

    def _forget_order(self) -> None:
        """Where only the order of what was sorted is left, and not its values, tokens are moved as wholes."""
        last = self.noted[-1] if self._ordered is not None and self._ordered() is None else None
        if last is not None and last.finding is not None and last.finding.mixes and last.finding.orders:
            self.noted[-1] = last._replace(finding=PER_TOKEN)

    def by_position(self, tensor: Tensor, finding: Finding, *, with_product: bool) -> None:
        """What `tensor` holds are weights of keys by position: its operations since a product mix tokens too."""
        self._report(self.by_position, tensor, finding=finding, with_product=with_product)
        owned = any_owned(self.places.without_learned(home(self.owners(tensor))))
        for sequence in self._recent.get(tensor, ()):
            noted = self.noted[sequence]
            product = noted.name in PRODUCTS
            if noted.finding and noted.finding.mixes is not False:
                continue
            if (product and with_product) or noted.moves or noted.name in _SOFTMAX or _spreads(noted):
                dependent = product or (owned and not with_product)
                self.noted[sequence] = noted._replace(finding=finding._replace(content_dependent=dependent))

    def carried_on(self, packet: Any, tensor: Tensor, finding: Finding) -> None:
        """The running step of a recurrence read `tensor`, made of its state: so did products since the step before."""
        for sequence, step in self._products.get(tensor) or ():
            noted = self.noted[sequence]
            if step == self.step_of(packet) and noted.finding is not None and noted.finding.mixes is False:
                self.noted[sequence] = noted._replace(finding=finding)

    def were_scores(self, tensor: Tensor, finding: Finding) -> None:
        """One query met all tokens behind `tensor`, which a softmax over the tokens normalises."""
        self._report(self.were_scores, tensor, finding=finding)
        for sequence in self.queries.operations(tensor):
            noted = self.noted[sequence]
            if noted.finding is not None:
                fixed = noted.name in PRODUCTS and not noted.finding.mixes  # by learned weights
                self.noted[sequence] = noted._replace(finding=finding._replace(content_dependent=not fixed))

    def _remember(self, call: Call, given: list[Tensor], outcome: Outcome) -> None:
        depth, results = 1 + max(map(self.depth, given), default=-1), call.results
        history, finding = self._history_of(given, outcome.owners), outcome.finding
        mixes = bool(finding and finding.mixes)
        recent: frozenset[int] = frozenset().union(*(self._recent.get(value, frozenset()) for value in given))
        if mixes or str(call.packet) in PRODUCTS:
            recent = frozenset()
        if str(call.packet) not in PRODUCTS or self._any_owned(given):
            recent |= {call.sequence}
        products = self._state_products(call, given)
        if finding is not None and finding.mixes:
            products = frozenset() if finding.step else None
        of_input = any(map(self.is_given, given))
        for result in results:
            self._products[result] = products
            self._depths[result] = depth
            if of_input:
                self._given[result] = True
            self._recent[result] = recent if result.is_floating_point() else frozenset()
            if history:
                self._histories[result] = history

    def _state_products(self, call: Call, given: list[Tensor]) -> frozenset[tuple[int, Step]] | None:
        """The products of states since these were read, each with a step behind it; None of what attention gave."""
        known = [self._products.get(value, frozenset[tuple[int, Step]]()) for value in given]
        if None in known:
            return None
        found = frozenset[tuple[int, Step]]().union(*known)
        if str(call.packet) not in PRODUCTS:
            return found
        states = (one for one in map(self.history, given) if not _is_shifted(one))
        pasts = (past for one in states for past in one.values())
        return found | {(call.sequence, step) for past in pasts for step in past.operations}

    def _history_of(self, given: list[Tensor], owners: Sequence[Tensor]) -> History:
        """What the places of a result have read, as its operands and the running operation say."""
        histories = [one for one in (*map(self.history, given), self._made) if one]
        held = frozenset[int]().union(*(ids(home(one)) | ids(content(one)) for one in owners if histories))
        if len(held) > MOST_STATES:
            return {}
        history: History = {}
        for one in histories:
            for place, past in one.items():
                before = history.get(place, _NO_PAST)
                if place in held:
                    history[place] = Past(before.places | past.places, before.operations | past.operations)
        return history

    def _outcome(self, call: Call, given: list[Tensor], packet: Any) -> Outcome:
        if self._merging and packet is aten.convolution:  # it reads a map
            self._owners[given[0]] = self._as_tokens(self.owners(given[0]), call, ())
        owned = self._any_owned(given)
        erased = packet in _ERASING
        if erased or not (owned or call.packet in _OF_VECTORS or is_movement(call) or is_new(call)):
            return self._of_parameters(call, [] if erased else given)
        rule = rule_of(call.packet, call.func)
        try:
            if rule is not None:
                return self._by_rule(call, given, rule)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            if owned:
                return lost(call, f"its rule fails here: {str(error).splitlines()[0]}")
        if not owned or not _makes_floats(call.results):
            return self._of_parameters(call, given)
        try:
            return _fitting(call, by_changes(call))
        except Exception:  # noqa: BLE001 - an operation that does not run on such numbers stays unknown
            return lost(call, "it has no rule")

    def _by_rule(self, call: Call, given: list[Tensor], rule: Callable[[Call], Outcome]) -> Outcome:
        """What an equal operation gave before, else what its rule gives."""
        single = any(self.queries.are_behind(one) or one in self.decayed for one in given)
        alike = None if single else self._repeats.alike(call, given)
        self._effects = None  # what an equal operation reported is reported again, and not noted twice
        if alike is not None and (known := alike.outcome(given)) is not None:
            return known
        before, self._effects = (len(self.places.samples), self.meanings()), []
        outcome = _fitting(call, rule(call))
        self.budget.spend(0, sum(narrow(one).numel() for one in (*map(self.owners, given), *outcome.owners)))
        after = (len(self.places.samples), self.meanings())
        if alike is not None and self._effects is not None and before == after and not self.queries.met:
            alike.note(outcome, self._effects)
        return outcome

    def meanings(self) -> tuple[int, int, int]:
        """How many learned vectors, sets of tokens and parts of them have become tokens.

        Then the same owners mean another thing.
        """
        places = self.places
        return len(places.latents) - len(places.learned), len(self._tokens_of), len(places.divided)

    def _report(self, report: Callable[..., None], tensor: Tensor, **details: Any) -> None:
        """Note what the running rule reports of one of its operands."""
        number = next((at for at, value in enumerate(self._operands) if value is tensor), None)
        if number is None:
            self._effects = None
        elif self._effects is not None:
            self._effects.append(Effect(report, number, details))

    def _of_parameters(self, call: Call, given: list[Tensor]) -> Outcome:
        """Of parameters and constants only."""
        value = LEARNED if any(any_learned(self.owners(one)) for one in given) else CONSTANT
        return Outcome([everywhere(value, result.shape) for result in call.results], None)

    def _any_owned(self, given: list[Tensor]) -> bool:
        return any(any_owned(self.owners(value)) for value in given)

    def _write(self, target: Tensor, owners: Tensor) -> None:
        """Writes through to the owners of all that share the memory of `target`."""
        before = self.owners(target)
        if before.shape != target.shape:  # `transpose_`, `unsqueeze_`: the tensor itself is another view
            self._owners[target] = owners
        elif before is not owners and bool((before != owners).any()):
            self.laid(target).copy_(owners)
        if past := self.history(target):
            for other in self._of_memory(target):
                self._histories[other] = self.history(other) | past

    def laid(self, tensor: Tensor) -> Tensor:
        """The owners of a tensor, laid out as its numbers are, with those of all tensors of the same memory."""
        laid = torch.full((tensor.untyped_storage().nbytes() // tensor.element_size(),), CONSTANT)
        self._owners.setdefault(tensor, self.owners(tensor))
        for other in self._of_memory(tensor):
            part = laid.as_strided(other.shape, other.stride(), other.storage_offset())
            if all(other.stride()):  # else it is a view of another that is not spread
                part.copy_(self._owners[other])
            self._owners[other] = part
        found: Tensor = self._owners[tensor]
        return found

    def _of_memory(self, tensor: Tensor) -> list[Tensor]:
        """The tensors with owners that share memory with `tensor`, in elements of its size."""
        start, size = tensor.untyped_storage().data_ptr(), tensor.element_size()
        return [
            other
            for other in list(self._owners)
            if other.layout is torch.strided
            and other.untyped_storage().data_ptr() == start
            and other.element_size() == size
        ]

    def _link(self, call: Call, given: list[Tensor], results: list[Tensor], outcome: Outcome) -> None:
        """Follows an attention matrix, so that a mask also shows which of its scores are kept."""
        finding = outcome.finding
        before: frozenset[int] = frozenset().union(*(self._pairs.get(value, frozenset()) for value in given))
        if call.packet is aten.cat:
            before = frozenset()
        if finding is not None and finding.mixes and finding.kept is not None and before:
            for sequence in before:
                self._keep(sequence, finding)
        if finding is not None and finding.mixes:
            before |= {call.sequence}
        if str(call.packet) in _SOFTMAX:  # a later mask takes nothing out of its sums
            before = frozenset()
        for result, owners in zip(results, outcome.owners, strict=False):
            if are_pairs(owners):
                self._pairs[result] = before

    def _keep(self, sequence: int, later: Finding) -> None:
        """What a later operation on all of the same pairs keeps."""
        noted = self.noted[sequence]
        before = noted.finding
        if before is None or before.computed is None or later.computed is None:
            return
        if before.computed.numel() and later.computed.numel() and before.computed.max() == later.computed.max():
            self.noted[sequence] = noted._replace(finding=before._replace(kept=later.kept, chosen=later.chosen))


def _copies(call: Call, given: Sequence[Tensor], owners: Tensor) -> bool:
    """Does it copy numbers, as an expansion does, or upsample them?"""
    moves_only = is_movement(call) or rule_of(call.packet, call.func) is None
    return moves_only and owners.numel() > sum(value.numel() for value in given)


def _is_shifted(history: History) -> bool:
    """Does it hold tokens together with those that they read, as no state does?"""
    return any((past.places - {place}) & history.keys() for place, past in history.items())


def _makes_floats(results: list[Tensor]) -> bool:
    return any(result.is_floating_point() or result.is_complex() for result in results)


def _plain(packet: Any) -> Any:
    """The operation that returns what `packet` writes in place."""
    name = str(packet).removeprefix("aten.").removesuffix("_")
    return getattr(aten, name, packet) if str(packet).startswith("aten.") else packet


def _fitting(call: Call, outcome: Outcome) -> Outcome:
    """`outcome`, checked: every output has owners in its shape.

    Raises:
        ValueError: it has not.
    """
    shapes = [tuple(result.shape) for result in call.results], [tuple(owners.shape) for owners in outcome.owners]
    if shapes[0] != shapes[1]:
        raise ValueError(f"its outputs have the shapes {shapes[0]}, and their owners {shapes[1]}")
    return outcome
