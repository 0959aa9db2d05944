"""Derive every operation's order in letters from its page's own formula, and write src/xfcost/mechanisms/orders.py.

    python tools/derive_orders.py           write the file
    python tools/derive_orders.py --check   exit 1 where the file is not what the formulas give

Pages are asked for their rows with sympy symbols in place of numbers, N tokens standing on a square grid. Of a row's
MACs (else FLOPs or comparisons, else parameters) the leading term in N is kept, without its numeric factor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sympy
from order_examples import examples
from order_examples.letters import LETTERS, SYMBOLS, N, place, s

from xfcost.errors import PageError
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.layers.mlp import Mlp
from xfcost.layers.residual import TwoStreams, wrapped
from xfcost.ledger import Operation
from xfcost.mechanisms import MECHANISMS
from xfcost.mechanisms.base import Page, Place, Residual, SubLayer, alone, decoding_key

FILE = Path(__file__).parents[1] / "src" / "xfcost" / "mechanisms" / "orders.py"
COMMAND = "python tools/derive_orders.py"

LOG = sympy.Symbol("log N", positive=True)  # ⌈log₂ of any list that grows with N⌉


def orders() -> dict[tuple[str, str], str]:
    """(page's order key or "residual", row) -> order, for every row that costs something.

    Raises:
        LookupError: a page of the written lists has no example, or options change an order under one key.
    """
    found: dict[tuple[str, str], set[str]] = {}
    known = examples()
    pages = (*MECHANISMS, *SUBLAYERS, *EMBEDS, *ENTERS, *HEADS)
    for page in pages:
        if page not in known:
            raise LookupError(f"{page.__name__} has no example in tools/order_examples/")
    for example, spot in (each for page in pages for each in known[page]):
        for row in _rows(example, spot):
            _note(found, (example.order_key(spot), row.path), row)
        for row in _decoding_rows(example, spot):
            _note(found, (decoding_key(example.order_key(spot)), row.path), row)
    for row in _residual_rows(place()):
        _note(found, ("residual", row.path), row)
    for row in _residual_rows(alone(place())):
        _note(found, (decoding_key("residual"), row.path), row)
    for key, texts in found.items():
        if len(texts) > 1:
            raise LookupError(f"{key}: its options disagree ({', '.join(sorted(texts))}); give the page an order_key")
    return {key: texts.pop() for key, texts in found.items()}


def _rows(example: Page, spot: Place) -> Iterator[Operation]:
    """A page's rows; with those of its residual, where that isn't around all tokens but around the extra ones alone."""
    if isinstance(example, SubLayer) and example.extra_alone:
        yield from wrapped(example, Residual(layer_scale=1, factor=1), spot)
        return
    yield from example.operations(spot)
    if isinstance(example, SubLayer):
        yield from example.shortcut(spot)


def _decoding_rows(example: Page, spot: Place) -> list[Operation]:
    """A page's rows for one token more; none where it can't be worked out token by token."""
    try:
        rows = list(example.decoding(spot))
    except PageError:
        return []
    return [*rows, *(example.shortcut(alone(spot)) if isinstance(example, SubLayer) else ())]


def _residual_rows(spot: Place) -> Iterator[Operation]:
    inner = {row.path for row in Mlp().operations(spot)}
    yield from (row for row in wrapped(Mlp(), Residual(layer_scale=1, factor=1), spot) if row.path not in inner)
    yield from TwoStreams(join="mean", blocks=1).operations(spot)


def _note(found: dict[tuple[str, str], set[str]], key: tuple[str, str], row: Operation) -> None:
    """Note the order of a row's MACs; else of its FLOPs (its comparisons, if they outgrow them); else parameters."""
    compares = row.comparisons and not row.macs
    if compares and not (row.flops and order(row.flops + row.comparisons) == order(row.flops)):
        found.setdefault(key, set()).add(f"{order(row.comparisons)} comparisons")
    elif row.macs or row.flops:
        found.setdefault(key, set()).add(order(row.macs or row.flops))
    elif row.params:
        found.setdefault(key, set()).add(f"{order(row.params)} parameters")


def order(cost: Any) -> str:
    """`O(N·W²·d)`, the leading term of `cost` in N, through roundings, without numeric factors.

    In the other letters a term goes where another term has every letter in at least the same power. A logarithm of what
    grows with N is log N, which outgrows every constant and no power of N.
    """
    cost = sympy.sympify(cost).replace(_is_log, _logarithm)
    leading = _leading(_unrounded(cost))
    logs = sympy.degree(leading, LOG)
    leading = leading.coeff(LOG, logs)
    others = [symbol for symbol in SYMBOLS.values() if symbol is not N]
    terms = {tuple(_degree(term, letter) for letter in others) for term in leading.as_ordered_terms()}
    kept = {_heads_joined(list(term)) for term in terms if not any(_below(term, other) for other in terms)}
    grows = sympy.degree(leading.subs(N, s**2), s)
    return f"O({' + '.join(_product(powers, grows, logs) for powers in sorted(kept, reverse=True))})"


def _degree(term: Any, letter: Any) -> int:
    """The power of `letter` in one term; negative where it divides."""
    return int(term.as_powers_dict()[letter])


def _is_log(x: Any) -> bool:
    return bool(getattr(getattr(x, "func", None), "__name__", "") == "ceil_log2")


def _logarithm(x: Any) -> Any:
    """log N where the list grows with N; else a constant, which is no letter's power."""
    return LOG if x.args[0].has(s) else sympy.Integer(1)


def _heads_joined(powers: list[int]) -> tuple[int, ...]:
    """h·dₖ is d: a page whose place is as wide as h heads of dₖ says so in the fewest letters."""
    others = [letter for letter in LETTERS if letter != "N"]
    at_h, at_d, at_dk = (others.index(letter) for letter in ("h", "d", "dₖ"))
    both = min(powers[at_h], powers[at_dk])
    powers[at_h] -= both
    powers[at_dk] -= both
    powers[at_d] += both
    return tuple(powers)


def _below(powers: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return powers != other and all(a <= b for a, b in zip(powers, other, strict=True))


def _unrounded(cost: Any) -> Any:
    """`cost` as it is for many tokens: |x| by the sign x then has, ⌊x⌋ without its rounding where x grows."""
    roundings = (sympy.Abs, sympy.floor, sympy.ceiling)
    return sympy.expand(cost.replace(lambda x: isinstance(x, roundings), _smooth))  # inner ones before outer ones


def _smooth(x: Any) -> Any:
    inner = x.args[0]
    limit = _limit(inner)
    if isinstance(x, sympy.Abs):
        return inner if limit is sympy.oo or limit.is_nonnegative else -inner
    return inner if limit.is_infinite else x.func(limit)


def _limit(x: Any) -> Any:
    """The limit of x for s → ∞: by the sign of the leading coefficient, so that other letters may stand in x."""
    x = sympy.expand(x)
    degree = sympy.degree(x, s) if x.has(s) else 0
    if degree <= 0:
        return x.coeff(s, 0) if x.has(s) else x
    return sympy.oo * sympy.sign(x.coeff(s, degree))


def _leading(cost: Any) -> Any:
    degree = sympy.degree(cost, s) if cost.has(s) else 0
    return sympy.expand(cost.coeff(s, degree) * N ** sympy.Rational(degree, 2))


def _product(powers: tuple[int, ...], twice: int, logs: int) -> str:
    """Powers of every letter but N, twice N's, and log N's, as `h·N²`; what divides comes last, as `N²·d/b`."""
    divisors = "".join(
        f"/{_power(letter, -power)}"
        for letter, power in zip((one for one in LETTERS if one != "N"), powers, strict=True)
        if power < 0
    )
    others = iter(max(power, 0) for power in powers)
    factors = []
    for letter in LETTERS:
        if letter == "N":
            whole, half = divmod(twice, 2)
            factors.append(_power("N", whole) + ("√N" if half else ""))
        else:
            factors.append(_power(letter, next(others)))
    fraction = ("·".join(factor for factor in factors if factor) or "1") + divisors
    return fraction + (f"·{_power('log N', logs)}" if logs else "")


def _power(letter: str, power: int) -> str:
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))
    return "" if power == 0 else letter if power == 1 else letter + raised


