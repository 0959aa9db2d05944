"""Numbers in letters: counts that have their closed form in N, d, h in addition to their value."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from functools import cache
from math import isqrt
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from xfcost.ledger.grid import Grid
from xfcost.ledger.operation import Operation

if TYPE_CHECKING:
    from typing_extensions import Self


# In the order of a printed product: O(h·N²), O(N·W²·d).
LETTERS: Final[dict[str, str]] = {
    "h": "heads",
    "N": "tokens",
    "M": "tokens of the memory (cross-attention)",
    "W": "side of a window or of a kernel",
    "K": "side of a kernel",
    "w": "tokens of a sliding window or of a cluster",
    "b": "tokens of a block, chunk or bucket",
    "l": "stride of a pattern or of a pool",
    "c": "compression: tokens per compressed one; or summary cells of a block",
    "g": "global tokens",
    "r": "random blocks per block, or rounds of hashing",
    "k": "rank, landmarks, random features, inducing or sampled points, clusters, buckets or hidden units over tokens",
    "m": "memory tokens, positions next to a block that it reads, or positions kept from earlier segments",
    "i": "iterations",
    "o": "order of a Hyena operator",
    "E": "experts, or expansion of the width of a Mamba block",
    "A": "experts that a token uses",
    "P": "side of a patch",
    "R": "side of the patch of tokens that is reduced to one key",
    "C": "channels of the image",
    "V": "entries of the vocabulary",
    "L": "rows of a position table that is not as long as the input",
    "Y": "classes",
    "d": "width",
    "dₖ": "width of a head or of a group of channels",
}


# Of a table whose W is the side of windows, where kernels have a letter of their own.
W_WITH_K: Final = "side of a window"


class Letter(NamedTuple):
    """`Annotated[int, Letter("W")]`: the letter of a field's number in orders."""

    name: str | None
    """One of `LETTERS`; None for a constant."""
    least: int = 1
    """The smallest number with the letter: a stride of 1 has none."""


# Polynomials in the letters of orders: exact sums and products, and their growth for large N ─────────────────────────


