"""Kernel attention under the contract."""

from __future__ import annotations

from hypothesis import strategies as st

from cases.base import HEADS, SEQUENCES, MechanismCase, Rows
from xfcost.formulas.feature_maps import EluPlusOne, RandomFeatures
from xfcost.ledger.grid import Grid
from xfcost.mechanisms.kernel import Kernel

EXAMPLES = (
    Kernel(heads=2),
    Kernel(heads=3, features=RandomFeatures(count=4)),
    Kernel(heads=2, causal=True, chunk=4),
    Kernel(heads=1, head_dim=3, causal=True, form="parallel", features=RandomFeatures(count=4, function="relu")),
    Kernel(heads=2, causal=True, form="chunked", chunk=3, features=RandomFeatures(count=7)),
    Kernel(heads=2, causal=True, form="recurrent", features=RandomFeatures(count=5), projection_bias=False),
)


@st.composite
def components(draw: st.DrawFn) -> Kernel:
    causal = draw(st.none() | st.booleans())
    form = draw(st.sampled_from([None, "parallel", "chunked", "recurrent"])) if causal else None
    chunked = causal and form in (None, "chunked")
    return Kernel(
        heads=draw(HEADS),
        head_dim=draw(st.none() | st.integers(1, 64)),
        causal=causal,
        form=form,
        chunk=draw(st.none() | st.integers(1, 9)) if chunked else None,
        features=draw(
            st.just(EluPlusOne())
            | st.builds(RandomFeatures, count=st.integers(1, 99), function=st.sampled_from(["softmax", "relu"]))
        ),
        projection_bias=draw(st.booleans()),
    )


CASE = MechanismCase(
    rows=Rows(grids=lambda component: (Grid((12,)), Grid((24,)))),
    component=Kernel,
    examples=EXAMPLES,
    components=components(),
    growth=lambda component: (Grid((component.chunk or 6,)), Grid((2 * (component.chunk or 6),))),
    grids=SEQUENCES,
    fused=False,
    symbolic=EXAMPLES[:2],
)
