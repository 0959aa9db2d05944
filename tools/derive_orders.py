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

import msgspec
import sympy

from xfcost.grid import Grid
from xfcost.layers import EMBEDS, ENTERS, HEADS, SUBLAYERS
from xfcost.layers.axis_position import AxisPosition
from xfcost.layers.class_token import ClassToken
from xfcost.layers.dense import Dense
from xfcost.layers.fold import Fold
from xfcost.layers.fourier import Fourier, Pixels
from xfcost.layers.heads import Classifier, LanguageModel, Pooler
from xfcost.layers.memory_tokens import MemoryTokens
from xfcost.layers.mlp import Mlp
from xfcost.layers.norm import Norm
from xfcost.layers.patch import Patch
from xfcost.layers.patch_merging import PatchMerging
from xfcost.layers.pooling_attention import PoolingAttention
from xfcost.layers.position import Position
from xfcost.layers.projection import Projection
from xfcost.layers.residual import TwoStreams, wrapped
from xfcost.layers.shift import Context, Shift
from xfcost.layers.token import Token
from xfcost.layers.token_type import TokenType
from xfcost.layers.upsample import Upsample
from xfcost.ledger import Operation
from xfcost.mechanisms import (
    MECHANISMS,
    Axial,
    BlockSparse,
    Blockwise,
    Compressed,
    Compressive,
    Cross,
    Full,
    Funnel,
    GlobalLocal,
    Inducing,
    Kernel,
    LowRank,
    Lsh,
    Nystrom,
    Relative,
    Routing,
    Sinkhorn,
    Sliding,
    Sparse,
    Synthesizer,
    Window,
)
from xfcost.mechanisms.base import Page, Place, Residual, SubLayer
from xfcost.mechanisms.kernel import EluPlusOne, RandomFeatures

FILE = Path(__file__).parents[1] / "src" / "xfcost" / "mechanisms" / "orders.py"
COMMAND = "python tools/derive_orders.py"

# The letters, in the order in which a product is written: O(h·N²), O(N·W²·d).
LETTERS = {
    "h": "heads",
    "N": "tokens",
    "M": "tokens of the memory (cross-attention)",
    "W": "side of a window",
    "w": "tokens of a sliding window or of a cluster",
    "b": "tokens of a block, chunk or bucket",
    "l": "stride of a pattern",
    "c": "compression: tokens per compressed one; or summary cells of a block",
    "g": "global tokens",
    "r": "random blocks per block, or rounds of hashing",
    "k": "rank, landmarks, random features, inducing points, clusters or buckets",
    "m": "memory tokens, positions beside a block that it reads, or positions kept from earlier segments",
    "P": "side of a patch",
    "C": "channels of the image",
    "V": "entries of the vocabulary",
    "L": "rows of a position table that is not as long as the input",
    "K": "classes",
    "d": "width",
    "dₖ": "width of a head",
}
SYMBOLS: dict[str, Any] = {letter: sympy.Symbol(letter, integer=True, positive=True) for letter in LETTERS}
h, N, M, W, w, b, stride, c, g, r, k, m, P, C, V, L, K, d, dk = SYMBOLS.values()
LOG = sympy.Symbol("log N", positive=True)  # ⌈log₂ of any list that grows with N⌉
# s = √N, the side of the square grid: formulas round it, so it is an integer of its own.
s = sympy.Symbol("s", integer=True, positive=True)
S = sympy.Symbol("S", integer=True, positive=True)  # a shift

SQUARE = Grid((s, s))


def _place(**given: Any) -> Place:
    return Place(**({"grid": SQUARE, "dim": d, "out_dim": d} | given))


def _both(place: Place, *pages: Page) -> list[tuple[Page, Place]]:
    """`pages` at `place`, eager and fused."""
    return [(page, spot) for page in pages for spot in (place, msgspec.structs.replace(place, fused=True))]


CHUNKED = {"causal": True, "form": "chunked", "chunk": b}