# Exponents are whole numbers of twelfths, which allow √N, ∛N and their roots; they may be negative.
TWELFTHS: Final = 12
# The exponents of one term as one int, with a digit of _BITS bits for each name: terms multiply by adding these.
Powers = int
_BITS: Final = 16
# All letters in the order of a printed product, and log N.
_NAMES: Final = (*LETTERS, "log N")
_N, _H, _D, _DK, _LOG = (_NAMES.index(name) for name in ("N", "h", "d", "dₖ", "log N"))
_ROOT_SCALE: Final = 10**12  # coefficients of roots are exact to six digits
_SUPERSCRIPTS: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Polynomial:
    """A sum of terms: a coefficient (int or fraction) times a product of powers of letters."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Powers, Any]) -> None:
        """`terms` maps powers to coefficients other than 0."""
        self.terms = terms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]  # terms are a dict

    def __repr__(self) -> str:
        return " + ".join(f"{number}·{_term_text(exponents(powers))}" for powers, number in self.terms.items()) or "0"

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = self.terms.copy()
        for powers, number in other.terms.items():
            terms[powers] = terms.get(powers, 0) + number
            if not terms[powers]:
                del terms[powers]
        return Polynomial(terms)

    def __neg__(self) -> Polynomial:
        return self.times(-1)

    def __mul__(self, other: Polynomial) -> Polynomial:
        if len(other.terms) == 1:
            return self.times(*other.terms.values(), *other.terms)
        product = Polynomial({})
        for powers, number in other.terms.items():
            product += self.times(number, powers)
        return product

    def times(self, number: Any, powers: Powers = 0) -> Polynomial:
        """The product with one term."""
        if not number:
            return Polynomial({})
        return Polynomial({own + powers: coefficient * number for own, coefficient in self.terms.items()})

    def floor_divided(self, other: Polynomial) -> Polynomial:
        """⌊self / other⌋ for large N: the quotient without vanishing terms; 0 or -1 if all terms vanish.

        Raises:
            ArithmeticError: the division has a remainder, and no term of the divisor outgrows its others.
        """
        largest = other.leading()
        if len(largest) != 1:
            return self._exactly_divided(other)
        quotient = self.times(exact_quotient(1, other.terms[largest[0]]), -largest[0])
        remaining = {powers: number for powers, number in quotient.terms.items() if exponents(powers)[_N] >= 0}
        return Polynomial(remaining) if remaining or not quotient.terms else constant(min(0, quotient.sign()))

    def _exactly_divided(self, other: Polynomial) -> Polynomial:
        """Polynomial long division, in one order of all terms."""
        rest, quotient, first = self, Polynomial({}), max(other.terms)
        for _ in range(len(self.terms)):
            if rest.terms:
                powers = max(rest.terms)
                step = Polynomial({powers - first: exact_quotient(rest.terms[powers], other.terms[first])})
                quotient, rest = quotient + step, rest + -(step * other)
        if rest.terms:
            raise ArithmeticError(f"{self!r} over {other!r}: expected a divisor that one term of it outgrows")
        return quotient

    def growth(self) -> tuple[int, int]:
        """The largest exponent of N, in twelfths, with the exponent of log N; (0, 0) for no terms."""
        return max(map(_growth, self.terms), default=(0, 0))

    def _largest(self) -> dict[Powers, Any]:
        """The terms that grow most with N."""
        if len(self.terms) == 1:
            return self.terms
        largest = self.growth()
        return {powers: number for powers, number in self.terms.items() if _growth(powers) == largest}

    def sign(self) -> int:
        """1 or -1 for large N if the largest terms have one sign; 0 otherwise."""
        signs = {number > 0 for number in self._largest().values()}
        return 0 if len(signs) != 1 else 1 if True in signs else -1

    def leading(self) -> list[Powers]:
        """The terms that grow fastest with N, without those that another one exceeds in every letter.

        Negative terms count only if there are no positive ones. To compare terms, the width is h·dₖ.
        """
        largest = self._largest()
        terms = [powers for powers, number in largest.items() if number > 0] or list(largest)
        if len(terms) == 1:
            return terms
        return [term for term in terms if not any(_exceeds(other, term) for other in terms)]

    def root(self) -> Polynomial:
        """√ of the leading term, for large N."""
        (powers,) = self.leading()
        number = self.terms[powers]
        return Polynomial(
            {powers // 2: 1 if number == 1 else exact_quotient(isqrt(round(number * _ROOT_SCALE)), isqrt(_ROOT_SCALE))}
        )

    def order(self) -> str:
        """`O(N·W²·d)`: the leading terms without coefficients; O(1) for a constant."""
        return _order(tuple(self.leading()))

    def joint_order(self) -> str:
        """The same where all letters grow, not only N: the terms that no other one exceeds in every letter."""
        kept = (powers for powers in self.terms if not any(_exceeds(other, powers) for other in self.terms))
        return _order(tuple(kept))


def constant(number: Any) -> Polynomial:
    """A number without letters."""
    return Polynomial({0: number} if number else {})


def power_of(name: str, power: int = TWELFTHS) -> Powers:
    """One letter (or `log N`) to a power in twelfths."""
    return power << (_BITS * _NAMES.index(name))


def exact_quotient(number: Any, divisor: Any) -> Any:
    """`number` / `divisor`: an int if it is whole, else a fraction (imported only then)."""
    if isinstance(number, int) and isinstance(divisor, int) and number % divisor == 0:
        return number // divisor
    from fractions import Fraction

    return Fraction(number) / divisor


@cache
def exponents(powers: Powers) -> tuple[int, ...]:
    """The exponent of each name, in twelfths."""
    half, result = 1 << (_BITS - 1), []
    for _ in _NAMES:
        digit = ((powers + half) & (2 * half - 1)) - half
        result.append(digit)
        powers = (powers - digit) >> _BITS
    return tuple(result)


@cache
def _growth(powers: Powers) -> tuple[int, int]:
    return exponents(powers)[_N], exponents(powers)[_LOG]


@cache
def _width_as_heads(powers: Powers) -> tuple[int, ...]:
    """The exponents with d written as h·dₖ."""
    split = list(exponents(powers))
    width = split[_D]
    split[_H], split[_DK], split[_D] = split[_H] + width, split[_DK] + width, 0
    return tuple(split)


@cache
def _exceeds(term: Powers, other: Powers) -> bool:
    """Has `term` an exponent at least as large as `other` in every letter?"""
    pairs = list(zip(_width_as_heads(term), _width_as_heads(other), strict=True))
    return pairs != [(a, a) for a, _ in pairs] and all(a >= b for a, b in pairs)


@cache
def _order(leading: tuple[Powers, ...]) -> str:
    terms = sorted({_heads_as_width(_width_as_heads(powers)) for powers in leading}, reverse=True)
    return f"O({' + '.join(map(_term_text, terms))})"


def _heads_as_width(powers: tuple[int, ...]) -> tuple[int, ...]:
    """The exponents with h·dₖ written as d."""
    width, joined = max(0, min(powers[_H], powers[_DK])), list(powers)
    joined[_H], joined[_DK], joined[_D] = powers[_H] - width, powers[_DK] - width, powers[_D] + width
    return tuple(joined)


def _term_text(powers: tuple[int, ...]) -> str:
    """`h·N²`, `N√N·d`; divisors follow, `N²·d/b`, then the logarithm."""
    *letters, (_, log) = zip(_NAMES, powers, strict=True)
    factors = [_power_text(letter, power) for letter, power in letters if power > 0]
    divisors = "".join(f"/{_power_text(letter, -power)}" for letter, power in letters if power < 0)
    return ("·".join(factors) or "1") + divisors + (f"·{_power_text('log N', log)}" if log else "")


def _power_text(letter: str, power: int) -> str:
    whole, part = divmod(power, TWELFTHS)
    roots = {0: "", 3: f"∜{letter}", 4: f"∛{letter}", 6: f"√{letter}"}
    return (letter + raised(whole) if whole else "") + roots.get(part, f"{letter}^({part}/{TWELFTHS})")


def raised(power: int) -> str:
    """A whole exponent as superscripts, `²`; empty of 1."""
    return "" if power == 1 else str(power).translate(_SUPERSCRIPTS)


# Ints with a polynomial in letters: one formula gives the exact count and its order ──────────────────────────────────
# A `LetteredInt` is an int with a `form`, a polynomial in letters. Sums and products are exact in both. Operations
# outside polynomials are approximated for large N: rounding is ignored, and the minimum is the number that grows more
# slowly. Comparisons, `range`, `%` and `int` use the int alone, so that a formula takes the branch of its numbers. The
# form is computed on first use.


class LetteredInt(int):
    """A whole number and its form in letters."""

    _deferred: tuple[Callable[..., Polynomial], tuple[Any, ...]]
    _form: Polynomial

    def __new__(cls, number: int, make: Callable[..., Polynomial], *arguments: Any) -> Self:
        """`number` with the form make(*arguments)."""
        self = super().__new__(cls, number)
        self._deferred = make, arguments
        return self

    @property
    def form(self) -> Polynomial:
        """The number in letters."""
        if "_form" not in self.__dict__:
            make, arguments = self._deferred
            self._form = make(*arguments)
        return self._form

    @property
    def step(self) -> tuple[Step | None, tuple[Any, ...]]:
        """The last step of its computation, and what that was of; None of a letter, and of steps that round."""
        make, arguments = self._deferred
        return _STEPS.get(make), arguments

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return LetteredInt(int.__add__(self, other), _sum, self, other)

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return LetteredInt(int.__mul__(self, other), _product, self, other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -1 * other

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __pow__(self, power: int) -> Any:  # type: ignore[override]
        result: Any = 1
        for _ in range(power):
            result = self * result
        return result

    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other) if isinstance(other, int) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return _divided(other, self) if isinstance(other, int) else NotImplemented

    def __divmod__(self, other: Any) -> Any:
        return self // other, int(self) % other

    def __abs__(self) -> Any:
        return extreme(self, -self, 1)


def form_of(number: int) -> Polynomial:
    """A number in letters; a plain int is a constant."""
    return number.form if isinstance(number, LetteredInt) else constant(number)


def _sum(a: int, b: int) -> Polynomial:
    return form_of(a) + form_of(b)


def _product(a: int, b: int) -> Polynomial:
    return form_of(a) * b.form if isinstance(b, LetteredInt) else form_of(a).times(b)


def _divided(number: int, divisor: int) -> LetteredInt:
    return LetteredInt(int(number) // int(divisor), _quotient, number, divisor)


def _quotient(number: int, divisor: int) -> Polynomial:
    """⌊number / divisor⌋; a constant if the value is mostly rounding and has no N (a capacity of ⌈k/b⌉ = 1)."""
    quotient, rest = divmod(int(number), int(divisor))
    form = form_of(number).floor_divided(form_of(divisor))
    return constant(quotient) if rest and quotient in {0, -1} and form.growth() <= (0, 0) else form


def extreme(a: int, b: int, sign: int) -> LetteredInt:
    """The minimum (`sign` -1) or the maximum (1) of two numbers."""
    numbers = int(a), int(b)
    return LetteredInt(max(numbers) if sign > 0 else min(numbers), _extreme_form, a, b, sign)


def _extreme_form(a: int, b: int, sign: int) -> Polynomial:
    """The form of the minimum or maximum for large N; if both grow equally, that of the actual numbers."""
    forms = form_of(a), form_of(b)
    difference = forms[0] + -forms[1]
    larger = difference.sign() if difference.growth() > (0, 0) else 0
    first = larger * sign > 0 or (larger == 0 and sign * int(a) >= sign * int(b))
    return forms[0 if first else 1]


Step = Literal["sum", "product", "quotient", "extreme"]
_STEPS: Final[dict[Callable[..., Polynomial], Step]] = {
    _sum: "sum",
    _product: "product",
    _quotient: "quotient",
    _extreme_form: "extreme",
}


def lettered(number: int, letter: str, *, coefficient: Any = 1, root: int = 1) -> LetteredInt:
    """`number` as `coefficient` times a letter, or times its square root (`root` 2) or another root.

    >>> scores = lettered(64, "N") ** 2 * lettered(96, "d")
    >>> scores, scores.form.order()
    (393216, 'O(N²·d)')
    """
    return LetteredInt(number, Polynomial, {power_of(letter, TWELFTHS // root): coefficient})


def with_form_of(number: int, other: int) -> int:
    """`number` with the form of `other`, which differs from it only by rounding."""
    return LetteredInt(number, form_of, other)


def scaled(number: LetteredInt, value: int, fraction: tuple[int, int]) -> LetteredInt:
    """`value`, which is `number` times a fraction, rounded."""
    return LetteredInt(value, lambda: number.form.times(exact_quotient(*fraction)))


def root_of(number: LetteredInt, value: int | None = None) -> LetteredInt:
    """⌊√number⌋, or `value`, a number near it."""
    return LetteredInt(isqrt(number) if value is None else value, number.form.root)


def logarithm(number: LetteredInt, value: int) -> LetteredInt:
    """`value`, a logarithm of `number`: log N if `number` grows with N, else a constant."""
    log_n = Polynomial({power_of("log N"): 1})
    return LetteredInt(value, lambda: log_n if number.form.growth() > (0, 0) else constant(value))


# Structs and grids in letters: the same numbers, each with its letter ────────────────────────────────────────────────


_Struct = TypeVar("_Struct", bound=msgspec.Struct)
# A grid of this many axes is a video: with `--N` its images grow and its frames don't.
_VIDEO = 3


class Units:
    """Numbers as multiples of letters: the first number of a letter defines it, later ones are multiples of it."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def number(self, number: Any, letter: str) -> Any:
        """`number` in `letter`; numbers in letters, None and zero are unchanged."""
        if not number or isinstance(number, LetteredInt):
            return number
        return lettered(number, letter, coefficient=exact_quotient(number, self._first.setdefault(letter, number)))

    def struct(self, struct: _Struct) -> _Struct:
        """`struct` with every field in the letter of its annotation; inner structs too."""
        values = {}
        for name in struct.__struct_fields__:
            value = getattr(struct, name)
            if isinstance(value, msgspec.Struct):
                values[name] = self.struct(value)
            elif isinstance(value, int | list) and not isinstance(value, bool):
                values[name] = self._value(value, _letter(_hint(type(struct), name), listed=isinstance(value, list)))
        return msgspec.structs.replace(struct, **values)

    def _value(self, value: Any, letter: Letter | None) -> Any:
        if letter is None or letter.name is None:
            return value
        if isinstance(value, list):
            return [self._number(number, letter) for number in value]
        return self._number(value, letter)

    def _number(self, number: int, letter: Letter) -> Any:
        return number if number < letter.least or letter.name is None else self.number(number, letter.name)