def text() -> str:
    """The generated file."""
    rows = [f'    ("{kind}", "{row}"): "{found}",' for (kind, row), found in orders().items()]
    letters = [f'    "{letter}": "{meaning}",' for letter, meaning in LETTERS.items()]
    return "\n".join(
        [
            '"""Orders in letters, row by row: the leading term in N of its MACs, else FLOPs, else parameters.',
            "",
            f"Generated by `{COMMAND}` from the pages' own formulas; a test compares. Don't edit it.",
            '"""',
            "",
            "from __future__ import annotations",
            "",
            "from typing import Final",
            "",
            "LETTERS: Final[dict[str, str]] = {",
            *letters,
            "}",
            "",
            "# (kind of the page, name of the operation) -> order; what moves data alone has none.",
            "ORDERS: Final[dict[tuple[str, str], str]] = {",
            *rows,
            "}",
            "",
        ]
    )


def main(arguments: list[str]) -> int:
    """Write the file, or with --check compare it."""
    derived = text()
    if "--check" in arguments:
        same = FILE.read_text(encoding="utf-8") == derived
        print("orders.py is what the formulas give" if same else f"orders.py is stale: run `{COMMAND}`")
        return 0 if same else 1
    FILE.write_text(derived, encoding="utf-8")
    print(f"wrote {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