# Every page in letters, with the options that bring other rows. A page that is missing here fails the derivation.
EXAMPLES: dict[type[Page], list[tuple[Page, Place]]] = {
    Full: _both(_place(), Full(heads=h), Full(heads=h, causal=True)),
    Cross: _both(_place(memory=Grid((M,)), memory_dim=d), Cross(heads=h)),
    # half a window is a whole number, here w
    Sliding: [
        (Sliding(heads=h, window=2 * w), _place()),
        (Sliding(heads=h, window=2 * w, global_projections=True), _place()),
        (Sliding(heads=h, window=2 * w, dilation=2, global_tokens=g), _place()),
        (Sliding(heads=h, window=2 * w, causal=True), _place()),
    ],
    BlockSparse: _both(_place(), BlockSparse(heads=h, block=b, random_blocks=r)),
    GlobalLocal: [
        (GlobalLocal(heads=h, radius=w, **projections), _place(grid=grid))
        for projections in ({}, {"share_projections": False, "share_output": False})
        for grid in (SQUARE, Grid((s, s), g))
    ],
    Window: [
        *_both(_place(), Window(heads=h, size=W), Window(heads=h, size=W, shift=S)),
        *_both(_place(grid=Grid((s * s,))), Window(heads=h, size=W), Window(heads=h, size=W, shift=S)),
    ],
    Inducing: _both(_place(), Inducing(heads=h, points=k)),
    Axial: [
        *_both(_place(), Axial(heads=h, axis="row"), Axial(heads=h, axis="column", causal=True)),
        *_both(_place(), Axial(heads=h, axis="all")),
    ],
    Blockwise: [
        *_both(_place(), Blockwise(heads=h, block=b), Blockwise(heads=h, block=b, before=m, causal=True)),
        *_both(_place(), Blockwise(heads=h, block=[W, W], above=W, beside=W)),
    ],
    Relative: _both(_place(), Relative(heads=h, memory=m), Relative(heads=h, memory=m, causal=True)),
    Lsh: [
        (Lsh(heads=h, bucket=b, rounds=r, buckets=buckets, causal=causal), _place())
        for buckets in (None, 2 * k, [2 * k, 2 * k])
        for causal in (False, "approximate")
    ]
    + [(Lsh(heads=h, bucket=2 * s * s, rounds=r), _place())],
    Kernel: [
        (Kernel(heads=h, features=features, **way), _place(dim=h * dk))
        for features in (EluPlusOne(), RandomFeatures(count=k), RandomFeatures(count=k, function="relu"))
        for way in ({}, *({"causal": True, "form": form} for form in ("parallel", "recurrent")), CHUNKED)
    ],
    Compressive: _both(
        _place(),
        *(
            Compressive(heads=h, memory=m, compressed_memory=m, compression=c, function=function, causal=True)
            for function in ("conv", "mean", "max")
        ),
    ),
    LowRank: _both(_place(), *(LowRank(heads=h, rank=k, share=share) for share in ("none", "key_value"))),
    Nystrom: _both(_place(), *(Nystrom(heads=h, landmarks=landmarks, conv=w) for landmarks in (k, 2 * s * s))),
    Compressed: _both(
        _place(),
        Compressed(heads=h, compression=c),
        Compressed(heads=h, compression=c, causal=True),
        Compressed(heads=h, compression=c, function="mean"),
        Compressed(heads=h, compression=c, function="max"),
    ),
    Funnel: _both(
        _place(),
        Funnel(heads=h, token_types=True),
        Funnel(heads=h, stride=2, token_types=True),
        Funnel(heads=h, stride=2, pool="max", token_types=True),
        Funnel(heads=h, stride=2, pool_q_only=False, separate_cls=False, truncate_seq=False),
    ),
    Synthesizer: [
        (Synthesizer(heads=h, **form), _place(dim=h * dk))
        for form in (
            {"form": "dense"},
            {"form": "random"},
            {"form": "random", "trainable": False},
            {"form": "factorized_random", "rank": k},
            {"form": "factorized_dense"},
            {"form": "factorized_dense", "factor": k},
        )
    ],
    Sparse: _both(
        _place(dim=2 * d, out_dim=2 * d),
        *(
            Sparse(heads=2 * h, stride=stride, causal=True, integration=way, **pattern)
            for way in ("local", "long", "merged", "heads")
            for pattern in ({"pattern": "strided"}, {"pattern": "fixed", "summary": c})
        ),
    ),
    Mlp: [(Mlp(), _place())],
    Dense: [(Dense(), _place())],
    Patch: [(Patch(size=P, norm="layer_norm"), _place(grid=Grid((P * s, P * s)), dim=C))],
    Token: [(Token(scale="sqrt_dim"), _place(dim=V, vocabulary=V))],
    ClassToken: [(ClassToken(), _place())],
    MemoryTokens: [(MemoryTokens(count=m), _place())],
    Position: [
        (Position(), _place()),
        (Position(length=L), _place()),
        (Position(form="axial", shape=[L] * 4, widths=[d] * 4), _place()),
    ],
    TokenType: [(TokenType(types=2), _place())],
    Norm: [(Norm(), _place())],
    AxisPosition: [(AxisPosition(), _place())],
    Shift: [(Shift(axis="row"), _place())],
    Context: [(Context(), _place(memory=SQUARE, memory_dim=d))],
    Fold: [(Fold(), _place(grid=Grid((s * s,))))],
    Pixels: [(Pixels(), _place(dim=C, out_dim=d))],
    Fourier: [(Fourier(), _place(dim=C, out_dim=d))],
    Projection: [(Projection(), _place(dim=C))],
    PoolingAttention: [
        spot
        for where in ("pre", "post", "res_post")
        for spot in _both(_place(), PoolingAttention(heads=h, count=k, residual=Residual(place=where)))
    ],
    Routing: [
        pair
        for sizes in ({}, {"window": w}, {"clusters": k}, {"window": w, "clusters": k})
        for options in ({"causal": "approximate"}, {"shared_qk": True}, {"local_heads": h, "local_window": b})
        for pair in _both(_place(dim=2 * h * dk), Routing(heads=2 * h, head_dim=dk, **sizes, **options))
    ],
    Sinkhorn: [
        pair
        for options in ({}, {"causal": True}, {"sortcut": k})
        for pair in _both(_place(dim=h * dk), Sinkhorn(heads=h, head_dim=dk, block=b, **options))
    ],
    PatchMerging: [(PatchMerging(), _place(out_dim=2 * d))],
    Upsample: [(Upsample(factor=4), _place(memory=Grid((4 * s * s,)), memory_dim=d))],
    Classifier: [(Classifier(pool=pool, classes=K), _place(grid=Grid((s, s), 1))) for pool in ("mean", "class_token")],
    LanguageModel: [(LanguageModel(), _place(vocabulary=V))],
    Pooler: [(Pooler(), _place())],
}