def letter_of(struct: type[msgspec.Struct], field: str, *, listed: bool = False) -> Letter | None:
    """The letter of a field that holds one number, or (`listed`) a list; None where its annotation has none."""
    return _letter(_hint(struct, field), listed=listed)


def grid_in_letters(grid: Grid, letter: str = "N", special: str | None = None, *, even: bool = False) -> Grid:
    """`grid` of N tokens. The sides of a plane are √N; the first side of a volume is constant, the others are √N.

    Args:
        grid: the grid.
        letter: the letter of its tokens.
        special: the letter of its special tokens, if any; without it their number is a constant.
        even: all three sides of a volume are ∛N.
    """
    fixed = grid.sides[:-2] if len(grid.sides) >= _VIDEO and not even else ()
    growing = grid.sides[len(fixed) :]
    sides = (
        lettered(side, letter, coefficient=exact_quotient(side, growing[-1]), root=len(growing)) for side in growing
    )
    tokens = lettered(grid.special, special) if special and grid.special else grid.special
    return Grid((*fixed, *sides), tokens, grid.levels)


class Patches(msgspec.Struct, frozen=True):
    """Disjoint kernels in letters: sides and strides (P or 1), and the grid that they tile."""

    sides: list[int]
    stride: list[int]
    grid: Grid