def orders() -> dict[tuple[str, str], str]:
    """(page's order key or "residual", row) -> order, for every row that costs something.

    Raises:
        LookupError: a page of the written lists has no example above, or options change an order under one key.
    """
    found: dict[tuple[str, str], set[str]] = {}
    pages = (*MECHANISMS, *SUBLAYERS, *EMBEDS, *ENTERS, *HEADS)
    for page in pages:
        if page not in EXAMPLES:
            raise LookupError(f"{page.__name__} has no example in tools/derive_orders.py")
    for page in pages:
        for example, place in EXAMPLES[page]:
            shortcut = example.shortcut(place) if isinstance(example, SubLayer) else ()
            for row in (*example.operations(place), *shortcut):
                _note(found, (example.order_key(place), row.path), row)
    for row in _residual_rows():
        _note(found, ("residual", row.path), row)
    for key, texts in found.items():
        if len(texts) > 1:
            raise LookupError(f"{key}: its options disagree ({', '.join(sorted(texts))}); give the page an order_key")
    return {key: texts.pop() for key, texts in found.items()}


def _residual_rows() -> Iterator[Operation]:
    inner = {row.path for row in Mlp().operations(_place())}
    yield from (row for row in wrapped(Mlp(), Residual(), _place()) if row.path not in inner)
    yield from TwoStreams(join="mean", blocks=1).operations(_place())


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