def patches_in_letters(size: int | list[int], stride: int | list[int], grid: Grid, out: Grid) -> Patches:
    """`grid` in letters, tiled by kernels into N patches, the tokens of `out`."""
    units = Units()
    sides, steps = (
        [units.number(side, "P") if side > 1 else 1 for side in (each if isinstance(each, list) else [each] * rank)]
        for each, rank in ((size, len(grid.sides)), (stride, len(grid.sides)))
    )
    axes = zip(grid.sides, grid_in_letters(out).sides, steps, strict=True)
    tiled = Grid(tuple(with_form_of(side, patch * step) for side, patch, step in axes), grid.special)
    return Patches(sides, steps, tiled)


@cache
def _hint(struct: type[msgspec.Struct], field: str) -> Any:
    """The type of one field with its annotations."""
    owner = next(base for base in struct.__mro__ if field in vars(base).get("__annotations__", {}))
    single = types.SimpleNamespace(__annotations__={field: owner.__annotations__[field]})
    return get_type_hints(single, vars(sys.modules[owner.__module__]), include_extras=True)[field]


def _letter(hint: Any, *, listed: bool) -> Letter | None:
    """The letter for a list or for one number, in a type that may be a union of both."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return next((note for note in reversed(notes) if isinstance(note, Letter)), None) or _letter(
            inner, listed=listed
        )
    if get_origin(hint) in {Union, types.UnionType}:
        members = (member for member in get_args(hint) if _is_list(member) == listed)
        return next((letter for member in members if (letter := _letter(member, listed=listed))), None)
    return _letter(get_args(hint)[0], listed=False) if get_origin(hint) is list else None


def _is_list(hint: Any) -> bool:
    return get_origin(hint) is list or (get_origin(hint) is Annotated and _is_list(get_args(hint)[0]))


# The order of a row, `O(N·W²·d)`: the leading term in N of its cost, from its own formula in letters ─────────────────


def orders(rows: Iterable[Operation]) -> dict[str, str]:
    """Path -> order of every row with a cost; `rows` are in letters."""
    return {row.path: order(row) for row in rows if costs(row)}


def costs(row: Operation) -> bool:
    """Has it parameters, or work other than moving data?"""
    return bool(row.macs or row.flops or row.comparisons or row.params)


def order(row: Operation, written: Callable[[Operation, int], str] | None = None) -> str:
    """The order of a row's MACs, else of its FLOPs (or comparisons, where they grow faster), else of its parameters.

    `written` gives the text of one number of the row; without it that is its order in letters.

    Raises:
        ArithmeticError: the row has a cost whose formula vanishes for large N.
    """
    told = written or text
    if row.comparisons and not row.macs:
        compared = told(row, row.comparisons)
        if not row.flops or text(row, row.comparisons + row.flops) != text(row, row.flops):
            return f"{compared} comparisons"
    if row.macs or row.flops:
        return told(row, row.macs or row.flops)
    return f"{told(row, row.params)} parameters"


def text(row: Operation, cost: int) -> str:
    """The order of one number of `row`."""
    form = form_of(cost)
    if form.sign() < 0 or not form.terms:
        raise ArithmeticError(f"{row.path}: {int(cost):,} is {form!r} in letters, which is no cost for many tokens")
    return form.order()
